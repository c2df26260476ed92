"""Figures as people read them, the same in the terminal and in the page. Touches only its arguments."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from .values import Cost, Finding, Inspection, Part

KINDS = {
    "text": "text",
    "thinking": "thinking",
    "call": "tool calls",
    "result": "tool results",
    "image": "images",
    "document": "documents",
    "native": "provider blocks",
    "overhead": "roles, names, ids",
}
"""What a report calls the kinds of content."""

COUNTERS = {"approx": "characters / 4", "char-class": "character classes"}

_REASONS = {
    "unknown_model": "no price for this model",
    "no_usage": "no usage recorded",
    "totals_only": "only totals recorded, and a price depends on each request",
}


def number(value: int | None) -> str:
    """A count with thousands separators; a dash for what is not known."""
    return "–" if value is None else f"{value:,}"


def share(part: int, whole: int) -> str:
    """A part of a whole in percent; a dash of nothing."""
    if whole <= 0:
        return "–"
    percent = 100 * part / whole
    if 0 < percent < 1:
        return "< 1 %"
    return "> 99 %" if 99 < percent < 100 else f"{percent:.0f} %"


def of_window(tokens: int, window: int | None) -> str:
    """A request beside the window of its model."""
    if window is None:
        return "window not known"
    if tokens > window:
        return f"beyond the catalogue's window of {window:,}"
    return f"{share(tokens, window)} of the window of {window:,}"


def usd(value: Decimal | None) -> str:
    """Dollars, with as many places as small sums need; `unknown` for None."""
    if value is None:
        return "unknown"
    if value == 0 or value >= Decimal("0.995"):
        return f"${value:,.2f}"
    places = 1 - value.adjusted()
    return f"${value:.{min(max(places, 2), 8)}f}"


def cost(value: Cost) -> str:
    """A sum of prices, never 0 for want of one."""
    if value.usd is None or value.is_known:
        return usd(value.usd)
    return f"at least {usd(value.usd)}"


def cost_note(value: Cost) -> str:
    """Why a cost is not known, or not all of it; empty when it is."""
    if value.is_known:
        return ""
    reasons = ", ".join(dict.fromkeys(_reason(reason) for reason in value.reasons))
    if value.responses and value.priced:
        return f"{value.responses - value.priced} of {value.responses} responses without a price: {reasons}"
    return reasons


def _reason(reason: str) -> str:
    kind, _, what = reason.partition(":")
    if kind == "no_rate":
        return "no rate for " + what.replace("_tokens", "").replace("_", " ").replace(",", " and ")
    if kind == "no_mode":
        return f"no price for mode {what}"
    return _REASONS.get(reason, reason)


def counter(key: str) -> str:
    """What counted, in words."""
    return COUNTERS.get(key, key.replace("tiktoken:", "tiktoken "))


def what(part: Part) -> str:
    """What a part is: `result of Bash`, `call of Edit`, `text`."""
    if part.tool is not None:
        return f"{'call' if part.kind == 'call' else part.kind} of {part.tool}"
    return "provider block" if part.kind == "native" else part.kind


def where(finding: Finding) -> str:
    """The places of a finding: the first few, and how many more."""
    more = finding.count - len(finding.places)
    return ", ".join(finding.places) + (f" and {more:,} more" if more > 0 and finding.places else "")


def name(inspection: Inspection) -> str:
    """A conversation among those of its file: its title, or its number."""
    return inspection.title or f"conversation {inspection.number}"


def about(one: Inspection, *, with_source: bool = False) -> str:
    """One line on what was recorded: format, models, time."""
    source = one.source if with_source else ""
    return " · ".join(filter(None, (source, one.format, ", ".join(one.models), span(one))))


def span(inspection: Inspection) -> str:
    """When it was recorded, as far as the file says."""
    began, ended = (_minute(time) for time in (inspection.began, inspection.ended))
    if not began or not ended:
        return ""
    if began == ended:
        return began
    same_day = began[:10] == ended[:10]
    return f"{began} to {ended[11:] if same_day else ended}"


def clock(time: str | None) -> str:
    """Date and time of day to the second; empty where none was recorded."""
    return time[:19].replace("T", " ") if time else ""


def plural(count: int, thing: str) -> str:
    """`1 response`, `2 responses`."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def _minute(time: str | None) -> str:
    return time[:16].replace("T", " ") if time else ""


def prompt_tokens(inspection: Inspection) -> tuple[int, str] | None:
    """The largest request of a conversation and where the figure is from; None without a response."""
    reported = [response.reported for response in inspection.responses if response.reported is not None]
    if reported:
        return max(reported), "reported"
    estimated = [response.estimate.total for response in inspection.responses if response.estimate is not None]
    return (max(estimated), "estimated") if estimated else None


def total_cost(inspections: Sequence[Inspection]) -> str:
    """The cost of several conversations together; one whose cost is not known makes it a lower bound."""
    total = sum((one.cost for one in inspections), Cost())
    is_whole = all(one.cost.is_known for one in inspections)
    return cost(total) if is_whole or not total.is_known else f"at least {usd(total.usd)}"


def figures(one: Inspection) -> list[tuple[str, str, str]]:
    """The key figures of a conversation: name, figure, and what to know about it."""
    failed = f"{one.errors:,} failed" if one.errors else "none failed" if one.calls else ""
    entries = [
        ("Messages", number(one.messages), plural(one.user_turns, "user turn")),
        ("Responses", number(len(one.responses)), ""),
        ("Tool calls", number(one.calls), failed),
        ("Tokens in the record", number(one.tokens), "estimated"),
    ]
    largest = prompt_tokens(one)
    if largest:
        entries.append(("Largest request", number(largest[0]), f"{largest[1]}, {of_window(largest[0], one.window)}"))
    if one.usage is not None:
        read = share(one.usage.cache_read_tokens, one.usage.prompt_tokens)
        entries.append(("Input processed", number(one.usage.prompt_tokens), f"{read} read from cache"))
        entries.append(("Output", number(one.usage.output_tokens), "tokens"))
    notes = [cost_note(one.cost)]
    if one.recorded_usd is not None:
        notes.append(f"{usd(one.recorded_usd)} by the file's own account")
    return [*entries, ("Cost", cost(one.cost), "; ".join(filter(None, notes)))]


def accuracy(inspection: Inspection) -> str:
    """How the estimate compares with what the provider reported; empty where nothing can be compared."""
    found = inspection.accuracy
    if found.error is None:
        return ""
    off = f"{abs(found.error):.0%}".replace("%", " %")
    direction = "above" if found.error > 0 else "below"
    text = (
        f"From one request to the next {number(found.reported)} tokens came in by the provider's report and "
        f"{number(found.estimated)} by the estimate, which is {off} {direction}."
    )
    if found.unseen:
        text += f" Some {number(found.unseen)} tokens of the first request are not in the file."
    return text
