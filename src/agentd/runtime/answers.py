"""Questions to people and the answers that fit them. Touches only its arguments."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from agentd.context.record import DataPart, Part, TextPart
from agentkit.core.contracts.jsontext import wire_json

from .checking import Checker
from .waits import Wait

MOST_SHOWN = 2_000
"""Characters of a call's arguments that whoever is to approve it is shown."""
YES, NO = frozenset({"yes", "y", "approve", "approved", "ok"}), frozenset({"no", "n", "deny", "denied", "refuse"})
APPROVAL = {
    "type": "object",
    "properties": {"approved": {"type": "boolean"}, "reason": {"type": "string"}},
    "required": ["approved"],
}
"""What the answer to a question for approval is, as data."""


class Unfitting(ValueError):
    """The answer is none to this question; says which one would be."""


def fitting(wait: Wait, parts: Sequence[Part]) -> Any:
    """The answer that a message gives: the data of its only part, else its text; None if it declines.
    Unfitting where the question has options or a schema that it does not meet. Text is read as JSON only where the
    schema refuses it as text."""
    if len(parts) == 1 and isinstance(parts[0], (DataPart, msgspec.Raw)):
        return _fits(wait, _data(parts[0]), None)
    others = [part for part in parts if not isinstance(part, TextPart)]
    if others:
        raise Unfitting(f"an answer is text, or one part with data; {expected(wait)}")
    text = "\n".join(part.text for part in parts if isinstance(part, TextPart)).strip()
    if not text:
        raise Unfitting(f"an empty message answers nothing; {expected(wait)}")
    return _fits(wait, text, text)


def expected(wait: Wait) -> str:
    """What would be an answer."""
    if wait.kind == "approval":
        return "it takes yes, or no and a reason behind it"
    if wait.options:
        return "it takes one of " + ", ".join(repr(option) for option in wait.options)
    if wait.schema is not None:
        or_no = ", or no" if wait.may_decline else ""
        return f"it takes what this JSON Schema describes{or_no}: {wire_json(wait.schema)}"
    return "it takes any text"


def _fits(wait: Wait, value: Any, text: str | None) -> Any:
    if wait.kind == "approval":
        return _approval(wait, value, text)
    if wait.options:
        if value not in wait.options:
            raise Unfitting(f"{_shown(value)} is none of the options; {expected(wait)}")
        return value
    if wait.schema is None:
        return value
    if wait.may_decline and text is not None and _word(text) in NO:
        return None
    checker = Checker(wait.schema, what="the schema of the question")
    fault = checker.fault(value, of="the answer")
    if fault is not None and text is not None:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            pass
        else:
            fault = checker.fault(value, of="the answer")
    if fault is not None:
        raise Unfitting(f"{fault}; {expected(wait)}")
    return value


def _approval(wait: Wait, value: Any, text: str | None) -> dict[str, Any]:
    if text is not None:
        word, _, reason = text.replace(",", " ").replace(":", " ").partition(" ")
        if _word(word) in YES | NO:
            return {"approved": _word(word) in YES, "reason": reason.strip()}
    elif isinstance(value, dict) and type(value.get("approved")) is bool:
        return {"approved": value["approved"], "reason": str(value.get("reason", ""))}
    raise Unfitting(f"{_shown(value)} is no answer to a question for approval; {expected(wait)}")


def _word(text: str) -> str:
    return text.strip(".!").lower()


def approving(tool: str, arguments: dict[str, Any]) -> str:
    """The question whether a call may be made."""
    shown = json.dumps(arguments, ensure_ascii=False, indent=2)
    if len(shown) > MOST_SHOWN:
        shown = f"{shown[:MOST_SHOWN]}\n... and {len(shown) - MOST_SHOWN} characters more"
    return f"May {tool} be run with these arguments?\n{shown}"


def _data(part: Any) -> Any:
    return msgspec.json.decode(bytes(part)) if isinstance(part, msgspec.Raw) else part.data


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:79]}…"
