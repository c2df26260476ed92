"""The prompt cache in the terminal. Touches only its arguments."""

from __future__ import annotations

from textwrap import wrap

from . import cache_wording as words
from . import wording
from .cache_values import CacheView
from .columns import WIDTH, Style, table
from .values import Inspection

BAR = 20
"""Columns of a bar."""


def cache_lines(one: Inspection, style: Style, *, whole: bool = False) -> list[str]:
    """The section on the prompt cache, without its heading; `whole`: with a line for each request."""
    view = one.cache
    if view is None or not view.requests:
        return []
    lines = _head(one, view, style)
    parts = [_scenarios(view, style), _breaks(view, style), _savings(view, style)]
    if whole and any(request.is_known for request in view.requests):
        parts.append(_requests(one, view, style))
    for part in parts:
        lines += ["", *part] if part else []
    return lines


def _head(one: Inspection, view: CacheView, style: Style) -> list[str]:
    usage = one.usage
    lines = []
    if usage is not None and usage.prompt_tokens and any(request.read is not None for request in view.requests):
        read, write, fresh = usage.cache_read_tokens, usage.cache_write_tokens, usage.input_tokens
        shares = f"{read:,} read ({wording.share(read, usage.prompt_tokens)}), {write:,} written, {fresh:,} fresh"
        lines.append(f"  input   {shares}")
    else:
        lines.append("  input   unknown: the record has no cache figures")
    lines.append(f"  breaks  {words.lost(view)}")
    lines += _wrapped(style.plain(words.difference(view)))
    return [*lines, *[style.dim(line) for line in _wrapped(style.plain(words.basis(view)))]]


def _wrapped(text: str) -> list[str]:
    return ["  " + line for line in wrap(text, WIDTH - 2)]


def _scenarios(view: CacheView, style: Style) -> list[str]:
    found = words.scenarios(view)
    most = max((one.cost.usd for one in found if one.cost.usd is not None), default=None)
    rows = []
    for one in found:
        usd = one.cost.usd
        bar = style.bar(int(usd * 1_000_000), int(most * 1_000_000), BAR) if usd is not None and most else ""
        counts = map(words.counted, words.paid(one))
        rows.append([words.SCENARIOS[one.name], words.percent(one.read_share), *counts, words.money(one.cost), bar])
    return table(("the same requests", "read", "written", "fresh", "cost", ""), rows, style, text=(0, 5))


def _breaks(view: CacheView, style: Style) -> list[str]:
    rows = [
        [words.reason(one.reason), wording.number(one.count), wording.number(one.lost), wording.usd(one.usd)]
        for one in view.breaks
    ]
    lines = table(("broken because", "times", "tokens", "cost"), rows, style, text=(0,))
    advised: list[str] = []
    for one, line in zip(view.breaks, lines[1:], strict=True):
        advised += [line, *[style.dim(f"    {text}") for text in wrap(style.plain(one.advice), WIDTH - 4)]]
    return [*lines[:1], *advised]


def _savings(view: CacheView, style: Style) -> list[str]:
    lines: list[str] = []
    for one in view.savings:
        what, came = words.saving(one)
        lines.append(f"  {what}")
        lines += [f"    {line}" for line in wrap(style.plain(came), WIDTH - 4)]
    if not lines:
        return []
    later = words.now(view.savings)
    return [style.dim("  shortening once, at the best moment in hindsight"), *lines, *_wrapped(later)]


def _requests(one: Inspection, view: CacheView, style: Style) -> list[str]:
    costs = {response.number: response for response in one.responses}
    rows = []
    for request in view.requests:
        response = costs[request.number]
        planned = request.planned
        rows.append(
            [
                wording.number(request.number),
                words.counted(request.read),
                words.counted(request.write),
                words.counted(request.fresh),
                wording.cost(response.cost) if response.usage is not None else "unknown",
                words.counted(planned.cache_read_tokens) if planned is not None else "–",
                wording.number(request.lost) if request.is_break else "",
                words.because(request),
            ]
        )
    heads = ("no.", "read", "written", "fresh", "cost", "agentkit reads", "lost", "because")
    return table(heads, rows, style, text=(7,), rest=7)
