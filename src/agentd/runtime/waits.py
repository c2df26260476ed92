"""What turns wait for without a slot: a person's answer, a point in time, other work. Each is a row that is durable
before anybody waits, so that the next life goes on waiting for the same thing, asks nobody twice and wakes once.
Touches the records that are handed in, a clock and a sleep.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence, Set
from typing import Any, Literal, TypeVar

import msgspec

from agentd.records import ANY, Records, Remove, Row, Save, Write
from agentkit.core.contracts.errors import Conflict, Corrupt, FormatError

from .events import Events
from .tools.base import EndsTurn
from .waiting import ended

T = TypeVar("T")
KIND = "wait"
PEOPLE = frozenset({"question", "approval"})
"""Kinds of waits that a person ends."""


class Left(EndsTurn):
    """The instance goes down while a turn waits without a slot: it is left as it is, and the next life waits on."""


class NotOpen(LookupError):
    """There is no such question, or it has its answer."""


class Wait(msgspec.Struct, frozen=True, omit_defaults=True):
    """One wait of a turn. `id`: the place of its call in the turn. `owner`: whose question it is, who may answer it
    beside operators. `task`: the one that asks it; a subagent asks with the task at the top, `above` are the turns that
    wait for the subagent, the top one last, and `top` is its conversation. `until`: when it is over by itself;
    `closed`: when it ended, `how`: answered, over or ended (nobody asks any more). Times in ms."""

    id: str
    kind: Literal["question", "approval", "timer", "work"]
    context: str
    turn: str
    task: str | None = None
    owner: str = ""
    above: tuple[str, ...] = ()
    top: str = ""
    opened: int = 0
    until: int | None = None
    question: str = ""
    options: tuple[str, ...] = ()
    schema: dict[str, Any] | None = None
    asked_by: str = ""
    closed: int | None = None
    how: str = ""
    answer: Any = None
    by: str = ""

    @property
    def is_open(self) -> bool:
        return self.closed is None

    @property
    def turns(self) -> tuple[str, ...]:
        """The turns that go on when it ends."""
        return (self.turn, *self.above)

    @property
    def told_in(self) -> str:
        """The conversation whose task asks it."""
        return self.top or self.context

    def tell(self, events: Events, name: str, **data: Any) -> None:
        """Emit an event about it, in the turn whose task asks it."""
        events.emit(name, self.told_in, self.turns[-1], gate=self.id, **data)


class Waits:
    """The waits of the turns of one instance. `sleep` in seconds, `clock` in ms.

    `can_ask`: whether there is anybody who could answer a question in this life.
    """

    def __init__(
        self, records: Records, *, clock: Callable[[], int], sleep: Callable[[float], Awaitable[None]],
        can_ask: bool = False,
    ) -> None:  # fmt: skip
        self._records, self._clock, self._sleep = records, clock, sleep
        self.can_ask = can_ask
        self._rows: dict[str, Row] = {}
        self._held: dict[str, Wait] = {}
        self._by_turn: dict[str, dict[str, None]] = {}
        self._changed: dict[str, list[asyncio.Future[None]]] = {}
        self._closing = asyncio.Event()

    async def load(self, turns: Set[str], lost: Callable[[Exception], None]) -> list[Wait]:
        """What an earlier life waited for. Waits of turns that are not among `turns`, those still to be finished, are
        taken away and returned: nobody asks any more. `lost` is told of rows that cannot be read."""
        if not self._records.abilities.list:
            return []  # each is read when its call is made again
        gone: list[Wait] = []
        for id in await self._records.ids(KIND):
            try:
                found = await self.find(id)
            except (Corrupt, FormatError, msgspec.DecodeError) as error:
                lost(error)
                continue
            if found is not None and turns.isdisjoint(found.turns):
                gone.append(found)
        if gone:
            await self._records.commit([Remove(KIND, wait.id, ANY) for wait in gone])
            for wait in gone:
                self._forget(wait)
        return [wait for wait in gone if wait.is_open]

    # Looking

    async def find(self, id: str) -> Wait | None:
        """A wait, open or closed."""
        if (held := self._held.get(id)) is not None:
            return held
        row = await self._records.get(KIND, id)
        if row is None:
            return None
        self._take(row)
        return self._held[id]

    def asked(self, task: str) -> Wait | None:
        """The question that a task waits with; None where it waits for no person."""
        return next((wait for wait in self.questions if wait.task == task), None)

    @property
    def questions(self) -> list[Wait]:
        """All that is asked of people, the oldest first."""
        found = [wait for wait in self._held.values() if wait.kind in PEOPLE and wait.is_open]
        return sorted(found, key=lambda wait: (wait.opened, wait.id))

    def is_known(self, id: str) -> bool:
        """Whether an earlier life has left this wait, or this one has begun it."""
        return id in self._held

    def questions_of(self, turn: str, place: str) -> list[Wait]:
        """What a call still asks of people, by its turn and its place in it."""
        mine = (self._held[id] for id in self._by_turn.get(turn, ()) if id == place or id.startswith(f"{place}:"))
        return [wait for wait in mine if wait.is_open and wait.kind in PEOPLE]

    def waited(self, turn: str) -> float:
        """Seconds that a turn and its subagents have waited so far for people and times, which no limit of its time
        counts; other work is its own."""
        mine = (self._held[id] for id in self._by_turn.get(turn, ()))
        waits = sorted((wait for wait in mine if wait.kind != "work"), key=lambda wait: wait.opened)
        now, total, until = self._clock(), 0, 0
        for wait in waits:  # some go on at the same time
            closed = now if wait.closed is None else wait.closed
            total += max(closed - max(wait.opened, until), 0)
            until = max(until, closed)
        return total / 1000

    # Opening and closing

    @staticmethod
    def opening(wait: Wait) -> Save:
        """What stores a new wait; `opened` once it is written."""
        return Save(KIND, wait.id, msgspec.json.encode(wait))

    def opened(self, rows: Iterable[Row]) -> None:
        """These rows are committed; those of other kinds are nothing to this."""
        for row in rows:
            if row.kind == KIND:
                self._take(row)

    async def close(
        self, wait: Wait, how: str, answer: Any = None, *, by: str = "", extra: Sequence[Write] = ()
    ) -> Wait:
        """End a wait, durably, together with `extra`. NotOpen where it has ended before."""
        held, row = self._held.get(wait.id), self._rows.get(wait.id)
        if held is None or row is None or not held.is_open:
            raise NotOpen("the question was answered or given up meanwhile")
        made = msgspec.structs.replace(held, closed=self._clock(), how=how, answer=answer, by=by)
        try:
            rows = await self._records.commit([Save(KIND, wait.id, msgspec.json.encode(made), row), *extra])
        except Conflict as conflict:
            if conflict.key != f"{KIND}/{wait.id}":
                raise
            raise NotOpen("the question was answered or given up meanwhile") from conflict
        if wait.id in self._held:  # else its turn has ended meanwhile
            self._take(rows[0])
        return made

    async def until_closed(self, wait: Wait) -> Wait:
        """The wait once it has ended; one whose time comes ends by itself."""
        while True:
            held = self._held.get(wait.id)
            if held is None or not held.is_open:
                return held or wait
            left = None if held.until is None else (held.until - self._clock()) / 1000
            if left is not None and left <= 0:
                try:
                    return await self.close(held, "over")
                except NotOpen:  # an answer came in the same moment
                    continue
            await self._change(wait.id, left)

    async def until_asked(self, task: str) -> Wait:
        """The next question of a task."""
        while (found := self.asked(task)) is None:
            await self._change(f"task {task}", None)
        return found

    async def _change(self, what: str, seconds: float | None) -> None:
        """Wait until something of `what` changes, or the time is over."""
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._changed.setdefault(what, []).append(waiting)
        timer = None if seconds is None else asyncio.ensure_future(self._sleep(seconds))
        try:
            await asyncio.wait([waiting] if timer is None else [waiting, timer], return_when=asyncio.FIRST_COMPLETED)
        finally:
            if timer is not None:
                timer.cancel()
            left = self._changed[what]
            left.remove(waiting)
            if not left:
                del self._changed[what]

    # The end of a turn

    def finish(self, turn: str) -> list[Write]:
        """What ends all waits of a turn; `finished` once it is written. They are taken away, but those of a subagent
        stay until the turn at the top is over: what they took is no time of the turns above it."""
        writes: list[Write] = []
        for wait in self._ending(turn):
            if wait.turns[-1] == turn:
                writes.append(Remove(KIND, wait.id, ANY))
            elif wait.is_open:
                writes.append(Save(KIND, wait.id, msgspec.json.encode(self._ended(wait)), ANY))
        return writes

    def finished(self, turn: str, rows: Iterable[Row]) -> list[Wait]:
        """The waits of a turn have ended. Returns those that nobody had ended."""
        mine = self._ending(turn)
        for wait in mine:
            if wait.turns[-1] == turn:
                self._forget(wait)
        self.opened(rows)
        return [wait for wait in mine if wait.is_open]

    def _ending(self, turn: str) -> list[Wait]:
        """Waits that a turn began, and those that its subagents left it."""
        mine = [self._held[id] for id in self._by_turn.get(turn, ())]
        return [wait for wait in mine if turn in (wait.turn, wait.turns[-1])]

    def _ended(self, wait: Wait) -> Wait:
        return msgspec.structs.replace(wait, closed=self._clock(), how="ended")

    # Going down

    @property
    def is_leaving(self) -> bool:
        return self._closing.is_set()

    def leave(self) -> None:
        """The instance goes down: turns that wait are left to the next life, now and from now on."""
        self._closing.set()

    async def unless_leaving(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """What `work` comes to, given up with Left when the instance goes down."""
        job = asyncio.ensure_future(work())
        leaving = asyncio.ensure_future(self._closing.wait())
        try:
            await asyncio.wait([job, leaving], return_when=asyncio.FIRST_COMPLETED)
            if not job.done():
                raise Left("the instance goes down; the next life goes on waiting")
            return job.result()
        finally:
            leaving.cancel()
            if job.cancel():
                await ended(job)

    # What is known

    def _take(self, row: Row) -> None:
        wait = msgspec.json.decode(row.state, type=Wait)
        self._rows[row.id], self._held[row.id] = row, wait
        for turn in wait.turns:
            self._by_turn.setdefault(turn, {})[row.id] = None
        self._tell(wait)

    def _forget(self, wait: Wait) -> None:
        self._rows.pop(wait.id, None)
        self._held.pop(wait.id, None)
        for turn in wait.turns:
            mine = self._by_turn.get(turn, {})
            mine.pop(wait.id, None)
            if not mine:
                self._by_turn.pop(turn, None)
        self._tell(wait)

    def _tell(self, wait: Wait) -> None:
        for what in (wait.id, f"task {wait.task}"):
            for waiting in self._changed.get(what, ()):
                if not waiting.done():
                    waiting.set_result(None)
