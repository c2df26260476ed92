"""What a summary may claim: its constraints and quotes are held against the entries it was made of. Touches only its
arguments.

A summariser reads text by anybody. So a rule counts as the user's only where a user's entry has it word for word, and
words that nobody wrote are taken out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from agentkit.core.contracts.blocks import DocumentBlock, ImageBlock, NativeBlock, TextBlock
from agentkit.core.contracts.errors import FormatError
from agentkit.core.contracts.messages import Message, ToolCall

from .ranges import Ranges, within
from .summary import DONE, NEXT, OPEN, TEXT_LIMIT, Constraint, Piece, Point, Summary

SPEAKERS = ("user", "operator", "assistant", "tool", "note")
PRINCIPALS = frozenset({"user", "operator"})
"""Whose words can be rules."""

SHORTEST_QUOTE = 12
"""Characters from which quoted text is looked up: shorter ones are names and emphasis."""
LEFT_OUT = "[quote not in the record]"


@dataclass(frozen=True)
class Source:
    """One entry as a summariser sees it: its number, who speaks (one of SPEAKERS), its text. `is_error`: a result that
    reports a failure."""

    n: int
    speaker: str
    text: str
    is_error: bool = False

    def __post_init__(self) -> None:
        if self.speaker not in SPEAKERS:
            raise ValueError(f"speaker must be one of {', '.join(SPEAKERS)}, not {self.speaker!r}")


@dataclass(frozen=True)
class Checked:
    """A summary with only what its sources bear out, and for each thing that went the field and the reason."""

    summary: Summary
    dropped: tuple[tuple[str, str], ...] = ()


def source_of(n: int, message: Message, *, speaker: str | None = None) -> Source:
    """The entry that a message stands for. Calls are told by name and arguments, pictures and files by kind: never by
    their encoded bytes. `speaker` None: by role, system text being the operator's."""
    roles = {"user": "user", "system": "operator", "developer": "operator", "tool": "tool", "assistant": "assistant"}
    parts = [told for item in message.ordered if (told := _told(item))]
    return Source(n, speaker or roles.get(message.role, "note"), "\n".join(parts), message.is_error)


def _told(item: Any) -> str:
    if isinstance(item, TextBlock):
        return item.text
    if isinstance(item, ToolCall):
        return f"[call {item.name} {item.wire_arguments}]"
    if isinstance(item, ImageBlock):
        return f"[image {_address(item.source)}]"
    if isinstance(item, DocumentBlock):
        return f"[document {item.title or _address(item.source)}]"
    return f"[{item.provider} block]" if isinstance(item, NativeBlock) else ""


def _address(source: bytes | str) -> str:
    return source if isinstance(source, str) else f"of {len(source):,} bytes"


def checked(delta: Summary, sources: Iterable[Source], *, old: Summary | None = None) -> Checked:
    """`delta` held against the entries that it covers. `old`: the summary that it is going to be merged into.

    - A constraint stands word for word in a user's or operator's entry, and is then kept in that entry's own spelling.
      What only others wrote is dropped; what nobody wrote becomes a fact, in the summariser's words.
    - It is lifted only by a user's or operator's entry that is covered and comes after it.
    - Quoted words of SHORTEST_QUOTE characters or more that no entry has, or that are put into the user's mouth and no
      user wrote, are taken out.
    """
    by_number = {source.n: source for source in sources}
    dropped: list[tuple[str, str]] = []
    rules: list[Constraint] = []
    facts: list[Point] = list(delta.facts)
    for rule in sorted(delta.constraints, key=lambda rule: (rule.lifted_by is not None, rule.entry)):
        if rule.lifted_by is not None:
            lifted = _lifted(rule, by_number, [*rules, *(old.constraints if old else ())])
            if lifted is None:
                dropped.append(("constraints", "lifted without a later entry of the user"))
            else:
                rules.append(lifted)
            continue
        origin = _origin(rule.text, by_number, rule.entry)
        if origin is not None:
            rules.append(Constraint(origin[1], origin[0], origin[0]))
        elif old is not None and rule.key in {known.key for known in old.constraints}:
            continue
        elif any(find(rule.text, source.text) is not None for source in by_number.values()):
            dropped.append(("constraints", "not the user's words"))
        else:
            facts.append(Point(rule.text, rule.n))
            dropped.append(("constraints", "no entry has these words: kept as a fact"))
    lined = replace(delta, constraints=tuple(rules), facts=tuple(facts))
    return Checked(_without_false_quotes(lined, by_number, dropped), tuple(dropped))


def find(words: str, text: str) -> str | None:
    """The place in `text` that has these words, as it is written there: white space may differ, nothing else."""
    wanted = words[:-1] if len(words) == TEXT_LIMIT and words.endswith("…") else words
    if not wanted.strip():
        return None
    if wanted in text:
        return wanted
    pattern = r"\s+".join(re.escape(word) for word in wanted.split())
    found = re.search(pattern, text)
    return None if found is None else found[0]


