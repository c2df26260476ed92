"""Where a request to OpenAI asks the prompt cache to keep it, and facts about its models that both of its wires need.
Touches only its arguments.

From GPT-5.6 on a mark ends a prefix exactly where it stands, the latest four of a request are written, and each of the
others is a place where the cache is looked up at no charge. Without explicit marks the provider would mark the last
message, which is volatile text: written at a surcharge each time, and never read. So the mode is explicit, always.
"""

from __future__ import annotations

import re
from functools import lru_cache

from agentkit.core.contracts.messages import Message
from agentkit.core.contracts.offers import Breakpoint
from agentkit.core.contracts.requests import ChatRequest
from agentkit.core.contracts.validity import Repaired
from agentkit.models.cache.rules import CacheRules, rules_for

from .base import planned_marks

MARKS = 50
"""Marks in one request: the provider looks up the latest 50 (prompt caching guide, November 2026)."""

_REASONING = re.compile(r"(?:^|/)(?:o[1-9]|gpt-(?:[5-9]|[1-9][0-9]))(?!.*-chat)")


def reasons(model: str) -> bool:
    """Whether this is one of OpenAI's reasoning models: their standing text is a developer's, their reasoning can be
    handed out encrypted. By name, as the API reference lists them: the o series, and GPT from 5 on but for the chat
    variants."""
    return _REASONING.search(model) is not None


@lru_cache(maxsize=256)
def marking_rules(model: str, provider: str) -> CacheRules | None:
    """The rules of a model's prompt cache, if it takes marks; None otherwise."""
    found = rules_for(model, provider)
    return found if found is not None and found.marks and found.kind in ("message ends", "marked blocks") else None


def mark_places(request: ChatRequest, view: Repaired, rules: CacheRules) -> dict[int, Breakpoint]:
    """Which messages of the view end at a mark, in order.

    The marks of the plan, each at the last whole message in front of its position. Where the rules make further ones
    free, also the ends of earlier requests between the first and the last of these: an answer of the model stands
    behind each, so they follow from the transcript, in whatever process. A hint without a plan marks the prefix.
    """
    plan = planned_marks(request)
    if plan is None:
        plan = (Breakpoint(request.prefix_length),) if request.cache_hint and request.prefix_length else ()
    found: dict[int, Breakpoint] = {}
    for mark in plan:
        at = _last_whole(view, mark.position)
        if at >= 0:
            found[at] = mark
    if rules.kind == "message ends":
        room = MARKS - len(found)
        ends = _request_ends(view.messages, min(found), max(found)) if found else []
        usual = rules.default_ttl
        found = {**{at: Breakpoint(0, usual) for at in ends[max(0, len(ends) - room) :]}, **found}
    return {at: found[at] for at in sorted(found)[-(MARKS if rules.kind == "message ends" else rules.marks) :]}


def _last_whole(view: Repaired, position: int) -> int:
    """The last message of the view that ends at or in front of a position of the request; -1 for none."""
    index, items = view.places[position]
    if not view.messages or not items:
        return index - 1
    return index if items >= len(view.messages[index].ordered) else index - 1


def _request_ends(messages: tuple[Message, ...], first: int, last: int) -> list[int]:
    """Where the requests ended that the answers between two places replied to."""
    return [
        at for at in range(first + 1, last) if messages[at + 1].role == "assistant" and messages[at].role != "assistant"
    ]
