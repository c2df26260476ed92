"""One timer for all operations of a kind that are under way: a timer for each would cost more than it watches. Touches
the running event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from itertools import count
from typing import Any, TypeVar

T = TypeVar("T")


class Watched:
    """An operation under way. `asked`: cancellations of its task that were under way before it began."""

    __slots__ = ("asked", "deadline", "is_cancelled", "number", "task")

    def __init__(self, number: int, task: asyncio.Task[Any], deadline: float) -> None:
        self.number, self.task, self.deadline = number, task, deadline
        self.asked, self.is_cancelled = task.cancelling(), False


class Watch:
    """Cancels the task of an operation that takes longer than `timeout` seconds. `told`: what is said of it then."""

    def __init__(self, timeout: float, told: str) -> None:
        self.timeout, self.told = timeout, told
        self._numbers: Iterator[int] = count()
        self._open: dict[int, Watched] = {}  # in the order of their deadlines
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def within(self, call: Callable[[], Awaitable[T]]) -> T:
        """`call()`, or TimeoutError once it took too long."""
        watched = self._begin()
        try:
            return await call()
        except asyncio.CancelledError as error:
            if self._was_late(watched):
                raise TimeoutError(self.told) from error
            raise
        finally:
            self._end(watched)

    def _begin(self) -> Watched:
        """The running task is watched from now on, until `_end`."""
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        if task is None:
            raise RuntimeError("what is watched runs within a task")
        if loop is not self._loop:  # what an earlier loop left behind is over
            self._open, self._timer, self._loop = {}, None, loop
        made = Watched(next(self._numbers), task, loop.time() + self.timeout)
        self._open[made.number] = made
        if self._timer is None:
            self._timer = loop.call_at(made.deadline, self._look, loop)
        return made

    def _was_late(self, watched: Watched) -> bool:
        """Whether the cancellation that ended it was that of the watch alone; it is taken back then."""
        if not watched.is_cancelled:
            return False
        watched.is_cancelled = False
        return watched.task.uncancel() <= watched.asked

    def _end(self, watched: Watched) -> None:
        """It is over, however it ended."""
        self._open.pop(watched.number, None)
        if watched.is_cancelled:  # it came to its end all the same
            watched.is_cancelled = False
            watched.task.uncancel()

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        if loop is not self._loop:
            return
        self._timer, now = None, loop.time()
        for watched in [one for one in self._open.values() if one.deadline <= now]:
            del self._open[watched.number]
            watched.is_cancelled = True
            watched.task.cancel()
        for first in self._open.values():
            self._timer = loop.call_at(first.deadline, self._look, loop)
            break
