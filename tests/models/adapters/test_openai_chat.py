"""OpenAI's chat completions through the real client: a fake provider that refuses what the real one does, and canned
responses where an endpoint has ways of its own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from agentkit.core.contracts.errors import (
    AuthError,
    ContextOverflowError,
    EmptyRequestError,
    PermanentError,
    TransientError,
)
from agentkit.core.contracts.requests import Delta
from agentkit.core.contracts.types import (
    DocumentBlock,
    ImageBlock,
    Message,
    NativeBlock,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolSchema,
)
from agentkit.core.contracts.usage import Usage
from agentkit.models.adapters.openai_chat import DIALECTS, OpenAIChatLLM
from agentkit.models.testing.provider import Answer, AnswerCall, FakeProvider, Gate, WireFault
from tests.models.adapters.served import (
    ASK,
    LOOK,
    Canned,
    Wire,
    answered,
    asking,
    chat_llm,
    events,
    gathered,
    is_continued,
)

pytestmark = pytest.mark.anyio

SYSTEM, HI = Message("system", "be brief"), Message("user", "hi")
OLD, NEW = "gpt-4o", "gpt-5.6-sol"


def completion(message: dict[str, Any], finish: str | None = "stop", **rest: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    return {"id": "c1", "model": "m", "choices": [choice], **rest}


def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"id": "c1", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


@pytest.fixture(scope="module")
def provider() -> Iterator[FakeProvider]:
    def answer(exchange: Any) -> Answer:
        last = exchange.body["messages"][-1]
        if last["role"] == "tool":
            return Answer("Done.")
        calls = (AnswerCall("look", '{"at":  "sea"}'), AnswerCall("ask"))
        return Answer("Looking.", calls) if exchange.body.get("tools") else Answer("Hello there.")

    with FakeProvider(answer) as one:
        yield one


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("model", [OLD, NEW])
async def test_answer_goes_back_byte_for_byte(provider: FakeProvider, model: str, stream: bool) -> None:
    """K4: what was sent is the beginning of what is sent next, the model's own argument text included."""
    llm = chat_llm(provider, model=model)
    tools = (LOOK, ASK)
    first = asking(SYSTEM, HI, tools=tools)
    result = await answered(llm, first, stream=stream)
    one = provider.last
    assert (result.text, result.finish_reason) == ("Looking.", "tool_calls")
    assert result.tool_calls[0].wire_arguments == '{"at":  "sea"}'
    assert (result.usage.prompt_tokens, result.usage.output_tokens) == (one.spent.prompt, one.spent.output)  # type: ignore[union-attr]
    results = [Message("tool", "sun", call.name, call.id) for call in result.tool_calls]
    second = await answered(llm, asking(SYSTEM, HI, result.message, *results, tools=tools), stream=stream)
    sent = provider.last.body
    assert second.text == "Done."
    assert second.finish_reason == "stop"
    assert is_continued(one.body["messages"], sent["messages"])
    assert json.dumps(one.body["tools"]) == json.dumps(sent["tools"])
    assert sent["messages"][2]["tool_calls"][0]["function"]["arguments"] == '{"at":  "sea"}'
    start = provider.last.raw.find(b'"messages"')
    shared = one.raw[: one.raw.find(b'],"tools"')]
    assert start > 0
    assert provider.last.raw.startswith(shared)


async def test_streamed_and_whole_answers_are_equal(provider: FakeProvider) -> None:
    llm, request = chat_llm(provider, model=OLD), asking(HI)
    whole, streamed = [await answered(llm, request, stream=s) for s in (False, True)]
    assert whole == streamed
    assert whole.model == OLD
    assert whole.usage.cost_usd > 0
    assert whole.meta["openai"]["finish_reason"] == "stop"
    assert whole.meta["openai"]["usage"]


