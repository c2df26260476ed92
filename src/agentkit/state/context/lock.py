"""The lock of a shared context. Touches the running event loop, nothing else."""

from __future__ import annotations

import asyncio
from typing import Any, Literal


class ContextLock(asyncio.Lock):
    """An `asyncio.Lock` that its holder cannot wait for: taking it again raises RuntimeError instead of hanging."""

    def __init__(self) -> None:
        super().__init__()
        self._holder: asyncio.Task[Any] | None = None

    async def acquire(self) -> Literal[True]:
        task = asyncio.current_task()
        if self._holder is not None and self._holder is task:
            raise RuntimeError("this task already holds the context's lock; call the inner function without taking it")
        await super().acquire()
        self._holder = task
        return True

    def release(self) -> None:
        self._holder = None
        super().release()


class LockSlot:
    """Keeps one lock per event loop: a lock that waited in one loop stays bound to it and fails in the next."""

    __slots__ = ("_lock", "_loop")

    def __init__(self) -> None:
        self._lock: ContextLock | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def current(self) -> ContextLock:
        try:
            loop: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        except RuntimeError:
            loop = None
        if self._lock is None or (loop is not None and self._loop is not None and loop is not self._loop):
            self._lock = ContextLock()
        if loop is not None:
            self._loop = loop
        return self._lock
