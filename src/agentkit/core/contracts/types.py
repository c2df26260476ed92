"""Every value type of the project under one import path: messages, blocks, usage, scope, requests and results."""

from __future__ import annotations

from .blocks import (
    Block,
    CallMark,
    DocumentBlock,
    ImageBlock,
    NativeBlock,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    as_block,
)
from .hashing import stable_hash
from .messages import Message, ToolCall, as_call, mark, marked, unmark
from .requests import (
    Breakpoint,
    ChatRequest,
    Chunk,
    Delta,
    LLMResult,
    StreamEvent,
    ToolRequest,
    ToolSchema,
    assemble_deltas,
)
from .scope import Scope
from .usage import Usage

__all__ = [
    "Block",
    "Breakpoint",
    "CallMark",
    "ChatRequest",
    "Chunk",
    "Delta",
    "DocumentBlock",
    "ImageBlock",
    "LLMResult",
    "Message",
    "NativeBlock",
    "RedactedThinkingBlock",
    "Scope",
    "StreamEvent",
    "TextBlock",
    "ThinkingBlock",
    "ToolCall",
    "ToolRequest",
    "ToolSchema",
    "Usage",
    "as_block",
    "as_call",
    "assemble_deltas",
    "mark",
    "marked",
    "stable_hash",
    "unmark",
]
