"""The single writer of one context: it takes messages, notes and commands from one queue, in order, and alone changes
and writes the record. It lives as long as there is work.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from agentd.context import skills as skill_steps
from agentd.context.compact import Applied, Declined
from agentd.context.record import Entry, NoteMsg, PlanChange, SkillChange, TextPart
from agentd.context.resident import Context
from agentd.context.skill_file import SkillError
from agentd.context.skills import references
from agentd.context.units import Work
from agentd.records import Row, Write
from agentkit.agents.loop import End, EndState
from agentkit.core.contracts.errors import Conflict, Fenced, StoreError
from agentkit.core.contracts.messages import Message
from agentkit.core.contracts.requests import ChatRequest, LLMResult

from .calls import Refusal, Ticket
from .desk import TurnDesk
from .effects import open_calls, stand_in
from .governor import Wait
from .inbox import Item, Task
from .reducing import Situation
from .requests import Prepared, Standing
from .turns import A2A_STATE, EXIT, Turn

if TYPE_CHECKING:
    from .actors import Actors
    from .tools.base import Answer

T = TypeVar("T")
STORE_TROUBLE = (StoreError, OSError, TimeoutError)
"""What a store raises that failed for good: refusals apart, the record in memory goes back to what is stored."""


@dataclass
class Command:
    """Something to do between two turns, and who waits for it."""

    run: Callable[[Actor], Awaitable[Any]]
    result: asyncio.Future[Any]


class Actor:
    """The writer of the context `id`."""

    def __init__(self, actors: Actors, id: str) -> None:
        self.actors, self.services, self.id = actors, actors.services, id
        self.held: Context
        self.turn: Turn | None = None
        self.is_parked = False
        self._jobs: deque[Item | Command] = deque()
        self._task: asyncio.Task[None] | None = None
        # Guards the commit: tools that run together may each ask for one.
        self._committing = asyncio.Lock()
        self._points: list[str] = []
        self._is_ready = False

    # Queue

    @property
    def waiting(self) -> int:
        """Jobs that have not begun."""
        return len(self._jobs)

    def post(self, job: Item | Command) -> None:
        """Put work at the end of the queue."""
        self._jobs.append(job)
        if self._task is None:
            self.services.residents.use(self.id)
            self._task = asyncio.create_task(self._run(), name=f"context {self.id}")

    def notes_waiting(self) -> list[NoteMsg]:
        """Nothing yet: notes that wait together are joined by `_with_notes`."""
        return []

    async def stop(self) -> None:
        """End at once, wherever it is: what is durable is taken up in the next life."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

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
            self._task = None
            self.services.residents.release(self.id)
            self.actors.idle(self)

    async def _obey(self, job: Command) -> None:
        try:
            await self._ready()
            result = await job.run(self)
        except asyncio.CancelledError:
            job.result.cancel()
            raise
        except Exception as error:
            if not job.result.done():
                job.result.set_exception(error)
            self._revert()
            if isinstance(error, STORE_TROUBLE):
                await self._trouble(error)
        else:
            if not job.result.done():
                job.result.set_result(result)

    async def _take(self, item: Item) -> bool:
        """Work on an item to its end. False when this actor has to end, with the item left for another life."""
        try:
            if not await self.actors.may_start(self):
                return False
            await self._work(item)
        except asyncio.CancelledError:
            self._revert()
            raise
        except Exception as error:
            self._revert()
            return await self._trouble(error, item)
        self.actors.recovered()
        return True

    async def _work(self, item: Item) -> None:
        await self._ready()
        if not item.wakes:
            self._jobs.popleft()
            self.held.append(item.message, now=self.services.clock(), source="inbox")
            await self.commit(extra=self.services.inbox.finish(item))
            self.services.inbox.finished(item)
            await self._look_after()
            return
        await self.actors.slots.acquire()
        try:
            self.turn = turn = Turn(self, item)
            self.actors.running[turn.id] = self
            end = await self._end_of(turn)
            await turn.finish(end)
            self._jobs.popleft()
            self.turn = None
            await self._look_after()
        finally:
            self.turn = None
            self.actors.running.pop(item.turn, None)
            self.actors.slots.release()

    async def _look_after(self) -> None:
        """Reduce a context that grew over its trigger. The work itself is done: a fault here is told and ends nothing."""
        try:
            await self.reduce_if_due(None)
        except (*STORE_TROUBLE, asyncio.CancelledError):
            raise
        except Exception as error:
            self._revert()
            self.actors.log_failure(self.id, error)

    async def _end_of(self, turn: Turn) -> End:
        """How the turn ends; one that dies of anything but the store has failed, and says of what."""
        try:
            return await turn.run()
        except (*STORE_TROUBLE, asyncio.CancelledError):
            raise
        except Exception as error:
            self.actors.log_failure(self.id, error)
            self._revert()
            return End(EndState.FAILED, f"{type(error).__name__}: {error}", exit=1)

    async def _trouble(self, error: Exception, item: Item | None = None) -> bool:
        """What a failure means for this actor; whether it goes on."""
        events = self.services.events
        if isinstance(error, Fenced):
            events.emit("store.fenced", self.id, None, detail=str(error))
            self.actors.halt("the lease of the store was lost to another process")
            return False
        if isinstance(error, Conflict):
            events.emit("store.conflict", self.id, None, detail=str(error))
            self.services.residents.drop(self.id)
            self._is_ready = False
            return await self.actors.may_retry(self)
        if isinstance(error, STORE_TROUBLE):
            events.emit("store.error", self.id, None, detail=f"{type(error).__name__}: {error}")
            return await self.actors.may_retry(self)
        if item is not None and self._jobs and self._jobs[0] is item:
            # The context cannot be used (its row is damaged, or of a newer release): the item is refused by name.
            self._jobs.popleft()
            await self.actors.refuse(item, error)
        return True

    def _revert(self) -> None:
        self._points.clear()
        if self._is_ready and (held := self.services.residents.contexts.get(self.id)) is not None:
            held.revert()

    # The context

    async def _ready(self) -> None:
        """Have the context in memory, whole and sealed."""
        held = await self.services.residents.open(self.id, create=True)
        self.held = await self.services.residents.load(held)
        self._is_ready = True
        if self.id in self.services.residents.sealed:
            return
        unfinished = {item.turn for item in self.services.inbox.of_context(self.id)}
        left = [found for found in open_calls(self.held.entries) if found.turn not in unfinished]
        now = self.services.clock()
        for found in left:
            state = "unknown" if found.is_started else "not_run"
            self.held.append(
                stand_in(found, state, "the process ended in the middle of it"),  # type: ignore[arg-type]
                now=now,
                turn=found.turn,
                round=found.round,
                source="runtime",
            )
        if left:
            await self.commit()
            self.services.events.emit("restore.sealed", self.id, None, calls=len(left))
            self.services.kills.reach("restore.sealed")
        await self.actors.settle_bindings(self)
        self.services.residents.sealed.add(self.id)

    def after_commit(self, point: str) -> None:
        """Pass this kill point once the next commit is done."""
        self._points.append(point)

    async def commit(self, answer: Answer | None = None, *, extra: Iterable[Write] = ()) -> tuple[Row, ...]:
        """Write what is not stored yet, with what a tool changed and with the governor's figures, all or nothing."""
        async with self._committing:
            own = self.held.writes()
            writes = [*own, *(answer.writes if answer is not None else ()), *extra]
            writes += self.services.governor.writes()
            if not writes:
                return ()
            rows = await self.services.records.commit(writes)
            if own:
                self.held.stored(rows)
            if answer is not None:
                self.services.memory.applied(rows)
            self.services.kills.reach("commit")
            points, self._points = self._points, []
            for point in points:
                self.services.kills.reach(point)
            return rows

    # Requests

    async def prepare(self, turn: Turn) -> tuple[Prepared, Situation]:
        """The next request of a turn, and what a reduction would rest on."""
        standing, closing = await self.services.prompts.of(self.held, turn.item.sender, turn.settings)
        situation = self.situation(turn, standing, closing)
        return self.services.requests.prepare(self.held, turn.settings, standing, closing, situation), situation

    def situation(self, turn: Turn | None, standing: Standing, closing: tuple[Message, ...]) -> Situation:
        settings = turn.settings if turn is not None else self.services.settings
        work = Work(turn.id if turn is not None else None)
        return self.services.requests.situation(
            self.held, settings, standing, closing, work=work, bodies=self.services.skills.bodies
        )

    async def reserve(self, kind: str, request: ChatRequest, tokens: int, turn: Turn | None) -> Ticket:
        """Set aside what a call may cost, waiting for the next window where that is the tactic, and make it durable."""
        principal = turn.item.principal if turn is not None else ""
        while True:
            found = self.services.calls.reserve(
                kind, tokens, request, context=self.id, principal=principal,
                settings_model=self.services.settings.intelligence.model,
            )  # fmt: skip
            if isinstance(found, Ticket):
                await self.commit()
                return found
            await self._park(found, turn)

    async def _park(self, wait: Wait, turn: Turn | None) -> None:
        """Wait for a budget without holding a slot; the context stays."""
        await self.commit()
        seconds = max(wait.until - self.services.clock(), 0) / 1000
        if turn is None:
            raise Refusal(f"the budget of {wait.window} is used up")
        self.is_parked = True
        self.actors.slots.release()
        try:
            await turn.unless_stopped(self.services.sleep(seconds))
        finally:
            await self.actors.slots.acquire()
            self.is_parked = False

    async def ask(self, kind: str, request: ChatRequest, turn: Turn | None) -> LLMResult:
        """One call beside the turn's own: a summary, a preflight, a thought."""
        tokens = self.services.requests.measured(request)
        ticket = await self.reserve(kind, request, tokens, turn)
        result = await self.services.calls.run(request, ticket)
        if turn is not None:
            turn.spent.usage += result.usage
            turn.spent.calls += 1
        return result

    # Reductions

    async def reduce(
        self, turn: Turn | None, situation: Situation, *, command: bool = False, target: int | None = None,
        keep_last: int | None = None,
    ) -> Applied | Declined:  # fmt: skip
        """Reduce the context where that is due, or asked for, and take it over; it is written with the next commit."""

        async def ask(request: ChatRequest) -> LLMResult:
            return await self.ask("compaction", request, turn)

        made = await self.services.reducer.reduce(
            self.held, situation, ask, command=command, target=target, keep_last=keep_last
        )
        if isinstance(made, Applied):
            self.held.apply(made)
            self.held.forget()
            self.after_commit("compact.applied")
        return made

    async def reduce_if_due(self, turn: Turn | None) -> None:
        """After a turn and after notes: reduce and write, where the context is over its trigger."""
        settings = self.services.settings
        window = self.services.requests.window(settings).tokens
        if self.held.state.est_tokens <= settings.context.compact_at * window / 2:
            return
        standing, closing = await self.services.prompts.of(self.held, self.actors.owner_of(self.held), settings)
        await self.reduce(turn, self.situation(turn, standing, closing))
        await self.commit()

    # Skills

    async def load_referenced(self, message: Any, turn: Turn) -> None:
        """Fetch loaded skills whose texts are not at hand, and load those that the message refers to."""
        services = self.services
        for step in await services.skills.refresh(self.id, self.held.state.skills):
            self._take_step(step, turn)
        texts = [part.text for part in getattr(message, "parts", ()) if isinstance(part, TextPart)]
        settings = turn.settings.skills
        for name in references(texts or getattr(message, "text", ""), settings.reference_prefix):
            await self.load_skill(name, turn)

    async def load_skill(self, name: str, turn: Turn) -> None:
        """Load a skill into the context; one that cannot be loaded is told of by a note."""
        try:
            found = await self.services.skills.load(name)
            step = skill_steps.load(
                self.held.state.skills, found.ref, found.hash, max_loaded=turn.settings.skills.max_loaded
            )
        except SkillError as error:
            step = skill_steps.unknown(name, str(error))
            self.services.events.emit("skill.unknown", self.id, turn.id, skill=name)
        self._take_step(step, turn)

    def _take_step(self, step: skill_steps.Step, turn: Turn) -> None:
        now = self.services.clock()
        if step.change is not None:
            self.held.append(step.change, now=now, turn=turn.id, source="runtime")
            name = "skill.changed" if step.change.op == "change" else "skill.loaded"
            told = {"skill": step.change.name, "old": step.change.old, "new": step.change.new}
            self.services.events.emit(name, self.id, turn.id, **told)
        if step.note is not None:
            self.held.append(NoteMsg(step.note, ts=now), now=now, turn=turn.id, source="runtime")

    async def preflight(self, turn: Turn) -> None:
        """later"""

    def with_own_ids(self, made: Any) -> Any:
        seen = {c.id for e in self.held.entries if e.kind == "assistant" for c in e.body.tool_calls}
        calls = []
        for c in made.tool_calls:
            if len(c.id) < 16 or c.id in seen:
                c = msgspec.structs.replace(c, id=f"call_{self.services.ids().replace('-', '')}", original=c.id)
            seen.add(c.id)
            calls.append(c)
        return msgspec.structs.replace(made, tool_calls=tuple(calls))

    def desk(self, turn: Turn) -> TurnDesk:
        """What tools see of this context while the turn lasts."""
        return TurnDesk(self, turn)

    async def think(self, turn: Turn, *a: Any) -> Any:
        raise NotImplementedError

    # What a turn hands over

    def take_changes(self, answer: Answer, turn: Turn) -> None:
        """The control entries that a tool's answer brings."""
        for body in answer.bodies:
            self.held.append(body, now=self.services.clock(), turn=turn.id, source="tool")
            if isinstance(body, PlanChange):
                self.services.events.emit("plan.updated", self.id, turn.id, op=body.op)
            elif isinstance(body, SkillChange) and body.op == "load":
                self.services.events.emit("skill.loaded", self.id, turn.id, skill=body.name, hash=body.new)

    async def ended_task(self, turn: Turn, end: End) -> Task | None:
        """The task of a turn as its end leaves it."""
        if turn.item.task is None:
            return None
        task = await self.services.inbox.task(turn.item.task)
        usage = turn.spent.usage
        told = {"input": usage.prompt_tokens, "output": usage.output_tokens, "cached": usage.cache_read_tokens,
                "usd": usage.cost_usd, "calls": turn.spent.calls, "rounds": turn.loop.round}  # fmt: skip
        return msgspec.structs.replace(
            task,
            state=A2A_STATE[end.state],
            end_state=str(end.state),
            reason=end.reason,
            output=end.output,
            exit=end.exit if end.exit is not None else EXIT[end.state],
            usage=told,
            version=task.version + 1,
            updated=self.services.clock(),
        )

    async def commit_end(self, turn: Turn, task: Task | None) -> None:
        """State row, task and acknowledgement in one commit; then whoever waits for the task is told."""
        extra: list[Write] = [*self.services.inbox.finish(turn.item)]
        if task is not None:
            extra.append(self.services.inbox.save_task(task))
        await self.commit(extra=extra)
        self.services.inbox.finished(turn.item)
        if task is not None:
            self.actors.settled(task)


def entries_of(held: Context, turn: str) -> Sequence[Entry]:
    """The entries of one turn, in order."""
    return [entry for entry in held.entries if entry.turn == turn]
