"""Background runs: calls of tools that go on beside the turns. A run is a row before its call is made and when it has
ended, so that a crash leaves none working for ever: its call is made again with its key where that is as good as once,
and is told as unknown otherwise. Touches the inbox, the records and the tools.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import msgspec

from agentd.config import Settings
from agentd.context.messages import result_text
from agentd.context.record import NoteMsg
from agentd.records import ANY, Records, Remove, Row, Save, Write
from agentkit.core.contracts.errors import Conflict, Corrupt, FormatError

from .background import MOST, Run, RunDesk, kept
from .crew import Crew, Ends, persistently
from .events import Events
from .inbox import Inbox
from .memories import Memories
from .principals import ROOT_PRINCIPAL, Principal
from .residents import SUBAGENTS, Residents
from .skills import SkillLibrary
from .tools.base import Invocation, ToolError
from .tools.box import ToolBox
from .waits import Left

log = logging.getLogger("agentd")
KIND, WORKING = "run", "running"
"""Kinds of rows: of every run, and of those that have not ended."""
UNKNOWN = "the process ended in the middle of it: it is not known whether it took effect, and it was not repeated"


class Runs:
    """The runs of one instance. `clock` in ms; `serve` says who works."""

    def __init__(
        self,
        records: Records,
        inbox: Inbox,
        residents: Residents,
        events: Events,
        box: ToolBox,
        memories: Memories,
        skills: SkillLibrary,
        *,
        clock: Callable[[], int],
        ids: Callable[[], str],
        settings: Callable[[], Settings],
    ) -> None:
        self._records, self._inbox, self._residents, self._events = records, inbox, residents, events
        self._box, self._memories, self._skills = box, memories, skills
        self._clock, self._ids, self._settings = clock, ids, settings
        self._crew: Crew
        self._ready: Callable[[], Awaitable[None]]
        self._rows: dict[str, Row] = {}
        self._working: dict[str, Run] = {}
        self._jobs: dict[str, asyncio.Task[None]] = {}
        self._ends = Ends()
        self._giving_up: set[asyncio.Task[Run]] = set()

    def serve(self, crew: Crew) -> None:
        """The actors, who take the notes."""
        self._crew = crew

    async def load(self, ready: Callable[[], Awaitable[None]], lost: Callable[[Exception], None]) -> None:
        """Go on with what an earlier life left, once the tools are there (`ready`). `lost` is told of rows that cannot
        be read."""
        self._ready = ready
        if not self._records.abilities.list:
            return  # each is found when somebody asks for it
        for id in await self._records.ids(WORKING):
            try:
                row = await self._records.get(KIND, id)
                if row is not None:
                    self._begin(msgspec.json.decode(row.state, type=Run), row, self._again(id))
            except (Corrupt, FormatError, msgspec.DecodeError) as error:
                lost(error)

    async def _again(self, id: str) -> None:
        await self._ready()
        run = self._working[id]
        if run.tool in self._box.repeatable:
            await self._work(run)
        else:
            await self._end(run, "unknown", UNKNOWN)

    # Starting and looking

    async def start(self, run: Run) -> Run:
        """Start a run, or find the one that an earlier life started here. ToolError where there may be no more; Left
        where the store fails and this life ends with it."""
        if (known := await self.find(run.id)) is not None:
            return known
        most = self._settings().limits.max_runs
        if len(self._working) >= most:
            raise ToolError(f"{len(self._working)} background runs are at work (limits.max_runs); wait for one to end")
        run = msgspec.structs.replace(run, started=self._clock(), updated=self._clock())
        self._working[run.id] = run  # its place is taken while it is written down
        try:
            row = await self._write(
                run.context, [Save(KIND, run.id, msgspec.json.encode(run)), Save(WORKING, run.id, b"{}")]
            )
        finally:
            del self._working[run.id]
        if row is None:
            raise Left("the store failed while a run was started")
        self._events.emit("run.start", run.context, run.turn, run=run.id, tool=run.tool)
        self._begin(run, row, self._work(run))
        return run

    async def find(self, id: str) -> Run | None:
        """A run, at work or not. One that an earlier life left, and that a store which cannot list has not told of,
        goes on now."""
        if (held := self._working.get(id)) is not None:
            return held
        row = await self._records.get(KIND, id)
        if row is None:
            return None
        run = msgspec.json.decode(row.state, type=Run)
        if not run.ended and id not in self._working:
            self._begin(run, row, self._again(id))
        return run

    def of_context(self, context: str) -> list[Run]:
        """The runs of a context that are at work."""
        return [run for run in self._working.values() if run.context == context]

    async def until_ended(self, id: str) -> Run:
        """A run once it has ended."""
        while (run := await self.find(id)) is not None and not run.ended:
            await self._ends.next(id)
        if run is None:
            raise LookupError(f"there is no run {id!r}")
        return run

    @property
    def is_idle(self) -> bool:
        """Whether none is at work."""
        return not self._jobs

    async def until_idle(self) -> None:
        """Wait until none is at work."""
        while self._jobs:
            await asyncio.wait(set(self._jobs.values()))

    # Ending

    async def report(self, run: Run, state: str, content: Any) -> Run:
        """How a run ended, told from outside: its own call is given up."""
        await self._give_up(run.id)
        return await self._end(run, state, result_text(content), content)

    async def cancel(self, run: Run, reason: str) -> Run:
        """End a run where it is."""
        await self._give_up(run.id)
        return await self._end(run, "canceled", f"{reason}: it is not known how far it came")

    def abandon(self, context: str) -> None:
        """The subagent of a conversation has ended: nobody reads what its runs bring."""
        for run in self.of_context(context):
            job = asyncio.create_task(self.cancel(run, "the subagent that started it has ended"))
            self._giving_up.add(job)
            job.add_done_callback(self._giving_up.discard)

    async def aclose(self) -> None:
        """End all where they are: the next life says what becomes of them."""
        await asyncio.gather(*self._giving_up, return_exceptions=True)
        for job in self._jobs.values():
            job.cancel()
        await asyncio.gather(*self._jobs.values(), return_exceptions=True)

    async def _give_up(self, id: str) -> None:
        job = self._jobs.pop(id, None)
        if job is not None and job is not asyncio.current_task():
            job.cancel()
            await asyncio.wait({job})

    def _begin(self, run: Run, row: Row, work: Coroutine[Any, Any, None]) -> None:
        self._working[run.id], self._rows[run.id] = run, row
        job = self._jobs[run.id] = asyncio.create_task(work, name=f"run {run.id}")
        job.add_done_callback(lambda done: self._over(run.id, done))

    def _over(self, id: str, job: asyncio.Task[None]) -> None:
        if self._jobs.get(id) is job:
            del self._jobs[id]
        if not job.cancelled() and (error := job.exception()) is not None:
            log.error("the run %s died", id, exc_info=error)

    async def _work(self, run: Run) -> None:
        left = run.seconds - (self._clock() - run.started) / 1000
        if left <= 0:
            await self._end(run, "failed", f"it did not end within {run.seconds:g} s")
            return
        try:
            held = await self._residents.open(run.context)
        except (LookupError, Corrupt, FormatError) as error:
            await self._end(run, "failed", f"its conversation cannot be used: {error}")
            return
        settings = self._settings()
        desk = RunDesk(self._records, self._memories.of(held), self._skills, settings, held, self._clock, self._ids)
        sender = Principal(run.principal, run.role)
        asked = Invocation(
            run.tool, run.arguments, run.id, run.key, run.context, run.turn, 0, 0, sender, desk
        )  # fmt: skip
        answer = await self._box.dispatch(asked, seconds=left)
        content = kept(answer)
        await self._end(run, "failed" if answer.is_error else "completed", result_text(content), content)

    async def _end(self, run: Run, state: str, text: str, content: Any = None) -> Run:
        """Write how a run ended, with a note to its conversation. One that has ended meanwhile stays as it ended."""
        if (held := self._working.get(run.id)) is None:
            return await self.find(run.id) or run
        if len(text) > MOST:
            text = content = f"{text[:MOST]}\n[cut here: {len(text) - MOST:,} characters are left out]"
        made = msgspec.structs.replace(
            held, state=state, ended=True, text=text, content=content, updated=self._clock()
        )  # fmt: skip
        # A subagent's own conversation does its parent's work and no other: no note begins a turn there.
        wakes = "run" in self._settings().agent.wake_on and not run.context.startswith(SUBAGENTS)
        writes: list[Write] = [
            Save(KIND, run.id, msgspec.json.encode(made), self._rows[run.id]),
            Remove(WORKING, run.id, ANY),
        ]
        if await self._write(run.context, writes, NoteMsg(made.note, run.id), wakes=wakes) is None:
            return held  # the next life finds out
        self._working.pop(run.id, None)
        self._rows.pop(run.id, None)
        self._events.emit("run.end", run.context, run.turn, run=run.id, state=made.state)
        self._ends.tell(run.id)
        self._crew.settle_bound(KIND, run.id)
        return made

    async def _write(
        self, context: str, writes: list[Write], note: NoteMsg | None = None, *, wakes: bool = False
    ) -> Row | None:
        """Write, whatever it takes, and return the run's row. None once this life goes down with the store."""
        first = writes[0]

        async def write() -> Row:
            try:
                if note is None:
                    return (await self._records.commit(writes))[0]
                item, rows = await self._inbox.accept_note(
                    context, note, ROOT_PRINCIPAL, wakes=wakes, extra=writes, always=True
                )
            except Conflict:
                # Stored by a commit that was taken for failed; the note that came with it is found by the next life.
                row = await self._records.get(KIND, first.id)
                if row is None or not isinstance(first, Save) or row.state != first.state:
                    raise
                return row
            self._crew.post(item)
            return next(row for row in rows if row.kind == KIND)

        return await persistently(write, self._crew, context)
