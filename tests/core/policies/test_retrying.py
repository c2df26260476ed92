"""A fault that may pass is tried again, before the first piece of an answer only."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.core.contracts.calls import ChatCall, ChatMiddleware, ChatNext
from agentkit.core.contracts.errors import (
    AuthError,
    ContextOverflowError,
    MeterExceeded,
    PermanentError,
    TransientError,
)
from agentkit.core.contracts.types import ChatRequest, Delta, LLMResult, Message, ToolCall, ToolRequest, Usage
from agentkit.core.policies import memoize, meter, retry
from agentkit.core.runtime import RunContext, RunEvent
from agentkit.core.testing import FakeLLM, FakeTool, make_test_ctx
from agentkit.state.stores import InMemoryStore

pytestmark = pytest.mark.anyio
REQUEST = ChatRequest((Message("user", "go"),), "fake")
DOWN = TransientError("down")


class Sleeps(list[float]):
    """A sleep that only notes for how long."""

    async def __call__(self, seconds: float) -> None:
        self.append(seconds)


def patient(attempts: int = 3, **options: Any) -> tuple[ChatMiddleware, Sleeps]:
    sleeps = Sleeps()
    return retry(attempts, sleep=sleeps, jitter=options.pop("jitter", lambda: 0.0), **options), sleeps


async def ask(ctx: RunContext) -> LLMResult:
    return await ctx.invoker.chat(REQUEST, ctx)


async def test_transient_fault_is_tried_again() -> None:
    middleware, sleeps = patient()
    events: list[RunEvent] = []
    llm = FakeLLM("done", fail_times=2)
    ctx = make_test_ctx(llm=llm, chat_middleware=[middleware], observer=events.append)
    assert (await ask(ctx)).text == "done"
    assert (llm.calls, sleeps) == (3, [0.5, 1.0])
    assert [(e.name, e.data["attempt"]) for e in events] == [("retry", 1), ("retry", 2)]
    assert ctx.budget.calls == 1


async def test_last_failure_is_the_cause() -> None:
    middleware, sleeps = patient()
    llm = FakeLLM().script([DOWN, DOWN, TransientError("still down", retry_after=4.0)])
    ctx = make_test_ctx(llm=llm, chat_middleware=[middleware])
    with pytest.raises(TransientError, match="3 attempts failed, the last: still down") as caught:
        await ask(ctx)
    assert isinstance(caught.value.__cause__, TransientError)
    assert str(caught.value.__cause__) == "still down"
    assert caught.value.retry_after == 4.0
    assert sleeps == [0.5, 1.0]


async def test_single_attempt_raises_the_failure_itself() -> None:
    middleware, sleeps = patient(1)
    with pytest.raises(TransientError) as caught:
        await ask(make_test_ctx(llm=FakeLLM().script([DOWN]), chat_middleware=[middleware]))
    assert caught.value is DOWN
    assert sleeps == []


@pytest.mark.parametrize(
    "fault",
    [PermanentError(), AuthError(), ContextOverflowError(), MeterExceeded(), ValueError("ours"), KeyError("bug")],
    ids=lambda fault: type(fault).__name__,
)
async def test_other_faults_pass_at_once(fault: Exception) -> None:
    middleware, sleeps = patient()
    llm = FakeLLM().script([fault])
    with pytest.raises(type(fault)) as caught:
        await ask(make_test_ctx(llm=llm, chat_middleware=[middleware]))
    assert caught.value is fault
    assert (llm.calls, sleeps) == (1, [])


async def test_nothing_is_sent_again_after_the_first_piece() -> None:
    middleware, sleeps = patient()
    tries = 0

    async def breaking_off(call: ChatCall, proceed: ChatNext) -> AsyncIterator[Delta]:
        nonlocal tries
        tries += 1
        yield Delta("half")
        raise DOWN

    ctx = make_test_ctx(llm=FakeLLM(), chat_middleware=[middleware, breaking_off])
    stream = ctx.invoker.stream(REQUEST, ctx)
    assert (await anext(stream)).text == "half"
    with pytest.raises(TransientError) as caught:
        await anext(stream)
    assert caught.value is DOWN
    assert (tries, sleeps) == (1, [])


async def test_cancellation_is_never_tried_again() -> None:
    middleware, sleeps = patient()
    llm = FakeLLM().script([asyncio.CancelledError()])
    with pytest.raises(asyncio.CancelledError):
        await ask(make_test_ctx(llm=llm, chat_middleware=[middleware]))
    assert (llm.calls, sleeps) == (1, [])


async def test_cancelled_while_it_waits() -> None:
    reached = asyncio.Event()

    async def hang(seconds: float) -> None:
        reached.set()
        await asyncio.Event().wait()

    llm = FakeLLM("x", fail_times=1)
    ctx = make_test_ctx(llm=llm, chat_middleware=[retry(sleep=hang)])
    task = asyncio.create_task(ask(ctx))
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert llm.calls == 1


async def test_run_that_was_stopped_while_it_waited_is_not_asked_again() -> None:
    class Cancel:
        def __init__(self) -> None:
            self.asked = False

        def is_set(self) -> bool:
            return self.asked

    cancel = Cancel()

    async def stop(seconds: float) -> None:
        cancel.asked = True

    llm = FakeLLM("x", fail_times=1)
    with pytest.raises(asyncio.CancelledError):
        await ask(make_test_ctx(llm=llm, chat_middleware=[retry(sleep=stop)], cancel=cancel))
    assert llm.calls == 1


async def test_provider_is_left_alone_as_long_as_it_asks() -> None:
    middleware, sleeps = patient(longest=10.0)
    llm = FakeLLM().script([TransientError(retry_after=7.0), TransientError(retry_after=0.1), "ok"])
    assert (await ask(make_test_ctx(llm=llm, chat_middleware=[middleware]))).text == "ok"
    assert sleeps == [7.0, 1.0]


async def test_provider_that_asks_for_too_long_is_not_waited_for() -> None:
    middleware, sleeps = patient(longest=10.0)
    slow = TransientError(retry_after=11.0)
    llm = FakeLLM().script([slow])
    with pytest.raises(TransientError) as caught:
        await ask(make_test_ctx(llm=llm, chat_middleware=[middleware]))
    assert caught.value is slow
    assert (llm.calls, sleeps) == (1, [])


@given(st.integers(1, 40), st.floats(0, 5), st.floats(0, 60), st.floats(0, 1))
async def test_waits_double_up_to_the_longest(attempts: int, base: float, longest: float, jitter: float) -> None:
    sleeps = Sleeps()
    llm = FakeLLM("x", fail_times=attempts)
    middleware = retry(attempts, base=base, longest=longest, sleep=sleeps, jitter=lambda: jitter)
    with pytest.raises(TransientError):
        await ask(make_test_ctx(llm=llm, chat_middleware=[middleware]))
    assert llm.calls == attempts
    assert sleeps == [min(base * 2.0**n, longest) * (1 - 0.5 * jitter) for n in range(attempts - 1)]


async def test_one_bill_however_often_it_was_tried() -> None:
    chains: list[list[ChatMiddleware]] = [[meter(), retry(sleep=Sleeps())], [retry(sleep=Sleeps()), meter()]]
    for chain in chains:
        ctx = make_test_ctx(llm=FakeLLM("x", fail_times=2, usage=Usage(1, 1, 0.01)), chat_middleware=chain)
        await ask(ctx)
        assert (ctx.budget.calls, ctx.budget.spent.cost_usd) == (1, 0.01)


async def test_a_hit_of_memoize_needs_no_attempt() -> None:
    middleware, _ = patient()
    llm = FakeLLM("x", fail_times=1)
    ctx = make_test_ctx(llm=llm, store=InMemoryStore(), chat_middleware=[memoize(), middleware])
    await ask(ctx)
    await ask(ctx)
    assert llm.calls == 2


async def call_tool(ctx: RunContext, *, side_effecting: bool) -> tuple[int, Any]:
    tries = 0

    async def body(request: ToolRequest, inner: Any) -> str:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise DOWN
        return "ok"

    request = ToolRequest(ToolCall("c", "t", {}), side_effecting=side_effecting)
    try:
        return tries, await ctx.invoker.invoke_tool(request, ctx, body)
    except TransientError as error:
        return tries, error


async def test_tools_are_tried_again_unless_they_have_side_effects() -> None:
    sleeps = Sleeps()
    ctx = make_test_ctx(llm=FakeLLM(), tool_middleware=[retry(sleep=sleeps, jitter=lambda: 1.0)])
    assert (await call_tool(ctx, side_effecting=False))[1] == "ok"
    assert sleeps == [0.25, 0.5]
    assert await call_tool(ctx, side_effecting=True) == (1, DOWN)


async def test_tool_that_fails_otherwise_is_not_tried_again() -> None:
    tool = FakeTool(result=ValueError("bad"))
    ctx = make_test_ctx(llm=FakeLLM(), tool_middleware=[retry(sleep=Sleeps())])
    with pytest.raises(ValueError, match="bad"):
        await ctx.invoker.invoke_tool(tool.request(), ctx, tool)
    assert len(tool.calls) == 1


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"attempts": 0}, ValueError),
        ({"attempts": 1.5}, TypeError),
        ({"attempts": True}, TypeError),
        ({"base": -1}, ValueError),
        ({"longest": float("nan")}, ValueError),
        ({"longest": float("inf")}, ValueError),
    ],
    ids=str,
)
def test_bad_arguments_are_refused(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match=next(iter(options))):
        retry(**options)
