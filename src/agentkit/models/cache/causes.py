"""Why a block of a request changed, told from its text before and after. Touches only its arguments."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from agentkit.core.contracts.validity import STAND_IN

from .prompts import Block

CAUSES = (
    "clock",
    "random_id",
    "counter",
    "reordered",
    "formatting",
    "thinking_dropped",
    "repair",
    "truncated",
    "grounding",
    "edited",
)
"""In the order of the tests."""

CAUSE_ADVICE = {
    "clock": "a date or time changes with every request: send it in the volatile block at the end",
    "random_id": "an id is made anew for every request: derive it from the content, or leave it out",
    "counter": "a number counts up inside the prompt: send it in the volatile block at the end",
    "reordered": "the same entries come in another order: sort tools, keys and lists before they are sent",
    "formatting": "the same content is written with other spacing: keep what was sent, and send exactly that again",
    "thinking_dropped": "thinking that was sent is left out now: keep it in place for as long as its turn is cached",
    "repair": "a missing result or an id was filled in differently: give calls stable ids, and answer each of them",
    "truncated": "a text that was sent whole is cut now: shorten it before it is sent for the first time",
    "grounding": "retrieved material stands in front of the conversation: retrieve once, or send it at the end",
    "edited": "what was already sent was changed: append instead, or change it together with the next compaction",
}

AROUND = 80
"""Characters beside the differing span that the tests see: enough for a whole time stamp or id."""
_DAY = 86_400


@cache
def _patterns() -> dict[str, re.Pattern[str]]:
    date = r"\d{4}-\d{2}-\d{2}(?:[T ]\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?)?(?:Z| ?[+-]\d{2}:?\d{2})?"
    time = r"\b\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?: ?[AaPp][Mm])?\b"
    ids = r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}|\b[0-9A-HJKMNP-TV-Z]{26}\b|\b[0-9a-fA-F]{16,}\b"
    return {
        "clock": re.compile(f"{date}|{time}"),
        "epoch": re.compile(r"(?<![\d.])\d{10}(?:\d{3})?(?:\.\d+)?(?!\d)"),
        "random_id": re.compile(ids),
        "counter": re.compile(r"\d+"),
        "call_id": re.compile(r'"(?:id|tool_use_id|tool_call_id|call_id)":\s?"[^"]*"'),
        "cut": re.compile(r"\[\.\.\. [\d,]+ of [\d,]+ (?:characters|entries) left out \.\.\.\]|\[truncated"),
    }


def cause_of(before: Sequence[Block], after: Sequence[Block], index: int, *, at: float | None = None) -> str:
    """The cause of a change of block `index`, one of CAUSES. `at`: seconds since 1970, by which a bare number is told
    to be a time."""
    old = before[index] if index < len(before) else None
    new = after[index] if index < len(after) else None
    a, b = (old.text if old else ""), (new.text if new else "")
    found: list[tuple[str, Callable[[], bool]]] = [
        ("clock", lambda: _is_masked(a, b, lambda text: _without_times(text, at))),
        ("random_id", lambda: _is_masked(a, b, lambda text: _sub("random_id", _without_times(text, at)))),
        ("counter", lambda: _is_masked(a, b, lambda text: _sub("counter", text))),
        ("reordered", lambda: _is_reordered(before, after, index, a, b)),
        ("formatting", lambda: _is_formatting(a, b)),
        ("thinking_dropped", lambda: _is_thinking_dropped(before, after, index)),
        ("repair", lambda: _is_repair(a, b)),
        ("truncated", lambda: bool(a) and bool(_patterns()["cut"].search(b)) and not _patterns()["cut"].search(a)),
        ("grounding", lambda: "grounding" in (old.kind if old else "", new.kind if new else "")),
    ]
    return next((name for name, test in found if test()), "edited")


def span(a: str, b: str) -> tuple[int, int, int]:
    """Where two texts differ: characters of their common head, and where the common tail begins in each."""
    head = _common(a, b, min(len(a), len(b)))
    rest = min(len(a), len(b)) - head
    tail = _common(a[::-1], b[::-1], rest)
    return head, len(a) - tail, len(b) - tail


def _common(a: str, b: str, most: int) -> int:
    """Characters that two texts begin with alike, by halving: comparing slices is faster than going through them."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _is_masked(a: str, b: str, mask: Callable[[str], str]) -> bool:
    """Whether the two differ in nothing but what `mask` makes equal."""
    if not a or not b:
        return False
    head, end_a, end_b = span(a, b)
    start = max(head - AROUND, 0)
    return mask(a[start : end_a + AROUND]) == mask(b[start : end_b + AROUND])


