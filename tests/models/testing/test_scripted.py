"""The scripted model: which turn is due, what goes wrong on request, and that it refuses what a provider refuses."""

from __future__ import annotations

from typing import Any

import pytest

from agentkit.core.contracts.errors import (
    AuthError,
    ContextOverflowError,
    FormatError,
    PermanentError,
    TransientError,
)
from agentkit.core.contracts.framing import frame
from agentkit.core.contracts.messages import Message, ToolCall, mark
from agentkit.core.contracts.offers import Breakpoint, ToolSchema
from agentkit.core.contracts.requests import ChatRequest
from agentkit.core.contracts.tokens import estimate_request_tokens
from agentkit.core.contracts.usage import Usage
from agentkit.models.testing import Received, ScriptedLLM

pytestmark = pytest.mark.anyio

WEATHER: dict[str, Any] = {
    "rules": [
        {"result": "error 42", "text": "That went wrong."},
        {"when": "weather", "turns": [{"calls": [{"name": "look", "arguments": {"city": "Rome"}}]}, "It is sunny."]},
    ],
    "turns": ["Hello.", "Goodbye."],
}


MARKS = (Breakpoint(1), Breakpoint(3))


def asking(*messages: Message | str, **more: Any) -> ChatRequest:
    return ChatRequest(tuple(Message("user", m) if isinstance(m, str) else m for m in messages), **more)


async def text(model: ScriptedLLM, *messages: Message | str, **more: Any) -> str:
    return (await model.chat(asking(*messages, **more))).text


# Which turn is due


async def test_turns_follow_one_another_where_no_rule_fits() -> None:
    model = ScriptedLLM(WEATHER)
    assert [await text(model, "Hi"), await text(model, "Hi")] == ["Hello.", "Goodbye."]
    with pytest.raises(PermanentError, match=r"at its end: `turns`, where no rule fits 'Hi', has 2 turns"):
        await text(model, "Hi")


async def test_last_turn_is_repeated_if_the_script_says_so() -> None:
    model = ScriptedLLM({"turns": ["a", "b"], "repeat": True})
    assert [await text(model, "x") for _ in range(4)] == ["a", "b", "b", "b"]


async def test_rule_goes_on_by_the_rounds_since_its_words_even_in_a_new_process() -> None:
    asked = Message("user", "How is the weather?")
    first = await ScriptedLLM(WEATHER).chat(asking(asked))
    (call,) = first.tool_calls
    assert (call.name, dict(call.arguments), first.finish_reason) == ("look", {"city": "Rome"}, "tool_calls")
    result = Message("tool", "20 degrees", "look", call.id)
    note = Message("user", frame("runtime-state", "the weather of the plan"))
    second = await ScriptedLLM(WEATHER).chat(asking(asked, first.message, result, note))
    assert (second.text, second.finish_reason) == ("It is sunny.", "stop")


async def test_rule_of_a_result_comes_before_one_of_older_words() -> None:
    model = ScriptedLLM(WEATHER)
    first = await model.chat(asking("weather"))
    result = Message("tool", "error 42", "look", first.tool_calls[0].id, is_error=True)
    assert await text(model, "weather", first.message, result) == "That went wrong."


async def test_words_of_the_runtime_fit_no_rule() -> None:
    model = ScriptedLLM(WEATHER)
    assert await text(model, Message("user", ["Hi", frame("runtime-note", "bad weather")])) == "Hello."


async def test_calls_of_different_requests_have_different_ids_and_the_same_ones_again() -> None:
    model = ScriptedLLM(WEATHER)
    ids = [(await model.chat(asking(words))).tool_calls[0].id for words in ("weather", "weather?", "weather")]
    assert ids[0] == ids[2] != ids[1]


