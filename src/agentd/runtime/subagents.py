"""Subagents: conversations of their own that work for a turn, with fewer tools and narrower limits than it has. Each is
a row that is committed together with its first message, under the place of the call that started it, so that no crash
starts one twice; its turns are turns like all others. Touches the inbox, the records and the actors.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Any

import msgspec

from agentd.config import Settings
from agentd.context.record import NoteMsg, TextPart
from agentd.records import ANY, Records, Row, Save
from agentkit.core.contracts.errors import Conflict, Corrupt, FormatError

from .child import Child, fitting
from .crew import Crew, Ends, persistently
from .events import Events
from .inbox import Inbox, Item, Task
from .principals import ROOT_PRINCIPAL, Principal
from .residents import SUBAGENTS, Residents
from .shares import Room, Share, Shares
from .waits import Left

log = logging.getLogger("agentd")
KIND = "subagent"
ORPHANED = "the turn that it worked for has ended"


class Subagents:
    """The subagents of the turns in hand. `clock` in ms; `serve` says who works."""

    def __init__(
        self,
        records: Records,
        inbox: Inbox,
        residents: Residents,
        events: Events,
        *,
        clock: Callable[[], int],
        settings: Callable[[], Settings],
    ) -> None:
        self._records, self._inbox, self._residents, self._events = records, inbox, residents, events
        self._clock, self._settings = clock, settings
        self.shares = Shares()
        self._crew: Crew
        self.on_end: Callable[[str], None] = lambda context: None
        """Told of the conversation of each that has ended."""
        self._held: dict[str, Child] = {}
        self._rows: dict[str, Row] = {}
        self._room = Room(clock)
        self._ends = Ends()
        self._jobs: set[asyncio.Task[None]] = set()
        self._used: dict[str, int] = {}
        """Tokens of turns that have ended, until it is written down whose they were."""
        # Guards the rows: an end and a message to the same subagent may come at once.
        self._writing = asyncio.Lock()

    def serve(self, crew: Crew) -> None:
        """The actors that do the work."""
        self._crew = crew

    # Looking

    async def load(self, turns: Collection[str], lost: Callable[[Exception], None]) -> None:
        """The subagents that unfinished turns of an earlier life have; what has ended of them without anybody having
        heard of it is written down. `lost` is told of rows that cannot be read."""
        if not self._records.abilities.list:
            return  # each is read when the call that started it is made again
        for turn in turns:
            for id in await self._records.ids(KIND, prefix=f"{turn}:"):
                try:
                    child = await self.find(id)
                    tasks = [] if child is None or child.ended else [await self._inbox.task(one) for one in child.work]
                except (Corrupt, FormatError, msgspec.DecodeError, LookupError) as error:
                    lost(error)
                    continue
                for task in tasks:
                    if task.is_settled:
                        self.settled(task)

    async def find(self, id: str) -> Child | None:
        """A subagent by its handle."""
        if (held := self._held.get(id)) is not None:
            return held
        row = await self._records.get(KIND, id)
        return None if row is None else self._keep(row)

    async def of_item(self, item: Item) -> Child | None:
        """The subagent that is to work on an item; None where none does, as when an operator speaks in the conversation
        of one."""
        found = await self._by_context(item.context)
        return found if found is not None and item.task in found.work else None

    async def _by_context(self, context: str) -> Child | None:
        if not context.startswith(SUBAGENTS):
            return None
        found = await self.find(context[len(SUBAGENTS) :])
        if found is not None:
            await self._by_context(found.context)  # whoever is above it is to be known too
        return found

    def of_context(self, context: str) -> Child | None:
        """The subagent at work whose conversation this is."""
        return self._held.get(context[len(SUBAGENTS) :]) if context.startswith(SUBAGENTS) else None

    def above(self, context: str) -> tuple[str, list[str]]:
        """The conversation at the top, and the turns that wait for those of this one, the top one last."""
        turns: list[str] = []
        while (child := self.of_context(context)) is not None:
            context = child.context
            turns.append(child.turn)
        return context, turns

    def top(self, context: str) -> str:
        """The conversation that a conversation works for in the end; itself where it is no subagent's."""
        return self.above(context)[0]

    def of_turn(self, turn: str) -> list[Child]:
        """Those that a turn has started, in order."""
        return [child for child in self._held.values() if child.turn == turn]

    def at_work(self, context: str) -> list[Child]:
        """Those of a conversation that have not ended."""
        return [child for child in self._held.values() if child.context == context and not child.ended]

    # Turns

    def began(self, turn: str, limit: int, own: Callable[[], int], child: Child | None) -> None:
        """A turn has begun that may use `limit` tokens; `own`: what it has used so far. `child`: whose it is."""
        below = sum(one.spent for one in self.of_turn(turn))
        self.shares.begin(turn, Share(limit, own, None if child is None else child.turn, below))

    def is_orphan(self, child: Child) -> bool:
        """Whether the turn that a subagent works for has ended."""
        return not self._inbox.has_turn(child.turn)

    def finished(self, turn: str) -> None:
        """A turn is over: its subagents do not outlive it."""
        works_for, used = self.shares.above(turn), self.shares.end(turn)
        if works_for is not None:
            self._used[turn] = used or 0
        for child in self.of_turn(turn):
            self._leave(child)

    def _leave(self, child: Child) -> None:
        """Nobody waits for one any more."""
        if child.ended:
            self._held.pop(child.id, None)
            self._rows.pop(child.id, None)
        else:
            self.kill(child, ORPHANED)

    # Starting

    def _place(self, context: str) -> tuple[int, str]:
        above = self.of_context(context)
        return (1, context) if above is None else (above.depth + 1, above.root)

    async def start(
        self, child: Child, text: str, settings: Settings, seed: Callable[[Any], Awaitable[None]]
    ) -> Child:  # fmt: skip
        """Start one, or find the one that an earlier life started here. `seed` writes what its conversation begins
        with; `text` is its first message. ToolError where there may be no more."""
        if (known := await self.find(child.id)) is not None:
            return known
        depth, root = self._place(child.context)
        working = [(one.context, one.root) for one in self._held.values() if not one.ended]
        with self._room.taken(child.context, root, depth, working, settings.limits.subagents):
            await self._residents.open(child.own_context, create=True, owner=child.principal or None)
            await self._crew.command(child.own_context, seed)
            child = msgspec.structs.replace(child, root=root, depth=depth, started=self._clock())
            return await self._said(child, text, f"subagent:{child.id}")

    async def say(self, child: Child, text: str, message_id: str) -> Child:
        """Send one a message; one that had ended works on."""
        return await self._said(child, text, message_id)

    async def _said(self, child: Child, text: str, message_id: str) -> Child:
        """Left where the store fails and this life ends with it."""

        async def write() -> Child:
            async with self._writing:
                held = self._held.get(child.id, child)
                before = () if held.ended or not held.task else held.work
                return await self._accepted(held, before, text, message_id)

        made = await persistently(write, self._crew, child.context)
        if made is None:
            raise Left("the store failed while a subagent was told something")
        return made

    async def _accepted(
        self, child: Child, before: tuple[str, ...], text: str, message_id: str, *, again: bool = False
    ) -> Child:
        """A message to a subagent and its row, in one commit. `again`: its answer did not fit."""

        def row(task: Task) -> Save:
            made = msgspec.structs.replace(
                child, task=task.id, before=before, state="working", ended=False, text="", output=None,
                was_asked_again=again, updated=self._clock(),
            )  # fmt: skip
            return Save(KIND, child.id, msgspec.json.encode(made), self._rows.get(child.id))

        made = await self._inbox.accept(
            child.own_context, [TextPart(text)], Principal(child.principal, child.role), message_id=message_id,
            owner=ROOT_PRINCIPAL.id, extra=row, always=again,
        )  # fmt: skip
        item, found = made.item, next((one for one in made.rows if one.kind == KIND), None)
        if item is None:  # stored by an earlier life, or by a commit that was taken for failed
            item = await self._inbox.found_again(made.task)
            found = await self._records.get(KIND, child.id)
        if found is None:
            raise Corrupt(f"the subagent {child.id!r} has a message and no row", key=f"{KIND}/{child.id}")
        child = self._take(found)
        if item is not None:
            self._events.emit("subagent.start", child.context, child.turn, subagent=child.id, mode=child.mode)
            self._crew.post(item)
        return child

    def kill(self, child: Child, reason: str) -> None:
        """Have one end, and with it those that it has started."""
        for task in () if child.ended else child.work:
            if self._inbox.is_waiting(task):
                self._crew.cancel(task, reason)

    # Ending

    def settled(self, task: Task) -> None:
        """A task has ended; if it is a subagent's, whoever waits for it is told once that is durable."""
        child = next((one for one in self._held.values() if not one.ended and task.id in one.work), None)
        if child is not None:
            job = asyncio.create_task(self._ended(child.id, task), name=f"end of subagent {child.id}")
            self._jobs.add(job)
            job.add_done_callback(self._over_with)

    def _over_with(self, job: asyncio.Task[None]) -> None:
        self._jobs.discard(job)
        if not job.cancelled() and (error := job.exception()) is not None:
            log.error("the end of a subagent could not be written down", exc_info=error)

    async def until_ended(self, id: str) -> Child:
        """A subagent once it has ended."""
        while True:
            child = await self.find(id)
            if child is None:
                raise LookupError(f"there is no subagent {id!r}")
            if child.ended:
                return child
            await self._ends.next(id)

    async def aclose(self) -> None:
        """Let what is being written down be written."""
        await asyncio.gather(*self._jobs, return_exceptions=True)

    async def _ended(self, id: str, task: Task) -> None:
        """A piece of work of a subagent has ended, and with the last one the subagent."""
        used = self._used.pop(task.turn, None)
        if used is None:  # it ended in an earlier life
            used = sum(int(task.usage.get(name) or 0) for name in ("input", "output"))

        now = self._clock()

        async def write() -> Child | None:
            async with self._writing:
                child = self._held.get(id)
                if child is None or child.ended or task.id not in child.work:
                    return None
                child = msgspec.structs.replace(child, spent=child.spent + used, updated=now)
                if task.id != child.task or child.before:
                    return await self._written(_less(child, task))
                value, fault = fitting(child, task)
                if fault is not None and not child.was_asked_again and not self.is_orphan(child):
                    text = f"Your answer does not fit: {fault}. Answer once more, with JSON alone."
                    return await self._accepted(child, (), text, f"subagent:{task.id}:again", again=True)
                return await self._written(_ended(child, task, value, fault))

        child = await persistently(write, self._crew, self._held[id].context)
        if child is not None and self.is_orphan(child):
            self._leave(child)

    async def _written(self, child: Child) -> Child:
        """Write how one stands that a piece of work of has ended, with a note where nobody waits for it."""
        save = Save(KIND, child.id, msgspec.json.encode(child), self._rows.get(child.id, ANY))
        is_told = child.ended and child.mode == "async" and not self.is_orphan(child)
        try:
            if is_told:
                # A subagent's own conversation does its parent's work and no other: no note begins a turn there.
                wakes = "subagent" in self._settings().agent.wake_on and not child.context.startswith(SUBAGENTS)
                item, rows = await self._inbox.accept_note(
                    child.context, NoteMsg(child.note, child.id), ROOT_PRINCIPAL, wakes=wakes, extra=[save], always=True
                )
                self._crew.post(item)
            else:
                rows = await self._records.commit([save])
        except Conflict:
            # Stored by a commit that was taken for failed; the note that came with it is found by the next life.
            row = await self._records.get(KIND, child.id)
            if row is None or row.state != save.state:
                raise
            rows = (row,)
        for row in rows:
            if row.kind == KIND:
                self._take(row)
        if child.ended:
            self._events.emit("subagent.end", child.context, child.turn, subagent=child.id, state=child.state)
            self._ends.tell(child.id)
            self._crew.settle_bound(KIND, child.id)
            self.on_end(child.own_context)
        return child

    def _keep(self, row: Row) -> Child:
        """One that is at work is held; of one that has ended its row is enough, unless its turn is in hand."""
        child = msgspec.json.decode(row.state, type=Child)
        return child if child.ended and not self._inbox.has_turn(child.turn) else self._take(row)

    def _take(self, row: Row) -> Child:
        child = msgspec.json.decode(row.state, type=Child)
        self._held[child.id], self._rows[child.id] = child, row
        return child


def _less(child: Child, task: Task) -> Child:
    """A subagent that has more to do than the piece of work that has ended."""
    *before, last = (id for id in child.work if id != task.id)
    return msgspec.structs.replace(child, task=last, before=tuple(before))


def _ended(child: Child, task: Task, value: Any, fault: str | None) -> Child:
    """A subagent whose last piece of work has ended."""
    is_well = task.state == "completed" and fault is None
    text = task.text if task.output is not None else task.reason
    return msgspec.structs.replace(
        child,
        state="completed" if is_well else "failed" if task.state == "completed" else task.state,
        ended=True,
        text=f"its answer does not fit: {fault}" if fault is not None else text,
        output=value if is_well else None,
    )
