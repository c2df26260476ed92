"""Parts of a request body as blocks: digest, tokens and mark of each. Touches only its arguments."""

from __future__ import annotations

import json
import marshal
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from hashlib import blake2b, sha256
from typing import Any, Literal, TypeAlias

from agentkit.core.contracts.jsontext import wire_json
from agentkit.core.contracts.tokens import ENCODED, IMAGE_LARGE, OVERHEAD, native_text

from .prompts import Block

BodyWire: TypeAlias = Literal["anthropic", "openai_chat", "openai_responses", "gemini"]
TextCounter: TypeAlias = Callable[[str], int]
"""Tokens of a text."""
Memo: TypeAlias = MutableMapping[Any, tuple[Block, ...]]
"""The blocks of messages by what they say."""

_MARKS = ("cache_control", "prompt_cache_breakpoint")
_KINDS = {
    "thinking": "thinking",
    "redacted_thinking": "thinking",
    "reasoning": "thinking",
    "tool_use": "call",
    "function": "call",
    "tool_result": "result",
}
SUMMARY_HEAD, GROUNDING_HEAD = "<context-summary", "Relevant context:"
"""How the texts of summaries and of grounding begin that this library makes."""


@dataclass(frozen=True)
class Reader:
    """Makes blocks of parts. `default_ttl`: the lifetime of a mark that names none."""

    wire: BodyWire
    counter: TextCounter
    counts: MutableMapping[str, int]
    memo: Memo | None = None
    default_ttl: str = "5m"

    def message(
        self, tier: str, message: Mapping[str, Any], make: Callable[[Reader, str, Mapping[str, Any]], list[Block]]
    ) -> tuple[Block, ...]:
        """The blocks of a message, from the memo where it was read before."""
        if self.memo is None:
            return tuple(make(self, tier, message))
        try:
            # Version 2 writes equal values alike, order of keys included, and reads nothing but plain data.
            said: Any = (self.wire, tier, self.default_ttl, message)
            data = marshal.dumps(said, 2)
        except ValueError:  # holds what is no plain data, such as a frozen mapping
            return tuple(make(self, tier, message))
        key = blake2b(data, digest_size=16).digest()
        found = self.memo.get(key)
        if found is None:
            found = self.memo[key] = tuple(make(self, tier, message))
        return found

    def part(self, tier: str, part: Mapping[str, Any], *, head: str = "", kind: str | None = None) -> Block:
        """One part. `head` goes into the key in front of it: a role, or the fields of its message."""
        clean, mark = self._without_mark(part)
        text = head + self.text(clean)
        digest = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        tokens = self.counts.get(digest)
        if tokens is None:
            tokens = self.counts[digest] = self._tokens(clean, head)
        kind = kind or _kind(clean)
        if mark is not None and self.wire == "anthropic" and kind in ("thinking", "empty"):
            raise ValueError(f"a mark stands on {'empty text' if kind == 'empty' else 'thinking'}, which takes none")
        return Block(tier, digest, tokens, mark, text=text, kind=kind)

    def text(self, value: Any) -> str:
        """JSON of `value`, keys in the order they are sent."""
        try:
            return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        except TypeError:
            return wire_json(value)

    def _without_mark(self, part: Mapping[str, Any]) -> tuple[Mapping[str, Any], str | None]:
        """The part as it goes into the key, and the lifetime of its mark or of one on a part inside it."""
        mark = next((part[name] for name in _MARKS if part.get(name) is not None), None)
        clean = {key: value for key, value in part.items() if key not in _MARKS} if _has_field(part) else part
        inner = part.get("content")
        if isinstance(inner, (list, tuple)) and any(isinstance(each, Mapping) and _has_field(each) for each in inner):
            inner_marks = [self._without_mark(each) for each in inner]
            clean = {**clean, "content": [each for each, _ in inner_marks]}
            nested = next((found for _, found in reversed(inner_marks) if found is not None), None)
            if mark is None and nested is not None:
                return clean, nested
        return clean, None if mark is None else mark.get("ttl") or self.default_ttl

    def _tokens(self, part: Mapping[str, Any], head: str) -> int:
        words = head if head.startswith("{") else ""
        text = part.get("text", part.get("thinking"))
        if isinstance(text, str):
            return self.counter(words + text) + OVERHEAD
        if _kind(part) == "media":
            return self.counter(words) + IMAGE_LARGE + OVERHEAD
        shortened, encoded = native_text(dict(part))
        return self.counter(words + shortened) + ENCODED * encoded + OVERHEAD


def _has_field(part: Mapping[str, Any]) -> bool:
    return "cache_control" in part or "prompt_cache_breakpoint" in part


def _kind(part: Mapping[str, Any]) -> str:
    name = part.get("type")
    text = part.get("text")
    if isinstance(text, str):
        if not text:
            return "empty"
        return (
            "summary" if text.startswith(SUMMARY_HEAD) else "grounding" if text.startswith(GROUNDING_HEAD) else "text"
        )
    if not isinstance(name, str):
        return "media" if "inlineData" in part or "fileData" in part else ""
    if "image" in name or name in ("document", "file", "input_file", "input_audio"):
        return "media"
    return _KINDS.get(name, "")
