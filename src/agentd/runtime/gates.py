"""Asking people in the middle of a turn, and waiting for a time: what is durable before, who can be asked, and what
comes of it. Writes through the turn's writer.

A subagent asks with the task of the turn at the top: that is the one whose owner waits for an answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal

import msgspec

from .answers import APPROVAL, approving
from .checking import Checker, UnusableSchema
from .tools.base import Answer, Invocation, ToolError
from .tools.box import failed
from .waits import PEOPLE, Left, NotOpen, Wait
from .writer import Running, Writer

NOBODY = "nobody"
"""Who answers a question where `agent.ask_human_fallback` is auto and nobody can be asked."""


class Gates:
    """The gates of one turn."""

    def __init__(self, writer: Writer, turn: Running) -> None:
        self._writer, self._turn = writer, turn
        self._waits = writer.services.waits

    async def ask(
        self, call: Invocation, question: str, *, options: Sequence[str] = (), schema: Mapping[str, Any] | None = None,
        seconds: float | None = None,
        part: str = "",
    ) -> tuple[Any, str]:  # fmt: skip
        """A person's answer, and who gave it. Raises ToolError where nobody can be asked, and when the time is over."""
        if schema is not None:
            try:
                Checker(schema, what="the schema of the question")
            except UnusableSchema as error:
                raise ToolError(str(error)) from error
        wait = self._made(call, "question", question, seconds=seconds)
        if part:
            wait = msgspec.structs.replace(wait, id=f"{wait.id}:{part}")
        wait = msgspec.structs.replace(
            wait, options=tuple(options), schema=None if schema is None else dict(schema), asked_by=call.tool
        )
        if not await self._may_wait(wait):
            if self._turn.settings.agent.ask_human_fallback == "auto":
                return "Nobody can be asked here: decide by yourself, and say what you assumed.", NOBODY
            raise ToolError("nobody can be asked here; go on with what you know, or finish as failed")
        closed = await self._waited(wait)
        if closed.how != "answered":
            raise ToolError("nobody answered in time")
        return closed.answer, closed.by

    async def approve(self, call: Invocation) -> Answer | None:
        """Have a call approved: None for yes, else the result that the model gets. Nobody to ask means no, unless
        `agent.ask_human_fallback` is wait."""
        wait = self._made(call, "approval", approving(call.tool, call.arguments))
        wait = msgspec.structs.replace(wait, schema=APPROVAL, asked_by=call.tool)
        if not await self._may_wait(wait):
            return failed(f"{call.tool} was not run: it needs the approval of a person, and nobody can be asked here")
        closed = await self._waited(wait)
        answer = closed.answer if isinstance(closed.answer, dict) else {}
        if answer.get("approved"):
            return None
        reason = f": {answer['reason']}" if answer.get("reason") else ""
        return failed(f"{call.tool} was not run: {closed.by or 'a person'} did not approve it{reason}")

    async def sleep(self, call: Invocation, until: int) -> None:
        """Wait until a time, that of the first life which began this wait."""
        wait = msgspec.structs.replace(self._made(call, "timer", ""), until=until)
        await self._waited(wait)

    async def give_up(self, call: Invocation) -> None:
        """Close what a call still asks that has come to its end without the answer. Raises Left where it came to that
        because the instance goes down: the next life makes of the call what can be made of it."""
        for wait in self._waits.questions_of(call.turn, place_of(call, "question")):
            if self._waits.is_leaving:
                raise Left("the instance goes down while a question is open")
            try:
                await self._waits.close(wait, "ended")
            except NotOpen:  # answered in the same moment
                continue
            wait.tell(self._writer.services.events, "gate.closed", how="ended")

    async def _may_wait(self, wait: Wait) -> bool:
        """Whether anybody can answer, now or in another life. A question that is there already is waited for."""
        if await self._waits.find(wait.id) is not None:
            return True
        can_ask = self._waits.can_ask or self._turn.settings.agent.ask_human_fallback == "wait"
        return can_ask and wait.task is not None  # an answer names the task that asks

    def _made(
        self, call: Invocation, kind: Literal["question", "approval", "timer"], question: str, *,
        seconds: float | None = None,
    ) -> Wait:  # fmt: skip
        services = self._writer.services
        now, (top, above) = services.clock(), services.subagents.above(call.context)
        return Wait(
            id=place_of(call, kind),
            kind=kind,
            context=call.context,
            turn=call.turn,
            task=services.inbox.task_of(above[-1]) if above else self._turn.task,
            owner=call.principal.id,
            above=tuple(above),
            top=top if above else "",
            opened=now,
            until=None if seconds is None else now + round(seconds * 1000),
            question=question,
        )

    async def _waited(self, wait: Wait) -> Wait:
        events, waits = self._writer.services.events, self._waits
        is_new = not waits.is_known(wait.id)
        found = await self._writer.begin_wait(wait)
        is_asked = found.kind in PEOPLE
        if is_asked and found.is_open and is_new:
            found.tell(events, "gate.opened", kind=wait.kind, tool=wait.asked_by)
        if not found.is_open:
            return found
        closed = await self._writer.parked(partial(waits.until_closed, found))
        if is_asked:
            closed.tell(events, "gate.closed", how=closed.how)
        return closed


def place_of(call: Invocation, kind: str) -> str:
    """Where a call stands, the same in every life: its turn, round and number. A call may need an approval before it
    asks something itself."""
    place = f"{call.turn}:{call.round}:{call.index}"
    return f"{place}:approval" if kind == "approval" else place
