"""Content of messages, as the providers' wires spell it, made into blocks. Touches only its arguments.

Unknown parts become opaque blocks, unchanged, and are counted in the report.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentkit.core.contracts.frozen import FrozenDict
from agentkit.core.contracts.jsontext import json_text
from agentkit.core.contracts.types import (
    Block,
    DocumentBlock,
    Message,
    NativeBlock,
    ToolCall,
    ToolSchema,
    as_block,
)

from .report import Reporter

# What only the provider itself can read: kept as it is, and no surprise.
_NATIVE = frozenset(
    {
        "server_tool_use", "mcp_tool_use", "container_upload", "search_result", "compaction", "document", "image",
        "tool_reference", "fallback", "input_audio", "refusal", "file", "input_file", "image_url", "input_image",
        "reasoning", "computer_screenshot", "summary_text", "reasoning_text", "encrypted_content",
    }
)  # fmt: skip

EMPTY: FrozenDict[str, Any] = FrozenDict()


def read_content(value: Any, provider: str, report: Reporter, place: str) -> str | list[Block]:
    """The text or blocks of a `content` field: absent, text, a part, or a list of parts."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    parts = value if isinstance(value, list) else [value]
    return [read_part(part, provider, report, place) for part in parts]


def read_part(part: Any, provider: str, report: Reporter, place: str) -> Block:
    """The block of one content part; opaque, and reported, if its kind is unknown."""
    block: Block
    if isinstance(part, str):
        return as_block(FrozenDict(text=part))
    if not isinstance(part, dict):
        report.note("unknown block", place, "kept unchanged", f"a {type(part).__name__} among the content")
        return NativeBlock("unknown", part)
    kind = part.get("type")
    if kind == "file" and provider == "openai":
        block = _openai_file(part)
    else:
        block = as_block(part)
    if isinstance(block, NativeBlock):
        if not isinstance(kind, str) or not (kind in _NATIVE or kind.endswith("_tool_result")):
            report.note("unknown block", place, "kept unchanged", f"content of the unknown kind {_shown(kind)}")
        if block.provider != provider and isinstance(kind, str) and kind:
            block = NativeBlock(provider, block.payload)
    return block


def _openai_file(part: Mapping[str, Any]) -> Block:
    """A `file` part: a document when it holds nothing but data or an id, and a name."""
    file = part.get("file")
    if isinstance(file, Mapping) and set(part) == {"type", "file"}:
        keys, title = set(file), file.get("filename")
        source = file.get("file_data", file.get("file_id"))
        one_source = len(keys & {"file_data", "file_id"}) == 1 and keys <= {"file_data", "file_id", "filename"}
        # A bare base64 text would be taken for a reference: only what says what it is becomes a document.
        is_plain = "file_id" in keys or (isinstance(source, str) and source.startswith("data:"))
        if one_source and is_plain and isinstance(source, str) and (title is None or isinstance(title, str)):
            return DocumentBlock(source, title=title)
    return NativeBlock("openai", part)


def _shown(kind: Any) -> str:
    """A kind as a report names it: short, whatever the file has there."""
    text = kind if isinstance(kind, str) else json_text(kind)
    return repr(text if len(text) <= 40 else text[:39] + "…")


def opaque_message(value: Any, report: Reporter, place: str, reason: str) -> Message:
    """A record that no rule fits, as a message with one opaque part."""
    report.note("unknown record", place, "kept as an opaque part", reason)
    return Message("unknown", blocks=[NativeBlock("unknown", value)])


def call_of(id: Any, name: Any, arguments: Any, extra: Mapping[str, Any] = EMPTY) -> ToolCall:
    """A call from whatever a file has in its fields: numbers become text, missing ones blank."""
    return ToolCall(as_id(id), as_id(name), arguments if arguments is not None else EMPTY, meta=extra)


def as_id(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else json_text(value)


def read_tools(value: Any) -> tuple[ToolSchema, ...]:
    """The schemas in a `tools` list of OpenAI or Anthropic shape; tools that the provider runs itself have none."""
    tools: list[ToolSchema] = []
    for entry in value if isinstance(value, list) else ():
        if not isinstance(entry, Mapping):
            continue
        inner = entry.get("function")
        source = inner if isinstance(inner, Mapping) else entry
        schema = next((source[k] for k in ("parameters", "input_schema", "inputSchema") if k in source), None)
        name, text = source.get("name"), source.get("description")
        if isinstance(name, str) and (isinstance(schema, Mapping) or source is not entry):
            parameters = schema if isinstance(schema, Mapping) else EMPTY
            tools.append(ToolSchema(name, text if isinstance(text, str) else "", parameters))
    return tuple(tools)


def present(**fields: Any) -> FrozenDict[str, Any]:
    """A frozen mapping of the fields that are not None. The values have to be frozen already."""
    return FrozenDict({k: v for k, v in fields.items() if v is not None})
