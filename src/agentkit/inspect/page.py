"""The report as one HTML file: nothing is fetched, nothing from a transcript runs. Touches its arguments, and reads the
style, the script and the plot library that lie in `assets`.

The content security policy admits exactly the styles and scripts written here, by their hashes. Tables stand in the
page; plots are drawn by the script from a block of JSON, and each has its figures in a table too.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from . import sections, wording
from .cache_view import SCENARIOS
from .markup import Html, data_script, script, source_hash, style_sheet, tag
from .sections import OPEN_CONVERSATIONS
from .values import Inspection


def render_page(inspections: Sequence[Inspection], *, version: str = "") -> str:
    """The whole page for one or several conversations, text that is valid UTF-8."""
    style = _asset("uPlot.min.css") + "\n" + _asset("report.css")
    licence = f"/*\n{_asset('uPlot.LICENSE').strip()}\n*/"
    code = "\n".join((_asset("prelude.js"), licence, _asset("uPlot.iife.min.js"), _asset("report.js")))
    policy = (
        f"default-src 'none'; style-src {source_hash(style)}; script-src {source_hash(code)}; "
        "base-uri 'none'; form-action 'none'"
    )
    title = _title(inspections)
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        # In front of everything that it has to govern.
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", f"{title} – agentkit"),
        style_sheet(style),
    )
    body = tag(
        "body",
        tag(
            "div",
            _header(inspections, title),
            tag("main", *_main(inspections)),
            _footer(inspections, version),
            class_="page",
        ),
        data_script("plots", [_plots(one) for one in inspections]),
        script(code),
    )
    return "<!doctype html>\n" + tag("html", head, body, lang="en") + "\n"


def _asset(name: str) -> str:
    return files(__package__).joinpath("assets", name).read_text(encoding="utf-8")


def _title(inspections: Sequence[Inspection]) -> str:
    sources = list(dict.fromkeys(one.source for one in inspections))
    if len(sources) == 1:
        return sources[0].replace("\\", "/").rpartition("/")[2] or "transcript"
    return f"{len(sources)} transcripts"


def _header(inspections: Sequence[Inspection], title: str) -> Html:
    about = wording.about(inspections[0]) if len(inspections) == 1 else f"{len(inspections)} conversations"
    return tag(
        "header",
        tag("p", "Where the tokens went", class_="eyebrow"),
        tag("h1", tag("bdi", title)),
        tag("p", about, class_="about"),
    )


def _main(inspections: Sequence[Inspection]) -> list[Html]:
    if len(inspections) == 1:
        return [tag("div", *sections.conversation(inspections[0], at=0), class_="conversation")]
    found = [sections.overview(inspections)]
    for at, one in enumerate(inspections):
        inner = sections.conversation(one, at=at, level=3)
        summary = tag(
            "summary",
            tag("h2", tag("bdi", wording.name(one))),
            tag("span", wording.about(one, with_source=True), class_="about"),
        )
        found.append(
            tag(
                "details",
                summary,
                *inner,
                class_="conversation",
                id=f"c{at}",
                open=len(inspections) <= OPEN_CONVERSATIONS,
            )
        )
    return found


def _footer(inspections: Sequence[Inspection], version: str) -> Html:
    counters = list(dict.fromkeys(wording.counter(one.counter) for one in inspections))
    return tag(
        "footer",
        tag(
            "p",
            f"Written by agentkit {version}. Estimates count {', '.join(counters)}; reported figures are the "
            "provider's own. Prices are the vendors' list prices at the time of each response. Places are message "
            "numbers in the record, from 0. The plots are drawn by uPlot (MIT licence, in this file's source).",
        ),
    )


def _plots(one: Inspection) -> dict[str, Any]:
    """The columns that the script draws, one entry a response. Segments are estimates times what the estimate was found
    to be off, so that they add up with reported figures; what the file does not hold is the rest of the report."""
    factor = one.accuracy.factor if one.accuracy.unseen is not None else 1.0
    columns: dict[str, list[Any]] = {
        name: []
        for name in ("number", "time", "compacted", "unseen", "frozen", "summary", "tail", "reported",
                     "read", "write", "fresh", "output", "cost")
    }  # fmt: skip
    unseen, spent = one.accuracy.unseen or 0, 0.0
    for response in one.responses:
        sizes, usage = response.estimate, response.usage
        segments = [round(factor * n) for n in (sizes.frozen, sizes.summary, sizes.tail)] if sizes else [None] * 3
        if sizes and response.reported is not None:
            unseen = max(response.reported - sum(n or 0 for n in segments), 0)
        if response.cost.usd is not None:
            spent += float(response.cost.usd)
        counts = (
            (usage.cache_read_tokens, usage.cache_write_tokens, usage.input_tokens, usage.output_tokens)
            if usage
            else (None,) * 4
        )
        row = (
            response.number, wording.clock(response.time), response.compacted, unseen if sizes else None, *segments,
            response.reported, *counts, round(spent, 6),
        )  # fmt: skip
        for column, value in zip(columns.values(), row, strict=True):
            column.append(value)
    return {**columns, "window": one.window, "cache": _cache_plots(one)}


def _cache_plots(one: Inspection) -> dict[str, list[Any]]:
    """Columns of the plots on the prompt cache, one entry a response: tokens that were lost, and the cost so far of the
    same requests sent in several ways. What could not be compared is a gap."""
    names = ("recorded", "uncached", "library")
    columns: dict[str, list[Any]] = {name: [] for name in ("lost", *names)}
    spent = dict.fromkeys(names, 0.0)
    for request in one.cache.requests if one.cache is not None else ():
        columns["lost"].append(request.lost if request.is_break else 0 if request.reason == "none" else None)
        costs = dict(zip(SCENARIOS, request.costs, strict=False))
        for name in names:
            usd = costs.get(name)
            spent[name] += float(usd or 0)
            columns[name].append(None if usd is None else round(spent[name], 6))
    return columns
