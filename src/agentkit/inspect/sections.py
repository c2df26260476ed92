"""The parts of the page: key figures, places for plots, tables. Touches only its arguments; all text goes through
`markup`."""

from __future__ import annotations

from collections.abc import Sequence

from agentkit.core.contracts.usage import Usage

from . import wording
from .cache_sections import cache_parts
from .markup import Html, tag
from .parts import build_table, numbers, plot
from .values import Finding, Inspection, Response

OPEN_CONVERSATIONS = 3
"""Up to so many conversations are shown unfolded."""


def overview(inspections: Sequence[Inspection]) -> Html:
    """All conversations with their figures; each name leads to its section."""
    several_files = len({one.source for one in inspections}) > 1
    rows = []
    for at, one in enumerate(inspections):
        file = _below(one.source) if several_files else None
        largest = wording.prompt_tokens(one)
        rows.append(
            tag(
                "tr",
                tag("th", tag("a", tag("bdi", wording.name(one)), href=f"#c{at}"), file, scope="row"),
                *numbers(one.messages, len(one.responses), one.calls, one.tokens, largest[0] if largest else None),
                tag("td", wording.cost(one.cost), class_="number"),
            )
        )
    heads = ("Conversation", "Messages", "Responses", "Calls", "Tokens", "Largest request", "Cost")
    table = build_table("Figures of each conversation. Tokens are estimates of the whole record.", heads, rows)
    return tag("section", tag("h2", "Conversations"), table)


def conversation(one: Inspection, *, at: int, level: int = 2) -> list[Html]:
    """Everything about one conversation. `at`: its place in the block of plot data; `level`: of its headings."""
    parts: list[tuple[str, list[Html]]] = []
    if one.responses:
        parts.append(("Context size", _context_plot(one, at)))
    if any(response.usage is not None for response in one.responses):
        parts += [("Usage per response", _usage_plot(one, at)), ("Cost", _cost_plot(one, at))]
    if cache := cache_parts(one, at):
        parts.append(("Prompt cache", cache))
    if one.foldings:
        parts.append(("Compactions", [_foldings(one)]))
    parts += [("Tokens by role and kind", _roles(one)), ("Tokens by tool", [_tools(one)])]
    if one.largest:
        parts.append(("Largest parts", [_largest(one)]))
    parts.append(("Findings", [_findings(one)]))
    sections = [tag("section", tag(f"h{level}", title), *content, class_=_HALF.get(title)) for title, content in parts]
    table = [_responses(one)] if one.responses else []
    return [figures(one), tag("div", *sections, class_="sections"), *table]


_HALF = dict.fromkeys(("Usage per response", "Cost", "Tokens by role and kind", "Tokens by tool"), "half")
"""Sections that stand side by side where there is room."""


def figures(one: Inspection) -> Html:
    """The key figures of one conversation."""
    return tag(
        "dl",
        *(
            tag(
                "div",
                tag("dt", name),
                tag("dd", value, class_="value"),
                tag("dd", more, class_="more") if more else None,
            )
            for name, value, more in wording.figures(one)
        ),
        class_="figures",
    )


# -- plots -------------------------------------------------------------------------------------------------------------


def _context_plot(one: Inspection, at: int) -> list[Html]:
    last = one.responses[-1]
    ends = last.reported if last.reported is not None else last.estimate.total if last.estimate else None
    reading = "What each request carried, by segment."
    if any(response.reported is not None for response in one.responses):
        reading += " The line is what the provider reported; segments are estimates, scaled by how far they were off."
    else:
        reading += " The provider's figures were not recorded, so all of it is estimated."
    text = (
        f"Context size over {wording.plural(len(one.responses), 'response')}, ending at {wording.number(ends)} tokens."
    )
    accuracy = wording.accuracy(one)
    return [plot("context", at, reading, text), *([tag("p", accuracy, class_="hint")] if accuracy else [])]


def _usage_plot(one: Inspection, at: int) -> list[Html]:
    usage = one.usage or Usage()
    text = (
        f"Tokens billed per response. In all {usage.input_tokens:,} fresh, {usage.cache_read_tokens:,} read from "
        f"cache, {usage.cache_write_tokens:,} written to it, {usage.output_tokens:,} output."
    )
    return [plot("usage", at, "Tokens by the way they are billed, as reported.", text)]


def _cost_plot(one: Inspection, at: int) -> list[Html]:
    note = wording.cost_note(one.cost)
    if one.cost.usd is None:
        return [tag("p", f"Unknown: {note}.", class_="hint")]
    text = f"Cost summed up over the responses: {wording.cost(one.cost)}."
    return [plot("cost", at, f"Summed up over the responses, at list prices. {note}".strip(), text)]


# -- tables ------------------------------------------------------------------------------------------------------------


