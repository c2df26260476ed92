"""Anthropic messages: request bodies, lists of messages, responses, exchanges. Touches only its arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentkit.core.contracts.frozen import FrozenDict
from agentkit.core.contracts.types import Message, NativeBlock, mark
from agentkit.models.usage import read_usage

from .anthropic_shape import read_message
from .conversation import Conversation, split_prefix
from .exchanges import Exchanged, gather, is_exchange
from .openai_chat import as_list
from .parsing import bounded, event_stream
from .parts import opaque_message, read_tools
from .report import Reporter
from .source import Source
from .transcript import Transcript

NAME = "anthropic-messages"

_TYPED = frozenset(
    {"tool_use", "tool_result", "server_tool_use", "mcp_tool_use", "mcp_tool_result", "thinking", "redacted_thinking"}
)
_OPTIONS = frozenset({"anthropic_version", "anthropic_beta", "mcp_servers", "context_management"})
_NOT_OPTIONS = frozenset({"messages", "system", "response"})


def recognises(value: Any) -> bool:
    """Whether a document, or one line of several, is of this format: by `system`, typed blocks, or its own options."""
    if isinstance(value, list):
        return any(_has_typed_blocks(entry) for entry in value)
    if not isinstance(value, Mapping):
        return False
    if is_exchange(value):
        return recognises(value["request"])
    if is_response(value):
        return True
    messages = value.get("messages")
    if not isinstance(messages, list):
        return _has_typed_blocks(value)
    if "system" in value or not _OPTIONS.isdisjoint(value):
        return True
    tools = value.get("tools")
    has_schema = isinstance(tools, list) and any(isinstance(t, Mapping) and "input_schema" in t for t in tools)
    return has_schema or recognises(messages)


def _has_typed_blocks(entry: Any) -> bool:
    content = entry.get("content") if isinstance(entry, Mapping) and "role" in entry else None
    if not isinstance(content, list):
        return False
    kinds = [part.get("type") for part in content if isinstance(part, Mapping)]
    return any(isinstance(kind, str) and kind in _TYPED for kind in kinds)


def is_response(value: Mapping[str, Any]) -> bool:
    """Whether a record is a response by itself."""
    return (
        value.get("type") == "message" and value.get("role") == "assistant" and isinstance(value.get("content"), list)
    )


def read(source: Source) -> tuple[Transcript, ...]:
    """A conversation for each request body or response; one for a list of messages; exchanges gathered into theirs."""
    exchanges: list[tuple[int, Mapping[str, Any]]] = []
    loose: list[Any] = []
    transcripts: list[Transcript] = []
    for number, value in source.documents():
        if is_exchange(value) and "messages" in value["request"]:
            exchanges.append((number, value))
        elif isinstance(value, Mapping) and "messages" in value:
            report = Reporter() if transcripts else source.report
            one = Exchanged(value, list(as_list(value["messages"])))
            if value.get("response") is not None:
                one.responses.append((number, len(one.entries), value["response"]))
            transcripts.append(_read_request(one, report, source))
        elif isinstance(value, list):
            loose.extend(value)
        else:
            loose.append(value)
    for one in gather(exchanges, "messages"):
        transcripts.append(_read_request(one, Reporter() if transcripts else source.report, source))
    if loose or not transcripts:
        report = Reporter() if transcripts else source.report
        transcripts.append(_read_request(Exchanged(FrozenDict(), loose), report, source))
    return tuple(transcripts)


def _read_request(one: Exchanged, report: Reporter, source: Source) -> Transcript:
    conversation = Conversation(NAME, report)
    _add_system(conversation, one.request.get("system"))
    starts: list[int] = []
    for number, entry in enumerate(one.entries, 1):
        starts.append(len(conversation.history))
        _add_entry(conversation, entry, f"message {number}")
    taken = one.taken()
    for number, length, response in one.responses:
        place = source.place(number)
        index = starts[length] if length < len(starts) else None
        is_next = number in taken and (index is None or conversation.history[index].role == "assistant")
        if not is_next:
            report.note("response not continued", place, "usage only", "no later request has this turn")
        add_response(conversation, response, place, index, is_new=is_next and index is None)
    request = {k: v for k, v in one.request.items() if k not in _NOT_OPTIONS}
    if request:
        report.note("options kept", "the request", "kept in meta", "what it says beside its messages")
    meta = {"request": request or None, "exchanges": one.beside or None}
    context = _after_compaction(conversation)
    return conversation.finish(tools=read_tools(one.request.get("tools")), meta=meta, context=context)


def _add_system(conversation: Conversation, system: Any) -> None:
    """Each block of a system prompt is a message of its own, so that it is a block again when it is sent."""
    for number, part in enumerate(as_list(system), 1):
        extra = {k: v for k, v in part.items() if k not in ("type", "text")} if isinstance(part, Mapping) else {}
        text = part.get("text") if isinstance(part, Mapping) else part
        if isinstance(text, str):
            conversation.add(Message("system", text, meta=extra), f"system block {number}")
        else:
            odd = opaque_message(part, conversation.report, f"system block {number}", "a system block without text")
            conversation.add(Message("system", blocks=odd.blocks), f"system block {number}")


def _add_entry(conversation: Conversation, entry: Any, place: str) -> None:
    if isinstance(entry, Mapping) and is_response(entry):
        add_response(conversation, entry, place, None, is_new=True)
        return
    if not isinstance(entry, Mapping):
        message = opaque_message(entry, conversation.report, place, f"a {type(entry).__name__} in place of a message")
        conversation.add(message, place)
        return
    role = entry.get("role")
    meta: FrozenDict[str, Any] = FrozenDict({k: v for k, v in entry.items() if k not in ("role", "content")})
    if not isinstance(role, str):
        conversation.report.repair("field missing", place, "kept as a message of an unknown role", "no `role`")
        role = "unknown"
    role = "system" if role == "developer" else role
    for message in read_message(role, entry.get("content"), meta, conversation.report, place):
        conversation.add(message, place)


def add_response(conversation: Conversation, response: Any, place: str, index: int | None, *, is_new: bool) -> None:
    """Notes a recorded response; `is_new`: its message follows the history, else it stands there, at `index`."""
    if isinstance(response, str):
        response = _assembled(response)
    if not isinstance(response, Mapping):
        conversation.report.note("response unreadable", place, "not in the history", "neither a message nor usage")
        return
    usage, model, id = response.get("usage"), response.get("model"), response.get("id")
    if is_new and "content" in response:
        meta = {k: v for k, v in response.items() if k not in ("role", "content", "type") and v is not None}
        for message in read_message("assistant", response["content"], FrozenDict(meta), conversation.report, place):
            index = conversation.add(message, place)
    reading = read_usage(usage, "anthropic") if isinstance(usage, Mapping) else None
    conversation.respond(index, reading, model=model, time=response.get("created_at"), id=id, place=place)


def _after_compaction(conversation: Conversation) -> list[Message] | None:
    """What the server reads: the last summary it wrote, and what follows. Earlier messages it ignores."""
    for index in range(len(conversation.history) - 1, -1, -1):
        message = conversation.history[index]
        at = next((i for i, b in enumerate(message.blocks) if _is_compaction(b)), None)
        if message.role != "assistant" or at is None:
            continue
        block = message.blocks[at]
        text = block.payload.get("content") if isinstance(block, NativeBlock) else None
        start = split_prefix(conversation.history)[1]
        conversation.compact(index, "server")
        if not isinstance(text, str) or not text:
            return conversation.history[index:]
        summary = mark(Message("user", text), "summary", covers=index - start)
        rest = Message("assistant", blocks=message.blocks[at + 1 :], tool_calls=message.tool_calls, meta=message.meta)
        return [
            summary,
            *([rest] if rest.blocks or rest.content or rest.tool_calls else []),
            *conversation.history[index + 1 :],
        ]
    return None


def _is_compaction(block: Any) -> bool:
    payload = block.payload if isinstance(block, NativeBlock) else None
    return isinstance(payload, Mapping) and payload.get("type") == "compaction"


def _assembled(stream: str) -> FrozenDict[str, Any]:
    """The response that a recorded event stream adds up to."""
    message: dict[str, Any] = {}
    usages: list[Any] = []
    parts: dict[Any, dict[str, Any]] = {}
    for event in event_stream(stream):
        kind = event.get("type") if isinstance(event, Mapping) else None
        if kind == "message_start" and isinstance(event.get("message"), Mapping):
            message.update(event["message"])
            usages.append(event)
        elif kind == "message_delta":
            message.update(event["delta"] if isinstance(event.get("delta"), Mapping) else {})
            usages.append(event)
        elif kind == "content_block_start" and isinstance(event.get("content_block"), Mapping):
            parts[_number(event, len(parts))] = dict(event["content_block"])
        elif kind == "content_block_delta" and isinstance(event.get("delta"), Mapping):
            _extend_block(parts.setdefault(_number(event, -1), {}), event["delta"])
    content: list[Any] = []
    for part in parts.values():
        arguments = part.pop("partial_json", None)
        content.append({**part, "input": arguments} if arguments else part)
    usage = read_usage(usages, "anthropic").raw if usages else None
    sealed: FrozenDict[str, Any] = bounded({**message, "content": content, "usage": usage})[0]
    return sealed


def _number(event: Mapping[str, Any], default: int) -> int:
    found = event.get("index")
    return found if isinstance(found, int) else default


def _extend_block(part: dict[str, Any], delta: Mapping[str, Any]) -> None:
    for key in ("text", "thinking", "signature", "partial_json"):
        if isinstance(delta.get(key), str):
            part[key] = (part.get(key) or "") + delta[key]
