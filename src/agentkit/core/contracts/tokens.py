"""The one token estimate of the project: characters of the wire form / 4, and a flat overhead. Touches only its
arguments.

Counters, compactors, quota, request builder and inspector all call it, so that a trigger, a cut and a report agree.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from .blocks import DocumentBlock, ImageBlock, NativeBlock, RedactedThinkingBlock, ThinkingBlock
from .counting import TokenCounter
from .jsontext import json_text
from .messages import Message, derived
from .offers import ToolSchema, canonical_tools

OVERHEAD = 4
"""Tokens for each message and each tool call: role markers and delimiters of the supported providers take 3 to 4."""

IMAGE_SMALL, IMAGE_MEDIUM, IMAGE_LARGE = 350, 1_400, 1_600
"""Tokens of an image with a longest edge up to 512 px (or detail low), up to 1,024 px, larger or unknown: the
providers' published figures for these sizes, rounded up."""

DOCUMENT_PAGE, DOCUMENT_UNKNOWN = 2_000, 8_000
"""Tokens of a document per page, and of one whose pages nobody counted."""

ENCODED = 1_600
"""Tokens of each base64-like string of ENCODED_FROM characters or more in a native payload: as a large image, since its
encoded length says nothing about what a provider bills."""
ENCODED_FROM = 1_024


@cache
def _base64_strings() -> re.Pattern[str]:
    # A JSON string of base64 text, wrapped lines and a data URI's head included. Possessive, since a text that is all
    # line ends up to its last character would cost the square of its length.
    return re.compile(r'"(?:data:[^",]{0,200},)?(?:[A-Za-z0-9+/_-]++|\\[rn])++={0,2}+(?:\\[rn])*+"')


class Weight(NamedTuple):
    """What one or several messages add to the estimate; the sums of two parts are the sums of the whole."""

    chars: int
    units: int
    flat: int

    def tokens(self) -> int:
        return self.chars // 4 + OVERHEAD * self.units + self.flat


def weight(message: Message) -> Weight:
    """Characters, units (the message and its calls) and flat block tokens of one message; computed once."""
    return derived(message, "_weight", _weigh)


def _weigh(message: Message) -> Weight:
    texts, units, flat = counted_parts(message)
    return Weight(sum(map(len, texts)), units, flat)


def counted_parts(
    message: Message, media: Callable[[ImageBlock | DocumentBlock], int] | None = None
) -> tuple[list[str], int, int]:
    """What every counter counts of a message: its texts, its units (the message and its calls), and the flat tokens of
    what has no text. `media` gives those of an image or document; by default they are the formula's."""
    media = media or flat_tokens
    texts = [message.content, message.name or "", message.tool_call_id or ""]
    flat = 0
    for call in message.tool_calls:
        texts += (call.id, call.name, json_text(call.arguments))
    for block in message.blocks:
        if isinstance(block, ThinkingBlock):
            texts.append(block.text)
        elif isinstance(block, RedactedThinkingBlock):
            texts.append(block.data[: len(block.data) * 3 // 4])
        elif isinstance(block, (ImageBlock, DocumentBlock)):
            flat += media(block)
        elif isinstance(block, NativeBlock):
            text, encoded = native_text(block.payload)
            texts.append(text)
            flat += ENCODED * encoded
    return texts, 1 + len(message.tool_calls), flat


def flat_tokens(block: ImageBlock | DocumentBlock) -> int:
    """The formula's figure for an image or a document."""
    return image_tokens(block) if isinstance(block, ImageBlock) else document_tokens(block)


def image_tokens(image: ImageBlock) -> int:
    """The flat figure of an image's size class."""
    if image.detail == "low":
        return IMAGE_SMALL
    if image.width is None or image.height is None:
        return IMAGE_LARGE
    longest = max(image.width, image.height)
    return IMAGE_SMALL if longest <= 512 else IMAGE_MEDIUM if longest <= 1_024 else IMAGE_LARGE


def document_tokens(document: DocumentBlock) -> int:
    """The flat figure of a document: by its pages where they are known."""
    return DOCUMENT_UNKNOWN if document.pages is None else DOCUMENT_PAGE * document.pages


def native_text(payload: Any) -> tuple[str, int]:
    """A native payload's JSON text without its long base64-like strings, and how many of those it had."""
    found = 0

    def shortened(match: re.Match[str]) -> str:
        nonlocal found
        if match.end() - match.start() < ENCODED_FROM + 2:
            return match[0]
        found += 1
        return '""'

    return _base64_strings().sub(shortened, json_text(payload)), found


def total_weight(messages: Iterable[Message]) -> Weight:
    """The sum over `messages`."""
    chars = units = flat = 0
    for message in messages:
        w = weight(message)
        chars += w[0]
        units += w[1]
        flat += w[2]
    return Weight(chars, units, flat)


def estimate_message_tokens(messages: Sequence[Message]) -> int:
    """Estimated prompt tokens of `messages`; 0 for none. Never raises on odd content.

    floor(C / 4) + 4 U + B: C characters of content, name, tool_call_id, thinking, native payloads and of each call's
    id, name and JSON arguments; U messages and tool calls; B the flat figures of images, documents and encoded data.
    """
    return total_weight(messages).tokens()


def measure(messages: Sequence[Message], counter: TokenCounter | None = None) -> int:
    """Tokens of `messages` by `counter`; by the formula where there is none, or where it needs I/O."""
    # By the one method that counts: asking a protocol about every method takes longer than counting a known head.
    synchronous = getattr(counter, "measure", None)
    if synchronous is None:
        return estimate_message_tokens(messages)
    found: int = synchronous(messages)
    return found


def estimate_request_tokens(
    messages: Sequence[Message], tools: Iterable[ToolSchema | Mapping[str, Any]] = (), response_format: Any = None
) -> int:
    """`estimate_message_tokens` of a request with its tool schemas and response format, counted by their JSON text."""
    w = total_weight(messages)
    return Weight(w.chars + schema_chars(tools, response_format), w.units, w.flat).tokens()


def schema_chars(tools: Iterable[ToolSchema | Mapping[str, Any]] = (), response_format: Any = None) -> int:
    """Characters of the JSON text of tool schemas and of a response format."""
    chars = sum(map(len, canonical_tools(tools)))
    return chars if response_format is None else chars + len(json_text(response_format))
