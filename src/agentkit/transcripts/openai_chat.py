"""OpenAI chat completions: request bodies, lists of messages, LiteLLM's logs, exchanges. Touches only its arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .conversation import Conversation
from .exchanges import Exchanged, gather, is_exchange
from .openai_shape import add_messages, add_response
from .parts import read_tools
from .report import Reporter
from .source import Source
from .transcript import Transcript

NAME = "openai-chat"
_NOT_OPTIONS = frozenset({"messages", "response"})
_LOG_KEYS = frozenset({"kwargs", "raw_messages", "response"})
"""What a log has beside the request itself."""


def recognises(value: Any) -> bool:
    """Whether a document, or one line of several, is of this format. The last resort: everything with a role is."""
    if isinstance(value, list):
        return any(isinstance(entry, Mapping) and isinstance(entry.get("role"), str) for entry in value)
    if not isinstance(value, Mapping):
        return False
    if is_exchange(value):
        return isinstance(value["request"].get("messages"), list)
    return isinstance(value.get("messages"), list) or isinstance(value.get("role"), str) or is_response(value)


def is_response(value: Mapping[str, Any]) -> bool:
    """Whether a record is a chat completion by itself."""
    choices = value.get("choices")
    return isinstance(choices, list) and any(isinstance(c, Mapping) and "message" in c for c in choices)


def read(source: Source) -> tuple[Transcript, ...]:
    """A conversation for each request body; one for a list of messages; exchanges gathered into theirs."""
    exchanges: list[tuple[int, Mapping[str, Any]]] = []
    loose: list[Any] = []
    transcripts: list[Transcript] = []
    for number, value in source.documents():
        if is_exchange(value) and "messages" in value["request"]:
            exchanges.append((number, value))
        elif isinstance(value, Mapping) and ("messages" in value or is_response(value)):
            report = Reporter() if transcripts else source.report
            transcripts.append(_read_body(value, report, source.place(number)))
        elif isinstance(value, list) and value and all(is_exchange(entry) for entry in value):
            exchanges.extend(enumerate(value, 1))
        elif isinstance(value, list):
            loose.extend(value)
        else:
            loose.append(value)
    for one in gather(exchanges, "messages"):
        report = Reporter() if transcripts else source.report
        transcripts.append(_read_exchanged(one, report, source))
    if loose or not transcripts:
        conversation = Conversation(NAME, Reporter() if transcripts else source.report)
        add_messages(conversation, loose)
        transcripts.append(conversation.finish())
    return tuple(transcripts)


def _read_body(body: Mapping[str, Any], report: Reporter, place: str) -> Transcript:
    conversation = Conversation(NAME, report)
    add_messages(conversation, as_list(body.get("messages")))
    response = body if is_response(body) and "messages" not in body else body.get("response")
    if response is not None:
        add_response(conversation, response, place)
    request, log = _options(body) if response is not body else ({}, {})
    if request or log:
        report.note("options kept", place, "kept in meta", "what the request says beside its messages")
    meta = {"request": request or None, "log": log or None}
    return conversation.finish(tools=read_tools(request.get("tools")), meta=meta)


def _options(body: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options of a request, and what a log around it says beside them."""
    rest = {k: v for k, v in body.items() if k not in _NOT_OPTIONS}
    if not _LOG_KEYS & set(body):
        return rest, {}
    kwargs = rest.pop("kwargs", None)
    request = {k: rest.pop(k) for k in ("model", "tools") if rest.get(k) is not None}
    if isinstance(kwargs, Mapping):
        request.update({k: v for k, v in kwargs.items() if k != "messages"})
    elif kwargs is not None:
        rest["kwargs"] = kwargs
    return request, rest


def _read_exchanged(one: Exchanged, report: Reporter, source: Source) -> Transcript:
    conversation = Conversation(NAME, report)
    starts = add_messages(conversation, one.entries)
    taken = one.taken()
    for number, length, response in one.responses:
        place = source.place(number)
        index = starts[length] if length < len(starts) else None
        is_next = number in taken and (index is None or conversation.history[index].role == "assistant")
        if not is_next and isinstance(response, Mapping):
            report.note("response not continued", place, "usage only", "no later request has this turn")
            response = {k: v for k, v in response.items() if k != "choices"}
        add_response(conversation, response, place, index if is_next else None)
    request = {k: v for k, v in one.request.items() if k != "messages"}
    if request:
        report.note("options kept", "the last request", "kept in meta", "what it says beside its messages")
    meta = {"request": request or None, "exchanges": one.beside or None}
    return conversation.finish(tools=read_tools(one.request.get("tools")), meta=meta)


def as_list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]
