"""Only leaves hold permits: any tree of agents and tools finishes, with a single permit too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.core.contracts.errors import TransientError
from agentkit.core.contracts.ports import Ctx
from agentkit.core.contracts.types import ChatRequest, Delta, LLMResult, Message, ToolCall, ToolRequest, Usage
from agentkit.core.runtime import Budget, RunContext
from agentkit.core.testing import FakeLLM, make_test_ctx

ONE = ChatRequest((Message("user", "go"),), "fake")
CALL = Usage(3, 2, 0.001)


class Watching:
    """A model that notes how many leaves are at work; each piece of its answer lets the others run."""

    def __init__(self, pieces: int = 2) -> None:
        self.pieces, self.now, self.most, self.asked = pieces, 0, 0, 0

    def begin(self) -> None:
        self.now += 1
        self.most = max(self.most, self.now)

    async def stream(self, request: ChatRequest, /) -> AsyncGenerator[Delta, None]:
        self.asked += 1
        self.begin()
        try:
            for _ in range(self.pieces):
                await asyncio.sleep(0)
                yield Delta("x")
            yield Delta(usage=CALL, finish_reason="stop")
        finally:
            self.now -= 1

    async def chat(self, request: ChatRequest, /) -> LLMResult:
        raise NotImplementedError


@dataclass(frozen=True)
class Node:
    """An agent that asks its model, runs its tools, and asks again; a tool calls further agents, one after the other or
    side by side."""

    rounds: int
    tools: tuple[tuple[bool, tuple[Node, ...]], ...] = ()
    together: bool = True


def nodes() -> st.SearchStrategy[Node]:
    leaf = st.builds(Node, st.integers(1, 2))

    def grow(inner: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
        tools = st.tuples(st.booleans(), st.lists(inner, max_size=3).map(tuple))
        return st.builds(Node, st.integers(1, 2), st.lists(tools, max_size=3).map(tuple), st.booleans())

    return st.recursive(leaf, grow, max_leaves=8)


def asked(node: Node) -> int:
    return node.rounds * (1 + sum(asked(child) for _, children in node.tools for child in children))


class Tree:
    """Runs a tree of agents against one budget."""

    def __init__(self, ctx: RunContext, model: Watching) -> None:
        self.ctx, self.model, self.bodies = ctx, model, 0

    async def agent(self, node: Node, ctx: RunContext) -> None:
        for _ in range(node.rounds):
            await ctx.invoker.chat(ONE, ctx)
            calls = [self.tool(side_by_side, children, ctx) for side_by_side, children in node.tools]
            if node.together:
                await asyncio.gather(*calls)
            else:
                for call in calls:
                    await call

    async def tool(self, side_by_side: bool, children: tuple[Node, ...], ctx: RunContext) -> None:
        async def body(request: ToolRequest, inner: Ctx) -> None:
            assert isinstance(inner, RunContext)
            self.bodies += 1
            await self.work()
            if side_by_side:
                await asyncio.gather(*(self.agent(child, inner.child()) for child in children))
            else:
                for child in children:
                    await self.agent(child, inner.child())
                    await self.work()

        await ctx.invoker.invoke_tool(ToolRequest(ToolCall("c", "agents", {})), ctx, body)

    async def work(self) -> None:
        """A piece of a tool's own work."""
        self.model.begin()
        await asyncio.sleep(0)
        self.model.now -= 1


def run(main: Callable[[], Awaitable[Any]]) -> Any:
    """Run to the end; a wait for a permit that nobody can give back shows as the last step of the loop."""

    async def guarded() -> Any:
        task = asyncio.ensure_future(main())
        for _ in range(20_000):
            if task.done():
                return task.result()
            await asyncio.sleep(0)
        task.cancel()
        raise AssertionError("nobody goes on: a deadlock")

    return asyncio.run(guarded())


@given(st.lists(nodes(), min_size=1, max_size=8), st.integers(1, 8))
def test_any_tree_of_agents_and_tools_finishes_with_exact_totals(trees: list[Node], limit: int) -> None:
    """Property 16: no deadlock at any number of permits, no more leaves than permits, and a budget that is exact."""
    model = Watching()
    budget = Budget(max_depth=None, max_concurrency=limit)
    ctx = make_test_ctx(llm=model, budget=budget)
    tree = Tree(ctx, model)

    async def main() -> None:
        await asyncio.gather(*(tree.agent(node, ctx) for node in trees))

    run(main)
    expected = sum(map(asked, trees))
    assert (model.asked, budget.calls) == (expected, expected)
    assert budget.spent == Usage(3 * expected, 2 * expected, round(0.001 * expected, 6))
    assert 1 <= model.most <= limit
    assert model.now == 0
    run(main)  # the same budget in another loop


