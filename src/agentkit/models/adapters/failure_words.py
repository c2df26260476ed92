"""What the error of a model provider says, read from its body, headers and words. Touches only its arguments.

Sources, read in November 2026: the error classes of the clients anthropic 2.14, openai 3.57 and google-genai 3.6, the
providers' pages on errors, and error bodies quoted in public issues of llama.cpp, vLLM, gemini-cli and others.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

from agentkit.core.contracts.jsontext import parse_object
from agentkit.core.contracts.surrogates import replace_surrogates

LONGEST = 400
"""Characters of a provider's text that are kept in a message."""

SMALLEST_WINDOW = 256
"""Tokens: a smaller window is none that a model has. vLLM 0.15 named what its output limit left over."""

_OVERFLOW_WORDS = frozenset(
    {"context_length_exceeded", "exceed_context_size_error", "context_window_exceeded",
     "model_max_prompt_tokens_exceeded"}
)  # fmt: skip
_OVERFLOW = re.compile(
    r"prompt is too long"
    r"|exceeds? (?:the |this model's )?(?:context|available context)"
    r"|(?:maximum|max) (?:context|prompt|model|input) length"
    r"|exceeds the context window|exceeds the maximum number of (?:input )?tokens|too large for model with"
    r"|input is too long for (?:the )?requested model|exceeds the model's context|context window (?:is )?exceeded"
    r"|longer than the (?:maximum )?model(?:'s)? (?:maximum )?(?:context )?length",
    re.I,
)
_WINDOWS = tuple(
    re.compile(pattern, re.I)
    for pattern in (
        r"[0-9]+ tokens > ([0-9]+)(?: maximum)?",
        r"context limit: [0-9]+ \+ [0-9]+ > ([0-9]+)",
        r"context size \(([0-9]+) tokens\)",
        r"(?:maximum|max) (?:context|prompt|model|input) length (?:is|of)(?: only)? ([0-9]+)",
        r"context length is only ([0-9]+)",
        r"tokens allowed \(?([0-9]+)",
        r"too large for model with ([0-9]+)",
        r"context (?:window|limit|length) of ([0-9]+)",
    )
)
_WAIT = re.compile(
    r"(?:try again|retry) in (?:((?:[0-9]+h)?(?:[0-9]+m(?!s))?(?:[0-9.]+m?s)?)(?![0-9a-z])|([0-9.]+) seconds)", re.I
)
_SECRETS = re.compile(
    r"\b(?:sk|xai|gsk)-[A-Za-z0-9_*.-]{6,}|\bAIza[A-Za-z0-9_-]{8,}|(?i:\bbearer\s+)[^\s\"',]+"
    r"|(?i:[?&](?:key|api_key|token|access_token)=)[^\s&\"']+|(?i://)[^/\s@]+@"
)


@dataclass(frozen=True)
class Told:
    """What an error says: status code, the machine-readable words (types, codes, states) in lower case, its text."""

    status: int | None
    words: frozenset[str]
    text: str
    body: Mapping[str, Any]
    headers: Mapping[str, Any]

    @property
    def message(self) -> str:
        """The text, cut to length, with nothing that looks like a credential."""
        text = replace_surrogates(_SECRETS.sub("[left out]", " ".join(self.text.split())))
        return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."

    @property
    def overflows(self) -> bool:
        """Whether the request is larger than the model's window."""
        if self.words & _OVERFLOW_WORDS:
            return True
        if self.status not in (None, 200, 400, 413, 422, 500):  # llama.cpp and Ollama answered 500 at times
            return False
        return _OVERFLOW.search(self.text) is not None

    @property
    def window(self) -> int | None:
        """The window in tokens, where the provider names it and a model can have it."""
        for value in (self.body.get("n_ctx"), self.body.get("context_window")):
            if type(value) is int and value >= SMALLEST_WINDOW:
                return value
        text = self.text.replace(",", "")
        for pattern in _WINDOWS:
            match = pattern.search(text)
            if match is not None and len(match[1]) < 12:
                window = int(match[1])
                return window if window >= SMALLEST_WINDOW else None
        return None

    @property
    def retry_after(self) -> float | None:
        """Seconds, from the headers, from Google's RetryInfo, or from the words of the message."""
        milliseconds = _number(self.header("retry-after-ms"))
        if milliseconds is not None:
            return milliseconds / 1_000
        given = self.header("retry-after")
        seconds = _number(given)
        if seconds is None and given:
            seconds = _until(given, self.header("date"))
        if seconds is not None:
            return seconds
        for entry in _details(self.body):
            delay = entry.get("retryDelay")
            if isinstance(delay, str) and (seconds := _span(delay)) is not None:
                return seconds
        match = _WAIT.search(self.text)
        return None if match is None else _number(match[2]) if match[2] else _span(match[1])

    def header(self, name: str) -> str:
        """That header's value, empty where there is none."""
        value = self.headers.get(name)
        return value if isinstance(value, str) else ""


