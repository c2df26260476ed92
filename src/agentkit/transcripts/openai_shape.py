"""Messages and responses in the shape of OpenAI's chat completions, which many borrow. Touches only its arguments."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agentkit.core.contracts.frozen import FrozenDict
from agentkit.core.contracts.types import Block, Message, NativeBlock, TextBlock, ThinkingBlock, ToolCall
from agentkit.models.usage import UsageReading, read_usage

from .conversation import Conversation
from .parsing import bounded, event_stream
from .parts import EMPTY, as_id, call_of, opaque_message, read_content, read_part
from .report import Reporter

_READ = frozenset(
    {
        "role",
        "content",
        "name",
        "tool_calls",
        "function_call",
        "tool_call_id",
        "refusal",
        "reasoning_content",
        "reasoning",
    }
)
_OTHER_ROLES = {"developer": "system", "function": "tool"}
_CALLS_AS_TEXT = re.compile(r"<(?:function=|function_calls>|tool_call>|invoke name=)")


def read_message(
    record: Any, report: Reporter, place: str, *, provider: str = "openai", extra: Mapping[str, Any] = EMPTY
) -> Message:
    """The message in `record`; fields it has beside the known ones go to `meta`, with `extra`."""
    if not isinstance(record, Mapping):
        return opaque_message(record, report, place, f"a {type(record).__name__} in place of a message")
    said = record.get("role")
    role = _OTHER_ROLES.get(said, said) if isinstance(said, str) else "unknown"
    meta = {k: v for k, v in record.items() if k not in _READ and v is not None}
    if not isinstance(said, str):
        report.repair("field missing", place, "kept as a message of an unknown role", "no `role`")
        if said is not None:
            meta["role"] = said
    elif role != said:
        meta["role"] = said
    calls, odd = read_calls(record, report, place)
    content = read_content(record.get("content"), provider, report, place)
    front, back = _around(record, meta)
    if front or back or odd:
        middle: Sequence[Block | str] = ([content] if content else []) if isinstance(content, str) else content
        content = [*front, *[TextBlock(b) if isinstance(b, str) else b for b in middle], *back, *odd]
    if role == "assistant" and isinstance(content, str) and not calls and _CALLS_AS_TEXT.search(content):
        report.note("calls as text", place, "kept as text", "calls spelled in the text, a prompted dialect")
    name = record.get("name")
    return Message(
        role,
        content,
        name if isinstance(name, str) and name else None,
        as_id(record.get("tool_call_id")) or None,
        calls,
        meta={**meta, **extra},
    )


def _around(record: Mapping[str, Any], meta: dict[str, Any]) -> tuple[list[Block], list[Block]]:
    """Reasoning in front of the content and a refusal behind it; what has another form stays in `meta`."""
    front: list[Block] = []
    back: list[Block] = []
    for key in ("reasoning_content", "reasoning"):
        value = record.get(key)
        if isinstance(value, str) and not front:
            if value:
                front.append(ThinkingBlock(value))
        elif value is not None:
            meta[key] = value
    refusal = record.get("refusal")
    if isinstance(refusal, str) and refusal:
        back.append(NativeBlock("openai", FrozenDict(type="refusal", refusal=refusal)))
    elif refusal is not None and refusal != "":
        meta["refusal"] = refusal
    return front, back


def read_calls(record: Mapping[str, Any], report: Reporter, place: str) -> tuple[tuple[ToolCall, ...], list[Block]]:
    """The calls of a message, and entries among them that are none."""
    calls: list[ToolCall] = []
    odd: list[Block] = []
    given = record.get("tool_calls")
    if given is not None and not isinstance(given, list):
        report.repair("field unreadable", place, "kept as an opaque part", f"`tool_calls` is a {type(given).__name__}")
        odd.append(NativeBlock("unknown", given))
        given = None
    for entry in given or ():
        if isinstance(entry, Mapping):
            calls.append(read_call(entry))
        else:
            odd.append(read_part(entry, "unknown", report, place))
    legacy = record.get("function_call")
    if isinstance(legacy, Mapping):
        calls.append(call_of(None, legacy.get("name"), legacy.get("arguments"), FrozenDict(type="function_call")))
    return tuple(calls), odd


def read_call(entry: Mapping[str, Any]) -> ToolCall:
    """A call of OpenAI's or a flat shape; its type and other fields go to `meta`."""
    inner = entry.get("function")
    if entry.get("type") == "custom" and isinstance(custom := entry.get("custom"), Mapping):
        extra = {k: v for k, v in entry.items() if k not in ("id", "custom")}
        return call_of(entry.get("id"), custom.get("name"), FrozenDict(input=custom.get("input")), extra)
    source = inner if isinstance(inner, Mapping) else entry
    name = inner if isinstance(inner, str) else source.get("name")
    arguments = next((source[k] for k in ("arguments", "args", "input") if k in source), None)
    known = {"id", "function", "name", "arguments", "args", "input"}
    extra = {k: v for k, v in entry.items() if k not in known and v is not None and (k, v) != ("type", "function")}
    return call_of(entry.get("id"), name, arguments, extra)