async def test_pictures_of_a_result_follow_it_in_a_user_message(provider: FakeProvider) -> None:
    """P3, and the rule that only user messages hold pictures."""
    call = Message("assistant", "", tool_calls=[ToolCall("a", "look")])
    shot = Message("tool", [TextBlock("a shot"), ImageBlock(b"\x89PNG")], "look", "a")
    page = DocumentBlock(b"%PDF-1", title="page.pdf")
    await chat_llm(provider, model=OLD).chat(asking(Message("user", [TextBlock("read"), page]), call, shot))
    sent = provider.last.body["messages"]
    assert sent[0]["content"][1]["file"]["filename"] == "page.pdf"
    assert sent[2] == {"role": "tool", "tool_call_id": "a", "content": "a shot"}
    assert sent[3]["role"] == "user"
    assert sent[3]["content"][1]["type"] == "image_url"


async def test_interrupted_call_has_a_result_and_the_answer_says_so(provider: FakeProvider) -> None:
    """P4, G3: repaired for the provider, and reported."""
    call = Message("assistant", "", tool_calls=[ToolCall("a", "look")])
    result = await chat_llm(provider, model=OLD).chat(asking(HI, call, Message("user", "and?")))
    assert provider.last.body["messages"][2]["role"] == "tool"
    assert result.meta["repaired"] == (("unanswered", 1),)


async def test_refused_parameters_are_left_out_and_named(provider: FakeProvider) -> None:
    llm = chat_llm(provider)
    options = {"thinking": {"type": "enabled", "budget_tokens": 9}, "effort": "low", "cache_key": "k1"}
    result = await llm.chat(asking(SYSTEM, HI, model="gpt-5.6-sol", temperature=0.0, max_tokens=50, options=options))
    sent = provider.last.body
    assert result.meta["dropped"] == ("temperature", "thinking")
    assert "temperature" not in sent
    assert "thinking" not in sent
    assert "max_tokens" not in sent
    assert (sent["reasoning_effort"], sent["prompt_cache_key"], sent["max_completion_tokens"]) == ("low", "k1", 50)
    assert sent["messages"][0]["role"] == "developer"
    await llm.chat(asking(SYSTEM, HI, model=OLD, temperature=0.0))
    sent = provider.last.body
    assert sent["temperature"] == 0.0
    assert sent["messages"][0]["role"] == "system"
    assert "prompt_cache_options" not in sent


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ("auto", "auto"),
        ("any", "required"),
        ("required", "required"),
        ("none", "none"),
        ({"name": "look"}, {"type": "function", "function": {"name": "look"}}),
        ({"type": "tool", "name": "look"}, {"type": "function", "function": {"name": "look"}}),
    ],
)
async def test_tool_choice(provider: FakeProvider, given: Any, sent: Any) -> None:
    await chat_llm(provider, model=OLD).chat(asking(HI, tools=(LOOK,), tool_choice=given))
    assert provider.last.body["tool_choice"] == sent


async def test_structured_answer_is_parsed() -> None:
    schema = {"title": "Sky", "type": "object", "properties": {"blue": {"type": "boolean"}}}
    with FakeProvider(['{"blue": true}', "no JSON", "{}"]) as provider:
        llm = chat_llm(provider, model=OLD)
        first = await llm.chat(asking(HI, response_format=schema))
        assert first.parsed == {"blue": True}
        form = {"type": "json_schema", "json_schema": {"name": "Sky", "schema": schema}}
        assert provider.last.body["response_format"] == form
        assert (await llm.chat(asking(HI, response_format=schema))).parsed is None
        assert (await llm.chat(asking(Message("user", "{}")))).parsed is None


async def test_endpoint_without_schemas_is_asked_for_json_and_the_answer_says_so() -> None:
    wire = Wire(completion({"content": "{}"}))
    llm = OpenAIChatLLM(wire.openai(), model="deepseek-v4-flash", provider="deepseek")
    result = await llm.chat(asking(HI, response_format={"type": "object"}))
    assert wire.bodies[0]["response_format"] == {"type": "json_object"}
    assert result.meta["dropped"] == ("response_format",)
    assert result.parsed == {}


