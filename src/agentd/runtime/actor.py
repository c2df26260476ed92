"""The queue of one context: messages, notes and commands, taken in order, one at a time. It lives as long as there is
work; what changes the record is done by its writer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import Protocol

from agentkit.agents.loop import End, EndState
from agentkit.core.contracts.errors import Conflict, Corrupt, Fenced, FormatError, StoreError, TooLarge

from .between import Between, Command
from .effects import open_calls, stand_in
from .inbox import Item, Task
from .services import Services
from .turns import Turn
from .waits import Left
from .writer import Writer

STORE_TROUBLE = (StoreError, OSError)
"""What the records raise that failed for good: the context in memory goes back to what is stored."""
UNREADABLE = (Corrupt, FormatError)
"""What is raised for a context that is damaged, or of a newer release: it is left as it is, and others are served."""


class House(Protocol):
    """What an actor needs to know of all the others."""

    @property
    def services(self) -> Services: ...

    @property
    def is_open(self) -> bool: ...

    async def may_start(self) -> bool: ...

    async def may_retry(self, context: str) -> bool: ...

    def recovered(self) -> None: ...

    def halt(self, reason: str) -> None: ...

    def log_failure(self, context: str, error: Exception) -> None: ...

    def settled(self, task: Task) -> None: ...

    async def refuse(self, item: Item, error: Exception) -> None: ...

    async def settle_bindings(self, writer: Writer) -> None: ...

    def began(self, turn: Turn) -> None: ...

    def ended(self, turn: Turn) -> None: ...

    def idle(self, actor: Actor) -> None: ...


class Actor:
    """The queue of the context `id`."""

    def __init__(self, house: House, id: str) -> None:
        self.house, self.services, self.id = house, house.services, id
        self.turn: Turn | None = None
        self._writer: Writer | None = None
        self._jobs: deque[Item | Command] = deque()
        self._task: asyncio.Task[None] | None = None
        self._between = Between(self._jobs, self._obey, f"beside {id}")

    @property
    def waiting(self) -> int:
        """Jobs that have not begun."""
        return len(self._jobs)

    @property
    def is_parked(self) -> bool:
        """Whether its turn waits for a budget, a person or other work, without a slot."""
        return self._writer is not None and self._writer.is_parked

    def post(self, job: Item | Command) -> None:
        """Put work at the end of the queue."""
        self._jobs.append(job)
        if self._task is None:
            self.services.residents.use(self.id)
            self._task = asyncio.create_task(self._run(), name=f"context {self.id}")
        else:
            self._between.serve(self._writer)

    async def stop(self) -> None:
        """End at once, wherever it is: what is durable is taken up in the next life."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
            if self._task is not None:  # it was ended before its first step
                self._end()

    async def _run(self) -> None:
        try:
            while self._jobs:
                job = self._jobs[0]
                if isinstance(job, Command):
                    self._jobs.popleft()
                    await self._obey(job)
                elif not await self._take(job):
                    return
        finally:
            await self._between.stop()
            self._end()

    def _end(self) -> None:
        self._task = None
        self._between.refuse()
        self.services.residents.release(self.id)
        self.house.idle(self)

    async def _obey(self, job: Command) -> None:
        try:
            result = await job.run(await self._ready())
        except asyncio.CancelledError:
            job.result.cancel()
            raise
        except Exception as error:
            self._revert()
            if not job.result.done():
                job.result.set_exception(error)
            if isinstance(error, STORE_TROUBLE):
                await self._trouble(error, None)
        else:
            if not job.result.done():
                job.result.set_result(result)

    async def _take(self, item: Item) -> bool:
        """Work on an item to its end. False when this actor has to end, with the item left for another life."""
        try:
            if not await self.house.may_start():
                return False
            if not await self._work(item, await self._ready()):
                return False
        except asyncio.CancelledError:
            self._revert()
            raise
        except Left:  # the next life waits on
            self._revert()
            return False
        except Exception as error:
            await self._between.over()
            self._revert()
            return await self._trouble(error, item)
        self.house.recovered()
        return True

    async def _work(self, item: Item, writer: Writer) -> bool:
        """Work on an item. False when nothing may start any more."""
        if not item.wakes:
            writer.held.append(item.message, now=self.services.clock(), source="inbox")
            await writer.commit(extra=self.services.inbox.finish(item))
            self.services.inbox.finished(item)
            self._jobs.popleft()
            await self._look_after(writer)
            return True
        if not await self._take_slot():
            return False
        try:
            child = await self.services.subagents.of_item(item)
            self.turn = turn = Turn(writer, item, self._notes_behind, child)
            writer.turn, writer.on_rest = turn, partial(self._between.serve, writer)
            self.house.began(turn)
            end = await self._end_of(turn, writer)
            await self._between.over()
            task = await self._finished(turn, writer, end)
            self._jobs.popleft()
            if task is not None:
                self.house.settled(task)
            await self._look_after(writer)
        finally:
            if self.turn is not None:
                self.house.ended(self.turn)
            self.turn = writer.turn = None
            writer.leave_slot()
        return True

    async def _take_slot(self) -> bool:
        """Wait for a slot. False once no turn may start any more; while the instance is paused none is held."""
        while True:
            await self.services.slots.acquire()
            if self.house.is_open:
                return True
            self.services.slots.release()
            if not await self.house.may_start():
                return False

    def _notes_behind(self) -> list[Item]:
        """Notes that wait right behind the one in hand: together they make one turn."""
        found: list[Item] = []
        while len(self._jobs) > 1 and isinstance(job := self._jobs[1], Item) and job.kind == "note":
            found.append(job)
            del self._jobs[1]
        return found

    async def _look_after(self, writer: Writer) -> None:
        """Reduce a context that grew over its trigger. The work is done: a fault here is told and ends nothing."""
        try:
            await writer.reduce_if_due()
        except (*STORE_TROUBLE, asyncio.CancelledError):
            raise
        except Exception as error:
            writer.revert()
            self.house.log_failure(self.id, error)

    async def _end_of(self, turn: Turn, writer: Writer) -> End:
        """How the turn ends; one that dies of anything but the store has failed, and says of what."""
        try:
            return await turn.run()
        except (Left, asyncio.CancelledError):
            raise
        except Exception as error:
            # What is too large for the store is no trouble of the store: it would be refused in every life.
            if isinstance(error, STORE_TROUBLE) and not isinstance(error, TooLarge):
                raise
            self.house.log_failure(self.id, error)
            writer.revert()
            return End(EndState.FAILED, f"{type(error).__name__}: {error}", exit=1)

    async def _finished(self, turn: Turn, writer: Writer, end: End) -> Task | None:
        """Write the end of a turn. One that brings what cannot be written has failed, and says so."""
        try:
            return await turn.finish(end)
        except (*STORE_TROUBLE, asyncio.CancelledError):
            raise
        except Exception as error:
            self.house.log_failure(self.id, error)
            writer.revert()
            return await turn.finish(End(EndState.FAILED, f"{type(error).__name__}: {error}", exit=1))

    async def _trouble(self, error: Exception, item: Item | None) -> bool:
        """What a failure means for this actor; whether it goes on."""
        events, detail = self.services.events, f"{type(error).__name__}: {error}"
        if isinstance(error, Fenced):
            events.emit("store.fenced", self.id, None, detail=detail)
            self.house.halt("the lease of the store was lost to another process")
            return False
        if isinstance(error, Conflict):
            events.emit("store.conflict", self.id, None, detail=detail)
            self.services.residents.drop(self.id)
            self._writer = None
            try:
                if item is not None and await self._has_ended(item):
                    return True
            except STORE_TROUBLE as failed:
                events.emit("store.error", self.id, None, detail=f"{type(failed).__name__}: {failed}")
            return await self.house.may_retry(self.id)
        of_one_record = isinstance(error, TooLarge) or (isinstance(error, Corrupt) and error.key is not None)
        if isinstance(error, STORE_TROUBLE) and not of_one_record:
            events.emit("store.error", self.id, None, detail=detail)
            return await self.house.may_retry(self.id)
        if item is not None and self._jobs and self._jobs[0] is item:
            # The context cannot be used: the item is refused, and the refusal names the context.
            try:
                await self.house.refuse(item, error)
            except STORE_TROUBLE as failed:
                events.emit("store.error", self.id, None, detail=f"{type(failed).__name__}: {failed}")
                return await self.house.may_retry(self.id)
            self._jobs.popleft()
        return True

    async def _has_ended(self, item: Item) -> bool:
        """Whether an item is done after all: the commit of its end was taken for failed, and landed."""
        services = self.services
        if item.task is None or not self._jobs or self._jobs[0] is not item:
            return False
        try:
            task = await services.inbox.stored_task(item.task)
        except LookupError:
            return False
        if not task.is_settled:
            return False
        services.inbox.finished(item)
        services.subagents.finished(item.turn)
        services.waits.finished(item.turn, ())
        self._jobs.popleft()
        self.house.settled(task)
        return True

    def _revert(self) -> None:
        if self._writer is not None:
            self._writer.revert()

    async def _ready(self) -> Writer:
        """The writer of the context, which is in memory, whole and sealed."""
        held = await self.services.residents.open(self.id, create=True)
        if self._writer is None or self._writer.held is not held:
            self._writer = Writer(self.services, held)
        await self.services.residents.load(held)
        if self.id not in self.services.residents.sealed:
            await self._seal(self._writer)
            await self.house.settle_bindings(self._writer)
            self.services.residents.sealed.add(self.id)
        return self._writer

    async def _seal(self, writer: Writer) -> None:
        """Give a result to each call that an earlier life left open, but for those of turns that are taken up."""
        unfinished = {item.turn for item in self.services.inbox.of_context(self.id)}
        left = [found for found in open_calls(writer.held.entries) if found.turn not in unfinished]
        for found in left:
            result = stand_in(found, found.is_started, "the process ended in the middle of it")
            writer.held.append(
                result, now=self.services.clock(), turn=found.turn, round=found.round, source="runtime"
            )  # fmt: skip
        if left:
            await writer.commit()
            self.services.events.emit("restore.sealed", self.id, None, calls=len(left))
            self.services.kills.reach("restore.sealed")
