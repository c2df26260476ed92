"""The lock of a shared context. Touches the running event loop, nothing else."""

from __future__ import annotations

import asyncio
from typing import Any, Literal


class ContextLock(asyncio.Lock):
    """An `asyncio.Lock` that its holder cannot wait for: taking it again raises RuntimeError instead of hanging."""

    def __init__(self) -> None:
        super().__init__()
        self._holder: asyncio.Task[Any] | None = None
        self.taken_in: asyncio.AbstractEventLoop | None = None
        """The event loop in which it was last taken."""

    async def acquire(self) -> Literal[True]:
        task = asyncio.current_task()
        if self._holder is not None and self._holder is task:
            raise RuntimeError("this task already holds the context's lock; call the inner function without taking it")
        self.taken_in = asyncio.get_running_loop()
        await super().acquire()
        self._holder = task
        return True

    def release(self) -> None:
        self._holder = None
        super().release()


class LockSlot:
    """Keeps one lock per event loop: a lock that waited in one loop stays bound to it and fails in the next."""

    __slots__ = ("_by_loop", "_early")

    def __init__(self) -> None:
        self._by_loop: dict[asyncio.AbstractEventLoop, ContextLock] = {}
        self._early: ContextLock | None = None

    def current(self) -> ContextLock:
        """The running loop's lock. Outside of any loop one that the next loop to ask takes over."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self._early = self._early or ContextLock()
            return self._early
        lock = self._by_loop.get(loop)
        if lock is None:
            early, self._early = self._early, None
            lock = early if early is not None and early.taken_in in (None, loop) else ContextLock()
            self._by_loop = {old: its for old, its in self._by_loop.items() if not old.is_closed()}
            self._by_loop[loop] = lock
        return lock
