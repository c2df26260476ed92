"""Where to cut a transcript and how to shorten it (not the price table: that is `models.catalog.compact`). No I/O; a
model call is handed in."""

from __future__ import annotations

from .base import Declined, Plan, apply
from .clear_results import ClearResultsCompactor
from .cut import cut_points, obligations, plan_cut, round_points
from .shorten import clamp, clear_result
from .truncate import TruncationCompactor
from .window import WindowCompactor

__all__ = [
    "ClearResultsCompactor",
    "Declined",
    "Plan",
    "TruncationCompactor",
    "WindowCompactor",
    "apply",
    "clamp",
    "clear_result",
    "cut_points",
    "obligations",
    "plan_cut",
    "round_points",
]
