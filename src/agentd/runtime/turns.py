"""One turn: from an accepted message to an end state, one durable step after the other. Decides nothing that
`agentkit.agents.loop` decides; writes only through the actor that it is a turn of.

Every step is a commit: the user's entry, each answer before its calls run, their results, the end. After a crash the
same turn goes on behind its last commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import msgspec

from agentd.context import plan as plans
from agentd.context.compact import Applied
from agentd.context.messages import assistant_msg, message_of, usage_of
from agentd.context.record import AssistantMsg, Entry, NoteMsg, Outcome, TextPart, ToolMsg, UserMsg
from agentd.context.rows import accepted
from agentd.context.tokens import fits, require_fit, with_usage
from agentd.context.units import settled_calls
from agentd.records import Write
from agentkit.agents.loop import End, EndState, Loop, LoopLimits, Round
from agentkit.core.contracts.errors import ContextOverflowError, MeterExceeded, ProviderError, TransientError
from agentkit.core.contracts.messages import ToolCall
from agentkit.core.contracts.requests import LLMResult
from agentkit.core.contracts.surrogates import replace_surrogates
from agentkit.core.contracts.usage import Usage

from .calls import Refusal
from .child import Child, narrowed
from .desk import TurnDesk
from .effects import open_calls
from .inbox import Item, Task
from .preflight import status_text
from .requests import Prepared
from .rounds import Rounds
from .subagents import ORPHANED
from .tools.base import EndsTurn
from .waiting import ended
from .writer import Spent, Writer

T = TypeVar("T")

A2A_STATE = {
    EndState.COMPLETED: "completed", EndState.FAILED: "failed", EndState.CANCELLED: "canceled",
    EndState.REFUSED: "rejected", EndState.EXHAUSTED_STEPS: "failed", EndState.EXHAUSTED_TOKENS: "failed",
    EndState.DEADLINE: "failed", EndState.LOOP_DETECTED: "failed",
}  # fmt: skip
"""State of the task by the state in which its turn ended."""
EXIT = {
    EndState.COMPLETED: 0, EndState.FAILED: 3, EndState.CANCELLED: 3, EndState.REFUSED: 5, EndState.EXHAUSTED_STEPS: 3,
    EndState.EXHAUSTED_TOKENS: 7, EndState.DEADLINE: 124, EndState.LOOP_DETECTED: 3,
}  # fmt: skip
"""Exit code of a one-shot prompt, likewise."""
UNREACHABLE, OVER_BUDGET = 4, 7
FINISH = "finish"
"""The tool that ends a turn."""


class Stopped(EndsTurn):
    """The turn was cancelled, or its deadline passed, while something was awaited."""

    def __init__(self, end: End) -> None:
        self.end = end


class Turn:
    """The turn of one item of the inbox. `child`: the subagent that works on it."""

    def __init__(
        self, writer: Writer, item: Item, notes_behind: Callable[[], list[Item]], child: Child | None = None
    ) -> None:  # fmt: skip
        self.writer, self.item, self._notes_behind = writer, item, notes_behind
        self.services, self.held = writer.services, writer.held
        # What a note begins is done for whom the conversation belongs to, with no rights but theirs.
        self.sender = writer.owner if item.kind == "note" else item.sender
        self.message = item.message
        self.settings = writer.services.settings  # a turn keeps the settings that it started with
        if child is not None:
            granted = {held.name for held in self.services.box.granted(self.sender, self.settings)}
            self.sender = replace(self.sender, agent=child.id)
            self.settings = narrowed(self.settings, child, granted)
        self.id, self.task = item.turn, item.task
        self.cancelled = False
        self.cancel_reason = "cancelled"
        self._job: asyncio.Future[Any] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._waited = 0.0
        self._is_late = False
        self.desk = TurnDesk(writer, self)
        self.spent = Spent()
        mine = [entry for entry in self.held.entries if entry.turn == self.id]
        self.recorded = mine
        """What an earlier life wrote of this turn."""
        limits = self.settings.limits.run
        # A run lasts from its first entry on, over all lives that work on it; waiting in the inbox is no part of it.
        started = (mine[0].ts if mine else self.services.clock()) / 1000
        self.loop = Loop(
            LoopLimits(limits.steps, limits.tokens, limits.deadline.total_seconds()),
            started=started,
            read_only=self._runs_beside_others,
        )
        self._deadline = started + limits.deadline.total_seconds()
        self._calls = Rounds(writer, self)
        self.services.subagents.began(self.id, limits.tokens, lambda: self.loop.tokens, child)
        if child is not None and self.services.subagents.is_orphan(child):
            self.cancel(ORPHANED)

    @property
    def deadline(self) -> float:
        """When its time is over, in seconds of the clock: what it waited for people and other work is no part of it."""
        return self._deadline + self.services.waits.waited(self.id)

    def _runs_beside_others(self, tool: str) -> bool:
        box = self.services.box
        return box.is_read_only(tool) and not box.needs_approval(tool, self.settings)

    def cancel(self, reason: str = "cancelled") -> None:
        """Ask the turn to end."""
        if not self.cancelled:
            self.cancel_reason, self.cancelled = reason, True
            if self._job is not None:
                self._job.cancel()

    # Start

    async def run(self) -> End:
        """To the end, without writing it: `finish` does."""
        mine = self.recorded
        try:
            if mine:
                self.services.events.emit("inbox.replayed", self.held.id, self.id, entries=len(mine))
                ended = await self._take_up(mine)
                if ended is not None:
                    return ended
            else:
                ended = await self._begin()
                if ended is not None:
                    return ended
            return await self._rounds()
        except Stopped as stop:
            return stop.end

    async def _begin(self) -> End | None:
        self.services.events.emit("turn.start", self.held.id, self.id, task=self.item.task)
        self.held.append(self.message, now=self.services.clock(), turn=self.id, source="inbox")
        if self.item.kind == "note":
            joined = self._notes_behind()
            for note in joined:
                self.held.append(note.message, now=self.services.clock(), turn=self.id, source="inbox")
            # They are in the log now; the first of them stays until the turn has ended.
            await self.writer.commit(extra=[w for note in joined for w in self.services.inbox.finish(note)])
            for note in joined:
                self.services.inbox.finished(note)
        self.writer.after_commit("entry.user")
        await self.writer.load_referenced(self.message, self)
        return await self._preflight()

    async def _preflight(self) -> End | None:
        """Have the message looked at beforehand. A question for the status is answered at once, and so is one that has
        to be asked back."""
        texts = [part.text for part in getattr(self.message, "parts", ()) if isinstance(part, TextPart)]
        if not texts:
            return None
        try:
            found = await self.writer.preflight(self, "\n".join(texts))
        except Refusal:
            return None  # the turn's own call meets the same budget, and says so
        if found.is_status:
            plan = plans.plan_of(self.held.state.plan)
            text = status_text(self.desk.status()["context"], plans.render(plan) if plan is not None else "")
        elif found.ask is not None:
            text = found.ask
        else:
            return None
        now = self.services.clock()
        self.held.append(AssistantMsg(text, ts=now), now=now, turn=self.id, round=0, source="runtime")
        return End(EndState.COMPLETED, output=text)

    async def _take_up(self, mine: Sequence[Entry]) -> End | None:
        """Go on behind the last durable step: the machine is told what was recorded, open calls get their fate."""
        for at, entry in enumerate(mine):
            if not isinstance(entry.body, AssistantMsg):
                continue
            usage = usage_of(entry.body)
            if usage is not None:
                self.spent.add(usage)
            # Where none is on record, the context's estimate stands for it.
            step = self.loop.answer(message_of(entry.body), usage or Usage(self.held.state.est_tokens, entry.est))
            if isinstance(step, End):
                return step
            found = [e.body for e in mine[at + 1 :] if isinstance(e.body, ToolMsg) and e.round == entry.round]
            for body in found:
                self._finish_again(step.calls, body)
            if {body.id for body in found if body.state != "pending"} >= {call.id for call in entry.body.tool_calls}:
                end = self.loop.results([message_of(body) for body in found])
                if end is not None:
                    return end
        left = open_calls(mine)
        return await self._calls.settle(left) if left else None

    def _finish_again(self, calls: Sequence[ToolCall], result: ToolMsg) -> None:
        """A recorded call of `finish` asks for the end once more."""
        call = next((call for call in calls if call.id == result.id and call.name == FINISH), None)
        if call is not None and not result.is_error and not result.state:
            given = dict(call.arguments)
            self.loop.finish(given["status"], given.get("output"), given.get("reason", ""), given.get("exit"))

    # Rounds

    async def _rounds(self) -> End:
        first, retried, sent = True, False, 0
        while True:
            end = self._guard()
            if end is not None:
                return end
            prepared: Prepared | None = None
            try:
                prepared = await self._prepare(check_worth=first)
                first, sent = False, prepared.size.tokens
                result = await self._ask(prepared)
            except ContextOverflowError as error:
                # Refused without a figure, the request says itself how much is too much. One that was found too large
                # here was not sent, and nothing is learned of it.
                window = error.window or (sent if prepared is not None else None)
                if window and not retried:
                    retried = True
                    model = error.model or self.services.requests.in_use(self.settings)
                    self.services.requests.learned[model] = window
                    continue
                self.services.events.emit("context.overflow", self.held.id, self.id, sizes=error.sizes)
                return End(EndState.FAILED, f"context_overflow: {error}")
            except Refusal as error:
                state = EndState.FAILED if error.is_failure else EndState.REFUSED
                return End(state, str(error), exit=OVER_BUDGET)
            except TransientError as error:
                return End(EndState.FAILED, str(error), exit=UNREACHABLE)
            except (ProviderError, MeterExceeded) as error:
                return End(EndState.FAILED, f"the model refused: {error}", exit=1)
            retried = False
            step = self._take_answer(prepared, result)
            if isinstance(step, End):
                return step
            end = await self._calls.run(step)
            if end is not None:
                return end

    def _guard(self) -> End | None:
        over = self.services.governor.is_over(self.held.id, self.sender.id)
        worked_until = self.services.clock() / 1000 - self.services.waits.waited(self.id)
        end = self.loop.guard(worked_until, cancelled=self.cancelled, over_budget=over)
        if end is None and (reason := self.services.subagents.shares.exhausted(self.id)) is not None:
            end = End(EndState.EXHAUSTED_TOKENS, reason)
        if end is not None and end.state is EndState.CANCELLED:
            return replace(end, reason=self.cancel_reason)
        if end is not None and over is not None and end.reason == over and self._fails_over_budget:
            return replace(end, state=EndState.FAILED)
        return end

    @property
    def _fails_over_budget(self) -> bool:
        return self.services.settings.intelligence.budget.tactic == "fail"

    async def _prepare(self, *, check_worth: bool) -> Prepared:
        """The next request, the context reduced first where it is due, everything durable, its price reserved."""
        prepared, situation = await self.writer.prepare(self)
        conditions, settings = situation.conditions, situation.settings
        due = prepared.size.tokens > settings.trigger(conditions.window) or not fits(prepared.size, conditions)
        if due or (check_worth and conditions.rates is not None):
            await self.writer.reduce(self, situation)
            prepared, situation = await self.writer.prepare(self)
        if not fits(prepared.size, situation.conditions):
            made = await self.services.reducer.make_fit(self.held, situation)
            if isinstance(made, Applied):
                self.held.apply(made)
                self.held.forget()
            prepared, situation = await self.writer.prepare(self)
            require_fit(prepared.size, situation.conditions)
        return prepared

    async def _ask(self, prepared: Prepared) -> LLMResult:
        ticket = await self.writer.reserve("turn", prepared.request, prepared.size.tokens, self)
        self.services.kills.reach("round.before_call")
        self.services.events.emit(
            "turn.round", self.held.id, self.id, round=self.loop.round + 1, tokens=prepared.size.tokens,
            source=prepared.size.source,
        )  # fmt: skip
        return await self.writer.call(prepared.request, ticket, self)

    def _take_answer(self, prepared: Prepared, result: LLMResult) -> Round | End:
        made = assistant_msg(result.message, ts=self.services.clock(), usage=result.usage)
        made = settled_calls(made, self._call_id)
        clean, altered = accepted(made)
        if altered:
            self.services.events.emit("inbox.altered", self.held.id, self.id)
        number = self.loop.round + 1
        entry = self.held.append(clean, now=self.services.clock(), turn=self.id, round=number, source="model")
        miss = self.services.requests.answered(self.held, prepared, result.usage)
        if miss is not None:
            self.services.events.emit("cache.miss", self.held.id, self.id, segment=miss.segment, cause=miss.cause,
                                      expected=miss.expected, read=miss.read)  # fmt: skip
        self.held.state = with_usage(
            self.held.state, result.usage.prompt_tokens, entry=prepared.last, volatile=prepared.volatile
        )
        return self.loop.answer(message_of(entry.body), result.usage)

    def _call_id(self) -> str:
        return f"call_{self.services.ids().replace('-', '')}"

    # End

    async def finish(self, end: End) -> Task | None:
        """Seal, and write the end: state row, task and acknowledgement in one commit. The task as it is now."""
        now = self.services.clock()
        end = replace(end, reason=replace_surrogates(end.reason))
        mine = [entry for entry in self.held.entries if entry.turn == self.id]
        for found in open_calls(mine):
            self._calls.put_in_place(found, end.reason or str(end.state))
        if end.state is not EndState.COMPLETED:
            text = f"The turn ended as {end.state}: {end.reason}" if end.reason else f"The turn ended as {end.state}."
            self.held.append(NoteMsg(text, self.item.task or self.id, now), now=now, turn=self.id, source="runtime")
        self.held.append(Outcome(self.id, str(end.state), end.reason), now=now, turn=self.id, source="runtime")
        asked = [entry.n for entry in mine if isinstance(entry.body, UserMsg)]
        handled = max([*asked, self.held.state.handled or 0]) or None
        self.held.update(handled=handled, turns=self.held.state.turns + 1, updated=now)
        task = await self._ended_task(end)
        self.services.kills.reach("end.before")
        extra: list[Write] = [*self.services.inbox.finish(self.item), *self.services.waits.finish(self.id)]
        if task is not None:
            extra.append(self.services.inbox.save_task(task))
        rows = await self.writer.commit(extra=extra)
        self.services.inbox.finished(self.item)
        self.services.subagents.finished(self.id)
        for wait in self.services.waits.finished(self.id, rows):
            wait.tell(self.services.events, "gate.closed", how="ended")
        for point in ("end.context", "end.task", "end.ack"):
            self.services.kills.reach(point)
        self.services.events.emit(
            "turn.end", self.held.id, self.id, state=str(end.state), reason=self._told(end), rounds=self.loop.round,
            tokens=self.spent.usage.total_tokens + self.spent.usage.cache_read_tokens,
        )  # fmt: skip
        return task

    def _told(self, end: End) -> str:
        """The reason as events tell it: what the model wrote is content."""
        is_content = self.loop.progress.finishing is not None and not self.settings.observability.log_content
        return f"{len(end.reason)} characters" if is_content and end.reason else end.reason

    async def _ended_task(self, end: End) -> Task | None:
        """The task as this end leaves it."""
        if self.item.task is None:
            return None
        task = await self.services.inbox.task(self.item.task)
        usage, mine = self.spent.usage, [entry.n for entry in self.held.entries if entry.turn == self.id]
        told = {"input": usage.prompt_tokens, "output": usage.output_tokens, "cached": usage.cache_read_tokens,
                "usd": usage.cost_usd, "calls": self.spent.calls, "rounds": self.loop.round}  # fmt: skip
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
            span=(min(mine), max(mine)) if mine else None,
        )

    async def unless_stopped(self, work: Coroutine[Any, Any, T]) -> T:
        """`work`, given up when the turn is cancelled or its deadline passes. A result that is there wins."""
        try:
            self.require_going()
        except Stopped:
            work.close()
            raise
        job: asyncio.Future[T] = asyncio.ensure_future(work)
        around, self._job = self._job, job
        self._set_timer()
        try:
            await ended(job)
        except asyncio.CancelledError:  # the actor is being stopped
            job.cancel()
            await asyncio.gather(job, return_exceptions=True)
            raise
        finally:
            self._stop_timer()
            self._job = around
            if around is not None:
                self._set_timer()
        if job.cancelled():
            self.require_going()
            raise RuntimeError("what the turn waited for was cancelled, and not by the turn")
        return job.result()

    def require_going(self) -> None:
        """Stopped once the turn is cancelled, or over its deadline."""
        if self.cancelled:
            raise Stopped(End(EndState.CANCELLED, self.cancel_reason))
        if self._is_late or self.services.clock() / 1000 >= self.deadline:
            limit = self.settings.limits.run.deadline.total_seconds()
            raise Stopped(End(EndState.DEADLINE, f"after {limit:g} s"))

    def _set_timer(self) -> None:
        self._stop_timer()
        self._waited = self.services.waits.waited(self.id)
        left = max(self.deadline - self.services.clock() / 1000, 0)
        self._timer = asyncio.get_running_loop().call_later(left, self._expire)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        if self.services.waits.waited(self.id) > self._waited:  # what it waited meanwhile does not count
            self._set_timer()
            return
        self._is_late = True
        if self._job is not None:
            self._job.cancel()
