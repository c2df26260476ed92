"""What Gemini's `generateContent` answers, whole and as events. Touches only its arguments."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from .gemini_checks import error, needs_signatures
from .shapes import Desk, Event
from .values import Answer, AnswerCall, Refused, Spent

ERRORS = {
    "auth": (401, "UNAUTHENTICATED", "Request had invalid authentication credentials."),
    "billing": (
        429,
        "RESOURCE_EXHAUSTED",
        "You exceeded your current quota, please check your plan and billing details.",
    ),
    "overloaded": (503, "UNAVAILABLE", "The model is overloaded. Please try again later."),
    "permission": (403, "PERMISSION_DENIED", "The caller does not have permission"),
    "rate_limit": (429, "RESOURCE_EXHAUSTED", "Resource has been exhausted (e.g. check quota)."),
    "server": (500, "INTERNAL", "An internal error has occurred. Please retry."),
    "too_large": (413, "INVALID_ARGUMENT", "Request payload size exceeds the limit."),
    "unavailable": (503, "UNAVAILABLE", "The service is currently unavailable."),
}
"""Status, state and words of each kind of error."""


def refusal(kind: str, message: str | None = None, status: int | None = None) -> Refused:
    """The error of a kind in Google's form."""
    usual, state, words = ERRORS[kind]
    return error(status or usual, state, message or words)


def error_event(kind: str, message: str | None = None) -> Event:
    """The error of a kind inside a stream."""
    return None, refusal(kind, message).body


def reply(answer: Answer, body: Mapping[str, Any], spent: Spent, desk: Desk) -> dict[str, Any]:
    """The answer as a GenerateContentResponse. What was thought signs the part behind it."""
    parts: list[dict[str, Any]] = []
    if answer.thinking is not None and not answer.redacted:
        parts.append({"text": answer.thinking, "thought": True})
    led = [dict(one) for one in answer.native]
    if answer.text:
        led.append({"text": answer.text})
    led.extend([{"functionCall": _call(call)} for call in answer.calls])
    signs = answer.thinking is not None or (answer.calls and needs_signatures(body["model"]))
    if signs and led:
        led[-1 if not answer.calls else -len(answer.calls)]["thoughtSignature"] = desk.seal.wrap(answer.thinking or "")
    candidate = {
        "content": {"role": "model", "parts": [*parts, *led]},
        "finishReason": answer.finish_reason or "STOP",
        "index": 0,
    }
    return {
        "candidates": [candidate],
        "usageMetadata": _usage(spent),
        "modelVersion": body["model"],
        "responseId": desk.new_id("response-"),
    }


def events(whole: Mapping[str, Any], desk: Desk) -> Iterator[Event]:
    """The same answer as a stream: texts in pieces, calls whole, the finish reason and the output's usage last."""
    candidate = whole["candidates"][0]
    pieces = [piece for part in candidate["content"]["parts"] for piece in _pieces(part, desk)] or [{"text": ""}]
    for at, piece in enumerate(pieces):
        last = at == len(pieces) - 1
        one = {"content": {"role": "model", "parts": [piece]}, "index": 0}
        usage = dict(whole["usageMetadata"])
        if last:
            one["finishReason"] = candidate["finishReason"]
        else:
            usage = {key: value for key, value in usage.items() if key not in ("candidatesTokenCount",)}
        yield None, {**whole, "candidates": [one], "usageMetadata": usage}


def _pieces(part: Mapping[str, Any], desk: Desk) -> list[dict[str, Any]]:
    if "text" not in part:
        return [dict(part)]
    rest = {key: value for key, value in part.items() if key not in ("text", "thoughtSignature")}
    pieces: list[dict[str, Any]] = [{"text": one, **rest} for one in desk.pieces(part["text"])]
    if "thoughtSignature" in part:
        pieces.append({"text": "", "thoughtSignature": part["thoughtSignature"]})
    return pieces


def _call(call: AnswerCall) -> dict[str, Any]:
    given: Any = call.arguments
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError:
            given = {}
    made = {"name": call.name, "args": dict(given) if isinstance(given, Mapping) else {}}
    return made if call.id is None else {"id": call.id, **made}


def _usage(spent: Spent) -> dict[str, Any]:
    figures = {
        "promptTokenCount": spent.prompt,
        "candidatesTokenCount": spent.output - spent.reasoning,
        "totalTokenCount": spent.prompt + spent.output,
    }
    if spent.read:
        figures["cachedContentTokenCount"] = spent.read
    if spent.reasoning:
        figures["thoughtsTokenCount"] = spent.reasoning
    return figures
