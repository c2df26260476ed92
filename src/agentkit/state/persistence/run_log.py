"""What of a growing list is not in its log yet: the pure part of a checkpoint. Touches only its arguments.

A run's messages stand in an append-only log, and a version says by ranges of positions which of them it shows, and in
which order. After a rewrite the next version names what it kept by the old positions and only what is new is appended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import chain
from operator import is_
from typing import Any, TypeAlias
from uuid import UUID

from agentkit.core.contracts.errors import CodecError
from agentkit.core.contracts.frozen import FrozenDict, FrozenList
from agentkit.core.contracts.messages import Message, begins_with
from agentkit.core.contracts.plain import encode
from agentkit.state.context import MessageView

Range: TypeAlias = tuple[int, int]
"""Log positions from the first up to, not including, the second."""


@dataclass(frozen=True)
class Step:
    """How a log gets from one version to the next: what is appended, and what the new version shows."""

    items: Sequence[Any]
    fresh: tuple[Any, ...]
    ranges: tuple[Range, ...]


@dataclass
class LogView:
    """A log of `length` items, and the `items` that the last version shows, which stand at `ranges`."""

    items: Sequence[Any] = ()
    ranges: tuple[Range, ...] = ()
    length: int = 0
    messages_only: bool = True
    """Whether nothing but messages was ever in `items`, which makes comparing pointers much faster."""
    lent: tuple[Sequence[Any], tuple[Range, ...]] = field(default=((), ()), repr=False)
    """Items of an older version that was read, and their ranges: a run may go on from them."""

    def plan(self, items: Sequence[Any]) -> Step:
        """The step to a version that shows `items`. Known ones are found by identity, at the cost of comparing
        pointers; where the objects are not those of the last version, by value."""
        known = len(self.items)
        if not self._is_head_of(items):
            return self._plan_rewrite(items)
        fresh = tuple(items[known:])
        return Step(items, fresh, joined(chain(self.ranges, [(self.length, self.length + len(fresh))])))

    def advance(self, step: Step) -> None:
        """The step was stored."""
        self.items, self.ranges = step.items, step.ranges
        self.length += len(step.fresh)
        self.messages_only = self.messages_only and all(type(item) is Message for item in step.fresh)
        self.lent = ((), ())

    def _is_head_of(self, items: Sequence[Any]) -> bool:
        if isinstance(items, MessageView) and items.continues(self.items):
            return True
        if self.messages_only:
            return begins_with(tuple(items), tuple(self.items))
        return len(items) >= len(self.items) and all(map(is_, self.items, items))

    def _plan_rewrite(self, items: Sequence[Any]) -> Step:
        finder = _Finder(self)
        fresh: list[Any] = []
        places: list[int] = []
        for item in items:
            place = finder.place(item)
            if place is None:
                place = self.length + len(fresh)
                fresh.append(item)
            places.append(place)
        return Step(items, tuple(fresh), joined((place, place + 1) for place in places))


class _Finder:
    """Finds the log positions of a rewritten list's items, in order."""

    def __init__(self, view: LogView) -> None:
        self._old, self._places = view.items, list(positions(view.ranges))
        lent, lent_ranges = view.lent
        self._lent = {id(item): place for item, place in zip(lent, positions(lent_ranges), strict=True)}
        self._by_id = {id(item): at for at, item in enumerate(view.items)}
        self._by_value: dict[int, list[int]] | None = None
        self._next = 0  # behind the item found last: an object that occurs often is taken where it continues the run

    def place(self, item: Any) -> int | None:
        at = self._next
        if at >= len(self._old) or self._old[at] is not item:
            found = self._by_id.get(id(item))
            if found is None and id(item) in self._lent:
                return self._lent[id(item)]
            if found is None and at < len(self._old) and same(self._old[at], item):
                found = at
            if found is None:
                found = self._equal(item)
            if found is None:
                return None
            at = found
        self._next = at + 1
        return self._places[at]

    def _equal(self, item: Any) -> int | None:
        if self._by_value is None:
            self._by_value = {}
            for at, known in enumerate(self._old):
                value = _hash(known)
                if value is not None:
                    self._by_value.setdefault(value, []).append(at)
        value = _hash(item)
        candidates = () if value is None else self._by_value.get(value, ())
        return next((at for at in candidates if same(self._old[at], item)), None)


