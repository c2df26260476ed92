"""All actors of one instance: who gets a slot, what stops them, and who is told how a task ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec

from agentd.context import plan as plans
from agentd.context.record import PlanChange
from agentkit.core.contracts.errors import Corrupt, FormatError
from agentkit.core.contracts.surrogates import replace_surrogates

from .actor import Actor
from .between import Command
from .inbox import Item, Task
from .outcomes import outcome_of
from .services import Services
from .turns import Turn
from .writer import Writer

T = TypeVar("T")
log = logging.getLogger("agentd")
FIRST_RETRY, LAST_RETRY = 1.0, 30.0
"""Seconds between two tries of a piece of work while the store fails, doubled from the first to the last."""
MAX_CONFLICTS = 3
"""Tries of a piece of work whose context somebody else has written; then it stays for the next life."""


class Actors:
    """The actors that have work, and what they share."""

    def __init__(self, services: Services, *, on_halt: Callable[[str], None]) -> None:
        self.services = services
        self.running: dict[str, Turn] = {}
        """Turns in hand, by turn id."""
        self.is_draining = False
        self._on_halt = on_halt
        self._open = asyncio.Event()
        self._open.set()
        self._actors: dict[str, Actor] = {}
        self._settled: dict[str, list[asyncio.Future[Task]]] = {}
        self._conflicts: dict[str, int] = {}
        self._cancelled: dict[str, str] = {}
        self._retry = FIRST_RETRY
        self._ended = asyncio.Event()

    def __len__(self) -> int:
        return len(self._actors)

    @property
    def is_idle(self) -> bool:
        """Whether no actor has anything to do."""
        return not self._actors

    @property
    def is_degraded(self) -> bool:
        return self.services.is_degraded

    # Work

    def post(self, item: Item) -> None:
        """Hand an accepted item to its context's writer."""
        self._actor(item.context).post(item)

    async def command(
        self, context: str, run: Callable[[Writer], Awaitable[T]], *, any_time: bool = False
    ) -> T:  # fmt: skip
        """Do something between two turns of a context, and return what it gives. `any_time`: also while a turn waits
        for a person or other work."""
        waiting: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._actor(context).post(Command(run, waiting, any_time))
        result: T = await waiting
        return result

    def turn_of(self, task: str) -> Turn | None:
        """The turn in hand that works on a task."""
        return next((turn for turn in self.running.values() if turn.item.task == task), None)

    def cancel(self, task: str, reason: str) -> bool:
        """Ask the turn of a task to end; one that has not begun ends when it begins."""
        turn = self.turn_of(task)
        if turn is not None:
            turn.cancel(reason)
        else:
            self._cancelled[task] = reason
        return True

    def began(self, turn: Turn) -> None:
        self.running[turn.id] = turn
        if (reason := self._cancelled.pop(turn.item.task or "", None)) is not None:
            turn.cancel(reason)

    def ended(self, turn: Turn) -> None:
        self.running.pop(turn.id, None)

    def _actor(self, context: str) -> Actor:
        found = self._actors.get(context)
        if found is None:
            found = self._actors[context] = Actor(self, context)
        return found

    def idle(self, actor: Actor) -> None:
        """An actor has nothing more to do, or ended with work left for the next life."""
        if self._actors.get(actor.id) is actor:
            del self._actors[actor.id]
        self._ended.set()

    async def until_idle(self) -> None:
        """Wait until no actor has anything to do."""
        while self._actors:
            self._ended.clear()
            await self._ended.wait()

    # Who may go on

    @property
    def is_open(self) -> bool:
        """Whether turns may start right now."""
        return self._open.is_set() and not self.is_draining

    async def may_start(self) -> bool:
        """Wait while the instance is paused; False once it is going down."""
        if not self.is_draining:
            await self._open.wait()
        return not self.is_draining

    def pause(self) -> None:
        self._open.clear()

    def resume(self) -> None:
        self._open.set()

    def drain(self) -> None:
        """No further turn starts; paused ones end as well."""
        self.is_draining = True
        self._open.set()
        self.services.waits.leave()

    async def may_retry(self, context: str) -> bool:
        """After trouble with the store: False where the instance halts, else True once it is worth another try."""
        if self.services.settings.store.on_error == "halt":
            self.halt("the store failed")
            return False
        count = self._conflicts[context] = self._conflicts.get(context, 0) + 1
        if count > MAX_CONFLICTS and not self.is_degraded:
            return False
        self.services.is_degraded = True
        wait, self._retry = self._retry, min(self._retry * 2, LAST_RETRY)
        await self.services.sleep(wait)
        return not self.is_draining

    def recovered(self) -> None:
        """A piece of work went through."""
        if self.is_degraded or self._conflicts:
            self.services.is_degraded, self._retry = False, FIRST_RETRY
            self._conflicts.clear()

    def halt(self, reason: str) -> None:
        """Stop everything: nothing more may be written."""
        self.drain()
        self._on_halt(reason)

    async def stop(self) -> None:
        """End every actor where it is."""
        await asyncio.gather(*(actor.stop() for actor in list(self._actors.values())))

    # Tasks

    async def refuse(self, item: Item, error: Exception) -> None:
        """End an item whose context cannot be used: the task fails and names it."""
        services = self.services
        writes = list(services.inbox.finish(item))
        task = None
        try:
            task = await services.inbox.task(item.task) if item.task is not None else None
        except (Corrupt, FormatError) as damage:  # who asks for it meets the same error
            services.events.emit("restore.lost", item.context, item.turn, reason=str(damage))
        if task is not None:
            task = msgspec.structs.replace(
                task,
                state="failed",
                end_state="failed",
                reason=replace_surrogates(f"{type(error).__name__}: {error}"),
                exit=1,
                updated=services.clock(),
            )
            writes.append(services.inbox.save_task(task))
        await services.records.commit(writes)
        services.inbox.finished(item)
        services.subagents.finished(item.turn)
        if task is not None:
            self.settled(task)

    def settled(self, task: Task) -> None:
        """A task has ended: whoever waits for it is told, and plans that are bound to it are brought up to date."""
        self._cancelled.pop(task.id, None)
        for waiting in self._settled.pop(task.id, ()):
            if not waiting.done():
                waiting.set_result(task)
        self.settle_bound("task", task.id)
        self.services.subagents.settled(task)

    def settle_bound(self, kind: str, id: str) -> None:
        """Bring plans up to date that are bound to a task, run or subagent which has ended."""
        for held in self.services.residents.contexts:
            if held.state.plan is not None and (kind, id) in plans.bound(held.state.plan):
                self._actor(held.id).post(
                    Command(self.settle_bindings, asyncio.get_running_loop().create_future(), any_time=True)
                )

    async def wait(self, id: str) -> Task:
        """A task once it has ended."""
        task = await self.services.inbox.task(id)
        if task.is_settled:
            return task
        waiting: asyncio.Future[Task] = asyncio.get_running_loop().create_future()
        others = self._settled.setdefault(id, [])
        others.append(waiting)
        try:
            # It may have ended between the two.
            task = await self.services.inbox.task(id)
            return task if task.is_settled else await waiting
        finally:
            if waiting in others:
                others.remove(waiting)
            if not others and self._settled.get(id) is others:
                del self._settled[id]

    async def settle_bindings(self, writer: Writer) -> None:
        """Bring the items of a context's plan up to date whose run, subagent or task has ended."""
        held = writer.held
        before = held.state.plan
        made = before
        for kind, id in plans.bound(before):
            outcome = await outcome_of(self.services, held, kind, id)
            if outcome is not None:
                made = plans.settled(made, kind, id, *outcome, now=self.services.clock())
        if made is before:
            return
        held.append(PlanChange("settle", made), now=self.services.clock(), source="runtime")
        await writer.commit()
        self.services.events.emit("plan.settled", held.id, None)

    def log_failure(self, context: str, error: Exception) -> None:
        """Work on a context died of a fault of ours: said in full, since nobody else will."""
        log.error("work on context %s died", context, exc_info=error)
