"""What OpenAI's Responses API answers, whole and as events. Touches its arguments, and stores what it answers where the
request asks for that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

from .anthropic_replies import arguments_text
from .openai_forms import refusal, text_usage
from .responses_checks import whole_input
from .shapes import Desk, Event
from .values import Answer, AnswerCall, Spent

_CUT = ("max_output_tokens", "content_filter")


def reply(answer: Answer, body: Mapping[str, Any], spent: Spent, desk: Desk) -> dict[str, Any]:
    """The answer as a Response. A finish reason is that of an incomplete response: max_output_tokens or
    content_filter."""
    reason = answer.finish_reason if answer.finish_reason in _CUT else None
    output = _output(answer, body, desk, "incomplete" if reason else "completed")
    response = {
        "id": desk.new_id("resp_"),
        "object": "response",
        "created_at": desk.created,
        "status": "incomplete" if reason else "completed",
        "error": None,
        "incomplete_details": {"reason": reason} if reason else None,
        "instructions": body.get("instructions"),
        "max_output_tokens": body.get("max_output_tokens"),
        "metadata": body.get("metadata") or {},
        "model": body["model"],
        "output": output,
        "parallel_tool_calls": body.get("parallel_tool_calls", True),
        "previous_response_id": body.get("previous_response_id"),
        "prompt_cache_key": body.get("prompt_cache_key"),
        "reasoning": {"effort": (body.get("reasoning") or {}).get("effort"), "summary": None},
        "service_tier": "default",
        "store": body.get("store") is not False,
        "temperature": body.get("temperature", 1.0),
        "text": body.get("text") or {"format": {"type": "text"}},
        "tool_choice": body.get("tool_choice", "auto"),
        "tools": body.get("tools", []),
        "top_p": body.get("top_p", 1.0),
        "truncation": body.get("truncation") or "disabled",
        "usage": text_usage(spent, "input_tokens", "output_tokens"),
        "user": None,
    }
    if response["store"]:
        _store(response, body, desk)
    return response


def _output(answer: Answer, body: Mapping[str, Any], desk: Desk, status: str) -> list[dict[str, Any]]:
    output: list[dict[str, Any]] = []
    if answer.thinking is not None:
        summary = [] if answer.redacted else [{"type": "summary_text", "text": answer.thinking}]
        thought = {"id": desk.new_id("rs_"), "type": "reasoning", "summary": summary}
        if "reasoning.encrypted_content" in (body.get("include") or []):
            thought["encrypted_content"] = desk.seal.wrap(answer.thinking)
        output.append(thought)
    output.extend([dict(one) for one in answer.native])
    if answer.text:
        part = {"type": "output_text", "text": answer.text, "annotations": [], "logprobs": []}
        output.append(
            {"id": desk.new_id("msg_"), "type": "message", "role": "assistant", "status": status, "content": [part]}
        )
    output.extend([_call(call, desk, status) for call in answer.calls])
    return output


def _call(call: AnswerCall, desk: Desk, status: str) -> dict[str, Any]:
    return {
        "id": desk.new_id("fc_"),
        "type": "function_call",
        "call_id": call.id or desk.new_id("call_"),
        "name": call.name,
        "arguments": arguments_text(call),
        "status": status,
    }


def _store(response: Mapping[str, Any], body: Mapping[str, Any], desk: Desk) -> None:
    thought = None
    for item in response["output"]:
        if item.get("id") is not None:
            desk.stored[item["id"]] = item
        if item["type"] == "reasoning":
            thought = item["id"]
        elif thought is not None and item.get("id") is not None:
            desk.stored[f"reasoning of {item['id']}"] = thought
            thought = None
    desk.stored[response["id"]] = [*whole_input(body, desk), *response["output"]]


def events(response: Mapping[str, Any], desk: Desk) -> Iterator[Event]:
    """The same answer as a stream, numbered from 0."""
    numbers = count()
    early = {**response, "status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    pieces = [
        ("response.created", {"response": early}),
        ("response.in_progress", {"response": early}),
        *[piece for at, item in enumerate(response["output"]) for piece in _item_events(at, item, desk)],
        (f"response.{response['status']}", {"response": response}),
    ]
    for name, data in pieces:
        yield name, {"type": name, "sequence_number": next(numbers), **data}


def error_event(kind: str, message: str | None = None) -> Event:
    """The error of a kind inside a stream."""
    error = refusal(kind, message).body["error"]
    data = {"type": "error", "sequence_number": 0, "code": error["code"], "message": error["message"], "param": None}
    return "error", data


def _item_events(at: int, item: Mapping[str, Any], desk: Desk) -> Iterator[Event]:
    kind = item["type"]
    early = {**item, "status": "in_progress"} if "status" in item else dict(item)
    where = {"item_id": item.get("id"), "output_index": at}
    empty: dict[str, dict[str, Any]] = {
        "message": {"content": []},
        "function_call": {"arguments": ""},
        "reasoning": {"summary": []},
    }
    yield "response.output_item.added", {"output_index": at, "item": {**early, **empty.get(kind, {})}}
    if kind == "message":
        for number, part in enumerate(item["content"]):
            if part["type"] != "output_text":
                continue  # a refusal comes whole
            yield from _text_events({**where, "content_index": number}, part, desk)
    elif kind == "function_call":
        name = "response.function_call_arguments"
        for piece in desk.pieces(item["arguments"]):
            yield f"{name}.delta", {**where, "delta": piece}
        yield f"{name}.done", {**where, "name": item["name"], "arguments": item["arguments"]}
    elif kind == "reasoning":
        for number, part in enumerate(item["summary"]):
            yield from _summary_events({**where, "summary_index": number}, part, desk)
    yield "response.output_item.done", {"output_index": at, "item": item}


def _text_events(where: Mapping[str, Any], part: Mapping[str, Any], desk: Desk) -> Iterator[Event]:
    yield "response.content_part.added", {**where, "part": {**part, "text": ""}}
    for piece in desk.pieces(part["text"]):
        yield "response.output_text.delta", {**where, "delta": piece, "logprobs": []}
    yield "response.output_text.done", {**where, "text": part["text"], "logprobs": []}
    yield "response.content_part.done", {**where, "part": part}


def _summary_events(where: Mapping[str, Any], part: Mapping[str, Any], desk: Desk) -> Iterator[Event]:
    yield "response.reasoning_summary_part.added", {**where, "part": {**part, "text": ""}}
    for piece in desk.pieces(part["text"]):
        yield "response.reasoning_summary_text.delta", {**where, "delta": piece}
    yield "response.reasoning_summary_text.done", {**where, "text": part["text"]}
    yield "response.reasoning_summary_part.done", {**where, "part": part}
