"""A summary asked for at the end of the conversation itself, whose prefix the provider's cache still has. Touches only
its arguments.

The entries need not be sent again then: the request is the one that the conversation would send next, byte for byte,
with the instruction behind it. What would be fresh input in a request of its own is read at the price of a read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from agentkit.core.contracts.framing import frame
from agentkit.core.contracts.messages import Message
from agentkit.core.contracts.requests import ChatRequest
from agentkit.core.contracts.tokens import measure
from agentkit.core.contracts.worth import PriceRates
from agentkit.state.context.tokens import CharClassTokenCounter

from .evidence import Source

SHOWN = 80
"""Characters of an entry by which it is told from the others."""

_COUNTER = CharClassTokenCounter()


@dataclass(frozen=True)
class Conversation:
    """What the conversation would send next, without its volatile part, to the model that is to write the summary.
    `tokens`: its size; `read`: the leading part that the provider's cache has; `rates`: what the model costs."""

    request: ChatRequest
    tokens: int
    read: int
    rates: PriceRates


def extended(conversation: ChatRequest, chunk: Sequence[Source], instruction: str, max_output: int) -> ChatRequest:
    """The conversation with the instruction as its last user text, and which of its entries are meant. Tools, settings
    and marks stay as they are, since each of them is part of what the cache is found by."""
    entries = [frame("entry", _start(s.text), n=s.n, by=s.speaker, error="true" if s.is_error else None) for s in chunk]
    head = (
        "This is no request of the user's: the runtime asks for a record of the entries of this conversation that are "
        "listed at the end, each with its number and how it begins. They stand in full above."
    )
    text = "\n\n".join([head, instruction, "The entries:", *entries])
    return replace(
        conversation,
        messages=(*conversation.messages, Message("user", text)),
        response_format=None,
        max_tokens=max_output,
    )


def is_worth_it(
    conversation: Conversation, request: ChatRequest, own: Sequence[ChatRequest], *, window: int, max_output: int
) -> bool:
    """Whether `request`, which extends the conversation, fits the window and costs less than the requests of its
    own."""
    rates, whole = conversation.rates, conversation.tokens + measure(request.messages[-1:], _COUNTER)
    if rates.read is None or whole + max_output > window:
        return False
    fresh = whole - conversation.read
    extending = conversation.read * float(rates.read) + fresh * float(rates.input)
    return extending < sum(measure(one.messages, _COUNTER) for one in own) * float(rates.input)


def _start(text: str) -> str:
    line = " ".join(text[: 4 * SHOWN].split())
    return line if len(line) <= SHOWN else line[: SHOWN - 1] + "…"
