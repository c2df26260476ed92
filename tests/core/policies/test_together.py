"""All policies in one chain, in the order that their texts recommend."""

from __future__ import annotations

from typing import Any

import pytest

from agentkit.core.contracts.calls import ChatMiddleware
from agentkit.core.contracts.errors import MeterExceeded, TransientError
from agentkit.core.contracts.tokens import measure
from agentkit.core.contracts.types import ChatRequest, LLMResult, Message, Usage
from agentkit.core.policies import CircuitBreaker, compaction, fallback, memoize, quota, retry
from agentkit.core.testing import FakeClock, FakeLLM, make_test_ctx
from agentkit.state.compaction import TruncationCompactor
from agentkit.state.context import PrefixContext, WorkingContext
from agentkit.state.stores import InMemoryStore

pytestmark = pytest.mark.anyio


async def at_once(seconds: float) -> None:
    """A sleep that takes no time."""


async def test_chain_compacts_falls_back_counts_and_bills_once() -> None:
    down = {"first"}

    def answer(system: str, user: str, model: str | None) -> LLMResult | Exception:
        if model in down:
            return TransientError(f"{model} is down")
        return LLMResult("ok", (), Usage(10, 1, 0.01), "stop", model)

    llm, clock = FakeLLM(answer), FakeClock(1_000.0)
    breaker = CircuitBreaker(2, clock=clock)
    chain: list[ChatMiddleware] = [
        fallback("second"),
        breaker,
        retry(2, sleep=at_once),
        compaction(TruncationCompactor(max_tokens=400, keep_recent=2)),
        memoize(),
        quota(7, clock=clock),
    ]
    ctx = make_test_ctx(llm=llm, store=InMemoryStore(), chat_middleware=chain)
    context = WorkingContext(PrefixContext("Be brief."))

    async def ask(number: int) -> dict[str, Any]:
        context.append(Message("user", f"{number} " + "x" * 300))
        meta: dict[str, Any] = {"context": context}
        request = ChatRequest(tuple(context.segments().messages()), "first")
        result = await ctx.invoker.chat(request, ctx, meta=meta)
        context.append(result.message)
        return meta

    first = await ask(0)
    assert (first["model"], [r.model for r in llm.requests]) == ("second", ["first", "first", "second"])
    await ask(1)
    assert breaker.state("first") == "open"
    before = llm.calls
    third = await ask(2)
    assert (third["model"], llm.calls) == ("second", before + 1)  # the first is left alone
    assert (ctx.budget.calls, ctx.budget.spent.cost_usd) == (3, 0.03)
    assert measure(llm.requests[-1].messages) <= 400 / 0.9 + 20
    with pytest.raises(MeterExceeded, match="7 of 7 requests"):  # attempts, the failed ones included
        await ask(3)
    clock.advance(60)
    down.clear()
    await ask(4)
    assert breaker.state("first") == "closed"
    assert context.policies["breaker"]["first"]["failures"] == 0
