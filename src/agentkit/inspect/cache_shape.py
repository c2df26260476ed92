"""The prompt cache's part of the JSON report, and the forms of usage and cost. Touches only its arguments."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

from agentkit.core.contracts.usage import Usage

from .cache_values import CacheRequest, CacheView, Saving
from .cost import Cost


def cache_shape(view: CacheView) -> dict[str, Any]:
    """Plain data; what is not known is null."""
    return {
        "rules": view.rules,
        "basis": view.basis,
        "compared": view.compared,
        "note": view.note,
        "assumed": list(view.assumed),
        "lost": view.lost,
        "lost_cost": cost_shape(view.lost_cost),
        "scenarios": [
            {
                "name": one.name,
                "usage": usage_shape(one.usage),
                "cost": cost_shape(one.cost),
                "has_cache_figures": one.has_cache_figures,
            }
            for one in view.scenarios
        ],
        "breaks": [
            {"reason": one.reason, "count": one.count, "lost": one.lost, "usd": _usd(one.usd), "advice": one.advice}
            for one in view.breaks
        ],
        "savings": [_saving(one) for one in view.savings],
        "requests": [_request(one) for one in view.requests],
    }


def _request(one: CacheRequest) -> dict[str, Any]:
    return {
        "number": one.number,
        "read": one.read,
        "write": one.write,
        "fresh": one.fresh,
        "reason": one.reason,
        "cause": one.cause,
        "detail": one.detail,
        "lost": one.lost,
        "lost_usd": _usd(one.lost_usd),
        "planned": usage_shape(one.planned),
    }


def _saving(one: Saving) -> dict[str, Any]:
    return {
        "name": one.name,
        "number": one.number,
        "dropped": one.dropped,
        "added": one.added,
        "behind": one.behind,
        "calls": one.calls,
        "warm": one.warm,
        "pays": one.verdict.pays,
        "cost_now": round(one.verdict.cost_now, 6),
        "saved_per_call": round(one.verdict.saved_per_call, 6),
        "break_even_calls": _finite(one.verdict.break_even_calls),
        "net_usd": round(one.net_usd, 6),
        "later": _finite(one.later),
    }


def _finite(value: float | None) -> float | None:
    return None if value is None or math.isinf(value) else round(value, 2)


def _usd(value: Decimal | None) -> float | None:
    return None if value is None else round(float(value), 6)


def usage_shape(usage: Usage | None) -> dict[str, int] | None:
    if usage is None:
        return None
    return {
        "fresh": usage.input_tokens,
        "cache_read": usage.cache_read_tokens,
        "cache_write": usage.cache_write_tokens,
        "cache_write_long": usage.cache_write_long_tokens,
        "output": usage.output_tokens,
        "reasoning": usage.reasoning_tokens,
    }


def cost_shape(cost: Cost) -> dict[str, Any]:
    return {
        "usd": None if cost.usd is None else round(float(cost.usd), 6),
        "known": cost.is_known,
        "priced": cost.priced,
        "responses": cost.responses,
        "reasons": list(cost.reasons),
    }
