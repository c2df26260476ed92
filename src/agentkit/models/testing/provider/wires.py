"""The wires of a fake provider side by side: where they are asked, and who judges and answers them. Touches only its
arguments."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from . import anthropic_checks as anthropic
from . import anthropic_replies, chat_replies, gemini_replies, responses_replies
from . import chat_checks as chat
from . import gemini_checks as gemini
from . import openai_forms as openai
from . import responses_checks as responses
from .shapes import Desk, Event
from .values import Answer, Refused, Spent


@dataclass(frozen=True)
class WireSide:
    """What a wire does with a request. `secret`: the key of a request's headers, None without one; `check` raises
    Refused; `read`: the body with what the provider adds to it; `whole` and `events` make the answer; `parts` are the
    segments of a body; `cut_reason`: the finish reason of an answer that was cut."""

    name: str
    secret: Callable[[Mapping[str, str]], str | None]
    unauthorised: Refused
    check: Callable[[Any, Mapping[str, str], Desk, bool], None]
    check_size: Callable[[Mapping[str, Any], int, Desk], None]
    read: Callable[[Mapping[str, Any], Desk], Mapping[str, Any]]
    whole: Callable[[Answer, Mapping[str, Any], Spent, Desk], dict[str, Any]]
    events: Callable[[Mapping[str, Any], Answer, Mapping[str, Any], Spent, Desk], Iterable[Event]]
    refusal: Callable[[str, str | None, int | None], Refused]
    error_event: Callable[[str, str | None], Event]
    malformed: Callable[[str], Refused]
    parts: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    counted: Callable[[int], Mapping[str, Any]]
    cut_reason: str


@dataclass(frozen=True)
class Route:
    """Where a request goes. `counting`: it asks for tokens only; `model` and `streams`: where the path says so."""

    wire: WireSide
    counting: bool = False
    model: str | None = None
    streams: bool | None = None


def route(method: str, path: str) -> Route | None:
    """The wire that a path belongs to; None for one that is not served."""
    if method != "POST":
        return None
    found = _PATHS.get(path)
    if found is not None:
        return found
    asked = re.fullmatch(r"/v1(?:beta|alpha)?/models/([^/:]+):(\w+)", path)
    if asked is None or asked[2] not in _ACTIONS:
        return None
    return Route(GEMINI, asked[2] == "countTokens", asked[1], asked[2] == "streamGenerateContent")


def listing(names: Iterable[str], created: int, anthropic_form: bool) -> dict[str, Any]:
    """The list of models, in Anthropic's form or in OpenAI's."""
    if not anthropic_form:
        rows = [{"id": name, "object": "model", "created": created, "owned_by": "fake"} for name in names]
        return {"object": "list", "data": rows}
    day = "2026-09-21T00:00:00Z"
    models = [{"type": "model", "id": name, "display_name": name, "created_at": day} for name in names]
    ends = {"first_id": models[0]["id"] if models else None, "last_id": models[-1]["id"] if models else None}
    return {"data": models, "has_more": False, **ends}


def bearer(headers: Mapping[str, str]) -> str | None:
    """The key behind `Authorization: Bearer`; None without one."""
    kind, _, key = headers.get("authorization", "").partition(" ")
    return key.strip() or None if kind.lower() == "bearer" else None


def _anthropic_parts(body: Mapping[str, Any]) -> dict[str, Any]:
    return {"tools": body.get("tools"), "system": body.get("system"), "messages": body.get("messages")}


def _chat_parts(body: Mapping[str, Any]) -> dict[str, Any]:
    return _split(body, body.get("messages"))


def _responses_parts(body: Mapping[str, Any]) -> dict[str, Any]:
    parts = _split(body, body.get("input"))
    if body.get("instructions"):
        parts["system"] = [body["instructions"], *(parts["system"] or [])]
    return parts


def _split(body: Mapping[str, Any], items: Any) -> dict[str, Any]:
    """Leading system and developer messages are the system segment."""
    at = 0
    listed = items if isinstance(items, list) else []
    while at < len(listed) and isinstance(listed[at], dict) and listed[at].get("role") in ("system", "developer"):
        at += 1
    return {"tools": body.get("tools"), "system": listed[:at] or None, "messages": listed[at:] if listed else items}


def _gemini_parts(body: Mapping[str, Any]) -> dict[str, Any]:
    return {"tools": body.get("tools"), "system": body.get("systemInstruction"), "messages": body.get("contents")}


def canonical_gemini(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Gemini's body in its plain form; a request to count tokens may wrap it."""
    whole: Mapping[str, Any] = gemini.canonical(body)
    wrapped = whole.get("generateContentRequest")
    return {**wrapped, "model": whole["model"]} if isinstance(wrapped, dict) else whole


