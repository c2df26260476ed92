"""Middleware around one model or tool call. A store, a clock and a sleep are handed in.

The first of a list is outermost. All of them go in this order: `fallback`, `CircuitBreaker`, `retry`, `compaction`,
`memoize`, `quota`; `meter` is only needed where a call is to be billed further in than the invoker does.
"""

from __future__ import annotations

from .breaker import CircuitBreaker
from .compacting import compaction
from .fallbacks import fallback
from .memoization import memoize
from .metering import meter
from .quotas import quota
from .retrying import retry

__all__ = ["CircuitBreaker", "compaction", "fallback", "memoize", "meter", "quota", "retry"]
