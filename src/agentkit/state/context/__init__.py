"""What an agent knows right now: prefix, tail, scratchpad, journal, and the pure operations on them. No I/O."""

from __future__ import annotations

from .anchor import Calibration, Observation, TokenCount
from .exact import ExactTokenCounter, TiktokenCounter, counter_for
from .head import MessageView
from .journal import MutationJournal
from .layout import Difference, Layout, Segment, first_difference
from .prefix import PrefixContext
from .scopes import (
    AllOf,
    AnyOf,
    ContextScope,
    LastNTurns,
    Not,
    PositionalScope,
    RoleFilter,
    Since,
    Tagged,
    surviving_indices,
)
from .snapshot import ContextDiff, FrozenContext
from .tokens import ApproxTokenCounter, CharClassTokenCounter
from .working import WorkingContext

__all__ = [
    "AllOf",
    "AnyOf",
    "ApproxTokenCounter",
    "Calibration",
    "CharClassTokenCounter",
    "ContextDiff",
    "ContextScope",
    "Difference",
    "ExactTokenCounter",
    "FrozenContext",
    "LastNTurns",
    "Layout",
    "MessageView",
    "MutationJournal",
    "Not",
    "Observation",
    "PositionalScope",
    "PrefixContext",
    "RoleFilter",
    "Segment",
    "Since",
    "Tagged",
    "TiktokenCounter",
    "TokenCount",
    "WorkingContext",
    "counter_for",
    "first_difference",
    "surviving_indices",
]
