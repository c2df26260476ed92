"""Records of one tenant, read and written. Touches the store that is handed in, a clock and a source of ids.

A commit is all or nothing. Faults that may pass are tried again, refusals never are; where an answer was lost, what the
store holds says whether the commit is there, so that none is lost and none is doubled.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

from agentkit.core.contracts.errors import Conflict, Corrupt, FormatError
from agentkit.core.contracts.ports import Lease, Put, SearchingStore, Store
from agentkit.core.contracts.scope import Scope
from agentkit.state.stores.find import Query, searchable

from .batch import Batch, Stamp
from .envelope import Row, corrupt, decode
from .keys import Keys
from .patience import FAULTS, REFUSALS, may_go_on, once, patiently
from .writes import Abilities, Add, Found, Retry, Unsupported, Write

T = TypeVar("T")

ARTIFACT = "artifact"
"""The kind of records that are bytes under their own digest, without an envelope."""

PAGE = 256
"""Log lines that are read at once where a whole log is gone through."""

ROUNDS = 3
"""How often a commit looks again at rows that it writes over unseen, when they change between look and write."""


class Records:
    """The records of one tenant, instance and generation. There is no default scope.

    `lease`: every write states its fence; None where nobody else can write. `clock`: milliseconds since the epoch;
    `ids`: makes the ids of commits. `abilities`: what the store can do, declared once.
    """

    def __init__(
        self,
        store: Store,
        scope: Scope,
        *,
        instance: str,
        prefix: str = "agentd",
        generation: int = 1,
        lease: Lease | None = None,
        clock: Callable[[], int],
        ids: Callable[[], str],
        retry: Retry | None = None,
        abilities: Abilities | None = None,
    ) -> None:
        self.store, self.scope, self.instance, self.prefix = store, scope, instance, prefix
        self.generation, self.lease, self.abilities = generation, lease, abilities or Abilities()
        self._clock, self._ids, self._retry = clock, ids, retry or Retry()
        self._keys = Keys(prefix, scope, instance, generation)
        can_search = self.abilities.search and store.capabilities.search
        self._finder = store if can_search and isinstance(store, SearchingStore) else None

    def within(self, scope: Scope) -> Records:
        """The same for another tenant."""
        return self._as(scope, self.generation, self.lease)

    def of_generation(self, generation: int) -> Records:
        """The same in another generation; 0 is above all of them."""
        return self._as(self.scope, generation, self.lease)

    def under(self, lease: Lease | None) -> Records:
        """The same under another lease."""
        return self._as(self.scope, self.generation, lease)

    def _as(self, scope: Scope, generation: int, lease: Lease | None) -> Records:
        return Records(
            self.store, scope, instance=self.instance, prefix=self.prefix, generation=generation, lease=lease,
            clock=self._clock, ids=self._ids, retry=self._retry, abilities=self.abilities,
        )  # fmt: skip

    # Reading

    async def get(self, kind: str, id: str, *, removed: bool = False) -> Row | None:
        """A row, None where there is none or a tombstone; with `removed` the tombstone, whose seq goes on. Raises
        Corrupt or FormatError naming it."""
        row = await self._look(kind, id)
        return None if row is None or (row.gone and not removed) else row

    async def ids(
        self, kind: str, *, prefix: str = "", after: str | None = None, limit: int | None = None
    ) -> list[str]:
        """Ids of a kind that begin with `prefix`, in the order of their UTF-8 bytes, from behind `after` on.

        A row that was saved as `null` is listed until it is removed; one that was removed is not. Raises Unsupported
        where the store cannot list.
        """
        if not self.abilities.list:
            raise Unsupported(f"this store cannot list: keep an index of the records of kind {kind!r}, and read that")
        start = self._keys.start(kind, prefix)
        behind = None if after is None else self._keys.start(kind, after)
        found: list[str] = []
        while limit is None or len(found) < limit:
            wanted = None if limit is None else limit - len(found)
            page = partial(self.store.keys, start, after=behind, limit=wanted)
            keys = await patiently("keys", page, self._retry)
            ids = [self._keys.id_of(key, kind) for key in keys]
            # Where nothing can be deleted, what was removed is still there as a tombstone.
            found += ids if self.abilities.delete else [id for id in ids if not await self._is_gone(kind, id)]
            if wanted is None or len(keys) < wanted:
                break
            behind = keys[-1]
        return found

    async def _is_gone(self, kind: str, id: str) -> bool:
        """Whether a row is a tombstone. One that cannot be read is there: whoever reads it is told."""
        try:
            return await self.get(kind, id) is None
        except (Corrupt, FormatError) as error:
            if isinstance(error, Corrupt) and error.key is None:  # the store as a whole
                raise
            return False

    async def entries(self, kind: str, id: str, first: int = 1, last: int | None = None) -> list[bytes]:
        """Lines of a log by number, `first` and `last` included; those that there are."""
        if first < 1:
            raise ValueError(f"entries of a log are numbered from 1 on, not {first}")
        key = self._keys.key(kind, id)
        lines = await self._read("list", kind, id, partial(self.store.list, key, start=first - 1, stop=last))
        for at, line in enumerate(lines):
            if type(line) is not bytes:
                raise corrupt(kind, id, f"it is a {type(line).__name__}, not a line", position=first - 1 + at)
        return lines

    async def search(self, kind: str, id: str, text: str, limit: int = 20) -> list[Found]:
        """Lines of a log whose strings contain every word of `text`, in any case and as pieces of words, the newest
        first. Read through where the store cannot search, with the same outcome."""
        finder, key = self._finder, self._keys.key(kind, id)
        if finder is None:
            return await self._scan(kind, id, Query(text), limit)
        hits = await self._read("search", kind, id, partial(finder.search, key, text, limit))
        return [Found(hit.position + 1, hit.excerpt) for hit in hits]

    async def _scan(self, kind: str, id: str, query: Query, limit: int) -> list[Found]:
        found: deque[Found] = deque(maxlen=limit)
        first = 1
        while query.words and limit > 0:
            lines = await self.entries(kind, id, first, first + PAGE - 1)
            for n, line in enumerate(lines, first):
                if (excerpt := query.excerpt(searchable(line))) is not None:
                    found.append(Found(n, excerpt))
            if len(lines) < PAGE:
                break
            first += PAGE
        return list(reversed(found))

    # Writing

    async def commit(self, writes: Sequence[Write]) -> tuple[Row, ...]:
        """Write all or nothing, and return the rows of the saves, in their order. Nothing to write writes nothing.

        Raises Conflict naming the record, with the seq (of a log, the next number) that was expected and the one that
        is there; Fenced, TooLarge, Corrupt, FormatError; and, once trying again was no use, what the store raised: then
        whether it was written is unknown where the store could not be asked.
        """
        fence = 0 if self.lease is None else self.lease.fence
        stamp = Stamp(self._ids(), self._clock(), fence, self.instance)
        batch = Batch(writes, self._keys, stamp, can_delete=self.abilities.delete)
        for at in batch.unseen:
            batch.look(at, await self._look_at(batch, at))
        attempt = rounds = 0
        # Sent again as it is: every step says what it expects to find, so one that is there already is refused, and
        # reading back tells whose it is.
        while steps := batch.steps():
            try:
                return batch.rows(await once(partial(self.store.commit, steps, fence=self.lease), self._retry))
            except Conflict as error:
                if attempt and (rows := await self._landed(batch)) is not None:
                    return rows
                found = {at: await self._look_at(batch, at) for at in batch.rows_named}
                rounds += 1
                news = [at for at, row in found.items() if batch.look(at, row)]
                if not news or rounds > ROUNDS:
                    raise batch.conflict(error, found) from error
            except REFUSALS:
                if attempt and (rows := await self._landed(batch)) is not None:
                    return rows
                raise
            except FAULTS as error:
                attempt += 1
                if not await may_go_on("commit", attempt, error, self._retry):
                    return await self._settled(batch, error)
        return ()

    async def _settled(self, batch: Batch, error: Exception) -> tuple[Row, ...]:
        """The rows of a commit that was given up, if it is there after all; else raises `error`."""
        try:
            rows = await self._landed(batch)
        except (*FAULTS, FormatError):
            rows = None
        if rows is None:
            raise error
        return rows

    async def _landed(self, batch: Batch) -> tuple[Row, ...] | None:
        """The rows of a commit that the store holds, None where it does not. One write of it tells, since it is all or
        nothing: a row by its commit id, lines by being in their place, a removal by there being nothing."""
        if batch.saves:
            return batch.landed({at: await self._row_or_damage(batch, at) for at in batch.saves})
        for write in batch.writes:
            if isinstance(write, Add):
                last = write.first - 1 + len(write.lines)
                place = self if write.scope is None else self.within(write.scope)
                lines = await place.entries(write.kind, write.id, write.first, last)
                return () if tuple(lines) == write.lines else None
        gone = [await self._look_at(batch, at) is None for at in batch.rows_named]
        return () if all(gone) else None

    async def _row_or_damage(self, batch: Batch, at: int) -> Row | None:
        try:
            return await self._look_at(batch, at)
        except (Corrupt, FormatError):  # not what this commit would have written
            return None

    async def _look_at(self, batch: Batch, at: int) -> Row | None:
        write = batch.writes[at]
        return await self._look(write.kind, write.id, batch.keys[at])

    async def _look(self, kind: str, id: str, key: str | None = None) -> Row | None:
        """A row or tombstone."""
        key = key or self._keys.key(kind, id)
        found = await self._read("get", kind, id, partial(self.store.versioned, key))
        return None if found is None else decode(*found, kind, id)

    async def _read(self, operation: str, kind: str, id: str, call: Callable[[], Awaitable[T]]) -> T:
        try:
            return await patiently(operation, call, self._retry)
        except Corrupt as error:
            if error.key is None:  # the store as a whole
                raise
            raise corrupt(kind, id, str(error), position=error.position) from error

    # Artifacts

    async def artifact(self, data: bytes) -> str:
        """Keep bytes under their own SHA-256 (hex), which is returned. Kept once, however often they come."""
        sha = hashlib.sha256(data).hexdigest()
        key = self._keys.key(ARTIFACT, sha)
        while True:
            try:
                step = Put(key, bytes(data), expected=0)
                await patiently("commit", partial(self.store.commit, [step], fence=self.lease), self._retry)
                return sha
            except Conflict as conflict:
                found = await self._read("get", ARTIFACT, sha, partial(self.store.versioned, key))
                if found is None:
                    continue
                if found[0] == data:
                    return sha
                raise corrupt(ARTIFACT, sha, "its bytes have another digest") from conflict

    async def artifact_bytes(self, sha: str) -> bytes | None:
        """The bytes with this SHA-256, None where there are none. Corrupt for others than were kept."""
        key = self._keys.key(ARTIFACT, sha)
        data = await self._read("get", ARTIFACT, sha, partial(self.store.get, key))
        if data is None:
            return None
        if type(data) is not bytes or hashlib.sha256(data).hexdigest() != sha:
            raise corrupt(ARTIFACT, sha, "its bytes have another digest")
        return data
