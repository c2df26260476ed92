"""The tool calls of a round: which run together, what is written down before they run, their results, and what becomes
of calls that an earlier life left. Writes through the turn's writer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from agentd.context.messages import message_of
from agentd.context.record import AssistantMsg, Effect, ToolMsg
from agentd.context.rows import accepted
from agentkit.agents.loop import End, Loop, Round
from agentkit.core.contracts.messages import ToolCall

from .desk import TurnDesk
from .effects import OpenCall, key_of, stand_in
from .gates import approval_at
from .tools.base import Answer, Invocation
from .writer import Running, Writer


class Turning(Running, Protocol):
    """A turn, as far as its rounds have to know it."""

    @property
    def loop(self) -> Loop: ...

    @property
    def desk(self) -> TurnDesk: ...

    def require_going(self) -> None: ...


class Rounds:
    """Runs the calls of one turn."""

    def __init__(self, writer: Writer, turn: Turning) -> None:
        self._writer, self._turn = writer, turn
        self._services, self._held = writer.services, writer.held

    async def run(self, step: Round) -> End | None:
        """Run the calls of an answer and take down their results. The end, where that was the last round."""
        if step.together:
            await self._writer.commit()
            self._services.kills.reach("round.started")
            found = await self._turn.unless_stopped(self._dispatch_all(step))
            for at in range(len(step.calls)):
                await self._ended(step.number, at)
            for call, answer in zip(step.calls, found, strict=True):
                await self._record(call, answer, step.number)
        else:
            await self._run_in_order(step)
        self._writer.after_commit("round.committed")
        return self._over(step.number)

    async def settle(self, left: Sequence[OpenCall]) -> End | None:
        """Give each call that an earlier life left a result, in their order: by running it again, or in its place."""
        box = self._services.box
        if any(box.find(found.call.name) is None for found in left):
            # A life begins before its MCP servers are there: whether a call may be repeated, only they tell.
            await self._turn.unless_stopped(self._services.servers.all_looked_at())
        for found in left:
            call = message_of(AssistantMsg(tool_calls=(found.call,))).tool_calls[0]
            approval = approval_at(self._turn.id, found.round, found.index)
            if not found.is_started and await self._services.waits.find(approval) is not None:
                await self._run_next(call, found.round, found.index, commits=False)
                continue
            if found.call.name not in box.repeatable:
                if found.is_started:
                    self._services.events.emit("effect.unknown", self._held.id, self._turn.id, call=found.call.id)
                self.put_in_place(found, "the process ended in the middle of it")
                await self._turn.desk.gates.give_up(found.round, found.index)
                continue
            await self._run_one(call, found.round, found.index)
        return self._over(left[0].round)

    def put_in_place(self, found: OpenCall, reason: str) -> None:
        """A result that says what is known of a call which has none."""
        self._append(stand_in(found, found.is_started, reason), found.round)

    async def _run_in_order(self, step: Round) -> None:
        for at, call in enumerate(step.calls):
            self._turn.require_going()
            await self._run_next(call, step.number, at, commits=at == 0)

    async def _run_next(self, call: ToolCall, number: int, index: int, *, commits: bool) -> None:
        """Run a call once it may be run. `commits`: what led to it is not durable yet."""
        needs = self._services.box.needs_approval(call.name, self._turn.settings)
        # What was asked counts, whatever the settings of this life are.
        if needs or self._services.waits.is_known(approval_at(self._turn.id, number, index)):
            refused = await self._turn.unless_stopped(self._approved(call, number, index))
            if refused is not None:
                await self._record(call, refused, number, was_run=False)
                return
        has_effects = self._services.box.has_effects(call.name)
        if has_effects:
            self._append_effect(Effect(call.id), number)
        if has_effects or commits:
            await self._writer.commit()
            if has_effects:
                events = self._services.events
                events.emit("effect.started", self._held.id, self._turn.id, call=call.id, tool=call.name)
            self._services.kills.reach("round.started")
        await self._run_one(call, number, index)

    async def _approved(self, call: ToolCall, number: int, index: int) -> Answer | None:
        """None once a person has approved a call, else its result. What would be refused anyway is not asked about."""
        asked, box = self._asked(call, number, index), self._services.box
        refused = box.refusal(asked.tool, asked.arguments, asked.principal, self._turn.settings)
        return refused or await self._turn.desk.gates.approve(asked)

    async def _run_one(self, call: ToolCall, number: int, index: int) -> None:
        async with self._services.box.holding(call.name, self._turn.desk):
            answer = await self._turn.unless_stopped(self._dispatch(call, number, index))
            await self._ended(number, index)
            await self._record(call, answer, number)

    async def _dispatch_all(self, step: Round) -> list[Answer]:
        jobs = [self._dispatch(call, step.number, at) for at, call in enumerate(step.calls)]
        return list(await asyncio.gather(*jobs))

    async def _ended(self, number: int, index: int) -> None:
        """A call is over, and with it what it asked; what goes on holds a slot again."""
        await self._turn.desk.gates.give_up(number, index)
        if self._writer.is_parked:
            await self._turn.unless_stopped(self._writer.go_on())

    def _asked(self, call: ToolCall, number: int, index: int) -> Invocation:
        arguments: dict[str, Any] = msgspec.json.decode(call.wire_arguments)
        return Invocation(
            tool=call.name,
            arguments=arguments,
            call=call.id,
            key=key_of(self._held.id, self._turn.id, number, index),
            context=self._held.id,
            turn=self._turn.id,
            round=number,
            index=index,
            principal=self._turn.sender,
            desk=self._turn.desk,
        )

    async def _dispatch(self, call: ToolCall, number: int, index: int) -> Answer:
        answer = await self._services.box.dispatch(self._asked(call, number, index))
        self._services.kills.reach("tool.done")
        return answer

    async def _record(self, call: ToolCall, answer: Answer, number: int, *, was_run: bool = True) -> None:
        """The result as an entry, with what the tool changed; what changes rows is written at once."""
        now = self._services.clock()
        self._append(ToolMsg(call.id, call.name, answer.content, answer.is_error, "", answer.parts, now), number)
        if was_run and self._services.box.has_effects(call.name):
            self._append_effect(Effect(call.id, "completed"), number)
            self._services.events.emit("effect.completed", self._held.id, self._turn.id, call=call.id)
        self._writer.take_changes(answer, self._turn)
        if (end := answer.finish) is not None:
            self._turn.loop.finish(end.status, end.output, end.reason, end.exit)
        if answer.writes:
            await self._writer.commit(answer)
            self._services.kills.reach("memory.value")

    def _append(self, msg: ToolMsg, number: int) -> None:
        clean, _ = accepted(msg)
        now = self._services.clock()
        self._held.append(clean, now=now, turn=self._turn.id, round=number, source="tool")

    def _append_effect(self, effect: Effect, number: int) -> None:
        now = self._services.clock()
        self._held.append(effect, now=now, turn=self._turn.id, round=number, source="runtime")

    def _over(self, number: int) -> End | None:
        """Tell the machine the results of a round, in the order in which they stand."""
        mine = [e.body for e in self._held.entries if e.turn == self._turn.id and e.round == number]
        return self._turn.loop.results([message_of(body) for body in mine if isinstance(body, ToolMsg)])
