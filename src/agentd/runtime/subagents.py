"""Subagents: conversations of their own that work for a turn, with fewer tools and narrower limits than it has. Each is
a row that is committed together with its first message, under the place of the call that started it, so that no crash
starts one twice; its turns are turns like all others. Touches the inbox, the records and the actors.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec

from agentd.config import Settings
from agentd.context.record import NoteMsg, TextPart
from agentd.records import ANY, Records, Row, Save
from agentkit.core.contracts.errors import StoreError
from agentkit.core.contracts.jsontext import wire_json

from .checking import Checker
from .events import Events
from .inbox import Inbox, Item, Task
from .principals import ROOT_PRINCIPAL, Principal, Role
from .residents import SUBAGENTS, Residents

log = logging.getLogger("agentd")
KIND = "subagent"
NOTE_SHOWN = 2_000
"""Characters of a subagent's answer that a note holds; `subagent.status` has all of it."""
RETRY = 1.0
"""Seconds between two tries to write down how a subagent ended while the store fails."""


class Child(msgspec.Struct, frozen=True, omit_defaults=True):
    """One subagent. `id`: its handle, the place of the call that started it. `context`, `turn`: whose it is; `task`:
    its latest piece of work; `root`: the conversation at the top; `depth` counts from 1; `tools`: what it may use;
    `steps`, `tokens`, `seconds`: its limits; `spent`: tokens so far. `ended`, `state`, `text`: how it ended."""

    id: str
    context: str
    turn: str
    task: str
    root: str
    depth: int
    mode: Literal["sync", "async"]
    principal: str
    role: Role
    tools: tuple[str, ...]
    steps: int
    tokens: int
    seconds: float
    schema: dict[str, Any] | None = None
    state: str = "working"
    ended: bool = False
    text: str = ""
    output: Any = None
    spent: int = 0
    was_asked_again: bool = False
    started: int = 0
    updated: int = 0

    @property
    def own_context(self) -> str:
        return f"{SUBAGENTS}{self.id}"

    @property
    def told(self) -> dict[str, Any]:
        """What the model that started it is told."""
        told: dict[str, Any] = {"handle": self.id, "state": self.state}
        if self.ended:
            told["result"] = self.output if self.state == "completed" else self.text
        return told


class Crew(Protocol):
    """The actors, as far as subagents have to know them."""

    def post(self, item: Item) -> None: ...

    async def command(self, context: str, run: Callable[[Any], Awaitable[Any]]) -> Any: ...

    def cancel(self, task: str, reason: str) -> bool: ...

    def settle_bound(self, kind: str, id: str) -> None: ...


