"""Contexts in memory: read from the records when they are needed, let go when they are idle. Touches the records that
are handed in."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from agentd.context.record import APART, ROOT
from agentd.context.registry import Context, Contexts, NotYours
from agentd.context.resident import LOG, STATE
from agentd.records import Records
from agentkit.core.contracts.errors import Corrupt, FormatError

from .events import Events

SUBAGENTS = "subagent/"
"""What the ids of subagents' conversations begin with: only the runtime and operators reach those."""
DELETED = "deleted"
"""Status of a context whose content is gone: the row stays, so that its id passes to nobody else."""


class Residents:
    """At most `limit` idle contexts stay in memory; one that is in use always does.

    Reading is by one context at a time, so that two who ask for the same one get the same object.
    """

    def __init__(
        self,
        contexts: Contexts,
        records: Records,
        events: Events,
        *,
        clock: Callable[[], int],
        limit: Callable[[], int],
        forget: Callable[[str], None] = lambda id: None,
    ) -> None:
        self.contexts = contexts
        self._records, self._events, self._clock, self._limit = records, events, clock, limit
        self._forget = forget
        # Guards each id against being read or made twice at once; kept while somebody has it or waits for it.
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}
        self._idle: OrderedDict[str, None] = OrderedDict()
        self._in_use: dict[str, int] = {}
        self.sealed: set[str] = set()
        """Contexts that have been looked over since they were read: no call of theirs waits for a life that is over."""

    async def open(
        self, id: str, principal: str | None = None, *, create: bool = False, owner: str | None = None
    ) -> Context:
        """The context `id`, its state only. With `create` it is made, and stored, where it is not there.

        `principal` None: whoever may reach all; `owner`: whose it is once it is made, if not theirs. Raises NotYours
        where there is none or it is another's, Corrupt or FormatError where its rows cannot be read.
        """
        if principal is not None and id.startswith(SUBAGENTS):
            raise NotYours(f"there is no context {id!r}")
        held = self.contexts.get(id)
        if held is None or held.is_new:
            async with self._alone(id):
                held = self.contexts.get(id) or await self._read(id)
                if held is None:
                    if not create:
                        raise NotYours(f"there is no context {id!r}")
                    held = await self._make(id, principal or owner)
        if principal is not None and id != ROOT:
            self.contexts.conversation(id, principal)
        if held.state.status != "open":
            # Its owner's next message opens a conversation again; what was deleted begins anew under the same owner.
            if not create:
                if held.state.status == DELETED:
                    raise NotYours(f"there is no context {id!r}")
            else:
                held.update(status="open")
        self._touch(id)
        return held

    async def load(self, held: Context) -> Context:
        """Have the shown entries in memory too."""
        if not held.is_loaded:
            for first, last in held.missing():
                held.load(await self._records.entries(LOG, held.id, first, last), first=first)
            held.loaded()
            self._events.emit("restore.done", held.id, None, entries=len(held.entries), version=held.state.version)
        return held

    def use(self, id: str) -> None:
        """Keep the context in memory until `release`."""
        self._in_use[id] = self._in_use.get(id, 0) + 1
        self._idle.pop(id, None)

    def release(self, id: str) -> None:
        """The counterpart of `use`; over the limit the contexts that were idle longest leave memory."""
        left = self._in_use.get(id, 1) - 1
        if left:
            self._in_use[id] = left
            return
        self._in_use.pop(id, None)
        self._touch(id)

    def drop(self, id: str) -> None:
        """Take a context out of memory whatever of it is not stored: the store has the truth."""
        held = self.contexts.get(id)
        if held is not None:
            held.revert()
            self.contexts.remove(id)
        self._idle.pop(id, None)
        self.sealed.discard(id)

    @asynccontextmanager
    async def away(self, id: str) -> AsyncIterator[bool]:
        """Keep a context out of memory, so that its rows may be changed; who asks for it waits. False where it is in
        use or has something that is not stored."""
        async with self._alone(id):
            held = self.contexts.get(id)
            if held is not None and (id in self._in_use or held.is_dirty):
                yield False
                return
            if held is not None:
                self._let_go(id)
            yield True

    @asynccontextmanager
    async def _alone(self, id: str) -> AsyncIterator[None]:
        lock, count = self._locks.get(id) or (asyncio.Lock(), 0)
        self._locks[id] = lock, count + 1
        try:
            async with lock:
                yield
        finally:
            lock, count = self._locks[id]
            if count == 1:
                del self._locks[id]
            else:
                self._locks[id] = lock, count - 1

    def _let_go(self, id: str) -> None:
        self.contexts.remove(id)
        self._idle.pop(id, None)
        self.sealed.discard(id)
        self._forget(id)

    def _touch(self, id: str) -> None:
        if id in self._in_use or id not in self.contexts:
            return
        self._idle[id] = None
        self._idle.move_to_end(id)
        while len(self._idle) > max(self._limit() - len(self._in_use), 0):
            oldest, _ = self._idle.popitem(last=False)
            held = self.contexts.get(oldest)
            if held is not None and not held.is_dirty:
                self._let_go(oldest)

    async def _read(self, id: str) -> Context | None:
        try:
            row = await self._records.get(STATE, id)
            if row is None:
                return None
            rows = [row]
            for name in APART:
                found = await self._records.get(name, id)
                if found is not None:
                    rows.append(found)
            return self.contexts.restore_one(id, rows)
        except (Corrupt, FormatError) as error:
            self._events.emit("restore.lost", id, None, reason=str(error))
            raise

    async def _make(self, id: str, principal: str | None) -> Context:
        now = self._clock()
        made = self.contexts.root(now=now) if id == ROOT else self.contexts.conversation(id, principal, now=now)
        try:
            made.stored(await self._records.commit(made.writes()))
        except BaseException:
            self.contexts.remove(id)
            raise
        return made
