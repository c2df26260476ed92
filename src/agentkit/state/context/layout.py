"""What a request looks like, ordered from never-changing to ever-changing, and where its prompt-cache marks go. Touches
only its arguments.

Providers keep the longest prefix that was sent before. So the order is: frozen prefix, summary, tail, volatile block;
an append changes the tail alone, a compaction summary and tail, a plan, memory or clock change nothing but the end.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, reduce

from agentkit.core.contracts.checks import require_int
from agentkit.core.contracts.messages import Message
from agentkit.core.contracts.offers import Breakpoint

from .head import shared_head

KINDS = ("frozen", "summary", "tail", "volatile")

_PLACE = {kind: at for at, kind in enumerate(KINDS)}
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


@dataclass(frozen=True)
class Segment:
    """One stretch of a layout. `digest`: SHA-256 (hex) of what is sent, meta left out, equal in every process;
    `tokens`: by the context's counter, for `frozen` with the tools' schemas."""

    kind: str
    messages: tuple[Message, ...] = ()
    digest: str = ""
    tokens: int = 0


@dataclass(frozen=True)
class Difference:
    """Where the cached prefix of a request stops matching the one before. `index` counts layout messages; `reason` is
    tools, prefix, summary, edited or removed."""

    segment: str
    index: int
    reason: str


@dataclass(frozen=True)
class Layout:
    """A request's messages by segment: always `frozen`, `summary`, `tail`, `volatile`, each possibly empty.

    `tools`: canonical JSON of each tool, sorted by name; they are sent in front of the frozen messages.
    """

    segments: tuple[Segment, ...]
    tools: tuple[str, ...] = field(default=(), repr=False)

    def messages(self) -> list[Message]:
        """All messages in the order they are sent."""
        return [message for segment in self.segments for message in segment.messages]

    def segment(self, kind: str) -> Segment:
        """The segment of that kind."""
        return self.segments[_PLACE[kind]]

    @property
    def tokens(self) -> int:
        """Estimated tokens of the whole request, tools included."""
        return sum(segment.tokens for segment in self.segments)

    def breakpoints(
        self,
        *,
        previous: Layout | None = None,
        max_marks: int = 4,
        min_tokens: int = 0,
        ttl: str = "5m",
        frozen_ttl: str | None = None,
    ) -> tuple[Breakpoint, ...]:
        """Where to ask the provider's cache to keep this request, in order of position.

        At most one mark at the end of each of: frozen, summary, the previous request's tail (while that request is
        still a head of this one), tail. An empty segment gives none, and so does a place with fewer than `min_tokens`
        in front. Over `max_marks` the previous tail's mark goes first, then the summary's, then the frozen one's: the
        mark that is furthest back keeps the most. `frozen_ttl` is the lifetime of the first mark; a later mark never
        outlives an earlier one, as providers demand. Raises ValueError for `max_marks` below 1 or an unreadable
        lifetime.
        """
        require_int(max_marks, "max_marks")
        require_int(min_tokens, "min_tokens")
        if max_marks < 1 or min_tokens < 0:
            raise ValueError(f"max_marks must be at least 1 and min_tokens at least 0: {max_marks}, {min_tokens}")
        first_ttl, later_ttl = frozen_ttl or ttl, ttl
        if ttl_seconds(later_ttl) > ttl_seconds(first_ttl):
            later_ttl = first_ttl
        places = [place for place in self._places(previous) if place[2] >= min_tokens]
        for expendable in ("previous", "summary", "frozen"):
            if len(places) > max_marks and len({position for _, position, _ in places}) > max_marks:
                places = [place for place in places if place[0] != expendable]
        marks: dict[int, Breakpoint] = {}
        for name, position, _ in places:  # in order of position
            if position not in marks:
                marks[position] = Breakpoint(position, first_ttl if name == "frozen" else later_ttl)
        return tuple(marks.values())

    def _places(self, previous: Layout | None) -> list[tuple[str, int, int]]:
        """(name, position, tokens in front) of each possible mark."""
        found: list[tuple[str, int, int]] = []
        position = tokens = 0
        for segment in self.segments[:3]:
            if segment.kind == "tail" and previous is not None:
                sent = previous.segment("tail").messages
                if sent and len(sent) < len(segment.messages) and is_head_of(previous, self):
                    found.append(("previous", position + len(sent), tokens + previous.segment("tail").tokens))
            position += len(segment.messages)
            tokens += segment.tokens
            if segment.messages:
                found.append((segment.kind, position, tokens))
        return found


def ttl_seconds(ttl: str) -> int:
    """Seconds of a lifetime such as `30s`, `5m`, `1h`; ValueError for any other form."""
    return _seconds(str(ttl))


@lru_cache(64)
def _seconds(ttl: str) -> int:
    match = re.fullmatch(r"([0-9]+)([smhd])", ttl)
    if match is None:
        raise ValueError(f"a lifetime is a number and a unit, such as '5m' or '1h', not {ttl!r}")
    return int(match[1]) * _SECONDS[match[2]]


def is_head_of(old: Layout, new: Layout) -> bool:
    """Whether `old`, less its volatile part, is what `new` begins with."""
    return first_difference(old, new) is None


def first_difference(old: Layout, new: Layout) -> Difference | None:
    """Where and why `new` stops continuing `old`, less its volatile part; None when it does not.

    Compares what is sent (digests), not identity or meta. `tools`: the sorted schemas differ; `prefix` and `summary`:
    that segment differs; `removed`: messages of the tail are gone; `edited`: one stands changed in its place.
    """
    if old.tools != new.tools:
        return Difference("frozen", 0, "tools")
    position = 0
    for kind, reason in (("frozen", "prefix"), ("summary", "summary")):
        before, after = old.segment(kind).messages, new.segment(kind).messages
        at = _first_change(before, after)
        if at is not None or len(before) != len(after):
            return Difference(kind, position + (min(len(before), len(after)) if at is None else at), reason)
        position += len(before)
    before, after = old.segment("tail").messages, new.segment("tail").messages
    at = _first_change(before, after)
    if at is None and len(after) >= len(before):
        return None
    if at is None or any(after[at].digest == later.digest for later in before[at + 1 :]):
        return Difference("tail", position + (len(after) if at is None else at), "removed")
    return Difference("tail", position + at, "edited")


def _first_change(before: Sequence[Message], after: Sequence[Message]) -> int | None:
    """The first place at which both have a message and they differ in what is sent."""
    for at in range(shared_head(before, after), min(len(before), len(after))):
        if before[at] is not after[at] and before[at].digest != after[at].digest:
            return at
    return None


EMPTY_DIGEST = hashlib.sha256(b"").digest()


def fold_digest(value: bytes, message: Message) -> bytes:
    """One step of the digest of a message sequence."""
    return hashlib.sha256(value + message.digest).digest()


def digest_messages(messages: Iterable[Message]) -> bytes:
    """The digest of a message sequence, as `fold_digest` reaches it."""
    return reduce(fold_digest, messages, EMPTY_DIGEST)


def digest_frozen(messages: Iterable[Message], tools: Sequence[str]) -> bytes:
    """The digest of the frozen segment: its messages behind the tools."""
    head = digest_messages(messages)
    if not tools:
        return head
    return hashlib.sha256(
        b"".join(hashlib.sha256(t.encode("utf-8", "surrogatepass")).digest() for t in tools) + head
    ).digest()
