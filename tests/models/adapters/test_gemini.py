"""Gemini through the real client: a fake provider that refuses what the real one does, and canned responses for answers
that it does not give."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from agentkit.core.contracts.errors import (
    AuthError,
    ContextOverflowError,
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
)
from agentkit.core.contracts.usage import Usage
from agentkit.models.adapters.gemini import GeminiLLM
from agentkit.models.testing.provider import Answer, AnswerCall, FakeProvider, WireFault
from agentkit.models.wire.gemini import OWN_ID, WAIVER
from tests.models.adapters.served import (
    ASK,
    LOOK,
    Canned,
    Wire,
    answered,
    asking,
    events,
    gathered,
    gemini_llm,
    is_continued,
)

pytestmark = pytest.mark.anyio

SYSTEM, HI = Message("system", "be brief"), Message("user", "hi")
MODEL = "gemini-2.5-pro"
whole_and_stream = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


def response(*parts: dict[str, Any], finish: str | None = "STOP", **rest: Any) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    if finish is not None:
        candidate["finishReason"] = finish
    usage = {"promptTokenCount": 30, "candidatesTokenCount": 5, "totalTokenCount": 35}
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "m", "responseId": "r1", **rest}


def served(whole: dict[str, Any], *, stream: bool) -> Wire:
    """A wire that gives this response, whole or with each part in a chunk of its own."""
    if not stream:
        return Wire(whole)
    candidates = whole.get("candidates") or [{}]
    parts = (candidates[0].get("content") or {}).get("parts") or []
    chunks = [{"candidates": [{"content": {"role": "model", "parts": [part]}}]} for part in parts]
    last = (
        {**whole, "candidates": [{**candidates[0], "content": {"role": "model"}}]} if "candidates" in whole else whole
    )
    return Wire(Canned(events(*chunks, last, done=False)))


@pytest.fixture(scope="module")
def provider() -> Iterator[FakeProvider]:
    def answer(exchange: Any) -> Answer:
        last = exchange.body["contents"][-1]["parts"][-1]
        if "functionResponse" in last:
            return Answer("Done.")
        calls = (AnswerCall("look", {"at": "sea", "z": 1}), AnswerCall("ask"))
        return Answer("Looking.", calls, "let me see") if exchange.body.get("tools") else Answer("Hello there.")

    with FakeProvider(answer) as one:
        yield one


@whole_and_stream
async def test_answer_goes_back_byte_for_byte(provider: FakeProvider, stream: bool) -> None:
    """K4, E8: what was sent is the beginning of what is sent next; the provider knows its signatures again."""
    llm, tools = gemini_llm(provider, model=MODEL), (LOOK, ASK)
    result = await answered(llm, asking(SYSTEM, HI, tools=tools), stream=stream)
    one = provider.last
    assert (result.text, result.finish_reason) == ("Looking.", "tool_calls")
    assert one.body["systemInstruction"] == {"parts": [{"text": "be brief"}]}
    results = [Message("tool", "sun", call.name, call.id) for call in result.tool_calls]
    second = await answered(llm, asking(SYSTEM, HI, result.message, *results, HI, tools=tools), stream=stream)
    sent = provider.last.body["contents"]
    assert is_continued(one.body["contents"], sent)
    assert [content["role"] for content in sent] == ["user", "model", "user", "user"]
    assert [list(part) for part in sent[2]["parts"]] == [["functionResponse"]] * 2
    assert json.dumps(one.body["tools"]) == json.dumps(provider.last.body["tools"])
    assert second.finish_reason == "tool_calls"
    assert one.spent is not None
    assert (result.usage.prompt_tokens, result.usage.output_tokens) == (one.spent.prompt, one.spent.output)
    assert result.usage.cost_usd > 0


@whole_and_stream
async def test_parts_go_back_as_they_came(stream: bool) -> None:
    """E8: signatures on the parts on which they came, in the provider's own spelling; parts of its own tools whole."""
    parts: list[dict[str, Any]] = [
        {"text": "let me see", "thought": True},
        {"executableCode": {"language": "PYTHON", "code": "1"}},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}},
        {"text": "Sun.", "thoughtSignature": "AB+/cw=="},
        {"functionCall": {"id": "f1", "name": "look", "args": {"z": 1, "at": "sea"}}, "thoughtSignature": "AB+/dw=="},
        {"functionCall": {"id": "f2", "name": "ask", "args": {}}},
        {"text": "", "thoughtSignature": "AB+/eA=="},
    ]
    llm = GeminiLLM(served(response(*parts), stream=stream).gemini(), model=MODEL)
    result = await answered(llm, asking(HI, tools=(LOOK, ASK)), stream=stream)
    assert result.text == "Sun."
    assert result.blocks[0] == ThinkingBlock("let me see")
    results = [Message("tool", "x", None, name) for name in ("f1", "f2")]
    assert llm.body(asking(HI, result.message, *results))["contents"][1] == {"role": "model", "parts": parts}


