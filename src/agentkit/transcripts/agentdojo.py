"""AgentDojo run logs. Touches only its arguments; instructions planted in tool texts are data like all else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentkit.core.contracts.frozen import FrozenDict
from agentkit.core.contracts.types import Block, Message, RedactedThinkingBlock, TextBlock, ThinkingBlock, ToolCall

from .conversation import Conversation
from .parts import as_id, call_of, opaque_message, read_part
from .report import Reporter
from .source import Source
from .transcript import Transcript

NAME = "agentdojo"
_READ = frozenset({"role", "content", "tool_calls", "tool_call_id", "tool_call", "error"})


def recognises(value: Any) -> bool:
    """Whether a document is of this format."""
    return isinstance(value, Mapping) and "suite_name" in value


def read(source: Source) -> tuple[Transcript, ...]:
    """The conversation of each run; one for each entry of `conversations` where a log has these."""
    transcripts: list[Transcript] = []
    for number, value in source.documents():
        value = value if isinstance(value, Mapping) else {"messages": value}
        about = {k: v for k, v in value.items() if k not in ("messages", "conversations")}
        talks = [value.get("messages")] if value.get("messages") is not None else []
        others = value.get("conversations")
        talks += others if isinstance(others, list) else []
        for at, messages in enumerate(talks or [None], 1):
            report = Reporter() if transcripts else source.report
            parts = [as_id(about.get(k)) for k in ("suite_name", "user_task_id", "injection_task_id") if about.get(k)]
            id = "/".join(parts) or f"run-{number}"
            transcripts.append(_read_run(messages, about, id if at == 1 else f"{id}#{at}", report))
    return tuple(transcripts)


def _read_run(messages: Any, about: Mapping[str, Any], id: str, report: Reporter) -> Transcript:
    conversation = Conversation(NAME, report)
    if isinstance(messages, Mapping):
        messages = messages.get("messages")
    made: dict[str, ToolCall] = {}
    for number, entry in enumerate(messages if isinstance(messages, list) else [], 1):
        place = f"message {number}"
        message = _read_message(entry, report, place)
        index = conversation.add(message, place)
        if message.role == "assistant":
            conversation.respond(index, model=about.get("pipeline_name"), place=place)
            made.update({call.id: call for call in conversation.history[index].tool_calls})
        elif message.role == "tool":
            _check_copy(entry, made.get(conversation.history[index].tool_call_id or ""), report, place)
    return conversation.finish(id=id, meta=about)


def _check_copy(entry: Mapping[str, Any], call: ToolCall | None, report: Reporter, place: str) -> None:
    """A result carries a copy of its call; where ids are missing, it shows whether pairing by order was right."""
    copy = entry.get("tool_call")
    if call is not None and isinstance(copy, Mapping):
        args = copy.get("args")
        if copy.get("function", call.name) != call.name or (isinstance(args, Mapping) and args != call.arguments):
            reason = f"its copy of the call is not {call.name} ({call.id}) with these arguments"
            report.repair("pairing doubtful", place, "kept as paired", reason)


def _read_message(entry: Any, report: Reporter, place: str) -> Message:
    if not isinstance(entry, Mapping):
        return opaque_message(entry, report, place, f"a {type(entry).__name__} in place of a message")
    role = entry.get("role")
    if not isinstance(role, str):
        report.repair("field missing", place, "kept as a message of an unknown role", "no `role`")
        role = "unknown"
    content = _read_content(entry.get("content"), report, place)
    calls = entry.get("tool_calls")
    error, copy = entry.get("error"), entry.get("tool_call")
    meta = {k: v for k, v in entry.items() if k not in _READ and v is not None}
    if error is not None:
        meta["error"] = error
    if error is not None and not content:
        content = as_id(error)  # what the model was shown in place of a result
    name = copy.get("function") if isinstance(copy, Mapping) else None
    id = entry.get("tool_call_id")
    if id is None and isinstance(copy, Mapping):
        id = copy.get("id")
    return Message(
        role,
        content,
        name if isinstance(name, str) and role == "tool" else None,
        as_id(id) or None,
        tuple([_read_call(call) for call in calls if isinstance(call, Mapping)]) if isinstance(calls, list) else (),
        is_error=role == "tool" and error is not None,
        meta=meta,
    )


def _read_content(value: Any, report: Reporter, place: str) -> str | list[Block]:
    if value is None or isinstance(value, str):
        return value or ""
    blocks: list[Block] = []
    for part in value if isinstance(value, list) else [value]:
        kind = part.get("type") if isinstance(part, Mapping) else None
        text = part.get("content", part.get("text")) if isinstance(part, Mapping) else None
        if kind == "text" and isinstance(text, str):
            blocks.append(TextBlock(text))
        elif kind == "thinking" and isinstance(text := part.get("content", part.get("thinking")), str):
            signature = part.get("signature", part.get("id"))
            blocks.append(ThinkingBlock(text, signature if isinstance(signature, str) else None))
        elif kind == "redacted_thinking" and isinstance(text := part.get("content", part.get("data")), str):
            blocks.append(RedactedThinkingBlock(text))
        else:
            blocks.append(read_part(part, "anthropic", report, place))
    return blocks


def _read_call(call: Mapping[str, Any]) -> ToolCall:
    extra: FrozenDict[str, Any] = FrozenDict(
        {k: v for k, v in call.items() if k not in ("function", "args", "id") and v is not None}
    )
    return call_of(call.get("id"), call.get("function"), call.get("args"), extra)