def read_failure(error: BaseException) -> Told:
    """What a client's exception says."""
    body = getattr(error, "body", None)
    if body is None:
        body = getattr(error, "details", None)  # google-genai
    headers = getattr(getattr(error, "response", None), "headers", None)
    text = getattr(error, "message", None)
    status = next(filter(_is_status, (getattr(error, "status_code", None), getattr(error, "code", None))), None)
    return read_body(
        body, status, headers if isinstance(headers, Mapping) else {}, text if isinstance(text, str) else ""
    )


def _is_status(value: Any) -> bool:
    return type(value) is int and 100 <= value < 600


def read_body(body: Any, status: int | None, headers: Mapping[str, Any], fallback: str = "") -> Told:
    """What an error body says: `{"error": {...}}` in any wrapping, or what stands in it."""
    inner = _innermost(body)
    words: set[str] = set()
    for key in ("type", "code", "status", "reason"):
        value = inner.get(key)
        if isinstance(value, str) and value != "error":
            words.add(value.lower())
        elif status is None and type(value) is int and 400 <= value < 600:
            status = value
    for entry in _details(inner):
        for key in ("error_code", "reason"):
            if isinstance(entry.get(key), str):
                words.add(entry[key].lower())
    text = inner.get("message")
    if not isinstance(text, str) or not text:
        text = body if isinstance(body, str) and body else fallback
    return Told(status, frozenset(words), text, inner, headers)


def _innermost(body: Any) -> Mapping[str, Any]:
    """The mapping with the message: gateways put one error's body into another's, as text or as it is."""
    for _ in range(5):
        if isinstance(body, (list, tuple)) and body:
            body = body[0]
        elif isinstance(body, str):
            body = parse_object(body)
        elif not isinstance(body, Mapping):
            break
        elif isinstance(body.get("error"), (Mapping, str)):
            inner = body["error"]
            body = (
                inner if isinstance(inner, Mapping) else {**body, "error": None, "message": body.get("message", inner)}
            )
        elif isinstance(body.get("response"), Mapping) and isinstance(body["response"].get("error"), Mapping):
            body = body["response"]["error"]
        elif isinstance(message := body.get("message"), str) and message.lstrip().startswith("{"):
            inner = parse_object(message)
            if not inner:
                break
            body = inner if "error" in inner or "message" in inner else body
            if body is not inner:
                break
        else:
            break
    return body if isinstance(body, Mapping) else {}


def _details(inner: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found = inner.get("details")
    entries = [found] if isinstance(found, Mapping) else found if isinstance(found, (list, tuple)) else []
    return [entry for entry in entries if isinstance(entry, Mapping)]


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def _until(date: str, now: str) -> float | None:
    """Seconds between two HTTP dates; both are the server's, so that no clock of ours has to agree with it."""
    try:
        return max(0.0, (parsedate_to_datetime(date) - parsedate_to_datetime(now)).total_seconds())
    except (ValueError, TypeError):
        return None


def _span(text: str) -> float | None:
    """Seconds of `1h2m3.5s`, `250ms` or `17s`."""
    match = re.fullmatch(r"(?:([0-9]+)h)?(?:([0-9]+)m(?!s))?(?:([0-9]*\.?[0-9]+)(ms|s))?", text)
    if match is None or not text:
        return None
    last = float(match[3] or 0) / (1_000 if match[4] == "ms" else 1)
    return int(match[1] or 0) * 3_600 + int(match[2] or 0) * 60 + last
