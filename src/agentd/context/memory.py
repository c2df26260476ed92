"""The agent's memory as decisions: keys and values under them, their lifetimes, the room they take, pages of a listing.
Touches only its arguments.

*Memory* is the durable key-value space of a scope here, not what a process takes. A value is gone from the millisecond
on at which its lifetime is over, whoever looks.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_right, insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from agentd.config.thinking import Memory
from agentd.config.values import parse_duration
from agentkit.core.contracts.errors import Corrupt
from agentkit.core.contracts.jsontext import canonical_json

MAX_KEY = 256
"""Bytes of UTF-8 in a key."""
INDEX = "_index"
"""The record that lists the keys where the store cannot: no key of the model's, since it begins with `_`."""


class MemoryRefused(ValueError):
    """What memory does not take; the text tells the model what would be right."""


class MemoryRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A value. `ts`: when it was set, in ms; `ttl_ms`: how long it lasts, None for ever; `by`: who set it."""

    value: Any = None
    ts: int = 0
    ttl_ms: int | None = None
    by: str = ""

    def is_over(self, now: int) -> bool:
        """Whether its lifetime has passed at `now`, in ms."""
        return self.ttl_ms is not None and now >= self.ts + self.ttl_ms


def checked_key(key: object) -> str:
    """The key. Raises MemoryRefused for one that is empty, too long, has blanks or control characters in it, or begins
    with `_`."""
    if not isinstance(key, str):
        raise MemoryRefused(f"a key is a text, not {type(key).__name__}")
    try:
        size = len(key.encode("utf-8"))
    except UnicodeEncodeError:
        raise MemoryRefused("a key is valid Unicode, this one has half a surrogate pair") from None
    if not 1 <= size <= MAX_KEY:
        raise MemoryRefused(f"a key has 1 to {MAX_KEY} bytes of UTF-8, this one {size}")
    if key.startswith("_"):
        raise MemoryRefused(f"keys that begin with _ are the daemon's own: {key[:40]!r}")
    if bad := next((sign for sign in key if sign.isspace() or unicodedata.category(sign) in ("Cc", "Cf")), None):
        raise MemoryRefused(f"a key has no blanks and no control characters, this one has {bad!r}: use - or . instead")
    return key


def lifetime(text: str | None) -> int | None:
    """Milliseconds of a duration such as 90s, 5m or 2d; None for none. Raises MemoryRefused for anything else."""
    if text is None:
        return None
    found = parse_duration(text)
    milliseconds = 0 if found is None else round(found.total_seconds() * 1000)
    if milliseconds <= 0:
        raise MemoryRefused(f"a ttl is a duration above 0 such as 90s, 5m or 2d, not {text[:40]!r}")
    return milliseconds


def record_of(value: Any, *, ttl: str | None, by: str, now: int, limits: Memory) -> tuple[MemoryRecord, bytes]:
    """The record of a value and its stored form. Raises MemoryRefused for one that is too large, or that would not come
    back as it is: no JSON."""
    made = MemoryRecord(value, now, lifetime(ttl), by)
    try:
        state = msgspec.json.encode(made)
        is_json = msgspec.json.decode(state, type=MemoryRecord).value == value
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise MemoryRefused(f"a value is JSON: {error}") from error
    if not is_json:
        raise MemoryRefused("a value is JSON: this one holds something that JSON does not have, such as NaN or a tuple")
    size = len(canonical_json(value).encode("utf-8"))
    if size > limits.max_value_bytes:
        raise MemoryRefused(
            f"the value takes {size:,} bytes, {limits.max_value_bytes:,} are allowed (memory.max_value_bytes): keep a "
            "shorter one, or an artifact and its id here"
        )
    return made, state


def read_record(state: bytes, key: str) -> MemoryRecord:
    """The record in a stored state. Corrupt, naming the key, for one that cannot be read."""
    try:
        return msgspec.json.decode(state, type=MemoryRecord)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Corrupt(f"the memory value {key!r} cannot be read: {error}", key=key) from error


# Listing


@dataclass(frozen=True)
class Page:
    """Keys in the order of their UTF-8 bytes. `next`: what to give as `after` for the page behind, None at the end."""

    keys: tuple[str, ...]
    next: str | None = None

    @property
    def is_truncated(self) -> bool:
        return self.next is not None


def page_of(keys: Sequence[str], *, prefix: str = "", after: str | None = None, limit: int) -> Page:
    """The keys that begin with `prefix`, behind `after`, at most `limit` (1 or more). `keys` in the order of their
    UTF-8 bytes, which is that of their code points."""
    if limit < 1:
        raise MemoryRefused(f"a limit is at least 1, not {limit}")
    start = bisect_right(keys, after) if after is not None else 0
    found: list[str] = []
    for at in range(start, len(keys)):
        if keys[at].startswith(prefix):
            if len(found) == limit:
                return Page(tuple(found), found[-1])
            found.append(keys[at])
    return Page(tuple(found))


class Shelf:
    """What one scope's memory holds, as far as limits and lists need it: keys, sizes, ends. Kept up by every write, so
    that no turn lists the store."""

    def __init__(self, found: Mapping[str, tuple[int, int | None]] | None = None) -> None:
        self._held = dict(found or {})
        self._keys = sorted(self._held)
        self._bytes = sum(size for size, _ in self._held.values())

    def __len__(self) -> int:
        return len(self._held)

    @property
    def bytes(self) -> int:
        """Of all values."""
        return self._bytes

    def keys(self, now: int) -> list[str]:
        """The keys whose values are not over, in order."""
        return [key for key in self._keys if not _is_over(self._held[key][1], now)]

    def over(self, now: int) -> list[str]:
        """The keys whose values are over and still stored."""
        return [key for key, (_, end) in self._held.items() if _is_over(end, now)]

    def put(self, key: str, record: MemoryRecord, size: int) -> None:
        """A value was stored."""
        before = self._held.get(key)
        if before is None:
            insort(self._keys, key)
        self._bytes += size - (before[0] if before is not None else 0)
        self._held[key] = size, None if record.ttl_ms is None else record.ts + record.ttl_ms

    def drop(self, key: str) -> None:
        """A value was deleted."""
        if (before := self._held.pop(key, None)) is not None:
            self._keys.remove(key)
            self._bytes -= before[0]

    def require_room(self, key: str, size: int, limits: Memory) -> None:
        """Raises MemoryRefused where a value of `size` bytes is one too many: nothing is evicted for it."""
        before = self._held.get(key)
        if before is None and len(self._held) >= limits.max_keys:
            raise MemoryRefused(f"memory holds {len(self._held):,} keys, the most there may be: delete some first")
        total = self._bytes + size - (before[0] if before is not None else 0)
        if total > limits.max_bytes:
            raise MemoryRefused(
                f"memory would take {total:,} bytes, {limits.max_bytes:,} are allowed: delete something first"
            )


def _is_over(end: int | None, now: int) -> bool:
    return end is not None and now >= end


def index_of(keys: Iterable[str]) -> bytes:
    """The stored form of the list of keys."""
    return msgspec.json.encode(sorted(keys))


def keys_of(state: bytes) -> list[str]:
    """The keys in a stored list. Corrupt for one that cannot be read."""
    try:
        return sorted(msgspec.json.decode(state, type=list[str]))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Corrupt(
            f"the list of memory keys cannot be read: {error}; `agentd check --store` makes it anew"
        ) from error