class Subagents:
    """The subagents of the turns in hand. `clock` in ms, `sleep` in seconds; `serve` says who works."""

    def __init__(
        self,
        records: Records,
        inbox: Inbox,
        residents: Residents,
        events: Events,
        *,
        clock: Callable[[], int],
        sleep: Callable[[float], Awaitable[None]],
        settings: Callable[[], Settings],
    ) -> None:
        self._records, self._inbox, self._residents, self._events = records, inbox, residents, events
        self._clock, self._sleep, self._settings = clock, sleep, settings
        self._crew: Crew
        self._held: dict[str, Child] = {}
        self._rows: dict[str, Row] = {}
        self._starts: deque[int] = deque()
        self._waiting: dict[str, list[asyncio.Future[Child]]] = {}
        self._jobs: set[asyncio.Task[None]] = set()
        self._over: set[str] = set()
        """Finished turns whose subagents are still to end."""

    def serve(self, crew: Crew) -> None:
        """The actors that do the work."""
        self._crew = crew

    # Looking

    async def load(self, turns: Collection[str]) -> None:
        """The subagents that unfinished turns of an earlier life have, and how those ended that ended without anybody
        having heard of it."""
        if not self._records.abilities.list:
            return
        for turn in turns:
            for id in await self._records.ids(KIND, prefix=f"{turn}:"):
                child = await self.find(id)
                if child is not None and not child.ended:
                    task = await self._inbox.task(child.task)
                    if task.is_settled:
                        await self._ended(child, task)

    async def find(self, id: str) -> Child | None:
        """A subagent by its handle."""
        if (held := self._held.get(id)) is not None:
            return held
        row = await self._records.get(KIND, id)
        return None if row is None else self._take(row)

    def of_context(self, context: str) -> Child | None:
        """The subagent whose conversation this is."""
        return self._held.get(context[len(SUBAGENTS) :]) if context.startswith(SUBAGENTS) else None

    def above(self, context: str) -> tuple[str, list[str]]:
        """The conversation at the top, and the turns that wait for those of this one, the top one last."""
        turns: list[str] = []
        while (child := self.of_context(context)) is not None:
            context = child.context
            turns.append(child.turn)
        return context, turns

    def of_turn(self, turn: str) -> list[Child]:
        """Those that a turn has started, in order."""
        return [child for child in self._held.values() if child.turn == turn]

    def spent(self, turn: str) -> int:
        """Tokens that the subagents of a turn have used, those below them included."""
        return sum(child.spent for child in self.of_turn(turn))

    # Starting

    def refusal(self, context: str, settings: Settings) -> str | None:
        """Why a conversation may not start one more; None where it may."""
        limits = settings.limits.subagents
        above = self.of_context(context)
        depth, root = (1, context) if above is None else (above.depth + 1, above.root)
        working = [child for child in self._held.values() if not child.ended]
        if depth > limits.depth:
            return f"subagents go {limits.depth} deep (limits.subagents.depth), and this is one of the deepest"
        mine = sum(1 for child in working if child.context == context)
        if mine >= limits.breadth:
            return f"{mine} subagents are at work here (limits.subagents.breadth); wait for one to end"
        all_ = sum(1 for child in working if child.root == root)
        if all_ >= limits.total:
            return f"{all_} subagents are at work in all (limits.subagents.total); wait for one to end"
        now, rate = self._clock(), limits.rate
        while self._starts and self._starts[0] <= now - rate.per.total_seconds() * 1000:
            self._starts.popleft()
        if len(self._starts) >= rate.count:
            return f"{rate.count} subagents were started just now (limits.subagents.rate); try again in a moment"
        return None

    async def start(self, child: Child, text: str, seed: Callable[[Any], Awaitable[None]]) -> Child:
        """Start one, or find the one that an earlier life started here. `seed` writes what its conversation begins
        with; `text` is its first message."""
        if (known := await self.find(child.id)) is not None:
            return known
        self._starts.append(self._clock())
        await self._residents.open(child.own_context, create=True, owner=child.principal or None)
        await self._crew.command(child.own_context, seed)
        above = self.of_context(child.context)
        child = msgspec.structs.replace(
            child,
            root=child.context if above is None else above.root,
            depth=1 if above is None else above.depth + 1,
            started=self._clock(),
        )
        return await self._said(child, text, f"subagent:{child.id}")

    async def say(self, child: Child, text: str, message_id: str) -> Child:
        """Send one a message; one that had ended works on."""
        return await self._said(msgspec.structs.replace(child, was_asked_again=False), text, message_id)

    async def _said(self, child: Child, text: str, message_id: str) -> Child:
        """A message to a subagent and its row, in one commit."""
        sender = Principal(child.principal, child.role)

        def row(task: Task) -> Save:
            made = msgspec.structs.replace(
                child, task=task.id, state="working", ended=False, text="", output=None, updated=self._clock()
            )
            return Save(KIND, child.id, msgspec.json.encode(made), self._rows.get(child.id))

        made = await self._inbox.accept(
            child.own_context, [TextPart(text)], sender, message_id=message_id, owner=ROOT_PRINCIPAL.id, extra=row
        )
        for found in made.rows:
            if found.kind == KIND:
                child = self._take(found)
        if made.item is not None:
            self._events.emit("subagent.start", child.context, child.turn, subagent=child.id, mode=child.mode)
            self._crew.post(made.item)
        return child

    def kill(self, child: Child, reason: str) -> None:
        """Have one end, and with it those that it has started."""
        if not child.ended:
            self._crew.cancel(child.task, reason)

    # Ending

    def settled(self, task: Task) -> None:
        """A task has ended; if it is a subagent's, whoever waits for it is told once that is durable."""
        child = next((one for one in self._held.values() if one.task == task.id and not one.ended), None)
        if child is not None:
            job = asyncio.create_task(self._ended(child, task))
            self._jobs.add(job)
            job.add_done_callback(self._jobs.discard)

    async def until_ended(self, id: str) -> Child:
        """A subagent once it has ended."""
        while True:
            child = await self.find(id)
            if child is None:
                raise LookupError(f"there is no subagent {id!r}")
            if child.ended:
                return child
            waiting: asyncio.Future[Child] = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(id, []).append(waiting)
            try:
                await waiting
            finally:
                left = self._waiting[id]
                left.remove(waiting)
                if not left:
                    del self._waiting[id]

    def finished(self, turn: str) -> None:
        """A turn is over: its subagents do not outlive it."""
        for child in self.of_turn(turn):
            self.kill(child, "the turn that it worked for has ended")
            if child.ended:
                self._forget(child)
            else:
                self._over.add(turn)

    async def aclose(self) -> None:
        """Let what is being written down be written."""
        await asyncio.gather(*self._jobs, return_exceptions=True)

    async def _ended(self, child: Child, task: Task) -> None:
        spent = child.spent + sum(int(task.usage.get(name) or 0) for name in ("input", "output"))
        spent += self.spent(task.turn)
        child = msgspec.structs.replace(child, spent=spent)
        value, fault = _fitting(child, task)
        if fault is not None and not child.was_asked_again:
            text = f"Your answer does not fit: {fault}. Answer once more, with JSON alone."
            again = msgspec.structs.replace(child, was_asked_again=True)
            await self._tried(lambda: self._said(again, text, f"subagent:{child.id}:again"))
            return
        is_well = task.state == "completed" and fault is None
        text = task.text if task.output is not None else task.reason
        made = msgspec.structs.replace(
            child,
            state="completed" if is_well else "failed" if task.state == "completed" else task.state,
            ended=True,
            text=f"its answer does not fit: {fault}" if fault is not None else text,
            output=value if is_well else None,
            updated=self._clock(),
        )
        await self._tried(lambda: self._write_end(made))

    async def _write_end(self, child: Child) -> None:
        save = Save(KIND, child.id, msgspec.json.encode(child), self._rows.get(child.id, ANY))
        if child.mode == "async" and child.turn not in self._over:
            shown = child.text if len(child.text) <= NOTE_SHOWN else f"{child.text[:NOTE_SHOWN]}…"
            note = NoteMsg(f"Subagent {child.id} has ended as {child.state}: {shown}", child.id)
            wakes = "subagent" in self._settings().agent.wake_on
            item, rows = await self._inbox.accept_note(
                child.context, note, ROOT_PRINCIPAL, wakes=wakes, extra=[save]
            )  # fmt: skip
            self._crew.post(item)
        else:
            rows = await self._records.commit([save])
        for row in rows:
            if row.kind == KIND:
                self._take(row)
        self._events.emit("subagent.end", child.context, child.turn, subagent=child.id, state=child.state)
        for waiting in self._waiting.get(child.id, ()):
            if not waiting.done():
                waiting.set_result(child)
        self._crew.settle_bound(KIND, child.id)
        if child.turn in self._over:
            self._forget(child)
            if not self.of_turn(child.turn):
                self._over.discard(child.turn)

    async def _tried(self, write: Callable[[], Awaitable[Any]]) -> None:
        """Write, again and again while the store fails: the next life would find it out, but this one waits for it."""
        while True:
            try:
                await write()
            except (StoreError, OSError) as error:
                log.warning("the end of a subagent could not be written down yet: %s", error)
                await self._sleep(RETRY)
            else:
                return

    def _take(self, row: Row) -> Child:
        child = msgspec.json.decode(row.state, type=Child)
        self._held[child.id], self._rows[child.id] = child, row
        return child

    def _forget(self, child: Child) -> None:
        self._held.pop(child.id, None)
        self._rows.pop(child.id, None)


