"""What providers accept as a transcript: `check` says what is wrong, `repair` makes a view that is right.

Touches only its arguments. One rule set serves cutting, importing, compacting and sending; a view is never stored.
"""

from __future__ import annotations

from .emptiness import require_request
from .growing import GrowingView
from .problems import CODES, FIRST, MEDIA_MOVED, NO_OUTPUT, STAND_IN, Problem
from .rules import ANTHROPIC, GEMINI, OPENAI_CHAT, OPENAI_RESPONSES, STRICT, Rules, Spelling
from .view import Repaired, answered, check, open_calls, repair

__all__ = [
    "ANTHROPIC",
    "CODES",
    "FIRST",
    "GEMINI",
    "MEDIA_MOVED",
    "NO_OUTPUT",
    "OPENAI_CHAT",
    "OPENAI_RESPONSES",
    "STAND_IN",
    "STRICT",
    "GrowingView",
    "Problem",
    "Repaired",
    "Rules",
    "Spelling",
    "answered",
    "check",
    "open_calls",
    "repair",
    "require_request",
]