# Faults


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (WireFault("rate_limit", retry_after=7), TransientError),
        (WireFault("overloaded"), TransientError),
        (WireFault("server"), TransientError),
        (WireFault("auth"), AuthError),
        (WireFault("billing"), PermanentError),
        (WireFault(cut_after=0), TransientError),
    ],
    ids=["rate_limit", "overloaded", "server", "auth", "billing", "no answer"],
)
async def test_errors_are_of_one_taxonomy_and_nothing_is_retried(
    fault: WireFault, error: type[Exception], stream: bool
) -> None:
    with FakeProvider(faults=[fault]) as provider:
        with pytest.raises(error) as caught:
            await answered(chat_llm(provider, model=OLD), asking(HI), stream=stream)
        assert len(provider.requests) == 1
    if fault.retry_after:
        assert caught.value.retry_after == 7  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "fault", [WireFault(cut_after=3), WireFault("server", error_after=3), WireFault(malformed_after=3)],
    ids=["cut", "error inside", "no JSON"],
)  # fmt: skip
async def test_broken_stream_is_a_fault_and_no_half_message(fault: WireFault) -> None:
    """W9: whole messages only."""
    with FakeProvider(["A long answer in many pieces."], faults=[fault]) as provider:
        deltas: list[Delta] = []
        with pytest.raises(TransientError):
            await gathered(chat_llm(provider, model=OLD), asking(HI), deltas)
    assert deltas
    assert all(d.finish_reason is None and d.usage is None for d in deltas)


async def test_stream_that_ends_early_without_an_error_is_cut_off() -> None:
    wire = Wire(Canned(events(chunk({"content": "half"}), done=False)))
    with pytest.raises(TransientError, match="without a finish reason"):
        await answered(OpenAIChatLLM(wire.openai(), model="m"), asking(HI), stream=True)


async def test_window_is_learnt_from_the_refusal() -> None:
    with FakeProvider(windows={OLD: 1_000}) as provider, pytest.raises(ContextOverflowError) as caught:
        await chat_llm(provider, model=OLD).chat(asking(Message("user", "word " * 4_000)))
    assert caught.value.window == 1_000


async def test_closed_stream_lets_go_of_the_connection() -> None:
    body = Canned(events(chunk({"content": "one"}), done=False), wait=asyncio.Event().wait)
    stream = OpenAIChatLLM(Wire(body).openai(), model="m").stream(asking(HI))
    assert (await anext(stream)).text == "one"
    await stream.aclose()
    assert body.closed


