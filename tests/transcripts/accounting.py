"""Nothing lost: every text that stands in a recorded file is looked for in what the importer made of it."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from agentkit.transcripts import Transcript

# Words of the formats themselves: they became the shape of our values.
SHAPE = frozenset(
    {
        "user", "assistant", "system", "tool", "developer", "human", "ai", "agent", "environment", "text", "tool_use",
        "tool_result", "function", "message", "tool_call", "thinking", "success", "chat.completion", "action",
        "observation", "tool_calls", "end_turn", "stop", "image_url",
    }
)  # fmt: skip


def texts_of(value: Any) -> Iterator[str]:
    """Every text in a JSON value, keys left out."""
    work = [value]
    while work:
        item = work.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, Mapping):
            work.extend(item.values())
        elif isinstance(item, (list, tuple)):
            work.extend(item)


def texts_in(value: Any) -> Iterator[str]:
    """Every text in one of our values."""
    work = [value]
    while work:
        item = work.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, Mapping):
            work.extend(item.values())
        elif isinstance(item, (list, tuple)):
            work.extend(item)
        elif is_dataclass(item):
            work.extend([getattr(item, f.name) for f in fields(item)])


def records_of(data: bytes) -> list[Any]:
    """The JSON values of a file, a document or a line each."""
    try:
        return [json.loads(data)]
    except ValueError:
        return [json.loads(line) for line in data.splitlines() if line.strip()]


def missing(data: bytes, transcripts: Iterable[Transcript]) -> list[str]:
    """The texts of a file that are nowhere in its transcripts."""
    found: set[str] = set()
    for transcript in transcripts:
        for part in (transcript.history, transcript.meta, transcript.report.findings, transcript.responses):
            found.update(texts_in(part))
        found.update((transcript.id, transcript.label))
    wanted = {text for record in records_of(data) for text in texts_of(record)}
    return sorted(wanted - found - SHAPE - {""})
