"""Content blocks: what a message carries beside, or in place of, one plain text.

Frozen values, compared field by field. Nothing here reads a file or a link; a `str` source is only a reference.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from .checks import check_size, require_int, settle_text
from .errors import FreezeError
from .frozen import MAX_WIRE_DEPTH, FrozenDict, deep_freeze
from .jsontext import json_text

EMPTY: FrozenDict[str, Any] = FrozenDict()


def no_entries() -> FrozenDict[str, Any]:
    """The one empty mapping: a default that dataclasses accept, since they take any other dict
    for a mutable one."""
    return EMPTY


def freeze_mapping(value: Any, what: str) -> FrozenDict[str, Any]:
    """A deep-frozen copy of a mapping; TypeError naming `what` for anything else."""
    if type(value) is FrozenDict:
        return value
    if not isinstance(value, Mapping):
        raise TypeError(f"{what} must be a mapping, not {type(value).__name__}")
    if not value:
        return EMPTY
    frozen: FrozenDict[str, Any] = deep_freeze(dict(value), max_depth=MAX_WIRE_DEPTH)
    return frozen


@dataclass(frozen=True)
class TextBlock:
    """Text; `extra` holds what came with it: citations, annotations, a cache mark."""

    text: str
    extra: Mapping[str, Any] = field(default_factory=no_entries, hash=False)

    def __post_init__(self) -> None:
        settle_text(self, "text")
        if type(self.extra) is not FrozenDict:
            object.__setattr__(self, "extra", freeze_mapping(self.extra, "TextBlock.extra"))


@dataclass(frozen=True)
class ImageBlock:
    """An image: its bytes, or a reference (URL, file id, blob handle). `width`, `height` in pixels.

    A data URI given as the source is decoded. `detail` is OpenAI's low, high, original or auto. Raises TypeError for a
    field of a wrong type, ValueError for a negative size; so do the other blocks.
    """

    source: bytes | str
    media_type: str | None = None
    width: int | None = None
    height: int | None = None
    detail: str | None = None

    def __post_init__(self) -> None:
        _settle_source(self)
        settle_text(self, "media_type", "detail", optional=True)
        check_size(self, "width")
        check_size(self, "height")


@dataclass(frozen=True)
class DocumentBlock:
    """A PDF or another file: its bytes, or a reference. A text document is a TextBlock."""

    source: bytes | str
    media_type: str | None = None
    title: str | None = None
    pages: int | None = None

    def __post_init__(self) -> None:
        _settle_source(self)
        settle_text(self, "media_type", "title", optional=True)
        check_size(self, "pages")


@dataclass(frozen=True)
class ThinkingBlock:
    """A model's reasoning, verbatim: never edited, trimmed or merged."""

    text: str
    signature: str | None = None

    def __post_init__(self) -> None:
        settle_text(self, "text")
        settle_text(self, "signature", optional=True)


@dataclass(frozen=True)
class RedactedThinkingBlock:
    """Reasoning that the provider encrypted, verbatim."""

    data: str

    def __post_init__(self) -> None:
        settle_text(self, "data")


@dataclass(frozen=True)
class NativeBlock:
    """Anything only one provider understands; goes back to that provider verbatim, key order included."""

    provider: str
    payload: Any = field(hash=False)

    def __post_init__(self) -> None:
        settle_text(self, "provider")
        try:
            payload = deep_freeze(self.payload, max_depth=MAX_WIRE_DEPTH)
        except FreezeError as error:
            if error.cycle:
                raise
            payload = json_text(self.payload)
        object.__setattr__(self, "payload", payload)


@dataclass(frozen=True)
class CallMark:
    """The place of `tool_calls[index]` among the blocks."""

    index: int

    def __post_init__(self) -> None:
        require_int(self.index, "CallMark.index")


Block: TypeAlias = (
    TextBlock | ImageBlock | DocumentBlock | ThinkingBlock | RedactedThinkingBlock | NativeBlock | CallMark
)
BLOCK_TYPES = (
    TextBlock, ImageBlock, DocumentBlock, ThinkingBlock, RedactedThinkingBlock, NativeBlock, CallMark,
)  # fmt: skip

_OPENAI_ONLY = frozenset(
    {"input_text", "output_text", "summary_text", "reasoning_text", "refusal", "image_url", "input_image", "file",
     "input_file", "input_audio", "output_audio", "reasoning", "item_reference", "function_call",
     "function_call_output", "custom_tool_call", "custom_tool_call_output", "file_search_call", "web_search_call",
     "image_generation_call", "code_interpreter_call", "computer_call", "computer_call_output", "local_shell_call",
     "local_shell_call_output", "shell_call", "shell_call_output", "apply_patch_call", "apply_patch_call_output",
     "mcp_call", "mcp_list_tools", "mcp_approval_request", "mcp_approval_response"}
)  # fmt: skip
"""Types of content parts and items that OpenAI's interfaces have and Anthropic's has not."""

_ANTHROPIC_ONLY = frozenset(
    {"text", "thinking", "redacted_thinking", "image", "document", "search_result", "tool_use", "tool_result",
     "server_tool_use", "mcp_tool_use", "mcp_tool_listing", "container_upload", "compaction", "fallback",
     "tool_addition", "tool_removal", "tool_reference", "browser_state"}
)  # fmt: skip
"""Types of Anthropic's content blocks, beside those that end in `_tool_result` (types of anthropic 2.14.0)."""


