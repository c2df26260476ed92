"""The report as plain text: for one conversation everything, for several a line each. Touches only its arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from . import wording
from .cache_text import cache_lines
from .columns import WIDTH, Style, table
from .replay import Progress
from .values import Inspection

BAR = 24
"""Columns of a bar."""
LISTED = 8
"""Rows of the tables that can be long."""


def render_text(inspections: Sequence[Inspection], style: Style | None = None, *, whole: bool | None = None) -> str:
    """The report, lines of at most WIDTH columns. `whole`: every conversation with all its tables; by default for a
    single one only."""
    style = style or Style()
    lines: list[str] = []
    if len(inspections) > 1:
        lines += _overview(inspections, style)
    if whole or (whole is None and len(inspections) == 1):
        for one in inspections:
            lines += [*([""] if lines else []), *_conversation(one, style)]
    return "\n".join(lines) + "\n"


def render_cache(inspections: Sequence[Inspection], style: Style | None = None) -> str:
    """The prompt cache of each conversation, request by request, lines of at most WIDTH columns."""
    style = style or Style()
    lines: list[str] = []
    for one in inspections:
        found = cache_lines(one, style, whole=True) or ["  no response in the record"]
        lines += [*([""] if lines else []), *_title(one, style), "", style.bold("Prompt cache"), *found]
    return "\n".join(lines) + "\n"


def _title(one: Inspection, style: Style) -> list[str]:
    title = wording.name(one) if one.of > 1 else one.source or wording.name(one)
    return [style.bold(style.clip(title, WIDTH)), style.dim(style.clip(wording.about(one), WIDTH))]


def _overview(inspections: Sequence[Inspection], style: Style) -> list[str]:
    several_files = len({one.source for one in inspections}) > 1
    rows = []
    for one in inspections:
        largest = wording.prompt_tokens(one)
        file = [one.source.replace("\\", "/").rpartition("/")[2]] if several_files else []
        own = (one.messages, len(one.responses), one.calls, one.tokens, largest[0] if largest else None)
        name = wording.name(one) if one.of > 1 or not several_files else ""
        rows.append([*file, str(one.number), name, *map(wording.number, own), wording.cost(one.cost)])
    counts = (
        sum(one.messages for one in inspections),
        sum(len(one.responses) for one in inspections),
        sum(one.calls for one in inspections),
        sum(one.tokens for one in inspections),
    )
    blank = [""] if several_files else []
    rows.append(["all", *blank, "", *map(wording.number, counts), "", wording.total_cost(inspections)])
    heads = (
        *(["file"] if several_files else []),
        "no.",
        "conversation",
        "messages",
        "responses",
        "calls",
        "tokens",
        "largest",
        "cost",
    )
    names = range(2 + several_files)
    lines = table(heads, rows, style, text=tuple(names), rest=names[-1])
    return [style.bold(f"{len(inspections)} conversations"), "", *lines]


def _conversation(one: Inspection, style: Style) -> list[str]:
    lines = [*_title(one, style), "", *_figures(one, style)]
    parts = (
        ("Context size", _context(one, style)),
        ("Prompt cache", cache_lines(one, style)),
        ("Tokens by role", _shares(one, style)),
        ("Tokens by tool", _tools(one, style)),
        ("Largest parts", _largest(one, style)),
        ("Compactions", _foldings(one, style)),
        ("Findings", _findings(one, style)),
    )
    for heading, content in parts:
        if content:
            lines += ["", style.bold(heading), *content]
    return lines


def _figures(one: Inspection, style: Style) -> list[str]:
    lines = []
    entries = wording.figures(one)
    name_width = max(len(name) for name, _, _ in entries)
    value_width = max(len(style.plain(value)) for _, value, _ in entries)
    for name, value, more in entries:
        head = f"  {name:<{name_width}}  {style.plain(value):>{value_width}}"
        room = WIDTH - len(head) - 3
        lines.append((head + ("   " + style.dim(style.clip(more, room)) if more else "")).rstrip())
    return lines


def _context(one: Inspection, style: Style) -> list[str]:
    reported = [response.reported for response in one.responses if response.reported is not None]
    values = reported or [response.estimate.total for response in one.responses if response.estimate is not None]
    if not values:
        return []
    source = "reported" if reported else "estimated"
    course = style.spark(values, WIDTH - 4)
    first, last, most = (wording.number(value) for value in (values[0], values[-1], max(values)))
    lines = ["  " + course, f"  {source}: from {first} to {last} tokens, at most {most}"]
    sizes = one.next_request
    lines.append(f"  next request, estimated: frozen {sizes.frozen:,}, summary {sizes.summary:,}, tail {sizes.tail:,}")
    text = wording.accuracy(one)
    return [*lines, *_wrapped(style.plain(text))] if text else lines


def _wrapped(text: str) -> list[str]:
    from textwrap import wrap

    return ["  " + line for line in wrap(text, WIDTH - 2)]


def _shares(one: Inspection, style: Style) -> list[str]:
    most = max((share.tokens for share in one.roles), default=0)
    rows = [
        [
            share.name,
            wording.number(share.count),
            wording.number(share.tokens),
            wording.share(share.tokens, one.tokens),
            style.bar(share.tokens, most, BAR),
        ]
        for share in one.roles
    ]
    if one.tool_schema_tokens:
        tokens = one.tool_schema_tokens
        rows.append(
            [
                "tool schemas",
                "",
                wording.number(tokens),
                wording.share(tokens, one.tokens),
                style.bar(tokens, most, BAR),
            ]
        )
    lines = table(("role", "messages", "tokens", "share", ""), rows, style, text=(0, 4))
    top = max((share.tokens for share in one.kinds), default=0)
    kinds = [
        [
            wording.KINDS.get(s.name, s.name),
            wording.number(s.count),
            wording.number(s.tokens),
            wording.share(s.tokens, one.tokens),
            style.bar(s.tokens, top, BAR),
        ]
        for s in one.kinds
    ]
    return [*lines, "", *table(("kind of content", "parts", "tokens", "share", ""), kinds, style, text=(0, 4))]


def _tools(one: Inspection, style: Style) -> list[str]:
    most = max((tool.tokens for tool in one.tools), default=0)
    rows = [
        [
            tool.name,
            *map(wording.number, (tool.calls, tool.errors, tool.argument_tokens, tool.result_tokens)),
            style.bar(tool.tokens, most, BAR),
        ]
        for tool in one.tools
    ]
    heads = ("tool", "calls", "failed", "arguments", "results", "")
    return _cut(table(heads, rows, style, text=(0, 5)), style)


def _largest(one: Inspection, style: Style) -> list[str]:
    rows = [
        [
            wording.number(part.place),
            wording.what(part),
            wording.number(part.tokens),
            wording.number(part.chars),
            part.excerpt,
        ]
        for part in one.largest[:LISTED]
    ]
    heads = ("message", "what", "tokens", "characters", "begins")
    return table(heads, rows, style, text=(1, 4), rest=4)


def _foldings(one: Inspection, style: Style) -> list[str]:
    rows = [
        [wording.number(f.place), f.trigger or "–", wording.number(f.tokens_before), wording.number(f.tokens_after)]
        for f in one.foldings
    ]
    return _cut(table(("message", "trigger", "tokens before", "tokens after"), rows, style, text=(1,)), style)


def _findings(one: Inspection, style: Style) -> list[str]:
    lines: list[str] = []
    for finding in one.findings:
        count = f" ({finding.count}x)" if finding.count > 1 else ""
        head = f"{finding.kind}{count}"
        level = style.level(finding.level, f"{finding.level:<7}")
        lines.append(f"  {level}  {style.clip(head, WIDTH - 11)}")
        lines += [
            f"           {style.clip(line, WIDTH - 11)}" for line in (finding.detail, wording.where(finding)) if line
        ]
    return lines


def _cut(lines: list[str], style: Style) -> list[str]:
    more = len(lines) - 1 - 2 * LISTED
    return lines if more <= 0 else [*lines[: 2 * LISTED + 1], style.dim(f"  and {more:,} more")]


class ReplayLines:
    """Tells of a replay: a line every so many turns, and for the last. By default the turns get about a dozen."""

    def __init__(self, say: Callable[[str], None], run_id: str, store_file: str, every: int | None = None) -> None:
        self._say, self._run_id, self._store_file, self._every = say, run_id, store_file, every

    def start(self, done: int, of: int, /) -> None:
        self._every = self._every or max(-(-of // 12), 1)
        stored = f", {done:,} of them stored already" if done else ""
        self._say(f"run {self._run_id} in {self._store_file}: {wording.plural(of, 'turn')}{stored}")
        names = ("turn", "messages", "next request", "", "input so far", "output", "cost")
        self._say("  ".join(map(str.rjust, names, _REPLAY_WIDTHS)) if done < of else "nothing left to do")

    def turn(self, progress: Progress, /) -> None:
        if progress.turn % (self._every or 1) and progress.turn != progress.turns:
            return
        source = "reported" if progress.size.source == "provider" else "estimated"
        has_usage = progress.usage.prompt_tokens or progress.usage.output_tokens
        used = [n if has_usage else None for n in (progress.usage.prompt_tokens, progress.usage.output_tokens)]
        first = map(wording.number, (progress.turn, progress.messages, progress.size.tokens))
        cells = (*first, source, *map(wording.number, used), wording.cost(progress.cost))
        self._say("  ".join(map(str.rjust, cells, _REPLAY_WIDTHS)))


_REPLAY_WIDTHS = (8, 8, 12, 9, 13, 10, 10)
