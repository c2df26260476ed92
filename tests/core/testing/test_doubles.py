"""The doubles do what they say, and are reached from their own package only."""

import asyncio
import importlib
from typing import Any

import pytest

from agentkit.core.contracts.errors import PermanentError, TransientError
from agentkit.core.contracts.ports import LLM, Clock, MemorySource
from agentkit.core.contracts.types import ChatRequest, LLMResult, Message, Scope, ToolCall, Usage, assemble_deltas
from agentkit.core.contracts.validity import check
from agentkit.core.runtime import Budget, Invoker, RunContext, RunEvent, ScopedStore
from agentkit.core.testing import FakeClock, FakeLLM, FakeMemory, FakeTool, RecordingTracer, make_test_ctx
from agentkit.state.stores import InMemoryStore


def ask(user: str, system: str = "", model: str | None = "m") -> ChatRequest:
    head = [Message("system", system)] if system else []
    return ChatRequest((*head, Message("user", user)), model)


def test_doubles_are_not_top_level() -> None:
    names = set(importlib.import_module("agentkit.core.testing").__all__)
    for package in ("agentkit", "agentkit.core", "agentkit.agents", "agentkit.state"):
        assert names.isdisjoint(dir(importlib.import_module(package))), package


@pytest.mark.anyio
async def test_streams_in_small_pieces() -> None:
    llm: LLM = FakeLLM("twenty characters ok")
    deltas = [delta async for delta in llm.stream(ask("hi"))]
    assert [d.text for d in deltas] == ["twenty c", "haracter", "s ok", ""]
    assert [d.usage for d in deltas] == [None, None, None, Usage(10, 5, 0.0001)]
    assert assemble_deltas(deltas) == await llm.chat(ask("hi"))
    assert (await llm.chat(ask("hi"))).finish_reason == "stop"


@pytest.mark.anyio
async def test_stream_lets_others_run() -> None:
    llm, order = FakeLLM("x" * 32), list[str]()

    async def read(name: str) -> None:
        async for delta in llm.stream(ask("hi")):
            order.append(name if delta.text else name.upper())

    await asyncio.gather(read("a"), read("b"))
    assert order[:4] == ["a", "b", "a", "b"]


@pytest.mark.anyio
async def test_responses_by_rule() -> None:
    by_part = FakeLLM({"price": "3.00", "": "no idea"})
    assert [(await by_part.chat(ask(q))).text for q in ("what price?", "who?")] == ["3.00", "no idea"]
    with pytest.raises(LookupError, match=r"no response is given for 'who\?'; known are \['price'\]"):
        await FakeLLM({"price": "3.00"}).chat(ask("who?"))
    by_call = FakeLLM(lambda system, user, model: f"{system}|{user}|{model}")
    assert (await by_call.chat(ask("q", "s", None))).text == "s|q|None"

    async def slowly(system: str, user: str, model: str | None) -> LLMResult:
        await asyncio.sleep(0)
        return LLMResult(user, usage=Usage(1))

    assert await FakeLLM(slowly).chat(ask("q")) == LLMResult("q", usage=Usage(1))


def test_answers_that_are_no_rule_are_refused_at_once() -> None:
    answers: Any = ["one", "two"]
    with pytest.raises(TypeError, match=r"not list; for one answer after the other: FakeLLM\(\)\.script"):
        FakeLLM(answers)


@pytest.mark.anyio
async def test_script_repeats_its_last_turn() -> None:
    call = ToolCall("c1", "look", {"a": 1})
    llm = FakeLLM().script([[call], "done", RuntimeError("down"), "again"])
    first = await llm.chat(ask("go"))
    assert (first.tool_calls, first.finish_reason, first.text) == ((call,), "tool_calls", "")
    assert (await llm.chat(ask("go"))).text == "done"
    with pytest.raises(RuntimeError, match="down"):
        await llm.chat(ask("go"))
    assert [(await llm.chat(ask("go"))).text for _ in range(3)] == ["again"] * 3
    with pytest.raises(ValueError, match="at least one turn"):
        llm.script([])


@pytest.mark.anyio
async def test_failures_come_before_the_first_piece() -> None:
    llm = FakeLLM("x", fail_times=2)
    for _ in range(2):
        with pytest.raises(TransientError):
            await anext(llm.stream(ask("hi")))
    assert (await llm.chat(ask("hi"))).text == "x"
    assert (llm.calls, [r.messages[-1].content for r in llm.requests]) == (3, ["hi"] * 3)
    with pytest.raises(OSError, match="gone"):
        await FakeLLM(fail_times=1, fail_exc=OSError("gone")).chat(ask("hi"))