async def test_texts_of_a_stream_are_joined_but_not_with_a_signed_one() -> None:
    parts = [{"text": "one "}, {"text": "two "}, {"text": "three", "thoughtSignature": "AA=="}, {"text": "!"}]
    llm = GeminiLLM(served(response(*parts), stream=True).gemini(), model=MODEL)
    result = await answered(llm, asking(HI), stream=True)
    assert result.text == "one two three!"
    back = llm.body(asking(HI, result.message, HI))["contents"][1]["parts"]
    assert back == [{"text": "one two "}, {"text": "three", "thoughtSignature": "AA=="}, {"text": "!"}]


async def test_calls_without_ids_are_paired_here_and_sent_without() -> None:
    """P9: missing ids are generated, the same ones each time; who gave none is shown none."""
    calls = [{"functionCall": {"name": "look", "args": {"at": at}}} for at in ("sea", "sky")]
    wire = Wire(response(*calls))
    llm = GeminiLLM(wire.gemini(), model=MODEL)
    first, again = [await llm.chat(asking(HI, tools=(LOOK,))) for _ in range(2)]
    assert first.tool_calls == again.tool_calls
    assert [call.id for call in first.tool_calls] == [f"{OWN_ID}r1-1", f"{OWN_ID}r1-2"]
    results = [Message("tool", call.arguments["at"], None, call.id) for call in first.tool_calls]
    sent = llm.body(asking(HI, first.message, *results))["contents"]
    assert sent[1]["parts"] == calls
    assert sent[2]["parts"] == [
        {"functionResponse": {"name": "look", "response": {"output": at}}} for at in ("sea", "sky")
    ]
    del wire.answers[0]["responseId"]
    assert (await llm.chat(asking(HI))).tool_calls == (await llm.chat(asking(HI))).tool_calls


async def test_calls_of_other_models_have_a_waiver_where_signatures_are_demanded() -> None:
    """E8: a fallback in the middle of a loop is not refused; a turn with a signature stays as it came."""
    calls = [ToolCall("a", "look"), ToolCall("b", "look")]
    results = [Message("tool", "x", "look", call.id) for call in calls]
    own = [ToolCall("a", "look", meta={"thoughtSignature": "AA=="}), calls[1]]
    llm = GeminiLLM(Wire({}).gemini())
    found = {
        (model, name): [
            part.get("thoughtSignature")
            for part in llm.body(asking(HI, Message("assistant", "", tool_calls=turn), *results, model=model))[
                "contents"
            ][1]["parts"]
        ]
        for model in ("gemini-3-pro", "gemini-2.5-pro")
        for name, turn in (("foreign", calls), ("own", own))
    }
    assert found["gemini-3-pro", "foreign"] == [WAIVER, None]
    assert found["gemini-2.5-pro", "foreign"] == [None, None]
    assert found["gemini-3-pro", "own"] == found["gemini-2.5-pro", "own"] == ["AA==", None]


