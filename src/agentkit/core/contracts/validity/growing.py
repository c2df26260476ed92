"""`GrowingView`: the repair of a transcript that grows, carried on instead of made anew. Touches only its arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from agentkit.core.contracts.blocks import NativeBlock
from agentkit.core.contracts.messages import Message, derived, marked, same_objects
from agentkit.core.contracts.surrogates import has_surrogates

from . import native
from .problems import Problem
from .rules import STRICT, Rules
from .view import Repaired, joined, joining, repair

_ANCHOR = Message("user", "-")
"""Stands in front of a stretch that begins with an answer of the model, as something always does."""


class GrowingView:
    """The view of one transcript, for the same rules, asked for again and again as messages are added.

    A transcript falls into stretches that each begin with an answer of the model behind something else. What `repair`
    makes of one does not depend on those in front of it, and stays as it is when more come, as long as every result is
    in the stretch of its call and no id comes twice. So only what was added since the last time is repaired; a
    transcript that is otherwise, or that changed in front, is repaired as a whole. The outcome is always that of
    `repair`.
    """

    def __init__(self, rules: Rules = STRICT) -> None:
        self._rules = rules
        self._forget(None)

    def messages(self, given: Sequence[Message], *, prefix: int | None = None) -> tuple[Message, ...]:
        """The messages of `repair(given, rules, prefix=prefix)`."""
        return self.repaired(given, prefix=prefix).messages

    def repaired(self, given: Sequence[Message], *, prefix: int | None = None) -> Repaired:
        """`repair(given, rules, prefix=prefix)`."""
        known = len(self._seen)
        if prefix != self._prefix or not self.continues(given):
            self._forget(prefix)
            known = 0
        cuts = [at for at in range(max(known, 1), len(given)) if _begins(given, at)]
        ends = [at for at in cuts if at > known]
        for end in ends:
            if not self._settle(given[len(self._seen) : end], prefix):
                self._forget(prefix)
                return repair(given, self._rules, prefix=prefix)
        rest = given[len(self._seen) :]
        made = self._repaired(rest, prefix)
        if made is None:
            return repair(given, self._rules, prefix=prefix)
        return Repaired((*self._view, *made.messages), (*self._changes, *made.changes), (*self._places, *made.places))

    def continues(self, given: Sequence[Message]) -> bool:
        """Whether `given` begins with all that is known of the transcript, which is nothing at first."""
        known = len(self._seen)
        if not known:
            return True
        # Most that is no continuation differs here already.
        if len(given) < known or given[known - 1] is not self._seen[-1]:
            return False
        return same_objects(self._seen, list(given[:known]))

    @property
    def known(self) -> int:
        """How many messages are known, whose view stays as it is."""
        return len(self._seen)

    def _settle(self, stretch: Sequence[Message], prefix: int | None) -> bool:
        made = self._repaired(stretch, prefix)
        if made is None:
            return False
        if not made.messages or made.messages[-1].role not in ("user", "tool"):
            return True  # nothing of what stands in front of the next answer is shown: that one goes with this stretch
        self._view += made.messages
        self._changes += made.changes
        self._places += made.places
        self._ids |= made.ids
        self._seen += stretch
        return True

    def _repaired(self, stretch: Sequence[Message], prefix: int | None) -> _Stretch | None:
        """The view of a stretch, as a part of the whole; None where it cannot be told by itself."""
        ids: set[str] = set()
        for message in stretch:
            for call in message.tool_calls:
                if not call.id or call.id in ids or call.id in self._ids:
                    return None
                ids.add(call.id)
            if message.role == "tool" and message.tool_call_id not in ids:
                return None
            if message.meta and (marked(message, "late") or marked(message, "pending")):
                return None
            if any(isinstance(block, NativeBlock) and _reaches_out(block) for block in message.blocks):
                return None
        at = len(self._view)
        if self._seen and _is_plain(stretch):
            return self._plain(stretch, at, ids)
        if not self._seen:
            found = repair(stretch, self._rules, prefix=prefix)
            return _Stretch(found.messages, found.changes, found.places[1:], ids)
        view, changes, places = repair((_ANCHOR, *stretch), self._rules, prefix=0)
        if not view or view[0] is not _ANCHOR:
            return None
        front, before = self._places[-1], len(self._seen) - 1
        moved = [front if place[0] == 0 else (at - 1 + place[0], place[1]) for place in places[2:]]
        return _Stretch(view[1:], tuple([replace(c, index=before + c.index) for c in changes]), moved, ids)

    def _plain(self, stretch: Sequence[Message], at: int, ids: set[str]) -> _Stretch:
        """A plain stretch as it is sent: as it is, or with the texts behind the answer as one message."""
        texts = stretch[1:]
        if len(texts) < 2 or not self._rules.alternation:
            return _Stretch(tuple(stretch), (), [(at + n, 1) for n in range(len(stretch))], ids)
        before = len(self._seen)
        changes = tuple([joining("user", before + n) for n in range(2, len(stretch))])
        places = [(at, 1), *[(at + 1, n) for n in range(1, len(stretch))]]
        return _Stretch((stretch[0], joined(texts[0], texts[1:])), changes, places, ids)

    def _forget(self, prefix: int | None) -> None:
        self._seen: list[Message] = []
        self._view: list[Message] = []
        self._changes: list[Problem] = []
        self._places: list[tuple[int, int]] = [(0, 0)]
        self._ids: set[str] = set()
        self._prefix: int | None = prefix


class _Stretch(NamedTuple):
    """What is sent of a stretch, the changes made for it, where each of its messages ends, and the ids of its calls."""

    messages: tuple[Message, ...]
    changes: tuple[Problem, ...]
    places: Sequence[tuple[int, int]]
    ids: set[str]


def _reaches_out(block: NativeBlock) -> bool:
    """Whether what is sent of a native block depends on other stretches: a result, or a call whose id is its own."""
    return native.is_tool_result(block) or native.is_server_call(block) or native.is_server_result(block)


def _is_plain(stretch: Sequence[Message]) -> bool:
    """Whether a stretch is an answer and what was said to it, in texts that every provider takes as they are."""
    if not stretch:
        return True
    return (
        stretch[0].role == "assistant"
        and all(m.role == "user" for m in stretch[1:])
        and all(derived(m, "_is_text", _is_text) for m in stretch)
    )


def _is_text(m: Message) -> bool:
    if m.tool_calls or m.blocks or m.name or m.is_error or m.meta or m.tool_call_id:
        return False
    text = m.content
    return text != "" and not text.isspace() and not has_surrogates(text)


def _begins(given: Sequence[Message], at: int) -> bool:
    """Whether a stretch begins at this place: with an answer of the model that follows something else."""
    return given[at].role == "assistant" and given[at - 1].role not in ("assistant", "system", "developer")
