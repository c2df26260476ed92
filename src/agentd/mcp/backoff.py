"""How long to wait before something is tried again. Touches the `sleep` that is handed in."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

FIRST, MOST = 0.5, 60.0
"""Seconds before the first repetition, and before any."""


class Backoff:
    """Waits twice as long each time, less a random part of up to a half, so that many do not return together."""

    def __init__(
        self,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        *,
        first: float = FIRST,
        most: float = MOST,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._sleep, self._first, self._most, self._chance = sleep, first, most, chance
        self._next = first

    def reset(self) -> None:
        """It worked: begin again with the shortest."""
        self._next = self._first

    async def wait(self) -> None:
        seconds = self._next * (1 - self._chance() / 2)
        self._next = min(self._next * 2, self._most)
        await self._sleep(seconds)
