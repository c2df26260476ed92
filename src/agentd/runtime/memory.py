"""The memory of one scope over the records. Touches the records that are handed in and a clock.

A change is decided here and committed by whoever asked for it, together with the result that tells of it: between the
two the scope is held by `writing`, so that nobody decides on what is about to change.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from agentd.config.thinking import Memory
from agentd.context.memory import (
    INDEX,
    MemoryRecord,
    MemoryRefused,
    Page,
    Shelf,
    checked_key,
    index_of,
    keys_of,
    page_of,
    read_record,
    record_of,
)
from agentd.records import Records, Remove, Row, Save, Write
from agentkit.core.contracts.errors import Corrupt, FormatError
from agentkit.core.contracts.scope import Scope

KIND = "memory"
PROMPT_KEYS = 32
"""Key names that the prompt shows."""
SWEPT = 256
"""Values that one sweep deletes in one commit."""


@dataclass(frozen=True)
class Value:
    """A value that is there. `seq` rises with each write of its key."""

    key: str
    record: MemoryRecord
    seq: int

    @property
    def meta(self) -> dict[str, Any]:
        """What is told of it beside the value."""
        record = self.record
        return {"ts": record.ts, "ttl_ms": record.ttl_ms, "by": record.by, "seq": self.seq}


@dataclass(frozen=True)
class Change:
    """A change that is decided. `writes` are to be committed; `applied` is told of it once they are. `meta`: of the
    value as it will be, None for a deletion; `found`: whether there was one before."""

    key: str
    writes: tuple[Write, ...]
    meta: dict[str, Any] | None = None
    found: bool = False
    record: MemoryRecord | None = field(default=None, repr=False)
    size: int = 0


class MemoryStore:
    """The memory of the scope of `records`, or of `scope`, another tenant in the same store. `clock` in ms. `entry` is
    written with the first change of this life: what says that there is this memory."""

    def __init__(
        self,
        records: Records,
        settings: Memory,
        clock: Callable[[], int],
        *,
        scope: Scope | None = None,
        entry: Save | None = None,
    ) -> None:
        self._records = records if scope is None else records.within(scope)
        self._committing, self._scope, self._entry = records, scope, entry
        self._settings, self._clock = settings, clock
        self._shelf: Shelf | None = None
        self._decided: dict[str, Change] = {}
        # Held from deciding on a change to its commit.
        self._writing = asyncio.Lock()

    def writing(self) -> asyncio.Lock:
        """The scope's lock: `async with memory.writing():` around a change and its commit."""
        return self._writing

    @property
    def is_idle(self) -> bool:
        """Whether nobody is about to change it."""
        return not self._decided and not self._writing.locked()

    def reload(self, settings: Memory) -> None:
        """Take over other limits. What is stored beyond them stays."""
        self._settings = settings

    # Reading

    async def get(self, key: str) -> tuple[Value | None, bool]:
        """The value of a key, None where there is none; and whether there was one whose lifetime is over."""
        row = await self._records.get(KIND, checked_key(key))
        if row is None:
            return None, False
        record = read_record(row.state, key)
        return (None, True) if record.is_over(self._clock()) else (Value(key, record, row.seq), False)

    async def list(self, *, prefix: str = "", after: str | None = None, limit: int | None = None) -> Page:
        """Keys whose values are not over, in the order of their UTF-8 bytes."""
        shelf = await self._known()
        limit = self._settings.list_default_limit if limit is None else limit
        return page_of(shelf.keys(self._clock()), prefix=prefix, after=after, limit=limit)

    async def prompt_keys(self) -> tuple[str, ...]:
        """The key names that the prompt shows, from what is known: no listing."""
        return tuple((await self._known()).keys(self._clock())[: PROMPT_KEYS + 1])

    # Changing, under `writing`

    async def set(
        self, key: str, value: Any, *, ttl: str | None = None, if_seq: int | None = None, by: str = ""
    ) -> Change:
        """Decide to set a value; without `ttl` it lasts. `if_seq`: only if the key is still at this seq (0: not there).

        Raises MemoryRefused for a key, value or lifetime that is none, for a lost update, and where there is no room.
        """
        now, row = self._clock(), await self._records.get(KIND, checked_key(key), removed=True)
        record, state = record_of(value, ttl=ttl, by=by, now=now, limits=self._settings)
        is_there = row is not None and not row.gone and not read_record(row.state, key).is_over(now)
        seq = row.seq if row is not None and is_there else 0
        if if_seq is not None and if_seq != seq:
            raise MemoryRefused(f"{key!r} is at seq {seq}, not {if_seq}: read it again, and decide anew")
        (await self._known(deciding=True)).require_room(key, len(state), self._settings)
        writes: list[Write] = [Save(KIND, key, state, row, self._scope)]
        meta = {"ts": record.ts, "ttl_ms": record.ttl_ms, "by": by, "seq": row.seq + 1 if row is not None else 1}
        if self._entry is not None:
            writes.append(self._entry)
        if not self._records.abilities.list:
            writes.append(await self._index(add=key))
        return self._decide(Change(key, tuple(writes), meta, seq > 0, record, len(state)))

    async def delete(self, key: str) -> Change:
        """Decide to delete a value; nothing to write where there is none."""
        row = await self._records.get(KIND, checked_key(key))
        # Known before it is changed: a listing under way would else tell of what is gone by its end.
        await self._known(deciding=True)
        if row is None:
            return Change(key, ())
        found = not read_record(row.state, key).is_over(self._clock())
        writes: list[Write] = [Remove(KIND, key, row, self._scope)]
        if not self._records.abilities.list:
            writes.append(await self._index(drop=(key,)))
        return self._decide(Change(key, tuple(writes), found=found))

    def _decide(self, change: Change) -> Change:
        self._decided[change.key] = change
        return change

    async def _index(self, *, add: str | None = None, drop: Collection[str] = ()) -> Save:
        """The list of keys changed. From the stored one: what this life knows may lack a key that a commit wrote whose
        answer never came."""
        row = await self._records.get(KIND, INDEX)
        kept = {*(keys_of(row.state) if row is not None else ())} - set(drop)
        return Save(KIND, INDEX, index_of(kept if add is None else {*kept, add}), row, self._scope)

    def applied(self, writes: Iterable[Write]) -> None:
        """These writes are committed: changes that were decided on are known from now on."""
        for write in writes:
            if write is self._entry:
                self._entry = None
            if write.kind != KIND or write.id == INDEX or write.scope != self._scope:
                continue
            change = self._decided.pop(write.id, None)
            if change is None or write not in change.writes:
                self._shelf = None  # nobody knows what it was: the store is asked
            elif self._shelf is not None:
                if change.record is not None:
                    self._shelf.put(change.key, change.record, change.size)
                else:
                    self._shelf.drop(change.key)

    async def commit(self, change: Change) -> Change:
        """Write a change by itself: for callers without a turn."""
        if change.writes:
            await self._committing.commit(change.writes)
            self.applied(change.writes)
        return change

    # Upkeep

    async def sweep(self) -> int:
        """Delete all values whose lifetime is over. Returns how many."""
        count, left = 0, deque((await self._known()).over(self._clock()))
        while left:
            some = [left.popleft() for _ in range(min(SWEPT, len(left)))]
            async with self._writing:
                count += await self._swept(some)
        return count

    async def _swept(self, keys: Collection[str]) -> int:
        shelf = await self._known(deciding=True)
        rows: list[Row] = []
        for key in keys:
            try:
                row = await self._records.get(KIND, key)
                if row is None:
                    shelf.drop(key)
                elif read_record(row.state, key).is_over(self._clock()):
                    rows.append(row)
            except (Corrupt, FormatError) as error:  # left as it is, and the others are swept; reading it says why
                _require_one(error)
        if not rows:
            return 0
        gone = [row.id for row in rows]
        writes: list[Write] = [Remove(KIND, row.id, row, self._scope) for row in rows]
        if not self._records.abilities.list:
            writes.append(await self._index(drop=gone))
        await self._committing.commit(writes)
        for key in gone:
            shelf.drop(key)
        return len(gone)

    async def _known(self, *, deciding: bool = False) -> Shelf:
        """What the memory holds, learned by one listing. `deciding`: for a change, so with the scope held."""
        if self._decided and (deciding or not self._writing.locked()):
            # A change was decided and nobody told of its commit, which may have landed all the same.
            self._decided.clear()
            self._shelf = None
        if self._shelf is None:
            found: dict[str, tuple[int, int | None]] = {}
            for key in await self._keys():
                try:
                    row = await self._records.get(KIND, key)
                    if row is None:
                        continue
                    record = read_record(row.state, key)
                except (Corrupt, FormatError) as error:  # it is there, the others serve, and reading it says why
                    _require_one(error)
                    found[key] = 0, None
                    continue
                end = None if record.ttl_ms is None else record.ts + record.ttl_ms
                found[key] = len(row.state), end
            if self._shelf is None:
                self._shelf = Shelf(found)
        return self._shelf

    async def _keys(self) -> Iterable[str]:
        if self._records.abilities.list:
            return [key for key in await self._records.ids(KIND) if key != INDEX]
        row = await self._records.get(KIND, INDEX)
        return [] if row is None else keys_of(row.state)


def _require_one(error: Exception) -> None:
    """Raises an error that is about the store as a whole rather than about one record."""
    if isinstance(error, Corrupt) and error.key is None:
        raise error


async def rebuilt_index(records: Records, keys: Iterable[str]) -> Save:
    """The list of keys made anew from those that there are, for `agentd check --store`."""
    row = await records.get(KIND, INDEX)
    return Save(KIND, INDEX, index_of(key for key in keys if key != INDEX), row)


__all__ = ["Change", "MemoryRefused", "MemoryStore", "Value", "rebuilt_index"]
