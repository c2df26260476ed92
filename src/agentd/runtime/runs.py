"""Background runs: calls of tools that go on beside the turns. A run is a row before its call is made and when it has
ended, so that a crash leaves none working for ever: its call is made again with its key where that is as good as once,
and is told as unknown otherwise. Touches the inbox, the records and the tools.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NoReturn

import msgspec

from agentd.config import Settings
from agentd.context.messages import result_text
from agentd.context.record import NoteMsg
from agentd.context.resident import Context
from agentd.records import ANY, Records, Remove, Row, Save, Write
from agentkit.core.contracts.errors import StoreError

from .events import Events
from .inbox import Inbox, Item
from .memories import Memories
from .memory import MemoryStore
from .principals import ROOT_PRINCIPAL, Principal, Role
from .residents import Residents
from .skills import SkillLibrary
from .tools.base import Answer, Invocation, ToolError
from .tools.box import ToolBox

log = logging.getLogger("agentd")
KIND, WORKING = "run", "running"
"""Kinds of rows: of every run, and of those that have not ended."""
MOST = 262_144
"""Characters of a result that a run keeps; of a longer one the beginning, and that it was cut is said."""
NOTE_SHOWN = 2_000
"""Characters of it that the note has; `run.status` has all that is kept."""
RETRY = 1.0
"""Seconds between two tries to write down how a run ended while the store fails."""


class Run(msgspec.Struct, frozen=True, omit_defaults=True):
    """One run. `id`: the place of the call that started it; `key`: the idempotency key of its own call. `state`:
    working, completed, failed, canceled or unknown; `ended`, `text`: how it ended, in words; `content`: its result.
    Times in ms, `seconds`: how long it may take."""

    id: str
    context: str
    turn: str
    tool: str
    arguments: dict[str, Any]
    key: str
    principal: str
    role: Role
    seconds: float
    state: str = "working"
    ended: bool = False
    text: str = ""
    content: Any = None
    started: int = 0
    updated: int = 0

    @property
    def told(self) -> dict[str, Any]:
        """What the model is told of it."""
        told: dict[str, Any] = {"id": self.id, "state": self.state}
        if self.ended:
            told["result"] = self.content if self.state == "completed" else self.text
        return told


class RunDesk:
    """What a tool sees that runs beside the turns: it can ask nobody, wait for nothing, and change no conversation."""

    def __init__(self, records: Records, memory: MemoryStore, skills: SkillLibrary, settings: Settings, held: Context,
                 clock: Callable[[], int], ids: Callable[[], str]) -> None:  # fmt: skip
        self.records, self.memory, self.skills, self.settings = records, memory, skills, settings
        self.context, self._clock, self.new_id = held, clock, ids
        self.window = held.state.model_window or 0
        self.waited = 0.0

    @property
    def now(self) -> int:
        return self._clock()

    def status(self) -> dict[str, Any]:
        return {"instance": {"name": self.settings.agent.name}}

    async def outcome(self, kind: str, id: str) -> tuple[bool, str] | None:
        return None

    async def compact(self, target_tokens: int | None = None, keep_last: int | None = None) -> NoReturn:
        self._refuse()

    async def ask(
        self, call: Invocation, question: str, *, options: Sequence[str] = (), schema: Mapping[str, Any] | None = None,
        seconds: float | None = None, part: str = "",
    ) -> NoReturn:  # fmt: skip
        self._refuse()

    async def sleep(self, call: Invocation, until: int) -> NoReturn:
        self._refuse()

    async def work(self, op: str, call: Invocation, given: Mapping[str, Any]) -> NoReturn:
        self._refuse()

    async def think(
        self, prompt: str, schema: Mapping[str, Any] | None, reads: Sequence[str], skills: Sequence[str]
    ) -> NoReturn:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise ToolError("a background run does only what its own tool does")


class Runs:
    """The runs of one instance. `clock` in ms, `sleep` in seconds."""

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
        sleep: Callable[[float], Awaitable[None]],
        ids: Callable[[], str],
        settings: Callable[[], Settings],
    ) -> None:
        self._records, self._inbox, self._residents, self._events = records, inbox, residents, events
        self._box, self._memories, self._skills = box, memories, skills
        self._clock, self._sleep, self._ids, self._settings = clock, sleep, ids, settings
        self._post: Callable[[Item], None] = lambda item: None
        self._settle: Callable[[str, str], None] = lambda kind, id: None
        self._rows: dict[str, tuple[Row, Row]] = {}
        self._working: dict[str, Run] = {}
        self._jobs: dict[str, asyncio.Task[None]] = {}
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}

    def serve(self, post: Callable[[Item], None], settle: Callable[[str, str], None]) -> None:
        """`post` hands a note to its context; `settle` brings plans up to date."""
        self._post, self._settle = post, settle

    async def load(self, ready: Callable[[], Awaitable[None]], lost: Callable[[Exception], None]) -> None:
        """Go on with what an earlier life left, once the tools are there (`ready`)."""
        if not self._records.abilities.list:
            return
        for id in await self._records.ids(WORKING):
            row, mark = await self._records.get(KIND, id), await self._records.get(WORKING, id)
            try:
                if row is not None and mark is not None:
                    self._begin(msgspec.json.decode(row.state, type=Run), row, mark, self._again(id, ready))
            except msgspec.DecodeError as error:
                lost(error)

    async def _again(self, id: str, ready: Callable[[], Awaitable[None]]) -> None:
        await ready()
        run = self._working[id]
        if run.tool in self._box.repeatable:
            await self._work(run)
        else:
            text = (
                "the process ended in the middle of it: it is not known whether it took effect, and it was not repeated"
            )
            await self._end(run, "unknown", text)

    # Starting and looking

    def refusal(self) -> str | None:
        """Why no more may be started; None where one may."""
        most = self._settings().limits.max_runs
        if len(self._working) >= most:
            return f"{len(self._working)} background runs are at work (limits.max_runs); wait for one to end"
        return None

    async def start(self, run: Run) -> Run:
        """Start a run, or find the one that an earlier life started here."""
        if (known := await self.find(run.id)) is not None:
            return known
        run = msgspec.structs.replace(run, started=self._clock(), updated=self._clock())
        rows = await self._records.commit(
            [Save(KIND, run.id, msgspec.json.encode(run)), Save(WORKING, run.id, b"{}")]
        )  # fmt: skip
        self._events.emit("run.start", run.context, run.turn, run=run.id, tool=run.tool)
        self._begin(run, rows[0], rows[1], self._work(run))
        return run

    async def find(self, id: str) -> Run | None:
        """A run, at work or not."""
        if (held := self._working.get(id)) is not None:
            return held
        row = await self._records.get(KIND, id)
        return None if row is None else msgspec.json.decode(row.state, type=Run)

    def of_context(self, context: str) -> list[Run]:
        """The runs of a context that are at work."""
        return [run for run in self._working.values() if run.context == context]

    async def until_ended(self, id: str) -> Run:
        """A run once it has ended."""
        while (run := await self.find(id)) is not None and not run.ended:
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(id, []).append(waiting)
            try:
                await waiting
            finally:
                left = self._waiting[id]
                left.remove(waiting)
                if not left:
                    del self._waiting[id]
        if run is None:
            raise LookupError(f"there is no run {id!r}")
        return run

    # Ending

    async def report(self, run: Run, state: str, content: Any) -> Run:
        """How a run ended, told from outside: its own call is given up."""
        await self._give_up(run.id)
        return await self._end(run, state, result_text(content), content)

    async def cancel(self, run: Run, reason: str) -> Run:
        """End a run where it is."""
        await self._give_up(run.id)
        return await self._end(run, "canceled", f"{reason}: it is not known how far it came")

    async def aclose(self) -> None:
        """End all where they are: the next life says what becomes of them."""
        for job in self._jobs.values():
            job.cancel()
        await asyncio.gather(*self._jobs.values(), return_exceptions=True)

    async def _give_up(self, id: str) -> None:
        job = self._jobs.pop(id, None)
        if job is not None and job is not asyncio.current_task():
            job.cancel()
            await asyncio.wait({job})

    def _begin(self, run: Run, row: Row, mark: Row, work: Any) -> None:
        self._working[run.id], self._rows[run.id] = run, (row, mark)
        job = self._jobs[run.id] = asyncio.create_task(work, name=f"run {run.id}")
        job.add_done_callback(lambda done: self._over(run.id, done))

    def _over(self, id: str, job: asyncio.Task[None]) -> None:
        if self._jobs.get(id) is job:
            del self._jobs[id]
        if not job.cancelled() and (error := job.exception()) is not None:
            log.error("the run %s died", id, exc_info=error)

    async def _work(self, run: Run) -> None:
        held = await self._residents.open(run.context)
        settings = self._settings()
        desk = RunDesk(self._records, self._memories.of(held), self._skills, settings, held, self._clock, self._ids)
        sender = Principal(run.principal, run.role)
        asked = Invocation(
            run.tool, run.arguments, run.id, run.key, run.context, run.turn, 0, 0, sender, desk
        )  # fmt: skip
        answer: Answer = await self._box.dispatch(asked, seconds=run.seconds)
        await self._end(run, "failed" if answer.is_error else "completed", result_text(answer.content), answer.content)

    async def _end(self, run: Run, state: str, text: str, content: Any = None) -> Run:
        if len(text) > MOST:
            text = content = f"{text[:MOST]}\n[cut here: {len(text) - MOST:,} characters are left out]"
        made = msgspec.structs.replace(
            run, state=state, ended=True, text=text, content=content, updated=self._clock()
        )  # fmt: skip
        while run.id in self._working:
            try:
                await self._write_end(made)
            except (StoreError, OSError) as error:
                log.warning("the end of a run could not be written down yet: %s", error)
                await self._sleep(RETRY)
        return made

    async def _write_end(self, run: Run) -> None:
        row, _ = self._rows[run.id]
        shown = run.text if len(run.text) <= NOTE_SHOWN else f"{run.text[:NOTE_SHOWN]}…"
        note = NoteMsg(f"Run {run.id} of {run.tool} has ended as {run.state}: {shown}", run.id)
        writes: list[Write] = [Save(KIND, run.id, msgspec.json.encode(run), row), Remove(WORKING, run.id, ANY)]
        wakes = "run" in self._settings().agent.wake_on
        item, _ = await self._inbox.accept_note(run.context, note, ROOT_PRINCIPAL, wakes=wakes, extra=writes)
        self._working.pop(run.id, None)
        self._rows.pop(run.id, None)
        self._post(item)
        self._events.emit("run.end", run.context, run.turn, run=run.id, state=run.state)
        for waiting in self._waiting.get(run.id, ()):
            if not waiting.done():
                waiting.set_result(None)
        self._settle(KIND, run.id)
