"""Messages as the Anthropic wire has them: typed blocks, results inside user messages. Touches only its arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agentkit.core.contracts.frozen import FrozenDict
from agentkit.core.contracts.types import Block, CallMark, Message, ToolCall

from .parsing import without
from .parts import EMPTY, as_id, call_of, read_content, read_part
from .report import Reporter


def read_message(role: str, content: Any, meta: FrozenDict[str, Any], report: Reporter, place: str) -> list[Message]:
    """The messages that one wire message stands for: each result one of its own, text around them in its place."""
    if isinstance(content, str) or content is None:
        return [Message(role, content, meta=meta)]
    parts = content if isinstance(content, list) else [content]
    if role == "assistant":
        return [read_parts(role, parts, meta, report, place)]
    messages: list[Message] = []
    rest: list[Any] = []
    for part in parts:
        if isinstance(part, dict) and part.get("type") == "tool_result":
            if rest:
                messages.append(read_parts(role, rest, meta, report, place))
                rest = []
            messages.append(read_result(part, meta, report, place))
        else:
            rest.append(part)
    if rest or not messages:
        messages.append(read_parts(role, rest, meta, report, place))
    return messages


def read_parts(role: str, parts: list[Any], meta: FrozenDict[str, Any], report: Reporter, place: str) -> Message:
    """One message of typed blocks, calls in their place among them."""
    return assemble(role, [read_block(part, report, place) for part in parts], meta)


def read_block(part: Any, report: Reporter, place: str) -> str | Block | ToolCall:
    """What one typed block stands for; a text with nothing beside it as the text."""
    if isinstance(part, dict):
        kind = part.get("type")
        if kind == "tool_use":
            return _read_call(part)
        if kind == "text" and len(part) == 2 and isinstance(text := part.get("text"), str):
            return text
    return read_part(part, "anthropic", report, place)


def assemble(role: str, parts: Sequence[str | Block | ToolCall], meta: FrozenDict[str, Any]) -> Message:
    """The message that holds these parts in their order."""
    calls = tuple([part for part in parts if type(part) is ToolCall])
    text = parts[0] if parts and isinstance(parts[0], str) else ""
    if len(parts) == len(calls) + bool(text):  # the usual turn: text, then calls
        return Message(role, text, tool_calls=calls, meta=meta)
    blocks: list[Block | str] = []
    number = 0
    for part in parts:
        if isinstance(part, ToolCall):
            blocks.append(CallMark(number))
            number += 1
        else:
            blocks.append(part)
    return Message(role, blocks=blocks, tool_calls=calls, meta=meta)


def _read_call(part: dict[str, Any]) -> ToolCall:
    id, name, given = part.get("id"), part.get("name"), part.get("input")
    extra = without(part, "type", "id", "name", "input") if len(part) > 4 else EMPTY
    if type(id) is str and type(name) is str and isinstance(given, dict):
        return ToolCall(id, name, given, meta=extra)
    return call_of(id, name, given, extra)


def read_result(
    part: Mapping[str, Any], meta: FrozenDict[str, Any], report: Reporter, place: str, name: str | None = None
) -> Message:
    """A `tool_result` block as a tool message; `name` is the tool's, where it is known."""
    content, call_id = part.get("content"), part.get("tool_use_id")
    extra = {k: v for k, v in part.items() if k not in _RESULT_KEYS}
    return Message(
        "tool",
        content if isinstance(content, str) else read_content(content, "anthropic", report, place),
        name,
        call_id if type(call_id) is str else as_id(call_id) or None,
        is_error=part.get("is_error") is True,
        meta={**meta, "result": extra} if extra else meta,
    )


_RESULT_KEYS = frozenset({"type", "tool_use_id", "content", "is_error"})
