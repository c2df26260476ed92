"""Items of OpenAI's responses API, gathered into turns. Touches only its arguments.

What the model made between two things from outside (a user's message, a result) is one turn: reasoning, text and calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentkit.core.contracts.frozen import FrozenDict
from agentkit.core.contracts.jsontext import json_text
from agentkit.core.contracts.types import Block, Message, NativeBlock, TextBlock, ToolCall

from .anthropic_shape import assemble
from .conversation import Conversation
from .parts import as_id, call_of, opaque_message, read_content

# Calls that the client runs, and the names of those that have none of their own.
_CALLS = {
    "function_call": "",
    "custom_tool_call": "",
    "local_shell_call": "local_shell",
    "shell_call": "shell",
    "apply_patch_call": "apply_patch",
    "computer_call": "computer",
}
_RESULTS = frozenset(
    {
        "function_call_output", "custom_tool_call_output", "local_shell_call_output", "shell_call_output",
        "apply_patch_call_output", "computer_call_output",
    }
)  # fmt: skip
# Opaque: only the provider can read them, or it ran the call itself.
_OPAQUE = frozenset(
    {
        "reasoning", "compaction", "compaction_summary", "web_search_call", "file_search_call", "code_interpreter_call",
        "image_generation_call", "mcp_call", "mcp_list_tools", "mcp_approval_request", "tool_search_call",
        "tool_search_output", "context_compaction",
    }
)  # fmt: skip
_BESIDE = frozenset({"ghost_snapshot", "item_reference", "mcp_approval_response"})

KINDS = frozenset({"message", *_CALLS, *_RESULTS, *_OPAQUE, *_BESIDE})
"""All kinds of items that are known."""

_INJECTED = ("<environment_context>", "<user_instructions>", "# AGENTS.md instructions", "<turn_aborted>", "<skill>")


def is_item(value: Any) -> bool:
    """Whether a record is an item of the responses API, and nothing that other formats have too."""
    kind = value.get("type") if isinstance(value, Mapping) else None
    return isinstance(kind, str) and kind in KINDS and kind != "message"


class Turns:
    """Adds items to a conversation, in order; `flush` ends the turn that is open."""

    def __init__(self, conversation: Conversation) -> None:
        self.conversation = conversation
        self.model: Any = None
        self._parts: list[str | Block | ToolCall] = []
        self._meta: dict[str, Any] = {}
        self._items: list[Any] = []
        self._place = ""
        self.last_turn: int | None = None
        """Where the latest turn of the model stands in the history."""

    def take(self, item: Any, place: str, time: Any = None) -> None:
        if not isinstance(item, Mapping):
            self.flush()
            self.conversation.add(opaque_message(item, self._report, place, "no object"), place)
            return
        given = item.get("type")
        kind = given if isinstance(given, str) else "message" if given is None and "role" in item else ""
        if kind == "message" and item.get("role") == "assistant":
            self._take_text(item, place, time)
        elif kind == "message":
            self.flush()
            self._add_message(item, place, time)
        elif kind in _CALLS:
            self._open(place, time).append(self._call(kind, item))
        elif kind in _RESULTS:
            self.flush()
            self._add_result(item, place, time)
        elif kind in _BESIDE:
            self._report.note("item beside", place, "kept in meta of the turn", f"kind {kind!r}")
            self._items.append(item)
        else:
            if kind not in _OPAQUE:
                reason = f"an item of the unknown kind {json_text(given)[:40]}"
                self._report.note("unknown record", place, "kept as an opaque part", reason)
            self._open(place, time).append(NativeBlock("openai", item))

    @property
    def _report(self) -> Any:
        return self.conversation.report

    def _open(self, place: str, time: Any) -> list[str | Block | ToolCall]:
        """The parts of the open turn; a new one if there is none."""
        if not self._parts:
            self._place = place
            self._meta = {"time": time} if time is not None else {}
            if self.model is not None:
                self._meta["model"] = self.model
        return self._parts

    def _take_text(self, item: Mapping[str, Any], place: str, time: Any) -> None:
        parts = self._open(place, time)
        content = read_content(item.get("content"), "openai", self._report, place)
        rest = {k: v for k, v in item.items() if k not in ("role", "content") and v is not None}
        if isinstance(content, str):
            parts.append(content)
        else:
            # Under `item`, as the adapter of this interface keeps it: what a text's item says goes back with the text.
            about = {"item": rest} if rest else {}
            parts.extend([TextBlock(b.text, {**b.extra, **about}) if isinstance(b, TextBlock) else b for b in content])
        beside = {k: v for k, v in rest.items() if k != "type"}
        if beside:
            self._items.append(FrozenDict(beside))
        if not content:
            self._report.repair("turn empty", place, "kept; the view leaves it out", "a message without content")

    def flush(self) -> None:
        """Ends the open turn, if there is one, and adds its message."""
        if not self._parts:
            return
        meta = {**self._meta, **({"items": self._items} if self._items else {})}
        sealed: FrozenDict[str, Any] = Message("assistant", meta=meta).meta  # type: ignore[assignment]
        self.last_turn = self.conversation.add(assemble("assistant", self._parts, sealed), self._place)
        self._parts, self._items = [], []

    def _add_message(self, item: Mapping[str, Any], place: str, time: Any) -> None:
        role = item.get("role")
        meta = {k: v for k, v in item.items() if k not in ("type", "role", "content") and v is not None}
        if time is not None:
            meta["time"] = time
        if role == "developer":
            meta["role"], role = role, "system"
        elif not isinstance(role, str):
            self._report.repair("field missing", place, "kept as a message of an unknown role", "no `role`")
            role = "unknown"
        message = Message(role, read_content(item.get("content"), "openai", self._report, place), meta=meta)
        if role == "user" and message.content.startswith(_INJECTED):
            message = Message(role, message.blocks or message.content, meta={**meta, "injected": True})
        self.conversation.add(message, place)

    def _call(self, kind: str, item: Mapping[str, Any]) -> ToolCall:
        id = item.get("call_id") if item.get("call_id") is not None else item.get("id")
        name = item.get("name") if item.get("name") is not None else _CALLS[kind]
        arguments: Any = item.get("arguments")
        if kind == "custom_tool_call":
            arguments = FrozenDict(input=item.get("input"))
        elif kind != "function_call":
            arguments = item.get("action", item.get("operation", arguments))
        known = {"call_id", "name", "arguments", "input", "action", "operation"}
        extra = {k: v for k, v in item.items() if k not in known and v is not None}
        return call_of(id, name, arguments, extra)

    def _add_result(self, item: Mapping[str, Any], place: str, time: Any) -> None:
        output = item.get("output")
        if isinstance(output, Mapping) and not isinstance(output.get("type"), str):
            inner = output.get("content")
            output = inner if isinstance(inner, (str, list)) else json_text(output)
        meta = {k: v for k, v in item.items() if k not in ("call_id", "output") and v is not None}
        if time is not None:
            meta["time"] = time
        content = read_content(output, "openai", self._report, place)
        self.conversation.add(Message("tool", content, None, as_id(item.get("call_id")) or None, meta=meta), place)
