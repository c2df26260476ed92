"""Where to cut a transcript, how to shorten it, and what to write in place of what goes (not the price table: that is
`models.catalog.compact`). No I/O; a model call is handed in."""

from __future__ import annotations

from agentkit.core.contracts.worth import PriceRates, Verdict, pays

from .base import Declined, Plan, apply
from .clear_results import ClearResultsCompactor
from .cut import cut_points, obligations, plan_cut, round_points
from .evidence import DELTA_SCHEMA, Checked, Source, checked, source_of
from .extractive import extract
from .ranges import Ranges
from .rendering import Rendered, render_summary
from .shorten import clamp, clamp_json, clear_result
from .summarize import Compacted, Summariser, SummarizeCompactor, SummaryFailed, Written, summarising
from .summary import Artifact, Constraint, Decision, Failure, Piece, Point, Step, Summary
from .truncate import TruncationCompactor
from .warm import Conversation
from .window import WindowCompactor

__all__ = [
    "DELTA_SCHEMA",
    "Artifact",
    "Checked",
    "ClearResultsCompactor",
    "Compacted",
    "Constraint",
    "Conversation",
    "Decision",
    "Declined",
    "Failure",
    "Piece",
    "Plan",
    "Point",
    "PriceRates",
    "Ranges",
    "Rendered",
    "Source",
    "Step",
    "Summariser",
    "SummarizeCompactor",
    "Summary",
    "SummaryFailed",
    "TruncationCompactor",
    "Verdict",
    "WindowCompactor",
    "Written",
    "apply",
    "checked",
    "clamp",
    "clamp_json",
    "clear_result",
    "cut_points",
    "extract",
    "obligations",
    "pays",
    "plan_cut",
    "render_summary",
    "round_points",
    "source_of",
    "summarising",
]