async def test_f29_structured_requests_have_turns_of_their_own() -> None:
    refusing = ScriptedLLM(WEATHER)
    with pytest.raises(PermanentError, match="no `structured` answer"):
        await text(refusing, "weather", response_format={"type": "object"})
    model = ScriptedLLM({**WEATHER, "structured": {"rules": [{"when": "plan", "text": "{}"}], "turns": ['{"a": 1}']}})
    assert await text(model, "the plan", response_format={"type": "object"}) == "{}"
    assert await text(model, "weather", response_format={"type": "object"}) == '{"a": 1}'
    assert await text(model, "Hi") == "Hello."


# What it reports


async def test_usage_is_measured_unless_it_is_scripted() -> None:
    model = ScriptedLLM(["one", {"text": "two", "usage": {"input": 7, "output": 2, "cache_read": 5}}])
    tools = [ToolSchema("look", "Looks.", {"type": "object"})]
    asked = asking("x" * 400, tools=tools)
    measured = (await model.chat(asked)).usage
    assert measured == Usage(estimate_request_tokens(asked.messages, tools), 4)
    assert (await model.chat(asked)).usage == Usage(7, 2, cache_read_tokens=5)
    assert (await ScriptedLLM({"turns": "a", "usage": {"input": 1}}).chat(asked)).usage == Usage(1)


async def test_requests_are_noted_by_segment() -> None:
    noted: list[Received] = []
    model = ScriptedLLM({"turns": "ok", "repeat": True}, on_request=noted.append)
    system, summary = Message("system", "s"), mark(Message("user", "earlier"), "summary")
    later, state = Message("assistant", "so"), Message("user", "and?")

    async def digests(*messages: Message, marks: Any = MARKS) -> dict[str, str]:
        await model.chat(ChatRequest(messages, cache_hint=marks))
        return dict(noted[-1].digests)

    first = await digests(system, summary, later, state)
    moved = await digests(system, summary, later, Message("user", "12:01"))
    assert {name for name in first if first[name] != moved[name]} == {"volatile"}
    folded = await digests(system, mark(Message("user", "more"), "summary"), later, state)
    assert {name for name in first if first[name] != folded[name]} == {"summary"}
    assert "volatile" not in await digests(system, summary, later, state, marks=None)
    assert [one.outcome for one in noted] == ["answered"] * 4
    assert len(model.requests) == 4


# What goes wrong on request


@pytest.mark.parametrize(
    ("kind", "error"),
    [("transient", TransientError), ("permanent", PermanentError), ("auth", AuthError)],
)
async def test_error_is_raised_and_the_next_request_goes_on(kind: str, error: type[Exception]) -> None:
    model = ScriptedLLM([{"error": {"kind": kind, "message": "told"}}, "fine"])
    with pytest.raises(error, match="told"):
        await text(model, "x")
    assert await text(model, "x") == "fine"
    assert model.received[0].outcome == f"{kind}: told"


async def test_error_of_a_number_of_times_gives_way_to_its_turn() -> None:
    model = ScriptedLLM({"rules": [{"when": "x", "error": "transient", "times": 2, "text": "at last"}], "turns": "no"})
    for _ in range(2):
        with pytest.raises(TransientError):
            await text(model, "x")
    assert await text(model, "x") == "at last"


async def test_f30_overflow_names_a_window() -> None:
    model = ScriptedLLM({"turns": [{"error": {"kind": "overflow", "window": 900}}]})
    with pytest.raises(ContextOverflowError) as found:
        await text(model, "x")
    assert found.value.window == 900


async def test_f30_request_over_the_declared_window_is_refused() -> None:
    model = ScriptedLLM({"window": 100, "turns": "ok", "repeat": True})
    with pytest.raises(ContextOverflowError, match="the window of this model has 100") as found:
        await text(model, "x" * 1_000)
    assert found.value.window == 100
    assert model.received[0].outcome.startswith("ContextOverflowError")
    assert await text(model, "x") == "ok"


