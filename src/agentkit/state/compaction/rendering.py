"""How a summary is shown to a model. Touches only its arguments; no clock, so the same summary gives the same bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from agentkit.core.contracts.framing import frame
from agentkit.state.context.tokens import char_class_tokens

from .ranges import told
from .summary import Constraint, Item, Summary

TAG = "context-summary"

_ABOUT = (
    "This is a record, made by the runtime, of earlier entries of this conversation. It is no request and nothing in "
    "it has to be answered: requests follow it. Numbers in brackets name entries."
)
_RECALL = " The original entries can be read with the tool `{}`."

_SECTIONS: tuple[tuple[str, str, Callable[[Summary], Iterable[Item]]], ...] = (
    ("goals", "Goals", lambda s: s.goals),
    ("open", "Open", lambda s: s.open),
    ("next", "Next, as last asked for", lambda s: s.next),
    ("decisions", "Decisions", lambda s: s.decisions),
    ("facts", "Facts", lambda s: s.facts),
    ("artifacts", "Files, identifiers, addresses", lambda s: s.artifacts),
    ("errors", "Errors", lambda s: s.errors),
    ("done", "Done", lambda s: s.done),
    ("narrative", "What happened", lambda s: s.narrative),
)


@dataclass(frozen=True)
class Rendered:
    """The text, and how many items of each field found no room in it."""

    text: str
    left_out: dict[str, int] = field(default_factory=dict, hash=False)


def render_summary(
    summary: Summary,
    *,
    context: str | None = None,
    version: int | None = None,
    handled: int | None = None,
    max_tokens: int = 4_096,
    rule_tokens: int | None = None,
    recall: str | None = None,
    count: Callable[[str], int] = char_class_tokens,
) -> Rendered:
    """`summary` in a frame that says what it is, constraints first, with a receipt of what it holds.

    `handled`: the last entry whose request was answered. `max_tokens` bounds everything but the constraints: the items
    that rest on the oldest entries stay out. `rule_tokens` bounds the constraints, newest first, None for no bound.
    `recall`: the tool that reads original entries.
    """
    rules = _newest([(rule.n, _rule(rule)) for rule in summary.rules], rule_tokens, count)
    lines = [(item.n, name, _line(item)) for name, _, items in _SECTIONS for item in items(summary)]
    room = max(max_tokens - count(_ABOUT) - 64, 0)
    shown = _newest([(n, line) for n, _, line in lines], room, count)
    parts = [_ABOUT + (_RECALL.format(recall) if recall else "")]
    if rules:
        told_rules = [line for at, line in enumerate(map(_rule, summary.rules)) if at in rules]
        parts.append("\n".join(["Constraints, in the user's words:", *told_rules]))
    left_out = {"constraints": len(summary.rules) - len(rules)}
    for name, title, _ in _SECTIONS:
        own = [(at, line) for at, (_, field_name, line) in enumerate(lines) if field_name == name]
        kept = [line for at, line in own if at in shown]
        left_out[name] = len(own) - len(kept)
        if kept:
            parts.append("\n".join([f"{title}:", *kept]))
    left_out = {name: number for name, number in left_out.items() if number}
    parts.append(_receipt(summary, left_out, recall))
    if handled is not None:
        parts.append(f"Everything asked for up to entry {handled} has been handled.")
    text = frame(TAG, "\n\n".join(parts), context=context, version=version, covers=told(summary.covers) or None)
    return Rendered(text, left_out)


def _newest(lines: list[tuple[int, str]], room: int | None, count: Callable[[str], int]) -> set[int]:
    """The places of the lines that fit into `room` tokens, those of the newest entries first."""
    if room is None:
        return set(range(len(lines)))
    kept: set[int] = set()
    for at in sorted(range(len(lines)), key=lambda at: (-lines[at][0], at)):
        room -= count(lines[at][1]) + 1
        if room < 0:
            break
        kept.add(at)
    return kept


def _rule(rule: Constraint) -> str:
    return f"- [{rule.entry}] {rule.text}"


def _line(item: Item) -> str:
    texts = [getattr(item, name) for name in ("text", "what", "id") if hasattr(item, name)]
    more = [getattr(item, name) for name in ("why", "fix") if getattr(item, name, "")]
    return f"- [{item.n}] " + " - ".join([*texts, *more])


def _receipt(summary: Summary, left_out: dict[str, int], recall: str | None) -> str:
    lifted = len(summary.constraints) - len(summary.rules)
    held = [f"{len(summary.rules)} constraints{f' and {lifted} lifted' if lifted else ''}"]
    held += [f"{number} {name}" for name, _, items in _SECTIONS if (number := len(tuple(items(summary))))]
    text = f"This record holds {', '.join(held)}."
    if left_out:
        text += f" Not shown for want of room: {', '.join(f'{count} {name}' for name, count in left_out.items())}"
        text += f"; `{recall}` finds them." if recall else "."
    return text
