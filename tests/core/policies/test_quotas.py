"""What a tenant may use per minute and in all, in memory and over a store, exact under concurrency."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.core.contracts.calls import ChatMiddleware
from agentkit.core.contracts.errors import Corrupt, MeterExceeded, StoreError, TransientError
from agentkit.core.contracts.ports import Store
from agentkit.core.contracts.tokens import estimate_request_tokens
from agentkit.core.contracts.types import ChatRequest, LLMResult, Message, Scope, Usage
from agentkit.core.policies import memoize, quota, retry
from agentkit.core.policies.quotas import Account, Limits
from agentkit.core.runtime import Budget, RunContext, RunEvent, UnscopedStore
from agentkit.core.testing import FakeClock, FakeLLM, FaultyStore, make_test_ctx
from agentkit.state.stores import InMemoryStore, SQLiteStore

pytestmark = pytest.mark.anyio
REQUEST = ChatRequest((Message("user", "x" * 36),), "m")
ESTIMATE = 13
SPENT = Usage(10, 5, 0.25)


def run(
    middleware: Any, *, llm: Any = None, store: Store | None = None, scope: Scope | None = None, **options: Any
) -> RunContext:
    chain: list[ChatMiddleware] = middleware if isinstance(middleware, list) else [middleware]
    llm = FakeLLM("x", usage=SPENT) if llm is None else llm
    return make_test_ctx(llm=llm, chat_middleware=chain, store=store, scope=scope, budget=Budget(), **options)


async def ask(ctx: RunContext, request: ChatRequest = REQUEST) -> str:
    try:
        return (await ctx.invoker.chat(request, ctx)).text
    except MeterExceeded:
        return "refused"


@pytest.fixture(params=["memory", "in-memory store", "sqlite"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Store | None:
    makers: dict[str, Callable[[], Store | None]] = {
        "memory": lambda: None,
        "in-memory store": InMemoryStore,
        "sqlite": lambda: SQLiteStore(tmp_path / "quota.db"),
    }
    return makers[request.param]()


async def closed(store: Store | None) -> None:
    if store is not None:
        await store.aclose()


async def test_requests_of_a_rolling_minute(kept: Store | None) -> None:
    clock = FakeClock(1_000.0)
    ctx = run(quota(2, clock=clock), store=kept)
    assert await ask(ctx) == "x"
    clock.advance(30)
    assert [await ask(ctx), await ask(ctx)] == ["x", "refused"]
    clock.advance(29.9)
    assert await ask(ctx) == "refused"
    clock.advance(0.1)
    assert [await ask(ctx), await ask(ctx)] == ["x", "refused"]
    clock.advance(30)
    assert await ask(ctx) == "x"
    await closed(kept)


async def test_tokens_are_what_was_spent_and_the_estimate(kept: Store | None) -> None:
    assert estimate_request_tokens(REQUEST.messages) == ESTIMATE
    clock = FakeClock(5.0)
    limit = 15 + 15 + ESTIMATE
    ctx = run(quota(tokens=limit, clock=clock), store=kept)
    assert [await ask(ctx) for _ in range(4)] == ["x", "x", "x", "refused"]
    clock.advance(60)
    assert await ask(ctx) == "x"
    await closed(kept)
    tight = run(quota(tokens=limit - 1, clock=clock))
    assert [await ask(tight) for _ in range(2)] == ["x", "x"]
    with pytest.raises(MeterExceeded, match="30 of 42 tokens a minute of this tenant are used up, and this request"):
        await tight.invoker.chat(REQUEST, tight)


async def test_money_is_refused_once_it_is_reached(kept: Store | None) -> None:
    """At exactly the limit too, and a minute changes nothing."""
    clock = FakeClock(5.0)
    ctx = run(quota(max_cost_usd=0.5, clock=clock), store=kept)
    assert [await ask(ctx) for _ in range(3)] == ["x", "x", "refused"]
    clock.advance(3_600)
    with pytest.raises(MeterExceeded, match=r"0\.500000 of 0\.500000 USD") as caught:
        await ctx.invoker.chat(REQUEST, ctx)
    assert caught.value.retry_after is None
    await closed(kept)


async def test_refusal_says_when_there_is_room() -> None:
    clock = FakeClock(100.0)
    ctx = run(quota(2, clock=clock))
    await ask(ctx)
    clock.advance(20)
    await ask(ctx)
    with pytest.raises(MeterExceeded, match="2 of 2 requests a minute") as caught:
        await ctx.invoker.chat(REQUEST, ctx)
    assert caught.value.retry_after == pytest.approx(40.0)
    never = run(quota(tokens=ESTIMATE - 1, clock=clock))
    with pytest.raises(MeterExceeded) as hopeless:
        await never.invoker.chat(REQUEST, never)
    assert hopeless.value.retry_after is None


async def test_each_attempt_is_a_request() -> None:
    async def at_once(seconds: float) -> None:
        pass

    clock, llm = FakeClock(1.0), FakeLLM("x", fail_times=2)
    ctx = run([retry(3, sleep=at_once), quota(3, clock=clock)], llm=llm)
    assert [await ask(ctx), await ask(ctx)] == ["x", "refused"]


async def test_failed_call_spends_its_request_and_no_tokens() -> None:
    clock = FakeClock(1.0)
    both = quota(requests=2, tokens=ESTIMATE, clock=clock)
    ctx = run(both, llm=FakeLLM("x", fail_times=1, usage=Usage()))
    with pytest.raises(TransientError):
        await ctx.invoker.chat(REQUEST, ctx)
    assert [await ask(ctx), await ask(ctx)] == ["x", "refused"]


async def test_hit_of_memoize_is_free_on_either_side() -> None:
    for outside in (True, False):
        clock, store = FakeClock(1.0), InMemoryStore()
        limit, memo = quota(1, clock=clock), memoize()
        ctx = run([memo, limit] if outside else [limit, memo], store=store)
        answers = [await ask(ctx) for _ in range(2)]
        assert answers == (["x", "x"] if outside else ["x", "refused"])
    # Inside: once there is room to ask at all, an answer from the store takes nothing.
    clock, llm = FakeClock(1.0), FakeLLM("x")
    ctx = run([quota(2, clock=clock), memoize()], llm=llm, store=InMemoryStore())
    assert [await ask(ctx) for _ in range(5)] == ["x"] * 5
    assert llm.calls == 1


async def test_long_answer_counts_from_its_end() -> None:
    clock = FakeClock(0.0)

    async def slow(system: str, user: str, model: str | None) -> LLMResult:
        clock.advance(90)
        return LLMResult("x", (), Usage(10, 1_000), "stop")

    ctx = run(quota(tokens=900, clock=clock), llm=FakeLLM(slow))
    assert [await ask(ctx), await ask(ctx)] == ["x", "refused"]
    clock.advance(60)
    assert await ask(ctx) == "x"


async def test_tenants_are_apart(kept: Store | None) -> None:
    clock = FakeClock(1.0)
    middleware = quota(1, clock=clock)
    first, second = run(middleware, store=kept, scope=Scope(1)), run(middleware, store=kept, scope=Scope(2))
    assert [await ask(first), await ask(first), await ask(second), await ask(second)] == ["x", "refused"] * 2
    await closed(kept)


async def test_given_store_keeps_tenants_apart_by_itself() -> None:
    clock, store = FakeClock(1.0), InMemoryStore()
    middleware = quota(1, clock=clock, store=store)
    for scope in (Scope(1), Scope(2)):
        ctx = run(middleware, scope=scope)
        assert [await ask(ctx), await ask(ctx)] == ["x", "refused"]
    assert await store.keys() == ["org1:domNone/quota/default", "org2:domNone/quota/default"]
    shared = run(middleware, scope=Scope(3), store=UnscopedStore(store))
    assert await ask(shared) == "x"


async def test_processes_that_share_a_store_share_the_limit() -> None:
    store, clock = InMemoryStore(), FakeClock(1.0)
    one, other = run(quota(3, clock=clock), store=store), run(quota(3, clock=clock), store=store)
    assert [await ask(one), await ask(other), await ask(one), await ask(other)] == ["x", "x", "x", "refused"]


async def test_names_are_accounts_of_their_own() -> None:
    clock = FakeClock(1.0)
    ctx = run([quota(2, clock=clock, name="all"), quota(1, clock=clock, name="dear")], store=InMemoryStore())
    assert [await ask(ctx), await ask(ctx)] == ["x", "refused"]


async def test_no_more_go_out_at_once_than_allowed(kept: Store | None) -> None:
    clock, llm = FakeClock(1.0), FakeLLM("x", usage=SPENT)
    ctx = make_test_ctx(
        llm=llm, chat_middleware=[quota(5, clock=clock)], store=kept, budget=Budget(max_concurrency=None)
    )
    answers = await asyncio.gather(*(ask(ctx) for _ in range(12)))
    assert sorted(answers) == ["refused"] * 7 + ["x"] * 5
    assert llm.calls == 5
    await closed(kept)


async def test_store_that_fails_before_a_call_fails_it() -> None:
    llm = FakeLLM("x")
    store = FaultyStore(InMemoryStore())
    store.fail(of="versioned")
    ctx = run(quota(5), llm=llm, store=store)
    with pytest.raises(StoreError):
        await ctx.invoker.chat(REQUEST, ctx)
    assert llm.calls == 0


async def test_damaged_account_is_corrupt() -> None:
    store = InMemoryStore()
    ctx = run(quota(5), store=store)
    assert ctx.store is not None
    await ctx.store.set("quota/default", {"slots": "x"})
    with pytest.raises(Corrupt, match="holds no account of a quota"):
        await ctx.invoker.chat(REQUEST, ctx)


async def test_store_that_fails_after_a_call_costs_no_answer() -> None:
    events: list[RunEvent] = []
    store = FaultyStore(InMemoryStore())

    async def answer(system: str, user: str, model: str | None) -> str:
        store.break_down(StoreError)
        return "x"

    ctx = run(quota(5), llm=FakeLLM(answer), store=store, observer=events.append)
    assert await ask(ctx) == "x"
    assert [e.name for e in events] == ["quota.failed"]


moves = st.lists(st.tuples(st.floats(0, 40), st.integers(0, 3), st.integers(0, 50)), max_size=40)


@given(moves, st.integers(1, 5), st.integers(1, 100))
def test_no_minute_ever_holds_more_than_allowed(found: list[tuple[float, int, int]], requests: int, most: int) -> None:
    """Admitted requests in any 60 seconds stay within both limits, and an account stays as large as its minute."""
    limits, account, now = Limits(requests, most), Account(), 0.0
    admitted: list[tuple[float, int]] = []
    for wait, asked, tokens in found:
        now += wait
        for _ in range(asked):
            account = account.at(now)
            if (refused := account.refusal(limits, tokens, now)) is None:
                account = account.plus(now, 1, tokens)
                admitted.append((now, tokens))
            elif refused.retry_after is not None:
                assert 0 <= refused.retry_after <= 60.1
        assert Account.from_dict(account.to_dict()) == account
    for at, _ in admitted:
        window = [tokens for when, tokens in admitted if at <= when < at + 60]
        assert len(window) <= requests
        assert sum(window) <= most
    assert len(account.slots) <= 601


@pytest.mark.parametrize(
    ("options", "error", "name"),
    [
        ({"requests": -1}, ValueError, "requests"),
        ({"tokens": 1.5}, TypeError, "tokens"),
        ({"max_cost_usd": "1"}, TypeError, "max_cost_usd"),
        ({"max_cost_usd": float("nan")}, ValueError, "max_cost_usd"),
        ({"store": {}}, TypeError, "store"),
        ({"name": 3}, TypeError, "name"),
    ],
    ids=str,
)
def test_bad_limits_are_refused(options: dict[str, Any], error: type[Exception], name: str) -> None:
    with pytest.raises(error, match=name):
        quota(**options)
