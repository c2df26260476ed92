"""One question is asked once, and no answer crosses from one tenant, model or prompt to another."""

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

import pytest

from agentkit.core.contracts.calls import ChatCall, ChatMiddleware, ChatNext
from agentkit.core.contracts.errors import Corrupt, StoreError, TransientError
from agentkit.core.contracts.types import (
    Breakpoint,
    ChatRequest,
    Delta,
    LLMResult,
    Message,
    Scope,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolSchema,
    Usage,
)
from agentkit.core.policies import memoize, meter
from agentkit.core.policies.memoization import request_key
from agentkit.core.runtime import Budget, Invoker, NullCtx, RunContext, RunEvent, ScopedStore, UnscopedStore
from agentkit.core.testing import FakeClock, FakeLLM, FakeTool, make_test_ctx
from agentkit.state.stores import InMemoryStore

REQUEST = ChatRequest((Message("system", "Be brief."), Message("user", "what is the number?")), "fake")
WHOLE = LLMResult(
    "the answer is 42",
    (ToolCall("c1", "look", {"a": [1, {"b": None}]}),),
    Usage(10, 5, 0.0001),
    "stop",
    "fake-2",
    {"n": 42, "seen": [1.5, True, None]},
    blocks=(ThinkingBlock("hm", "sig"), TextBlock("the answer is 42")),
    meta={"fake": {"id": "r1"}},
)


async def ask(ctx: RunContext, request: ChatRequest = REQUEST, meta: dict[str, Any] | None = None) -> LLMResult:
    return await ctx.invoker.chat(request, ctx, meta=meta)


@pytest.mark.anyio
async def test_same_question_is_asked_once() -> None:
    llm, store, events = FakeLLM(WHOLE), InMemoryStore(), list[RunEvent]()
    ctx = make_test_ctx(llm=llm, store=store, chat_middleware=[memoize()], observer=events.append)
    first_meta: dict[str, Any] = {}
    second_meta: dict[str, Any] = {}
    assert await ask(ctx, meta=first_meta) == WHOLE
    again = await ask(ctx, meta=second_meta)
    assert again == replace(WHOLE, usage=Usage(), cached=True)
    assert (again.parsed, again.meta) == (WHOLE.parsed, WHOLE.meta)
    assert llm.calls == 1
    assert ("cache_hit" in first_meta, second_meta["cache_hit"]) == (False, True)
    assert [(e.name, e.data) for e in events] == [("cache.hit", {"kind": "chat", "name": "fake"})]


@pytest.mark.anyio
async def test_miss_streams_and_hit_is_one_chunk() -> None:
    llm = FakeLLM("a text of more than one piece")
    ctx = make_test_ctx(llm=llm, store=InMemoryStore(), chat_middleware=[memoize()])
    miss = [delta async for delta in ctx.invoker.stream(REQUEST, ctx)]
    hit = [delta async for delta in ctx.invoker.stream(REQUEST, ctx)]
    assert len(miss) == 5
    assert hit == [Delta("a text of more than one piece", (), Usage(), "stop", model="fake", cached=True)]


@pytest.mark.anyio
async def test_pieces_arrive_before_the_end() -> None:
    """The reader of a miss need not wait for the whole answer."""
    go_on = asyncio.Event()

    async def halting(call: ChatCall, proceed: ChatNext) -> AsyncIterator[Delta]:
        yield Delta("first")
        await go_on.wait()
        yield Delta("second", usage=Usage(1, 1))

    ctx = make_test_ctx(llm=FakeLLM(), store=InMemoryStore(), chat_middleware=[memoize(), halting])
    got = []
    async for delta in ctx.invoker.stream(REQUEST, ctx):
        got.append(delta.text)
        go_on.set()
    assert got == ["first", "second"]


