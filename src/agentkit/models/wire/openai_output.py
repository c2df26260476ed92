"""The items of an answer of OpenAI's responses as blocks, which `openai_responses` sends back. Touches only its
arguments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from agentkit.core.contracts.types import Block, Message, NativeBlock, TextBlock, ToolCall

FREE_INPUT = "custom_tool_call"
ACTIONS = {
    "local_shell_call": ("action", "local_shell"),
    "shell_call": ("action", "shell"),
    "apply_patch_call": ("operation", "apply_patch"),
    "computer_call": ("action", "computer"),
}
"""Calls without arguments of the usual form: the field that says what to do, and a name for the tool."""
CALLS = frozenset({"function_call", FREE_INPUT, *ACTIONS})
"""Types of items that ask the client to run something."""


def read_output(items: Iterable[Mapping[str, Any]]) -> tuple[str, tuple[ToolCall, ...], tuple[Block, ...]]:
    """Text, calls and blocks of an answer's `output` items, in their order; nothing of any item is lost."""
    entries: list[Block | ToolCall] = []
    for item in items:
        kind = item.get("type")
        if kind in CALLS:
            entries.append(read_call(item))
        elif kind == "message" and item.get("role") == "assistant" and isinstance(item.get("content"), (list, tuple)):
            entries += _read_said(item)
        else:
            entries.append(NativeBlock("openai", dict(item)))
    message = Message("assistant", blocks=entries)
    return message.content, message.tool_calls, message.blocks


def read_call(item: Mapping[str, Any]) -> ToolCall:
    """The call in an item; what it says beside id, name and arguments is in `meta`, its type included."""
    kind = item.get("type")
    call_id = item.get("call_id") or item.get("id") or ""
    if kind in ACTIONS:
        field, name = ACTIONS[kind]
        known, arguments = {"call_id", field}, item.get(field)
    else:
        field, name = "input" if kind == FREE_INPUT else "arguments", str(item.get("name") or "")
        known, arguments = {"call_id", "name", field}, item.get(field)
        arguments = {"input": arguments} if kind == FREE_INPUT else arguments
    meta = {key: value for key, value in item.items() if key not in known}
    return ToolCall(str(call_id), name, arguments, meta=meta)


def _read_said(item: Mapping[str, Any]) -> list[Block]:
    about = {key: value for key, value in item.items() if key not in ("role", "content")}
    found: list[Block] = []
    for part in item["content"]:
        if part.get("type") == "output_text" and isinstance(text := part.get("text"), str) and text:
            rest = {key: value for key, value in part.items() if key not in ("type", "text")}
            found.append(TextBlock(text, {**rest, "item": about}))
        else:
            found.append(NativeBlock("openai", dict(part)))
    return found
