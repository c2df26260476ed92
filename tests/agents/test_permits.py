"""Agents that call agents through their tools share the permits of one budget, and finish with a single one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from functools import cache
from typing import Any

import pytest

from agentkit.agents import Agent, ReActCognition, tool
from agentkit.core.contracts.types import ChatRequest, Delta, LLMResult, ToolCall, Usage
from agentkit.core.runtime import Budget, RunContext
from agentkit.core.testing import make_test_ctx

pytestmark = pytest.mark.anyio
DEPTH = 3


class Tree:
    """A model that has each agent of `boss` ask two others at once, down to `leaf`; notes how many requests are open.

    An agent's level is in the system prompt."""

    def __init__(self) -> None:
        self.open = self.most = self.asked = 0

    async def stream(self, request: ChatRequest, /) -> AsyncGenerator[Delta, None]:
        self.asked += 1
        self.open += 1
        self.most = max(self.most, self.open)
        try:
            await asyncio.sleep(0)
            level = int(request.messages[0].content)
            answered = request.messages[-1].role == "tool"
            if level == DEPTH or answered:
                yield Delta(f"level {level}", usage=Usage(1, 1, 0.001), finish_reason="stop")
            else:
                calls = tuple(ToolCall(f"c{n}", "delegate", {"level": level + 1}) for n in range(2))
                yield Delta("", calls, Usage(1, 1, 0.001), "tool_calls")
        finally:
            self.open -= 1

    async def chat(self, request: ChatRequest, /) -> LLMResult:
        raise NotImplementedError


@cache
def worker(level: int) -> Agent:
    @tool(side_effecting=False)
    async def delegate(level: int, ctx: RunContext) -> str:
        """Have another agent do it."""
        return (await worker(level).run("do it", ctx.child())).output

    return Agent(f"level {level}", "fake", prompt=str(level), cognition=ReActCognition([delegate]))


@pytest.mark.parametrize(("agents", "limit"), [(1, 1), (8, 1), (8, 3), (8, 8)])
async def test_trees_of_agents_finish(agents: int, limit: int) -> None:
    llm = Tree()
    ctx = make_test_ctx(llm=llm, budget=Budget(max_concurrency=limit))
    async with asyncio.timeout(60):  # a deadlock fails rather than hangs
        done: list[Any] = await asyncio.gather(*(worker(0).run("do it", ctx) for _ in range(agents)))
    assert [result.output for result in done] == ["level 0"] * agents
    # Twice for each of the 1 + 2 + 4 that delegate, once for each of the 8 that do not.
    assert llm.asked == ctx.budget.calls == agents * (2 * 7 + 8)
    assert ctx.budget.spent == Usage(llm.asked, llm.asked, round(0.001 * llm.asked, 6))
    assert (limit if agents > 1 else 1) == llm.most
