"""Single flight: of all who ask for one key at once, one produces the value and the others wait for it.

Works across event loops and threads: nothing here is bound to the loop that made it.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from .rules import Body


class Flights:
    """The keys of one store that are being produced in this process."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        self._pid = os.getpid()
        self._guard = threading.Lock()  # guards `_open` and the waiters of each flight
        self._open: dict[str, _Flight] = {}

    def __len__(self) -> int:
        return len(self._open)

    async def run(
        self,
        key: str,
        read: Callable[[], Awaitable[Body | None]],
        produce: Callable[[], Any | Awaitable[Any]],
        write: Callable[[Any], Awaitable[Body]],
    ) -> Body:
        """The body that `read` finds, or the one that `write` stored of what `produce` gave.

        One caller a key does this at a time, and those who came meanwhile get its outcome. When it fails or is
        cancelled, only that caller hears of it, and the next one tries for itself.
        """
        if self._pid != os.getpid():  # a forked child: the flights of its parent never land here
            self._start()
        while True:
            with self._guard:
                flight = self._open.get(key)
                waiter = None
                if flight is None or flight.loop.is_closed():  # with its loop, its leader has ended too
                    flight = self._open[key] = _Flight(asyncio.current_task())
                elif flight.leader is asyncio.current_task():
                    raise RuntimeError(f"the producer of {key!r} asks for {key!r} itself, and would wait for ever")
                else:
                    waiter = flight.join()
            if waiter is not None:
                landed = await waiter
                if landed is not None:
                    return landed
                continue
            body: Body | None = None
            try:
                body = await read()
                if body is None:
                    value = produce()
                    body = await write(await value if inspect.isawaitable(value) else value)
                return body
            finally:
                with self._guard:
                    if self._open.get(key) is flight:
                        del self._open[key]
                flight.land(body)


class _Flight:
    def __init__(self, leader: asyncio.Task[Any] | None) -> None:
        self.leader = leader
        self.loop = asyncio.get_running_loop()
        self.waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[Body | None]]] = []

    def join(self) -> asyncio.Future[Body | None]:
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[Body | None] = loop.create_future()
        self.waiting.append((loop, waiter))
        return waiter

    def land(self, body: Body | None) -> None:
        for loop, waiter in self.waiting:
            try:
                loop.call_soon_threadsafe(_settle, waiter, body)
            except RuntimeError:  # that loop is closed, and its tasks with it
                continue


def _settle(waiter: asyncio.Future[Body | None], body: Body | None) -> None:
    if not waiter.done():
        waiter.set_result(body)
