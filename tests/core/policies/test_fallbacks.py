"""Another model answers once one has failed for good, and never on a caller's mistake."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from agentkit.core.contracts.calls import ChatCall, ChatMiddleware, ChatNext
from agentkit.core.contracts.errors import (
    AuthError,
    ContextOverflowError,
    MeterExceeded,
    PermanentError,
    TransientError,
)
from agentkit.core.contracts.types import ChatRequest, Delta, LLMResult, Message, Usage
from agentkit.core.policies import CircuitBreaker, fallback, retry
from agentkit.core.runtime import RunContext, RunEvent
from agentkit.core.testing import FakeClock, FakeLLM, make_test_ctx

pytestmark = pytest.mark.anyio
REQUEST = ChatRequest((Message("user", "go"),), "first")


async def at_once(seconds: float) -> None:
    """A sleep that takes no time."""


def failing(*names: str, error: Exception | None = None) -> FakeLLM:
    """A model that answers with the name and the price of the model asked for, and fails for `names`."""

    def answer(system: str, user: str, model: str | None) -> LLMResult | Exception:
        if model in names:
            return error or TransientError(f"{model} is down")
        return LLMResult(str(model), (), Usage(1, 1, {"first": 1.0, "second": 0.25}.get(str(model), 0.125)), "stop")

    return FakeLLM(answer)


async def ask(ctx: RunContext, request: ChatRequest = REQUEST) -> tuple[str, dict[str, Any]]:
    meta: dict[str, Any] = {}
    return (await ctx.invoker.chat(request, ctx, meta=meta)).text, meta


async def test_first_model_answers_while_it_can() -> None:
    llm = failing()
    ctx = make_test_ctx(llm=llm, chat_middleware=[fallback("second")])
    text, meta = await ask(ctx)
    assert (text, meta["model"], llm.calls) == ("first", "first", 1)


async def test_next_model_answers_after_the_retries() -> None:
    """Usage and price are those of the model that answered, and call.meta says which it was."""
    llm, events = failing("first", "second"), list[RunEvent]()
    chain: list[ChatMiddleware] = [fallback("second", "third"), retry(2, sleep=at_once)]
    ctx = make_test_ctx(llm=llm, chat_middleware=chain, observer=events.append)
    text, meta = await ask(ctx)
    assert (text, meta["model"]) == ("third", "third")
    assert [request.model for request in llm.requests] == ["first"] * 2 + ["second"] * 2 + ["third"]
    assert (ctx.budget.calls, ctx.budget.spent.cost_usd) == (1, 0.125)
    steps = [(e.data["failed"], e.data["next"]) for e in events if e.name == "fallback"]
    assert steps == [("first", "second"), ("second", "third")]


async def test_all_fail() -> None:
    ctx = make_test_ctx(llm=failing("first", "second"), chat_middleware=[fallback("second")])
    with pytest.raises(TransientError, match="none of first, second answered, the last: second is down") as caught:
        await ask(ctx)
    assert str(caught.value.__cause__) == "second is down"


@pytest.mark.parametrize(
    "fault",
    [PermanentError(), AuthError(), ContextOverflowError(), MeterExceeded(), ValueError("ours")],
    ids=lambda fault: type(fault).__name__,
)
async def test_mistake_of_the_caller_stays_with_the_first(fault: Exception) -> None:
    llm = failing("first", error=fault)
    meta: dict[str, Any] = {"model": "left over from an earlier call"}
    ctx = make_test_ctx(llm=llm, chat_middleware=[fallback("second")])
    with pytest.raises(type(fault)) as caught:
        await ctx.invoker.chat(REQUEST, ctx, meta=meta)
    assert caught.value is fault
    assert llm.calls == 1
    assert "model" not in meta


async def test_begun_answer_stays_with_its_model() -> None:
    async def breaking_off(call: ChatCall, proceed: ChatNext) -> AsyncIterator[Delta]:
        yield Delta("half")
        raise TransientError("cut off")

    llm = failing()
    ctx = make_test_ctx(llm=llm, chat_middleware=[fallback("second"), breaking_off])
    with pytest.raises(TransientError, match="cut off"):
        await ask(ctx)


async def test_own_model_is_not_asked_twice() -> None:
    llm = failing("first")
    ctx = make_test_ctx(llm=llm, chat_middleware=[fallback("first", "second", "second")])
    assert (await ask(ctx))[0] == "second"
    assert [request.model for request in llm.requests] == ["first", "second"]


async def test_open_circuit_moves_on_without_asking() -> None:
    llm = failing("first")
    breaker = CircuitBreaker(1, clock=FakeClock())
    ctx = make_test_ctx(llm=llm, chat_middleware=[fallback("second"), breaker, retry(3, sleep=at_once)])
    assert [(await ask(ctx))[0] for _ in range(2)] == ["second", "second"]
    assert [request.model for request in llm.requests] == ["first"] * 3 + ["second"] * 2


def test_models_are_names() -> None:
    bad: Any = FakeLLM()
    with pytest.raises(TypeError, match="a model must be a str, not FakeLLM"):
        fallback(bad)
    with pytest.raises(ValueError, match="at least one model"):
        fallback()
