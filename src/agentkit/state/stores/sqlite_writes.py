"""Writes of many calls as one: what they look at in one query, what they do decided call by call, and then rows of one
kind in one statement. Works on the connection that it is given, inside the transaction.

Python gives its lock away at each step of a statement and has to win it back from the event loop. With a statement for
each row that waiting would take most of a group's time; so rows go in by the dozen.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import partial
from typing import Any

from agentkit.core.contracts.errors import StoreError, TooLarge
from agentkit.core.contracts.ports import Lease

from . import sqlite_schema as sql
from .rules import NOTHING, AppendStep, Body, Effect, Held, PutStep, Step, decide, is_over, require_current
from .sqlite_books import Books
from .sqlite_index import Index


class Write:
    """The steps of one call, all or none, unless its `fence` is outdated; `now` is when it was made."""

    __slots__ = ("fence", "now", "steps")

    def __init__(self, steps: list[Step], now: float, fence: Lease | None) -> None:
        self.steps, self.now, self.fence = steps, now, fence


def carry_out(
    db: sqlite3.Connection, index: Index, books: Books, writes: Sequence[Write]
) -> list[tuple[int, ...] | StoreError]:
    """The numbers of each call, or why it was refused; a refusal leaves the others alone. Nothing is written before the
    last of them is decided. What SQLite itself raises ends the transaction."""
    known = _Known(db, [step.key for write in writes for step in write.steps])
    pending = _Pending(db, index, known.logs)
    outcomes: list[tuple[int, ...] | StoreError] = []
    for write in writes:
        try:
            if write.fence is not None:
                require_current(books.claim(db, write.fence.name), write.fence)
            effects, version = decide(write.steps, partial(known.at, now=write.now), books.version(db), write.now)
            _require_room(effects)
        except StoreError as refusal:
            outcomes.append(refusal)
            continue
        books.give_out(version)
        books.called(write.now)
        for effect in effects:
            known.take(effect)
            pending.take(effect)
        outcomes.append(tuple([effect.number for effect in effects]))
    pending.write()
    return outcomes


def _require_room(effects: list[Effect]) -> None:
    for step, number in effects:
        if isinstance(step, AppendStep) and number + len(step.bodies) > sql.MAX_POSITION:
            raise TooLarge(f"{step.key!r} has {number} items and takes up to {sql.MAX_POSITION}")


class _Known:
    """What keys hold, first as the file has it, then as it will be. `logs`: the numbers of those that are logs."""

    def __init__(self, db: sqlite3.Connection, keys: list[str]) -> None:
        self._held: dict[str, tuple[Held, float | None]] = {}
        self.logs: dict[str, int] = {}
        asked = list(dict.fromkeys(keys))
        for at in range(0, len(asked), sql.LOOK_AT_ONCE):
            self._look(db, asked[at : at + sql.LOOK_AT_ONCE])

    def _look(self, db: sqlite3.Connection, keys: list[str]) -> None:
        size = 1
        while size < len(keys):
            size *= 2
        (told,) = db.execute(sql.looking(size), [*keys, *[None] * (size - len(keys))]).fetchone()
        for row in (told or "").split():
            at, version, log, last, expires = row.split(",")
            key = keys[int(at)]
            if log:
                self.logs[key] = number = int(log)
                if last:
                    self._held[key] = Held(length=int(last) - (number << sql.POSITION_BITS) + 1), None
            else:
                deadline = db.execute(sql.HOLD, (key,)).fetchone()[2] if expires == "1" else None
                self._held[key] = Held(int(version)), deadline

    def at(self, key: str, now: float) -> Held:
        held, deadline = self._held.get(key, _NOTHING)
        return NOTHING if is_over(deadline, now) else held

    def take(self, effect: Effect) -> None:
        step, number = effect
        if isinstance(step, PutStep):
            self._held[step.key] = Held(version=number), step.deadline
        elif isinstance(step, AppendStep):
            self._held[step.key] = Held(length=number + len(step.bodies)), None
        elif number:
            self._held[step.key] = _NOTHING


_NOTHING = (NOTHING, None)


class _Pending:
    """Rows on their way. Only the last state of a value counts; of a log, every item."""

    def __init__(self, db: sqlite3.Connection, index: Index, logs: dict[str, int]) -> None:
        self._db, self._index, self._logs = db, index, logs
        self._puts: dict[str, tuple[Any, ...]] = {}
        self._gone: dict[str, None] = {}
        self._items: list[tuple[int, Body]] = []

    def take(self, effect: Effect) -> None:
        step, number = effect
        key = step.key
        if isinstance(step, PutStep):
            self._gone.pop(key, None)
            self._puts[key] = (key, number, step.deadline, step.body)
        elif isinstance(step, AppendStep):
            if step.bodies:
                self._items += enumerate(step.bodies, self._log(key) << sql.POSITION_BITS | number)
        elif number:
            if (log := self._logs.pop(key, None)) is not None:
                self._remove_log(log)
            self._puts.pop(key, None)
            self._gone[key] = None

    def _log(self, key: str) -> int:
        log = self._logs.get(key)
        if log is None:
            self._puts.pop(key, None)  # a value whose time is over
            self._gone.pop(key, None)
            log = self._logs[key] = int(self._db.execute(sql.COUNTER, ("log",)).fetchone()[0]) + 1
            self._db.execute(sql.SET_COUNTER, (log, "log"))
            self._db.execute(sql.OPEN_LOG, (key, log))
        return log

    def _remove_log(self, log: int) -> None:
        self._write_items()
        items = log << sql.POSITION_BITS, log << sql.POSITION_BITS | sql.MAX_POSITION
        self._index.remove(self._db, *items)
        self._db.execute(sql.REMOVE_ITEMS, items)

    def write(self) -> None:
        for rows in sql.portions([(key,) for key in self._gone]):
            self._db.execute(sql.removing(len(rows)), _flat(rows))
        for rows in sql.portions(list(self._puts.values())):
            self._db.execute(sql.putting(len(rows)), _flat(rows))
        self._write_items()

    def _write_items(self) -> None:
        for rows in sql.portions(self._items):
            self._db.execute(sql.adding(len(rows)), _flat(rows))
        self._index.add(self._db, self._items)
        self._items = []


def _flat(rows: Sequence[tuple[Any, ...]]) -> list[Any]:
    return [value for row in rows for value in row]
