"""OpenAI's responses through the real client: a fake provider that refuses what the real one does, and canned responses
for items that it does not give out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from agentkit.core.contracts.errors import AuthError, ContextOverflowError, PermanentError, TransientError
from agentkit.core.contracts.requests import Delta
from agentkit.core.contracts.types import (
    DocumentBlock,
    ImageBlock,
    Message,
    NativeBlock,
    TextBlock,
    ToolCall,
)
from agentkit.core.contracts.usage import Usage
from agentkit.models.adapters.openai_responses import OpenAIResponsesLLM
from agentkit.models.testing.provider import Answer, AnswerCall, FakeProvider, WireFault
from tests.models.adapters.served import (
    ASK,
    LOOK,
    Canned,
    Wire,
    answered,
    asking,
    events,
    gathered,
    is_continued,
    responses_llm,
)

pytestmark = pytest.mark.anyio

SYSTEM, HI = Message("system", "be brief"), Message("user", "hi")
MODEL = "gpt-5"
whole_and_stream = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])

REASONING: dict[str, Any] = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "sealed"}
SAID: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "status": "completed",
    "role": "assistant",
    "phase": "final_answer",
    "content": [{"type": "output_text", "annotations": [{"type": "url_citation"}], "logprobs": [], "text": "Sun."}],
}
CALLED: dict[str, Any] = {
    "id": "fc_1",
    "type": "function_call",
    "status": "completed",
    "arguments": '{"at":  "sea"}',
    "call_id": "call_1",
    "name": "look",
}


def response(*output: Any, status: str = "completed", **rest: Any) -> dict[str, Any]:
    usage = {"input_tokens": 30, "output_tokens": 5}
    return {"id": "r1", "status": status, "model": "m", "output": list(output), "usage": usage, **rest}


def served(whole: dict[str, Any], *, stream: bool) -> Wire:
    """A wire that gives this response, whole or as the events that add up to it."""
    if not stream:
        return Wire(whole)
    items = [
        {"type": "response.output_item.done", "output_index": at, "item": item}
        for at, item in enumerate(whole["output"])
    ]
    texts = [
        {"type": "response.output_text.delta", "delta": part["text"]}
        for item in whole["output"]
        for part in item.get("content") or ()
        if part.get("type") == "output_text"
    ]
    started = {"type": "response.created", "response": {**whole, "output": [], "status": "in_progress"}}
    end = {"type": f"response.{whole['status']}", "response": whole}
    return Wire(Canned(events(started, *texts, *items, end, done=False)))


@pytest.fixture(scope="module")
def provider() -> Iterator[FakeProvider]:
    def answer(exchange: Any) -> Answer:
        last = exchange.body["input"][-1]
        if last.get("type") == "function_call_output":
            return Answer("Done.", thinking="it is over")
        calls = (AnswerCall("look", '{"at":  "sea"}'), AnswerCall("ask"))
        return Answer("Looking.", calls, "let me see") if exchange.body.get("tools") else Answer("Hello there.")

    with FakeProvider(answer) as one:
        yield one


@whole_and_stream
@pytest.mark.parametrize("model", [MODEL, "gpt-5.6-sol"])
async def test_answer_goes_back_byte_for_byte(provider: FakeProvider, model: str, stream: bool) -> None:
    """K4, E8: reasoning, texts and calls as they came; the provider keeps nothing and opens its own seal."""
    llm, tools = responses_llm(provider, model=model), (LOOK, ASK)
    result = await answered(llm, asking(SYSTEM, HI, tools=tools), stream=stream)
    one = provider.last
    assert (result.text, result.finish_reason) == ("Looking.", "tool_calls")
    assert one.body["store"] is False
    assert one.body["include"] == ["reasoning.encrypted_content"]
    assert one.body["input"][0]["role"] == "developer"
    results = [Message("tool", "sun", call.name, call.id) for call in result.tool_calls]
    second = await answered(llm, asking(SYSTEM, HI, result.message, *results, tools=tools), stream=stream)
    sent = provider.last.body["input"]
    assert (second.text, second.finish_reason) == ("Done.", "stop")
    assert is_continued(one.body["input"], sent)
    kinds = [item.get("type") for item in sent[2:]]
    assert kinds == ["reasoning", "message", *["function_call"] * 2, *["function_call_output"] * 2]
    third = await answered(llm, asking(SYSTEM, HI, result.message, *results, second.message, HI), stream=stream)
    assert is_continued(sent, provider.last.body["input"])
    assert third.text == "Hello there."


@whole_and_stream
async def test_items_go_back_as_they_came(stream: bool) -> None:
    """E8, E9: every field of every item, in the order of the items."""
    search = {"id": "ws_1", "type": "web_search_call", "status": "completed", "action": {"type": "search"}}
    fold = {"id": "cmp_1", "type": "compaction", "encrypted_content": "sealed"}
    output: list[dict[str, Any]] = [fold, REASONING, search, SAID, CALLED]
    llm = OpenAIResponsesLLM(served(response(*output), stream=stream).openai(), model=MODEL)
    result = await answered(llm, asking(HI, tools=(LOOK,)), stream=stream)
    assert result.text == "Sun."
    assert result.tool_calls[0].wire_arguments == '{"at":  "sea"}'
    body = llm.body(asking(HI, result.message, Message("tool", "x", None, "call_1")))
    assert body["input"][1:-1] == output
    assert [list(item) for item in body["input"][1:4]] == [list(item) for item in output[:3]]


@whole_and_stream
async def test_calls_of_other_kinds_go_back_with_results_of_their_kind(stream: bool) -> None:
    output = [
        {"id": "ct_1", "type": "custom_tool_call", "call_id": "a", "name": "run", "input": "1 + 1"},
        {"id": "lsh", "type": "local_shell_call", "call_id": "b", "action": {"command": ["ls"]}, "status": "completed"},
        {"id": "sh_1", "type": "shell_call", "call_id": "c", "action": {"commands": ["ls"]}, "status": "completed"},
        {"id": "ap_1", "type": "apply_patch_call", "call_id": "d", "operation": {"type": "delete_file", "path": "x"}},
        {"id": "cu_1", "type": "computer_call", "call_id": "e", "action": {"type": "screenshot"}},
    ]
    llm = OpenAIResponsesLLM(served(response(*output), stream=stream).openai(), model=MODEL)
    result = await answered(llm, asking(HI), stream=stream)
    assert [call.name for call in result.tool_calls] == ["run", "local_shell", "shell", "apply_patch", "computer"]
    results = [Message("tool", "2", None, name) for name in "abcd"]
    results.append(Message("tool", [TextBlock("see"), ImageBlock("https://x.test/a.png")], None, "e"))
    body = llm.body(asking(HI, result.message, *results))
    assert body["input"][1:6] == output
    assert body["input"][6:] == [
        {"type": "custom_tool_call_output", "call_id": "a", "output": "2"},
        {"type": "local_shell_call_output", "id": "b", "output": "2"},
        {
            "type": "shell_call_output",
            "call_id": "c",
            "output": [{"stdout": "2", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}],
        },
        {"type": "apply_patch_call_output", "call_id": "d", "status": "completed", "output": "2"},
        {
            "type": "computer_call_output",
            "call_id": "e",
            "output": {"type": "computer_screenshot", "image_url": "https://x.test/a.png"},
        },
    ]


async def test_streamed_and_whole_answers_are_equal() -> None:
    found = [
        await answered(
            OpenAIResponsesLLM(served(response(REASONING, SAID), stream=s).openai(), model=MODEL), asking(HI), stream=s
        )
        for s in (False, True)
    ]
    assert found[0] == found[1]
    assert found[0].usage == Usage(30, 5, found[0].usage.cost_usd)
    assert found[0].meta == found[1].meta


async def test_pictures_and_files_stay_where_they_are(provider: FakeProvider) -> None:
    call = Message("assistant", "", tool_calls=[ToolCall("a", "look")])
    shot = Message("tool", [TextBlock("a shot"), ImageBlock(b"\x89PNG", detail="low")], "look", "a")
    page, link = DocumentBlock(b"%PDF-1", title="page.pdf"), DocumentBlock("https://x.test/a.pdf", title="a")
    user = Message("user", [TextBlock("read"), page, link, ImageBlock("file-1")])
    await responses_llm(provider, model=MODEL).chat(asking(user, call, shot))
    sent = provider.last.body["input"]
    assert [part["type"] for part in sent[0]["content"]] == ["input_text", "input_file", "input_file", "input_image"]
    assert sent[0]["content"][2] == {"type": "input_file", "file_url": "https://x.test/a.pdf"}
    assert sent[0]["content"][3] == {"type": "input_image", "file_id": "file-1"}
    assert [part["type"] for part in sent[2]["output"]] == ["input_text", "input_image"]


async def test_options_have_their_places(provider: FakeProvider) -> None:
    schema = {"title": "Sky", "type": "object", "properties": {}}
    options = {
        "effort": "low",
        "reasoning": {"summary": "auto"},
        "verbosity": "low",
        "text": {"other": 1},
        "cache_key": "k1",
        "seed": 7,
        "include": ["web_search_call.action.sources"],
        "tools": [{"type": "web_search"}],
    }
    llm = responses_llm(provider, model=MODEL)
    request = asking(
        HI, tools=(LOOK,), temperature=0.0, max_tokens=50, response_format=schema, options=options, tool_choice="any"
    )
    result = await llm.chat(request)
    sent = provider.last.body
    assert result.meta["dropped"] == ("seed", "temperature")
    assert sent["reasoning"] == {"summary": "auto", "effort": "low"}
    form = {"type": "json_schema", "name": "Sky", "schema": schema}
    assert sent["text"] == {"format": form, "verbosity": "low", "other": 1}
    assert (sent["prompt_cache_key"], sent["max_output_tokens"], sent["tool_choice"]) == ("k1", 50, "required")
    assert sent["include"] == ["reasoning.encrypted_content", "web_search_call.action.sources"]
    assert [tool["type"] for tool in sent["tools"]] == ["function", "web_search"]
    assert sent["tools"][0]["strict"] is False
    await llm.chat(asking(HI, model="gpt-4o", tools=(LOOK,), tool_choice={"name": "look"}))
    sent = provider.last.body
    assert "include" not in sent
    assert sent["tool_choice"] == {"type": "function", "name": "look"}


@pytest.mark.parametrize(
    ("items", "rest", "finish"),
    [
        ([SAID], {}, "stop"),
        ([CALLED], {}, "tool_calls"),
        ([SAID], {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, "length"),
        ([SAID], {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}, "content_filter"),
        ([SAID], {"status": "incomplete"}, "incomplete"),
        ([{**SAID, "content": [{"type": "refusal", "refusal": "No."}]}], {}, "refusal"),
    ],
)
@whole_and_stream
async def test_why_it_ended(items: list[Any], rest: dict[str, Any], finish: str, stream: bool) -> None:
    wire = served(response(*items, **rest), stream=stream)
    result = await answered(OpenAIResponsesLLM(wire.openai(), model=MODEL), asking(HI), stream=stream)
    assert result.finish_reason == finish


@whole_and_stream
async def test_failed_response_is_an_error(stream: bool) -> None:
    told = response(status="failed", error={"code": "rate_limit_exceeded", "message": "slow down"})
    with pytest.raises(TransientError, match="slow down"):
        await answered(OpenAIResponsesLLM(served(told, stream=stream).openai(), model=MODEL), asking(HI), stream=stream)


async def test_error_event_is_an_error() -> None:
    wire = Wire(Canned(events({"type": "error", "code": "server_error", "message": "oh", "param": None}, done=False)))
    with pytest.raises(TransientError, match="oh"):
        await answered(OpenAIResponsesLLM(wire.openai(), model=MODEL), asking(HI), stream=True)


@whole_and_stream
@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (WireFault("rate_limit", retry_after=7), TransientError),
        (WireFault("auth"), AuthError),
        (WireFault("billing"), PermanentError),
        (WireFault(cut_after=0), TransientError),
    ],
    ids=["rate_limit", "auth", "billing", "no answer"],
)
async def test_errors_are_of_one_taxonomy_and_nothing_is_retried(
    fault: WireFault, error: type[Exception], stream: bool
) -> None:
    with FakeProvider(faults=[fault]) as provider:
        with pytest.raises(error):
            await answered(responses_llm(provider, model=MODEL), asking(HI), stream=stream)
        assert len(provider.requests) == 1


@pytest.mark.parametrize(
    "fault", [WireFault(cut_after=6), WireFault("server", error_after=6), WireFault(malformed_after=6)],
    ids=["cut", "error inside", "no JSON"],
)  # fmt: skip
async def test_broken_stream_is_a_fault_and_no_half_message(fault: WireFault) -> None:
    """W9."""
    with FakeProvider(["A long answer in many pieces."], faults=[fault]) as provider:
        deltas: list[Delta] = []
        with pytest.raises(TransientError):
            await gathered(responses_llm(provider, model=MODEL), asking(HI), deltas)
    assert deltas
    assert all(delta.finish_reason is None and not delta.blocks for delta in deltas)


async def test_stream_that_ends_early_without_an_error_is_cut_off() -> None:
    wire = Wire(Canned(events({"type": "response.output_text.delta", "delta": "half"}, done=False)))
    with pytest.raises(TransientError, match="ended before the response did"):
        await answered(OpenAIResponsesLLM(wire.openai(), model=MODEL), asking(HI), stream=True)


async def test_closed_stream_lets_go_of_the_connection() -> None:
    started = events({"type": "response.output_text.delta", "delta": "one"}, done=False)
    body = Canned(started, wait=asyncio.Event().wait)
    stream = OpenAIResponsesLLM(Wire(body).openai(), model=MODEL).stream(asking(HI))
    assert (await anext(stream)).text == "one"
    await stream.aclose()
    assert body.closed


async def test_window_is_learnt_from_the_refusal() -> None:
    with FakeProvider(windows={MODEL: 1_000}) as provider, pytest.raises(ContextOverflowError):
        await responses_llm(provider, model=MODEL).chat(asking(Message("user", "word " * 4_000)))


@pytest.mark.parametrize("store", [False, True])
async def test_reasoning_that_nobody_could_read_stays_out(store: bool) -> None:
    bare = NativeBlock("openai", {"id": "rs_2", "type": "reasoning", "summary": []})
    llm = OpenAIResponsesLLM(Wire({}).openai(), model=MODEL, store=store)
    said = TextBlock("x", {"item": {"id": "msg_2", "type": "message"}})
    body = llm.body(asking(HI, Message("assistant", [bare, said]), HI))
    kinds = [item.get("type") for item in body["input"]]
    assert kinds == ([None, "reasoning", "message", None] if store else [None, "message", None])
    assert body["store"] is store
    assert ("include" in body) is not store


def test_reasoning_stays_out_where_what_it_led_to_was_replaced() -> None:
    """E9: the provider wants the very item that reasoning led to, and knows it by its id."""
    thought = NativeBlock("openai", REASONING)
    llm = OpenAIResponsesLLM(Wire({}).openai(), model=MODEL)
    for text, expected in (
        ("x", [None, None, None]),
        (None, [None, "reasoning", "function_call", "function_call_output", None]),
    ):
        parts: list[Any] = [thought, TextBlock(text) if text else ToolCall("a", "look")]
        body = llm.body(asking(HI, Message("assistant", parts), HI))
        assert [item.get("type") for item in body["input"]] == expected


@pytest.mark.parametrize("provider", ["openai", "llama.cpp"])
def test_texts_of_other_models_have_the_whole_form_for_other_endpoints(provider: str) -> None:
    """llama.cpp answers `Cannot determine type of 'item'` to the short form."""
    llm = OpenAIResponsesLLM(Wire({}).openai(), model="gpt-5.6-sol", provider=provider)
    body = llm.body(asking(HI, Message("assistant", "x"), HI, cache_hint=True))
    whole = {"type": "message", "content": [{"annotations": [], "type": "output_text", "text": "x"}]}
    assert body["input"][1] == {"role": "assistant", **({"content": "x"} if provider == "openai" else whole)}
    assert ("prompt_cache_options" in body) == (provider == "openai")


async def test_items_that_come_twice_are_told_apart() -> None:
    """P11: a merge of forks holds one answer twice, and the provider refuses an id twice."""
    llm = OpenAIResponsesLLM(Wire(response(REASONING, SAID)).openai(), model=MODEL)
    result = await llm.chat(asking(HI))
    sent = llm.body(asking(HI, result.message, HI, result.message, HI))["input"]
    ids = [item["id"] for item in sent if "id" in item]
    assert ids == ["rs_1", "msg_1"]
    assert [item["content"] for item in sent if item.get("role") == "assistant"] == [SAID["content"]] * 2


async def test_exact_count_is_the_providers(provider: FakeProvider) -> None:
    llm = responses_llm(provider, model=MODEL)
    request = asking(SYSTEM, HI, tools=(LOOK,), max_tokens=50, options={"cache_key": "k"})
    counted = await llm.count_exact(request)
    assert set(provider.last.body) == {"model", "input", "tools"}
    await llm.chat(request)
    assert provider.last.spent is not None
    assert counted == provider.last.spent.prompt


async def test_background_response_is_refused() -> None:
    llm = OpenAIResponsesLLM(Wire(response(status="queued")).openai(), model=MODEL)
    with pytest.raises(PermanentError, match="background"):
        await llm.chat(asking(HI))


def test_body_is_the_same_for_the_same_request() -> None:
    """G4, K2."""
    bodies = [
        OpenAIResponsesLLM(Wire({}).openai(), model=MODEL).body(asking(SYSTEM, HI, tools=tools))
        for tools in ((LOOK, ASK), (ASK, LOOK))
    ]
    assert json.dumps(bodies[0]) == json.dumps(bodies[1])
