"""Reports over recorded conversations: what the command line and a page show. Reads nothing but its arguments and its
own assets; no rule is born here."""

from __future__ import annotations

from .measure import inspect_transcript
from .values import (
    Accuracy,
    Cost,
    Finding,
    Folding,
    Inspection,
    Part,
    Response,
    Share,
    Sizes,
    ToolShare,
)

__all__ = [
    "Accuracy",
    "Cost",
    "Finding",
    "Folding",
    "Inspection",
    "Part",
    "Response",
    "Share",
    "Sizes",
    "ToolShare",
    "inspect_transcript",
]
