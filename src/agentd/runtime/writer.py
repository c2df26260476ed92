"""The one hand that changes a context and writes it: commits, requests, reductions. A turn, a command and the daemon's
own tools work through it, one at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from agentd.config import Settings
from agentd.context import plan as plans
from agentd.context import skills as skill_steps
from agentd.context.compact import Applied, Declined
from agentd.context.record import ROOT, NoteMsg, PlanChange, Preflight, SkillChange, TextPart
from agentd.context.resident import Context
from agentd.context.skill_file import SkillError
from agentd.context.skills import references
from agentd.context.units import Work
from agentd.records import Row, Write
from agentkit.core.contracts.errors import ProviderError
from agentkit.core.contracts.messages import Message
from agentkit.core.contracts.requests import ChatRequest, LLMResult
from agentkit.core.contracts.usage import Usage

from . import preflight as preflights
from .calls import Refusal
from .governor import Reservation, Wait
from .principals import ROOT_PRINCIPAL, Principal, sender_of
from .reducing import Situation
from .requests import Prepared, Standing
from .services import Services
from .thinking import driven, thinking
from .tools.base import Answer, ToolError
from .waiting import ended
from .waits import Wait as Waiting

T = TypeVar("T")


class Spent:
    """What a turn used so far."""

    def __init__(self) -> None:
        self.usage = Usage()
        self.calls = 0

    def add(self, usage: Usage) -> None:
        self.usage = self.usage + usage
        self.calls += 1


class Running(Protocol):
    """A turn, as far as the writer has to know it."""

    @property
    def id(self) -> str: ...

    @property
    def task(self) -> str | None: ...

    @property
    def sender(self) -> Principal: ...

    @property
    def settings(self) -> Settings: ...

    @property
    def spent(self) -> Spent: ...

    async def unless_stopped(self, work: Coroutine[Any, Any, T]) -> T: ...


class Writer:
    """The writer of the context `held`."""

    def __init__(self, services: Services, held: Context) -> None:
        self.services, self.held, self.id = services, held, held.id
        self.is_parked = False
        """Whether its turn waits for a budget, a person or other work, without a slot."""
        self.turn: Running | None = None
        """The turn in hand."""
        self.between = asyncio.Lock()
        """Held by what works on the context while the turn in hand waits between two steps (`is_at_rest`)."""
        self.on_rest: Callable[[], None] = lambda: None
        """Called when the turn in hand begins to wait so."""
        self._at_rest: set[object] = set()
        # Guards the commit: tools that run together may each ask for one.
        self._committing = asyncio.Lock()
        self._points: list[str] = []

    @property
    def owner(self) -> Principal:
        """In whose name the runtime itself looks at the context."""
        if self.id == ROOT:
            return ROOT_PRINCIPAL
        return sender_of(self.services.settings, self.held.state.principal)

    def revert(self) -> None:
        """Go back to what is stored."""
        self._points.clear()
        self.held.revert()

    def after_commit(self, point: str) -> None:
        """Pass this kill point once the next commit is done."""
        self._points.append(point)

    async def commit(self, answer: Answer | None = None, *, extra: Iterable[Write] = ()) -> tuple[Row, ...]:
        """Write what is not stored yet, with what a tool changed and with the governor's figures, all or nothing."""
        async with self._committing:
            own = self.held.writes()
            writes = [*own, *(answer.writes if answer is not None else ()), *extra]
            writes += self.services.governor.writes(self.id)
            if not writes:
                return ()
            rows = await self.services.records.commit(writes)
            if own:
                self.held.stored(rows)
            self.services.governor.stored(rows)
            if answer is not None:
                self.services.memories.applied(answer.writes)
            self.services.kills.reach("commit")
            points, self._points = self._points, []
            for point in points:
                self.services.kills.reach(point)
            return rows

    # Requests

    async def prepare(self, turn: Running) -> tuple[Prepared, Situation]:
        """The next request of a turn, and what a reduction would rest on."""
        standing, closing = await self.services.prompts.of(self.held, turn.sender, turn.settings)
        situation = self.situation(turn, standing, closing)
        return self.services.requests.prepare(self.held, turn.settings, standing, closing, situation), situation

    def situation(self, turn: Running | None, standing: Standing, closing: tuple[Message, ...]) -> Situation:
        settings = turn.settings if turn is not None else self.services.settings
        work = Work(turn.id if turn is not None else None)
        return self.services.requests.situation(
            self.held, settings, standing, closing, work=work, bodies=self.services.skills.bodies
        )

    async def reserve(self, kind: str, request: ChatRequest, tokens: int, turn: Running | None) -> Reservation:
        """Set aside what a call may cost, waiting for the next window where that is the tactic, and make it durable:
        a life that ends in the call has paid for it."""
        governor, principal = self.services.governor, turn.sender.id if turn is not None else ""
        while True:
            if self.is_parked and turn is not None:
                await turn.unless_stopped(self._take_slot())
            # Each time: the counters of one that waited long may have left memory.
            await governor.ready(self.services.records, self.id, principal)
            found = self.services.calls.reserve(kind, tokens, request, context=self.id, principal=principal)
            if isinstance(found, Reservation):
                try:
                    if kind == "turn":  # only the end of this life can stop it, and the next one reads what is stored
                        await self.commit()
                    else:
                        await self._commit_whole()
                except BaseException:
                    governor.release(found)
                    raise
                return found
            if turn is None:
                raise Refusal(f"the budget of this {found.window} is used up")
            await self._park(found, turn)

    async def _commit_whole(self, extra: Iterable[Write] = ()) -> tuple[Row, ...]:
        """`commit`, not given up half-way when what asked for it is: what is stored and what is known to be stored
        would part."""
        job = asyncio.ensure_future(self.commit(extra=extra))
        try:
            await ended(job)
        except asyncio.CancelledError:
            await asyncio.gather(job, return_exceptions=True)
            raise
        return job.result()

    async def _park(self, wait: Wait, turn: Running) -> None:
        """Wait for a budget without holding a slot; the context stays. The slot is taken again before the next call: a
        turn that ends here needs none."""
        await self._commit_whole()
        self.is_parked = True
        self.services.slots.release()
        passed = partial(self.services.governor.passed, wait)
        await turn.unless_stopped(self.services.waits.unless_leaving(passed))

    async def begin_wait(self, wait: Waiting) -> Waiting:
        """Make a wait durable, together with all that led to it; or the one that an earlier life has begun here."""
        waits = self.services.waits
        found = await waits.find(wait.id)
        if found is not None:
            return found
        waits.opened(await self._commit_whole([waits.opening(wait)]))
        return wait

    async def parked(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """What `work` comes to, without holding a slot meanwhile; the context stays, and others may work on it
        (`between`). All is durable before, and a slot is held again when it returns. Raises Left when the instance goes
        down."""
        await self._commit_whole()
        mine = object()  # calls that run together may each wait
        self._at_rest.add(mine)
        if not self.is_parked:
            self.is_parked = True
            self.services.slots.release()
        self.on_rest()
        try:
            result = await self.services.waits.unless_leaving(work)
            await self.services.waits.unless_leaving(partial(self.go_on, mine))
            return result
        finally:
            self._at_rest.discard(mine)

    @property
    def is_at_rest(self) -> bool:
        """Whether the turn in hand waits for a person, a time or other work, with everything durable."""
        return bool(self._at_rest)

    async def go_on(self, waited: object = None) -> None:
        """Hold a slot again, unless another call of the round still waits. What works on the context meanwhile ends
        first."""
        async with self.between:
            self._at_rest.discard(waited)
            if self.is_parked and not self._at_rest:
                await self._take_slot()

    async def _take_slot(self) -> None:
        await self.services.slots.acquire()
        self.is_parked = False

    def leave_slot(self) -> None:
        """Give the slot of the turn back, unless the turn ended while it waited without one."""
        if not self.is_parked:
            self.services.slots.release()
        self.is_parked = False

    async def ask(self, kind: str, request: ChatRequest, turn: Running | None) -> LLMResult:
        """One call beside the turn's own: a summary, a preflight, a thought."""
        tokens = self.services.requests.measured(request)
        return await self.call(request, await self.reserve(kind, request, tokens, turn), turn)

    async def call(self, request: ChatRequest, ticket: Reservation, turn: Running | None) -> LLMResult:
        """Make a call that is paid for; it is given up when its turn has to end."""
        work = self.services.calls.run(request, ticket)
        try:
            result = await (work if turn is None else turn.unless_stopped(work))
        finally:
            self.services.governor.release(ticket)  # where it never began; otherwise it is settled
        if turn is not None:
            turn.spent.add(result.usage)
        return result

    # Reductions

    async def reduce(
        self, turn: Running | None, situation: Situation, *, command: bool = False, target: int | None = None,
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

    async def reduce_if_due(self) -> None:
        """After a turn and after notes: reduce and write, where the context is over its trigger."""
        settings = self.services.settings
        window = self.services.requests.terms_of(settings).window
        if self.held.state.est_tokens <= settings.context.compact_at * window / 2:
            return
        standing, closing = await self.services.prompts.of(self.held, self.owner, settings)
        await self.reduce(None, self.situation(None, standing, closing))
        await self.commit()

    # Skills

    async def load_referenced(self, message: Any, turn: Running) -> None:
        """Fetch loaded skills whose texts are not at hand, and load those that the message refers to."""
        services = self.services
        for step in await services.skills.refresh(self.id, self.held.state.skills):
            self._take_step(step, turn)
        texts = [part.text for part in getattr(message, "parts", ()) if isinstance(part, TextPart)]
        settings = turn.settings.skills
        for name in references(texts or getattr(message, "text", ""), settings.reference_prefix):
            await self.load_skill(name, turn)

    async def load_skill(self, name: str, turn: Running) -> None:
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

    def _take_step(self, step: skill_steps.Step, turn: Running) -> None:
        now = self.services.clock()
        if step.change is not None:
            self.held.append(step.change, now=now, turn=turn.id, source="runtime")
            name = "skill.changed" if step.change.op == "change" else "skill.loaded"
            told = {"skill": step.change.name, "old": step.change.old, "new": step.change.new}
            self.services.events.emit(name, self.id, turn.id, **told)
        if step.note is not None:
            self.held.append(NoteMsg(step.note, ts=now), now=now, turn=turn.id, source="runtime")

    # Before the model is asked

    async def preflight(self, turn: Running, text: str) -> preflights.Effects:
        """Look at a message beforehand, where that is due, and do what follows: plan, skills. What is left to do ends
        the turn."""
        settings, state = turn.settings, self.held.state
        if not preflights.due(settings, text, state.plan):
            return preflights.Effects()
        plan = plans.plan_of(state.plan)
        catalogue = self.services.skills.catalogue.skills
        steps = preflights.examining(
            text,
            model=settings.intelligence.model,
            plan_text=plans.render(plan) if plan is not None else "",
            skills=[(skill.ref, skill.description) for skill in catalogue],
            tools=[name for name, _, _ in self.services.box.told(turn.sender, settings)],
        )
        events = self.services.events
        verdict = await preflights.examine(steps, lambda request: self.ask("preflight", request, turn))
        if isinstance(verdict, preflights.Failed):
            events.emit("preflight.failed", self.id, turn.id, reason=verdict.reason)
            return preflights.Effects()
        events.emit("preflight.verdict", self.id, turn.id, intent=verdict.intent, risk=verdict.risk)
        most = settings.context.plan.max_items
        known = {skill.ref for skill in catalogue}
        found = preflights.effects(verdict, has_plan=plan is not None, max_items=most, known_skills=known)
        now = self.services.clock()
        self.held.append(Preflight(verdict.to_dict()), now=now, turn=turn.id, source="runtime")
        self.held.update(preflight=verdict.to_dict())
        if found.seed is not None:
            made = plans.create(found.seed.goal, list(found.seed.items), now=now, max_items=most)
            self.held.append(PlanChange("create", plans.plain(made)), now=now, turn=turn.id, source="runtime")
            events.emit("plan.updated", self.id, turn.id, op="create")
        for name in found.load:
            await self.load_skill(name, turn)
        return found

    async def think(
        self, turn: Running, prompt: str, schema: Mapping[str, Any] | None, reads: Sequence[str], skills: Sequence[str]
    ) -> Any:
        """The model's answer to one prompt, outside the conversation. Raises ToolError, ThinkFailed."""
        memory: dict[str, Any] = {}
        for key in reads:
            value, _ = await self.services.memories.of(self.held).get(key)
            if value is None:
                raise ToolError(f"memory has no value under {key!r}")
            memory[key] = value.record.value
        texts = {}
        for name in skills:
            try:
                texts[name] = (await self.services.skills.load(name)).text
            except SkillError as error:
                raise ToolError(str(error)) from error
        steps = thinking(prompt, model=turn.settings.intelligence.model, schema=schema, reads=memory, skills=texts)
        try:
            thought = await driven(steps, lambda request: self.ask("think", request, turn))
        except (ProviderError, Refusal) as error:
            raise ToolError(f"the model gave no answer: {error}") from error
        return thought.value

    # What a turn hands over

    def take_changes(self, answer: Answer, turn: Running) -> None:
        """The control entries that a tool's answer brings."""
        for body in answer.bodies:
            self.held.append(body, now=self.services.clock(), turn=turn.id, source="tool")
            if isinstance(body, PlanChange):
                self.services.events.emit("plan.updated", self.id, turn.id, op=body.op)
            elif isinstance(body, SkillChange) and body.op == "load":
                self.services.events.emit("skill.loaded", self.id, turn.id, skill=body.name, hash=body.new)