def _same(body: Mapping[str, Any], desk: Desk) -> Mapping[str, Any]:
    return body


ANTHROPIC = WireSide(
    "anthropic",
    lambda headers: headers.get("x-api-key") or bearer(headers),
    anthropic.error(401, "authentication_error", "invalid x-api-key"),
    lambda body, headers, desk, counting: anthropic.check(body, headers, desk, counting=counting),
    anthropic.check_size,
    _same,
    anthropic_replies.reply,
    lambda whole, answer, body, spent, desk: anthropic_replies.events(whole, answer, spent, desk),
    anthropic_replies.refusal,
    anthropic_replies.error_event,
    lambda text: anthropic.error(400, "invalid_request_error", text),
    _anthropic_parts,
    lambda tokens: {"input_tokens": tokens},
    "max_tokens",
)
CHAT = WireSide(
    "openai_chat",
    bearer,
    openai.no("You didn't provide a valid API key.", None, "invalid_api_key", status=401),
    lambda body, headers, desk, counting: chat.check(body, desk),
    chat.check_size,
    _same,
    chat_replies.reply,
    lambda whole, answer, body, spent, desk: chat_replies.events(whole, body, desk),
    openai.refusal,
    openai.error_event,
    lambda text: openai.no(text, None, None),
    _chat_parts,
    lambda tokens: {"input_tokens": tokens},
    "length",
)
RESPONSES = WireSide(
    "openai_responses",
    bearer,
    openai.no("You didn't provide a valid API key.", None, "invalid_api_key", status=401),
    lambda body, headers, desk, counting: responses.check(body, desk),
    responses.check_size,
    lambda body, desk: {**body, "input": responses.whole_input(body, desk)},
    responses_replies.reply,
    lambda whole, answer, body, spent, desk: responses_replies.events(whole, desk),
    openai.refusal,
    responses_replies.error_event,
    lambda text: openai.no(text, None, None),
    _responses_parts,
    lambda tokens: {"object": "response.input_tokens", "input_tokens": tokens},
    "max_output_tokens",
)
GEMINI = WireSide(
    "gemini",
    lambda headers: headers.get("x-goog-api-key") or bearer(headers),
    gemini.error(400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key."),
    lambda body, headers, desk, counting: gemini.check(body, desk, counting=counting),
    gemini.check_size,
    lambda body, desk: canonical_gemini(body),
    gemini_replies.reply,
    lambda whole, answer, body, spent, desk: gemini_replies.events(whole, desk),
    gemini_replies.refusal,
    gemini_replies.error_event,
    lambda text: gemini.error(400, "INVALID_ARGUMENT", text),
    _gemini_parts,
    lambda tokens: {"totalTokens": tokens},
    "MAX_TOKENS",
)
_ACTIONS = ("generateContent", "streamGenerateContent", "countTokens")
_PATHS = {
    "/v1/messages": Route(ANTHROPIC),
    "/v1/messages/count_tokens": Route(ANTHROPIC, True),
    "/v1/chat/completions": Route(CHAT),
    "/v1/responses": Route(RESPONSES),
    "/v1/responses/input_tokens": Route(RESPONSES, True),
}
