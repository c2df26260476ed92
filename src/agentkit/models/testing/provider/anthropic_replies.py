"""What Anthropic's Messages API answers, whole and as events. Touches only its arguments."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from .shapes import Desk, Event, dumped
from .values import Answer, AnswerCall, Refused, Spent

ERRORS = {
    "auth": (401, "authentication_error", "invalid x-api-key"),
    "billing": (
        429,
        "billing_error",
        "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or "
        "purchase credits.",
    ),
    "overloaded": (529, "overloaded_error", "Overloaded"),
    "permission": (403, "permission_error", "Your API key does not have permission to use the specified resource."),
    "rate_limit": (429, "rate_limit_error", "This request would exceed your organization's rate limit."),
    "server": (500, "api_error", "Internal server error"),
    "too_large": (413, "request_too_large", "Request exceeds the maximum size"),
    "unavailable": (503, "api_error", "Service unavailable"),
}
"""Status, type and words of each kind of error."""


def refusal(kind: str, message: str | None = None, status: int | None = None) -> Refused:
    """The error of a kind in Anthropic's form."""
    usual, name, words = ERRORS[kind]
    body = {"type": "error", "error": {"type": name, "message": message or words}, "request_id": "req_fake"}
    return Refused(status or usual, body)


def error_event(kind: str, message: str | None = None) -> Event:
    """The error of a kind inside a stream."""
    _, name, words = ERRORS[kind]
    return "error", {"type": "error", "error": {"type": name, "message": message or words}}


def reply(answer: Answer, body: Mapping[str, Any], spent: Spent, desk: Desk) -> dict[str, Any]:
    """The answer as a Message. Arguments that are no JSON object become an empty one: this form has no other."""
    content: list[dict[str, Any]] = []
    if answer.thinking is not None:
        content.append(_thought(answer.thinking, answer.redacted, desk))
    content.extend([dict(one) for one in answer.native])
    if answer.text:
        content.append({"type": "text", "text": answer.text})
    content.extend([_call(one, desk) for one in answer.calls])
    reason = answer.finish_reason or ("tool_use" if answer.calls else "end_turn")
    stops = body.get("stop_sequences") or [None]
    return {
        "id": desk.new_id("msg_"),
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": content,
        "stop_reason": reason,
        "stop_sequence": stops[0] if reason == "stop_sequence" else None,
        "usage": _usage(spent, spent.output),
    }


def events(message: Mapping[str, Any], answer: Answer, spent: Spent, desk: Desk) -> Iterator[Event]:
    """The same answer as a stream. Arguments arrive as they were given, malformed ones too."""
    start = {**message, "content": [], "stop_reason": None, "stop_sequence": None, "usage": _usage(spent, 1)}
    yield "message_start", {"type": "message_start", "message": start}
    yield "ping", {"type": "ping"}
    given = iter(answer.calls)
    for at, block in enumerate(message["content"]):
        yield from _block_events(at, block, next(given) if block["type"] == "tool_use" else None, desk)
    end = {"stop_reason": message["stop_reason"], "stop_sequence": message["stop_sequence"]}
    usage = {
        "input_tokens": spent.fresh,
        "cache_creation_input_tokens": spent.write_short + spent.write_long,
        "cache_read_input_tokens": spent.read,
        "output_tokens": spent.output,
        "output_tokens_details": {"thinking_tokens": spent.reasoning},
    }
    yield "message_delta", {"type": "message_delta", "delta": end, "usage": usage}
    yield "message_stop", {"type": "message_stop"}


def _block_events(at: int, block: Mapping[str, Any], call: AnswerCall | None, desk: Desk) -> Iterator[Event]:
    kind = block["type"]
    if kind == "text":
        empty, deltas = (
            {**block, "text": ""},
            [{"type": "text_delta", "text": one} for one in desk.pieces(block["text"])],
        )
    elif kind == "thinking":
        empty = {**block, "thinking": "", "signature": ""}
        deltas = [{"type": "thinking_delta", "thinking": one} for one in desk.pieces(block["thinking"])]
        deltas.append({"type": "signature_delta", "signature": block["signature"]})
    elif call is not None:
        empty = {**block, "input": {}}
        text = arguments_text(call)
        deltas = [{"type": "input_json_delta", "partial_json": one} for one in ["", *desk.pieces(text)]]
    else:
        empty, deltas = dict(block), []
    yield "content_block_start", {"type": "content_block_start", "index": at, "content_block": empty}
    for delta in deltas:
        yield "content_block_delta", {"type": "content_block_delta", "index": at, "delta": delta}
    yield "content_block_stop", {"type": "content_block_stop", "index": at}


def _thought(text: str, redacted: bool, desk: Desk) -> dict[str, Any]:
    if redacted:
        return {"type": "redacted_thinking", "data": desk.seal.wrap(text)}
    return {"type": "thinking", "thinking": text, "signature": desk.seal.sign(text)}


def _call(call: AnswerCall, desk: Desk) -> dict[str, Any]:
    given: Any = call.arguments
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError:
            given = {}
    name = call.id or desk.new_id("toolu_")
    return {
        "type": "tool_use",
        "id": name,
        "name": call.name,
        "input": dict(given) if isinstance(given, Mapping) else {},
    }


def arguments_text(call: AnswerCall) -> str:
    """The arguments of a call as a model writes them; a text is what it is."""
    return call.arguments if isinstance(call.arguments, str) else dumped(dict(call.arguments))


def _usage(spent: Spent, output: int) -> dict[str, Any]:
    return {
        "input_tokens": spent.fresh,
        "cache_creation_input_tokens": spent.write_short + spent.write_long,
        "cache_read_input_tokens": spent.read,
        "cache_creation": {
            "ephemeral_5m_input_tokens": spent.write_short,
            "ephemeral_1h_input_tokens": spent.write_long,
        },
        "output_tokens": output,
        "output_tokens_details": {"thinking_tokens": min(spent.reasoning, output)},
        "service_tier": "standard",
    }
