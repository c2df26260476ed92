"""What an MCP tool answered, as the record holds it. Writes pictures and other binaries as artifacts.

Structured content first, else the text, as JSON where it is an object or a list, else as it is. Pictures, sounds and
files become parts beside it; resources that the result only points to are named by their address.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from typing import Any, NoReturn

from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from agentd.context.record import FilePart, Part
from agentd.records import Records

from .tools.base import Answer


async def answer_of(result: CallToolResult, records: Records) -> Answer:
    """The answer with its artifacts kept."""
    texts: list[str] = []
    parts: list[Part] = []
    for block in result.content:
        inner = block.resource if isinstance(block, EmbeddedResource) else block
        if isinstance(inner, TextContent):
            texts.append(inner.text)
        elif isinstance(inner, ResourceLink):
            texts.append(_link(inner))
        elif isinstance(inner, TextResourceContents):
            texts.append(f"[resource {inner.uri}]\n{inner.text}")
        else:
            text, part = await _kept(inner, records)
            texts.append(text)
            parts += [part] if part is not None else []
    is_text_alone = len(result.content) == 1 and isinstance(result.content[0], TextContent)
    if result.structured_content is not None:
        content: Any = _beside(result.structured_content, result.content, texts)
    else:
        content = _parsed(texts[0]) if is_text_alone else "\n".join(texts)
    return Answer(content, bool(result.is_error), tuple(parts))


def _beside(structured: Any, blocks: Sequence[ContentBlock], texts: Sequence[str]) -> Any:
    """Structured content says what the texts say. What stands beside it that is no text is told of."""
    others = [text for block, text in zip(blocks, texts, strict=True) if not isinstance(block, TextContent)]
    return {"result": structured, "attached": others} if others else structured


def _parsed(text: str) -> Any:
    """JSON where the text is an object or a list. A bare number or word stays text: 1.10 is a version as likely."""
    if not text.lstrip().startswith(("{", "[")):
        return text
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return text


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _link(link: ResourceLink) -> str:
    about = [link.mime_type or "", f"{link.size} bytes" if link.size is not None else "", link.description or ""]
    told = "; ".join(one for one in about if one)
    return f"[resource {link.title or link.name}: {link.uri}{f' ({told})' if told else ''}]"


async def _kept(
    block: ImageContent | AudioContent | BlobResourceContents, records: Records
) -> tuple[str, FilePart | None]:
    """What is told of a binary, and the part that names it."""
    if isinstance(block, ImageContent | AudioContent):
        kind, name, encoded = str(block.type), None, block.data
        media_type: str | None = block.mime_type
    else:
        kind, name, encoded, media_type = "resource", block.uri, block.blob, block.mime_type
    try:
        data = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        return f"[{kind} that is no base64, not shown]", None
    sha = await records.artifact(data)
    told = ", ".join(one for one in (name, media_type, f"{len(data)} bytes") if one)
    return f"[{kind}: {told}]", FilePart(name, media_type, None, sha, len(data))