def _roles(one: Inspection) -> list[Html]:
    most = max((share.tokens for share in one.roles), default=0)
    rows = [_share_row(share.name, share.count, share.tokens, one.tokens, most) for share in one.roles]
    if one.tool_schema_tokens:
        rows.append(_share_row("tool schemas", None, one.tool_schema_tokens, one.tokens, most))
    by_role = build_table(
        "By role, in estimated tokens of the whole record.", ("Role", "Messages", "Tokens", "Share", ""), rows
    )
    top = max((share.tokens for share in one.kinds), default=0)
    kinds = [_share_row(wording.KINDS.get(s.name, s.name), s.count, s.tokens, one.tokens, top) for s in one.kinds]
    by_kind = build_table("By kind of content.", ("Kind", "Parts", "Tokens", "Share", ""), kinds)
    return [by_role, by_kind]


def _share_row(name: str, count: int | None, tokens: int, whole: int, most: int) -> Html:
    cells = [*numbers(count, tokens), tag("td", wording.share(tokens, whole), class_="number")]
    return tag("tr", tag("th", tag("bdi", name), scope="row"), *cells, tag("td", _meter(most, tokens), class_="bar"))


def _tools(one: Inspection) -> Html:
    if not one.tools:
        return tag("p", "No tool was called.", class_="hint")
    most = max(tool.tokens for tool in one.tools)
    rows = [
        tag(
            "tr",
            tag("th", tag("bdi", tool.name), scope="row"),
            *numbers(tool.calls, tool.errors, tool.argument_tokens, tool.result_tokens),
            tag("td", _meter(most, tool.argument_tokens, tool.result_tokens), class_="bar"),
        )
        for tool in one.tools
    ]
    legend = tag(
        "span", tag("span", class_="key"), "arguments", tag("span", class_="key second"), "results", class_="wide"
    )
    caption = ["Estimated tokens of arguments and results. ", legend]
    return build_table(caption, ("Tool", "Calls", "Failed", "Arguments", "Results", ""), rows)


def _largest(one: Inspection) -> Html:
    rows = [
        tag(
            "tr",
            tag("td", part.place, class_="number"),
            tag("th", tag("bdi", wording.what(part)), _below(part.excerpt, "excerpt"), scope="row"),
            *numbers(part.tokens),
            tag("td", wording.number(part.chars), class_="number wide"),
        )
        for part in one.largest
    ]
    caption = "Where single pieces of content take the most, with their beginnings. Tokens are estimates."
    return build_table(caption, ("Message", "What", "Tokens", "Characters"), rows)


def _foldings(one: Inspection) -> Html:
    rows = [
        tag(
            "tr",
            *numbers(f.place),
            tag("th", tag("bdi", f.trigger or "–"), scope="row"),
            *numbers(f.tokens_before, f.tokens_after),
        )
        for f in one.foldings
    ]
    return build_table(
        "As the recording client noted them.", ("Message", "Trigger", "Tokens before", "Tokens after"), rows
    )


def _findings(one: Inspection) -> Html:
    if not one.findings:
        return tag("p", "The file was read without a remark, and the next request is valid.", class_="hint")
    caption = "What the importer noted, and what the validity check finds in the next request."
    return build_table(caption, ("Level", "What", "Count"), map(_finding_row, one.findings))


def _finding_row(finding: Finding) -> Html:
    return tag(
        "tr",
        tag("td", finding.level, class_=f"level {finding.level}"),
        tag("th", tag("bdi", finding.kind), _below(finding.detail), _below(wording.where(finding)), scope="row"),
        *numbers(finding.count),
    )


def _below(text: str, class_: str = "") -> Html | None:
    """A second, quieter line in a cell."""
    return tag("span", tag("bdi", text), class_=f"below {class_}".strip()) if text else None


def _responses(one: Inspection) -> Html:
    heads = (
        "Response",
        "Message",
        "Time",
        "Model",
        "Estimated",
        "Reported",
        "Fresh",
        "Read",
        "Written",
        "Output",
        "Cost",
    )
    table = build_table(
        "Each response: its request in tokens, what was billed, and its cost.", heads, map(_response_row, one.responses)
    )
    return tag("details", tag("summary", "All responses as a table"), table)


def _response_row(response: Response) -> Html:
    usage = response.usage
    billed = (
        (usage.input_tokens, usage.cache_read_tokens, usage.cache_write_tokens, usage.output_tokens)
        if usage
        else (None,) * 4
    )
    return tag(
        "tr",
        tag("th", response.number, scope="row", class_="number"),
        *numbers(response.place),
        tag("td", wording.clock(response.time), class_="whole"),
        tag("td", tag("bdi", response.model or "–"), class_="whole"),
        *numbers(response.estimate.total if response.estimate else None, response.reported, *billed),
        tag("td", wording.cost(response.cost) if usage else "–", class_="number"),
    )


# -- building blocks ---------------------------------------------------------------------------------------------------


def _meter(most: int, *values: int) -> Html | None:
    """Bars on one line, as wide as `most` in all. Widths are attributes of shapes, since a policy without inline styles
    admits no others."""
    if most <= 0:
        return None
    shapes: list[Html] = []
    left = 0.0
    for number, value in enumerate(values):
        width = 100 * value / most
        shapes.append(
            tag("rect", x=f"{left:.2f}%", width=f"{width:.2f}%", height="100%", class_="second" if number else None)
        )
        left += width
    return tag("svg", *shapes, class_="meter", aria_hidden="true")
