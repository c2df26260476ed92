"""`Permits`: how many leaves of a run work at a time. Touches only its arguments and the running loop.

A leaf is one provider request or one tool body. Whoever holds a permit and calls on, a tool body that asks a model
say, gives its own back until that call is over: so nobody waits for a permit with one in the hand, and any tree of
agents and tools finishes, with a single permit too.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from weakref import WeakKeyDictionary


class Permits:
    """At most `limit` holders at a time in one event loop; None for any number. First come, first served.

    Works in one loop after the other, also when an earlier one ended while somebody waited.
    """

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self._gates: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()
        # Guards the gates: tool bodies in threads may run loops of their own.
        self._lock = threading.Lock()

    def gate(self) -> asyncio.Semaphore | None:
        """The semaphore of the running loop."""
        if self.limit is None:
            return None
        loop = asyncio.get_running_loop()
        with self._lock:
            found = self._gates.get(loop)
            if found is None:
                found = self._gates[loop] = asyncio.Semaphore(self.limit)
        return found


class Held:
    """One permit of a leaf, lent out while calls that the leaf makes are under way."""

    def __init__(self, gate: asyncio.Semaphore | None, parent: Held | None) -> None:
        self._gate, self.parent = gate, parent
        self._has = self._closed = False
        self._calls = 0

    async def take(self) -> None:
        if self._gate is not None:
            await self._gate.acquire()
            self._has = True

    def drop(self) -> None:
        """The leaf is done."""
        self._closed = True
        self._give()

    def lend(self) -> None:
        """A call of the leaf begins."""
        self._calls += 1
        self._give()

    async def take_back(self) -> None:
        """A call of the leaf is over; after the last one the leaf waits for a permit before it goes on."""
        self._calls -= 1
        if self._gate is None or self._is_away():
            return
        await self._gate.acquire()
        if self._is_away():  # while this waited, the leaf ended or called on, or another call of it took one back
            self._gate.release()
        else:
            self._has = True

    def take_back_nowait(self) -> None:
        """The same for a call that was cancelled: its leaf cleans up and need not wait for that."""
        self._calls -= 1

    @property
    def closed(self) -> bool:
        return self._closed

    def _is_away(self) -> bool:
        return self._closed or self._has or self._calls > 0

    def _give(self) -> None:
        if self._has and self._gate is not None:
            self._has = False
            self._gate.release()


_current: ContextVar[Held | None] = ContextVar("agentkit_permit", default=None)


def holding() -> Held | None:
    """What the running task, or the one that started it, works under."""
    held = _current.get()
    while held is not None and held.closed:
        held = held.parent
    return held


def hold(held: Held | None) -> None:
    """What the running task does from here on, it does under `held`."""
    _current.set(held)


@asynccontextmanager
async def calling() -> AsyncIterator[None]:
    """Give back the permit that the caller holds, if any, until this is over."""
    held = holding()
    if held is None:
        yield
        return
    held.lend()
    try:
        yield
    except Exception:
        await held.take_back()
        raise
    except BaseException:
        held.take_back_nowait()
        raise
    await held.take_back()


@asynccontextmanager
async def leaf(permits: Permits) -> AsyncIterator[Held]:
    """Hold a permit for a piece of leaf work."""
    parent = holding()
    held = Held(permits.gate(), parent)
    await held.take()
    hold(held)
    try:
        yield held
    finally:
        held.drop()
        if _current.get() is held:
            hold(parent)
