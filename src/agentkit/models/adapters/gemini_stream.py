"""The responses of Gemini's client, whole and as streams: what they add up to. Touches only its arguments."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from inspect import isasyncgen
from typing import Any

from agentkit.core.contracts.errors import PermanentError, TransientError
from agentkit.models.wire.gemini import SIGNATURE

from .base import closed
from .failures import failure_from


class Gathered:
    """What one response, or the chunks of a stream, add up to. `is_held_back`: the request itself was, for `reason`."""

    def __init__(self) -> None:
        self.parts: list[Mapping[str, Any]] = []
        self.usage: dict[str, Any] = {}
        self.about: dict[str, Any] = {}
        self.reason: str | None = None
        self.is_held_back = False

    def take(self, chunk: Mapping[str, Any], provider: str) -> str:
        """Adds a chunk; the text in it that is no thought."""
        if chunk.get("error"):
            raise failure_from(chunk, provider=provider)
        self.usage.update(chunk.get("usageMetadata") or {})
        self.about.update({k: v for k, v in chunk.items() if k not in ("usageMetadata", "candidates")})
        feedback = chunk.get("promptFeedback")
        if isinstance(feedback, Mapping) and feedback.get("blockReason"):
            self.reason, self.is_held_back = str(feedback["blockReason"]), True
        candidates = chunk.get("candidates") or ()
        text = ""
        for candidate in candidates[:1]:
            parts = (candidate.get("content") or {}).get("parts") or ()
            self.parts += parts
            text = "".join([part["text"] for part in parts if part.get("text") and not part.get("thought")])
            self.reason = candidate.get("finishReason") or self.reason
            if candidate.get("finishMessage"):
                self.about["finishMessage"] = candidate["finishMessage"]
        return text


async def sent_chunks(chunks: AsyncIterator[Any]) -> AsyncGenerator[dict[str, Any], None]:
    """The chunks of the client's stream as JSON data. The HTTP response is closed when they end or are closed early.
    TransientError for data that is no JSON: the line was cut. PermanentError for data that is nested deeper than the
    client hands over."""
    held: list[Any] = []
    try:
        async for chunk in chunks:
            held = held or _open_responses(chunks)  # once something fails, there is no way to them
            yield _respelled(chunk.model_dump(mode="json", by_alias=True, exclude_none=True, exclude=_CLIENTS_OWN))
    except ValueError as error:
        if "depth" in str(error):
            raise PermanentError(
                "the answer is nested deeper than Gemini's client hands over: ask without streaming"
            ) from error
        if type(error).__name__ != "UnknownApiResponseError":
            raise
        raise TransientError("a chunk of the stream is no JSON object: the answer was cut off") from error
    finally:
        for response in [*held, *_open_responses(chunks)]:
            await response.aclose()
        await closed(chunks)


_CLIENTS_OWN = frozenset({"sdk_http_response", "automatic_function_calling_history", "parsed"})
_STANDARD = str.maketrans("-_", "+/")


def _respelled(chunk: dict[str, Any]) -> dict[str, Any]:
    """A chunk with its base64 as the provider writes it: the client reads it as bytes and gives it back in the
    alphabet of URLs."""
    for candidate in chunk.get("candidates") or ():
        for part in (candidate.get("content") or {}).get("parts") or ():
            for holder, key in ((part, SIGNATURE), (part.get("inlineData"), "data")):
                if isinstance(holder, dict) and isinstance(holder.get(key), str):
                    holder[key] = holder[key].translate(_STANDARD)
    return chunk


def _open_responses(stream: Any) -> list[Any]:
    """The HTTP responses behind a stream that was not read to its end.

    The client's stream is generators inside generators: closing the outer one leaves the inner ones, and with them the
    connection, to the garbage collector. What they hold is found in their frames; there is no other way to it.
    """
    found, work, seen = [], [stream], set()
    while work:
        item = work.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        response = getattr(item, "response_stream", None)
        if hasattr(response, "aclose"):
            found.append(response)
        frame = item.ag_frame if isasyncgen(item) else None
        if frame is not None:
            work += [v for v in frame.f_locals.values() if isasyncgen(v) or hasattr(v, "response_stream")]
    return found
