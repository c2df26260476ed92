"""An agent of one call: what it sends, what it remembers, what it refuses."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest

from agentkit.agents import Agent, AgentResult, RequestBuilder, SingleCallCognition
from agentkit.core.contracts.calls import ChatCall, ChatNext
from agentkit.core.contracts.errors import EmptyRequestError, MeterExceeded, ScopeError
from agentkit.core.contracts.ports import Ctx
from agentkit.core.contracts.types import Breakpoint, Delta, LLMResult, Message, Scope, StreamEvent, Usage
from agentkit.core.contracts.validity import check
from agentkit.core.policies import memoize
from agentkit.core.runtime import Budget
from agentkit.core.testing import FakeLLM, make_test_ctx
from agentkit.state.context import CharClassTokenCounter, PrefixContext, WorkingContext
from agentkit.state.stores import InMemoryStore


@pytest.mark.anyio
async def test_task_and_answer_are_remembered() -> None:
    llm = FakeLLM("It is 42.", validate=check)
    ctx, wc = make_test_ctx(llm=llm), WorkingContext()
    agent = Agent("analyst", "fake", prompt="Be brief.", max_tokens=99)
    result = await agent.run("what is the number?", ctx, context=wc)
    assert result == AgentResult("It is 42.", Usage(10, 5, 0.0001), prompt_version=result.prompt_version)
    assert wc.prefix == PrefixContext("Be brief.")
    assert wc.messages == [Message("user", "what is the number?"), Message("assistant", "It is 42.")]
    sent = llm.requests[0]
    assert [(m.role, m.content) for m in sent.messages] == [("system", "Be brief."), ("user", "what is the number?")]
    assert (sent.model, sent.temperature, sent.max_tokens, sent.prefix) == ("fake", 0.0, 99, 1)


@pytest.mark.anyio
async def test_cache_is_asked_for_with_a_prefix() -> None:
    llm, wc = FakeLLM("x"), WorkingContext()
    await Agent("a", prompt="Be brief.").run("1", make_test_ctx(llm=llm), context=wc)
    await Agent("a").run("1", make_test_ctx(llm=llm))
    assert llm.requests[0].cache_hint == (Breakpoint(1), Breakpoint(2))
    assert llm.requests[1].cache_hint is None


@pytest.mark.anyio
async def test_later_turns_extend_what_was_sent() -> None:
    """K4: each request begins with the one before."""
    llm, wc = FakeLLM("x", validate=check), WorkingContext()
    agent, ctx = Agent("a", prompt="Be brief."), make_test_ctx(llm=llm)
    for n in range(5):
        await agent.run(f"task {n}", ctx, context=wc)
    for before, after in zip(llm.requests, llm.requests[1:], strict=False):
        assert after.messages[: len(before.messages)] == before.messages
    assert wc.size() == 10


@pytest.mark.anyio
async def test_usage_becomes_the_anchor() -> None:
    wc = WorkingContext()
    ctx = make_test_ctx(llm=FakeLLM("an answer", usage=Usage(1234, 5)))
    await Agent("a", "fake", prompt="Be brief.").run("task", ctx, context=wc)
    count = wc.count()
    assert (count.source, count.reported) == ("provider", 1234)
    assert count.tokens > 1234


@pytest.mark.anyio
async def test_cached_answer_is_no_anchor() -> None:
    store, agent = InMemoryStore(), Agent("a", "fake")
    for expected in ("provider", "estimate"):
        wc = WorkingContext()
        ctx = make_test_ctx(llm=FakeLLM("x"), store=store, chat_middleware=[memoize()])
        await agent.run("task", ctx, context=wc)
        assert wc.count().source == expected


@pytest.mark.anyio
async def test_fresh_context_each_run_by_default() -> None:
    llm = FakeLLM("x")
    agent, ctx = Agent("a"), make_test_ctx(llm=llm)
    for n in range(2):
        await agent.run(f"task {n}", ctx)
    assert [len(r.messages) for r in llm.requests] == [1, 1]


@pytest.mark.anyio
async def test_own_context_knows_counter_and_tenant() -> None:
    seen: list[WorkingContext] = []

    async def look(call: ChatCall, proceed: ChatNext) -> AsyncIterator[Delta]:
        seen.append(call.meta["context"])
        async for delta in proceed(call):
            yield delta

    ctx = make_test_ctx(llm=FakeLLM("x"), scope=Scope(7), chat_middleware=[look])
    await Agent("a").run("task", ctx)
    assert (seen[0].scope, seen[0].token_counter) == (Scope(7), CharClassTokenCounter())


@pytest.mark.anyio
async def test_events_tell_the_answer() -> None:
    ctx = make_test_ctx(llm=FakeLLM("twelve chars"))
    events = [event async for event in Agent("a").stream("task", ctx)]
    result = AgentResult("twelve chars", Usage(10, 5, 0.0001))
    assert events == [
        StreamEvent("message_delta", "twelve c"),
        StreamEvent("message_delta", "hars"),
        StreamEvent("final", "twelve chars", result),
    ]


@pytest.mark.anyio
async def test_unreadable_answer_is_repaired_once() -> None:
    llm = FakeLLM(validate=check).script(["{broken", '{"n": 1}'])
    wc = WorkingContext()
    agent = Agent("a", prompt="JSON only.", parse=json.loads)
    result = await agent.run("task", make_test_ctx(llm=llm), context=wc)
    assert (result.parsed, result.output, result.partial) == ({"n": 1}, '{"n": 1}', False)
    assert result.usage == Usage(20, 10, 0.0002)
    assert [m.role for m in wc.messages] == ["user", "assistant", "user", "assistant"]
    assert "Expecting property name" in wc.messages[2].content
    assert llm.requests[1].messages[:2] == llm.requests[0].messages


@pytest.mark.anyio
@pytest.mark.parametrize("repairs", [0, 1, 3])
async def test_exhausted_repairs_are_partial(repairs: int) -> None:
    llm = FakeLLM("{broken")
    agent = Agent("a", parse=json.loads, max_repairs=repairs)
    result = await agent.run("task", make_test_ctx(llm=llm))
    assert (result.partial, result.reason, result.parsed, result.output) == (True, "invalid_output", None, "{broken")
    assert llm.calls == repairs + 1
    assert result.usage.input_tokens == 10 * (repairs + 1)


@pytest.mark.anyio
async def test_repairs_are_told() -> None:
    llm = FakeLLM().script(["{", "1"])
    events = [e async for e in Agent("a", parse=json.loads).stream("task", make_test_ctx(llm=llm))]
    assert [(e.kind, e.data) for e in events if e.kind == "step"] == [("step", {"repair": 1})]


class Upper:
    schema_block = "Answer in capitals."

    def parse(self, text: str, /) -> str:
        if not text.isupper():
            raise ValueError("not in capitals")
        return text


@pytest.mark.anyio
async def test_output_gives_schema_and_reading() -> None:
    llm, wc = FakeLLM().script(["small", "LARGE"]), WorkingContext()
    result = await Agent("a", prompt="p", output=Upper()).run("task", make_test_ctx(llm=llm), context=wc)
    assert (result.parsed, wc.prefix.schema_block) == ("LARGE", "Answer in capitals.")
    explicit = Agent("a", output=Upper(), parse=len)
    assert (await explicit.run("task", make_test_ctx(llm=FakeLLM("small")))).parsed == 5


@pytest.mark.anyio
async def test_parsed_of_the_model_is_kept() -> None:
    ctx = make_test_ctx(llm=FakeLLM(LLMResult("1", parsed={"n": 1})))
    assert (await Agent("a").run("task", ctx)).parsed == {"n": 1}


@pytest.mark.anyio
async def test_errors_of_ones_own_are_not_repaired() -> None:
    def buggy(text: str) -> Any:
        raise ZeroDivisionError

    llm = FakeLLM("x")
    with pytest.raises(ZeroDivisionError):
        await Agent("a", parse=buggy).run("task", make_test_ctx(llm=llm))
    assert llm.calls == 1


@pytest.mark.anyio
async def test_swapped_arguments_are_named() -> None:
    agent, ctx, wc = Agent("a"), make_test_ctx(llm=FakeLLM("x")), WorkingContext()
    wrong: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
        ((ctx, "task"), {}, "swapped"),
        (("task", wc), {}, "pass the WorkingContext by name"),
        (("task", ctx), {"context": ctx}, "the RunContext has a place of its own"),
        (("task", ctx), {"context": []}, "context must be a WorkingContext, not list"),
        ((["task"], ctx), {}, "task must be a str, not list"),
        (("task", None), {}, "ctx must be a RunContext or another Ctx, not NoneType"),
    ]
    for args, options, text in wrong:
        with pytest.raises(TypeError, match=text):
            await agent.run(*args, **options)
        with pytest.raises(TypeError, match=text):
            agent.stream(*args, **options)  # at the call, not at the first event


@pytest.mark.anyio
async def test_two_tenants_never_meet() -> None:
    """T1."""
    llm, wc = FakeLLM("x"), WorkingContext(scope=Scope(1))
    with pytest.raises(ScopeError, match="run of org2:domNone cannot use a context of org1:domNone"):
        await Agent("a").run("task", make_test_ctx(llm=llm, scope=Scope(2)), context=wc)
    assert (llm.calls, wc.size()) == (0, 0)
    await Agent("a").run("task", make_test_ctx(llm=llm, scope=Scope(1)), context=wc)


@pytest.mark.anyio
async def test_nothing_to_ask_is_refused() -> None:
    llm = FakeLLM("x")
    with pytest.raises(EmptyRequestError):
        await Agent("a", prompt="p").run("", make_test_ctx(llm=llm))
    assert llm.calls == 0
    wc = WorkingContext(messages=[Message("user", "still open")])
    assert (await Agent("a").run("", make_test_ctx(llm=llm), context=wc)).output == "x"


@pytest.mark.anyio
async def test_resume_names_the_cognition() -> None:
    with pytest.raises(RuntimeError, match="SingleCallCognition never suspends a run"):
        await Agent("a").resume("run-1", {}, make_test_ctx(llm=FakeLLM()))


@pytest.mark.anyio
async def test_budget_holds_for_agents() -> None:
    llm = FakeLLM("x")
    ctx = make_test_ctx(llm=llm, budget=Budget(max_calls=1))
    await Agent("a").run("task", ctx)
    with pytest.raises(MeterExceeded):
        await Agent("a").run("task", ctx)
    assert llm.calls == 1


@pytest.mark.anyio
async def test_cancelled_run_leaves_whole_messages() -> None:
    """W9."""
    asked, wc = asyncio.Event(), WorkingContext()

    async def never(system: str, user: str, model: str | None) -> str:
        asked.set()
        await asyncio.Event().wait()
        return "x"

    ctx = make_test_ctx(llm=FakeLLM(never))
    task = asyncio.create_task(Agent("a", prompt="p").run("task", ctx, context=wc))
    await asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert wc.messages == [Message("user", "task")]


@pytest.mark.anyio
async def test_leaving_a_stream_ends_the_call() -> None:
    ended = []

    async def look(call: ChatCall, proceed: ChatNext) -> AsyncIterator[Delta]:
        try:
            async for delta in proceed(call):
                yield delta
        finally:
            ended.append(True)

    wc = WorkingContext()
    ctx = make_test_ctx(llm=FakeLLM("a longer answer"), chat_middleware=[look])
    async with aclosing(Agent("a").stream("task", ctx, context=wc)) as events:
        async for _ in events:
            break
    assert (ended, wc.size()) == ([True], 1)


@pytest.mark.parametrize(
    ("options", "error", "named"),
    [
        ({"name": ""}, ValueError, "name"),
        ({"name": 5}, TypeError, "name"),
        ({"model": 5}, TypeError, "model"),
        ({"max_repairs": -1}, ValueError, "max_repairs"),
        ({"max_repairs": True}, TypeError, "max_repairs"),
        ({"prompt": "p", "request_builder": RequestBuilder()}, TypeError, "request_builder"),
        ({"prompt": 5}, TypeError, "prompt"),
        ({"tools": []}, TypeError, "tools"),
    ],
)
def test_bad_settings_are_named(options: dict[str, Any], error: type[Exception], named: str) -> None:
    with pytest.raises(error, match=named):
        Agent(**{"name": "a", **options})


def test_default_cognition_is_one_call() -> None:
    agent = Agent("a", "fake")
    assert isinstance(agent.cognition, SingleCallCognition)
    assert repr(agent) == "Agent('a', model='fake', cognition=SingleCallCognition)"


def test_works_in_one_loop_after_another() -> None:
    ctx: Ctx = make_test_ctx(llm=FakeLLM("x"))
    agent, wc = Agent("a"), WorkingContext()
    for size in (2, 4):
        asyncio.run(agent.run("task", ctx, context=wc))
        assert wc.size() == size
