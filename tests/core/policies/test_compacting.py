"""A context is shortened before any model call that it would be too long for, in the middle of a tool loop too."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.core.contracts.counting import TokenCounter
from agentkit.core.contracts.errors import MeterExceeded, OutputError
from agentkit.core.contracts.ports import Compactor, Ctx
from agentkit.core.contracts.tokens import measure
from agentkit.core.contracts.types import Breakpoint, ChatRequest, LLMResult, Message, ToolCall, ToolSchema, Usage
from agentkit.core.contracts.validity import check
from agentkit.core.policies import compaction
from agentkit.core.runtime import RunEvent
from agentkit.core.testing import FakeLLM, make_test_ctx
from agentkit.state.compaction import TruncationCompactor
from agentkit.state.context import CharClassTokenCounter, Layout, PrefixContext, WorkingContext
from agentkit.state.persistence import dehydrate, rehydrate

pytestmark = pytest.mark.anyio
CLOCK = Message("user", "It is noon.")


@dataclass
class Noting:
    """A compactor that notes what it was asked, and does what it is told."""

    does: Any = None
    asked: list[tuple[int, int]] = field(default_factory=list)
    counter: TokenCounter | None = None

    async def compact(
        self, messages: Sequence[Message], ctx: Ctx, /, *, counter: TokenCounter | None = None
    ) -> Sequence[Message]:
        self.asked.append((len(messages), measure(messages, counter)))
        self.counter = counter
        await asyncio.sleep(0)
        if isinstance(self.does, Exception):
            raise self.does
        return messages if self.does is None else self.does(messages)


def round_of(number: int, size: int = 400) -> list[Message]:
    call = ToolCall(f"c{number}", "read", {"n": number})
    return [
        Message("assistant", "", tool_calls=(call,)),
        Message("tool", "x" * size, name="read", tool_call_id=call.id),
    ]


def grown(rounds: int) -> WorkingContext:
    context = WorkingContext(PrefixContext("Be careful."), [Message("user", "first request")])
    for number in range(rounds):
        context.extend(round_of(number))
    return context


class House:
    """A run with a compactor, and what the model was sent."""

    def __init__(self, compactor: Compactor, **options: Any) -> None:
        self.llm, self.events = FakeLLM("ok", usage=Usage(0, 1)), list[RunEvent]()
        self.ctx = make_test_ctx(
            llm=self.llm, chat_middleware=[compaction(compactor, **options)], observer=self.events.append
        )
        self.meta: dict[str, Any] = {}

    async def ask(
        self, context: WorkingContext, *, tools: tuple[ToolSchema, ...] = (), volatile: Sequence[Message] = ()
    ) -> LLMResult:
        layout = context.segments(tools=tools, volatile=volatile)
        request = ChatRequest(tuple(layout.messages()), "m", tools or None, cache_hint=layout.breakpoints())
        self.meta = {"context": context}
        return await self.ctx.invoker.chat(request, self.ctx, meta=self.meta)

    @property
    def sent(self) -> tuple[Message, ...]:
        return self.llm.requests[-1].messages

    @property
    def told(self) -> list[str]:
        return [event.name for event in self.events]


async def test_c4_long_tool_loop_of_one_request_stays_below_the_threshold() -> None:
    """The threshold is checked before every call, not only when a user speaks."""
    house = House(TruncationCompactor(max_tokens=1_500, keep_recent=2))
    context = grown(0)
    for number in range(60):
        await house.ask(context)
        assert measure(house.sent) <= 1_500 / 0.9 + 20  # a compaction that gains less than a tenth is put off
        assert check(house.sent) == ()
        assert house.sent[0].content == "Be careful."
        assert house.sent[1].content == "first request"
        context.extend(round_of(number))
    assert house.told.count("compaction.done") >= 5


async def test_request_is_laid_out_anew_with_its_marks() -> None:
    house = House(TruncationCompactor(max_tokens=500, keep_recent=2))
    context = grown(12)
    tools = (ToolSchema("read"),)
    await house.ask(context, tools=tools, volatile=[CLOCK])
    assert list(house.sent) == [*context.assembled(), CLOCK]
    layout = house.meta["layout"]
    assert isinstance(layout, Layout)
    assert layout.tools
    assert house.llm.requests[-1].cache_hint == layout.breakpoints()
    assert all(isinstance(mark, Breakpoint) for mark in house.llm.requests[-1].cache_hint)
    assert context.version == 1
    context.record_usage(Usage(123, 1), layout=layout)
    assert context.count().reported == 123


async def test_caller_may_mark_the_new_layout_by_its_own_plan() -> None:
    house = House(TruncationCompactor(max_tokens=500, keep_recent=2))
    context = grown(12)
    layout, seen = context.segments(), list[Layout]()
    mine = Breakpoint(1, "1h")

    def marks(layout: Layout) -> tuple[Breakpoint, ...]:
        seen.append(layout)
        return (mine,)

    request = ChatRequest(tuple(layout.messages()), "m", cache_hint=layout.breakpoints())
    meta: dict[str, Any] = {"context": context, "marks": marks}
    await house.ctx.invoker.chat(request, house.ctx, meta=meta)
    assert house.llm.requests[-1].cache_hint == (mine,)
    assert seen == [meta["layout"]]


async def test_nothing_to_do_sends_the_very_request() -> None:
    compactor = Noting()
    house = House(compactor)
    context = grown(3)
    await house.ask(context, volatile=[CLOCK])
    assert list(house.sent) == [*context.assembled(), CLOCK]
    assert (context.version, "layout" in house.meta, compactor.asked[0][0]) == (0, False, 7)
    idle: list[Any] = [list, lambda messages: []]
    for compactor.does in idle:
        await house.ask(context)
        assert context.version == 0


async def test_call_without_a_context_passes() -> None:
    compactor = Noting()
    house = House(compactor)
    await house.ctx.invoker.chat(ChatRequest((Message("user", "x"),), "m"), house.ctx)
    assert compactor.asked == []


async def test_asked_from_a_size_on_by_what_the_provider_reported() -> None:
    compactor, context = Noting(), grown(2)
    house = House(compactor, at=5_000)
    await house.ask(context)
    assert compactor.asked == []
    context.record_usage(Usage(5_000, 1), layout=context.segments())
    await house.ask(context)
    assert len(compactor.asked) == 1


async def test_threshold_is_in_the_providers_tokens() -> None:
    """Where the estimate sees half of what the provider counts, the compactor sees it all; hidden tokens of tools do
    not make every message look larger without bound."""
    compactor, context = Noting(), grown(4)
    house = House(compactor)
    await house.ask(context)
    assert compactor.counter is context.token_counter
    plain, prefix = compactor.asked[-1][1], measure(context.prefix.as_messages())
    context.record_usage(Usage(2 * plain + prefix, 1), layout=context.segments())
    await house.ask(context)
    assert compactor.asked[-1][1] == 2 * plain
    context.record_usage(Usage(100 * plain, 1), layout=context.segments())
    await house.ask(context)
    assert compactor.asked[-1][1] == 4 * plain


async def test_messages_that_came_meanwhile_stay() -> None:
    context = grown(6)
    late = Message("user", "one more thing")

    def drop(messages: Sequence[Message]) -> list[Message]:
        context.append(late)
        return list(messages[-2:])

    house = House(Noting(drop))
    await house.ask(context)
    assert context.messages[-1] is late
    assert list(house.sent) == context.assembled()
    assert context.size() == 3


async def test_somebody_elses_rewrite_counts() -> None:
    context = grown(6)

    def beaten(messages: Sequence[Message]) -> list[Message]:
        context.rewrite(len(messages), [Message("user", "theirs")], version=context.version)
        return [Message("user", "ours")]

    house = House(Noting(beaten))
    await house.ask(context)
    assert [m.content for m in house.sent] == ["Be careful.", "theirs"]
    assert house.told == ["compaction.failed"]


async def test_failure_leaves_the_context_and_the_call_alone() -> None:
    """C11: whole or not at all; three in a row and it rests, also when the context is resumed elsewhere."""
    compactor, context = Noting(OutputError("cut off")), grown(10)
    house, before = House(compactor), None
    for _ in range(5):
        before = context.assembled()
        assert (await house.ask(context)).text == "ok"
        assert (context.assembled(), context.version) == (before, 0)
    assert len(compactor.asked) == 3
    assert house.told[-1] == "compaction.resting"
    resumed, *_ = rehydrate(dehydrate(context, Usage(), 1))
    await House(compactor).ask(resumed)
    assert len(compactor.asked) == 3
    resumed.extend(round_of(99))
    compactor.does = lambda messages: list(messages[-2:])
    await House(compactor).ask(resumed)
    assert len(compactor.asked) == 4
    assert resumed.policies == {}


async def test_result_that_is_no_smaller_is_not_applied() -> None:
    """Each rewrite gives up what the provider's cache holds, so one that gains nothing only costs."""
    context = grown(4)
    house = House(Noting(lambda messages: [Message("user", "y"), *messages]))
    for _ in range(4):
        await house.ask(context)
    assert context.version == 0
    assert house.told == ["compaction.failed"] * 3 + ["compaction.resting"]
    assert [event.data.get("error") for event in house.events[:3]] == ["no_progress"] * 3