def add_messages(conversation: Conversation, messages: Iterable[Any], **options: Any) -> list[int]:
    """Adds wire messages in order; where in the history each of them stands."""
    starts: list[int] = []
    for number, record in enumerate(messages, 1):
        place = f"message {number}"
        starts.append(conversation.add(read_message(record, conversation.report, place, **options), place))
    return starts


def usage_of(usage: Any, model: Any = None) -> UsageReading | None:
    """The reading of a chat completion's usage, whichever of OpenAI's imitators wrote it."""
    if not isinstance(usage, Mapping):
        return None
    if not usage.keys().isdisjoint(("cache_read_input_tokens", "cache_creation_input_tokens")):
        wire = "litellm"
    elif "prompt_cache_hit_tokens" in usage:
        wire = "deepseek"
    elif "cost" in usage:
        wire = "openrouter"
    elif isinstance(model, str) and model.rpartition("/")[2].startswith("grok"):
        wire = "xai"
    else:
        wire = "openai_chat"
    return read_usage(usage, wire)


def add_response(conversation: Conversation, response: Any, place: str, index: int | None = None) -> int | None:
    """Notes a recorded response, and adds its message unless that is in the history already, at `index`."""
    if isinstance(response, str):
        response = assembled(response)
    if not isinstance(response, Mapping):
        return None
    choices = response.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.get("message") if isinstance(first, Mapping) else None
    model, usage = response.get("model"), response.get("usage")
    if index is None and isinstance(message, Mapping) and isinstance(first, Mapping):
        fields = {"id": response.get("id"), "model": model, "stop_reason": first.get("finish_reason"), "usage": usage}
        extra = {k: v for k, v in fields.items() if v is not None}
        record = message if "role" in message else FrozenDict({**message, "role": "assistant"})
        index = conversation.add(read_message(record, conversation.report, place, extra=extra), place)
        if isinstance(choices, list) and len(choices) > 1:
            conversation.report.note("other choices", place, "left out", f"{len(choices)} choices, the first was taken")
    if message is None and usage is None:
        conversation.report.note("response unreadable", place, "not in the history", "neither a message nor usage")
        return None
    reading = usage_of(usage, model)
    time = response.get("created", response.get("created_at"))
    conversation.respond(index, reading, model=model, time=time, id=response.get("id"), place=place)
    return index


def assembled(stream: str) -> FrozenDict[str, Any]:
    """The response that a recorded event stream of chat completion chunks adds up to."""
    about: dict[str, Any] = {}
    texts: dict[str, list[str]] = {"content": [], "reasoning_content": [], "refusal": []}
    calls: dict[Any, dict[str, Any]] = {}
    finish = None
    for chunk in event_stream(stream):
        if not isinstance(chunk, Mapping):
            continue
        about.update({k: chunk[k] for k in ("id", "model", "created", "usage") if chunk.get(k) is not None})
        choices = chunk.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            delta = choice.get("delta") if isinstance(choice, Mapping) and not choice.get("index") else None
            if not isinstance(delta, Mapping):
                continue
            finish = choice.get("finish_reason") or finish
            for key, found in texts.items():
                if isinstance(delta.get(key), str):
                    found.append(delta[key])
            parts = delta.get("tool_calls")
            for part in parts if isinstance(parts, list) else ():
                if isinstance(part, Mapping):
                    _extend_call(calls, part)
    message: dict[str, Any] = {"role": "assistant", **{k: "".join(found) for k, found in texts.items() if found}}
    if calls:
        message["tool_calls"] = list(calls.values())
    choice = {"index": 0, "message": message, "finish_reason": finish}
    choices = [choice] if len(message) > 1 else []  # a text that is no stream at all answers nothing
    sealed: FrozenDict[str, Any] = bounded({**about, "choices": choices})[0]
    return sealed


def _extend_call(calls: dict[Any, dict[str, Any]], part: Mapping[str, Any]) -> None:
    number = part.get("index")
    call = calls.setdefault(number if isinstance(number, int) else len(calls), {"id": None, "function": {}})
    call["id"] = part.get("id") or call["id"]
    function = part.get("function")
    if isinstance(function, Mapping):
        into = call["function"]
        into["name"] = function.get("name") or into.get("name")
        if isinstance(function.get("arguments"), str):
            into["arguments"] = into.get("arguments", "") + function["arguments"]
