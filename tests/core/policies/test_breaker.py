"""A model that keeps failing is left alone, and what is known of it travels with the context."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.core.contracts.calls import ChatCall, ChatNext
from agentkit.core.contracts.errors import AuthError, ContextOverflowError, PermanentError, TransientError
from agentkit.core.contracts.frozen import thaw
from agentkit.core.contracts.types import ChatRequest, Delta, LLMResult, Message, Usage
from agentkit.core.policies import CircuitBreaker
from agentkit.core.runtime import RunContext, RunEvent
from agentkit.core.testing import FakeClock, FakeLLM, make_test_ctx
from agentkit.state.context import WorkingContext
from agentkit.state.persistence import dehydrate, rehydrate

pytestmark = pytest.mark.anyio
REQUEST = ChatRequest((Message("user", "go"),), "m")
DOWN = TransientError("down")


class Provider:
    """A model that answers, or raises what `fault` is set to."""

    def __init__(self) -> None:
        self.fault: BaseException | None = None
        self.calls = 0

    async def stream(self, request: ChatRequest, /) -> AsyncGenerator[Delta, None]:
        self.calls += 1
        await asyncio.sleep(0)
        if self.fault is not None:
            raise self.fault
        yield Delta("ok", usage=Usage(1, 1))

    async def chat(self, request: ChatRequest, /) -> LLMResult:
        raise NotImplementedError


class House:
    """A run behind one breaker, with a clock that is moved by hand."""

    def __init__(self, threshold: int = 2, clock: FakeClock | None = None) -> None:
        self.provider, self.clock, self.events = Provider(), clock or FakeClock(100.0), list[RunEvent]()
        self.breaker = CircuitBreaker(threshold, cooldown=10.0, clock=self.clock)
        self.ctx: RunContext = make_test_ctx(
            llm=self.provider, chat_middleware=[self.breaker], observer=self.events.append
        )

    async def ask(self, fault: BaseException | None = None, context: WorkingContext | None = None) -> str:
        """`ok`, the name of the provider's fault, or `refused` when the breaker did not let the call through."""
        self.provider.fault, before = fault, self.provider.calls
        meta = {} if context is None else {"context": context}
        try:
            return (await self.ctx.invoker.chat(REQUEST, self.ctx, meta=meta)).text
        except BaseException as error:
            return type(error).__name__ if self.provider.calls > before else "refused"


async def opened(threshold: int = 2) -> House:
    house = House(threshold)
    for _ in range(threshold):
        assert await house.ask(DOWN) == "TransientError"
    assert house.breaker.state("m") == "open"
    return house


async def test_opens_after_failures_in_a_row() -> None:
    house = House(3)
    answers = [await house.ask(fault) for fault in (DOWN, DOWN, None, DOWN, DOWN, DOWN, None)]
    assert answers == ["TransientError"] * 2 + ["ok"] + ["TransientError"] * 3 + ["refused"]
    assert [e.name for e in house.events] == ["breaker.open", "breaker.refused"]


async def test_refusal_says_for_how_long() -> None:
    house = await opened()
    house.clock.advance(4)
    with pytest.raises(TransientError, match=r"m failed 2 times in a row: it is asked again in 6\.0 s") as caught:
        await house.ctx.invoker.chat(REQUEST, house.ctx)
    assert caught.value.retry_after == 6.0


async def test_probe_closes_or_opens_anew() -> None:
    house = await opened()
    house.clock.advance(10)
    assert house.breaker.state("m") == "half_open"
    assert await house.ask(DOWN) == "TransientError"
    assert await house.ask() == "refused"
    house.clock.advance(9.9)
    assert await house.ask() == "refused"
    house.clock.advance(0.1)
    assert await house.ask() == "ok"
    assert (await house.ask(DOWN), house.breaker.state("m")) == ("TransientError", "closed")


async def test_one_probe_at_a_time() -> None:
    house = await opened()
    house.clock.advance(10)
    house.provider.fault = None
    calls = [asyncio.create_task(house.ctx.invoker.chat(REQUEST, house.ctx)) for _ in range(5)]
    done = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(answer).__name__ for answer in done] == ["LLMResult"] + ["TransientError"] * 4
    assert house.provider.calls == 3


async def test_cancelled_probe_frees_it() -> None:
    house = await opened()
    house.clock.advance(10)
    house.provider.fault = None
    probe = asyncio.create_task(house.ctx.invoker.chat(REQUEST, house.ctx))
    await asyncio.sleep(0)
    probe.cancel()
    with pytest.raises(asyncio.CancelledError):
        await probe
    assert house.breaker.state("m") == "half_open"
    assert await house.ask() == "ok"
    assert house.breaker.state("m") == "closed"


async def test_probe_whose_reader_leaves_early_closes_too() -> None:
    house = await opened()
    house.clock.advance(10)
    house.provider.fault = None
    stream = house.ctx.invoker.stream(REQUEST, house.ctx)
    await anext(stream)
    await stream.aclose()
    assert house.breaker.state("m") == "closed"


