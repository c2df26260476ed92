"""`Plan`: what an agent asks of its cognition, apart from the task. Touches only its arguments."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from inspect import isawaitable
from typing import Any, TypeAlias

from agentkit.core.contracts.blocks import no_entries
from agentkit.core.contracts.messages import Message
from agentkit.core.contracts.ports import Ctx
from agentkit.core.contracts.requests import LLMResult
from agentkit.state.context import WorkingContext

from .hooks import Hooks
from .known import Known
from .output import OutputAdapter
from .request_builder import Builder

UNREADABLE = (ValueError, TypeError, LookupError)
"""What a parser may raise to say that the answer does not have the form asked for."""

Closing: TypeAlias = "str | Message | Iterable[Message] | None"
Volatile: TypeAlias = "Closing | Callable[[WorkingContext, Ctx], Closing | Awaitable[Closing]]"
"""The closing block of a request, or what makes it before each call of the model."""


@dataclass(frozen=True)
class Plan:
    """`kept`: the caller keeps the context, so that a later run may go on with it. `known`: shared by all runs of the
    agent."""

    model: str | None
    builder: Builder
    response_format: Any
    temperature: float | None
    max_tokens: int | None
    output: OutputAdapter | None
    reader: OutputAdapter | None
    parse: Callable[[str], Any] | None
    max_repairs: int
    known: Known
    volatile: Volatile = None
    hooks: Hooks = field(default_factory=Hooks)
    window: int | None = None
    options: Mapping[str, Any] = field(default_factory=no_entries)
    kept: bool = False

    def read(self, result: LLMResult) -> Any:
        """The value in an answer; raises one of UNREADABLE where there is none. An explicit `parse` comes first."""
        if self.parse is not None:
            return self.parse(result.text)
        if self.output is not None:
            return self.output.parse(result.text)
        if self.reader is not None and result.parsed is None:
            return self.reader.parse(result.text)
        return result.parsed

    async def closing_block(self, wc: WorkingContext, ctx: Ctx) -> tuple[Message, ...]:
        """The messages behind all that a cache could keep: a text becomes a user message, None is none."""
        given: Any = self.volatile
        if callable(given):
            given = given(wc, ctx)
            if isawaitable(given):
                given = await given
        if given is None or given == "":
            return ()
        if isinstance(given, str):
            return (Message("user", given),)
        return (given,) if isinstance(given, Message) else tuple(given)


def reflection(error: Exception) -> str:
    """What a model is told of an answer that could not be read."""
    return f"That answer could not be read: {error}\nAnswer again, in the form that was asked for and nothing else."
