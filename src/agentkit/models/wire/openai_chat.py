"""Messages as OpenAI's chat completions take them. Touches only its arguments.

Renders a view that the rules OPENAI_CHAT accept; anything else is for `agentkit.core.contracts.validity` to mend first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from agentkit.core.contracts.types import (
    Block,
    DocumentBlock,
    ImageBlock,
    Message,
    NativeBlock,
    TextBlock,
    ToolCall,
    ToolSchema,
)

from .media import data_uri, is_link


def render_messages(view: Sequence[Message]) -> list[dict[str, Any]]:
    """The `messages` of a view. A plain text is a string; a turn that only calls has the content null."""
    return [_message(message) for message in view]


def render_tools(tools: Iterable[ToolSchema]) -> list[dict[str, Any]]:
    """Tool definitions, sorted by name: the same set is the same bytes."""
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters or {"type": "object", "properties": {}},
            },
        }
        for tool in sorted(tools, key=lambda tool: tool.name)
    ]


def _message(message: Message) -> dict[str, Any]:
    wire: dict[str, Any] = {"role": message.role}
    if message.role == "tool":
        wire["tool_call_id"] = message.tool_call_id or ""
    elif message.name is not None and message.role != "assistant":
        wire["name"] = message.name
    wire["content"] = _content(message)
    if message.tool_calls and message.role == "assistant":
        wire["tool_calls"] = [_call(call) for call in message.tool_calls]
    return wire


def _content(message: Message) -> str | list[dict[str, Any]] | None:
    if not message.blocks:
        return message.content if message.content or not message.tool_calls else None
    if message.role == "system":  # standing text is one text, however it was put together
        return message.content
    parts = [part for block in message.blocks if (part := _part(block)) is not None]
    if len(parts) == 1 and parts[0]["type"] == "text":
        text: str = parts[0]["text"]
        return text
    return parts or (None if message.tool_calls else "")


def _call(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.wire_arguments}}


def _part(block: Block) -> dict[str, Any] | None:
    if isinstance(block, TextBlock):
        return {"type": "text", "text": block.text}
    if isinstance(block, ImageBlock):
        source = block.source
        url = data_uri(source, block.media_type, "image/png") if isinstance(source, bytes) else source
        image = {"url": url} if block.detail is None else {"url": url, "detail": block.detail}
        return {"type": "image_url", "image_url": image}
    if isinstance(block, DocumentBlock):
        return _document(block)
    if isinstance(block, NativeBlock) and isinstance(block.payload, dict):
        return block.payload
    if isinstance(block, NativeBlock):
        raise ValueError("a native block without fields has no form on OpenAI's wire; repair the view first")
    return None  # thinking, and the places of calls


def _document(block: DocumentBlock) -> dict[str, Any]:
    source = block.source
    if isinstance(source, str) and is_link(source):
        return {"type": "text", "text": source}  # chat completions take no files by link
    name = {} if block.title is None else {"filename": block.title}
    if isinstance(source, str):
        return {"type": "file", "file": {**name, "file_id": source}}
    return {"type": "file", "file": {**name, "file_data": data_uri(source, block.media_type, "application/pdf")}}
