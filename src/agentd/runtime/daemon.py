"""One life of an agent: opened on a store, fed with messages, drained at the end. Runs inside the caller's event loop;
the command line and, later, the A2A server are callers like any other.

    async with await Daemon.open(settings) as agent:
        task = await agent.ask("What is left to do?", context="case-7")
        print(task.text)
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from agentd.config import Changes, Refused, Settings, reload
from agentd.context.messages import result_text
from agentd.context.record import ROOT, NoteMsg, Part, TextPart
from agentd.context.registry import Contexts, NotYours
from agentkit.core.contracts.errors import Conflict, StoreError
from agentkit.core.contracts.ports import LLM, Lease, Store

from .actors import Actors
from .answers import fitting
from .assembly import assemble
from .commands import COMMANDS, prepared
from .events import Events
from .inbox import Accepted, Busy, Draining, Task
from .instance_commands import INSTANCE_COMMANDS
from .opening import Opened, open_instance
from .principals import OPERATOR, ROOT_PRINCIPAL, Principal
from .retention import Janitor
from .services import Services
from .skills import SkillSource
from .tools.base import Tool
from .waits import NotOpen, Wait

log = logging.getLogger("agentd")
SWEEP = 60.0
"""Seconds between two sweeps of expired memory."""


class Daemon:
    """An agent that is running. Made by `open`; `aclose` drains it."""

    def __init__(self, opened: Opened, services: Services) -> None:
        self._opened, self.services = opened, services
        self.actors = Actors(services, on_halt=self._halt)
        services.subagents.serve(self.actors)
        services.runs.serve(self.actors)
        services.triggers.serve(self.actors.post)
        self._janitor = Janitor(services.records, services.residents, services.clock)
        self.halted: str | None = None
        """Why this life ended before its time: the store failed, or its lease was lost."""
        self._over = asyncio.Event()
        self._leaving = asyncio.Event()
        self._chores: list[asyncio.Task[None]] = []

    @classmethod
    async def open(
        cls,
        settings: Settings,
        *,
        model: LLM | None = None,
        tools: Iterable[Tool] = (),
        skills: Sequence[SkillSource] = (),
        fresh: bool = False,
        environ: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        ids: Callable[[], str] | None = None,
        folder: Path | None = None,
        store: Store | None = None,
        people: bool | None = None,
    ) -> Daemon:
        """Start: the store's lease, the manifest, what an earlier life left, in this order.

        `model`: in place of the configured one. `tools`: more tools, written in Python. `fresh`: begin a new
        generation, which adopts nothing and deletes nothing. `folder`: what relative paths of the settings are relative
        to. `store`: in place of the configured one; it is closed at the end. `people`: whether questions of the agent
        are answered (`answer`); by default they are if it listens. Raises Held when another process has the store, what
        the store raises, and RequiredServerDown.
        """
        opened = await open_instance(
            settings, os.environ if environ is None else environ, fresh=fresh, clock=clock, sleep=sleep, ids=ids,
            store=store,
        )  # fmt: skip
        try:
            services = await assemble(
                opened, settings, model=model, tools=tools, skills=skills, folder=folder,
                people=settings.a2a.listen is not None if people is None else people,
            )  # fmt: skip
        except BaseException:
            await opened.aclose()
            raise
        made = cls(opened, services)
        try:
            await made._start()
        except BaseException:
            await made._let_go()
            raise
        return made

    async def _start(self) -> None:
        services = self.services
        self._chores = [asyncio.create_task(self._keep_lease())]  # from now on: servers may take their time
        await services.servers.come_up(is_one_shot=_is_one_shot(services.settings))
        await services.skills.settled()
        left = await services.inbox.load(self._lost)
        for wait in await services.waits.load({item.turn for item in left}, self._lost):
            wait.tell(services.events, "gate.closed", how="ended")
        await services.subagents.load({item.turn for item in left}, self._lost)
        await services.runs.load(services.servers.all_looked_at, self._lost)
        for item in left:
            self.actors.post(item)
        services.triggers.update(services.settings.triggers)
        self._chores.append(asyncio.create_task(self._sweep()))
        if changed := self._opened.start.changed:
            log.warning("the configuration differs from that of the start before in: %s", ", ".join(changed))
        services.events.emit("lifecycle.started", None, None, generation=self._opened.start.generation,
                             starts=self._opened.start.starts, pending=len(services.inbox))  # fmt: skip

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    # Talking to it

    @property
    def events(self) -> Events:
        return self.services.events

    @property
    def contexts(self) -> Contexts:
        return self.services.residents.contexts

    async def send(
        self,
        message: str | Sequence[Part],
        *,
        context: str | None = None,
        principal: Principal = OPERATOR,
        message_id: str | None = None,
    ) -> Accepted:
        """Take in a message. It is durable when this returns; `wait` for the answer.

        `context`: which conversation, None for a new one. `message_id`: the sender's own; the same one again gives the
        same task. Raises NotYours, Busy, Draining, SameId, ValueError.
        """
        self._require_open()
        services = self.services
        parts = (TextPart(message),) if isinstance(message, str) else tuple(message)
        if message_id is not None and (known := await services.inbox.seen(principal, message_id, parts)) is not None:
            services.events.emit("inbox.duplicate", known.context, known.turn, task=known.id)
            if (left := await services.inbox.found_again(known)) is not None:
                self.actors.post(left)
            return Accepted(known)
        self._opened.require_room()
        id = services.ids() if context is None else context
        sees_all = principal.role in ("root", "operator")
        if id == ROOT and not sees_all:
            raise NotYours(f"there is no context {id!r}")
        await services.residents.open(id, None if sees_all else principal.id, create=True, owner=principal.id)
        services.kills.reach("inbox.before")
        made = await services.inbox.accept(id, parts, principal, message_id=message_id)
        services.kills.reach("inbox.after")
        name = "inbox.duplicate" if made.is_duplicate else "inbox.accepted"
        services.events.emit(name, made.task.context, made.task.turn, task=made.task.id)
        if services.settings.observability.log_content:
            log.info("message", extra={"context": id, "text": "\n".join(_texts(parts))})
        if made.altered:
            services.events.emit("inbox.altered", id, made.task.turn)
        if made.item is not None:
            self.actors.post(made.item)
        return made

    async def wait(self, task: str, *, timeout: float | None = None) -> Task:
        """A task once it has ended. LookupError for an unknown one, TimeoutError after `timeout` seconds."""
        if timeout is None:
            return await self.actors.wait(task)
        return await asyncio.wait_for(self.actors.wait(task), timeout)

    async def ask(self, message: str | Sequence[Part], **where: Any) -> Task:
        """`send` and `wait`."""
        accepted = await self.send(message, **where)
        return await self.wait(accepted.task.id)

    async def note(self, text: str, *, kind: str = "note", about: str | None = None, context: str = ROOT) -> None:
        """Tell a context something that no person said. It starts a turn only if `agent.wake_on` names its kind."""
        self._require_open()
        services = self.services
        await services.residents.open(context, create=context == ROOT)
        wakes = kind in services.settings.agent.wake_on
        item, _ = await services.inbox.accept_note(context, NoteMsg(text, about), ROOT_PRINCIPAL, wakes=wakes)
        self.actors.post(item)

    async def command(self, op: str, *, context: str = ROOT, principal: Principal = OPERATOR, **arguments: Any) -> Any:
        """Give a command to a context, between two of its turns: status, context.compact, context.clear ...; or one to
        the instance: pause, drain, memory.get ..."""
        if (own := INSTANCE_COMMANDS.get(op)) is not None:
            return await own(self, principal, arguments)
        run = await prepared(self.services, op, context, arguments, principal)
        return await self.actors.command(context, run, any_time=COMMANDS[op].any_time)

    def commands(self, principal: Principal) -> list[str]:
        """The commands that a principal may give."""
        if principal.role in ("root", "operator"):
            return sorted([*COMMANDS, *INSTANCE_COMMANDS])
        mine = {"cancel", "context.list", *(name for name, spec in COMMANDS.items() if spec.owner)}
        if self.services.settings.a2a.scope == "principal":
            mine |= {"memory.get", "memory.set", "memory.list", "memory.delete"}
        return sorted(mine)

    def leave(self) -> None:
        """Ask whoever runs this daemon to drain and end it (`until_over`)."""
        self._leaving.set()

    def hurry(self) -> None:
        """End now, also a drain that is under way: turns in hand are left where they are, for the next life."""
        self._over.set()

    async def report(self, call: str, content: Any, *, context: str) -> None:
        """A result that came after its call was given up: a note tells the context of it."""
        text = f"The result of call {call} has come after all: {result_text(content)}"
        await self.note(text, kind="outcome", about=call, context=context)

    # Questions to people

    def question(self, task: str) -> Wait | None:
        """What a task asks and waits for the answer to; None where it waits for nobody."""
        return self.services.waits.asked(task)

    def questions(self, principal: Principal = OPERATOR) -> list[Wait]:
        """What is asked of a principal, the oldest first; of operators, everything."""
        return [one for one in self.services.waits.questions if _may_answer(principal, one)]

    async def answer(
        self,
        task: str,
        message: str | Sequence[Part],
        *,
        principal: Principal = OPERATOR,
        message_id: str | None = None,
        question: str | None = None,
    ) -> Task:
        """Answer the question of a task, durably. Text, or one part with data. `message_id`: the sender's own; the same
        one again changes nothing. `question`: the id of the one that is meant, where another may have taken its place.

        Raises LookupError for a task that is not there or not this principal's, NotOpen where it asks nothing, or
        another question, Unfitting for what is no answer to its question, SameId.
        """
        parts = (TextPart(message),) if isinstance(message, str) else tuple(message)
        services = self.services
        found = await services.inbox.task(task)
        if not _sees(principal, found.principal):
            raise LookupError(f"there is no task {task!r}")
        if message_id is not None and await services.inbox.seen(principal, message_id, parts) is not None:
            return found
        wait = self.question(task)
        if wait is None or question not in (None, wait.id):
            raise NotOpen(f"task {task} {'asks nothing' if wait is None else 'asks something else by now'}")
        value = fitting(wait, parts)
        extra = () if message_id is None else (services.inbox.known_by(principal, message_id, parts, found),)
        try:
            await services.waits.close(wait, "answered", value, by=principal.id, extra=extra)
        except (NotOpen, Conflict):
            # The same message, sent twice at once: the other one was first.
            if message_id is None or await services.inbox.seen(principal, message_id, parts) is None:
                raise
        return found

    @property
    def can_ask(self) -> bool:
        """Whether questions are answered in this life."""
        return self.services.waits.can_ask

    async def closed(self, question: Wait) -> Wait:
        """A question once it is answered, or over."""
        return await self.services.waits.until_closed(question)

    async def wait_or_ask(self, task: str) -> Task | Wait:
        """A task once it has ended, or the question that it asks first."""
        ended = asyncio.ensure_future(self.actors.wait(task))
        asked = asyncio.ensure_future(self.services.waits.until_asked(task))
        try:
            await asyncio.wait([ended, asked], return_when=asyncio.FIRST_COMPLETED)
            return ended.result() if ended.done() else asked.result()
        finally:
            ended.cancel()
            asked.cancel()

    async def cancel(self, task: str, *, principal: Principal = OPERATOR, reason: str = "cancelled") -> bool:
        """Ask a task to end, now or, where it still waits, as soon as it begins. False when it has ended already."""
        found = await self.services.inbox.task(task)
        if not _sees(principal, found.principal):
            raise LookupError(f"there is no task {task!r}")
        return not found.is_settled and self.actors.cancel(task, reason)

    # Its life

    def pause(self) -> None:
        """Start no turn until `resume`; messages are taken in all the same."""
        self.actors.pause()
        self.events.emit("lifecycle.paused", None, None)

    def resume(self) -> None:
        self.actors.resume()
        self.events.emit("lifecycle.resumed", None, None)

    async def reload(self, settings: Settings) -> Changes | Refused:
        """Go on with other settings, from the next turn of each context on, or refuse them all."""
        changes = reload(self.services.settings, settings)
        if isinstance(changes, Changes):
            await self.services.reload(changes.settings)
            self.services.slots.look()
            self.events.emit("lifecycle.reloaded", None, None, keys=list(changes.keys))
        return changes

    async def until_over(self) -> None:
        """Wait until this life has to end: the store failed, the lease was lost, or it was told to (`leave`)."""
        waiting = [asyncio.create_task(event.wait()) for event in (self._over, self._leaving)]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waiting:
                one.cancel()

    async def until_idle(self) -> None:
        """Wait until nothing is left to do, background runs included."""
        while not (self.actors.is_idle and self.services.runs.is_idle):
            await self.actors.until_idle()
            await self.services.runs.until_idle()

    async def drain(self, timeout: float | None = None) -> bool:
        """Take in nothing more, start nothing more, and let turns and runs in hand finish. Whether all did within
        `timeout` seconds (default `lifecycle.drain_timeout`); what did not is taken up in the next life."""
        if not self.actors.is_draining:
            self.events.emit("lifecycle.draining", None, None, running=len(self.actors.running))
        self.services.triggers.stop()
        self.actors.drain()
        limit = self.services.settings.lifecycle.drain_timeout.total_seconds() if timeout is None else timeout
        waiting = [asyncio.create_task(self.until_idle()), asyncio.create_task(self._over.wait())]
        try:
            await asyncio.wait(waiting, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waiting:
                one.cancel()
        return self.actors.is_idle and self.services.runs.is_idle

    async def aclose(self) -> None:
        """Drain, and give the store back."""
        finished = await self.drain() if self.halted is None else False
        await self.actors.stop()
        await self.services.subagents.aclose()
        await self.services.runs.aclose()
        await self._let_go(finished=finished)

    async def _let_go(self, *, finished: bool | None = None) -> None:
        """End what runs beside the turns, and give back what is open. `finished`: None for a life that never began."""
        self.services.triggers.stop()
        for chore in self._chores:
            chore.cancel()
        await asyncio.gather(*self._chores, return_exceptions=True)
        if finished is not None:
            self.events.emit("lifecycle.stopped", None, None, finished=finished)
        try:
            await self.services.servers.aclose()
            await self.services.skills.aclose()
            await self.services.calls.aclose()
        finally:
            await self._opened.aclose()

    def _halt(self, reason: str) -> None:
        if self.halted is None:
            self.halted = reason
            self.events.emit("lifecycle.halted", None, None, reason=reason)
        self._over.set()

    def _lost(self, error: Exception) -> None:
        self.events.emit("restore.lost", None, None, reason=str(error))

    def _require_open(self) -> None:
        if self.actors.is_draining:
            raise Draining("this instance is going down and takes no more work")

    # Chores

    async def _keep_lease(self) -> None:
        lease: Lease | None = self._opened.lease
        while lease is not None:
            await self.services.sleep(lease.ttl / 3)
            if not await self._opened.renew():
                self._halt("the lease of the store was lost to another process")
                self.actors.drain()
                return

    async def _sweep(self) -> None:
        while True:
            await self.services.sleep(SWEEP)
            held = (ref.hash for context in self.contexts for ref in context.state.skills)
            self.services.skills.forget(held)
            try:
                await self.services.memories.sweep()
                swept = await self._janitor.sweep(self.services.settings)
            except (StoreError, OSError) as error:  # told by the records; the next sweep looks again
                log.warning("the sweep was put off: %s", error)
                continue
            if any(swept.values()):
                log.info("swept: %s", ", ".join(f"{count} {name}" for name, count in swept.items() if count))


def _is_one_shot(settings: Settings) -> bool:
    return settings.agent.prompt is not None and settings.a2a.listen is None


def _sees(principal: Principal, owner: str) -> bool:
    return principal.role in ("root", "operator") or principal.id == owner


def _may_answer(principal: Principal, wait: Wait) -> bool:
    return _sees(principal, wait.owner)


def _texts(parts: Sequence[Part]) -> list[str]:
    return [part.text for part in parts if isinstance(part, TextPart)]


__all__ = ["Busy", "Daemon", "Draining"]
