"""What an agent sends and when: cache marks, the closing block, prices, windows, compaction, hooks."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from agentkit.agents import Agent, BuiltRequest, Compaction, Hooks, ReActCognition, RequestBuilder, tool
from agentkit.agents.marks import terms_of
from agentkit.core.contracts.errors import ContextOverflowError, MeterExceeded, OutputError, TransientError
from agentkit.core.contracts.ports import Ctx
from agentkit.core.contracts.types import Breakpoint, ChatRequest, Delta, LLMResult, Message, Scope, ToolCall, Usage
from agentkit.core.policies import compaction, fallback
from agentkit.core.runtime import Budget, RunEvent
from agentkit.core.testing import FakeLLM, make_test_ctx
from agentkit.state.compaction import TruncationCompactor
from agentkit.state.context import CharClassTokenCounter, WorkingContext

pytestmark = pytest.mark.anyio

LONG = "every word of this counts for one token or so " * 60


@tool(side_effecting=False)
async def look() -> str:
    return "seen"


def looking(call_id: str) -> LLMResult:
    return LLMResult("", (ToolCall(call_id, "look"),), Usage(10, 5))


def looker(*turns: Any, **options: Any) -> tuple[Agent, FakeLLM]:
    agent = Agent("a", options.pop("model", "fake"), cognition=ReActCognition([look]), prompt="p", **options)
    return agent, FakeLLM().script(turns)


def history(turns: int, text: str = LONG) -> WorkingContext:
    wc = WorkingContext(token_counter=CharClassTokenCounter())
    for n in range(turns):
        wc.append(Message("user", f"{n} {text}"), Message("assistant", f"answer {n}"))
    return wc


# Marks


async def test_previous_tail_keeps_its_mark() -> None:
    """K3: from 20 new blocks on only the mark of the request before saves the read."""
    agent, llm = looker(looking("1"), looking("2"), "done", "more")
    wc, ctx = WorkingContext(), make_test_ctx(llm=llm)
    await agent.run("go", ctx, context=wc)
    await agent.run("again", ctx, context=wc)
    positions = [[mark.position for mark in request.cache_hint] for request in llm.requests]
    assert positions == [[1, 2], [1, 2, 4], [1, 4, 6], [1, 6, 8]]


async def test_no_tail_mark_where_nothing_goes_on() -> None:
    """A write that nobody reads is money lost (section 7 of the cache rules)."""
    llm = FakeLLM("x")
    await Agent("a", prompt="p").run("go", make_test_ctx(llm=llm))
    await Agent("a", prompt="p").run("go", make_test_ctx(llm=llm), context=WorkingContext())
    assert [request.cache_hint for request in llm.requests] == [
        (Breakpoint(1),), (Breakpoint(1), Breakpoint(2)),
    ]  # fmt: skip
    agent = Agent("a", cognition=ReActCognition([look], max_iterations=2), prompt="p")
    llm = FakeLLM().script([looking("1"), looking("2")])
    await agent.run("go", make_test_ctx(llm=llm))
    assert [[m.position for m in request.cache_hint] for request in llm.requests] == [[1, 2], [1, 2]]


def test_terms_follow_the_vendor() -> None:
    found = [terms_of(model).min_tokens for model in ("claude-opus-5", "anthropic/claude-x", "gpt-5.6-sol", "o3", None)]
    assert found == [512, 512, 1024, 1024, 0]


async def test_small_prefix_still_asks_for_a_cache() -> None:
    llm = FakeLLM("x")
    await Agent("a", "claude-sonnet-4-6", prompt="p").run("go", make_test_ctx(llm=llm))
    await Agent("a", "claude-sonnet-4-6", prompt=LONG * 2).run("go", make_test_ctx(llm=llm))
    assert [request.cache_hint for request in llm.requests] == [True, (Breakpoint(1),)]


async def test_closing_block_stands_behind_everything_and_is_not_kept() -> None:
    """K1, K5."""
    count = 0

    async def clock(wc: WorkingContext, ctx: Ctx) -> str:
        nonlocal count
        count += 1
        return f"<now>{count}</now>"

    agent, llm = looker(looking("1"), "done", volatile=clock)
    wc = WorkingContext()
    await agent.run("go", make_test_ctx(llm=llm), context=wc)
    assert [request.messages[-1].content for request in llm.requests] == ["<now>1</now>", "<now>2</now>"]
    assert all("now" not in message.content for message in wc.messages)
    first, second = llm.requests
    assert second.messages[: len(first.messages) - 1] == first.messages[:-1]
    assert max(mark.position for mark in second.cache_hint) == len(second.messages) - 1


@pytest.mark.parametrize("given", ["now", Message("user", "now"), [Message("user", "now")], lambda wc, ctx: "now"])
async def test_closing_block_takes_several_forms(given: Any) -> None:
    llm = FakeLLM("x")
    await Agent("a", volatile=given).run("go", make_test_ctx(llm=llm))
    await Agent("a", volatile=lambda wc, ctx: None).run("go", make_test_ctx(llm=llm))
    assert [[m.content for m in request.messages] for request in llm.requests] == [["go", "now"], ["go"]]


async def test_cache_key_tells_tenants_apart_and_names_none() -> None:
    """T4."""
    llm = FakeLLM("x")
    for scope in (Scope("acme"), Scope("acme"), Scope("other")):
        await Agent("a", options={"effort": "low"}).run("go", make_test_ctx(llm=llm, scope=scope))
    keys = [request.options["cache_key"] for request in llm.requests]
    assert keys[0] == keys[1] != keys[2]
    assert "acme" not in keys[0]
    assert llm.requests[0].options["effort"] == "low"


# Prices


class Priceless(FakeLLM):
    pricing: Any = None


async def test_limit_in_usd_needs_a_price() -> None:
    llm = Priceless("x", usage=Usage(1, 1))
    ctx = make_test_ctx(llm=llm, budget=Budget(max_cost_usd=1))
    with pytest.raises(ValueError, match="may cost 1 USD, but no price is known for the model 'fake-model'"):
        await Agent("a", "fake-model").run("go", ctx)
    with pytest.raises(ValueError, match="model None"):
        await Agent("a").run("go", ctx)
    assert llm.calls == 0
    await Agent("a", "claude-sonnet-4-6").run("go", ctx)
    await Agent("a", "fake-model").run("go", make_test_ctx(llm=llm, budget=Budget(max_calls=1)))
    await Agent("a", "fake-model").run("go", make_test_ctx(llm=FakeLLM("x"), budget=Budget(max_cost_usd=1)))


# Windows


async def test_request_above_the_window_is_never_sent() -> None:
    llm, wc = FakeLLM("x"), history(4)
    agent = Agent("a", "local", window=1000, prompt="p")
    with pytest.raises(ContextOverflowError, match=r"the window of 'local' has 1,000 \(declared\)") as caught:
        await agent.run("go", make_test_ctx(llm=llm), context=wc)
    assert llm.calls == 0
    assert caught.value.window == 1000
    assert set(caught.value.sizes) == {"frozen", "tail"}
    with pytest.raises(ContextOverflowError, match="catalogue"):
        await Agent("a", "gpt-4o").run(LONG * 200, make_test_ctx(llm=llm))
    assert (await Agent("a", "unknown-model").run(LONG * 200, make_test_ctx(llm=llm))).output == "x"


async def test_answer_has_to_fit_a_declared_window_too() -> None:
    llm, wc = FakeLLM("x"), history(1)
    small = Agent("a", window=2_000, max_tokens=1_900)
    with pytest.raises(ContextOverflowError) as caught:
        await small.run("go", make_test_ctx(llm=llm), context=wc)
    assert caught.value.sizes["output"] == 1_900
    await Agent("a", window=2_000, max_tokens=10).run("go", make_test_ctx(llm=llm), context=history(1))


async def test_too_large_a_request_is_shortened_where_there_is_a_compactor() -> None:
    llm, wc = FakeLLM("x"), history(8)
    builder = RequestBuilder("p", compactor=TruncationCompactor(max_tokens=100_000))
    await Agent("a", "local", request_builder=builder, window=3_000).run("go", make_test_ctx(llm=llm), context=wc)
    assert llm.calls == 1
    assert wc.messages[-2:] == [Message("user", "go"), Message("assistant", "x")]
    assert wc.count().upper < 3_000 < history(8).count().tokens


async def test_window_of_a_fallback_is_its_own() -> None:
    """N7: another model's refusal shortens the context for that model and says nothing of the one that was asked."""

    class Two(FakeLLM):
        async def stream(self, request: ChatRequest, /) -> AsyncGenerator[Delta, None]:
            if request.model == "large":
                raise TransientError("down")
            self.requests.append(request)
            if len(self.requests) == 1:
                raise ContextOverflowError("maximum context length is 2000 tokens", window=2_000)
            yield Delta("fits", finish_reason="stop")

    builder = RequestBuilder("p", compactor=TruncationCompactor(max_tokens=50_000))
    llm, agent, wc = Two(), Agent("a", "large", request_builder=builder), history(8)
    ctx = make_test_ctx(llm=llm, chat_middleware=[fallback("small")])
    assert (await agent.run("go", ctx, context=wc)).output == "fits"
    assert len(llm.requests[1].messages) < len(llm.requests[0].messages)
    assert agent._plan.known.windows == {"small": 2_000}


