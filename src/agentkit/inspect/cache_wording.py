"""The prompt cache in words, the same in the terminal and in the page. Touches only its arguments."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal

from . import wording
from .cache_values import CacheRequest, CacheView, Saving, Scenario
from .cost import Cost

SCENARIOS = {
    "uncached": "without a cache",
    "recorded": "as recorded",
    "library": "with agentkit's layout",
    "library_long": "… at the longer lifetime",
    "library_kept": "… had nothing been dropped",
    "best": "the best the rules allow",
}
"""In the order of the table."""

_SAVINGS = {"mask": "old tool results masked", "compact": "compacted to a summary"}
_ASSUMED = {"times": "pauses are unknown where the record has no times"}


def scenarios(view: CacheView) -> list[Scenario]:
    return [one for name in SCENARIOS if (one := view.scenario(name)) is not None]


def has_costs(view: CacheView) -> bool:
    """Whether the ways to send the requests have prices."""
    return any(usd is not None for request in view.requests for usd in request.costs)


def reason(name: str | None) -> str:
    """A reason as a reader sees it; a dash where it cannot be told."""
    return "–" if name is None else name.replace("_", " ")


def because(request: CacheRequest) -> str:
    """Why a request read less than it could have: reason, cause and what is different; empty where it did not."""
    if request.reason in (None, "none"):
        return ""
    cause = f" ({request.cause.replace('_', ' ')})" if request.cause else ""
    return reason(request.reason) + cause + (f": {request.detail}" if request.detail and request.is_break else "")


def counted(value: int | None) -> str:
    """A count; `unknown` for what was not reported."""
    return "unknown" if value is None else f"{value:,}"


def paid(one: Scenario) -> tuple[int | None, int | None]:
    """Tokens written and fresh, None where the provider did not tell them apart."""
    return (one.usage.cache_write_tokens, one.usage.input_tokens) if one.has_cache_figures else (None, None)


def percent(value: float | None) -> str:
    """A share of the input with one place: near 100 % a tenth of it is money."""
    return "unknown" if value is None else f"{100 * value:.1f} %"


def lost(view: CacheView) -> str:
    """How many breaks there were and what they cost."""
    count = sum(one.count for one in view.breaks)
    if not count:
        told = any(request.reason not in (None, "unreported") for request in view.requests)
        return "none" if told else "unknown"
    of = f"{count:,} of {len(view.requests):,} requests"
    return f"{of}; {view.lost:,} tokens paid again, {money(view.lost_cost)} more than reading them"


def money(cost: Cost) -> str:
    return wording.cost(cost)


def difference(view: CacheView) -> str:
    """What agentkit's layout would have changed, in one sentence; empty where nothing can be compared."""
    recorded, library, uncached = (view.scenario(name) for name in ("recorded", "library", "uncached"))
    if library is None or uncached is None or not (library.cost.is_known and uncached.cost.is_known):
        return ""
    if recorded is not None and not recorded.has_cache_figures:
        recorded = None  # what was read is not known, so neither is what was really paid
    base = recorded or uncached
    if not base.cost.is_known or not base.cost.usd or library.cost.usd is None:
        return ""
    saved = base.cost.usd - library.cost.usd
    share = abs(saved) / base.cost.usd
    against = "as recorded" if recorded is not None else "without a cache"
    if share < Decimal("0.005"):
        return f"With agentkit's layout the same requests would have cost the same as {against.removeprefix('as ')}."
    word = "less" if saved > 0 else "more"
    than = "than recorded" if recorded is not None else "than without a cache"
    return f"With agentkit's layout the same requests would have cost {100 * share:.0f} % {word} {than}."


def basis(view: CacheView) -> str:
    """What the figures rest on."""
    parts = [] if view.rules is None else [f"rules: {view.rules}"]
    if view.scenarios:
        parts.append("sizes as the provider reported them" if view.basis == "reported" else "sizes are estimates")
    parts += [view.note] if view.note else []
    assumed = [_ASSUMED[name] for name in view.assumed if name in _ASSUMED]
    assumed += ["no source settles " + ", ".join(n for n in view.assumed if n not in _ASSUMED)] if view.rules else []
    return "; ".join([*parts, *[text for text in assumed if not text.endswith("settles ")]])


def saving(one: Saving) -> tuple[str, str]:
    """What was done, and what came of it."""
    cost, each, net = (
        wording.usd(Decimal(str(round(abs(value), 6))))
        for value in (one.verdict.cost_now, one.verdict.saved_per_call, one.net_usd)
    )
    what = f"{_SAVINGS[one.name]} before response {one.number:,}"
    once = f"costs {cost} at once" if one.verdict.cost_now > 0 else f"saves {cost} at once"
    cold = "" if one.warm else ", since the cache had expired"
    came = f"{one.calls:,} calls came, {calls(one.verdict.break_even_calls)} were needed"
    end = f"{net} saved in all" if one.net_usd > 0 else f"{net} lost in all"
    return what, f"drops {one.dropped:,} tokens; {once}{cold}, saves {each} a call; {came}: {end}"


def now(savings: Sequence[Saving]) -> str:
    """From how many further calls on shortening would pay at the end of the record."""
    said = [f"{_SAVINGS[one.name]}: {calls(one.later)}" for one in savings if one.later is not None]
    return "Calls from which on it would pay now: " + "; ".join(said) + "." if said else ""


def calls(value: float | None) -> str:
    """A number of calls, rounded up: a part of a call pays nothing."""
    return "unknown" if value is None else "no number" if math.isinf(value) else f"{math.ceil(value):,}"
