"""What the events of an Anthropic stream add up to. Touches only its arguments.

Blocks are kept as the dicts that came, so that a kind nobody here knows goes back as it was. Source: the provider's
page on streaming, November 2026; every delta extends the fields of its block that it names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from agentkit.core.contracts.jsontext import parse_object

from .failures import failure_from

ABOUT = (
    "id",
    "model",
    "stop_reason",
    "stop_sequence",
    "stop_details",
    "container",
    "context_management",
    "diagnostics",
    "input_transformations",
)
"""Fields of an answer, beside its content and usage, that are kept."""


class Received:
    """An answer as far as it has come.

    `content`: its blocks; `about`: what it says of itself; `usage`: the events or the response that hold figures;
    `is_whole`: the provider has said why it ended.
    """

    def __init__(self) -> None:
        self.about: dict[str, Any] = {}
        self.usage: list[Mapping[str, Any]] = []
        self.request_id: str | None = None
        self.is_whole = False
        self._blocks: dict[int, dict[str, Any]] = {}
        self._texts: dict[tuple[int, str], list[str]] = {}
        self._inputs: dict[int, list[str]] = {}

    @classmethod
    def of(cls, response: Mapping[str, Any], request_id: str | None = None) -> Self:
        """A whole response."""
        made = cls()
        made._note(response)
        made.usage.append(response)
        made.request_id = request_id
        made._blocks = {at: block for at, block in enumerate(response["content"]) if isinstance(block, dict)}
        made.is_whole = True
        return made

    def take(self, event: Mapping[str, Any]) -> str:
        """Adds an event; the text in it. Raises what an error event means."""
        kind = event.get("type")
        if kind == "content_block_delta":
            return self._extend(event.get("index"), event.get("delta"))
        if kind == "content_block_start":
            return self._begin(event.get("index"), event.get("content_block"))
        if kind == "message_start":
            message = event.get("message")
            if isinstance(message, Mapping):
                self._note(message)
                self.usage.append(event)
                return "".join([self._begin(at, block) for at, block in enumerate(message.get("content") or ())])
        elif kind == "message_delta":
            delta = event.get("delta")
            self._note({**event, **delta} if isinstance(delta, Mapping) else event)
            self.usage.append(event)
            self.is_whole = self.is_whole or self.about.get("stop_reason") is not None
        elif kind == "message_stop":
            self.is_whole = True
        elif kind == "error":
            raise failure_from(event, provider="anthropic")
        return ""

    @property
    def content(self) -> list[dict[str, Any]]:
        """The blocks in order, each as a response without streaming has it."""
        found = []
        for at in sorted(self._blocks):
            block = dict(self._blocks[at])
            for (index, key), pieces in self._texts.items():
                if index == at:
                    block[key] = "".join([block[key] if isinstance(block.get(key), str) else "", *pieces])
            if at in self._inputs:
                self._set_input(block, "".join(self._inputs[at]))
            found.append(block)
        return found

    @property
    def figures(self) -> dict[str, Any]:
        """The usage as reported: of each figure the last one that came."""
        merged: dict[str, Any] = {}
        for event in self.usage:
            inner = event.get("message", event)
            usage = inner.get("usage") if isinstance(inner, Mapping) else None
            if isinstance(usage, Mapping):
                merged.update({key: value for key, value in usage.items() if value is not None})
        return merged

    def _note(self, said: Mapping[str, Any]) -> None:
        self.about.update({key: said[key] for key in ABOUT if said.get(key) is not None})

    def _begin(self, at: Any, block: Any) -> str:
        if not isinstance(at, int) or not isinstance(block, dict):
            return ""
        self._blocks[at] = dict(block)
        text = block.get("text")
        return text if block.get("type") == "text" and isinstance(text, str) else ""

    def _extend(self, at: Any, delta: Any) -> str:
        block = self._blocks.get(at) if isinstance(at, int) else None
        if block is None or not isinstance(delta, Mapping):
            return ""
        if delta.get("type") == "input_json_delta":
            self._inputs.setdefault(at, []).append(str(delta.get("partial_json") or ""))
            return ""
        if delta.get("type") == "citations_delta":
            block["citations"] = [*(block.get("citations") or ()), delta.get("citation")]
            return ""
        text = ""
        for key, value in delta.items():
            if key == "type" or value is None:
                continue
            if isinstance(value, str) and isinstance(block.get(key), (str, type(None))):
                self._texts.setdefault((at, key), []).append(value)
            else:
                block[key] = value
            if key == "text" and block.get("type") == "text" and isinstance(value, str):
                text += value
        return text

    @staticmethod
    def _set_input(block: dict[str, Any], text: str) -> None:
        """The arguments of a call. A tool of ours keeps the text as it came, broken or not; a call that the provider
        runs itself is an object, or what it began with where the text is none."""
        if block.get("type") == "tool_use":
            block["input"] = text if text.strip() else block.get("input", {})
            return
        found = parse_object(text) if text.strip() else None
        if found is not None:
            block["input"] = found
