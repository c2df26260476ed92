"""The prompt cache in the page. Touches only its arguments.

Every text from a transcript goes in as a `str`; only `markup` makes markup of it.
"""

from __future__ import annotations

from . import cache_wording as words
from . import wording
from .cache_values import CacheRequest, CacheView
from .markup import Html, tag
from .parts import build_table, numbers, plot
from .values import Inspection


def cache_parts(one: Inspection, at: int) -> list[Html]:
    """The content of the section, empty where there is no response. `at`: the conversation's place in the plot data."""
    view = one.cache
    if view is None or not view.requests:
        return []
    hints = [words.difference(view), words.basis(view)]
    found = [tag("p", f"Breaks: {words.lost(view)}.", class_="hint")]
    found += [tag("p", text, class_="hint") for text in hints if text]
    if words.has_costs(view):
        found.append(plot("compare", at, "Cost so far of the same requests, sent in several ways.", _told(view)))
    found += [_scenarios(view)] if view.scenarios else []
    if view.breaks:
        reading = "Tokens that were in the cache and were paid again, by response."
        found += [plot("breaks", at, reading, f"Breaks: {words.lost(view)}."), _breaks(view)]
    for build in (_savings, _requests):
        found += build(view)
    return found


def _told(view: CacheView) -> str:
    ways = [f"{words.SCENARIOS[one.name]} {words.money(one.cost)}" for one in words.scenarios(view)]
    return f"Cost of the same requests: {', '.join(ways)}."


def _scenarios(view: CacheView) -> Html:
    rows = [
        tag(
            "tr",
            tag("th", words.SCENARIOS[one.name], scope="row"),
            tag("td", words.percent(one.read_share), class_="number"),
            *[tag("td", words.counted(value), class_="number") for value in words.paid(one)],
            tag("td", words.money(one.cost), class_="number"),
        )
        for one in words.scenarios(view)
    ]
    caption = "The requests that can be rebuilt, in several ways. What the provider dropped is dropped in each of them."
    return build_table(caption, ("Way", "Read", "Written", "Fresh", "Cost"), rows)


def _breaks(view: CacheView) -> Html:
    rows = [
        tag(
            "tr",
            tag("th", words.reason(one.reason), tag("span", one.advice, class_="below"), scope="row"),
            *numbers(one.count, one.lost),
            tag("td", wording.usd(one.usd), class_="number"),
        )
        for one in view.breaks
    ]
    return build_table("What broke the cached part, and what that cost.", ("Reason", "Times", "Tokens", "Cost"), rows)


def _savings(view: CacheView) -> list[Html]:
    lines = [tag("li", tag("strong", what), f": {came}.") for what, came in map(words.saving, view.savings)]
    if not lines:
        return []
    later = words.now(view.savings)
    said = [tag("p", "Shortening once, at the best moment in hindsight:", class_="hint"), tag("ul", *lines)]
    return [*said, *([tag("p", later, class_="hint")] if later else [])]


def _requests(view: CacheView) -> list[Html]:
    if not any(request.is_known for request in view.requests):
        return []
    heads = ("Response", "Read", "Written", "Fresh", "Layout reads", "Lost", "Because")
    caption = "Each request as recorded, and what agentkit's layout would have read."
    table = build_table(caption, heads, map(_row, view.requests))
    return [tag("details", tag("summary", "All requests as a table"), table)]


def _row(request: CacheRequest) -> Html:
    figures = (request.read, request.write, request.fresh)
    planned = request.planned.cache_read_tokens if request.planned is not None else None
    return tag(
        "tr",
        tag("th", request.number, scope="row", class_="number"),
        *[tag("td", words.counted(value), class_="number") for value in figures],
        *numbers(planned, request.lost if request.is_break else None),
        tag("td", tag("bdi", words.because(request))),
    )
