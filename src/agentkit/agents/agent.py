"""`Agent`: a model with a prompt and a way to work. Touches what the run it is given offers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Any

from agentkit.core.contracts.errors import ScopeError
from agentkit.core.contracts.ports import Ctx, MemorySource
from agentkit.core.contracts.requests import StreamEvent
from agentkit.state.context import CharClassTokenCounter, WorkingContext

from .cognition import AgentResult, Cognition, Plan, SingleCallCognition
from .request_builder import OutputAdapter, RequestBuilder


class Agent:
    """Answers tasks with `model`. Holds no state of its own: what it knows is in the context it is given.

    `prompt` and `memory` (asked for what is relevant to a task) make the request builder, unless `request_builder` is
    given. `parse` reads the answer's text, else `output` does; either says by ValueError, TypeError or LookupError what
    is wrong with it, and the model may try again `max_repairs` times.
    """

    def __init__(
        self,
        name: str,
        model: str | None = None,
        *,
        prompt: str | None = None,
        request_builder: RequestBuilder | None = None,
        response_format: Any = None,
        temperature: float | None = 0.0,
        max_tokens: int | None = None,
        output: OutputAdapter | None = None,
        parse: Callable[[str], Any] | None = None,
        max_repairs: int = 1,
        cognition: Cognition | None = None,
        memory: MemorySource | None = None,
    ) -> None:
        if not isinstance(name, str):
            raise TypeError(f"name must be a str, not {type(name).__name__}")
        if not name:
            raise ValueError("name must not be empty")
        if model is not None and not isinstance(model, str):
            raise TypeError(f"model must be None or a str, not {type(model).__name__}")
        if type(max_repairs) is not int:
            raise TypeError(f"max_repairs must be an int, not {type(max_repairs).__name__}")
        if max_repairs < 0:
            raise ValueError(f"max_repairs must not be negative: {max_repairs}")
        if request_builder is not None and prompt is not None:
            raise TypeError("prompt belongs to the request_builder when there is one: RequestBuilder(prompt)")
        self.name, self.memory = name, memory
        self.cognition: Cognition = SingleCallCognition() if cognition is None else cognition
        builder = RequestBuilder(prompt or "", memory) if request_builder is None else request_builder
        self._plan = Plan(model, builder, response_format, temperature, max_tokens, output, parse, max_repairs)

    @property
    def model(self) -> str | None:
        return self._plan.model

    async def run(self, task: str, ctx: Ctx, *, context: WorkingContext | None = None) -> AgentResult:
        """Work on `task` to the end. Task and answer are added to `context`; without one a fresh context is used.

        Raises TypeError for arguments in the wrong places, ScopeError when run and context belong to two tenants.
        """
        async with aclosing(self.stream(task, ctx, context=context)) as events:
            result = [event.data async for event in events if event.kind == "final"]
        found: AgentResult = result[-1]
        return found

    def stream(
        self, task: str, ctx: Ctx, *, context: WorkingContext | None = None
    ) -> AsyncGenerator[StreamEvent, None]:
        """`run`, telling what happens: `message_delta` with text, `step` before another attempt, `final` at the end."""
        _check_arguments(task, ctx, context)
        if context is None:
            context = WorkingContext(token_counter=CharClassTokenCounter(), scope=ctx.scope)
        return self.cognition.stream(self._plan, task, ctx, context)

    async def resume(self, run_id: str, decisions: Mapping[str, Any], ctx: Ctx) -> AgentResult:
        """Go on with a suspended run. RuntimeError where the cognition never suspends one."""
        return await self.cognition.resume(run_id, decisions, ctx)

    def __repr__(self) -> str:
        return f"Agent({self.name!r}, model={self.model!r}, cognition={type(self.cognition).__name__})"


def _check_arguments(task: Any, ctx: Any, context: Any) -> None:
    if _is_run(task) and isinstance(ctx, str):
        raise TypeError("task and ctx are swapped: run(task, ctx)")
    if not isinstance(task, str):
        raise TypeError(f"task must be a str, not {type(task).__name__}: run(task, ctx, context=...)")
    if isinstance(ctx, WorkingContext):
        raise TypeError("ctx must be the RunContext; pass the WorkingContext by name: run(task, ctx, context=...)")
    if not _is_run(ctx):
        raise TypeError(f"ctx must be a RunContext or another Ctx, not {type(ctx).__name__}: run(task, ctx)")
    if _is_run(context):
        raise TypeError("context must be a WorkingContext; the RunContext comes second: run(task, ctx, context=...)")
    if context is None:
        return
    if not isinstance(context, WorkingContext):
        raise TypeError(f"context must be a WorkingContext, not {type(context).__name__}")
    if context.scope is not None and context.scope != ctx.scope:
        raise ScopeError(f"a run of {ctx.scope.key()} cannot use a context of {context.scope.key()}")


def _is_run(value: object) -> bool:
    return hasattr(value, "invoker") and hasattr(value, "correlation_id") and hasattr(value, "scope")
