"""Calls go through their middleware in order, are closed on every exit, and are billed once."""

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest

from agentkit.core.contracts.calls import ChatCall, ChatMiddleware, ChatNext, ToolInvocation, ToolNext
from agentkit.core.contracts.errors import MeterExceeded, TransientError
from agentkit.core.contracts.types import ChatRequest, Delta, LLMResult, Message, Usage, assemble_deltas
from agentkit.core.policies import meter
from agentkit.core.runtime import Budget, Invoker, RunContext
from agentkit.core.testing import FakeLLM, FakeTool, RecordingTracer, make_test_ctx

REQUEST = ChatRequest((Message("user", "hi"),), "fake")


def noting(name: str, seen: list[str]) -> ChatMiddleware:
    async def note(call: ChatCall, proceed: ChatNext) -> AsyncIterator[Delta]:
        seen.append(f"{name} in")
        call.meta[name] = True
        try:
            async for delta in proceed(call):
                yield delta
            seen.append(f"{name} out")
        finally:
            seen.append(f"{name} closed")

    return note


class EndlessLLM:
    """Streams until it is closed, and notes that it was."""

    def __init__(self) -> None:
        self.closed = False

    async def stream(self, request: ChatRequest, /) -> AsyncGenerator[Delta, None]:
        try:
            while True:
                yield Delta("x", usage=Usage(1, 1, 0.5))
                await asyncio.sleep(0)
        finally:
            self.closed = True

    async def chat(self, request: ChatRequest, /) -> LLMResult:
        raise NotImplementedError


@pytest.mark.anyio
async def test_first_middleware_is_outermost() -> None:
    seen: list[str] = []
    meta: dict[str, Any] = {"context": "mine"}
    ctx = make_test_ctx(llm=FakeLLM("an answer of text"), chat_middleware=[noting("a", seen), noting("b", seen)])
    result = await ctx.invoker.chat(REQUEST, ctx, meta=meta)
    assert result == LLMResult("an answer of text", (), Usage(10, 5, 0.0001), "stop", "fake")
    assert seen == ["a in", "b in", "b out", "b closed", "a out", "a closed"]
    assert meta.items() >= {"context": "mine", "a": True, "b": True}.items()


@pytest.mark.anyio
async def test_stream_gives_the_pieces() -> None:
    ctx = make_test_ctx(llm=FakeLLM("12345678abcdefgh!"))
    deltas = [delta async for delta in ctx.invoker.stream(REQUEST, ctx)]
    assert [d.text for d in deltas] == ["12345678", "abcdefgh", "!", ""]
    assert assemble_deltas(deltas) == await ctx.invoker.chat(REQUEST, ctx)


@pytest.mark.anyio
async def test_leaving_early_closes_all() -> None:
    seen: list[str] = []
    llm = EndlessLLM()
    ctx = make_test_ctx(llm=llm, chat_middleware=[noting("a", seen), noting("b", seen)])
    async with aclosing(Invoker(llm, [noting("a", seen), noting("b", seen)]).stream(REQUEST, ctx)) as deltas:
        async for _ in deltas:
            break
    assert llm.closed
    assert seen == ["a in", "b in", "a closed", "b closed"]
    assert ctx.budget.spent == Usage(1, 1, 0.5)


@pytest.mark.anyio
async def test_cancelling_closes_and_propagates() -> None:
    """W9."""
    seen: list[str] = []
    llm = EndlessLLM()
    ctx = make_test_ctx(llm=llm, chat_middleware=[noting("a", seen)])
    task = asyncio.create_task(ctx.invoker.chat(REQUEST, ctx))
    for _ in range(5):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert llm.closed
    assert seen[-1] == "a closed"


@pytest.mark.anyio
async def test_failing_middleware_closes_what_is_inside() -> None:
    llm = EndlessLLM()

    async def fail(call: ChatCall, proceed: ChatNext) -> AsyncIterator[Delta]:
        async for delta in proceed(call):
            yield delta
            raise KeyError("own mistake")

    ctx = make_test_ctx(llm=llm, chat_middleware=[fail])
    with pytest.raises(KeyError):
        await ctx.invoker.chat(REQUEST, ctx)
    assert llm.closed


@pytest.mark.anyio
async def test_replaced_request_keeps_meta() -> None:
    async def hotter(call: ChatCall, proceed: ChatNext) -> AsyncIterator[Delta]:
        async for delta in proceed(replace(call, request=replace(call.request, temperature=1.0))):
            yield delta

    seen: list[str] = []
    llm = FakeLLM("x")
    meta: dict[str, Any] = {}
    ctx = make_test_ctx(llm=llm, chat_middleware=[hotter, noting("inner", seen)])
    await ctx.invoker.chat(REQUEST, ctx, meta=meta)
    assert llm.requests[0].temperature == 1.0
    assert meta["inner"]