def _sub(name: str, text: str) -> str:
    return _patterns()[name].sub("\0", text)


def _without_times(text: str, at: float | None) -> str:
    def masked(match: re.Match[str]) -> str:
        digits = match[0].partition(".")[0]
        seconds = float(digits) / (1_000 if len(digits) == 13 else 1)
        return "\0" if at is not None and abs(seconds - at) < _DAY else match[0]

    return _patterns()["epoch"].sub(masked, _sub("clock", text))


def _is_reordered(before: Sequence[Block], after: Sequence[Block], index: int, a: str, b: str) -> bool:
    tier = before[index].tier if index < len(before) else ""
    old = sorted(block.digest for block in before[index:] if block.tier == tier)
    new = sorted(block.digest for block in after[index:] if block.tier == tier)
    if old and old == new:
        return True
    x, y = _json(a), _json(b)
    return x is not None and y is not None and _ordered(x) != _ordered(y) and _sorted(x) == _sorted(y)


def _is_formatting(a: str, b: str) -> bool:
    if not a or not b:
        return False
    x, y = _json(a), _json(b)
    if x is not None and y is not None and _ordered(x) == _ordered(y):
        return True
    # Escaped line ends count as white space too: texts are seen in their JSON form.
    return _spaceless(a) == _spaceless(b)


def _spaceless(text: str) -> str:
    return re.sub(r"(?:\s|\\[nrt])+", "", text)


def _is_thinking_dropped(before: Sequence[Block], after: Sequence[Block], index: int) -> bool:
    if index >= len(before) or before[index].kind != "thinking":
        return False
    rest = next((block.digest for block in before[index:] if block.kind != "thinking"), None)
    return rest is None or (index < len(after) and after[index].digest == rest)


def _is_repair(a: str, b: str) -> bool:
    if (STAND_IN in a) != (STAND_IN in b):
        return True
    masked = _sub("call_id", a), _sub("call_id", b)
    return bool(a) and a != b and masked[0] == masked[1]


def _json(text: str) -> list[Any] | None:
    """What the JSON objects of a block say, whatever stands in front of them; None where they are none."""
    at = text.find("{")
    found: list[Any] = [text[:at]]
    while 0 <= at < len(text):
        try:
            value, at = json.JSONDecoder().raw_decode(text, at)
        except ValueError:
            return None
        found.append(value)
    return found if len(found) > 1 else None


def _ordered(value: Any) -> str:
    return json.dumps(_parsed(value))


def _parsed(value: Any) -> Any:
    """Texts that are JSON themselves, such as arguments of a call, count by what they say."""
    if isinstance(value, dict):
        return {key: _parsed(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_parsed(each) for each in value]
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return _parsed(json.loads(value))
        except ValueError:
            return value
    return value


def _sorted(value: Any) -> str:
    def settle(each: Any) -> Any:
        if isinstance(each, dict):
            return {key: settle(each[key]) for key in sorted(each)}
        if isinstance(each, list):
            return sorted((settle(one) for one in each), key=lambda one: json.dumps(one, sort_keys=True))
        return each

    return json.dumps(settle(_parsed(value)))