def variants() -> Iterable[tuple[str, ChatRequest]]:
    system, user = REQUEST.messages
    yield "model", replace(REQUEST, model="other")
    yield "no model", replace(REQUEST, model=None)
    yield "system prompt", replace(REQUEST, messages=(Message("system", "Be long."), user))
    yield "temperature", replace(REQUEST, temperature=0.5)
    yield "user text", replace(REQUEST, messages=(system, Message("user", "what?")))
    yield "role", replace(REQUEST, messages=(system, Message("assistant", user.content)))
    yield "one more", replace(REQUEST, messages=(*REQUEST.messages, Message("assistant", "")))
    yield "max_tokens", replace(REQUEST, max_tokens=5)
    yield "response_format", replace(REQUEST, response_format={"type": "json_object"})
    yield "options", replace(REQUEST, options={"seed": 1})
    yield "tool_choice", replace(REQUEST, tool_choice="none")
    yield "tools", replace(REQUEST, tools=(ToolSchema("t"),))


@pytest.mark.anyio
@pytest.mark.parametrize(("name", "other"), list(variants()), ids=lambda value: value if isinstance(value, str) else "")
async def test_another_request_is_another_entry(name: str, other: ChatRequest) -> None:
    llm = FakeLLM("x")
    ctx = make_test_ctx(llm=llm, store=InMemoryStore(), chat_middleware=[memoize()])
    await ask(ctx)
    await ask(ctx, other)
    await ask(ctx, other)
    assert llm.calls == 2


def test_key_leaves_out_what_is_not_asked() -> None:
    """Meta, cache marks and the prefix length say nothing about the question, nor does the order of the tools."""
    marked = tuple(replace(m, meta={"id": "x"}) for m in REQUEST.messages)
    same = [
        replace(REQUEST, messages=marked),
        replace(REQUEST, cache_hint=(Breakpoint(1),)),
        replace(REQUEST, cache_hint=True, prefix=1),
    ]
    assert {request_key(r) for r in same} == {request_key(REQUEST)}
    tools = ToolSchema("a", "A", {"type": "object"}), ToolSchema("b")
    assert request_key(replace(REQUEST, tools=tools)) == request_key(replace(REQUEST, tools=tools[::-1]))
    with pytest.raises(TypeError, match=r"memoize has no key for this request.*pass key="):
        request_key(replace(REQUEST, response_format=object()))


@pytest.mark.anyio
@pytest.mark.parametrize("explicit", [False, True])
@pytest.mark.parametrize("key", [None, lambda call: call.request.messages[-1].content])
async def test_tenants_never_share(explicit: bool, key: Callable[[Any], Any] | None) -> None:
    """T1: whatever the key function returns, and wherever the store comes from."""
    llm, store = FakeLLM("tenant-1 secret"), InMemoryStore()
    for scope in (Scope(1), Scope(999), Scope("1"), Scope(1, 1), Scope(1)):
        policy = memoize(key, store=store) if explicit else memoize(key)
        ctx = make_test_ctx(llm=llm, store=None if explicit else store, scope=scope, chat_middleware=[policy])
        await ask(ctx)
    assert llm.calls == 4
    assert all(name.startswith(("org1:dom", "org999:dom", "org%31:dom")) for name in await store.keys())


@pytest.mark.anyio
async def test_foreign_view_is_no_way_round() -> None:
    """T1: a view of the first tenant, built once and used for all."""
    llm, store = FakeLLM("secret"), InMemoryStore()
    policy = memoize(store=ScopedStore(store, Scope(1)))
    for scope in (Scope(1), Scope(2), Scope(1)):
        await ask(make_test_ctx(llm=llm, scope=scope, chat_middleware=[policy]))
    assert llm.calls == 2


@pytest.mark.anyio
async def test_sharing_is_explicit() -> None:
    llm, store = FakeLLM("public"), InMemoryStore()
    for scope in (Scope(1), Scope(2)):
        await ask(make_test_ctx(llm=llm, store=UnscopedStore(store), scope=scope, chat_middleware=[memoize()]))
    assert llm.calls == 1
    await ask(make_test_ctx(llm=llm, scope=Scope(3), chat_middleware=[memoize(store=UnscopedStore(store))]))
    assert llm.calls == 1
    assert all(name.startswith("shared/") for name in await store.keys())


