"""Messages as OpenAI's chat completions take them, and answers as they give them. Touches only its arguments.

Renders a view that the rules OPENAI_CHAT accept; anything else is for `agentkit.core.contracts.validity` to mend first.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import cached_property
from typing import Any

from agentkit.core.contracts.types import (
    Block,
    DocumentBlock,
    ImageBlock,
    Message,
    NativeBlock,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolSchema,
)

from .media import UNSENT, data_uri, is_link


@dataclass(frozen=True)
class ChatForm:
    """How one kind of endpoint spells messages. `parts`: a text is always a list of parts, so that a cache mark adds
    a key to one of them and changes no other byte. `system`: the role of standing text, None for the message's own.
    `thinking`: the field in which a turn's reasoning goes back, None: it does not. `details`: under which name
    `Message.meta` holds `reasoning_details` that go back verbatim. `names`: speakers are named.
    `echo`: whether fields that came beside a call (ECHOED) go back with it. `short_ids`: ids of calls are nine letters
    and digits; a digest stands in for any other."""

    parts: bool = False
    system: str | None = None
    thinking: str | None = None
    details: str | None = None
    names: bool = True
    echo: bool = False
    short_ids: bool = False

    @cached_property
    def slot(self) -> str:
        """Under which name a message keeps its form of this kind."""
        return f"_chat_{'_'.join(map(str, astuple(self)))}"


PLAIN = ChatForm()
"""What OpenAI's own endpoint takes: a text is a string, thinking stays at home."""

ECHOED = frozenset({"extra_content"})
"""Fields of a call that belong to it and go back as they came: Gemini's signatures on its compatible endpoint."""

_OPENAIS = frozenset({"image_url", "input_audio", "file", "refusal"})
"""Parts of chat completions that have no block of their own."""
_MARKABLE = frozenset({"text", "image_url", "file", "input_audio"})


def render_messages(view: Sequence[Message], form: ChatForm = PLAIN) -> list[dict[str, Any]]:
    """The `messages` of a view. A plain text is a string; a turn that only calls has the content null."""
    return [render_message(message, form) for message in view]


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


def render_message(message: Message, form: ChatForm = PLAIN) -> dict[str, Any]:
    """The wire form of one message of a view."""
    role = message.role
    if form.system is not None and role in ("system", "developer"):
        role = form.system
    wire: dict[str, Any] = {"role": role}
    if message.role == "tool":
        wire["tool_call_id"] = _id(message.tool_call_id or "", form)
    elif form.names and message.name is not None and message.role != "assistant":
        wire["name"] = message.name
    wire["content"] = _content(message, form)
    if message.role == "assistant":
        if form.thinking is not None and (thought := _thinking(message)):
            wire[form.thinking] = thought
        if form.details is not None and isinstance(own := message.meta.get(form.details), Mapping):
            wire.update({key: own[key] for key in ("reasoning_details",) if own.get(key)})
        if message.tool_calls:
            wire["tool_calls"] = [_call(call, form) for call in message.tool_calls]
    return wire


def marked_message(wire: Mapping[str, Any], mark: Mapping[str, Mapping[str, Any]]) -> dict[str, Any] | None:
    """A copy of a message, in the form of parts, with a cache mark on the last part that takes one; None if none does.

    `mark`: the key and what it holds, such as `{"prompt_cache_breakpoint": {"mode": "explicit"}}`.
    """
    parts = wire.get("content")
    if not isinstance(parts, list):
        return None
    for at in range(len(parts) - 1, -1, -1):
        if parts[at].get("type") in _MARKABLE:
            return {**wire, "content": [*parts[:at], {**parts[at], **mark}, *parts[at + 1 :]]}
    return None


def _content(message: Message, form: ChatForm) -> str | list[dict[str, Any]] | None:
    parts: list[dict[str, Any]]
    if not message.blocks or message.role in ("system", "developer"):
        # Standing text is one text, however it was put together.
        if not message.content:
            return None if message.tool_calls else ""
        parts = [{"type": "text", "text": message.content}]
    else:
        parts = [part for block in message.blocks if (part := _part(block, message.role)) is not None]
        if not parts:
            return UNSENT if message.role == "user" else None if message.tool_calls else ""
    if not form.parts and len(parts) == 1 and parts[0].keys() == {"type", "text"}:
        text: str = parts[0]["text"]
        return text
    return parts


def _thinking(message: Message) -> str:
    return "".join([block.text for block in message.blocks if isinstance(block, ThinkingBlock)])


def _id(call_id: str, form: ChatForm) -> str:
    if not form.short_ids or re.fullmatch("[a-zA-Z0-9]{9}", call_id):
        return call_id
    return hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()[:9]


