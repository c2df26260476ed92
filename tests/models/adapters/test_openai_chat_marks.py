"""Cache marks on both of OpenAI's wires: where they stand, and what the provider's cache makes of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agentkit.core.contracts.offers import Breakpoint
from agentkit.core.contracts.requests import ChatRequest
from agentkit.core.contracts.types import ImageBlock, Message, TextBlock, ToolCall
from agentkit.models.adapters.openai_chat import OpenAIChatLLM
from agentkit.models.adapters.openai_marks import MARKS, reasons
from agentkit.models.adapters.openai_responses import OpenAIResponsesLLM
from agentkit.models.testing.provider import FakeProvider
from agentkit.state.context import Layout, PrefixContext, WorkingContext
from tests.models.adapters.served import LOOK, Wire, asking, chat_llm, responses_llm

pytestmark = pytest.mark.anyio

MODEL = "gpt-5.6-sol"
SYSTEM, HI = Message("system", "rule " * 1_200), Message("user", "hi")
makers = pytest.mark.parametrize("make", [chat_llm, responses_llm], ids=["chat", "responses"])
plain = pytest.mark.parametrize("make", [OpenAIChatLLM, OpenAIResponsesLLM], ids=["chat", "responses"])


@pytest.fixture
def provider() -> Iterator[FakeProvider]:
    with FakeProvider(clock=lambda: 0.0) as one:
        yield one


def turns(count: int) -> list[Message]:
    """Turns of a question, a call and its result."""
    found: list[Message] = []
    for at in range(count):
        found.append(Message("user", f"question {at} " * 20))
        found.append(Message("assistant", "", tool_calls=[ToolCall(f"c{at}", "look", {"at": at})]))
        found.append(Message("tool", f"result {at} " * 20, "look", f"c{at}"))
        found.append(Message("assistant", f"answer {at} " * 5))
    return found


def asked(context: WorkingContext, clock: str, previous: Layout | None) -> tuple[ChatRequest, Layout]:
    layout = context.segments(volatile=[Message("user", f"clock {clock}")])
    hint = layout.breakpoints(previous=previous)
    request = asking(*layout.messages(), model=MODEL, cache_hint=hint, prefix=len(context.prefix.rendered))
    return request, layout


def marked(body: dict[str, Any]) -> list[int]:
    """Which messages or items carry a mark."""
    given = body.get("messages") or body["input"]
    return [at for at, one in enumerate(given) if "prompt_cache_breakpoint" in json.dumps(one)]


@makers
@pytest.mark.parametrize("restarted", [False, True], ids=["carried on", "after a restart"])
async def test_each_request_reads_what_the_one_before_sent(
    make: Callable[..., Any], restarted: bool, provider: FakeProvider
) -> None:
    """K5, o7: volatile text is neither written nor in the way; a process that knows no earlier layout reads as much."""
    context, llm, previous = WorkingContext(PrefixContext(SYSTEM.content)), make(provider), None
    kept = 0
    for at, message in enumerate(turns(4)):
        context.append(message)
        if message.role == "assistant":
            continue
        request, layout = asked(context, f"12:{at:02}", previous)
        await (make(provider) if restarted else llm).chat(request)
        bill = provider.last.bill
        assert bill.read == kept
        assert bill.fresh < 16  # the clock
        kept = bill.read + bill.write
        previous = None if restarted else layout
    assert kept > 1_024


@makers
async def test_edit_in_the_middle_is_read_up_to_the_request_in_front_of_it(
    make: Callable[..., Any], provider: FakeProvider
) -> None:
    """The marks of earlier requests stay, as places to look up: masking an old result costs what is behind it alone."""
    context, llm, previous = WorkingContext(PrefixContext(SYSTEM.content)), make(provider), None
    history = turns(6)
    for message in history:
        context.append(message)
        if message.role != "assistant":
            request, previous = asked(context, "x", previous)
            await llm.chat(request)
    sizes = [one.bill.read + one.bill.write for one in provider.requests]
    cleared = Message("tool", "[cleared]", "look", "c3")
    masked = WorkingContext(context.prefix, [*history[:14], cleared, *history[15:-1]])
    request, _ = asked(masked, "x", previous)
    await llm.chat(request)
    # The seventh request ended with the fourth question, the next one with its result.
    assert provider.last.bill.read == sizes[6]


@plain
def test_marks_stand_where_the_plan_and_earlier_requests_end(make: Callable[..., Any]) -> None:
    llm, history = make(Wire({}).openai()), turns(2)
    messages = (SYSTEM, *history, Message("user", "now"), Message("user", "clock"))
    hint = (Breakpoint(1), Breakpoint(10))
    body = llm.body(asking(*messages, model=MODEL, cache_hint=hint))
    assert marked(body) == [0, 1, 3, 5, 7, 9]
    assert body["prompt_cache_options"] == {"mode": "explicit"}
    assert "clock" in json.dumps((body.get("messages") or body["input"])[-1])


@plain
def test_no_more_marks_than_are_looked_up_and_the_plan_comes_first(make: Callable[..., Any]) -> None:
    """K3."""
    llm, history = make(Wire({}).openai()), turns(60)
    messages = (SYSTEM, *history, HI)
    found = marked(llm.body(asking(*messages, model=MODEL, cache_hint=(Breakpoint(1), Breakpoint(len(messages))))))
    assert len(found) == MARKS
    assert found[0] == 0 and found[-1] == len(messages) - 1  # noqa: PT018
    assert found[1:] == sorted(found[1:])


@plain
@pytest.mark.parametrize(("hint", "places"), [(None, []), (False, []), (True, [0]), ((), [])])
def test_without_a_plan_the_prefix_alone_is_marked_and_only_if_asked(
    make: Callable[..., Any], hint: Any, places: list[int]
) -> None:
    llm = make(Wire({}).openai())
    body = llm.body(asking(SYSTEM, HI, *turns(1)[1:], HI, model=MODEL, cache_hint=hint))
    assert marked(body) == places
    assert body["prompt_cache_options"] == {"mode": "explicit"}


@plain
@pytest.mark.parametrize("model", ["gpt-5.5", "gpt-4o", "o3", "some-model"])
def test_other_models_get_no_marks(make: Callable[..., Any], model: str) -> None:
    body = make(Wire({}).openai()).body(asking(SYSTEM, HI, model=model, cache_hint=(Breakpoint(1), Breakpoint(2))))
    assert marked(body) == []
    assert "prompt_cache_options" not in body


@plain
def test_options_of_the_cache_are_added_to_the_mode(make: Callable[..., Any]) -> None:
    options = {"prompt_cache_options": {"comparison_response_id": "r1"}}
    body = make(Wire({}).openai()).body(asking(SYSTEM, HI, model=MODEL, options=options))
    assert body["prompt_cache_options"] == {"mode": "explicit", "comparison_response_id": "r1"}


def test_long_lifetime_is_for_responses_alone() -> None:
    request = asking(SYSTEM, HI, model=MODEL, cache_hint=(Breakpoint(1, "1h"), Breakpoint(2, "5m")))
    messages = OpenAIChatLLM(Wire({}).openai()).body(request)["messages"]
    assert [m["content"][-1]["prompt_cache_breakpoint"] for m in messages] == [{"mode": "explicit"}] * 2
    items = OpenAIResponsesLLM(Wire({}).openai()).body(request)["input"]
    found = [item["content"][-1]["prompt_cache_breakpoint"] for item in items]
    assert found == [{"mode": "explicit", "ttl": "12h"}, {"mode": "explicit"}]


@plain
def test_mark_changes_no_other_byte(make: Callable[..., Any]) -> None:
    """K5: with the marks taken out, a marked and an unmarked body are equal."""
    llm = make(Wire({}).openai())
    shot = Message("tool", [TextBlock("a shot"), ImageBlock(b"\x89PNG")], "look", "c0")
    messages = (SYSTEM, *turns(1)[:2], shot, HI)
    bare, full = [
        json.dumps(llm.body(asking(*messages, model=MODEL, tools=(LOOK,), cache_hint=hint)))
        for hint in (None, (Breakpoint(1), Breakpoint(4), Breakpoint(5)))
    ]
    assert full.count("prompt_cache_breakpoint") == 4
    assert full.replace(', "prompt_cache_breakpoint": {"mode": "explicit"}', "") == bare


@plain
def test_plan_that_ends_on_a_turn_of_calls_marks_what_is_in_front(make: Callable[..., Any]) -> None:
    llm = make(Wire({}).openai())
    call = Message("assistant", "", tool_calls=[ToolCall("a", "look")])
    result = Message("tool", "sun", "look", "a")
    body = llm.body(asking(SYSTEM, HI, call, result, model=MODEL, cache_hint=(Breakpoint(1), Breakpoint(3))))
    assert marked(body) == [0, 1]


def test_claude_behind_openrouter_gets_its_own_marks() -> None:
    llm = OpenAIChatLLM(Wire({}).openai(), provider="openrouter", model="anthropic/claude-sonnet-4.6")
    history = turns(3)
    hint = (Breakpoint(1, "1h"), Breakpoint(9), Breakpoint(13))
    body = llm.body(asking(SYSTEM, *history, model=None, cache_hint=hint))
    found = [m["content"][-1].get("cache_control") for m in body["messages"] if isinstance(m["content"], list)]
    assert found[0] == {"type": "ephemeral", "ttl": "1h"}
    assert [one for one in found if one] == [found[0], {"type": "ephemeral"}, {"type": "ephemeral"}]
    assert "prompt_cache_options" not in body


@pytest.mark.parametrize(
    ("model", "expected"),
    [("o3-mini", True), ("gpt-5", True), ("openai/gpt-6.1-sol", True), ("gpt-5-chat-latest", False), ("gpt-4o", False)],
)
def test_reasoning_models_are_known_by_name(model: str, expected: bool) -> None:
    assert reasons(model) is expected
