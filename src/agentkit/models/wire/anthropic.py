"""Messages as the Anthropic Messages API takes them. Touches only its arguments.

Renders a view that the rules ANTHROPIC accept; anything else is for `agentkit.core.contracts.validity` to mend first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from agentkit.core.contracts.jsontext import parse_object
from agentkit.core.contracts.types import (
    Block,
    DocumentBlock,
    ImageBlock,
    Message,
    NativeBlock,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolSchema,
)

from .media import encoded, is_link, media_type_of


def render_system(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """The `system` blocks of leading system messages: one for each text."""
    blocks: list[dict[str, Any]] = []
    for message in messages:
        blocks.extend([_block(part) for part in message.ordered])
    return blocks


def render_messages(view: Sequence[Message]) -> list[dict[str, Any]]:
    """The `messages` of a view without its leading system messages.

    All results of a turn, and what the user says after them, are one user message; a plain text is a string.
    """
    wire: list[dict[str, Any]] = []
    for message in view:
        if message.role == "tool":
            part = _result(message)
            if wire and wire[-1]["role"] == "user" and _ends_in_result(wire[-1]["content"]):
                wire[-1]["content"].append(part)
            else:
                wire.append({"role": "user", "content": [part]})
        elif message.role == "user" and wire and wire[-1]["role"] == "user" and _ends_in_result(wire[-1]["content"]):
            wire[-1]["content"].extend([_block(part) for part in message.ordered])
        else:
            wire.append({"role": message.role, "content": _content(message)})
    return wire


def render_tools(tools: Iterable[ToolSchema]) -> list[dict[str, Any]]:
    """Tool definitions, sorted by name: the same set is the same bytes."""
    return [
        {"name": tool.name, "description": tool.description, "input_schema": tool.parameters or {"type": "object"}}
        for tool in sorted(tools, key=lambda tool: tool.name)
    ]


def _ends_in_result(content: Any) -> bool:
    return isinstance(content, list) and bool(content) and content[-1].get("type") == "tool_result"


def _content(message: Message) -> str | list[dict[str, Any]]:
    if message.content and not message.blocks and not message.tool_calls:
        return message.content
    return [_block(part) for part in message.ordered]


def _result(message: Message) -> dict[str, Any]:
    content = message.content if not message.blocks else [_block(part) for part in message.ordered]
    part = {"type": "tool_result", "tool_use_id": message.tool_call_id or "", "content": content}
    return {**part, "is_error": True} if message.is_error else part


def _block(part: Block | ToolCall) -> dict[str, Any]:
    if isinstance(part, TextBlock):
        citations = part.extra.get("citations")
        text = {"type": "text", "text": part.text}
        return {**text, "citations": citations} if citations else text
    if isinstance(part, ToolCall):
        arguments = parse_object(part.wire_arguments) or {}
        return {"type": "tool_use", "id": part.id, "name": part.name, "input": arguments}
    if isinstance(part, ThinkingBlock):
        return {"type": "thinking", "thinking": part.text, "signature": part.signature or ""}
    if isinstance(part, RedactedThinkingBlock):
        return {"type": "redacted_thinking", "data": part.data}
    if isinstance(part, ImageBlock):
        return {"type": "image", "source": _source(part.source, part.media_type, "image/png")}
    if isinstance(part, DocumentBlock):
        document = {"type": "document", "source": _source(part.source, part.media_type, "application/pdf")}
        return document if part.title is None else {**document, "title": part.title}
    if isinstance(part, NativeBlock) and isinstance(part.payload, dict):
        return part.payload
    raise ValueError(f"a {type(part).__name__} has no form on the Anthropic wire; repair the view first")


def _source(source: bytes | str, media_type: str | None, default: str) -> dict[str, Any]:
    if isinstance(source, bytes):
        return {
            "type": "base64",
            "media_type": media_type or media_type_of(source, default),
            "data": encoded(source),
        }
    return {"type": "url", "url": source} if is_link(source) else {"type": "file", "file_id": source}