def _origin(words: str, by_number: Mapping[int, Source], named: int) -> tuple[int, str] | None:
    """The principal's entry that has these words, and its spelling: the one named, else the newest."""
    first = by_number.get(named)
    if first is not None and first.speaker in PRINCIPALS and (spelling := find(words, first.text)) is not None:
        return first.n, spelling
    for n in sorted(by_number, reverse=True):
        source = by_number[n]
        if source.speaker in PRINCIPALS and (spelling := find(words, source.text)) is not None:
            return source.n, spelling
    return None


def _lifted(rule: Constraint, by_number: Mapping[int, Source], known: Iterable[Constraint]) -> Constraint | None:
    by = rule.lifted_by
    speaker = by_number.get(by) if by is not None else None
    if by is None or speaker is None or speaker.speaker not in PRINCIPALS:
        return None
    same = [other for other in known if other.key == rule.key]
    if not same and (origin := _origin(rule.text, by_number, rule.entry)) is not None:
        same = [Constraint(origin[1], origin[0])]  # made and taken back within these entries
    if not same or any(other.entry >= by for other in same):
        return None
    return replace(same[0], n=by, lifted_by=by)


_QUOTES = re.compile(r'"([^"\n]*)"|“([^”\n]*)”|„([^“”\n]*)[“”]|«([^»\n]*)»|「([^」\n]*)」')
_ASCRIBED = re.compile(r"\b(?:user|operator|human|customer|client)\b[^.\n]{0,60}$", re.IGNORECASE)


def _without_false_quotes(summary: Summary, by_number: Mapping[int, Source], dropped: list[tuple[str, str]]) -> Summary:
    everyone = [source.text for source in by_number.values()]
    principals = [source.text for source in by_number.values() if source.speaker in PRINCIPALS]

    def true(match: re.Match[str]) -> bool:
        quote = next((group for group in match.groups() if group is not None), "")
        if len(quote) < SHORTEST_QUOTE:
            return True
        ascribed = _ASCRIBED.search(match.string[: match.start()]) is not None
        return any(find(quote, text) is not None for text in (principals if ascribed else everyone))

    def cleaned(text: str) -> str:
        return _QUOTES.sub(lambda match: match[0] if true(match) else LEFT_OUT, text)

    changes: dict[str, Any] = {}
    for field in fields(summary):
        # A constraint is the user's own spelling, and an id is exact or nothing.
        names = {"goals": ["text"], "facts": ["text"], "decisions": ["what", "why"], "artifacts": ["why"],
                 "errors": ["what", "fix"], "steps": ["text"], "narrative": ["text"]}.get(field.name)  # fmt: skip
        if names is None:
            continue
        items = []
        for item in getattr(summary, field.name):
            made = {name: cleaned(getattr(item, name)) for name in names}
            told = any(made[name] != getattr(item, name) for name in names)
            if told:
                dropped.append((field.name, "a quote that is not in the record"))
            items.append(replace(item, **made) if told else item)
        changes[field.name] = tuple(items)
    return replace(summary, **changes)


def delta_of(answer: Mapping[str, Any], covers: Ranges) -> Summary:
    """The summary in a model's answer about the entries `covers` (DELTA_SCHEMA). An item that cites no entry, or one
    that is not covered, rests on the last. Raises FormatError for another shape."""
    last = covers[-1][1] if covers else 0

    def cited(raw: Any) -> Any:
        if not isinstance(raw, Mapping):
            return raw
        n = raw.get("n")
        return {**raw, "n": n if type(n) is int and within(covers, n) else last}

    data: dict[str, Any] = {"covers": covers}

    def listed(name: str) -> list[Any]:
        found = answer.get(name) or []
        if not isinstance(found, list):
            raise FormatError(f"{name} must be a list, not {type(found).__name__}")
        return [cited(raw) for raw in found]

    for name in ("goals", "facts", "decisions", "artifacts", "errors", "constraints"):
        data[name] = listed(name)
    data["steps"] = [
        {**raw, "status": status} if isinstance(raw, Mapping) else raw
        for status in (OPEN, NEXT, DONE)
        for raw in listed(status)
    ]
    story = answer.get("narrative") or ""
    if not isinstance(story, str):
        raise FormatError(f"narrative must be a text, not {type(story).__name__}")
    made = Summary.from_dict(data)
    return replace(made, narrative=(Piece(story, covers, last),)) if story.strip() else made


def _items(*names: str) -> dict[str, Any]:
    properties: dict[str, Any] = {name: {"type": "string"} for name in names}
    properties["n"] = {"type": "integer"}
    return {
        "type": "array",
        "items": {"type": "object", "properties": properties, "required": [names[0]], "additionalProperties": False},
    }


def _rules() -> dict[str, Any]:
    rules = _items("text")
    rules["items"]["properties"] |= {"entry": {"type": "integer"}, "lifted_by": {"type": ["integer", "null"]}}
    rules["items"]["required"] = ["text", "entry"]
    return rules


DELTA_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "goals": _items("text"),
        "constraints": _rules(),
        "decisions": _items("what", "why"),
        "facts": _items("text"),
        "artifacts": _items("id", "why"),
        "errors": _items("what", "fix"),
        "open": _items("text"),
        "next": _items("text"),
        "done": _items("text"),
        "narrative": {"type": "string"},
    },
    "additionalProperties": False,
}
"""What a summarising call has to answer with."""
