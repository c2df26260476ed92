"""What a subscriber of a task is sent: where it stands, each step, the answer, the end. Touches the daemon's feed.

Every frame has an id; who comes back with it (`Last-Event-ID`) is sent what came after, and nothing twice. What the
feed does not hold any more is made up for by the task as it is.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from a2a.types.a2a_pb2 import Task as WireTask
from a2a.types.a2a_pb2 import TaskArtifactUpdateEvent, TaskStatus, TaskStatusUpdateEvent

from agentd.runtime.daemon import Daemon
from agentd.runtime.events import Event, Resync
from agentd.runtime.inbox import Task
from agentd.runtime.waits import Wait

from .book import Book
from .wire import STATES, artifact_of, metadata_of, status_of, task_of

STEPS = frozenset({"turn.start", "inbox.replayed", "turn.round", "budget.wait", "gate.opened", "gate.closed"})
"""Events of a turn that a subscriber is told of."""
BACKLOG = 64
"""Steps that wait for a slow reader; older ones are left out, the end never."""
Sent: TypeAlias = "WireTask | TaskStatusUpdateEvent | TaskArtifactUpdateEvent"


class Place(NamedTuple):
    """Where in a stream a frame stands: the event it tells of, and which of its frames it is."""

    seq: int
    frame: int = 0


ARTIFACT, END = 1, 2
"""Frames of the event that ends a turn."""


@dataclass(eq=False)
class Steps:
    """What happens in a turn while somebody listens."""

    found: deque[Event]
    changed: asyncio.Event
    has_ended: bool = False

    def tell(self, event: Event) -> None:
        if event.name in STEPS:
            self.found.append(event)
            self.changed.set()

    def ended(self, job: asyncio.Future[Task]) -> None:
        if not job.cancelled():
            job.exception()  # a row that cannot be read is met again by the stream, when it tells of the end
            self.has_ended = True
            self.changed.set()


class Streams:
    """The streams of one server. `life` tells the frames of this life from those of others."""

    def __init__(self, daemon: Daemon, book: Book) -> None:
        self._daemon, self._book = daemon, book
        self.life = daemon.services.ids()
        self.closing = asyncio.Event()
        self._open: list[Steps] = []

    def close(self) -> None:
        """End all streams where they are; who comes back goes on in the next life."""
        self.closing.set()
        for steps in self._open:
            steps.changed.set()

    def id_of(self, place: Place) -> str:
        return f"{self.life}.{place.seq}.{place.frame}"

    def place_of(self, id: str | None) -> Place | None:
        """The place behind a frame's id; None for one of another life, or none at all."""
        life, _, rest = (id or "").rpartition(".")[0].rpartition(".")
        frame = (id or "").rpartition(".")[2]
        if life != self.life or not (rest.isdecimal() and frame.isdecimal() and len(rest) < 16 and len(frame) < 16):
            return None
        return Place(int(rest), int(frame))

    async def follow(
        self, task: Task, after: Place | None, length: int | None, *, past: bool = False
    ) -> AsyncIterator[tuple[Place, Sent]]:
        """A task from `after` on, to its end, or to a question that it asks. Without a place it begins with the task as
        it is. `past`: go on behind the question that it waits with now."""
        events = self._daemon.events
        with self._listening(task) as steps:
            known = None if after is None else events.since(after.seq)
            if after is None or known is None or isinstance(known, Resync) or after.seq == 0:
                # Read once more: what happened until somebody listened is in it.
                task = await self._daemon.services.inbox.task(task.id)
                last = Place(events.last)
                steps.found.clear()
                history = await self._book.history(task, length)
                question = self._daemon.question(task.id)
                yield last, task_of(task, self._book.state(task), history, question=question)
                if task.is_settled or (question is not None and not past):
                    return
            else:
                last = after
                missed = [event for event in known if event.turn == task.turn and event.name in STEPS]
                steps.found.extendleft(reversed([event for event in missed if event not in steps.found]))
            async for place, step in self._steps(steps, task, last):
                last = place
                yield place, step
                if isinstance(step, TaskStatusUpdateEvent) and step.status.state == STATES["input-required"]:
                    return
            if not steps.has_ended:
                return
            for place, frame in self._end(await self._daemon.services.inbox.task(task.id)):
                if place > last:
                    yield place, frame

    @contextmanager
    def _listening(self, task: Task) -> Iterator[Steps]:
        steps = Steps(deque(maxlen=BACKLOG), asyncio.Event())
        ended = asyncio.ensure_future(self._daemon.actors.wait(task.id))
        ended.add_done_callback(steps.ended)
        self._open.append(steps)
        try:
            with self._daemon.events.listening(task.turn, steps.tell):
                yield steps
        finally:
            ended.remove_done_callback(steps.ended)
            ended.cancel()
            self._open.remove(steps)

    async def _steps(self, steps: Steps, task: Task, last: Place) -> AsyncIterator[tuple[Place, Sent]]:
        """The steps of a turn, until it has ended or this life does."""
        while True:
            while steps.found:
                event = steps.found.popleft()
                if event.seq > last.seq:
                    yield Place(event.seq), step_of(task, event, self._daemon.question(task.id))
            if steps.has_ended or self.closing.is_set():
                return
            steps.changed.clear()
            await steps.changed.wait()

    def _end(self, task: Task) -> list[tuple[Place, Sent]]:
        """The answer, then the end, and nothing after it."""
        found = self._daemon.events.since(0)
        known = () if isinstance(found, Resync) else found
        # One that was refused has no turn that could have ended.
        seq = next((e.seq for e in known if e.turn == task.turn and e.name == "turn.end"), self._daemon.events.last)
        made: list[tuple[Place, Sent]] = []
        if (artifact := artifact_of(task)) is not None:
            update = TaskArtifactUpdateEvent(
                task_id=task.id, context_id=task.context, artifact=artifact, last_chunk=True
            )  # fmt: skip
            made.append((Place(seq, ARTIFACT), update))
        end = TaskStatusUpdateEvent(task_id=task.id, context_id=task.context, status=status_of(task, task.state))
        end.metadata.update(metadata_of(task))
        return [*made, (Place(seq, END), end)]


def step_of(task: Task, event: Event, question: Wait | None = None) -> TaskStatusUpdateEvent:
    """A step of a turn that goes on, or waits for the answer to `question`. When one is answered another may be open:
    subagents ask with the task that they work for."""
    if event.name in ("gate.opened", "gate.closed") and question is not None:
        status = status_of(task, "input-required", question)
    else:
        status = TaskStatus(state=STATES["working"])
    status.timestamp.FromMilliseconds(event.time)
    made = TaskStatusUpdateEvent(task_id=task.id, context_id=task.context, status=status)
    told = {"agentd/step": event.name}
    told |= {f"agentd/{key}": event.data[key] for key in ("round", "tokens") if key in event.data}
    made.metadata.update(told)
    return made
