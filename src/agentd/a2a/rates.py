"""How many requests a principal may make: a token bucket each. Touches a clock that is handed in."""

from __future__ import annotations

from collections.abc import Callable

from agentd.config.values import Rate


class Buckets:
    """A bucket for each principal, filled at `limits.requests`. There are as many as rules, so none is forgotten."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._left: dict[str, tuple[float, float]] = {}

    def take(self, who: str, rate: Rate) -> float:
        """Take one request out. 0, or the seconds after which there is one again."""
        now, per_second = self._clock(), rate.count / rate.per.total_seconds()
        left, then = self._left.get(who, (float(rate.count), now))
        left = min(float(rate.count), left + max(now - then, 0.0) * per_second)
        if left < 1:
            self._left[who] = left, now
            return (1 - left) / per_second
        self._left[who] = left - 1, now
        return 0.0