@pytest.mark.parametrize("fault", [MeterExceeded("used up"), ValueError("a bug")], ids=lambda f: type(f).__name__)
async def test_limits_and_bugs_are_not_hidden(fault: Exception) -> None:
    house = House(Noting(fault))
    with pytest.raises(type(fault)):
        await house.ask(grown(3))
    assert house.llm.calls == 0


async def test_request_that_shows_something_else_is_left_alone() -> None:
    compactor, context = Noting(lambda messages: []), grown(3)
    house = House(compactor)
    foreign = ChatRequest((Message("user", "something else"),), "m")
    await house.ctx.invoker.chat(foreign, house.ctx, meta={"context": context})
    assert house.sent == foreign.messages
    assert house.told == ["compaction.unaligned"]
    await house.ctx.invoker.chat(foreign, house.ctx, meta={"context": WorkingContext()})
    assert house.told == ["compaction.unaligned"]


@given(st.integers(0, 30), st.integers(100, 3_000), st.integers(0, 6), st.integers(0, 2))
async def test_what_is_sent_is_the_context_and_valid(rounds: int, most: int, keep: int, volatile: int) -> None:
    house = House(TruncationCompactor(max_tokens=most, keep_recent=keep))
    context = grown(rounds)
    context.token_counter = CharClassTokenCounter()
    prefix = context.prefix
    await house.ask(context, volatile=[CLOCK] * volatile)
    assert list(house.sent) == [*context.assembled(), *[CLOCK] * volatile]
    assert context.prefix is prefix
    assert check(house.sent[: len(house.sent) - volatile]) == ()


@pytest.mark.parametrize(
    ("arguments", "options", "error"),
    [(("no compactor",), {}, TypeError), ((Noting(),), {"at": 1.5}, TypeError), ((Noting(),), {"at": -1}, ValueError)],
    ids=str,
)
def test_bad_arguments_are_refused(arguments: Any, options: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        compaction(*arguments, **options)
