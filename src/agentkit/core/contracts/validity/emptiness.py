"""Whether a view has anything to answer, and what it was made of where it has not. Touches only its arguments."""

from __future__ import annotations

from collections.abc import Iterable

from agentkit.core.contracts.errors import EmptyRequestError
from agentkit.core.contracts.surrogates import replace_surrogates
from agentkit.core.contracts.types import (
    Block,
    DocumentBlock,
    ImageBlock,
    Message,
    NativeBlock,
    TextBlock,
    ToolCall,
)

_STANDING = ("system", "developer")
_NAMED = 5
"""How many messages and blocks an error names."""


def require_request(messages: Iterable[Message], given: Iterable[Message] = ()) -> None:
    """Raises EmptyRequestError when a view has nothing but system text: there would be nothing to answer.

    `given`: what the view was made of; the error names what of it cannot be sent.
    """
    if not all(message.role in _STANDING for message in messages):
        return
    unsent = [
        f"messages[{at}] ({message.role}) has {_held(message)}"
        for at, message in enumerate(given)
        if message.role not in _STANDING
    ]
    if not unsent:
        raise EmptyRequestError
    more = f"; and {len(unsent) - _NAMED} more" if len(unsent) > _NAMED else ""
    raise EmptyRequestError(f"nothing of the request can be sent: {'; '.join(unsent[:_NAMED])}{more}")


def _held(message: Message) -> str:
    """What a message holds of which nothing can be sent, by its blocks."""
    held = [f"{type(block).__name__}{_why(block)}" for block in message.ordered[:_NAMED]]
    more = len(message.ordered) - len(held)
    return ", ".join(held) + (f" and {more} more" if more else "") if held else "no content"


def _why(block: Block | ToolCall) -> str:
    if isinstance(block, (ImageBlock, DocumentBlock)):
        return " without bytes or reference" if not block.source else ""
    if isinstance(block, TextBlock):
        return " of blanks" if block.text else " without text"
    return f" of {replace_surrogates(block.provider)!r}" if isinstance(block, NativeBlock) else ""