async def test_provider_that_refuses_teaches_the_window_and_is_asked_once_more() -> None:
    """N7."""
    refusal = ContextOverflowError("maximum context length is 2000 tokens", window=2_000)
    llm, wc = FakeLLM().script([refusal, "x"]), history(8)
    builder = RequestBuilder("p", compactor=TruncationCompactor(max_tokens=50_000))
    agent = Agent("a", "local", request_builder=builder)
    assert (await agent.run("go", make_test_ctx(llm=llm), context=wc)).output == "x"
    assert [len(request.messages) for request in llm.requests] == [18, len(wc.messages)]
    with pytest.raises(ContextOverflowError, match=r"2,000 \(learned\)"):
        await agent.run(LONG * 8, make_test_ctx(llm=llm))
    assert llm.calls == 2


async def test_refusal_without_a_compactor_is_passed_on() -> None:
    refusal = ContextOverflowError("too long", window=2_000)
    llm = FakeLLM().script([refusal])
    with pytest.raises(ContextOverflowError, match="too long"):
        await Agent("a", "local").run("go", make_test_ctx(llm=llm))
    builder = RequestBuilder("p", compactor=TruncationCompactor())
    with pytest.raises(ContextOverflowError, match="too long"):
        await Agent("a", "local", request_builder=builder).run("go", make_test_ctx(llm=llm), context=history(3))
    assert llm.calls == 3  # the one without, and one retry of the shortened one