async def test_cancelled_stream_lets_go_of_the_connection() -> None:
    gate = Gate()
    with FakeProvider(["Some words."], faults=[WireFault(pause=gate, pause_after=1)]) as provider:
        llm = chat_llm(provider, model=OLD)
        task = asyncio.create_task(answered(llm, asking(HI), stream=True))
        await asyncio.to_thread(gate.reached.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        gate.open()


async def test_page_in_place_of_an_answer_is_said() -> None:
    wire = Wire([1, 2])
    with pytest.raises(PermanentError, match="base URL"):
        await OpenAIChatLLM(wire.openai(), model="m").chat(asking(HI))


async def test_nothing_to_ask_is_refused_before_the_network() -> None:
    wire = Wire({})
    with pytest.raises(EmptyRequestError):
        await OpenAIChatLLM(wire.openai(), model="m").chat(asking(SYSTEM))
    with pytest.raises(ValueError, match="no model"):
        await OpenAIChatLLM(wire.openai()).chat(asking(HI))
    assert not wire.raw


# Dialects


def test_unknown_provider_is_named_with_those_that_are_known() -> None:
    with pytest.raises(ValueError, match="unknown provider 'acme'; known are openai, azure, deepseek"):
        OpenAIChatLLM(Wire({}).openai(), provider="acme")


@pytest.mark.parametrize("provider", list(DIALECTS))
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_every_dialect_gets_through_a_round(provider: str, stream: bool) -> None:
    call = {"index": 0, "id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    told = {"prompt_tokens": 30, "completion_tokens": 5}
    if stream:
        wire = Wire(Canned(events(chunk({"content": "x", "tool_calls": [call]}, "tool_calls"), {"usage": told})))
    else:
        wire = Wire(completion({"content": "x", "tool_calls": [call]}, "tool_calls", usage=told))
    llm = OpenAIChatLLM(wire.openai(), model="some-model", provider=provider)
    result = await answered(llm, asking(SYSTEM, HI, tools=(LOOK,), max_tokens=9), stream=stream)
    assert result.tool_calls == (ToolCall("a", "look"),)
    assert result.usage.output_tokens == 5
    sent, dialect = wire.bodies[0], DIALECTS[provider]
    assert sent[dialect.limit] == 9
    assert sent["messages"][0] == {"role": "system", "content": "be brief"}
    assert ("stream_options" in sent) == (stream and dialect.stream_usage)
    assert provider in result.meta


@pytest.mark.parametrize(
    ("provider", "raw", "usage"),
    [
        (
            "deepseek",
            {
                "prompt_tokens": 100,
                "prompt_cache_hit_tokens": 64,
                "prompt_cache_miss_tokens": 36,
                "completion_tokens": 9,
            },
            Usage(36, 9, cache_read_tokens=64),
        ),
        (
            "xai",
            {
                "prompt_tokens": 100,
                "prompt_tokens_details": {"cached_tokens": 60},
                "completion_tokens": 9,
                "completion_tokens_details": {"reasoning_tokens": 20},
            },
            Usage(40, 29, cache_read_tokens=60, reasoning_tokens=20),
        ),
        (
            "openrouter",
            {
                "prompt_tokens": 100,
                "prompt_tokens_details": {"cached_tokens": 60},
                "completion_tokens": 9,
                "cost": 0.25,
            },
            Usage(40, 9, 0.25, cache_read_tokens=60),
        ),
        ("vllm", {"prompt_tokens": 100, "completion_tokens": 9}, Usage(100, 9)),
    ],
)
async def test_usage_is_read_as_the_provider_means_it(provider: str, raw: dict[str, Any], usage: Usage) -> None:
    """I4."""
    wire = Wire(completion({"content": "x"}, usage=raw))
    result = await OpenAIChatLLM(wire.openai(), model="m", provider=provider).chat(asking(HI))
    assert result.usage == usage


async def test_timings_of_llama_cpp_are_its_usage() -> None:
    timings = {"cache_n": 442, "prompt_n": 1, "predicted_n": 8}
    told = completion({"content": "x"}, usage={"prompt_tokens": 443, "completion_tokens": 8}, timings=timings)
    result = await OpenAIChatLLM(Wire(told).openai(), model="m", provider="llama.cpp").chat(asking(HI))
    assert result.usage == Usage(1, 8, cache_read_tokens=442)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(
    ("provider", "field"), [("deepseek", "reasoning_content"), ("vllm", "reasoning"), ("openai", "")]
)
async def test_reasoning_goes_back_where_the_endpoint_wants_it(provider: str, field: str, stream: bool) -> None:
    """E8."""
    said = field or "reasoning_content"
    if stream:
        wire = Wire(Canned(events(chunk({said: "let "}), chunk({said: "me"}), chunk({"content": "x"}, "stop"))))
    else:
        wire = Wire(completion({said: "let me", "content": "x"}))
    llm = OpenAIChatLLM(wire.openai(), model="m", provider=provider)
    result = await answered(llm, asking(HI), stream=stream)
    assert result.blocks == (ThinkingBlock("let me"), TextBlock("x"))
    back = llm.body(asking(HI, result.message, HI))["messages"][1]
    assert back == {"role": "assistant", "content": "x", **({field: "let me"} if field else {})}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_reasoning_details_of_openrouter_go_back_verbatim(stream: bool) -> None:
    """E8."""
    whole = [{"type": "reasoning.text", "text": "let me", "signature": "s", "index": 0}]
    first = {"type": "reasoning.text", "text": "let ", "index": 0}
    rest = {"type": "reasoning.text", "text": "me", "signature": "s", "index": 0}
    if stream:
        pieces = [
            chunk({"reasoning_details": [first]}),
            chunk({"reasoning_details": [rest]}),
            chunk({"content": "x"}, "stop"),
        ]
        wire = Wire(Canned(events(*pieces)))
    else:
        wire = Wire(completion({"content": "x", "reasoning_details": whole}))
    llm = OpenAIChatLLM(wire.openai(), model="anthropic/claude-sonnet-4.6", provider="openrouter")
    result = await answered(llm, asking(HI), stream=stream)
    back = llm.body(asking(HI, result.message, HI))["messages"][1]
    assert back["reasoning_details"] == whole


async def test_refusal_is_an_answer_of_its_own() -> None:
    wire = Wire(completion({"content": None, "refusal": "I will not."}))
    result = await OpenAIChatLLM(wire.openai(), model="m").chat(asking(HI))
    assert (result.text, result.finish_reason) == ("", "refusal")
    assert result.blocks == (NativeBlock("openai", {"type": "refusal", "refusal": "I will not."}),)


async def test_calls_of_free_text_and_fields_beside_a_call_go_back() -> None:
    calls = [
        {"id": "a", "type": "custom", "custom": {"name": "run", "input": "1 + 1"}},
        {"id": "b", "type": "function", "function": {"name": "f", "arguments": "{}"}, "extra_content": {"google": {}}},
    ]
    wire = Wire(completion({"content": None, "tool_calls": calls}, "stop"))
    llm = OpenAIChatLLM(wire.openai(), model="m", provider="compatible")
    result = await llm.chat(asking(HI))
    assert result.finish_reason == "tool_calls"
    results = [Message("tool", "2", None, name) for name in "ab"]
    assert llm.body(asking(HI, result.message, *results))["messages"][1]["tool_calls"] == calls
    other = OpenAIChatLLM(wire.openai(), model="m").body(asking(HI, result.message, *results))
    assert [list(call) for call in other["messages"][1]["tool_calls"]] == [
        ["id", "type", name] for name in ("custom", "function")
    ]


async def test_error_in_place_of_an_answer_is_raised() -> None:
    """OpenRouter answers 200 with an error inside."""
    answers: list[Any] = [{"error": {"code": 429, "message": "slow down"}}, {"choices": []}]
    for told in answers:
        with pytest.raises(TransientError):
            await OpenAIChatLLM(Wire(told).openai(), model="m", provider="openrouter").chat(asking(HI))


async def test_thinking_among_the_parts_of_mistral() -> None:
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "x"}]
    whole = await OpenAIChatLLM(Wire(completion({"content": parts})).openai(), model="m", provider="mistral").chat(
        asking(HI)
    )
    wire = Wire(Canned(events(chunk({"content": parts[:1]}), chunk({"content": "x"}, "stop"))))
    streamed = await answered(OpenAIChatLLM(wire.openai(), model="m", provider="mistral"), asking(HI), stream=True)
    assert whole.blocks == streamed.blocks == (ThinkingBlock("hm"), TextBlock("x"))