def _fitting(child: Child, task: Task) -> tuple[Any, str | None]:
    """The answer as `output_schema` has it, and what is wrong with it."""
    if child.schema is None or task.state != "completed":
        return task.output, None
    value = task.output
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(_unfenced(value))
        except msgspec.DecodeError:
            value = task.output
    return value, Checker(child.schema, what="output_schema").fault(value, of="the answer")


def _unfenced(text: str) -> bytes:
    """JSON that a model has put into a code fence."""
    lines = text.strip().splitlines()
    if len(lines) > 2 and lines[0].startswith("```") and lines[-1].strip() == "```":
        lines = lines[1:-1]
    return "\n".join(lines).encode()


def first_message(
    instruction: str, schema: Mapping[str, Any] | None, skills: Sequence[str], prefix: str
) -> str:  # fmt: skip
    """What a subagent is told to do."""
    parts = [instruction]
    if skills:
        parts.append("Use " + ", ".join(f"{prefix}{name}" for name in skills) + ".")
    if schema is not None:
        parts.append(f"Answer with JSON alone, by this JSON Schema:\n{wire_json(dict(schema))}")
    return "\n\n".join(parts)


def narrowed(settings: Settings, child: Child) -> Settings:
    """The settings that a subagent's turns go by: its tools and limits, never wider than those of the instance."""
    run = settings.limits.run
    limits = run.model_copy(
        update={
            "steps": min(run.steps, child.steps),
            "tokens": min(run.tokens, child.tokens),
            "deadline": min(run.deadline, type(run.deadline)(seconds=child.seconds)),
        }
    )
    tools = settings.tools.model_copy(update={"grants": {**settings.tools.grants, child.role: child.tools}})
    return settings.model_copy(
        update={"limits": settings.limits.model_copy(update={"run": limits}), "tools": tools}
    )  # fmt: skip