@dataclass(frozen=True)
class NotesStep:
    """What is appended for a changed scratchpad (items for the log of parts), and where its values stand then."""

    notes: Mapping[str, Any]
    items: tuple[dict[str, Any], ...]
    places: dict[str, int]
    start: int
    stop: int
    changes: int


@dataclass
class NotesView:
    """The scratchpad of the last version. Each change stands in the log of parts as `{"set", "drop"}`; `places` tells
    where a key's value stands. A reader goes over the parts from `start`, an index of all places or the first change,
    to `stop`."""

    notes: Mapping[str, Any] = field(default_factory=FrozenDict)
    places: dict[str, int] = field(default_factory=dict)
    start: int = 0
    stop: int = 0
    changes: int = 0

    def plan(self, notes: Mapping[str, Any], length: int) -> NotesStep | None:
        """The step to `notes` in a log of `length` parts; None when nothing changed, whatever their size.

        An index is written once the changes since the last one outnumber the keys, so that neither a read nor the
        average write grows with how often the scratchpad was changed.
        """
        old = self.notes
        changed = {key: value for key, value in notes.items() if key not in old or not same(old[key], value)}
        dropped = [key for key in old if key not in notes]
        places = {key: place for key, place in self.places.items() if key in notes}
        places |= dict.fromkeys(changed, length)
        in_order = list(places) == list(notes)
        if not changed and not dropped and in_order:
            return None
        items: list[dict[str, Any]] = []
        if changed or dropped:
            items.append({"set": changed, "drop": dropped})
        start = length if self.start == self.stop else self.start
        changes = self.changes + len(changed) + len(dropped)
        if not in_order or changes > max(INDEX_FROM, len(notes)):
            places = {key: places[key] for key in notes}
            start, changes = length + len(items), 0
            items.append({"index": dict(places)})
        return NotesStep(notes, tuple(items), places, start, length + len(items), changes)

    def advance(self, step: NotesStep) -> None:
        """The step was stored."""
        self.notes, self.places, self.changes = step.notes, step.places, step.changes
        self.start, self.stop = step.start, step.stop


INDEX_FROM = 32
"""Changes of a scratchpad that are read one by one before an index pays."""


def positions(ranges: Iterable[Range]) -> Iterator[int]:
    """The positions in ranges, in order."""
    return chain.from_iterable(range(start, stop) for start, stop in ranges)


def joined(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """The same positions in the same order, neighbours as one range, empty ranges left out."""
    found: list[Range] = []
    for start, stop in ranges:
        if start == stop:
            continue
        if found and found[-1][1] == start:
            found[-1] = (found[-1][0], stop)
        else:
            found.append((start, stop))
    return tuple(found)


_PLAIN: dict[type, type] = {FrozenDict: dict, FrozenList: list}
_EXACT = frozenset({str, bytes, int, bool, type(None)})
_PRINTED = frozenset({float, Decimal, UUID, date, time, datetime, timedelta})
"""Equal ones may still differ in what is stored: -0.0 and 0.0, 1.0 and 1.00, one moment in two time zones."""


def same(a: Any, b: Any) -> bool:
    """Whether two values are stored alike: types, meta and the order of keys count, unlike with `==`.

    False for objects of any other kind, one and the same included, since they may have changed inside.
    """
    work = [(a, b)]
    while work:
        x, y = work.pop()
        kind = _PLAIN.get(type(x), type(x))
        if kind is not _PLAIN.get(type(y), type(y)):
            return False
        if kind in _EXACT:
            if x != y:
                return False
        elif kind in _PRINTED:
            if repr(x) != repr(y):
                return False
        elif kind is set or kind is frozenset:
            if x != y or _stored(x) != _stored(y):
                return False
        elif kind is dict or kind is list or kind is tuple:
            if len(x) != len(y):
                return False
            work += zip(x, y, strict=True)
            if kind is dict:
                work += zip(x.values(), y.values(), strict=True)
        elif is_dataclass(x):
            work += [(getattr(x, f.name), getattr(y, f.name)) for f in fields(x)]
        else:
            return False
    return True


def _stored(items: set[Any] | frozenset[Any]) -> bytes | None:
    try:
        return encode(items)
    except CodecError:
        return None  # refused when it comes to storing, changed or not


def _hash(item: Any) -> int | None:
    try:
        return hash(item)
    except TypeError:
        return None


def runs(wanted: Sequence[int]) -> list[Range]:
    """The fewest ranges that cover the positions and nothing else, each position once."""
    return list(joined((place, place + 1) for place in sorted(set(wanted))))
