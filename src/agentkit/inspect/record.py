"""What of a transcript a request consists of: prefix, tail, what was never sent. Touches only its arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from agentkit.core.contracts.messages import Message, marked
from agentkit.state.context import Layout, WorkingContext
from agentkit.state.context.tokens import AdditiveCounter
from agentkit.transcripts import Transcript

from .pieces import Weight


def next_layout(transcript: Transcript, counter: AdditiveCounter) -> Layout:
    """The request that the agent would send next, sized by `counter`."""
    context = transcript.context
    return WorkingContext(context.prefix, context.messages, token_counter=counter).segments(tools=transcript.tools)


def is_user_turn(message: Message) -> bool:
    """Whether somebody said this, rather than the client on their behalf."""
    return message.role == "user" and not message.meta.get("injected") and marked(message, "summary") is None


def prefix_length(transcript: Transcript) -> int:
    """How many messages of the history are the context's prefix: the leading system text, but for what the tail has.

    Not by comparison, since a prefix holds the plain text of what was recorded in blocks.
    """
    in_tail = {id(message) for message in transcript.context.messages}
    length = 0
    for message in transcript.history:
        if message.role != "system" or id(message) in in_tail:
            break
        length += 1
    return length


def is_sent(transcript: Transcript) -> Callable[[int], bool]:
    """Whether the message at a place of the history was for the model at all: a client's own error messages are not.

    The context tells, which holds all that came after the last compaction and was for the model; where it holds other
    messages than the history it tells nothing, and all count as sent.
    """
    sent = {id(message) for message in transcript.context.messages}
    if not sent <= {id(message) for message in transcript.history}:
        return lambda place: True
    after = max((compaction.index for compaction in transcript.compactions), default=-1)
    start = prefix_length(transcript)
    return lambda place: place < start or place <= after or id(transcript.history[place]) in sent


def sum_weights(counter: AdditiveCounter, messages: Iterable[Message]) -> Weight:
    first = second = 0
    for message in messages:
        a, b = counter.weigh(message)
        first += a
        second += b
    return first, second
