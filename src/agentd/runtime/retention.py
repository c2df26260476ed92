"""Closing conversations that nobody speaks in any more, and deleting what need not be kept. Touches the records that
are handed in; a page of contexts at a time, since there may be very many.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import msgspec

from agentd.config import Settings
from agentd.context.record import APART, ROOT, ContextState
from agentd.context.resident import LOG, STATE
from agentd.context.rows import decode_state, encode_state
from agentd.records import ANY, Records, Remove, Row, Save, Write
from agentkit.core.contracts.errors import Conflict, Corrupt, FormatError

from .inbox import Task
from .residents import DELETED, Residents

CLOSED = "closed"
PAGE = 200
"""Rows that are looked at in one sweep of each kind."""


class _Work(msgspec.Struct):
    """A run or a subagent, as far as it matters here."""

    ended: bool = False


class Janitor:
    """Goes over contexts, tasks, runs and subagents, a page a sweep, again and again.

    Contexts that are in use are left alone; others leave memory while they are closed or deleted.
    """

    def __init__(self, records: Records, residents: Residents, clock: Callable[[], int]) -> None:
        self._records, self._residents, self._clock = records, residents, clock
        self._after: dict[str, str | None] = {}

    async def sweep(self, settings: Settings) -> dict[str, int]:
        """One page of each kind. Returns how many were closed and deleted, by name."""
        kept = settings.store.retention
        found = {"closed": 0, "contexts": 0, "tasks": 0, "runs": 0}
        if not self._records.abilities.list:
            return found
        for id in await self._page(STATE):
            if id == ROOT or self._is_fresh(id, settings.a2a.conversation_ttl):
                continue
            what = await self._context(id, settings.a2a.conversation_ttl, kept.contexts)
            if what is not None:
                found[what] += 1
        for kind, name, limit in (
            ("task", "tasks", kept.tasks), ("run", "runs", kept.runs), ("subagent", "runs", kept.runs)
        ):  # fmt: skip
            if limit is not None:
                for id in await self._page(kind):
                    found[name] += await self._ended(kind, id, limit)
        return found

    async def _page(self, kind: str) -> list[str]:
        ids = await self._records.ids(kind, after=self._after.get(kind), limit=PAGE)
        self._after[kind] = ids[-1] if len(ids) == PAGE else None
        return ids

    def _is_fresh(self, id: str, ttl: timedelta) -> bool:
        """Whether a context is in memory and was spoken in lately: its row need not be looked at."""
        held = self._residents.contexts.get(id)
        return held is not None and self._idle(held.state) < ttl

    def _idle(self, state: ContextState) -> timedelta:
        return timedelta(milliseconds=self._clock() - state.updated)

    async def _context(self, id: str, ttl: timedelta, keep: timedelta | None) -> str | None:
        async with self._residents.away(id) as is_away:
            try:
                row = await self._records.get(STATE, id) if is_away else None
                if row is None:
                    return None
                state = decode_state(row.state, id=id)
            except (Corrupt, FormatError):
                return None  # told when somebody asks for it, and never written over
            idle = self._idle(state)
            if state.status == "open" and idle >= ttl:
                return "closed" if await self._commit([Save(STATE, id, _with(state, status=CLOSED), row)]) else None
            if state.status == CLOSED and keep is not None and idle >= ttl + keep:
                return "contexts" if await self._delete(id, state, row) else None
        return None

    async def delete(self, id: str) -> bool:
        """Delete a conversation with its log; its row stays with the owner's name, so that the id passes to nobody
        else. False where it is in use, or not there."""
        async with self._residents.away(id) as is_away:
            row = await self._records.get(STATE, id) if is_away else None
            return row is not None and await self._delete(id, decode_state(row.state, id=id), row)

    async def _delete(self, id: str, state: ContextState, row: Row) -> bool:
        bare = ContextState(
            id, state.kind, principal=state.principal, created=state.created, updated=self._clock(), status=DELETED
        )
        writes: list[Write] = [Save(STATE, id, encode_state(bare), row), Remove(LOG, id, ANY)]
        writes += [Remove(name, id, ANY) for name in APART]
        return await self._commit(writes)

    async def _ended(self, kind: str, id: str, limit: timedelta) -> int:
        try:
            row = await self._records.get(kind, id)
            if row is None or timedelta(milliseconds=self._clock() - row.ts) < limit:
                return 0
            if kind == "task" and not msgspec.json.decode(row.state, type=Task).is_settled:
                return 0
            if kind != "task" and not msgspec.json.decode(row.state, type=_Work).ended:
                return 0
        except (Corrupt, FormatError, msgspec.DecodeError):
            return 0  # likewise
        return int(await self._commit([Remove(kind, id, row)]))

    async def _commit(self, writes: list[Write]) -> bool:
        try:
            await self._records.commit(writes)
        except Conflict:  # it came to life in the meantime
            return False
        return True


def _with(state: ContextState, **changes: str) -> bytes:
    return encode_state(msgspec.structs.replace(state, **changes))
