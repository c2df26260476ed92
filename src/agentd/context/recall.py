"""Reading again what a context shows no more, or not in full: which entries are asked for, and how they are told.
Touches only its arguments."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from agentkit.core.contracts.counting import SyncTokenCounter
from agentkit.core.contracts.messages import Message
from agentkit.state.compaction import Ranges, clamp
from agentkit.state.compaction.ranges import union
from agentkit.state.stores.find import fold

from .messages import result_text
from .record import AssistantMsg, DataPart, Entry, FilePart, NoteMsg, SystemMsg, TextPart, ToolMsg, UserMsg
from .rows import json_in
from .view import View

MAX_LIMIT = 200
"""Entries of one recall at most."""
SHORTEST = 80
"""Characters that are told of an entry however little room there is."""
_ONE = re.compile(r"\s*(\d{1,9})(?:\s*-\s*(\d{1,9}))?\s*")


class RecallRefused(ValueError):
    """What recall cannot be asked for; the text tells the model what would be right."""


@dataclass(frozen=True)
class Recalled:
    """Entries as they are told, oldest first. `is_truncated`: there was more than fitted, or than was asked for."""

    entries: tuple[dict[str, Any], ...]
    is_truncated: bool = False

    def to_dict(self) -> dict[str, Any]:
        return {"entries": list(self.entries), "truncated": self.is_truncated}


def parsed_entries(text: str, last: int) -> Ranges:
    """The entries that a text such as `12-20,31` names, as far as there are any. Raises RecallRefused."""
    found: list[tuple[int, int]] = []
    for piece in text.split(","):
        match = _ONE.fullmatch(piece)
        if match is None:
            raise RecallRefused(f"entries are numbers and ranges such as 12-20,31, not {piece.strip()[:40]!r}")
        first, end = int(match[1]), int(match[2] or match[1])
        if first < 1 or end < first:
            raise RecallRefused(f"{piece.strip()!r} is no range: entries are numbered from 1 on, the smaller first")
        if first <= last:
            found.append((first, min(end, last)))
    return union(tuple(sorted(found)))


def told_entries(
    entries: Iterable[Entry],
    shown: View,
    *,
    counter: SyncTokenCounter,
    limit: int = 10,
    max_tokens: int = 4_000,
    more: bool = False,
) -> Recalled:
    """The messages among these entries as they are told, in full, within `limit` entries and `max_tokens` tokens: the
    first ones that fit, and of one that alone is too large its head and tail. `shown`: the current view, for what is
    folded; `more`: whether there are further ones."""
    made: list[dict[str, Any]] = []
    left = max_tokens
    for entry in entries:
        if not entry.is_message:
            continue
        if len(made) >= limit:
            return Recalled(tuple(made), True)
        text = text_of(entry)
        size = counter.measure([Message("user", text)])
        if size > left:
            if not made:
                made.append(_told(entry, _within(text, left, counter), shown))
            return Recalled(tuple(made), True)
        left -= size
        made.append(_told(entry, text, shown))
    return Recalled(tuple(made), more)


def _within(text: str, tokens: int, counter: SyncTokenCounter) -> str:
    """Head and tail of a text, as long as they fit and no shorter than SHORTEST."""
    limit = len(text)
    while True:
        size = counter.measure([Message("user", short := clamp(text, limit))])
        if size <= tokens or limit <= SHORTEST:
            return short
        # What is kept may be denser than the whole: one step back at least.
        limit = max(min(limit * tokens // size, limit - 1), SHORTEST)


def _told(entry: Entry, text: str, shown: View) -> dict[str, Any]:
    when = datetime.fromtimestamp(entry.ts // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if entry.ts else ""
    return {"n": entry.n, "role": entry.kind, "ts": when, "text": text, "folded": not shown.shows(entry.n)}


def text_of(entry: Entry) -> str:
    """All that a message says, as text: calls with their arguments, results as JSON."""
    body = entry.body
    if isinstance(body, (SystemMsg, NoteMsg)):
        return body.text
    if isinstance(body, UserMsg):
        return "\n".join(_part(part) for part in body.parts)
    if isinstance(body, AssistantMsg):
        calls = [f"-> {call.name}({_arguments(call.arguments)})" for call in body.tool_calls]
        return "\n".join([*([body.text] if body.text else []), *calls])
    if isinstance(body, ToolMsg):
        return "\n".join([result_text(body.content), *(_part(part) for part in body.parts)])
    return ""


def _arguments(arguments: Any) -> str:
    return "" if arguments is None else result_text(arguments)


def _part(part: Any) -> str:
    if isinstance(part, TextPart):
        return part.text
    if isinstance(part, DataPart):
        return result_text(part.data)
    if isinstance(part, FilePart):
        return f"[file {part.name or part.uri or part.artifact or 'without a name'}]"
    return "[a part of a kind that this release does not know]"


def says(entry: Entry, words: Sequence[str]) -> bool:
    """Whether a message holds every word, in any case. What its record says beside that, such as ids, counts not."""
    text = fold("\n".join([text_of(entry), *_strings(entry.body)]))
    return all(fold(word) in text for word in words)


def _strings(body: Any) -> Iterator[str]:
    """Texts in a message that are told with escapes, or not in full: strings in JSON, addresses of files."""
    work = [*json_in(body)]
    while work:
        value = work.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            work.extend((*value, *value.values()))
        elif isinstance(value, (list, tuple)):
            work.extend(value)
    for part in getattr(body, "parts", ()):
        if isinstance(part, FilePart):
            yield from (text for text in (part.name, part.uri, part.artifact) if text)
