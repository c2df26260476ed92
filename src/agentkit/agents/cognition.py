"""How an agent gets from a task to an answer. Calls the run's invoker and writes the working context it is given."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Protocol

from agentkit.core.contracts.errors import EmptyRequestError
from agentkit.core.contracts.messages import Message
from agentkit.core.contracts.ports import Ctx
from agentkit.core.contracts.requests import ChatRequest, Delta, LLMResult, StreamEvent, assemble_deltas
from agentkit.core.contracts.usage import Usage
from agentkit.state.context import Layout, WorkingContext

from .request_builder import BuiltRequest, OutputAdapter, RequestBuilder, has_request

UNREADABLE = (ValueError, TypeError, LookupError)
"""What a parser may raise to say that the answer does not have the form asked for."""


@dataclass(frozen=True)
class AgentResult:
    """How a run ended. `output`: the model's last text; `parsed`: what the parser made of it; `usage`: of all calls.

    `partial`: the run stopped short, for the `reason` given: `invalid_output` when no answer could be parsed.
    """

    output: str
    usage: Usage = field(default_factory=Usage)
    partial: bool = False
    parsed: Any = None
    prompt_version: str | None = None
    reason: str | None = None


@dataclass(frozen=True)
class Plan:
    """What an agent asks of its cognition, apart from the task."""

    model: str | None
    builder: RequestBuilder
    response_format: Any
    temperature: float | None
    max_tokens: int | None
    output: OutputAdapter | None
    parse: Callable[[str], Any] | None
    max_repairs: int

    def read(self, result: LLMResult) -> Any:
        """The value in an answer; raises one of UNREADABLE where there is none. An explicit `parse` comes first."""
        if self.parse is not None:
            return self.parse(result.text)
        return self.output.parse(result.text) if self.output is not None else result.parsed

    def request(self, built: BuiltRequest, wc: WorkingContext, previous: Layout | None) -> ChatRequest:
        """The chat request, asking the provider to keep whatever the next one will begin with."""
        hint: Any = None
        if wc.prefix:
            hint = True if built.layout is None else built.layout.breakpoints(previous=previous)
        return ChatRequest(
            built.messages,
            self.model,
            response_format=self.response_format,
            temperature=self.temperature,
            max_tokens=self.max_tokens,
            cache_hint=hint,
            prefix=len(wc.prefix.rendered),
        )


class Cognition(Protocol):
    """A way to work on a task. Yields events, the last one `final` with the AgentResult as its data."""

    def stream(self, plan: Plan, task: str, ctx: Ctx, wc: WorkingContext) -> AsyncGenerator[StreamEvent, None]: ...

    async def resume(self, run_id: str, decisions: Mapping[str, Any], ctx: Ctx) -> AgentResult: ...


class SingleCallCognition:
    """One call; an answer that cannot be parsed is shown to the model with the reason, up to `max_repairs` times."""

    async def stream(self, plan: Plan, task: str, ctx: Ctx, wc: WorkingContext) -> AsyncGenerator[StreamEvent, None]:
        built = await plan.builder.build(task, wc, ctx, plan.output)
        usage, previous = Usage(), None
        for attempt in range(plan.max_repairs + 1):
            if not has_request(built.messages):
                raise EmptyRequestError
            deltas: list[Delta] = []
            request = plan.request(built, wc, previous)
            async with aclosing(ctx.invoker.stream(request, ctx, meta={"context": wc})) as pieces:
                async for delta in pieces:
                    deltas.append(delta)
                    if delta.text:
                        yield StreamEvent("message_delta", delta.text)
            result = assemble_deltas(deltas)
            usage += result.usage
            wc.append(result.message)
            if built.layout is not None:
                wc.record_usage(result.usage, layout=built.layout, model=plan.model)
            try:
                parsed = plan.read(result)
            except UNREADABLE as error:
                if attempt == plan.max_repairs:
                    end = AgentResult(result.text, usage, True, None, built.prompt_version, "invalid_output")
                    yield StreamEvent("final", result.text, end)
                    return
                yield StreamEvent("step", data={"repair": attempt + 1})
                previous = built.layout
                wc.append(Message("user", _reflection(error)))
                built = await plan.builder.build("", wc, ctx, plan.output)
            else:
                done = AgentResult(result.text, usage, result.partial, parsed, built.prompt_version)
                yield StreamEvent("final", result.text, done)
                return

    async def resume(self, run_id: str, decisions: Mapping[str, Any], ctx: Ctx) -> AgentResult:
        raise RuntimeError(f"{type(self).__name__} never suspends a run, so there is nothing to resume as {run_id!r}")


def _reflection(error: Exception) -> str:
    return f"That answer could not be read: {error}\nAnswer again, in the form that was asked for and nothing else."
