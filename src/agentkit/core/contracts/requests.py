"""What goes to a model or a tool and what comes back. Frozen values; touches only its arguments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .blocks import Block, CallMark, TextBlock, freeze_mapping, no_entries
from .checks import check_size
from .frozen import MAX_WIRE_DEPTH, deep_freeze
from .messages import Message, ToolCall, require_messages
from .offers import Breakpoint as Breakpoint
from .offers import ToolSchema as ToolSchema
from .usage import Usage


@dataclass(frozen=True)
class ToolRequest:
    """One call of a tool as the invoker runs it. `side_effecting`: running it twice is not the same as once."""

    call: ToolCall
    side_effecting: bool = False

    @property
    def name(self) -> str:
        return self.call.name

    @property
    def arguments(self) -> Mapping[str, Any]:
        return self.call.arguments


@dataclass(frozen=True)
class ChatRequest:
    """One request to a model; changed through `dataclasses.replace`.

    `cache_hint`: None, truthy, or the breakpoints of a layout. `prefix`: how many leading messages are the prefix
    (None: the leading run of system messages). `options`: provider settings passed on (thinking, effort, seed).
    """

    messages: tuple[Message, ...]
    model: str | None = None
    tools: tuple[ToolSchema, ...] | None = None
    response_format: Any = None
    temperature: float | None = 0.0
    max_tokens: int | None = None
    cache_hint: Any = None
    prefix: int | None = field(default=None, kw_only=True)
    tool_choice: Any = field(default=None, kw_only=True)
    options: Mapping[str, Any] = field(default_factory=no_entries, kw_only=True)

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "messages", tuple(require_messages(self.messages, "ChatRequest.messages")))
        if self.tools is not None:
            put(self, "tools", tuple(self.tools))
        for name in ("response_format", "tool_choice", "cache_hint"):
            put(self, name, deep_freeze(getattr(self, name), max_depth=MAX_WIRE_DEPTH))
        if isinstance(self.cache_hint, list):
            put(self, "cache_hint", tuple(self.cache_hint))
        for name in ("max_tokens", "prefix"):
            check_size(self, name)
        put(self, "options", freeze_mapping(self.options, "ChatRequest.options"))

    @property
    def prefix_length(self) -> int:
        """How many leading messages form the frozen prefix."""
        if self.prefix is not None:
            return self.prefix
        for at, message in enumerate(self.messages):
            if message.role != "system":
                return at
        return len(self.messages)


@dataclass(frozen=True)
class LLMResult:
    """A model's whole answer. `cached`: it came from memoize, so no tokens were spent. `partial`: it was cut off."""

    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage = field(default_factory=Usage)
    finish_reason: str | None = None
    model: str | None = None
    parsed: Any = None
    cached: bool = field(default=False, kw_only=True)
    partial: bool = field(default=False, kw_only=True)
    blocks: tuple[Block, ...] = field(default=(), kw_only=True)
    meta: Mapping[str, Any] = field(default_factory=no_entries, kw_only=True, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tool_calls", tuple(self.tool_calls))
        object.__setattr__(self, "blocks", tuple(self.blocks))
        object.__setattr__(self, "meta", freeze_mapping(self.meta, "LLMResult.meta"))

    @property
    def message(self) -> Message:
        """The answer as the assistant message that is appended to a context."""
        content = None if self.blocks else self.text
        return Message("assistant", content, tool_calls=self.tool_calls, blocks=self.blocks, meta=self.meta)


@dataclass(frozen=True)
class Delta:
    """One piece of a streamed answer. `usage`, `finish_reason`, `tool_calls` and `parsed` come whole, with the last
    piece that has them; `partial` is what a structured answer looks like so far."""

    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage | None = None
    finish_reason: str | None = None
    parsed: Any = None
    partial: Any = None
    blocks: tuple[Block, ...] = field(default=(), kw_only=True)
    model: str | None = field(default=None, kw_only=True)
    cached: bool = field(default=False, kw_only=True)
    meta: Mapping[str, Any] = field(default_factory=no_entries, kw_only=True, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tool_calls", tuple(self.tool_calls))
        object.__setattr__(self, "blocks", tuple(self.blocks))
        object.__setattr__(self, "meta", freeze_mapping(self.meta, "Delta.meta"))


@dataclass(frozen=True)
class StreamEvent:
    """What happens during a run. `kind`: message_delta, tool_call, tool_result, step, interrupt or final."""

    kind: str
    text: str = ""
    data: Any = None

    KINDS = ("message_delta", "tool_call", "tool_result", "step", "interrupt", "final")

    def __post_init__(self) -> None:
        if self.kind not in self.KINDS:
            raise ValueError(f"unknown event kind {self.kind!r}; known are {', '.join(self.KINDS)}")


@dataclass(frozen=True)
class Chunk:
    """A piece of recalled or retrieved text. `score`: higher is nearer, in the source's own unit."""

    text: str
    source: str = ""
    score: float | None = None
    meta: Mapping[str, Any] = field(default_factory=no_entries, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "meta", freeze_mapping(self.meta, "Chunk.meta"))


def assemble_deltas(deltas: Iterable[Delta]) -> LLMResult:
    """The result that a stream of deltas adds up to.

    Texts are joined; usage, finish reason, calls, parsed value, blocks and model come from the last delta that has
    them.
    """
    texts: list[str] = []
    last: dict[str, Any] = {}
    for delta in deltas:
        texts.append(delta.text)
        for name in ("tool_calls", "blocks", "meta"):
            if getattr(delta, name):
                last[name] = getattr(delta, name)
        for name in ("usage", "finish_reason", "parsed", "model"):
            if getattr(delta, name) is not None:
                last[name] = getattr(delta, name)
        if delta.cached:
            last["cached"] = True
    text = "".join(texts)
    blocks: tuple[Block, ...] = last.get("blocks", ())
    if blocks and text != "".join(b.text for b in blocks if isinstance(b, TextBlock)):
        marks = [b for b in blocks if isinstance(b, CallMark)]
        others = [b for b in blocks if not isinstance(b, (TextBlock, CallMark))]
        last["blocks"] = (*others, *((TextBlock(text),) if text else ()), *marks)
    return LLMResult(text=text, **last)
