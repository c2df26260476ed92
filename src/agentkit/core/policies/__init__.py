"""Middleware around one model or tool call. A store and a clock are handed in."""

from __future__ import annotations

from .memoization import memoize
from .metering import meter

__all__ = ["memoize", "meter"]
