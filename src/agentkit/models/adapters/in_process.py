"""What models without a provider have in common: they refuse what a provider would refuse, report what they measured,
and stream their answers. Touches only its arguments.

Also: what a request asks. Text that is not a person's (notes, state and summaries of a runtime, late system text)
stands in frames of user role, and is told apart by its tag.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from agentkit.core.contracts.blocks import TextBlock
from agentkit.core.contracts.errors import EmptyRequestError, PermanentError
from agentkit.core.contracts.messages import Message, ToolCall, marked
from agentkit.core.contracts.requests import ChatRequest, Delta, LLMResult
from agentkit.core.contracts.surrogates import replace_surrogates
from agentkit.core.contracts.tokens import estimate_message_tokens, estimate_request_tokens
from agentkit.core.contracts.usage import Usage
from agentkit.core.contracts.validity import FIRST, MEDIA_MOVED, STRICT, Rules, check, require_request

CHUNK = 64
"""Characters of a streamed piece: a provider's event holds one to a few words."""

SUMMARY = "context-summary"
FRAMES = ("runtime-note", "runtime-state", "system-message", "late-tool-result", SUMMARY, "skill")
"""Tags of frames whose text no person sent, as the library and agentd write them."""

_FRAMED = re.compile(rf"<(?:{'|'.join(FRAMES)})[ >\n]|<message role=")
_MOVED = re.compile(r"<late-tool-result[ >]|\[files of the (?:result of tool call |assistant's message|system text)")
"""Texts in front of pictures and files that are not the person's either."""


class Asked(NamedTuple):
    """What stands between two answers: what a person said, piece by piece, and the results of tools."""

    texts: tuple[str, ...] = ()
    results: tuple[Message, ...] = ()


def refuse_invalid(request: ChatRequest, rules: Rules = STRICT) -> None:
    """PermanentError for a request that providers answer with 400: nothing to answer, or an invalid transcript."""
    try:
        require_request(request.messages)
    except EmptyRequestError as error:
        raise PermanentError(f"400: {error}") from error
    found = check(request.messages, rules, prefix=request.prefix_length)
    if found:
        told = "; ".join(f"messages[{one.index}] {one.code}: {one.detail}" for one in found[:5])
        more = f"; and {len(found) - 5} more" if len(found) > 5 else ""
        raise PermanentError(f"400: the request is invalid under the rules {rules.name}: {told}{more}")


def request_tokens(request: ChatRequest) -> int:
    """Estimated prompt tokens of a request, tools and response format included."""
    return estimate_request_tokens(request.messages, request.tools or (), request.response_format)


def measured_usage(request: ChatRequest, answer: Message) -> Usage:
    """What a provider would report, by the library's estimate: the same request gives the same figure, and a longer one
    a larger."""
    return Usage(request_tokens(request), estimate_message_tokens([answer]))


def pieces(result: LLMResult) -> Iterator[Delta]:
    """An answer as a stream; usage, finish reason, calls and blocks come with the last piece."""
    for start in range(0, len(result.text), CHUNK):
        yield Delta(result.text[start : start + CHUNK])
    yield Delta(
        "",
        result.tool_calls,
        result.usage,
        result.finish_reason,
        result.parsed,
        blocks=result.blocks,
        model=result.model,
        meta=result.meta,
    )


def spoken(message: Message) -> list[str]:
    """The pieces of a user message that somebody sent: its texts less frames and blank ones, and a mark for each
    picture or file."""
    found = []
    theirs = True
    for block in message.ordered:
        if isinstance(block, TextBlock):
            text = block.text
            theirs = _MOVED.match(text) is None
            if theirs and text.strip() and text not in (FIRST, MEDIA_MOVED) and not _FRAMED.match(text):
                found.append(replace_surrogates(text))
        elif theirs and not isinstance(block, ToolCall):
            found.append(f"\0{type(block).__name__}")
    return found


def backwards(messages: Sequence[Message], start: int = 0) -> Iterator[tuple[Asked, Message | None]]:
    """What was asked, newest first, each with the answer in front of it; None at the beginning, which is at `start`.

    Made for valid requests: one assistant message between two questions.
    """
    texts: list[str] = []
    results: list[Message] = []
    for at in range(len(messages) - 1, start - 1, -1):
        message = messages[at]
        if message.role == "assistant":
            yield asked_of(texts, results), message
            texts, results = [], []
        elif message.role == "tool":
            results.append(message)
        elif message.role == "user":
            texts += reversed(spoken(message))
    yield asked_of(texts, results), None


def is_whole(messages: Sequence[Message], start: int = 0) -> bool:
    """Whether what follows `start` is a conversation from its beginning: no summary stands in for what was in front."""
    for message in messages[start : start + 1]:
        texts = [block.text for block in message.ordered if isinstance(block, TextBlock)]
        return marked(message, "summary") is None and not any(text.startswith(f"<{SUMMARY} ") for text in texts)
    return True


def asked_of(texts: Iterable[str], results: Iterable[Message]) -> Asked:
    """What was asked, of pieces that were met newest first."""
    return Asked(tuple(texts)[::-1], tuple(results)[::-1])