@pytest.mark.anyio
async def test_invalid_transcripts_are_refused() -> None:
    llm = FakeLLM("x", validate=check)
    assert (await llm.chat(ask("hi"))).text == "x"
    orphan = ChatRequest((Message("user", "hi"), Message("tool", "42", tool_call_id="c9")), "m")
    with pytest.raises(PermanentError, match="orphan"):
        await llm.chat(orphan)


def test_clock_is_moved_by_hand() -> None:
    fake = FakeClock(5)
    clock: Clock = fake
    fake.advance(2.5)
    assert (clock(), fake.now) == (7.5, 7.5)
    with pytest.raises(ValueError, match="0 seconds or more"):
        fake.advance(-1)


@pytest.mark.anyio
async def test_tool_notes_its_calls() -> None:
    ctx = make_test_ctx(llm=FakeLLM())

    async def slowly(arguments: Any) -> int:
        await asyncio.sleep(0)
        return len(arguments)

    for result, expected in (("ok", "ok"), (lambda a: a["x"] * 2, 4), (slowly, 1)):
        tool = FakeTool("t", result)
        assert await tool(tool.request(x=2), ctx) == expected
        assert tool.calls == [{"x": 2}]
    with pytest.raises(KeyError):
        await FakeTool("t", KeyError("gone"))(FakeTool("t").request(), ctx)
    assert FakeTool("t", side_effecting=True).request("c7").side_effecting
    assert FakeTool("t").request("c7", x=1).call == ToolCall("c7", "t", {"x": 1})


@pytest.mark.anyio
async def test_ctx_is_a_real_one() -> None:
    events: list[RunEvent] = []
    raw, tracer, budget, llm = InMemoryStore(), RecordingTracer(), Budget(max_calls=1), FakeLLM("x")
    ctx = make_test_ctx(llm=llm, scope=Scope(7), budget=budget, store=raw, observer=events.append, trace=tracer)
    assert type(ctx) is RunContext
    assert isinstance(ctx.store, ScopedStore)
    assert (ctx.scope, ctx.budget, ctx.store.inner, ctx.correlation_id) == (Scope(7), budget, raw, "test-run")
    await ctx.invoker.chat(ask("hi"), ctx)
    ctx.emit("e")
    assert (llm.calls, budget.calls, [e.name for e in events]) == (1, 1, ["e"])
    assert [(s.name, s.attributes) for s in tracer.spans] == [("chat", {"model": "m", "messages": 1})]


def test_none_leaves_defaults() -> None:
    ctx = make_test_ctx()
    assert (ctx.store, ctx.services.checkpointer, ctx.services.vector, ctx.autonomy) == (None, None, None, "auto")
    with pytest.raises(RuntimeError, match="no invoker"):
        ctx.invoker.stream(ask("hi"), ctx)


def test_invoker_and_llm_exclude_each_other() -> None:
    invoker = Invoker(FakeLLM())
    assert make_test_ctx(invoker=invoker).invoker is invoker
    with pytest.raises(TypeError, match="either an invoker, or an llm"):
        make_test_ctx(invoker=invoker, llm=FakeLLM())
    with pytest.raises(TypeError, match="middleware needs an llm"):
        make_test_ctx(chat_middleware=[lambda call, proceed: proceed(call)])


@pytest.mark.anyio
async def test_memory_recalls_by_rule_and_notes_what_it_is_asked() -> None:
    first, second = make_test_ctx(scope=Scope(1)), make_test_ctx(scope=Scope(2))
    memory: MemorySource = FakeMemory(["a", "b", "c"])
    assert await memory.query("q", first, k=2) == ["a", "b"]
    by_part = FakeMemory({"price": ["3.00"]})
    assert [await by_part.query(q, first) for q in ("what price?", "who?")] == [["3.00"], []]
    assert by_part.queries == [("org1:domNone", "what price?", 5), ("org1:domNone", "who?", 5)]
    assert await by_part.write(["mine"], second) == 1
    assert (await by_part.query("who?", second), await by_part.query("who?", first)) == (["mine"], [])
    assert by_part.written == [("org2:domNone", "mine")]
    down = FakeMemory(OSError("away"))
    with pytest.raises(OSError, match="away"):
        await down.query("q", first)
    with pytest.raises(OSError, match="away"):
        await down.write(["x"], first)
