"""What OpenAI's chat completions answer, whole and as events. Touches only its arguments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .anthropic_replies import arguments_text
from .openai_forms import text_usage
from .shapes import Desk, Event
from .values import Answer, Spent


def reply(answer: Answer, body: Mapping[str, Any], spent: Spent, desk: Desk) -> dict[str, Any]:
    """The answer as a ChatCompletion. Thinking is not shown on this wire."""
    message: dict[str, Any] = {"role": "assistant", "content": answer.text or None, "refusal": None, "annotations": []}
    if answer.calls:
        message["tool_calls"] = [
            {
                "id": call.id or desk.new_id("call_"),
                "type": "function",
                "function": {"name": call.name, "arguments": arguments_text(call)},
            }
            for call in answer.calls
        ]
    for one in answer.native:
        message.update(one)
    reason = answer.finish_reason or ("tool_calls" if answer.calls else "stop")
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reason}
    return {
        "id": desk.new_id("chatcmpl-"),
        "object": "chat.completion",
        "created": desk.created,
        "model": body["model"],
        "choices": [choice],
        "usage": text_usage(spent, "prompt_tokens", "completion_tokens"),
        "service_tier": "default",
        "system_fingerprint": "fp_fake",
    }


def events(whole: Mapping[str, Any], body: Mapping[str, Any], desk: Desk) -> Iterator[Event]:
    """The same answer as chunks; usage in a last one without choices, if the request asks for it."""
    counted = bool((body.get("stream_options") or {}).get("include_usage"))
    names = ("id", "created", "model", "service_tier", "system_fingerprint")
    base = {**{name: whole[name] for name in names}, "object": "chat.completion.chunk"}
    choice = whole["choices"][0]
    message = choice["message"]
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": "", "refusal": None}]
    deltas += [{"content": piece} for piece in desk.pieces(message["content"] or "")]
    for at, call in enumerate(message.get("tool_calls", [])):
        function = {"name": call["function"]["name"], "arguments": ""}
        deltas.append({"tool_calls": [{"index": at, "id": call["id"], "type": "function", "function": function}]})
        for piece in desk.pieces(call["function"]["arguments"]):
            deltas.append({"tool_calls": [{"index": at, "function": {"arguments": piece}}]})
    if isinstance(message.get("refusal"), str):
        deltas.append({"refusal": message["refusal"]})
    unknown: dict[str, Any] = {"usage": None} if counted else {}
    for delta in deltas:
        yield (
            None,
            {**base, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}], **unknown},
        )
    last = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": choice["finish_reason"]}
    yield None, {**base, "choices": [last], **unknown}
    if counted:
        yield None, {**base, "choices": [], "usage": whole["usage"]}
    yield None, "[DONE]"
