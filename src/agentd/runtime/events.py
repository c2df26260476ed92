"""What happens in a life of the daemon, as a feed: a closed vocabulary, a ring of the last events, and a way to wait
for one. Touches a clock that is handed in.

Events carry lengths, counts, ids and hashes; content is only in them where the operator asked for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

log = logging.getLogger("agentd")

NAMES = frozenset(
    {
        "restore.done", "restore.lost", "restore.sealed",
        "inbox.accepted", "inbox.duplicate", "inbox.replayed", "inbox.altered",
        "turn.start", "turn.round", "turn.end",
        "preflight.verdict", "preflight.failed",
        "context.compaction_started", "context.reduced", "context.declined", "context.breaker", "context.overflow",
        "plan.updated", "plan.settled",
        "skill.loaded", "skill.evicted", "skill.changed", "skill.unknown",
        "prompt.changed", "prompt.fallback",
        "cache.miss",
        "budget.wait", "budget.refused",
        "effect.started", "effect.completed", "effect.unknown",
        "gate.opened", "gate.closed",
        "subagent.start", "subagent.end",
        "run.start", "run.end",
        "store.error", "store.conflict", "store.fenced",
        "lifecycle.started", "lifecycle.reloaded", "lifecycle.paused", "lifecycle.resumed", "lifecycle.draining",
        "lifecycle.halted", "lifecycle.stopped",
    }
)  # fmt: skip
"""All names there are: a reader that knows them knows every event."""

_SERIOUS = {"restore.lost": logging.ERROR, "store.fenced": logging.ERROR, "lifecycle.halted": logging.ERROR,
            "store.error": logging.WARNING, "store.conflict": logging.WARNING, "context.overflow": logging.WARNING,
            "effect.unknown": logging.WARNING, "preflight.failed": logging.WARNING, "prompt.fallback": logging.WARNING,
            "context.breaker": logging.WARNING}  # fmt: skip


@dataclass(frozen=True)
class Event:
    """One thing that happened. `seq` counts from 1 in this life; `time` in ms since the epoch."""

    seq: int
    time: int
    name: str
    context: str | None = None
    turn: str | None = None
    data: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        told: dict[str, Any] = {"seq": self.seq, "time": self.time, "event": self.name}
        if self.context is not None:
            told["context"] = self.context
        if self.turn is not None:
            told["turn"] = self.turn
        return {**told, **self.data}


@dataclass(frozen=True)
class Resync:
    """The cursor names a place that the ring does not have (any more, or yet): begin at `cursor` and read the state."""

    cursor: int


class Events:
    """The feed of one life. `ring`: events that are kept; a reader goes on from the `seq` it saw last."""

    def __init__(self, clock: Callable[[], int], *, ring: int = 1_024) -> None:
        self._clock = clock
        self._ring: deque[Event] = deque(maxlen=ring)
        self._seq = 0
        self._waiting: set[asyncio.Future[None]] = set()
        self._listening: dict[str, list[Callable[[Event], None]]] = {}

    @property
    def last(self) -> int:
        """The newest event's `seq`, 0 before the first."""
        return self._seq

    def emit(self, name: str, context: str | None = None, turn: str | None = None, /, **data: Any) -> Event:
        """Add an event. ValueError for a name outside the vocabulary."""
        if name not in NAMES:
            raise ValueError(f"{name!r} is no event of this vocabulary")
        self._seq += 1
        event = Event(self._seq, self._clock(), name, context, turn, data)
        self._ring.append(event)
        level = _SERIOUS.get(name, logging.INFO)
        if log.isEnabledFor(level):
            log.log(level, name, extra={"event": event.to_dict()})
        for waiting in list(self._waiting):
            if not waiting.done():
                waiting.set_result(None)
        for tell in tuple(self._listening.get(turn or "", ())):
            tell(event)
        return event

    @contextmanager
    def listening(self, turn: str, tell: Callable[[Event], None]) -> Iterator[None]:
        """Have `tell` called with each event of one turn, as it happens: cheap however many listen to other turns."""
        self._listening.setdefault(turn, []).append(tell)
        try:
            yield
        finally:
            self._listening[turn].remove(tell)
            if not self._listening[turn]:
                del self._listening[turn]

    def since(self, cursor: int) -> list[Event] | Resync:
        """The events after `cursor`; 0 replays what the ring has. Resync for a cursor ahead of the feed or behind the
        ring."""
        oldest = self._ring[0].seq if self._ring else self._seq + 1
        if cursor < 0 or cursor > self._seq or (0 < cursor < oldest - 1):
            return Resync(self._seq)
        return [event for event in self._ring if event.seq > cursor]

    async def next(self, cursor: int) -> list[Event] | Resync:
        """`since`, waiting until there is something."""
        while not (found := self.since(cursor)):
            await self._changed()
        return found

    async def wait_event(self, name: str, *, after: int = 0, context: str | None = None, **fields: Any) -> Event:
        """The first event of that name after `after` with these fields: what tests use in place of sleeping."""
        while True:
            for event in self._ring:
                if event.seq <= after or event.name != name or (context is not None and event.context != context):
                    continue
                if all(event.data.get(key) == value for key, value in fields.items()):
                    return event
            await self._changed()

    async def _changed(self) -> None:
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(waiting)
        try:
            await waiting
        finally:
            self._waiting.discard(waiting)
