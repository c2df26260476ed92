"""What providers say themselves about a prefix that was not read again. Touches only its arguments.

Anthropic answers a request with `diagnostics: {"previous_message_id": ...}` (null for the first one), OpenAI one with
`prompt_cache_options: {"comparison_response_id": ...}` (responses alone). Sources: the providers' pages on cache
diagnostics and the types of anthropic 2.14.0 and openai 3.57.0, November 2026.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

PENDING = "pending"
"""The provider had not finished comparing when it answered."""

MEANINGS: Mapping[str, tuple[str, ...]] = {
    "cache_hit": ("none",),
    "model_changed": ("model_changed",),
    "prompt_cache_key_changed": ("scope_changed",),
    "tools_changed": ("tools_changed",),
    "system_changed": ("system_changed",),
    "messages_changed": ("messages_changed", "compacted"),
    "input_changed": ("system_changed", "messages_changed"),
    "context_compacted": ("compacted",),
    "reasoning_effort_changed": ("settings_changed",),
    "verbosity_changed": ("settings_changed",),
    "text_format_changed": ("settings_changed",),
    "service_tier_changed": ("settings_changed",),
    "previous_message_not_found": ("expired", "not_yet_readable"),
    "comparison_response_not_found": ("expired", "not_yet_readable"),
    "unavailable": ("settings_changed", "unexplained"),
}
"""The reasons of `explain` that a provider's word may stand for. Anthropic says `unavailable` too where nothing but a
setting differs, such as thinking or the tool choice; what `not_found` stands for is our reading."""


@dataclass(frozen=True)
class Diagnosis:
    """A provider's word on its cache. `said`: its own name for the reason, or `pending`. `missed_tokens`: input that
    could have been read, by its estimate; `reusable_tokens`: of the request compared with; None where it does not say.
    """

    said: str
    missed_tokens: int | None = None
    reusable_tokens: int | None = None

    @property
    def reasons(self) -> tuple[str, ...]:
        """The reasons of `explain` that it may stand for; none for a word that is not known here."""
        return MEANINGS.get(self.said, ())


def read_diagnosis(answer: Any) -> Diagnosis | None:
    """The diagnosis in a response's JSON data, in the `meta` of an answer or in a provider's part of it. None where
    there is none: Anthropic leaves it out too where it found nothing different. Never raises on content."""
    if not isinstance(answer, Mapping):
        return None
    for said in (answer, *answer.values()):
        if isinstance(said, Mapping):
            found = _anthropic(said.get("diagnostics")) or _openai(said.get("prompt_cache_diagnostics"))
            if found is not None:
                return found
    return None


def _anthropic(said: Any) -> Diagnosis | None:
    if not isinstance(said, Mapping) or "cache_miss_reason" not in said:
        return None
    reason = said["cache_miss_reason"]
    if reason is None:
        return Diagnosis(PENDING)
    if not isinstance(reason, Mapping) or not isinstance(reason.get("type"), str):
        return None
    return Diagnosis(reason["type"], _count(reason.get("cache_missed_input_tokens")))


def _openai(said: Any) -> Diagnosis | None:
    if not isinstance(said, Mapping):
        return None
    kind, reason = said.get("type"), said.get("reason")
    word = reason if kind == "cache_miss" and isinstance(reason, str) else kind
    if not isinstance(word, str):
        return None
    return Diagnosis(word, _count(said.get("cache_missed_tokens")), _count(said.get("comparison_reusable_tokens")))


def _count(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None