@pytest.mark.anyio
async def test_stopped_run_calls_nothing() -> None:
    llm, stop = FakeLLM("x"), threading.Event()
    stop.set()
    ctx = make_test_ctx(llm=llm, cancel=stop)
    with pytest.raises(asyncio.CancelledError):
        await ctx.invoker.chat(REQUEST, ctx)
    tool = FakeTool()
    with pytest.raises(asyncio.CancelledError):
        await ctx.invoker.invoke_tool(tool.request(), ctx, tool)
    assert (llm.calls, tool.calls) == (0, [])


@pytest.mark.anyio
async def test_run_stops_between_pieces() -> None:
    llm, stop = EndlessLLM(), threading.Event()
    ctx = make_test_ctx(llm=llm, cancel=stop)
    got = []

    async def read() -> None:
        async for delta in ctx.invoker.stream(REQUEST, ctx):
            got.append(delta.text)
            stop.set()

    with pytest.raises(asyncio.CancelledError):
        await read()
    assert (llm.closed, got) == (True, ["x"])


@pytest.mark.anyio
@pytest.mark.parametrize("middleware", [[], [meter()], [meter(), meter()]])
async def test_call_is_billed_once(middleware: list[ChatMiddleware]) -> None:
    ctx = make_test_ctx(llm=FakeLLM("x"), chat_middleware=middleware)
    await ctx.invoker.chat(REQUEST, ctx)
    assert (ctx.budget.calls, ctx.budget.spent) == (1, Usage(10, 5, 0.0001))


@pytest.mark.anyio
async def test_reused_meta_is_billed_again() -> None:
    meta: dict[str, Any] = {"own": 1}
    ctx = make_test_ctx(llm=FakeLLM("x"))
    for expected in (1, 2):
        await ctx.invoker.chat(REQUEST, ctx, meta=meta)
        assert (ctx.budget.calls, meta["own"]) == (expected, 1)


@pytest.mark.anyio
async def test_budget_stops_the_next_call() -> None:
    llm = FakeLLM("x")
    ctx = make_test_ctx(llm=llm, budget=Budget(max_calls=1))
    await ctx.invoker.chat(REQUEST, ctx)
    with pytest.raises(MeterExceeded):
        await ctx.invoker.chat(REQUEST, ctx)
    assert llm.calls == 1


@pytest.mark.anyio
async def test_crossing_call_has_run() -> None:
    llm = FakeLLM("x")
    ctx = make_test_ctx(llm=llm, budget=Budget(max_cost_usd=0.00001))
    with pytest.raises(MeterExceeded):
        await ctx.invoker.chat(REQUEST, ctx)
    assert (llm.calls, ctx.budget.calls) == (1, 1)


@pytest.mark.anyio
async def test_failed_call_costs_what_was_reported() -> None:
    ctx = make_test_ctx(llm=FakeLLM("x", fail_times=1))
    with pytest.raises(TransientError):
        await ctx.invoker.chat(REQUEST, ctx)
    assert ctx.budget.calls == 0

    async def break_off(call: ChatCall, proceed: ChatNext) -> AsyncIterator[Delta]:
        async for delta in proceed(call):
            yield delta
        raise TransientError("broke off")

    ctx = make_test_ctx(llm=FakeLLM("x"), chat_middleware=[break_off], budget=Budget(max_cost_usd=0.00001))
    with pytest.raises(TransientError):
        await ctx.invoker.chat(REQUEST, ctx)
    assert ctx.budget.spent == Usage(10, 5, 0.0001)


@pytest.mark.anyio
async def test_concurrent_calls_add_up() -> None:
    ctx = make_test_ctx(llm=FakeLLM("x", usage=Usage(1, 1, 0.1)))
    await asyncio.gather(*(ctx.child().invoker.chat(REQUEST, ctx.child()) for _ in range(100)))
    assert (ctx.budget.calls, ctx.budget.spent) == (100, Usage(100, 100, 10.0))


@pytest.mark.anyio
async def test_tools_go_through_middleware() -> None:
    seen: list[str] = []

    def noting_tool(name: str) -> Any:
        async def note(call: ToolInvocation, proceed: ToolNext) -> Any:
            seen.append(f"{name} in {call.request.name}")
            result = await proceed(call)
            seen.append(f"{name} out")
            return f"{name}({result})"

        return note

    tool = FakeTool("add", lambda arguments: arguments["a"] + arguments["b"])
    tracer = RecordingTracer()
    ctx = make_test_ctx(llm=FakeLLM(), tool_middleware=[noting_tool("x"), noting_tool("y")], trace=tracer)
    assert await ctx.invoker.invoke_tool(tool.request(a=1, b=2), ctx, tool) == "x(y(3))"
    assert seen == ["x in add", "y in add", "y out", "x out"]
    assert tool.calls == [{"a": 1, "b": 2}]
    assert [(s.name, s.attributes) for s in tracer.spans] == [("tool", {"tool": "add"})]


def test_works_in_one_loop_after_another() -> None:
    ctx: RunContext = make_test_ctx(llm=FakeLLM("x"))
    for expected in (1, 2):
        asyncio.run(ctx.invoker.chat(REQUEST, ctx))
        assert ctx.budget.calls == expected