def as_block(wire: Mapping[str, Any]) -> Block:
    """The block that a provider's content dict stands for; unknown kinds become a NativeBlock. Never raises on content.

    Reads the content parts of Anthropic Messages, OpenAI Chat Completions and OpenAI Responses. A `tool_use` dict is
    left to `Message`, which makes it a ToolCall with its CallMark. A kind that neither is known to have is of the
    provider `unknown`: it is kept and sent to nobody. Who knows whose it is makes a NativeBlock of it.
    """
    if not isinstance(wire, Mapping):
        raise TypeError(f"a content block must be a mapping, not {type(wire).__name__}")
    kind = wire.get("type")
    if kind is None and isinstance(wire.get("text"), str) and len(wire) == 1:
        return TextBlock(wire["text"])
    if not isinstance(kind, str) or not kind:
        return NativeBlock("unknown", dict(wire))
    reader = _READERS.get(kind)
    block = reader(wire) if reader is not None else None
    return block or NativeBlock(_owner(kind), dict(wire))


def _owner(kind: str) -> str:
    """Which provider has this kind of block."""
    if kind in _OPENAI_ONLY:
        return "openai"
    return "anthropic" if kind in _ANTHROPIC_ONLY or kind.endswith("_tool_result") else "unknown"


def _text(wire: Mapping[str, Any]) -> Block | None:
    text = wire.get("text")
    if not isinstance(text, str):
        return None
    extra = {k: v for k, v in wire.items() if k not in ("type", "text")}
    try:
        return TextBlock(text, extra) if extra else TextBlock(text)
    except FreezeError:  # nested beyond the limit: kept whole, as a native block's JSON text
        return None


def _thinking(wire: Mapping[str, Any]) -> Block | None:
    text, signature = wire.get("thinking"), wire.get("signature")
    if set(wire) - {"type", "thinking", "signature"} or not isinstance(text, str):
        return None
    return ThinkingBlock(text, signature) if signature is None or isinstance(signature, str) else None


def _redacted(wire: Mapping[str, Any]) -> Block | None:
    return (
        RedactedThinkingBlock(wire["data"]) if set(wire) == {"type", "data"} and isinstance(wire["data"], str) else None
    )


def _anthropic_source(wire: Mapping[str, Any], allowed: set[str]) -> tuple[bytes | str, str | None] | None:
    source = wire.get("source")
    # A cache mark is a wish about one request, not content: only the breakpoint plan sets marks.
    if not isinstance(source, Mapping) or set(wire) - allowed - {"cache_control"}:
        return None
    kind, media = source.get("type"), source.get("media_type")
    if kind == "base64" and isinstance(source.get("data"), str) and isinstance(media, str):
        data = _decode_base64(source["data"])
        return (data, media) if data is not None and set(source) == {"type", "data", "media_type"} else None
    if kind == "url" and isinstance(source.get("url"), str) and set(source) == {"type", "url"}:
        return source["url"], None
    return None


def _image(wire: Mapping[str, Any]) -> Block | None:
    found = _anthropic_source(wire, {"type", "source"})
    return ImageBlock(*found) if found else None


def _document(wire: Mapping[str, Any]) -> Block | None:
    found, title = _anthropic_source(wire, {"type", "source", "title"}), wire.get("title")
    return DocumentBlock(*found, title=title) if found and (title is None or isinstance(title, str)) else None


def _image_url(wire: Mapping[str, Any]) -> Block | None:
    given = wire.get("image_url")
    url, detail = (given.get("url"), given.get("detail")) if isinstance(given, Mapping) else (given, wire.get("detail"))
    known = set(wire) <= {"type", "image_url", "detail"} and (
        not isinstance(given, Mapping) or set(given) <= {"url", "detail"}
    )
    if not known or not isinstance(url, str) or not (detail is None or isinstance(detail, str)):
        return None
    return ImageBlock(url, detail=detail)


_READERS = {
    "text": _text, "input_text": _text, "output_text": _text,
    "thinking": _thinking, "redacted_thinking": _redacted,
    "image": _image, "document": _document, "image_url": _image_url, "input_image": _image_url,
}  # fmt: skip


def _decode_base64(text: str) -> bytes | None:
    """The bytes, or None when decoding and encoding again would not give the same text."""
    try:
        data = base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        return None
    return data if base64.b64encode(data).decode("ascii") == text else None


def _decode_data_uri(uri: str) -> tuple[bytes, str | None] | None:
    head, comma, body = uri[5:].partition(",")
    if not comma:
        return None
    if head.endswith(";base64"):
        data = _decode_base64(body)
        return None if data is None else (data, head.removesuffix(";base64") or None)
    try:
        raw = body.encode("utf-8")
    except UnicodeEncodeError:
        return None
    return re.sub(rb"%([0-9A-Fa-f]{2})", lambda found: bytes([int(found[1], 16)]), raw), head or None


def _settle_source(block: ImageBlock | DocumentBlock) -> None:
    source: object = block.source
    if isinstance(source, bytearray):
        object.__setattr__(block, "source", bytes(source))
    elif isinstance(source, str):
        settle_text(block, "source")
        found = _decode_data_uri(block.source) if source.startswith("data:") else None  # type: ignore[arg-type]
        if found is not None:
            object.__setattr__(block, "source", found[0])
            if block.media_type is None:
                object.__setattr__(block, "media_type", found[1])
    elif not isinstance(source, bytes):
        raise TypeError(f"{type(block).__name__}.source must be bytes or str, not {type(source).__name__}")
