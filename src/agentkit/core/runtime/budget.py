"""`Budget`: what one run may spend, and how much of it may work at a time. Touches only its arguments."""

from __future__ import annotations

import math
import threading

from agentkit.core.contracts.errors import MeterExceeded
from agentkit.core.contracts.usage import Usage

from .permits import Permits


class Budget:
    """Limits of a run in USD and model calls, shared by all its children, and what was spent so far.

    A call that crosses a limit has run and is billed before MeterExceeded is raised; every later one is refused before
    it runs. `max_depth` is how deep agents may call agents. `max_concurrency` is how many provider requests and tool
    bodies run at a time in one event loop; a tool body that calls on does not count meanwhile. None is no limit. Raises
    TypeError or ValueError for a limit that is no number, negative or not finite, and for a `max_concurrency` below 1.
    """

    def __init__(
        self,
        max_cost_usd: float | None = None,
        max_calls: int | None = None,
        max_depth: int | None = 4,
        max_concurrency: int | None = 8,
    ) -> None:
        self.max_cost_usd = _checked("max_cost_usd", max_cost_usd, (int, float))
        self.max_calls = _checked("max_calls", max_calls, (int,))
        self.max_depth = _checked("max_depth", max_depth, (int,))
        self.max_concurrency = _checked("max_concurrency", max_concurrency, (int,))
        if self.max_concurrency == 0:
            raise ValueError("max_concurrency must be at least 1, since nothing could run at 0")
        self.permits = Permits(max_concurrency)
        self._spent = Usage()
        self._calls = 0
        # Guards spent and calls. A thread lock, since tool bodies may run in threads; it is never held over an await.
        self._lock = threading.Lock()

    @property
    def spent(self) -> Usage:
        """The sum of all usage that was charged."""
        return self._spent

    @property
    def calls(self) -> int:
        """How many calls were charged."""
        return self._calls

    def guard(self) -> None:
        """MeterExceeded when a limit is reached."""
        with self._lock:
            if self.max_calls is not None and self._calls >= self.max_calls:
                raise MeterExceeded(f"{self._calls} of {self.max_calls} calls are used up")
            if self.max_cost_usd is not None and self._spent.cost_usd >= self.max_cost_usd:
                raise MeterExceeded(f"{self._spent.cost_usd:.6f} of {self.max_cost_usd:.6f} USD are used up")

    def charge(self, usage: Usage) -> None:
        """Add one call. MeterExceeded when a limit is crossed by it; it is added all the same."""
        if not isinstance(usage, Usage):
            raise TypeError(f"usage must be a Usage, not {type(usage).__name__}")
        with self._lock:
            self._calls += 1
            self._spent = self._spent + usage
            if self.max_calls is not None and self._calls > self.max_calls:
                raise MeterExceeded(f"{self._calls} calls were made, {self.max_calls} were allowed")
            if self.max_cost_usd is not None and self._spent.cost_usd > self.max_cost_usd:
                raise MeterExceeded(f"{self._spent.cost_usd:.6f} USD were spent, {self.max_cost_usd:.6f} were allowed")

    def restore(self, spent: Usage, calls: int) -> None:
        """Add what a run had spent before it was resumed. Raises nothing over a limit: the next `guard` does."""
        if not isinstance(spent, Usage):
            raise TypeError(f"spent must be a Usage, not {type(spent).__name__}")
        if type(calls) is not int:
            raise TypeError(f"calls must be an int, not {type(calls).__name__}")
        if calls < 0:
            raise ValueError(f"calls must not be negative: {calls}")
        with self._lock:
            self._calls += calls
            self._spent = self._spent + spent

    def __repr__(self) -> str:
        limits = f"max_cost_usd={self.max_cost_usd}, max_calls={self.max_calls}, max_depth={self.max_depth}"
        limits += f", max_concurrency={self.max_concurrency}"
        return f"Budget({limits}; {self._calls} calls, {self._spent.cost_usd} USD)"


def _checked(name: str, value: float | None, kinds: tuple[type, ...]) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, kinds):
        wanted = " or ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"{name} must be None or {wanted}, not {type(value).__name__}")
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"{name} must be finite and not negative: {value}")
    return value
