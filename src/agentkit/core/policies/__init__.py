"""Middleware around one model or tool call. A store, a clock and a sleep are handed in."""

from __future__ import annotations

from .breaker import CircuitBreaker
from .compacting import compaction
from .fallbacks import fallback
from .memoization import memoize
from .metering import meter
from .quotas import quota
from .retrying import retry

__all__ = ["CircuitBreaker", "compaction", "fallback", "memoize", "meter", "quota", "retry"]
