"""The tasks of the inbox as their owners see them: found, listed in pages, with what was said. Nothing is written here:
tasks are rows of the inbox, committed by the runtime together with the work they stand for."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterable
from dataclasses import dataclass

from a2a.types.a2a_pb2 import Message, Role
from a2a.utils.errors import InvalidParamsError, TaskNotFoundError, UnsupportedOperationError

from agentd.context.record import Entry
from agentd.context.resident import LOG
from agentd.context.rows import decode_entry
from agentd.runtime.daemon import Daemon
from agentd.runtime.inbox import Task
from agentd.runtime.principals import Principal
from agentkit.core.contracts.errors import Corrupt, FormatError

from .wire import history_of, message_of

PAGE = 200
"""Rows that are read before others get their turn."""


@dataclass(slots=True)
class Line:
    """What a list has to know of a task; the rest is read when it is shown."""

    id: str
    context: str
    principal: str
    updated: int
    is_settled: bool


class Book:
    """The tasks of one instance."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._lines: dict[str, Line] = {}
        self._last: str | None = None
        self._reading = asyncio.Lock()

    async def find(self, id: str, sender: Principal) -> Task:
        """A task of this sender; operators reach all. Not there and not yours are the same TaskNotFoundError."""
        try:
            task = await self._daemon.services.inbox.task(id)
        except (LookupError, ValueError):  # ValueError: no id that anything could have
            raise TaskNotFoundError(f"there is no task {id[:256]!r}") from None
        if not sees(sender, task.principal):
            raise TaskNotFoundError(f"there is no task {id[:256]!r}")
        return task

    def state(self, task: Task) -> str:
        """Where a task stands now; its record says so only once it has ended."""
        if task.is_settled or task.state not in ("submitted", "working"):
            return task.state
        if self._daemon.question(task.id) is not None:
            return "input-required"
        return "working" if self._daemon.actors.turn_of(task.id) is not None else "submitted"

    # What was said

    async def history(self, task: Task, length: int | None) -> list[Message]:
        """The last `length` messages of a task, None for all."""
        if length == 0:
            return []
        made = history_of(task, await self._entries(task)) or self._waiting(task)
        return made if length is None else made[-length:]

    async def _entries(self, task: Task) -> Iterable[Entry]:
        turn = self._daemon.actors.turn_of(task.id)
        if turn is not None:
            return tuple(turn.held.entries)
        if task.span is None:
            return ()
        try:
            lines = await self._daemon.services.records.entries(LOG, task.context, *task.span)
            return [decode_entry(line) for line in lines]
        except (Corrupt, FormatError):  # of a newer release, or damaged: who reads the context is told
            return ()

    def _waiting(self, task: Task) -> list[Message]:
        """The message of a task that has not begun."""
        item = next((item for item in self._daemon.services.inbox.waiting if item.task == task.id), None)
        if item is None:
            return []
        return [message_of(task.message_id or f"{task.id}.1", task, item.message.parts, Role.ROLE_USER)]

    # Lists

    async def lines(self, sender: Principal) -> list[Line]:
        """All tasks of a sender, the newest change first.

        The first call reads every task of the instance, a later one only what is new or had not ended: ids rise.
        """
        async with self._reading:
            await self._read_on()
        mine = [line for line in self._lines.values() if sees(sender, line.principal)]
        mine.sort(key=lambda line: (line.updated, line.id), reverse=True)
        return mine

    async def _read_on(self) -> None:
        records = self._daemon.services.records
        if not records.abilities.list:
            raise UnsupportedOperationError("the store of this agent cannot list")
        for id in [line.id for line in self._lines.values() if not line.is_settled]:
            await self._look(id)
        while ids := await records.ids("task", after=self._last, limit=PAGE):
            for id in ids:
                await self._look(id)
            self._last = ids[-1]
            await asyncio.sleep(0)

    async def _look(self, id: str) -> None:
        try:
            task = await self._daemon.services.inbox.task(id)
        except (LookupError, Corrupt, FormatError):
            self._lines.pop(id, None)
            return
        self._lines[id] = Line(id, task.context, task.principal, task.updated, task.is_settled)

    async def show(self, line: Line) -> Task | None:
        """The task of a line; None where it was deleted meanwhile."""
        try:
            return await self._daemon.services.inbox.task(line.id)
        except LookupError:
            self._lines.pop(line.id, None)
            return None


def sees(sender: Principal, owner: str) -> bool:
    """Whether a sender may know of what `owner` has."""
    return sender.role in ("root", "operator") or sender.id == owner


def page_token(line: Line) -> str:
    """Where the next page begins: behind this line, whatever becomes of it."""
    return base64.urlsafe_b64encode(json.dumps([line.updated, line.id]).encode()).decode()


def behind(token: str) -> tuple[int, str]:
    """The place that a token names. InvalidParams for one that is not ours."""
    try:
        updated, id = json.loads(base64.urlsafe_b64decode(token.encode("ascii")))
    except (ValueError, TypeError, RecursionError):
        updated, id = None, None
    if type(updated) is not int or not isinstance(id, str):
        raise InvalidParamsError("pageToken is none that this agent gave")
    return updated, id
