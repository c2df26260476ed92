"""One turn: from an accepted message to an end state, one durable step after the other. Decides nothing that
`agentkit.agents.loop` decides; writes only through the actor that it is a turn of.

Every step is a commit: the user's entry, each answer before its calls run, their results, the end. After a crash the
same turn goes on behind its last commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from agentd.context.compact import Applied
from agentd.context.messages import assistant_msg, message_of
from agentd.context.record import AssistantMsg, Effect, Entry, NoteMsg, Outcome, ToolMsg, UserMsg
from agentd.context.rows import accepted
from agentd.context.tokens import fits, require_fit, with_usage
from agentd.context.units import Work
from agentkit.agents.loop import End, EndState, Loop, LoopLimits, Round
from agentkit.core.contracts.errors import AuthError, ContextOverflowError, MeterExceeded, ProviderError, TransientError
from agentkit.core.contracts.messages import ToolCall
from agentkit.core.contracts.requests import LLMResult
from agentkit.core.contracts.usage import Usage

from .calls import Refusal
from .effects import OpenCall, fate, key_of, open_calls, stand_in
from .inbox import Item, Task
from .requests import Prepared
from .tools.base import Answer, EndsTurn, Invocation

if TYPE_CHECKING:
    from .actor import Actor

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


@dataclass
class Spent:
    """What the turn used so far."""

    usage: Usage = Usage()
    calls: int = 0


class Turn:
    """The turn of one item of the inbox."""

    def __init__(self, actor: Actor, item: Item) -> None:
        self.actor, self.item = actor, item
        self.services, self.held = actor.services, actor.held
        self.settings = actor.services.settings  # a turn keeps the settings that it started with
        self.id = item.turn
        self.cancelled = False
        self.cancel_reason = "cancelled"
        self._job: asyncio.Future[Any] | None = None
        self._is_late = False
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
            read_only=self.services.box.is_read_only,
        )
        self.deadline = started + limits.deadline.total_seconds()

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
                await self._begin()
            return await self._rounds()
        except Stopped as stop:
            return stop.end

    async def _begin(self) -> None:
        self.services.events.emit("turn.start", self.held.id, self.id, task=self.item.task)
        self.held.append(self.item.message, now=self.services.clock(), turn=self.id, source="inbox")
        for note in self.actor.notes_waiting():
            self.held.append(note, now=self.services.clock(), turn=self.id, source="inbox")
        self.actor.after_commit("entry.user")
        await self.actor.load_referenced(self.item.message, self)
        await self.actor.preflight(self)

    async def _take_up(self, mine: Sequence[Entry]) -> End | None:
        """Go on behind the last durable step: the machine is told what was recorded, open calls get their fate."""
        for at, entry in enumerate(mine):
            if not isinstance(entry.body, AssistantMsg):
                continue
            # What the provider reported is not on record; the context's estimate stands for it.
            step = self.loop.answer(message_of(entry.body), Usage(self.held.state.est_tokens, entry.est))
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
        return await self._settle_round(left) if left else None

    def _finish_again(self, calls: Sequence[ToolCall], result: ToolMsg) -> None:
        """A recorded call of `finish` asks for the end once more."""
        call = next((call for call in calls if call.id == result.id and call.name == FINISH), None)
        if call is not None and not result.is_error and not result.state:
            given = dict(call.arguments)
            self.loop.finish(given["status"], given.get("output"), given.get("reason", ""), given.get("exit"))

    async def _settle_round(self, left: Sequence[OpenCall]) -> End | None:
        again: list[OpenCall] = []
        for found in left:
            what = fate(found, goes_on=True, repeatable=self.services.box.repeatable)
            if what == "again":
                again.append(found)
                continue
            if what == "unknown":
                self.services.events.emit("effect.unknown", self.held.id, self.id, call=found.call.id)
            self._append_result(stand_in(found, what, "the process ended in the middle of it"), found.round)
        if again:
            await self.actor.commit()
        for found in again:
            call = self._call_of(found)
            answer = await self._dispatch(call, found.round, found.index)
            await self._record(call, answer, found.round)
        number = left[0].round
        bodies = [e.body for e in self.held.entries if e.turn == self.id and e.round == number]
        return self.loop.results([message_of(b) for b in bodies if isinstance(b, ToolMsg)])

    def _call_of(self, found: OpenCall) -> ToolCall:
        return message_of(AssistantMsg(tool_calls=(found.call,))).tool_calls[0]

    # Rounds

    async def _rounds(self) -> End:
        first, retried = True, False
        while True:
            end = self._guard()
            if end is not None:
                return end
            try:
                prepared = await self._prepare(check_worth=first)
                first = False
                result = await self._ask(prepared)
            except ContextOverflowError as error:
                if error.window and not retried:
                    retried = True
                    self.services.requests.learned[self.settings.intelligence.model] = error.window
                    continue
                self.services.events.emit("context.overflow", self.held.id, self.id, sizes=error.sizes)
                return End(EndState.FAILED, f"context_overflow: {error}")
            except Refusal as error:
                return End(EndState.REFUSED, str(error), exit=OVER_BUDGET)
            except (TransientError, AuthError) as error:
                return End(EndState.FAILED, f"no model could be reached: {error}", exit=UNREACHABLE)
            except (ProviderError, MeterExceeded) as error:
                return End(EndState.FAILED, f"the model refused: {error}", exit=1)
            retried = False
            step = self._take_answer(prepared, result)
            if isinstance(step, End):
                return step
            end = await self._run_calls(step)
            if end is not None:
                return end

    def _guard(self) -> End | None:
        over = self.services.governor.is_over(self.held.id, self.item.principal)
        end = self.loop.guard(self.services.clock() / 1000, cancelled=self.cancelled, over_budget=over)
        if end is not None and end.state is EndState.CANCELLED:
            return replace(end, reason=self.cancel_reason)
        return end

    async def _prepare(self, *, check_worth: bool) -> Prepared:
        """The next request, the context reduced first where it is due, everything durable, its price reserved."""
        prepared, situation = await self.actor.prepare(self)
        conditions, settings = situation.conditions, situation.settings
        due = prepared.size.tokens > settings.trigger(conditions.window) or not fits(prepared.size, conditions)
        if due or (check_worth and conditions.rates is not None):
            await self.actor.reduce(self, situation)
            prepared, situation = await self.actor.prepare(self)
        if not fits(prepared.size, situation.conditions):
            made = await self.services.reducer.make_fit(self.held, situation)
            if isinstance(made, Applied):
                self.held.apply(made)
            prepared, situation = await self.actor.prepare(self)
            require_fit(prepared.size, situation.conditions)
        return prepared

    async def _ask(self, prepared: Prepared) -> LLMResult:
        ticket = await self.actor.reserve("turn", prepared.request, prepared.size.tokens, self)
        self.services.kills.reach("round.before_call")
        self.services.events.emit(
            "turn.round", self.held.id, self.id, round=self.loop.round + 1, tokens=prepared.size.tokens,
            source=prepared.size.source,
        )  # fmt: skip
        result: LLMResult = await self.unless_stopped(self.services.calls.run(prepared.request, ticket))
        self.spent.usage += result.usage
        self.spent.calls += 1
        return result

    def _take_answer(self, prepared: Prepared, result: LLMResult) -> Round | End:
        made = assistant_msg(result.message, ts=self.services.clock())
        made = self.actor.with_own_ids(made)
        clean, altered = accepted(made)
        if altered:
            self.services.events.emit("inbox.altered", self.held.id, self.id)
        number = self.loop.round + 1
        entry = self.held.append(clean, now=self.services.clock(), turn=self.id, round=number, source="model")
        self.services.requests.answered(self.held, prepared, result.usage)
        self.held.state = with_usage(
            self.held.state, result.usage.prompt_tokens, entry=prepared.last, volatile=prepared.volatile
        )
        return self.loop.answer(message_of(entry.body), result.usage)

    # Calls

    async def _run_calls(self, step: Round) -> End | None:
        if step.together:
            await self.actor.commit()
            self.services.kills.reach("round.started")
            jobs = [self._dispatch(call, step.number, at) for at, call in enumerate(step.calls)]
            for call, answer in zip(step.calls, await self.unless_stopped(_all(jobs)), strict=True):
                await self._record(call, answer, step.number)
        else:
            await self._run_in_order(step)
        self.actor.after_commit("round.committed")
        mine = [e.body for e in self.held.entries if e.turn == self.id and e.round == step.number]
        return self.loop.results([message_of(body) for body in mine if isinstance(body, ToolMsg)])

    async def _run_in_order(self, step: Round) -> None:
        for at, call in enumerate(step.calls):
            if self.services.box.has_effects(call.name):
                self.held.append(
                    Effect(call.id), now=self.services.clock(), turn=self.id, round=step.number, source="runtime"
                )
                await self.actor.commit()
                self.services.events.emit("effect.started", self.held.id, self.id, call=call.id, tool=call.name)
                self.services.kills.reach("round.started")
            elif at == 0:
                await self.actor.commit()
                self.services.kills.reach("round.started")
            answer = await self.unless_stopped(self._dispatch(call, step.number, at))
            await self._record(call, answer, step.number)

    async def _dispatch(self, call: ToolCall, number: int, index: int) -> Answer:
        arguments: dict[str, Any] = msgspec.json.decode(call.wire_arguments)
        asked = Invocation(
            tool=call.name,
            arguments=arguments,
            call=call.id,
            key=key_of(self.held.id, self.id, number, index),
            context=self.held.id,
            turn=self.id,
            round=number,
            index=index,
            principal=self.item.sender,
            desk=self.actor.desk(self),
        )
        answer = await self.services.box.dispatch(asked)
        self.services.kills.reach("tool.done")
        return answer

    async def _record(self, call: ToolCall, answer: Answer, number: int) -> None:
        """The result as an entry, with what the tool changed; what changes rows is written at once."""
        now = self.services.clock()
        msg = ToolMsg(call.id, call.name, answer.content, answer.is_error, "", answer.parts, now)
        self._append_result(msg, number)
        if self.services.box.has_effects(call.name):
            self.held.append(Effect(call.id, "completed"), now=now, turn=self.id, round=number, source="runtime")
            self.services.events.emit("effect.completed", self.held.id, self.id, call=call.id)
        self.actor.take_changes(answer, self)
        if answer.finish is not None:
            self.loop.finish(answer.finish.status, answer.finish.output, answer.finish.reason, answer.finish.exit)
        if answer.writes:
            await self.actor.commit(answer)
            self.services.kills.reach("memory.value")

    def _append_result(self, msg: ToolMsg, number: int) -> None:
        clean, _ = accepted(msg)
        self.held.append(clean, now=self.services.clock(), turn=self.id, round=number, source="tool")

    # End

    async def finish(self, end: End) -> Task | None:
        """Seal, write the end, and tell whoever waits: state row, task, acknowledgement, in one commit."""
        now = self.services.clock()
        mine = [entry for entry in self.held.entries if entry.turn == self.id]
        for found in open_calls(mine):
            self._append_result(stand_in(found, fate(found, goes_on=False, repeatable=()), end.reason), found.round)
        if end.state is not EndState.COMPLETED:
            text = f"The turn ended as {end.state}: {end.reason}" if end.reason else f"The turn ended as {end.state}."
            self.held.append(NoteMsg(text, self.item.task or self.id, now), now=now, turn=self.id, source="runtime")
        self.held.append(Outcome(self.id, str(end.state), end.reason), now=now, turn=self.id, source="runtime")
        asked = [entry.n for entry in mine if isinstance(entry.body, UserMsg)]
        handled = max([*asked, self.held.state.handled or 0]) or None
        self.held.update(handled=handled, turns=self.held.state.turns + 1, updated=now)
        task = await self.actor.ended_task(self, end)
        self.services.kills.reach("end.before")
        await self.actor.commit_end(self, task)
        for point in ("end.context", "end.task", "end.ack"):
            self.services.kills.reach(point)
        self.services.events.emit(
            "turn.end", self.held.id, self.id, state=str(end.state), reason=end.reason, rounds=self.loop.round,
            tokens=self.spent.usage.total_tokens + self.spent.usage.cache_read_tokens,
        )  # fmt: skip
        return task

    async def unless_stopped(self, work: Coroutine[Any, Any, T]) -> T:
        """`work`, given up when the turn is cancelled or its deadline passes. A result that is there wins."""
        job = self._job = asyncio.ensure_future(work)
        left = max(self.deadline - self.services.clock() / 1000, 0)
        timer = asyncio.get_running_loop().call_later(left, self._expire)
        try:
            return await job
        except asyncio.CancelledError:
            if not job.done():  # the actor is being stopped
                job.cancel()
                raise
            if self.cancelled:
                raise Stopped(End(EndState.CANCELLED, self.cancel_reason)) from None
            if self._is_late:
                limit = self.settings.limits.run.deadline.total_seconds()
                raise Stopped(End(EndState.DEADLINE, f"after {limit:g} s")) from None
            raise
        finally:
            timer.cancel()
            self._job = None

    def _expire(self) -> None:
        self._is_late = True
        if self._job is not None:
            self._job.cancel()


async def _all(jobs: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    return list(await asyncio.gather(*jobs))


def work_of(turn: Turn | None) -> Work:
    """What a reduction has to spare."""
    return Work(turn.id if turn is not None else None)
