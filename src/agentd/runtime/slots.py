"""Slots for turns: a counting lock whose size may change while it is in use. Who waited longest is served first."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable


class Slots:
    """At most `size()` holders. One that was taken before the size went down is kept until it is given back."""

    def __init__(self, size: Callable[[], int]) -> None:
        self._size = size
        self._held = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def held(self) -> int:
        return self._held

    @property
    def waiting(self) -> int:
        return sum(1 for one in self._waiting if not one.done())

    async def acquire(self) -> None:
        """Wait for a slot, and take it."""
        if self._held < self._size() and not self.waiting:
            self._held += 1
            return
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(mine)
        try:
            await mine
        except asyncio.CancelledError:
            if mine.done() and not mine.cancelled():
                self.release()  # it was handed over in the same moment
            raise

    def release(self) -> None:
        """Give a slot back."""
        self._held -= 1
        self.look()

    def look(self) -> None:
        """Serve who can be served: after a release, and when the size has changed."""
        while self._waiting and self._held < self._size():
            first = self._waiting.popleft()
            if not first.done():
                self._held += 1
                first.set_result(None)