async def test_failed_result_and_media(provider: FakeProvider) -> None:
    """P4, E1; pictures of a result follow it."""
    calls = [ToolCall("a", "look"), ToolCall("b", "look")]
    turn = Message("assistant", "", tool_calls=calls)
    failed = Message("tool", "no such file", "look", "a", is_error=True)
    shot = Message("tool", [TextBlock("a shot"), ImageBlock(b"\x89PNG")], "look", "b")
    page = DocumentBlock("https://x.test/a.pdf", "application/pdf")
    await gemini_llm(provider, model=MODEL).chat(asking(Message("user", [TextBlock("read"), page]), turn, failed, shot))
    sent = provider.last.body["contents"]
    assert sent[0]["parts"][1] == {"fileData": {"mimeType": "application/pdf", "fileUri": "https://x.test/a.pdf"}}
    told = [part["functionResponse"]["response"] for part in sent[2]["parts"]]
    assert told == [{"error": "no such file"}, {"output": "a shot"}]
    assert sent[3]["parts"][1] == {"inlineData": {"mimeType": "image/png", "data": "iVBORw=="}}


async def test_signatures_of_others_are_not_shown(provider: FakeProvider) -> None:
    thought: list[Any] = [
        ThinkingBlock("hm", "signed elsewhere"),
        NativeBlock("openai", {"type": "reasoning"}),
        TextBlock("x"),
    ]
    await gemini_llm(provider, model=MODEL).chat(asking(HI, Message("assistant", thought), HI))
    assert provider.last.body["contents"][1]["parts"] == [{"text": "x"}]


async def test_options_have_their_places(provider: FakeProvider) -> None:
    schema = {"title": "Sky", "type": "object", "properties": {}}
    options = {
        "safety_settings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}],
        "top_p": 0.5,
        "stop": "END",
        "thinking": {"type": "enabled", "budget_tokens": 99},
        "effort": "low",
        "cache_key": "k1",
        "verbosity": "low",
        "tools": [{"googleSearch": {}}],
    }
    llm = gemini_llm(provider, model=MODEL)
    choice = {"name": "look"}
    request = asking(
        HI,
        tools=(LOOK, ASK),
        temperature=0.0,
        max_tokens=50,
        response_format=schema,
        options=options,
        tool_choice=choice,
    )
    result = await llm.chat(request)
    sent = provider.last.body
    assert result.meta["dropped"] == ("effort", "verbosity")
    assert sent["generationConfig"] == {
        "temperature": 0.0,
        "topP": 0.5,
        "stopSequences": ["END"],
        "thinkingConfig": {"includeThoughts": True, "thinkingBudget": 99},
        "maxOutputTokens": 50,
        "responseMimeType": "application/json",
        "responseJsonSchema": schema,
    }
    assert sent["safetySettings"] == options["safety_settings"]
    assert sent["toolConfig"] == {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["look"]}}
    assert [tool["name"] for tool in sent["tools"][0]["functionDeclarations"]] == ["ask", "look"]
    assert sent["tools"][1] == {"googleSearch": {}}
    await llm.chat(asking(HI, model="gemini-3-pro", options={"effort": "low"}))
    assert provider.last.body["generationConfig"] == {"thinkingConfig": {"thinkingLevel": "low"}}
    await llm.chat(asking(HI, options={"thinking": {"type": "disabled"}}))
    assert provider.last.body["generationConfig"] == {"thinkingConfig": {"thinkingBudget": 0}}


async def test_what_a_cached_object_holds_is_not_sent_beside_it() -> None:
    wire = Wire(response({"text": "x"}))
    llm = GeminiLLM(wire.gemini(), model=MODEL)
    await llm.chat(asking(SYSTEM, HI, tools=(LOOK,), tool_choice="any", options={"cached_content": "cachedContents/1"}))
    assert wire.bodies[0] == {
        "generationConfig": {},  # the client's own doing
        "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
        "cachedContent": "cachedContents/1",
    }


@whole_and_stream
@pytest.mark.parametrize(
    ("told", "finish", "text"),
    [
        (response({"text": "x"}, finish="MAX_TOKENS"), "length", "x"),
        (response(finish="SAFETY"), "content_filter", ""),
        (response({"text": "x"}, finish="RECITATION"), "content_filter", "x"),
        (response(finish="MALFORMED_FUNCTION_CALL"), "malformed_function_call", ""),
        ({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}}, "content_filter", ""),
        ({"promptFeedback": {"blockReason": "JAILBREAK"}}, "content_filter", ""),
    ],
)
async def test_why_it_ended(told: dict[str, Any], finish: str, text: str, stream: bool) -> None:
    """An answer that was held back is an answer that says so."""
    llm = GeminiLLM(served(told, stream=stream).gemini(), model=MODEL)
    result = await answered(llm, asking(HI), stream=stream)
    assert (result.finish_reason, result.text) == (finish, text)
    if "promptFeedback" in told:
        assert result.meta["gemini"]["promptFeedback"]["blockReason"] == told["promptFeedback"]["blockReason"]