async def test_cut_stream_has_no_finish_reason() -> None:
    cut: dict[str, Any] = {"text": "a long answer", "cut": 6}
    model = ScriptedLLM([cut, {**cut, "error": "transient"}, cut])
    found = [delta async for delta in model.stream(asking("x"))]
    assert "".join(delta.text for delta in found) == "a long"
    assert all(delta.finish_reason is None and delta.usage is None for delta in found)
    broken = model.stream(asking("x"))
    assert (await anext(broken)).text == "a long"
    with pytest.raises(TransientError):
        await anext(broken)
    whole = await model.chat(asking("x"))
    assert (whole.text, whole.finish_reason, whole.partial) == ("a long", None, True)


async def test_malformed_arguments_come_as_they_are() -> None:
    model = ScriptedLLM([{"calls": [{"id": "given", "name": "look", "arguments": '{"city": '}]}])
    (call,) = (await model.chat(asking("x"))).tool_calls
    assert call == ToolCall("given", "look", '{"city": ')
    assert call.invalid


async def test_delay_is_slept_by_the_sleep_that_is_handed_in() -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    model = ScriptedLLM({"delay": 0.5, "turns": ["a", {"text": "b", "delay": 2}]}, sleep=sleep)
    assert [await text(model, "x"), await text(model, "x")] == ["a", "b"]
    assert slept == [0.5, 2]


async def test_finish_reason_may_be_scripted() -> None:
    assert (await ScriptedLLM([{"text": "a", "finish_reason": "length"}]).chat(asking("x"))).finish_reason == "length"


# Strictness


async def test_strict_model_refuses_what_a_provider_refuses() -> None:
    orphan = [Message("user", "x"), Message("tool", "r", "look", "c1")]
    for messages in (orphan, [Message("system", "s")], [Message("assistant", "hi"), Message("user", "x")]):
        with pytest.raises(PermanentError, match="400"):
            await text(ScriptedLLM("ok"), *messages)
    assert await text(ScriptedLLM("ok", strict=False), *orphan) == "ok"
    assert await text(ScriptedLLM({"turns": "ok", "strict": False}), *orphan) == "ok"


@pytest.mark.parametrize(
    ("script", "told"),
    [
        (3, "script must be a text or a mapping, not int"),
        ({"turn": "a"}, "script: turn is not known here; known are delay"),
        ({"turns": [{}]}, r"script\.turns\[0\] is empty"),
        ({"rules": {"when": "a"}}, r"script\.rules must be a list"),
        ({"rules": ["a"]}, r"script\.rules\[0\] must be a mapping"),
        ({"rules": [{"text": "a"}]}, r"script\.rules\[0\] needs `when` or `result`"),
        ({"rules": [{"when": "a"}]}, r"script\.rules\[0\] is empty"),
        ({"rules": [{"when": "a", "turns": []}]}, r"script\.rules\[0\] needs at least one turn"),
        ({"rules": [{"when": "a", "turns": ["b"], "text": "c"}]}, "text is not known here"),
        ([{"error": "broken"}], r"script\[0\]\.error: 'broken' is no kind of error; known are transient"),
        ([{"text": "a", "times": 2}], r"script\[0\]\.times says how often"),
        ([{"calls": [{"arguments": {}}]}], r"script\[0\]\.calls\[0\] needs the name of a tool"),
        ([{"calls": [{"name": "a", "arguments": 3}]}], "arguments must be a mapping, or a text"),
        ([{"text": "a", "delay": -1}], r"script\[0\]\.delay must be a number from 0"),
        ([{"text": "a", "cut": 1.5}], r"script\[0\]\.cut must be a number from 0, whole"),
        ({"strict": "yes"}, r"script\.strict must be true or false, not str"),
        ({"usage": 3}, r"script\.usage must be a mapping of tokens"),
        ({"structured": {"rules": [{"when": "a", "text": 3}]}}, r"script\.structured\.rules\[0\]\.text must be a text"),
    ],
)
def test_script_with_a_fault_is_refused_by_place(script: Any, told: str) -> None:
    with pytest.raises(FormatError, match=told):
        ScriptedLLM(script)
