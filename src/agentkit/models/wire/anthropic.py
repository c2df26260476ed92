"""Messages as the Anthropic Messages API takes them, and answers as it gives them. Touches only its arguments.

Renders a view that the rules ANTHROPIC accept; anything else is for `agentkit.core.contracts.validity` to mend first.
The form of a message does not depend on its neighbours, apart from which of them share a turn, so that it is made once
and the bytes of a known head stay as they were.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from agentkit.core.contracts.jsontext import parse_object
from agentkit.core.contracts.messages import as_call, derived
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
    as_block,
)

from .media import encoded, is_link, media_type_of


def render_system(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """The `system` blocks of leading system messages: one for each text."""
    blocks: list[dict[str, Any]] = []
    for message in messages:
        blocks.extend([_block(part) for part in message.ordered])
    return blocks


def render_messages(view: Sequence[Message]) -> list[dict[str, Any]]:
    """The `messages` of a view without its leading system messages, for people and files: a plain text is a string.

    All results of a turn, and what the user says after them, are one user message.
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


class Turns(NamedTuple):
    """The `messages` of a view as they are sent again and again.

    `wire`: the list, a fresh one; its dicts are shared by all requests and must not be changed. `places[i]`: where the
    first block of message `i` of the view stands: number in `wire`, number of the block.
    """

    wire: list[dict[str, Any]]
    places: list[tuple[int, int]]


def render_turns(view: Sequence[Message]) -> Turns:
    """The `messages` of a view without its leading system messages, as requests have them.

    Every content is a list of blocks, so that a text is the same bytes with and without a mark or a neighbour. What
    belongs to one user turn is one message. Costs pointer work for messages that were rendered before.
    """
    wire: list[dict[str, Any]] = []
    places: list[tuple[int, int]] = []
    last = None
    for message in view:
        turn = derived(message, "_anthropic", render_turn)
        role = turn["role"]
        if role == "user" and last == "user":
            before = wire[-1]["content"]
            places.append((len(wire) - 1, len(before)))
            wire[-1] = {"role": "user", "content": [*before, *turn["content"]]}
        else:
            places.append((len(wire), 0))
            wire.append(turn)
        last = role
    return Turns(wire, places)


def render_turn(message: Message) -> dict[str, Any]:
    """One message of a view as a turn of its own."""
    if message.role == "tool":
        return {"role": "user", "content": [_result(message)]}
    role = "system" if message.role == "developer" else message.role
    return {"role": role, "content": [_block(part) for part in message.ordered]}


MARKABLE = frozenset(
    {"text", "image", "document", "search_result", "tool_use", "tool_result", "server_tool_use", "mcp_tool_use",
     "mcp_tool_result", "web_search_tool_result", "web_fetch_tool_result", "code_execution_tool_result",
     "bash_code_execution_tool_result", "text_editor_code_execution_tool_result", "tool_search_tool_result",
     "container_upload", "compaction"}
)  # fmt: skip
"""Types of blocks that have a field `cache_control` (types of anthropic 2.14). Thinking has none."""


def takes_mark(block: Mapping[str, Any]) -> bool:
    """Whether a cache mark may stand on a block: not on thinking, not on empty text."""
    return block.get("type") in MARKABLE and (block.get("type") != "text" or block.get("text") != "")


def render_tools(tools: Iterable[ToolSchema]) -> list[dict[str, Any]]:
    """Tool definitions, sorted by name: the same set is the same bytes."""
    return [
        {"name": tool.name, "description": tool.description, "input_schema": tool.parameters or {"type": "object"}}
        for tool in sorted(tools, key=lambda tool: tool.name)
    ]


def read_content(content: Iterable[Any]) -> tuple[str, tuple[ToolCall, ...], tuple[Block, ...]]:
    """An answer's `content`: its text, its calls and its blocks with their places, none where a text is all there is.

    Sent again, they are the blocks that came; a block of a kind that nobody here knows comes back whole.
    """
    items: list[Block | ToolCall | Mapping[str, Any]] = []
    for block in content:
        if not isinstance(block, Mapping):
            continue
        if block.get("type") == "tool_use":
            items.append(as_call(block))
        elif block.get("type") in ("text", "thinking"):  # null stands for a field that is not there
            items.append({key: value for key, value in block.items() if value is not None})
        else:
            found = as_block(block)
            # Whatever it is, it came from this provider, and goes back to it.
            native = isinstance(found, NativeBlock) and found.provider != "anthropic"
            items.append(NativeBlock("anthropic", dict(block)) if native else found)
    message = Message("assistant", items)
    return message.content, message.tool_calls, message.blocks


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
        call = {"type": "tool_use", "id": part.id, "name": part.name, "input": arguments}
        # Who called, where it was not the model itself: code that the provider runs, say. OpenAI's calls, which note
        # their type, have a caller of another form.
        noted = {} if "type" in part.meta else part.meta
        more = {key: noted[key] for key in ("caller", "toolset_name") if noted.get(key) is not None}
        return {**call, **more} if more else call
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
