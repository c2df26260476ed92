"""Triggers: a message to a conversation at every tick of a grid of time. Touches the inbox, the records, a clock.

A tick is a number: milliseconds since the epoch by the length of the interval, so every life and every clock counts the
same ones. The last one that was worked on is committed together with its message. Ticks that nobody was there for, and
those that come while the work of the one before is not done, are one tick: the latest.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from agentd.config import Settings
from agentd.config.thinking import Trigger
from agentd.context.record import ROOT, TextPart
from agentd.records import Records, Row, Save
from agentkit.core.contracts.errors import Corrupt, FormatError, StoreError

from .events import Events
from .inbox import Busy, Inbox, Item, Task
from .kill_points import KillPoints
from .principals import OPERATOR, ROOT_PRINCIPAL, sender_of
from .residents import Residents

log = logging.getLogger("agentd")
KIND = "trigger"
LOOK, RETRY = 60.0, 30.0
"""Seconds until the clock is looked at again, since it may be set, or the machine have slept; and until a tick is tried
again that could not be worked on. At most one interval."""


class Last(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a trigger did last. `every` in ms; `tick` by it; `task`: its piece of work."""

    every: int
    tick: int
    task: str = ""


class Triggers:
    """The triggers of one instance. `clock` in ms, `sleep` in seconds; `require_room` raises while the store may
    take in no new work; `serve` says who works."""

    def __init__(
        self,
        records: Records,
        inbox: Inbox,
        residents: Residents,
        events: Events,
        kills: KillPoints,
        *,
        clock: Callable[[], int],
        sleep: Callable[[float], Awaitable[None]],
        settings: Callable[[], Settings],
        require_room: Callable[[], None],
    ) -> None:
        self._records, self._inbox, self._residents = records, inbox, residents
        self._events, self._kills = events, kills
        self._clock, self._sleep, self._settings, self._require_room = clock, sleep, settings, require_room
        self._post: Callable[[Item], None] = lambda item: None
        self._jobs: dict[str, tuple[Trigger, asyncio.Task[None]]] = {}
        self._last: dict[str, Last] = {}

    def serve(self, post: Callable[[Item], None]) -> None:
        """`post` hands an item to its context."""
        self._post = post

    def update(self, triggers: Sequence[Trigger]) -> None:
        """Go by these from now on; those that are as they were go on as they are."""
        wanted = {one.name: one for one in triggers}
        for name, (trigger, job) in list(self._jobs.items()):
            if wanted.get(name) != trigger:
                job.cancel()
                del self._jobs[name]
                self._last.pop(name, None)
        for name, trigger in wanted.items():
            if name not in self._jobs:
                job = asyncio.create_task(self._run(trigger), name=f"trigger {name}")
                self._jobs[name] = trigger, job

    def stop(self) -> None:
        """No more ticks."""
        for _, job in self._jobs.values():
            job.cancel()
        self._jobs.clear()

    def status(self) -> list[dict[str, Any]]:
        """Each trigger, its last tick and its next one, in ms."""
        told = []
        for name, (trigger, _) in sorted(self._jobs.items()):
            every, last = _ms(trigger), self._last.get(name)
            told.append(
                {
                    "name": name,
                    "context": trigger.context,
                    "last": None if last is None or not last.task else last.tick * every,
                    "next": (self._clock() // every + 1) * every,
                }
            )
        return told

    async def _run(self, trigger: Trigger) -> None:
        every = _ms(trigger)
        while True:
            late = False
            try:
                last = self._last.get(trigger.name)
                if last is None or self._clock() // every > last.tick:
                    await self._look(trigger, every)
            except (StoreError, OSError, Busy, Corrupt, FormatError) as error:
                log.warning("the trigger %s is late: %s", trigger.name, error)
                late = True
            except Exception:  # of a fault of ours the others are not to suffer, nor the ticks to come
                log.exception("the trigger %s failed", trigger.name)
                late = True
            wait = (every - self._clock() % every) / 1000
            await self._sleep(max(min(wait, RETRY if late else LOOK), 0.001))

    async def _look(self, trigger: Trigger, every: int) -> None:
        """Work on the tick that it is, unless it was worked on."""
        tick, row = self._clock() // every, await self._records.get(KIND, trigger.name)
        last = None if row is None else msgspec.json.decode(row.state, type=Last)
        if last is None or last.every != every:
            # Of a grid that is new nothing was missed: it begins with its next tick.
            await self._records.commit([Save(KIND, trigger.name, msgspec.json.encode(Last(every, tick)), row)])
            self._last[trigger.name] = Last(every, tick)
            return
        task = await self._task(last.task)
        if task is not None and (item := await self._inbox.found_again(task)) is not None:
            self._post(item)  # its commit was taken for failed
        self._last[trigger.name] = last
        if tick <= last.tick:  # worked on, or the clock was set back
            return
        if task is not None and not task.is_settled:
            log.info("the trigger %s waits: the work of its last tick is not done", trigger.name)
            return
        await self._fire(trigger, every, tick, row)

    async def _task(self, id: str) -> Task | None:
        """None before the first tick, and for a task that was deleted since."""
        try:
            return await self._inbox.task(id) if id else None
        except LookupError:
            return None

    async def _fire(self, trigger: Trigger, every: int, tick: int, row: Row | None) -> None:
        self._require_room()
        held = await self._residents.open(trigger.context, create=True, owner=OPERATOR.id)
        # In the name of whoever the conversation belongs to, with no rights but theirs.
        is_root = trigger.context == ROOT
        sender = ROOT_PRINCIPAL if is_root else sender_of(self._settings(), held.state.principal)

        def saved(task: Task) -> Save:
            return Save(KIND, trigger.name, msgspec.json.encode(Last(every, tick, task.id)), row)

        self._kills.reach("inbox.before")
        made = await self._inbox.accept(
            trigger.context,
            [TextPart(trigger.prompt)],
            sender,
            message_id=f"trigger:{trigger.name}:{every}:{tick}",
            extra=saved,
        )
        self._kills.reach("inbox.after")
        self._last[trigger.name] = Last(every, tick, made.task.id)
        if made.item is not None:
            told = {"task": made.task.id, "trigger": trigger.name}
            self._events.emit("inbox.accepted", trigger.context, made.task.turn, **told)
            self._post(made.item)


def _ms(trigger: Trigger) -> int:
    return round(trigger.every.total_seconds() * 1000)