def _call(call: ToolCall, form: ChatForm) -> dict[str, Any]:
    echoed = {key: call.meta[key] for key in ECHOED if key in call.meta} if form.echo else {}
    call_id = _id(call.id, form)
    if call.meta.get("type") == "custom" and isinstance(given := call.arguments.get("input"), str):
        return {"id": call_id, "type": "custom", "custom": {"name": call.name, "input": given}, **echoed}
    function = {"name": call.name, "arguments": call.wire_arguments}
    return {"id": call_id, "type": "function", "function": function, **echoed}


def _part(block: Block, role: str) -> dict[str, Any] | None:
    if isinstance(block, TextBlock):
        return {"type": "text", "text": block.text}
    if isinstance(block, ImageBlock):
        source = block.source
        url = data_uri(source, block.media_type, "image/png") if isinstance(source, bytes) else source
        image = {"url": url} if block.detail is None else {"url": url, "detail": block.detail}
        return {"type": "image_url", "image_url": image}
    if isinstance(block, DocumentBlock):
        return _document(block)
    if isinstance(block, NativeBlock):
        if not isinstance(block.payload, dict):
            raise ValueError("a native block without fields has no form on OpenAI's wire; repair the view first")
        # A refusal is the model's, any other part the user's: on the other's message nobody takes it.
        return block.payload if (block.payload.get("type") == "refusal") == (role == "assistant") else None
    return None  # thinking, and the places of calls


def _document(block: DocumentBlock) -> dict[str, Any]:
    source = block.source
    if isinstance(source, str) and is_link(source):
        return {"type": "text", "text": source}  # chat completions take no files by link
    name = {} if block.title is None else {"filename": block.title}
    if isinstance(source, str):
        return {"type": "file", "file": {**name, "file_id": source}}
    return {"type": "file", "file": {**name, "file_data": data_uri(source, block.media_type, "application/pdf")}}


def read_message(given: Mapping[str, Any]) -> tuple[str, tuple[ToolCall, ...], tuple[Block, ...]]:
    """Text, calls and blocks of an answer's `message`; no blocks where the text is all there is beside the calls.

    Reasoning (`reasoning_content`, `reasoning`) becomes thinking in front, a refusal a native block behind the text.
    """
    content, blocks = given.get("content"), list[Block]()
    thought = next((v for k in THOUGHTS if isinstance(v := given.get(k), str) and v), None)
    if thought is not None:
        blocks.append(ThinkingBlock(thought))
    if isinstance(content, str):
        if content:
            blocks.append(TextBlock(content))
    elif isinstance(content, (list, tuple)):
        blocks += [block for part in content if isinstance(part, Mapping) and (block := _read_part(part)) is not None]
    refusal = given.get("refusal")
    if isinstance(refusal, str) and refusal:
        blocks.append(NativeBlock("openai", {"type": "refusal", "refusal": refusal}))
    text = "".join([block.text for block in blocks if isinstance(block, TextBlock)])
    calls = tuple([read_call(call) for call in given.get("tool_calls") or () if isinstance(call, Mapping)])
    return text, calls, () if all(isinstance(b, TextBlock) for b in blocks) and len(blocks) < 2 else tuple(blocks)


THOUGHTS = ("reasoning_content", "reasoning")
"""Where endpoints put a turn's reasoning, in the order in which they are asked for it."""


def read_call(entry: Mapping[str, Any]) -> ToolCall:
    """A call of an answer, its argument text byte for byte."""
    meta = {key: entry[key] for key in ECHOED if entry.get(key) is not None}
    custom, function = entry.get("custom"), entry.get("function")
    if entry.get("type") == "custom" and isinstance(custom, Mapping):
        arguments = {"input": custom.get("input")}
        return ToolCall(_text(entry.get("id")), _text(custom.get("name")), arguments, meta={"type": "custom", **meta})
    function = function if isinstance(function, Mapping) else {}
    given: Any = function.get("arguments")
    return ToolCall(_text(entry.get("id")), _text(function.get("name")), given, meta=meta)


def _read_part(part: Mapping[str, Any]) -> Block | None:
    kind, text = part.get("type"), part.get("text")
    if kind == "text" and isinstance(text, str):
        return TextBlock(text) if text else None
    if kind == "thinking":  # Mistral: a list of texts
        inner = part.get("thinking")
        texts = [inner] if isinstance(inner, str) else [p.get("text") for p in inner or () if isinstance(p, Mapping)]
        return ThinkingBlock("".join([t for t in texts if isinstance(t, str)]))
    # An endpoint that only speaks like OpenAI's may have parts of its own: no request has a place for these.
    return NativeBlock("openai" if kind in _OPENAIS else "unknown", dict(part))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)
