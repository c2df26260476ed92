"""What a message is made of, and sums over the pieces of a conversation: by role, by kind, by tool, the largest.
Touches only its arguments.

The weights of a message's pieces and of its shell (role, name, id) always add up to the weight of the message, so every
table of a report has the same total.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from agentkit.core.contracts.blocks import (
    Block,
    DocumentBlock,
    ImageBlock,
    NativeBlock,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
)
from agentkit.core.contracts.jsontext import json_text
from agentkit.core.contracts.messages import Message, ToolCall
from agentkit.state.context.tokens import AdditiveCounter

from .values import Part, Share, ToolShare

LARGEST = 12
"""Parts that a report lists."""
EXCERPT = 160
"""Characters of a part that a report shows."""
NO_NAME = "(no name)"

Weight: TypeAlias = tuple[int, int]


@dataclass(frozen=True)
class Piece:
    """One piece of a message: a block or a call. `text` is what stands for it in an excerpt, `chars` its length."""

    kind: str
    tool: str | None
    text: str
    chars: int
    alone: Message
    """A message of this piece and nothing else, for weighing."""


def pieces(message: Message) -> Iterator[Piece]:
    """The content of a message in its order. Kinds: text, thinking, call, result, image, document, native."""
    tool = message.name if message.role == "tool" else None
    for item in message.ordered:
        if isinstance(item, ToolCall):
            arguments = item.wire_arguments
            yield Piece("call", item.name or NO_NAME, arguments, len(arguments), Message("", tool_calls=(item,)))
            continue
        kind, text, chars = _described(item)
        if message.role == "tool":
            kind, tool = ("result" if kind == "text" else kind), tool or NO_NAME
        yield Piece(kind, tool, text, chars, Message("", blocks=(item,)))


def _described(block: Block) -> tuple[str, str, int]:
    if isinstance(block, TextBlock):
        return "text", block.text, len(block.text)
    if isinstance(block, ThinkingBlock):
        return "thinking", block.text, len(block.text)
    if isinstance(block, RedactedThinkingBlock):
        return "thinking", "(encrypted)", len(block.data)
    if isinstance(block, (ImageBlock, DocumentBlock)):
        kind = "image" if isinstance(block, ImageBlock) else "document"
        if isinstance(block.source, bytes):
            return kind, f"({block.media_type or kind}, {len(block.source):,} bytes)", len(block.source)
        return kind, block.source, len(block.source)
    payload = json_text(block.payload) if isinstance(block, NativeBlock) else ""
    return "native", payload, len(payload)


class Tally:
    """Adds up the messages of one conversation."""

    def __init__(self, counter: AdditiveCounter) -> None:
        self._counter = counter
        self._roles: dict[str, _Sum] = {}
        self._kinds: dict[str, _Sum] = {}
        self._arguments: dict[str, _Sum] = {}
        self._results: dict[str, _Sum] = {}
        self._errors: dict[str, int] = {}
        self._largest: list[tuple[int, int, int, Part]] = []
        self._whole = _Sum()

    def add(self, place: int, message: Message) -> None:
        """Count one message of the record."""
        whole = self._counter.weigh(message)
        self._whole.add(whole)
        self._roles.setdefault(message.role, _Sum()).add(whole)
        shell = self._counter.weigh(Message("", "", message.name, message.tool_call_id))
        self._kinds.setdefault("overhead", _Sum()).add(shell)
        for number, (piece, weight) in enumerate(self._weighed(message, _less(whole, shell))):
            self._kinds.setdefault(piece.kind, _Sum()).add(weight)
            if piece.kind == "call":
                self._arguments.setdefault(piece.tool or NO_NAME, _Sum()).add(weight)
            self._keep_if_large(place, number, message.role, piece, weight)
        if message.role == "tool":
            name = message.name or NO_NAME
            self._results.setdefault(name, _Sum()).add(whole)
            self._errors[name] = self._errors.get(name, 0) + message.is_error

    def _weighed(self, message: Message, content: Weight) -> Iterator[tuple[Piece, Weight]]:
        """The pieces with weights that sum up to `content`. The longest takes what the others leave, so that its text
        is read once."""
        found = list(pieces(message))
        longest = max(range(len(found)), key=lambda i: found[i].chars, default=0)
        base = self._counter.weigh(Message(""))
        weights = [
            (0, 0) if i == longest else _less(self._counter.weigh(piece.alone), base) for i, piece in enumerate(found)
        ]
        if found:
            others = (sum(first for first, _ in weights), sum(second for _, second in weights))
            weights[longest] = _less(content, others)
        yield from zip(found, weights, strict=True)

    def _keep_if_large(self, place: int, number: int, role: str, piece: Piece, weight: Weight) -> None:
        tokens = self._counter.settle(*weight)
        rank = (tokens, -place, -number)
        if len(self._largest) == LARGEST and rank < self._largest[0][:3]:
            return
        part = Part(place, role, piece.kind, piece.tool, tokens, piece.chars, excerpt(piece.text))
        push = heapq.heappush if len(self._largest) < LARGEST else heapq.heapreplace
        push(self._largest, (*rank, part))

    def tokens(self) -> int:
        return self._whole.settled(self._counter)

    def roles(self) -> tuple[Share, ...]:
        return self._shares(self._roles)

    def kinds(self) -> tuple[Share, ...]:
        return self._shares(self._kinds)

    def tools(self) -> tuple[ToolShare, ...]:
        """Largest first; calls and results that name no tool come together."""
        none = _Sum()
        found = [
            ToolShare(
                name,
                calls=(calls := self._arguments.get(name, none)).count,
                results=(results := self._results.get(name, none)).count,
                errors=self._errors.get(name, 0),
                argument_tokens=calls.settled(self._counter),
                result_tokens=results.settled(self._counter),
            )
            for name in dict.fromkeys((*self._arguments, *self._results))
        ]
        return tuple(sorted(found, key=lambda tool: -tool.tokens))

    def largest(self) -> tuple[Part, ...]:
        return tuple(part for *_, part in sorted(self._largest, key=lambda entry: entry[:3], reverse=True))

    def _shares(self, sums: dict[str, _Sum]) -> tuple[Share, ...]:
        found = [Share(name, one.count, one.settled(self._counter)) for name, one in sums.items()]
        return tuple(sorted(found, key=lambda share: -share.tokens))


class _Sum:
    def __init__(self) -> None:
        self.count = 0
        self._first = self._second = 0

    def add(self, weight: Weight) -> None:
        self.count += 1
        self._first += weight[0]
        self._second += weight[1]

    def settled(self, counter: AdditiveCounter) -> int:
        return counter.settle(self._first, self._second)


def _less(whole: Weight, part: Weight) -> Weight:
    return whole[0] - part[0], whole[1] - part[1]


_DECORATION = re.compile("\x1b\\[[0-9;?]*[ -/]*[@-~]|\x1b\\][^\x07\x1b]{0,2000}(?:\x07|\x1b\\\\)|[\\s\u2500-\u257f]+")
"""Terminal escapes, white space and the lines of boxes: what tools print around their words."""


def excerpt(text: str) -> str:
    """The beginning of `text` on one line, decoration left out, with a sign where it goes on."""
    read = text[: EXCERPT * 8]
    head = _DECORATION.sub(lambda found: "" if found[0][0] == "\x1b" else " ", read).strip()
    return head if len(head) <= EXCERPT and len(read) == len(text) else head[: EXCERPT - 1].rstrip() + "…"
