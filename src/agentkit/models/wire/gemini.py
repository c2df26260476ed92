"""Messages as the contents of Gemini's `generateContent`, and the parts of an answer as blocks. Touches only its
arguments.

Renders a view that the rules GEMINI accept; anything else is for `agentkit.core.contracts.validity` to mend first.
A part's signature goes back on the part on which it came: kept in `TextBlock.extra` and `ToolCall.meta`, else in a
native block that holds the whole part.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agentkit.core.contracts.jsontext import parse_object
from agentkit.core.contracts.messages import derived
from agentkit.core.contracts.types import (
    Block,
    DocumentBlock,
    ImageBlock,
    Message,
    NativeBlock,
    TextBlock,
    ThinkingBlock,
    ToolCall,
)

from .media import encoded, media_type_of

SIGNATURE = "thoughtSignature"

WAIVER = "skip_thought_signature_validator"
"""The signature of a call that another model made. Source: the questions at the end of
ai.google.dev/gemini-api/docs/thought-signatures, November 2026."""

OWN_ID = "gemini-call-"
"""How ids begin that were made here for calls that came without one: the provider is not shown them."""

_RESULT = "functionResponse"


def render_system(messages: Iterable[Message]) -> dict[str, Any] | None:
    """The `systemInstruction` of leading system messages, a part for each; None for none."""
    parts = [{"text": message.content} for message in messages if message.content]
    return {"parts": parts} if parts else None


def render_contents(view: Sequence[Message], *, waive: bool = False) -> list[dict[str, Any]]:
    """The `contents` of a view without its leading system messages. The results of a turn are one content; what the
    user says after them is the next. `waive`: the first call of each answer bears a waiver where it has no signature,
    as Gemini 3 and later want it: they refuse calls of the current turn that bear none."""
    contents: list[dict[str, Any]] = []
    names: dict[str, str] = {}
    for message in view:
        for call in message.tool_calls:
            names[call.id] = call.name
        parts = message_parts(message, names, waive=waive)
        last = contents[-1] if contents else None
        if message.role == "tool" and last is not None and last["parts"] and _RESULT in last["parts"][-1]:
            last["parts"].extend(parts)
        elif parts:
            contents.append({"role": "model" if message.role == "assistant" else "user", "parts": list(parts)})
    return contents


def message_parts(message: Message, names: Mapping[str, str], *, waive: bool = False) -> list[dict[str, Any]]:
    """The parts of one message, made once. `names`: of the tools, by call id, for results that do not name theirs."""
    if message.role == "tool":
        name = message.name or names.get(message.tool_call_id or "", "")
        return derived(message, f"_gemini_{name}", lambda m: render_message(m, name))
    if waive and message.tool_calls:
        return derived(message, "_gemini_waived", lambda m: _waived(message_parts(m, names)))
    return derived(message, "_gemini", render_message)


def _waived(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The parts with a waiver on the first call, if it has no signature."""
    first = next((at for at, part in enumerate(parts) if "functionCall" in part), None)
    if first is None or SIGNATURE in parts[first]:
        return parts
    return [*parts[:first], {**parts[first], SIGNATURE: WAIVER}, *parts[first + 1 :]]


def render_message(message: Message, name: str = "") -> list[dict[str, Any]]:
    """The parts of one message of a view. `name`: that of the tool, for a result."""
    if message.role == "tool":
        return [_result(message, name)]
    return [part for entry in message.ordered if (part := _part(entry)) is not None]


def _part(entry: Block | ToolCall) -> dict[str, Any] | None:
    if isinstance(entry, TextBlock):
        return _signed({"text": entry.text}, entry.extra)
    if isinstance(entry, ToolCall):
        arguments = parse_object(entry.wire_arguments) or {}
        return _signed({"functionCall": {**_id(entry.id), "name": entry.name, "args": arguments}}, entry.meta)
    if isinstance(entry, ThinkingBlock):  # a signature in it is another provider's: this one's are in native blocks
        return {"text": entry.text, "thought": True} if entry.text and not entry.signature else None
    if isinstance(entry, (ImageBlock, DocumentBlock)):
        return _media(entry)
    if isinstance(entry, NativeBlock):
        if not isinstance(entry.payload, dict):
            raise ValueError("a native block without fields has no form on Gemini's wire; repair the view first")
        return entry.payload
    return None  # thinking that another provider encrypted


def _signed(part: dict[str, Any], about: Mapping[str, Any]) -> dict[str, Any]:
    signature = about.get(SIGNATURE)
    return {**part, SIGNATURE: signature} if signature else part


def _id(call_id: str) -> dict[str, str]:
    return {} if not call_id or call_id.startswith(OWN_ID) else {"id": call_id}


def _result(message: Message, name: str) -> dict[str, Any]:
    said = {"error" if message.is_error else "output": message.content}
    return {_RESULT: {**_id(message.tool_call_id or ""), "name": name, "response": said}}


def _media(block: ImageBlock | DocumentBlock) -> dict[str, Any]:
    source, default = block.source, "image/png" if isinstance(block, ImageBlock) else "application/pdf"
    if isinstance(source, bytes):
        return {"inlineData": {"mimeType": block.media_type or media_type_of(source, default), "data": encoded(source)}}
    kind = {} if block.media_type is None else {"mimeType": block.media_type}
    return {"fileData": {**kind, "fileUri": source}}


# Answers


def read_parts(parts: Iterable[Mapping[str, Any]], stamp: str) -> tuple[str, tuple[ToolCall, ...], tuple[Block, ...]]:
    """Text, calls and blocks of an answer's parts, in their order. Texts that follow each other without a signature are
    one, as a stream cuts them anywhere. `stamp`: what the ids of calls that came without one are made from."""
    entries: list[Block | ToolCall] = []
    for part in parts:
        entry = _read_part(part, f"{OWN_ID}{stamp}-{sum(isinstance(e, ToolCall) for e in entries) + 1}")
        last = entries[-1] if entries else None
        if isinstance(entry, TextBlock) and isinstance(last, TextBlock) and not last.extra and not entry.extra:
            entries[-1] = TextBlock(last.text + entry.text)
        elif isinstance(entry, ThinkingBlock) and isinstance(last, ThinkingBlock):
            entries[-1] = ThinkingBlock(last.text + entry.text)
        elif entry is not None:
            entries.append(entry)
    message = Message("assistant", blocks=entries)
    return message.content, message.tool_calls, message.blocks


def _read_part(part: Mapping[str, Any], own_id: str) -> Block | ToolCall | None:
    keys = part.keys() - {SIGNATURE}
    signature = {SIGNATURE: part[SIGNATURE]} if part.get(SIGNATURE) else {}
    text, call = part.get("text"), part.get("functionCall")
    if isinstance(call, Mapping) and keys == {"functionCall"} and call.keys() <= {"id", "name", "args"}:
        return ToolCall(call.get("id") or own_id, call.get("name"), call.get("args") or {}, meta=signature)
    if isinstance(text, str) and keys == {"text"} and (text or not signature):
        return TextBlock(text, signature) if text else None
    if isinstance(text, str) and keys == {"text", "thought"} and part["thought"] is True and not signature:
        return ThinkingBlock(text) if text else None
    return NativeBlock("gemini", dict(part))