# Compaction and hooks


async def test_builder_shortens_before_every_call() -> None:
    """C4."""
    builder = RequestBuilder("p", compactor=TruncationCompactor(max_tokens=1_500, keep_recent=2))
    wc, llm = history(6), FakeLLM("x")
    await Agent("a", request_builder=builder).run("go", make_test_ctx(llm=llm), context=wc)
    assert wc.version == 1
    assert len(llm.requests[0].messages) < 12


@pytest.mark.parametrize("middleware", [False, True])
async def test_compaction_is_told_to_hooks_by_builder_and_middleware(middleware: bool) -> None:
    seen: list[Any] = []
    hooks = Hooks(
        before_compaction=lambda wc, ctx: seen.append((wc.size(), wc.version)),
        after_compaction=lambda done, ctx: seen.append(done),
    )
    compactor = TruncationCompactor(max_tokens=1_500, keep_recent=2)
    builder = RequestBuilder("p", compactor=None if middleware else compactor)
    wc, llm = history(6), FakeLLM("x", usage=Usage(900, 5))
    ctx = make_test_ctx(llm=llm, chat_middleware=[compaction(compactor)] if middleware else [])
    await Agent("a", request_builder=builder, hooks=hooks).run("go", ctx, context=wc)
    (size, version), done = seen
    assert (size, version, type(done)) == (13, 0, Compaction)
    assert done.messages_after == wc.size() - 1 < done.messages_before == 13
    assert done.tokens_after < done.tokens_before
    assert wc.count().source == "provider"  # what was recorded is the layout that was sent
    assert wc.count().reported == 900


async def test_middleware_shortens_what_would_not_have_fitted() -> None:
    wc, llm = history(8), FakeLLM("x")
    ctx = make_test_ctx(llm=llm, chat_middleware=[compaction(TruncationCompactor(max_tokens=1_200, keep_recent=2))])
    await Agent("a", "local", window=3_000).run("go", ctx, context=wc)
    assert llm.calls == 1


async def test_hooks_see_model_and_tools_in_order() -> None:
    seen: list[str] = []

    async def before_model(request: ChatRequest, ctx: Ctx) -> None:
        seen.append(f"ask {len(request.messages)}")

    hooks = Hooks(
        before_model=before_model,
        after_model=lambda request, result, ctx: seen.append(f"answer {result.finish_reason}"),
        before_tool=lambda request, ctx: seen.append(f"call {request.name}"),
        after_tool=lambda request, result, ctx: seen.append(f"result {result.content}"),
    )
    agent, llm = looker(replace(looking("1"), finish_reason="tool_calls"), "done", hooks=hooks)
    await agent.run("go", make_test_ctx(llm=llm))
    assert seen == ["ask 2", "answer tool_calls", "call look", "result seen", "ask 4", "answer stop"]


async def test_failing_hooks_break_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def bad(*args: Any) -> None:
        raise ZeroDivisionError

    async def worse(*args: Any) -> None:
        raise LookupError

    told: list[RunEvent] = []
    hooks = Hooks(bad, worse, bad, worse, bad, worse)
    builder = RequestBuilder("p", compactor=TruncationCompactor(max_tokens=1_500, keep_recent=2))
    agent = Agent("a", request_builder=builder, cognition=ReActCognition([look]), hooks=hooks)
    ctx = make_test_ctx(llm=FakeLLM().script([looking("1"), "done"]), observer=told.append)
    with caplog.at_level(logging.WARNING):
        assert (await agent.run("go", ctx, context=history(6))).output == "done"
    failed = {event.data["hook"] for event in told if event.name == "hook.failed"}
    assert failed == {
        "before_model", "after_model", "before_tool", "after_tool", "before_compaction", "after_compaction",
    }  # fmt: skip
    assert "the hook before_model failed" in caplog.text