def test_ids_of_other_models_are_short_enough_for_mistral() -> None:
    """P9: the pair stays a pair, the same one each time; its own ids stay as they are."""
    calls = [ToolCall("toolu_01WQTgms8WseEcBf9bXFjfJN", "look"), ToolCall("abcDEF123", "look")]
    results = [Message("tool", "x", "look", call.id) for call in calls]
    request = asking(HI, Message("assistant", "", tool_calls=calls), *results)
    sent, again = [
        OpenAIChatLLM(Wire({}).openai(), model="m", provider="mistral").body(request)["messages"] for _ in range(2)
    ]
    ids = [call["id"] for call in sent[1]["tool_calls"]]
    assert [message["tool_call_id"] for message in sent[2:]] == ids
    assert [len(one) for one in ids] == [9, 9]
    assert ids[1] == "abcDEF123"
    assert sent == again


async def test_tools_of_the_provider_stand_behind_ones_own_and_strict_is_said() -> None:
    """K2."""
    wire = Wire(completion({"content": "x"}))
    llm = OpenAIChatLLM(wire.openai(), model="m", strict_tools=True)
    own = {"type": "custom", "custom": {"name": "run"}}
    await llm.chat(asking(HI, tools=(LOOK, ASK), options={"tools": [own]}))
    await llm.chat(asking(HI, tools=(ASK, LOOK), options={"tools": [own]}))
    first, second = wire.raw
    assert first == second
    assert [tool["type"] for tool in wire.bodies[0]["tools"]] == ["function", "function", "custom"]
    assert all(tool["function"]["strict"] for tool in wire.bodies[0]["tools"][:2])
    twice = (LOOK, ToolSchema("look"))
    with pytest.raises(ValueError, match="two tools are named 'look'"):
        await llm.chat(asking(HI, tools=twice))