@pytest.mark.parametrize(
    "fault", [PermanentError(), AuthError(), ContextOverflowError(), KeyError("bug")], ids=lambda f: type(f).__name__
)
async def test_other_faults_are_not_counted(fault: Exception) -> None:
    house = House()
    for _ in range(5):
        assert await house.ask(fault) == type(fault).__name__
    assert house.breaker.state("m") == "closed"
    house = await opened()
    house.clock.advance(10)
    assert await house.ask(fault) == type(fault).__name__
    assert house.breaker.state("m") == "half_open"
    assert await house.ask() == "ok"


async def test_models_are_apart() -> None:
    house = await opened()
    other = ChatRequest(REQUEST.messages, "other")
    house.provider.fault = None
    assert (await house.ctx.invoker.chat(other, house.ctx)).text == "ok"
    assert house.breaker.state("other") == "closed"


async def test_answer_from_before_it_opened_does_not_close_it() -> None:
    house, go_on = House(), asyncio.Event()

    async def slow(call: ChatCall, proceed: ChatNext) -> AsyncIterator[Delta]:
        await go_on.wait()
        yield Delta("late")

    other = make_test_ctx(llm=FakeLLM(), chat_middleware=[house.breaker, slow])
    early = asyncio.create_task(other.invoker.chat(REQUEST, other))
    await asyncio.sleep(0)
    for _ in range(2):
        await house.ask(DOWN)
    go_on.set()
    assert (await early).text == "late"
    assert house.breaker.state("m") == "open"


async def test_state_travels_with_the_context_into_another_process() -> None:
    house, context = House(), WorkingContext()
    for _ in range(2):
        await house.ask(DOWN, context)
    assert json.loads(json.dumps(context.policies)) == context.policies
    saved = dehydrate(context, Usage(), 1)
    resumed, *_ = rehydrate(saved)
    assert resumed.policies == context.policies
    elsewhere = House(clock=FakeClock(104.0))
    assert await elsewhere.ask(None, resumed) == "refused"
    elsewhere.clock.advance(6)
    assert await elsewhere.ask(None, resumed) == "ok"
    assert resumed.policies["breaker"]["m"] == {"failures": 0, "opened": None, "changed": 110.0}
    assert thaw(saved["policies"])["breaker"]["m"]["opened"] == 100.0


async def test_what_the_process_knows_since_then_counts_more() -> None:
    old = WorkingContext()
    old.policies["breaker"] = {"m": {"failures": 9, "opened": 99.0, "changed": 99.0}}
    house = House()
    house.clock.now = 200.0
    assert await house.ask(DOWN) == "TransientError"
    assert await house.ask() == "ok"
    assert await house.ask(None, old) == "ok"


async def test_time_ahead_of_the_clock_waits_no_longer_than_the_cooldown() -> None:
    context = WorkingContext()
    context.policies["breaker"] = {"m": {"failures": 9, "opened": 1e9, "changed": 1e9}}
    house = House()
    assert await house.ask(None, context) == "refused"
    house.clock.advance(10)
    assert await house.ask(None, context) == "ok"


@pytest.mark.parametrize(
    "kept",
    [3, "x", {}, {"failures": "2", "opened": 1.0, "changed": 1.0}, {"failures": 2, "opened": "x", "changed": 1.0},
     {"failures": 2, "opened": float("nan"), "changed": 1.0}, {"failures": True, "opened": None, "changed": 1.0}],
    ids=str,
)  # fmt: skip
async def test_unreadable_state_is_told_and_passed_over(kept: Any) -> None:
    house, context = House(), WorkingContext()
    context.policies["breaker"] = {"m": kept}
    assert await house.ask(None, context) == "ok"
    assert [e.name for e in house.events] == ["breaker.unreadable"]


@given(st.lists(st.sampled_from(["ok", "down", "bad", "wait"]), max_size=40), st.integers(1, 4))
async def test_follows_the_plain_model(steps: list[str], threshold: int) -> None:
    """Against an oracle of three lines: how many failures in a row, when it opened."""
    house, context = House(threshold), WorkingContext()
    failures, opened_at, now = 0, None, 100.0
    for step in steps:
        if step == "wait":
            house.clock.advance(5)
            now += 5
            continue
        got = await house.ask({"ok": None, "down": DOWN, "bad": PermanentError()}[step], context)
        if opened_at is not None and now - opened_at < 10:
            assert got == "refused"
        elif step == "ok":
            assert got == "ok"
            failures, opened_at = 0, None
        elif step == "down":
            assert got == "TransientError"
            failures += 1
            opened_at = now if failures >= threshold else None
        else:
            assert got == "PermanentError"
        fresh = CircuitBreaker(threshold, cooldown=10.0, clock=house.clock)
        assert house.breaker.state("m") == ("closed" if opened_at is None else "open" if now - opened_at < 10 else
                                            "half_open")  # fmt: skip
        assert fresh.state("m") == "closed"


@pytest.mark.parametrize(
    ("options", "error"),
    [({"threshold": 0}, ValueError), ({"threshold": 1.0}, TypeError), ({"cooldown": -1.0}, ValueError)],
    ids=str,
)
def test_bad_arguments_are_refused(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match=next(iter(options))):
        CircuitBreaker(**options)
