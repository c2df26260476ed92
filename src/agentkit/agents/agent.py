"""`Agent`: a model with a prompt and a way to work. Touches what the run it is given offers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from agentkit.core.contracts.blocks import freeze_mapping
from agentkit.core.contracts.errors import ScopeError
from agentkit.core.contracts.ports import Ctx, MemorySource
from agentkit.core.contracts.requests import StreamEvent
from agentkit.state.context import CharClassTokenCounter, WorkingContext

from .cognition import Cognition, SingleCallCognition
from .delegation import AgentTool
from .hooks import Hooks
from .known import Known
from .output import as_output, as_response_format
from .plan import Plan, Volatile
from .request_builder import Builder, RequestBuilder
from .results import AgentResult


class Agent:
    """Answers tasks with `model`. What it knows of a conversation is in the context it is given, so one agent serves
    any number of runs and tenants; of models it keeps what it has learnt: windows, and how far estimates are off.

    `prompt` and `memory` (asked for what is relevant to a task) make the request builder, unless `request_builder` is
    given. `parse` reads the answer's text, else `output` does: a type, whose schema the model is told, or an adapter.
    Either says by ValueError, TypeError or LookupError what is wrong, and the model may try again `max_repairs` times.
    `response_format` is what the provider itself is asked for: a JSON Schema, its own form, or a type.

    `volatile`: the closing block of each request (a plan, the time), a text or messages, or what makes them of the
    context and the run; it stands behind everything that a prompt cache could keep and is not stored. `window`: tokens
    of the model's context window, where the table does not know them. `options`: provider settings of every request.
    `hooks`: callbacks that watch.
    """

    def __init__(
        self,
        name: str,
        model: str | None = None,
        *,
        prompt: str | None = None,
        request_builder: Builder | None = None,
        response_format: Any = None,
        temperature: float | None = 0.0,
        max_tokens: int | None = None,
        output: Any = None,
        parse: Callable[[str], Any] | None = None,
        max_repairs: int = 1,
        cognition: Cognition | None = None,
        memory: MemorySource | None = None,
        volatile: Volatile = None,
        hooks: Hooks | None = None,
        window: int | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        if not isinstance(name, str):
            raise TypeError(f"name must be a str, not {type(name).__name__}")
        if not name:
            raise ValueError("name must not be empty")
        if model is not None and not isinstance(model, str):
            raise TypeError(f"model must be None or a str, not {type(model).__name__}")
        for what, number in (("max_repairs", max_repairs), ("window", window), ("max_tokens", max_tokens)):
            if number is None and what != "max_repairs":
                continue
            if type(number) is not int:
                raise TypeError(f"{what} must be an int, not {type(number).__name__}")
            if number < (0 if what == "max_repairs" else 1):
                least = "not be negative" if what == "max_repairs" else "be at least 1"
                raise ValueError(f"{what} must {least}: {number}")
        if hooks is not None and not isinstance(hooks, Hooks):
            raise TypeError(f"hooks must be Hooks, not {type(hooks).__name__}")
        if request_builder is not None and prompt is not None:
            raise TypeError("prompt belongs to the request_builder when there is one: RequestBuilder(prompt)")
        self.name, self.memory = name, memory
        self.cognition: Cognition = SingleCallCognition() if cognition is None else cognition
        builder: Builder = RequestBuilder(prompt or "", memory) if request_builder is None else request_builder
        form, reader = as_response_format(response_format)
        self._plan = Plan(
            model, builder, form, temperature, max_tokens, as_output(output), reader, parse, max_repairs, Known(),
            volatile, hooks or Hooks(), window, freeze_mapping(options or {}, "options"),
        )  # fmt: skip

    @property
    def model(self) -> str | None:
        return self._plan.model

    async def run(self, task: str, ctx: Ctx, *, context: WorkingContext | None = None) -> AgentResult:
        """Work on `task` to the end. Task and answer are added to `context`; without one a fresh context is used.

        Raises TypeError for arguments in the wrong places, ScopeError when run and context belong to two tenants,
        RunSuspendedError where this run waits for decisions, ContextOverflowError for a request that fits no window,
        ValueError for a limit in USD on a model without a price.
        """
        return await _final(self.stream(task, ctx, context=context))

    def stream(
        self, task: str, ctx: Ctx, *, context: WorkingContext | None = None
    ) -> AsyncGenerator[StreamEvent, None]:
        """`run`, telling what happens: `message_delta` with text; `tool_call` and `tool_result` with the ToolCall and
        the Message; `step` after a round of calls, and before another attempt; `interrupt` with what a run waits for;
        `final` with the AgentResult, always the last."""
        _check_arguments(task, ctx, context)
        plan = replace(self._plan, kept=context is not None)
        return self.cognition.stream(plan, task, ctx, _own(ctx, self.model) if context is None else context)

    async def resume(
        self, run_id: str, decisions: Mapping[str, Any], ctx: Ctx, *, context: WorkingContext | None = None
    ) -> AgentResult:
        """Go on with a run that waits for decisions, or that its process left in the middle; from any process that has
        the same store.

        `decisions` by call id: `approve`, `reject`, or other arguments (a mapping, or the text of a JSON object); a
        call without one is rejected. What has run is not run again, and the model is told of a call whose outcome is
        not known. `context` is filled in place with what the run knew.

        Raises InvalidDecisionError for any other decision, and the run still waits; LookupError for an unknown run, or
        one of another tenant; RuntimeError where the cognition never suspends one.
        """
        return await _final(self.resume_stream(run_id, decisions, ctx, context=context))

    def resume_stream(
        self, run_id: str, decisions: Mapping[str, Any], ctx: Ctx, *, context: WorkingContext | None = None
    ) -> AsyncGenerator[StreamEvent, None]:
        """`resume`, telling what happens, as `stream` does."""
        if not isinstance(run_id, str):
            raise TypeError(f"run_id must be a str, not {type(run_id).__name__}: {RESUME}")
        _check_arguments("", ctx, context, RESUME)
        plan = replace(self._plan, kept=context is not None)
        return self.cognition.resume(
            plan, run_id, decisions, ctx, _own(ctx, self.model) if context is None else context
        )

    def as_tool(
        self,
        description: str,
        *,
        name: str | None = None,
        side_effecting: bool | None = None,
        requires_approval: bool = False,
    ) -> AgentTool:
        """This agent as a tool of another one: the model calls it with a `task`, and the answer is the result.

        `description` tells the calling model what the agent is for; `name` is the agent's by default. It has side
        effects if one of its tools has, unless `side_effecting` says otherwise; TypeError where its cognition does not
        tell its tools and nobody says. What is shared and what is not: see AgentTool.
        """
        if side_effecting is None:
            tools = () if isinstance(self.cognition, SingleCallCognition) else getattr(self.cognition, "tools", None)
            if tools is None:
                raise TypeError(f"say side_effecting: {type(self.cognition).__name__} does not tell its tools")
            side_effecting = any(tool.side_effecting for tool in tools)
        return AgentTool(
            self, description, name=name, side_effecting=side_effecting, requires_approval=requires_approval
        )

    def __repr__(self) -> str:
        return f"Agent({self.name!r}, model={self.model!r}, cognition={type(self.cognition).__name__})"


async def _final(events: AsyncGenerator[StreamEvent, None]) -> AgentResult:
    async with aclosing(events):
        results = [event.data async for event in events if event.kind == "final"]
    found: AgentResult = results[-1]
    return found


def _own(ctx: Ctx, model: str | None) -> WorkingContext:
    return WorkingContext(token_counter=CharClassTokenCounter(model), scope=ctx.scope)


RUN, RESUME = "run(task, ctx, context=...)", "resume(run_id, decisions, ctx, context=...)"


def _check_arguments(task: Any, ctx: Any, context: Any, call: str = RUN) -> None:
    if _is_run(task) and isinstance(ctx, str):
        raise TypeError(f"task and ctx are swapped: {call}")
    if not isinstance(task, str):
        raise TypeError(f"task must be a str, not {type(task).__name__}: {call}")
    if isinstance(ctx, WorkingContext):
        raise TypeError(f"ctx must be the RunContext; pass the WorkingContext by name: {call}")
    if not _is_run(ctx):
        raise TypeError(f"ctx must be a RunContext or another Ctx, not {type(ctx).__name__}: {call}")
    if _is_run(context):
        raise TypeError(f"context must be a WorkingContext; the RunContext has a place of its own: {call}")
    if context is None:
        return
    if not isinstance(context, WorkingContext):
        raise TypeError(f"context must be a WorkingContext, not {type(context).__name__}")
    if context.scope is not None and context.scope != ctx.scope:
        raise ScopeError(f"a run of {ctx.scope.key()} cannot use a context of {context.scope.key()}")


def _is_run(value: object) -> bool:
    return hasattr(value, "invoker") and hasattr(value, "correlation_id") and hasattr(value, "scope")
