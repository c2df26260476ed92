"""An agent as a tool of another one. Runs the agent in the run that its caller's call belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from agentkit.core.contracts.ports import Ctx
from agentkit.core.runtime import RunContext

from .results import AgentResult
from .tools import ToolResult

_TASK = {
    "type": "string",
    "description": "What is to be done, with all that has to be known: nothing of this conversation is passed on.",
}


class Runnable(Protocol):
    """What is run for a call: an Agent."""

    @property
    def name(self) -> str: ...

    async def run(self, task: str, ctx: Ctx) -> AgentResult: ...


class AgentTool:
    """A tool that gives a task to an agent; made by `Agent.as_tool`.

    The agent works in a context of its own, one level deeper in the same run: budget, tenant, services and cancellation
    are its caller's, its run id is its own. The call's result is what its parser made of the answer, else the text. A
    run that stopped short is an error that says why. One that waits for approval is an interim result with its run id:
    `resume` it, and hand its output to `deliver_result`.
    """

    def __init__(
        self,
        agent: Runnable,
        description: str,
        *,
        side_effecting: bool,
        requires_approval: bool = False,
        name: str | None = None,
    ) -> None:
        for what, text in (("description", description), ("name", agent.name if name is None else name)):
            if not isinstance(text, str):
                raise TypeError(f"{what} must be a str, not {type(text).__name__}")
            if not text:
                raise ValueError(f"{what} must not be empty: a model chooses by it")
        for what, value in (("side_effecting", side_effecting), ("requires_approval", requires_approval)):
            if type(value) is not bool:
                raise TypeError(f"{what} must be a bool, not {type(value).__name__}")
        self.agent, self.name, self.description = agent, agent.name if name is None else name, description
        self.side_effecting, self.requires_approval = side_effecting, requires_approval
        self.parameters: Mapping[str, Any] = {
            "type": "object",
            "properties": {"task": _TASK},
            "required": ["task"],
            "additionalProperties": False,
        }

    def check(self, arguments: Mapping[str, Any], /) -> None:
        unknown = sorted(arguments.keys() - {"task"})
        if unknown:
            raise ValueError(f"unknown: {', '.join(unknown)}; the only argument is `task`")
        if not isinstance(arguments.get("task"), str):
            raise ValueError("task: a text is required")
        if not arguments["task"].strip():
            raise ValueError("task: must not be blank")

    async def run(self, arguments: Mapping[str, Any], ctx: Ctx, /) -> ToolResult:
        inside = ctx.child(self.name) if isinstance(ctx, RunContext) else ctx
        return _shown(await self.agent.run(arguments["task"], inside))

    def __repr__(self) -> str:
        return f"AgentTool({self.name!r}, side_effecting={self.side_effecting})"


def _shown(result: AgentResult) -> ToolResult:
    if result.suspended is not None:
        waits = f"The agent {result.suspended.reason}. Its run is {result.suspended.run_id}; its answer comes later."
        return ToolResult(waits, pending=True)
    if result.partial:
        said = f" So far it said:\n{result.output}" if result.output else ""
        return ToolResult(f"The agent stopped short: {result.reason or 'its answer was cut off'}.{said}", is_error=True)
    return ToolResult(result.output if result.parsed is None else result.parsed)