async def test_thoughts_are_billed_as_output() -> None:
    """I4."""
    usage = {
        "promptTokenCount": 100,
        "cachedContentTokenCount": 60,
        "candidatesTokenCount": 5,
        "thoughtsTokenCount": 20,
    }
    result = await GeminiLLM(Wire({**response({"text": "x"}), "usageMetadata": usage}).gemini(), model="m").chat(
        asking(HI)
    )
    assert result.usage == Usage(40, 25, cache_read_tokens=60, reasoning_tokens=20)


@whole_and_stream
@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (WireFault("rate_limit"), TransientError),
        (WireFault("unavailable"), TransientError),
        (WireFault("auth"), AuthError),
        (WireFault(cut_after=0), TransientError),
    ],
    ids=["rate_limit", "unavailable", "auth", "no answer"],
)
async def test_errors_are_of_one_taxonomy_and_nothing_is_retried(
    fault: WireFault, error: type[Exception], stream: bool
) -> None:
    with FakeProvider(faults=[fault]) as provider:
        with pytest.raises(error):
            await answered(gemini_llm(provider, model=MODEL), asking(HI), stream=stream)
        assert len(provider.requests) == 1


async def test_window_is_learnt_from_the_refusal() -> None:
    with FakeProvider(windows={MODEL: 1_000}) as provider, pytest.raises(ContextOverflowError) as caught:
        await gemini_llm(provider, model=MODEL).chat(asking(Message("user", "word " * 4_000)))
    assert caught.value.window == 1_000


@pytest.mark.parametrize(
    "fault", [WireFault(cut_after=2), WireFault("server", error_after=2), WireFault(malformed_after=2)],
    ids=["cut", "error inside", "no JSON"],
)  # fmt: skip
async def test_broken_stream_is_a_fault_and_no_half_message(fault: WireFault) -> None:
    """W9."""
    with FakeProvider(["A long answer in many pieces."], faults=[fault]) as provider:
        deltas: list[Delta] = []
        with pytest.raises(TransientError):
            await gathered(gemini_llm(provider, model=MODEL), asking(HI), deltas)
    assert deltas
    assert all(delta.finish_reason is None for delta in deltas)


async def test_stream_that_ends_early_without_an_error_is_cut_off() -> None:
    llm = GeminiLLM(served(response({"text": "half"}, finish=None), stream=True).gemini(), model=MODEL)
    with pytest.raises(TransientError, match="without a finish reason"):
        await answered(llm, asking(HI), stream=True)


async def test_closed_stream_lets_go_of_the_connection() -> None:
    body = Canned(events(response({"text": "one"}, finish=None), done=False), wait=asyncio.Event().wait)
    stream = GeminiLLM(Wire(body).gemini(), model=MODEL).stream(asking(HI))
    assert (await anext(stream)).text == "one"
    await stream.aclose()
    assert body.closed


async def test_exact_count_is_the_providers(provider: FakeProvider) -> None:
    llm, request = gemini_llm(provider, model=MODEL), asking(SYSTEM, HI, tools=(LOOK,))
    counted = await llm.count_exact(request)
    assert provider.last.path.endswith(":countTokens")
    await llm.chat(request)
    assert provider.last.spent is not None
    assert counted == provider.last.spent.prompt


async def test_page_in_place_of_an_answer_is_said() -> None:
    with pytest.raises(PermanentError, match="base URL"):
        await GeminiLLM(Wire([1]).gemini(), model=MODEL).chat(asking(HI))


async def test_g1_arguments_that_the_client_cannot_hand_over_are_named() -> None:
    nested = '{"a": ' * 450 + "1" + "}" * 450
    with FakeProvider([Answer("", calls=(AnswerCall("look", nested),))]) as provider:
        llm = gemini_llm(provider, model=MODEL)
        with pytest.raises(PermanentError, match="nested deeper"):
            await answered(llm, asking(HI), stream=True)
