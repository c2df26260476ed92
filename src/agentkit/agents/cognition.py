"""How an agent gets from a task to an answer. Calls the run's invoker and writes the working context it is given."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, Protocol

from agentkit.core.contracts.messages import Message
from agentkit.core.contracts.ports import Ctx
from agentkit.core.contracts.requests import StreamEvent
from agentkit.state.context import WorkingContext

from .asking import Asking
from .plan import UNREADABLE, Plan, reflection
from .results import AgentResult


class Cognition(Protocol):
    """A way to work on a task. Yields events, the last one `final` with the AgentResult as its data."""

    def stream(self, plan: Plan, task: str, ctx: Ctx, wc: WorkingContext) -> AsyncGenerator[StreamEvent, None]: ...

    def resume(
        self, plan: Plan, run_id: str, decisions: Mapping[str, Any], ctx: Ctx, wc: WorkingContext
    ) -> AsyncGenerator[StreamEvent, None]:
        """Go on with a suspended or interrupted run, `wc` filled with what it knew."""
        ...


class SingleCallCognition:
    """One call; an answer that cannot be parsed is shown to the model with the reason, up to `max_repairs` times."""

    async def stream(self, plan: Plan, task: str, ctx: Ctx, wc: WorkingContext) -> AsyncGenerator[StreamEvent, None]:
        asking = Asking(plan, ctx, wc)
        for attempt in range(plan.max_repairs + 1):
            async with aclosing(asking.ask(task, last=True)) as events:
                async for event in events:
                    yield event
            result, version = asking.result, asking.prompt_version
            try:
                parsed = plan.read(result)
            except UNREADABLE as error:
                if attempt == plan.max_repairs:
                    end = AgentResult(result.text, asking.usage, True, None, version, "invalid_output")
                    yield StreamEvent("final", result.text, end)
                    return
                yield StreamEvent("step", data={"repair": attempt + 1})
                wc.append(Message("user", reflection(error)))
                task = ""
            else:
                done = AgentResult(result.text, asking.usage, result.partial, parsed, version)
                yield StreamEvent("final", result.text, done)
                return

    def resume(
        self, plan: Plan, run_id: str, decisions: Mapping[str, Any], ctx: Ctx, wc: WorkingContext
    ) -> AsyncGenerator[StreamEvent, None]:
        raise RuntimeError(f"{type(self).__name__} never suspends a run, so there is nothing to resume as {run_id!r}")
