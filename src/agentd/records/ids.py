"""Ids that the daemon mints: UUIDs of version 7, which sort by the time they were made. Touches a clock and a source of
randomness, both handed in."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

TAIL_BITS = 74
"""Of a UUIDv7 behind its 48 bits of milliseconds, version and variant left out (RFC 9562, section 5.7)."""


def uuid7(now_ms: int, random: int) -> str:
    """The UUIDv7 of a time in milliseconds since the epoch and 74 bits of randomness, as text."""
    tail = random & ((1 << TAIL_BITS) - 1)
    made = (now_ms & ((1 << 48) - 1)) << 80 | 0x7 << 76 | tail >> 62 << 64 | 0b10 << 62 | tail & ((1 << 62) - 1)
    digits = f"{made:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def wall_ms() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


class Drawn:
    """Random bytes of the system, drawn in large pieces: a call of its own for each id would let go of the interpreter
    each time, and waiting for it again takes longer than the turn that needs the id."""

    def __init__(self, size: int = 4_096) -> None:
        self._size, self._left = size, b""

    def __call__(self, count: int) -> bytes:
        if len(self._left) < count:
            self._left = os.urandom(self._size)
        made, self._left = self._left[:count], self._left[count:]
        return made


class Ids:
    """A source of ids: call it for the next one. Each is greater than the one before, also within a millisecond and
    when the clock is set back. For one thread; the same `clock` and `random` give the same ids.

    `clock`: milliseconds since the epoch. `random(n)`: n random bytes, by default the system's.
    """

    def __init__(self, clock: Callable[[], int] = wall_ms, random: Callable[[int], bytes] | None = None) -> None:
        self._clock, self._random = clock, random or Drawn()
        self._ms, self._tail = -1, 0

    def __call__(self) -> str:
        now = self._clock()
        if now > self._ms:
            # The upper half of what can be counted up to stays free, so that counting on does not run over.
            self._ms, self._tail = now, int.from_bytes(self._random(10)) & ((1 << TAIL_BITS - 1) - 1)
        else:
            # A step at random: an id that was seen tells none of its neighbours.
            self._tail += 1 + int.from_bytes(self._random(4))
            if self._tail >> TAIL_BITS:
                self._ms, self._tail = self._ms + 1, int.from_bytes(self._random(8))
        return uuid7(self._ms, self._tail)
