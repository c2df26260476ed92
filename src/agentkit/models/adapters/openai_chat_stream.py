"""What the chunks of a chat completion's stream add up to. Touches only its arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentkit.core.contracts.blocks import ThinkingBlock
from agentkit.models.wire import openai_chat as wire

from .failures import failure_from


class Streamed:
    """What the chunks of a stream add up to."""

    def __init__(self, details: bool) -> None:
        self.about: dict[str, Any] = {}
        self.finish: Any = None
        self._texts: dict[str, list[str]] = {}
        self._calls: dict[int, dict[str, Any]] = {}
        self._details: list[dict[str, Any]] | None = [] if details else None

    def take(self, chunk: Mapping[str, Any], provider: str) -> str:
        """Adds a chunk; the text in it."""
        if chunk.get("error"):
            raise failure_from(chunk, provider=provider)
        self.about.update({key: value for key, value in chunk.items() if key != "choices" and value is not None})
        text = ""
        for choice in chunk.get("choices") or ():
            if choice.get("index"):
                continue  # one answer was asked for
            if choice.get("error"):
                raise failure_from(choice, provider=provider)
            self.finish = choice.get("finish_reason") or self.finish
            delta = choice.get("delta") or {}
            text += self._take_delta(delta)
        return text

    def _take_delta(self, delta: Mapping[str, Any]) -> str:
        for key in ("content", "refusal", *wire.THOUGHTS):
            if isinstance(piece := delta.get(key), str) and piece:
                self._texts.setdefault(key, []).append(piece)
        for part in delta.get("tool_calls") or ():
            self._take_call(part)
        if self._details is not None:
            for part in delta.get("reasoning_details") or ():
                _extend(self._details, part)
        content = delta.get("content")
        if isinstance(content, list):  # Mistral: parts, thinking among them
            content, _, blocks = wire.read_message({"content": content})
            thoughts = [block.text for block in blocks if isinstance(block, ThinkingBlock)]
            self._texts.setdefault("reasoning_content", []).extend(thoughts)
            self._texts.setdefault("content", []).append(content)
        return content if isinstance(content, str) else ""

    def _take_call(self, part: Mapping[str, Any]) -> None:
        at = part.get("index")
        call = self._calls.setdefault(at if isinstance(at, int) else len(self._calls), {"type": "function"})
        call.update({key: value for key, value in part.items() if key in ("id", "type", *wire.ECHOED) and value})
        for key, text in (("function", "arguments"), ("custom", "input")):
            if isinstance(given := part.get(key), Mapping):
                into = call.setdefault(key, {"name": "", text: ""})
                into["name"] = given.get("name") or into["name"]
                into[text] += given.get(text) or ""

    def whole(self) -> dict[str, Any]:
        """The choice that a whole response would have had."""
        message: dict[str, Any] = {key: "".join(pieces) for key, pieces in self._texts.items()}
        if self._calls:
            message["tool_calls"] = [self._calls[at] for at in sorted(self._calls)]
        if self._details:
            message["reasoning_details"] = self._details
        return {"message": message, "finish_reason": self.finish}


def _extend(details: list[dict[str, Any]], part: Mapping[str, Any]) -> None:
    """Adds a piece of OpenRouter's reasoning to the entry that it continues: the same type and index."""
    same = next((d for d in details if (d.get("type"), d.get("index")) == (part.get("type"), part.get("index"))), None)
    if same is None:
        details.append(dict(part))
        return
    for key, value in part.items():
        if key in ("text", "summary", "data") and isinstance(value, str) and isinstance(same.get(key), str):
            same[key] += value
        elif value is not None:
            same[key] = value