async def test_budget_check_sees_each_request_and_may_refuse() -> None:
    seen: list[int] = []

    async def watch(built: BuiltRequest, ctx: Ctx) -> None:
        seen.append(built.approx_tokens)
        if len(seen) == 2:
            raise PermissionError("enough")

    builder, llm = RequestBuilder("p", budget_check=watch), FakeLLM("x")
    await Agent("a", request_builder=builder).run("go", make_test_ctx(llm=llm))
    with pytest.raises(PermissionError, match="enough"):
        await Agent("a", request_builder=builder).run("go", make_test_ctx(llm=llm))
    assert llm.calls == 1


async def test_estimate_learns_from_what_the_provider_reports() -> None:
    def reporting(system: str, user: str, model: str | None) -> LLMResult:
        sent = sum(len(m.content) for m in llm.requests[-1].messages)
        return LLMResult("ok", usage=Usage(sent, 5))  # a token a character: far more than is estimated

    llm, wc = FakeLLM(reporting), WorkingContext(token_counter=CharClassTokenCounter())
    agent, ctx = Agent("a", "unknown"), make_test_ctx(llm=llm)
    seen: list[float] = []
    for n in range(4):
        await agent.run(f"{n} {LONG}", ctx, context=wc)
        seen.append(agent._plan.known.calibration("unknown", wc).factor)
    assert seen[0] == 1.0 < seen[1] < seen[2] < seen[3] <= 4.0


class Everything:
    """A compactor that wants nothing left."""

    async def compact(self, messages: Sequence[Message], ctx: Ctx, /, *, counter: Any = None) -> Sequence[Message]:
        return ()


async def test_compactor_that_leaves_nothing_is_passed_over() -> None:
    wc, llm = history(2), FakeLLM("x")
    agent = Agent("a", request_builder=RequestBuilder("p", compactor=Everything()))
    await agent.run("go", make_test_ctx(llm=llm), context=wc)
    assert (wc.version, wc.size()) == (0, 6)


@pytest.mark.parametrize(
    ("make", "error", "named"),
    [
        (lambda: Hooks(before_model=5), TypeError, "Hooks.before_model must be callable"),  # type: ignore[arg-type]
        (lambda: Agent("a", hooks=print), TypeError, "hooks must be Hooks"),  # type: ignore[arg-type]
        (lambda: Agent("a", window=0), ValueError, "window"),
        (lambda: Agent("a", max_tokens=1.5), TypeError, "max_tokens"),  # type: ignore[arg-type]
        (lambda: RequestBuilder("p", compactor=5), TypeError, "compactor"),  # type: ignore[arg-type]
        (lambda: RequestBuilder("p", budget_check=5), TypeError, "budget_check"),  # type: ignore[arg-type]
    ],
)
def test_bad_settings_are_named(make: Any, error: type[Exception], named: str) -> None:
    with pytest.raises(error, match=named):
        make()


async def test_failing_compactor_breaks_no_run() -> None:
    """C11."""
    raised: list[Exception] = [OutputError("empty"), MeterExceeded("used up")]

    class Failing:
        async def compact(self, messages: Sequence[Message], ctx: Ctx, /, *, counter: Any = None) -> Sequence[Message]:
            raise raised[0]

    told: list[str] = []
    agent = Agent("a", request_builder=RequestBuilder("p", compactor=Failing()))
    ctx = make_test_ctx(llm=FakeLLM("x"), observer=lambda event: told.append(event.name))
    assert (await agent.run("go", ctx)).output == "x"
    assert "compaction.failed" in told
    del raised[0]
    with pytest.raises(MeterExceeded):
        await agent.run("go", ctx)


async def test_builders_compactor_counts_in_the_providers_tokens() -> None:
    """N5: what the trigger is decided on is what the provider reported."""
    sizes: list[int] = []

    class Watching:
        async def compact(self, messages: Sequence[Message], ctx: Ctx, /, *, counter: Any = None) -> Sequence[Message]:
            sizes.append(await counter.estimate(messages))
            return messages

    wc, llm = history(3), FakeLLM("x", usage=Usage(3_000, 5))
    agent = Agent("a", request_builder=RequestBuilder("p", compactor=Watching()))
    for _ in range(2):
        await agent.run("go", make_test_ctx(llm=llm), context=wc)
    before = CharClassTokenCounter().measure(history(3).messages)
    assert sizes[0] == pytest.approx(before, rel=0.02)
    assert sizes[1] == pytest.approx(3_000, rel=0.02)
