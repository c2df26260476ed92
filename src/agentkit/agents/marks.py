"""Which prompt-cache marks a request asks for. Touches only its arguments.

Providers charge for what a mark writes, so a place is marked only where a later request may read it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from agentkit.core.contracts.offers import Breakpoint
from agentkit.state.context import Layout


class Terms(NamedTuple):
    """What is worth marking for a model: tokens in front of a mark, marks in a request."""

    min_tokens: int = 0
    max_marks: int = 4


_TERMS = (
    ("claude", Terms(512)),
    ("gpt-", Terms(1_024)),
    ("o1", Terms(1_024)),
    ("o3", Terms(1_024)),
    ("o4", Terms(1_024)),
)
"""By the head of the model's name. The smallest minimum of the vendor's models: a mark below a minimum costs nothing
(Anthropic and OpenAI, prompt caching, 2026-11-30). Both take 4 writes a request."""


def terms_of(model: str | None) -> Terms:
    """The terms of a model; those of any other ask for every mark, which whoever has none ignores."""
    name = (model or "").lower().rpartition("/")[2]
    return next((terms for head, terms in _TERMS if name.startswith(head)), Terms())


def marks_of(layout: Layout, model: str | None, previous: Layout | None, *, goes_on: bool) -> tuple[Breakpoint, ...]:
    """The breakpoints of a request. Where nothing `goes_on` behind it, the end of its tail is not marked: a write that
    nobody reads is money lost."""
    terms = terms_of(model)
    places = layout.breakpoints(previous=previous, max_marks=terms.max_marks, min_tokens=terms.min_tokens)
    if goes_on or not layout.segment("tail").messages:
        return places
    end = sum(len(segment.messages) for segment in layout.segments[:3])
    return tuple(place for place in places if place.position < end)


def hint_of(layout: Layout | None, has_prefix: bool, model: str | None, previous: Layout | None, goes_on: bool) -> Any:
    """`ChatRequest.cache_hint`: None without a prefix, else the plan, or merely a wish where there is none."""
    if not has_prefix:
        return None
    return (layout is not None and marks_of(layout, model, previous, goes_on=goes_on)) or True