@pytest.mark.anyio
@pytest.mark.parametrize("shared", [True, False], ids=["one middleware", "one each"])
async def test_hundred_askers_one_call(shared: bool) -> None:
    llm, store, policy = FakeLLM("a text of more than one piece"), InMemoryStore(), memoize()

    async def one() -> LLMResult:
        used = policy if shared else memoize()
        return await ask(make_test_ctx(llm=llm, store=store, chat_middleware=[used]))

    answers = await asyncio.gather(*(one() for _ in range(100)))
    assert llm.calls == 1
    assert {a.text for a in answers} == {"a text of more than one piece"}
    assert sum(not a.cached for a in answers) == 1
    assert sum((a.usage for a in answers), Usage()) == Usage(10, 5, 0.0001)


@pytest.mark.anyio
@pytest.mark.parametrize(
    "middleware", [[memoize()], [meter(), memoize()], [memoize(), meter()]], ids=["alone", "outside", "inside"]
)
async def test_one_bill_on_either_side(middleware: list[ChatMiddleware]) -> None:
    budget = Budget()
    ctx = make_test_ctx(llm=FakeLLM("x"), store=InMemoryStore(), chat_middleware=middleware, budget=budget)
    for _ in range(3):
        await ask(ctx)
    assert (budget.calls, budget.spent) == (1, Usage(10, 5, 0.0001))


@pytest.mark.anyio
async def test_failure_is_not_kept() -> None:
    llm, store = FakeLLM("x", fail_times=2), InMemoryStore()
    ctx = make_test_ctx(llm=llm, store=store, chat_middleware=[memoize()])
    answers = await asyncio.gather(*(ask(ctx) for _ in range(5)), return_exceptions=True)
    failed = [a for a in answers if isinstance(a, TransientError)]
    assert (len(failed), llm.calls) == (2, 3)


class GatedLLM(FakeLLM):
    """Answers when the gate is opened."""

    def __init__(self) -> None:
        super().__init__(self._gated)
        self.gate = asyncio.Event()
        self.waiting = 0

    async def _gated(self, system: str, user: str, model: str | None) -> str:
        self.waiting += 1
        await self.gate.wait()
        return "x"


async def until(true: Callable[[], bool]) -> None:
    for _ in range(1000):
        if true():
            return
        await asyncio.sleep(0)
    raise AssertionError("never came true")


@pytest.mark.anyio
async def test_cancelled_leader_leaves_the_others() -> None:
    """W9: the leader's cancellation reaches its own call only; the next asks anew."""
    llm = GatedLLM()
    ctx = make_test_ctx(llm=llm, store=InMemoryStore(), chat_middleware=[memoize()])
    leader, *others = [asyncio.create_task(ask(ctx)) for _ in range(4)]
    await until(lambda: llm.waiting == 1)
    leader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leader
    await until(lambda: llm.waiting == 2)
    llm.gate.set()
    answers = await asyncio.gather(*others)
    assert [a.text for a in answers] == ["x"] * 3
    assert (llm.calls, sum(not a.cached for a in answers)) == (2, 1)


@pytest.mark.anyio
async def test_cancelled_waiter_leaves_the_leader() -> None:
    llm = GatedLLM()
    ctx = make_test_ctx(llm=llm, store=InMemoryStore(), chat_middleware=[memoize()])
    leader, waiter = asyncio.create_task(ask(ctx)), asyncio.create_task(ask(ctx))
    await until(lambda: llm.waiting == 1)
    waiter.cancel()
    llm.gate.set()
    assert (await leader).text == "x"
    with pytest.raises(asyncio.CancelledError):
        await waiter
    assert llm.calls == 1


@pytest.mark.anyio
async def test_leaving_a_stream_frees_the_key() -> None:
    llm = FakeLLM("a text of more than one piece")
    ctx = make_test_ctx(llm=llm, store=InMemoryStore(), chat_middleware=[memoize()])
    invoker = Invoker(llm, [memoize()])
    async with aclosing(invoker.stream(REQUEST, ctx)) as deltas:
        async for _ in deltas:
            break
    assert (await asyncio.wait_for(ask(ctx), 5)).text == "a text of more than one piece"
    gc.collect()


