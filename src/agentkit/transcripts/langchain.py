"""LangChain messages and LangGraph thread states, in all three spellings. Touches only its arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentkit.core.contracts.frozen import FrozenDict
from agentkit.core.contracts.types import Block, CallMark, Message, NativeBlock, ThinkingBlock, ToolCall
from agentkit.models.usage import UsageReading, read_usage

from .conversation import Conversation
from .openai_shape import read_call, usage_of
from .parts import as_id, call_of, opaque_message, read_part
from .report import Reporter
from .source import Source
from .transcript import Transcript

NAME = "langchain"

_ROLES = {
    "human": "user", "user": "user", "ai": "assistant", "assistant": "assistant", "system": "system",
    "developer": "system", "tool": "tool", "function": "tool", "chat": "user", "remove": "remove",
}  # fmt: skip
_READ = frozenset({"type", "content", "name", "tool_calls", "invalid_tool_calls", "tool_call_id", "status"})


def recognises(value: Any) -> bool:
    """Whether a document, or one record of it, is of this format."""
    if isinstance(value, list):
        return any(recognises(entry) for entry in value)
    if not isinstance(value, Mapping):
        return False
    inner = value.get("values")
    if isinstance(inner, Mapping) and isinstance(inner.get("messages"), list):
        return True
    if isinstance(value.get("messages"), list):
        return any(_is_message(entry) for entry in value["messages"])
    return _is_message(value)


def _is_message(entry: Any) -> bool:
    if not isinstance(entry, Mapping):
        return False
    if entry.get("lc") is not None and isinstance(entry.get("kwargs"), Mapping):
        return True
    kind = entry.get("type")
    return kind in ("human", "ai") and ("content" in entry or isinstance(entry.get("data"), Mapping))


def read(source: Source) -> tuple[Transcript, ...]:
    """The conversation of each state or list; lines that are messages make one conversation."""
    transcripts: list[Transcript] = []
    loose: list[Any] = []
    for _, value in source.documents():
        inner = value.get("values") if isinstance(value, Mapping) else None
        if isinstance(inner, Mapping) and isinstance(inner.get("messages"), list):
            state = {k: v for k, v in inner.items() if k != "messages"}
            about = {**{k: v for k, v in value.items() if k != "values"}, "values": state or None}
            transcripts.append(_read_thread(inner["messages"], about, Reporter() if transcripts else source.report))
        elif isinstance(value, Mapping) and isinstance(value.get("messages"), list):
            about = {k: v for k, v in value.items() if k != "messages"}
            transcripts.append(_read_thread(value["messages"], about, Reporter() if transcripts else source.report))
        elif isinstance(value, list):
            loose.extend(value)
        else:
            loose.append(value)
    if loose or not transcripts:
        transcripts.append(_read_thread(loose, {}, Reporter() if transcripts else source.report))
    return tuple(transcripts)


def _read_thread(messages: list[Any], about: Mapping[str, Any], report: Reporter) -> Transcript:
    conversation = Conversation(NAME, report)
    for record, place in _merged(messages, report):
        message = _read_message(record, report, place)
        index = conversation.add(message, place)
        if message.role == "assistant" and isinstance(record, Mapping):
            said = record.get("response_metadata")
            said = said if isinstance(said, Mapping) else FrozenDict()
            model = said.get("model_name", said.get("model"))
            time = said.get("created_at", said.get("created"))
            conversation.respond(
                index, _usage(record, said, model), model=model, time=time, id=record.get("id"), place=place
            )
    state, meta = about.get("values"), about.get("metadata")
    title = state.get("title") if isinstance(state, Mapping) else None
    thread = meta.get("thread_id") if isinstance(meta, Mapping) else about.get("thread_id")
    label = title if isinstance(title, str) else ""
    return conversation.finish(id=as_id(thread), label=label, meta=about)


def _merged(messages: list[Any], report: Reporter) -> list[tuple[Any, str]]:
    """The messages as the graph has them: a repeated id replaces, `remove` deletes, the three spellings are one."""
    found: list[tuple[Any, str] | None] = []
    at: dict[str, int] = {}
    for number, entry in enumerate(messages, 1):
        place = f"message {number}"
        record = _flat(entry)
        id = record.get("id") if isinstance(record, Mapping) else None
        known = at.get(id) if isinstance(id, str) else None
        if isinstance(record, Mapping) and record.get("type") == "remove":
            if id == "__remove_all__":
                report.note("messages removed", place, "left out", "the graph removed all messages before")
                found, at = [], {}
            elif known is not None:
                report.note("messages removed", place, "left out", "the graph removed the message of that id")
                found[known] = None
                del at[str(id)]
            else:
                report.note("messages removed", place, "nothing to leave out", "no message has that id")
        elif known is not None:
            report.note("message replaced", place, "took the place of the first", "a repeated id replaces")
            found[known] = (record, place)
        else:
            if isinstance(id, str) and id:
                at[id] = len(found)
            found.append((record, place))
    return [entry for entry in found if entry is not None]


def _flat(entry: Any) -> Any:
    """The flat spelling of `lc`/`kwargs` and `{type, data}`."""
    if not isinstance(entry, Mapping):
        return entry
    kwargs, data = entry.get("kwargs"), entry.get("data")
    if entry.get("lc") is not None and isinstance(kwargs, Mapping):
        path = entry.get("id")
        name = path[-1] if isinstance(path, list) and path and isinstance(path[-1], str) else ""
        kind = kwargs.get("type")
        return FrozenDict({**kwargs, "type": kind if isinstance(kind, str) else name})
    if isinstance(data, Mapping) and isinstance(entry.get("type"), str):
        return FrozenDict({**data, "type": entry["type"]})
    return entry


def _role(record: Mapping[str, Any]) -> str | None:
    kind = record.get("type", record.get("role"))
    if not isinstance(kind, str):
        return None
    name = kind.removesuffix("Chunk").removesuffix("Message").lower()
    said = record.get("role")
    if name == "chat" and isinstance(said, str):
        return _ROLES.get(said, said)
    return _ROLES.get(name, kind)


def _read_message(record: Any, report: Reporter, place: str) -> Message:
    if not isinstance(record, Mapping):
        return opaque_message(record, report, place, f"a {type(record).__name__} in place of a message")
    role = _role(record)
    if role is None:
        report.repair("field missing", place, "kept as a message of an unknown role", "no `type`")
    calls = _read_calls(record)
    blocks, calls = _read_content(record.get("content"), calls, report, place)
    name, extra = record.get("name"), record.get("additional_kwargs")
    reasoning = extra.get("reasoning_content") if isinstance(extra, Mapping) else None
    if isinstance(reasoning, str) and reasoning and not any(type(b) is ThinkingBlock for b in blocks):
        blocks.insert(0, ThinkingBlock(reasoning))
    meta = {k: v for k, v in record.items() if k not in _READ and v is not None and v != FrozenDict() and v != []}
    said = record.get("response_metadata")
    if isinstance(said, Mapping) and isinstance(said.get("model_name", said.get("model")), str):
        meta["model"] = said.get("model_name", said.get("model"))
    return Message(
        role or "unknown",
        None,
        name if isinstance(name, str) and name else None,
        as_id(record.get("tool_call_id")) or None,
        calls,
        blocks=blocks,
        is_error=record.get("status") == "error",
        meta=meta,
    )


def _read_calls(record: Mapping[str, Any]) -> tuple[ToolCall, ...]:
    calls: list[ToolCall] = []
    given = record.get("tool_calls")
    for entry in given if isinstance(given, list) else ():
        if isinstance(entry, Mapping):
            extra = {k: v for k, v in entry.items() if k not in ("id", "name", "args", "type") and v is not None}
            calls.append(call_of(entry.get("id"), entry.get("name"), entry.get("args"), extra))
    given = record.get("invalid_tool_calls")
    for entry in given if isinstance(given, list) else ():
        if isinstance(entry, Mapping):
            extra = {k: v for k, v in entry.items() if k not in ("id", "name", "args", "type") and v is not None}
            calls.append(call_of(entry.get("id"), entry.get("name"), entry.get("args"), extra))
    extras = record.get("additional_kwargs")
    given = extras.get("tool_calls") if isinstance(extras, Mapping) else None
    if not calls and isinstance(given, list):
        calls = [read_call(entry) for entry in given if isinstance(entry, Mapping)]
    return tuple(calls)


def _read_content(
    content: Any, calls: tuple[ToolCall, ...], report: Reporter, place: str
) -> tuple[list[Block | str], tuple[ToolCall, ...]]:
    """The blocks; a call that stands among them and in `tool_calls` too is one call, at its place."""
    if content is None or isinstance(content, str):
        return ([content] if content else []), calls
    blocks: list[Block | str] = []
    found = list(calls)
    placed: set[int] = set()
    for part in content if isinstance(content, list) else [content]:
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind in ("tool_use", "tool_call", "invalid_tool_call"):
            id = as_id(part.get("id"))
            at = next((i for i, c in enumerate(found) if c.id == id and i not in placed), None)
            if at is None:
                at = len(found)
                found.append(call_of(id, part.get("name"), part.get("input", part.get("args"))))
            placed.add(at)
            blocks.append(CallMark(at))
        elif kind in ("tool_call_chunk", "input_json_delta"):
            continue  # pieces of calls that stand whole in `tool_calls`
        elif kind == "reasoning" and isinstance(part.get("reasoning"), str):
            blocks.append(ThinkingBlock(part["reasoning"]))
        elif kind in ("function_call", "refusal", "reasoning"):
            blocks.append(NativeBlock("openai", part))
        else:
            provider = "openai" if kind in ("image_url", "input_audio", "file") else "anthropic"
            blocks.append(read_part(part, provider, report, place))
    return blocks, tuple(found)


def _usage(record: Mapping[str, Any], said: Mapping[str, Any], model: Any) -> UsageReading | None:
    own = record.get("usage_metadata")
    if isinstance(own, Mapping):
        return read_usage(own, "langchain")
    if isinstance(said.get("token_usage"), Mapping):
        return usage_of(said["token_usage"], model)
    return read_usage(said["usage"], "anthropic") if isinstance(said.get("usage"), Mapping) else None
