"""What a provider's prompt cache keeps: its published rules as data, a simulator of them, and what broke a cached
prefix. Reads one file, on first use; opens no connection and looks at no clock.
"""

from __future__ import annotations

from agentkit.core.contracts.worth import PriceRates, Verdict, pays

from .bill import Bill
from .causes import CAUSE_ADVICE, CAUSES
from .diagnostics import Diagnosis, read_diagnosis
from .explaining import ADVICE, REASONS, CacheReport, explain
from .prompts import Block, Prompt
from .rules import KINDS, CacheRules, Ttl, all_rules, rules_for
from .simulator import PromptCache

__all__ = [
    "ADVICE",
    "CAUSES",
    "CAUSE_ADVICE",
    "KINDS",
    "REASONS",
    "Bill",
    "Block",
    "CacheReport",
    "CacheRules",
    "Diagnosis",
    "PriceRates",
    "Prompt",
    "PromptCache",
    "Ttl",
    "Verdict",
    "all_rules",
    "explain",
    "pays",
    "read_diagnosis",
    "rules_for",
]