@pytest.mark.anyio
async def test_reader_may_ask_the_same_again() -> None:
    """The inner question waits for the answer that its own reader is in the middle of, and gets it."""
    llm = FakeLLM("a text of more than one piece")
    ctx = make_test_ctx(llm=llm, store=InMemoryStore(), chat_middleware=[memoize()])
    inner: list[LLMResult] = []
    async for _ in ctx.invoker.stream(REQUEST, ctx):
        if not inner:
            inner.append(await asyncio.wait_for(ask(ctx), 5))
    assert (inner[0].cached, llm.calls) == (True, 1)


@pytest.mark.anyio
async def test_ttl_ends_an_entry() -> None:
    llm, clock = FakeLLM("x"), FakeClock()
    store = InMemoryStore(clock=clock)
    ctx = make_test_ctx(llm=llm, store=store, chat_middleware=[memoize(ttl=10)])
    await ask(ctx)
    clock.advance(9.999)
    await ask(ctx)
    assert llm.calls == 1
    clock.advance(0.001)
    await ask(ctx)
    assert llm.calls == 2


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"ttl": -1}, ValueError),
        ({"ttl": float("nan")}, ValueError),
        ({"ttl": float("inf")}, ValueError),
        ({"ttl": "5"}, TypeError),
        ({"store": {}}, TypeError),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match=next(iter(options))):
        memoize(**options)


@pytest.mark.anyio
async def test_when_decides() -> None:
    llm = FakeLLM("x")
    policy = memoize(when=lambda call: call.request.temperature == 0.0)
    ctx = make_test_ctx(llm=llm, store=InMemoryStore(), chat_middleware=[policy])
    for request in (REQUEST, REQUEST, replace(REQUEST, temperature=1.0), replace(REQUEST, temperature=1.0)):
        await ask(ctx, request)
    assert llm.calls == 3


@pytest.mark.anyio
async def test_without_store_calls_pass_through() -> None:
    llm = FakeLLM("a text of more than one piece")
    ctx = make_test_ctx(llm=llm, chat_middleware=[memoize()])
    assert await ask(ctx) == await ask(ctx)
    assert llm.calls == 2


@pytest.mark.anyio
async def test_foreign_value_is_no_answer() -> None:
    store = InMemoryStore()
    await store.set("org1:domNone/memoize/chat/given/k", "not an answer")
    ctx = make_test_ctx(llm=FakeLLM("x"), store=store, scope=Scope(1), chat_middleware=[memoize(lambda call: "k")])
    with pytest.raises(Corrupt, match="holds a str, not the answer of a model"):
        await ask(ctx)


@pytest.mark.anyio
async def test_odd_keys_are_kept_apart() -> None:
    """Keys too long for a store, not encodable, empty, or no text at all are hashed; none meets another."""
    keys: list[Any] = [
        "k",
        "k" * 5000,
        "k" * 5001,
        "",
        "\ud800",
        "\udc00",
        ("k", 1),
        ("k", True),
        1,
        None,
        "é" * 1024,
        "/",
    ]
    llm, store = FakeLLM("x"), InMemoryStore()
    for _ in range(2):
        for key in keys:
            policy = memoize(lambda call, key=key: key)  # type: ignore[misc]
            await ask(make_test_ctx(llm=llm, store=store, scope=Scope("o" * 200), chat_middleware=[policy]))
    assert llm.calls == len(keys)


# -- tools ---------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_tool_runs_once_per_arguments() -> None:
    tool = FakeTool("add", lambda a: {"sum": a["x"] + a["y"], "parts": (a["x"], a["y"])})
    events: list[RunEvent] = []
    ctx = make_test_ctx(llm=FakeLLM(), store=InMemoryStore(), tool_middleware=[memoize()], observer=events.append)
    for call_id, x in (("c1", 1), ("c2", 1), ("c3", 2)):
        result = await ctx.invoker.invoke_tool(tool.request(call_id, x=x, y=2), ctx, tool)
        assert result == {"sum": x + 2, "parts": (x, 2)}
    assert len(tool.calls) == 2
    assert [(e.name, e.data) for e in events] == [("cache.hit", {"kind": "tool", "name": "add"})]