@pytest.mark.parametrize("limit", [1, 2])
def test_eight_agents_with_tools_finish(limit: int) -> None:
    node = Node(2, ((True, (Node(1), Node(2))), (False, (Node(1),))))
    model = Watching()
    ctx = make_test_ctx(llm=model, budget=Budget(max_concurrency=limit))
    tree = Tree(ctx, model)
    run(lambda: asyncio.gather(*(tree.agent(node, ctx) for _ in range(8))))
    assert model.asked == 8 * asked(node)
    assert model.most == limit


def test_reader_may_call_on_in_the_middle_of_an_answer() -> None:
    model = Watching()
    ctx = make_test_ctx(llm=model, budget=Budget(max_concurrency=1))

    async def main() -> None:
        async with aclosing(ctx.invoker.stream(ONE, ctx)) as outer:
            async for _ in outer:
                await ctx.invoker.chat(ONE, ctx)
                async with aclosing(ctx.invoker.stream(ONE, ctx)) as abandoned:
                    await anext(abandoned)
        await ctx.invoker.chat(ONE, ctx)

    run(main)
    assert model.asked == 1 + 2 * 3 + 1


def test_answers_read_in_turn_by_one_task() -> None:
    model = Watching(4)
    ctx = make_test_ctx(llm=model, budget=Budget(max_concurrency=1))

    async def main() -> None:
        open_ones = [ctx.invoker.stream(ONE, ctx) for _ in range(3)]
        while open_ones:
            for one in list(open_ones):
                if await anext(one, None) is None:
                    open_ones.remove(one)

    run(main)
    assert (model.asked, model.now) == (3, 0)


def test_permit_comes_back_when_its_leaf_is_cancelled_or_fails() -> None:
    ctx = make_test_ctx(llm=Watching(1_000_000), budget=Budget(max_concurrency=1))
    failing = make_test_ctx(llm=FakeLLM("x", fail_times=1), budget=ctx.budget)

    async def hang(request: ToolRequest, inner: Ctx) -> None:
        await inner.invoker.chat(ONE, inner)

    async def main() -> LLMResult:
        tool = asyncio.create_task(ctx.invoker.invoke_tool(ToolRequest(ToolCall("c", "t", {})), ctx, hang))
        waiting = asyncio.create_task(ctx.invoker.chat(ONE, ctx))
        for _ in range(10):
            await asyncio.sleep(0)
        tool.cancel()
        waiting.cancel()
        await asyncio.wait([tool, waiting])
        with pytest.raises(TransientError):
            await failing.invoker.chat(ONE, failing)
        return await failing.invoker.chat(ONE, failing)

    result: LLMResult = run(main)
    assert result.text == "x"


def test_permits_are_free_again_after_a_loop_that_ended_early() -> None:
    model = Watching(1_000_000)
    budget = Budget(max_concurrency=1)
    ctx = make_test_ctx(llm=model, budget=budget)

    async def give_up() -> None:
        asking = [asyncio.create_task(ctx.invoker.chat(ONE, ctx)) for _ in range(2)]
        for _ in range(5):
            await asyncio.sleep(0)
        assert not any(task.done() for task in asking)

    asyncio.run(give_up())
    other = make_test_ctx(llm=FakeLLM("x"), budget=budget)
    assert run(lambda: other.invoker.chat(ONE, other)).text == "x"


def test_no_limit_is_possible() -> None:
    model = Watching()
    ctx = make_test_ctx(llm=model, budget=Budget(max_concurrency=None))
    run(lambda: asyncio.gather(*(ctx.invoker.chat(ONE, ctx) for _ in range(20))))
    assert model.most == 20


def test_concurrency_is_at_least_one() -> None:
    with pytest.raises(ValueError, match="max_concurrency must be at least 1"):
        Budget(max_concurrency=0)


def test_restored_spending_counts_and_raises_nothing() -> None:
    budget = Budget(max_calls=2)
    budget.restore(CALL, 5)
    assert (budget.calls, budget.spent) == (5, CALL)
    bad: Any = 1
    with pytest.raises(TypeError, match="spent must be a Usage"):
        budget.restore(bad, 1)
    with pytest.raises(ValueError, match="calls"):
        budget.restore(CALL, -1)
