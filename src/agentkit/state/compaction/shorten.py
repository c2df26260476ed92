"""How one message is made shorter without saying something else. Touches only its arguments."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from agentkit.core.contracts.counting import TokenCounter
from agentkit.core.contracts.jsontext import json_text
from agentkit.core.contracts.messages import Message, marked
from agentkit.core.contracts.tokens import measure

_JOINER, _KEYCAP = "\u200d", "\u20e3"
_VARIATIONS = range(0xFE00, 0xFE10)
_TONES = range(0x1F3FB, 0x1F400)
_FLAGS = range(0x1F1E6, 0x1F200)
LONGEST_CHARACTER = 64
"""Code points after which a cut no longer looks for the start of a character: text that is one endless cluster."""


def clamp(text: str, max_chars: int) -> str:
    """`text` within about `max_chars` characters: its head, its tail, and in between how long it really is.

    Three quarters go to the head. No character is split: neither a surrogate pair nor a letter from its accents, an
    emoji from its parts, a flag from its half. The same object when it fits. ValueError for `max_chars` below 0.
    """
    if type(max_chars) is not int:
        raise TypeError(f"max_chars must be an int, not {type(max_chars).__name__}")
    if max_chars < 0:
        raise ValueError(f"max_chars must not be negative: {max_chars}")
    if len(text) <= max_chars:
        return text
    head = _back_to_boundary(text, max_chars - max_chars // 4)
    tail = _on_to_boundary(text, len(text) - max_chars // 4)
    notice = f"[... {tail - head:,} of {len(text):,} characters left out ...]"
    return "\n".join(part for part in (text[:head], notice, text[tail:]) if part)


def shortened(text: str, limit: int) -> str:
    """`text` within `limit` characters, its end replaced by `…` and no character split; the same object when it fits.
    Shortening a shortened text again changes nothing."""
    return text if len(text) <= limit else text[: _back_to_boundary(text, limit - 1)] + "…"


def _back_to_boundary(text: str, at: int) -> int:
    for back in range(LONGEST_CHARACTER):
        if at - back <= 0:
            return 0
        if not _inside_character(text, at - back):
            return at - back
    return at


def _on_to_boundary(text: str, at: int) -> int:
    for on in range(LONGEST_CHARACTER):
        if at + on >= len(text):
            return len(text)
        if not _inside_character(text, at + on):
            return at + on
    return at


def _inside_character(text: str, at: int) -> bool:
    """Whether a cut at `at` would part what a reader sees as one character."""
    before, after = text[at - 1], text[at]
    code = ord(after)
    if "\ud800" <= before <= "\udbff" and "\udc00" <= after <= "\udfff":
        return True
    if before == _JOINER or after in (_JOINER, _KEYCAP) or code in _VARIATIONS or code in _TONES:
        return True
    if code in _FLAGS and ord(before) in _FLAGS:
        run = at
        while run > 0 and at - run < LONGEST_CHARACTER and ord(text[run - 1]) in _FLAGS:
            run -= 1
        return (at - run) % 2 == 1
    return (
        (before == "\r" and after == "\n") or unicodedata.combining(after) != 0 or unicodedata.category(after) == "Mc"
    )


def is_cleared(message: Message) -> bool:
    """Whether `clear_result` made this message."""
    return message.role == "tool" and message.content.startswith(CLEARED)


CLEARED = "[result cleared:"


def clear_result(message: Message, *, counter: TokenCounter | None = None) -> Message:
    """A tool result with a plain notice in place of its content; its call stays answered: id, name, error flag."""
    size = measure([message], counter)
    return Message(
        message.role,
        f"{CLEARED} {size:,} tokens; run the tool again to see it]",
        message.name,
        message.tool_call_id,
        is_error=message.is_error,
        meta=message.meta,
    )


def clearable(
    messages: Sequence[Message], *, keep_rounds: int, exempt: frozenset[str], counter: TokenCounter | None = None
) -> list[tuple[int, int]]:
    """(gain in tokens, index) of results that may be cleared, largest gain first.

    Spared are the last `keep_rounds` rounds, errors, pins, interim results, tools in `exempt`, and whatever would not
    become smaller.
    """
    starts = [
        i for i, m in enumerate(messages) if m.role == "assistant" and (i == 0 or messages[i - 1].role != "assistant")
    ]
    border = starts[-keep_rounds] if 0 < keep_rounds <= len(starts) else (0 if keep_rounds else len(messages))
    found: list[tuple[int, int]] = []
    for index, message in enumerate(messages[:border]):
        if message.role != "tool" or message.is_error or message.name in exempt or is_cleared(message):
            continue
        if marked(message, "pinned") is not None or marked(message, "pending") is not None:
            continue
        gain = measure([message], counter) - measure([clear_result(message, counter=counter)], counter)
        if gain > 0:
            found.append((gain, index))
    return sorted(found, key=lambda pair: (-pair[0], pair[1]))


def clamp_json(value: Any, max_chars: int) -> Any:
    """JSON within about `max_chars` characters of its text that is still JSON of the same outer shape.

    Long texts show head, tail and size (`clamp`); of long lists and objects the first and last entries stay, and a text
    says how many are missing. The same object when it fits.
    """
    if type(max_chars) is not int:
        raise TypeError(f"max_chars must be an int, not {type(max_chars).__name__}")
    if max_chars < 0:
        raise ValueError(f"max_chars must not be negative: {max_chars}")
    return _clamped(value, max_chars, 0)


_DEEPEST = 40
"""Levels to which values are shortened one by one; what lies below is shown as shortened text."""


def _clamped(value: Any, room: int, level: int) -> Any:
    size = len(json_text(value))
    if size <= room:
        return value
    if isinstance(value, str):
        return clamp(value, room)
    if level >= _DEEPEST or not isinstance(value, (Mapping, list, tuple)):
        return clamp(json_text(value), room)
    named = isinstance(value, Mapping)
    entries: list[tuple[Any, Any]] = list(value.items() if isinstance(value, Mapping) else enumerate(value))
    costs = [len(json_text(item)) + (len(str(key)) + 6 if named else 2) for key, item in entries]
    # What is left of the room is shared by the large entries; where even that is too little, entries go.
    least = 40
    fits = max(room // least, 1)
    head = len(entries) if len(entries) <= fits else max(fits - fits // 4, 1)
    tail = 0 if len(entries) <= fits else fits // 4
    kept = [*range(head), *range(len(entries) - tail, len(entries))]
    share = _share([costs[i] for i in kept], room)
    shown = [
        (entries[i][0], entries[i][1] if costs[i] <= share else _clamped(entries[i][1], share, level + 1)) for i in kept
    ]
    gone = len(entries) - len(kept)
    notice = f"[... {gone:,} of {len(entries):,} entries left out ...]"
    if named:
        made = dict(shown[:head])
        if gone:
            made["..."] = notice
        return {**made, **dict(shown[head:])}
    return [*(item for _, item in shown[:head]), *([notice] if gone else []), *(item for _, item in shown[head:])]


def _share(costs: Sequence[int], room: int) -> int:
    """The largest size up to which entries stay whole, so that all together fit into `room`."""
    left, number = room, len(costs)
    for cost in sorted(costs):
        if cost * number > left:
            return left // number
        left -= cost
        number -= 1
    return room