@pytest.mark.anyio
async def test_side_effects_are_not_memoised() -> None:
    tool = FakeTool("pay", "paid", side_effecting=True)
    for policy, runs in ((memoize(), 2), (memoize(when=lambda call: True), 1)):
        tool.calls.clear()
        ctx = make_test_ctx(llm=FakeLLM(), store=InMemoryStore(), tool_middleware=[policy])
        for _ in range(2):
            await ctx.invoker.invoke_tool(tool.request(amount=1), ctx, tool)
        assert len(tool.calls) == runs


@pytest.mark.anyio
async def test_stored_none_is_a_hit() -> None:
    tool = FakeTool("look", None)
    ctx = make_test_ctx(llm=FakeLLM(), store=InMemoryStore(), tool_middleware=[memoize()])
    meta: dict[str, Any] = {}
    for _ in range(2):
        assert await ctx.invoker.invoke_tool(tool.request(), ctx, tool, meta=meta) is None
    assert (len(tool.calls), meta) == (1, {"cache_hit": True})


@pytest.mark.anyio
async def test_tool_and_model_keys_are_apart() -> None:
    policy = memoize(lambda call: "one key")
    llm, store, tool = FakeLLM("from the model"), InMemoryStore(), FakeTool("t", "from the tool")
    ctx = make_test_ctx(llm=llm, store=store, chat_middleware=[policy], tool_middleware=[policy])
    for _ in range(2):
        assert (await ask(ctx)).text == "from the model"
        assert await ctx.invoker.invoke_tool(tool.request(), ctx, tool) == "from the tool"
    assert (llm.calls, len(tool.calls)) == (1, 1)


@dataclass
class Odd:
    """Nothing that a store knows."""

    value: int


@pytest.mark.anyio
async def test_unstorable_answer_is_passed_on() -> None:
    events: list[RunEvent] = []
    tool = FakeTool("odd", Odd(1))
    ctx = make_test_ctx(llm=FakeLLM(), store=InMemoryStore(), tool_middleware=[memoize()], observer=events.append)
    for _ in range(2):
        assert await ctx.invoker.invoke_tool(tool.request(), ctx, tool) == Odd(1)
    assert len(tool.calls) == 2
    assert [(e.name, e.data) for e in events] == [("cache.failed", {"error": "CodecError"})] * 2


class BrokenStore(InMemoryStore):
    async def get_or_set(self, key: str, producer: Callable[[], Any | Awaitable[Any]], ttl: float | None = None) -> Any:
        raise StoreError("connection lost")


@pytest.mark.anyio
async def test_broken_cache_does_not_break_a_run() -> None:
    events: list[RunEvent] = []
    llm = FakeLLM("a text of more than one piece")
    ctx = make_test_ctx(llm=llm, store=BrokenStore(), chat_middleware=[memoize()], observer=events.append)
    assert (await ask(ctx)).text == "a text of more than one piece"
    assert (ctx.budget.calls, [e.name for e in events]) == (1, ["cache.failed"])


@pytest.mark.anyio
async def test_tools_own_store_error_is_its_own() -> None:
    tool = FakeTool("db", StoreError("table is locked"))
    ctx = make_test_ctx(llm=FakeLLM(), store=InMemoryStore(), tool_middleware=[memoize()])
    with pytest.raises(StoreError, match="table is locked"):
        await ctx.invoker.invoke_tool(tool.request(), ctx, tool)
    assert len(tool.calls) == 1


def test_works_in_one_loop_after_another() -> None:
    llm, store, policy = FakeLLM("x"), InMemoryStore(), memoize()

    async def several() -> None:
        ctx = make_test_ctx(llm=llm, store=store, chat_middleware=[policy])
        await asyncio.gather(*(ask(ctx) for _ in range(5)))

    for _ in range(2):
        asyncio.run(several())
    assert llm.calls == 1


@pytest.mark.anyio
async def test_null_ctx_is_memoised_nowhere() -> None:
    policy, llm = memoize(), FakeLLM("x")
    invoker = Invoker(llm, [policy])
    for _ in range(2):
        await invoker.chat(REQUEST, NullCtx())
    assert llm.calls == 2
