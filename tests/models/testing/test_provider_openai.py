"""The fake provider on both of OpenAI's wires, asked by OpenAI's own client and by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from agentkit.models.testing.provider import Answer, AnswerCall, FakeProvider
from tests.models.testing.posts import post

MODEL = "gpt-5.6-sol"
CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
HI = {"role": "user", "content": "hi"}
FUNCTION = {"name": "look", "description": "Looks.", "parameters": {"type": "object", "properties": {}}}
TOOL = {"type": "function", "function": FUNCTION}


@pytest.fixture(scope="module")
def provider() -> Iterator[FakeProvider]:
    with FakeProvider() as one:
        yield one


def asking(provider: FakeProvider, key: str = "k") -> openai.OpenAI:
    return openai.OpenAI(api_key=key, base_url=provider.openai_url, max_retries=0)


def call(call_id: str = "a", **change: Any) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": "look", "arguments": "{}"}, **change}


def calls(*given: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(given)}


def result(call_id: str = "a") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": "sun"}


CHAT_REFUSED: dict[str, tuple[dict[str, Any], str | None, str]] = {
    "no messages": ({"messages": None}, "missing_required_parameter", "Missing required parameter: 'messages'"),
    "empty messages": ({"messages": []}, "empty_array", "Expected an array with minimum length 1"),
    "unknown parameter": ({"top_k": 3}, "unknown_parameter", "Unknown parameter: 'top_k'"),
    "unknown field": ({"messages": [{**HI, "id": "x"}]}, "unknown_parameter", "Unknown parameter: 'messages[0].id'"),
    "wrong type": (
        {"messages": [{**HI, "content": 7}]},
        "invalid_type",
        "expected one of a string or an array of objects",
    ),
    "unknown role": ({"messages": [{**HI, "role": "person"}]}, "invalid_value", "Invalid value: 'person'"),
    "content of nothing": ({"messages": [{"role": "assistant", "content": None}]}, "invalid_type", "got null"),
    "no content parts": ({"messages": [{**HI, "content": []}]}, "empty_array", "empty array"),
    "unknown part": ({"messages": [{**HI, "content": [{"type": "sound"}]}]}, "invalid_value", "Invalid value: 'sound'"),
    "picture in a result": (
        {
            "messages": [
                HI,
                calls(call()),
                {**result(), "content": [{"type": "image_url", "image_url": {"url": "https://e.invalid/a.png"}}]},
            ]
        },
        "invalid_value",
        "Image URLs are only allowed for messages with role 'user'",
    ),
    "orphaned result": (
        {"messages": [HI, result()]},
        None,
        "must be a response to a preceeding message with 'tool_calls'",
    ),
    "result behind text": (
        {"messages": [HI, calls(call()), result(), HI, result()]},
        None,
        "must be a response to a preceeding message",
    ),
    "result of another call": ({"messages": [HI, calls(call()), result("b")]}, None, "'b' not found in 'tool_calls'"),
    "two results of a call": ({"messages": [HI, calls(call()), result(), result()]}, None, "not found in 'tool_calls'"),
    "unanswered call": ({"messages": [HI, calls(call(), call("b")), result(), HI]}, None, "response messages: b"),
    "unanswered call at the end": ({"messages": [HI, calls(call())]}, None, "did not have response messages: a"),
    "no calls": ({"messages": [HI, calls()]}, "empty_array", "Invalid 'messages[1].tool_calls': empty array"),
    "long call id": (
        {"messages": [HI, calls(call("x" * 41)), result("x" * 41)]},
        "string_above_max_length",
        "maximum length 40, but got a string with length 41",
    ),
    "repeated call id": ({"messages": [HI, calls(call(), call()), result()]}, "invalid_value", "must be unique"),
    "arguments of another type": (
        {"messages": [HI, calls(call(function={"name": "look", "arguments": {}})), result()]},
        "invalid_type",
        "'messages[1].tool_calls[0].function.arguments': expected a string, but got an object",
    ),
    "ill-formed tool name in a call": (
        {"messages": [HI, calls(call(function={"name": "look at", "arguments": "{}"})), result()]},
        "invalid_value",
        "does not match pattern",
    ),
    "ill-formed name": ({"messages": [{**HI, "name": "Mr X"}]}, "invalid_value", "Invalid 'messages[0].name'"),
    "no tools": ({"tools": []}, "empty_array", "Invalid 'tools': empty array"),
    "ill-formed tool name": (
        {"tools": [{"type": "function", "function": {**FUNCTION, "name": "a.b"}}]},
        "invalid_value",
        "Invalid 'tools[0].function.name'",
    ),
    "long tool name": (
        {"tools": [{"type": "function", "function": {**FUNCTION, "name": "x" * 65}}]},
        "invalid_value",
        "Invalid 'tools[0].function.name'",
    ),
    "choice without tools": ({"tool_choice": "auto"}, None, "'tool_choice' is only allowed when 'tools' are specified"),
    "parallel without tools": ({"parallel_tool_calls": True}, None, "'parallel_tool_calls' is only allowed when"),
    "temperature of a reasoning model": (
        {"temperature": 0.2},
        "unsupported_value",
        "'temperature' does not support 0.2",
    ),
    "max_tokens of a reasoning model": (
        {"max_tokens": 9},
        "unsupported_parameter",
        "Use 'max_completion_tokens' instead",
    ),
    "effort of another model": (
        {"model": "gpt-4o", "reasoning_effort": "low"},
        "unsupported_parameter",
        "Unrecognized request argument supplied: reasoning_effort",
    ),
    "stream options without a stream": (
        {"stream_options": {"include_usage": True}},
        None,
        "only allowed when 'stream'",
    ),
    "JSON that nobody asked for": ({"response_format": {"type": "json_object"}}, None, "must contain the word 'json'"),
    "too long": (
        {"model": "gpt-4o", "messages": [{**HI, "content": "x" * 600_000}]},
        "context_length_exceeded",
        "This model's maximum context length is 128000 tokens. However, your messages resulted in 1",
    ),
}


@pytest.mark.parametrize("name", CHAT_REFUSED)
def test_chat_refuses_what_the_api_refuses(provider: FakeProvider, name: str) -> None:
    change, code, words = CHAT_REFUSED[name]
    body = {"model": MODEL, "messages": [HI], **change}
    status, answer = post(provider, CHAT, {key: value for key, value in body.items() if value is not None})
    assert status == 400, answer
    assert words in answer["error"]["message"]
    assert (answer["error"]["code"], answer["error"]["type"]) == (code, "invalid_request_error")
    assert provider.last.error == answer


CHAT_TAKEN: dict[str, dict[str, Any]] = {
    "neighbours of one role": {"messages": [HI, HI, {"role": "assistant", "content": "x"}]},
    "system text later on": {
        "messages": [HI, {"role": "system", "content": "x"}, {"role": "developer", "content": "y"}]
    },
    "empty text": {"messages": [{**HI, "content": ""}]},
    "first from the assistant": {"messages": [{"role": "assistant", "content": "x"}, HI]},
    "parallel results in any order": {"messages": [HI, calls(call(), call("b")), result("b"), result()]},
    "the default temperature": {"temperature": 1},
    "temperature of another model": {"model": "gpt-4o", "temperature": 0.2, "max_tokens": 9},
    "a model nobody knows": {"model": "my-own", "temperature": 0.2, "max_tokens": 9, "reasoning_effort": "low"},
    "effort": {"reasoning_effort": "low", "max_completion_tokens": 99},
    "marks": {
        "messages": [
            {**HI, "content": [{"type": "text", "text": "x", "prompt_cache_breakpoint": {"mode": "explicit"}}]}
        ],
        "prompt_cache_key": "k",
        "prompt_cache_options": {"mode": "explicit"},
    },
}


@pytest.mark.parametrize("name", CHAT_TAKEN)
def test_chat_takes_what_the_api_takes(provider: FakeProvider, name: str) -> None:
    status, answer = post(provider, CHAT, {"model": MODEL, "messages": [HI], **CHAT_TAKEN[name]})
    assert status == 200, answer


def item_call(call_id: str = "a", **change: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": "look", "arguments": "{}", **change}


def item_result(call_id: str = "a") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": "sun"}


def thought(**change: Any) -> dict[str, Any]:
    return {"type": "reasoning", "id": "rs_1", "summary": [], **change}


SAID = {"role": "assistant", "content": "x"}

RESPONSES_REFUSED: dict[str, tuple[dict[str, Any], int, str | None, str]] = {
    "no input": ({"input": None}, 400, "missing_required_parameter", "Missing required parameter: 'input'"),
    "unknown parameter": ({"messages": []}, 400, "unknown_parameter", "Unknown parameter: 'messages'"),
    "chat's own name": ({"max_tokens": 9}, 400, "unknown_parameter", "Unknown parameter: 'max_tokens'"),
    "wrong type": ({"input": 7}, 400, "invalid_type", "'input': expected one of a string or an array of objects"),
    "unknown item": ({"input": [{"type": "thing"}]}, 400, "invalid_value", "Invalid value: 'thing'"),
    "unknown field": ({"input": [{**HI, "tool_calls": []}]}, 400, "unknown_parameter", "'input[0].tool_calls'"),
    "unknown role": ({"input": [{**HI, "role": "tool"}]}, 400, "invalid_value", "Invalid value: 'tool'"),
    "part of the other side": (
        {"input": [{**SAID, "content": [{"type": "input_text", "text": "x"}]}]},
        400,
        "invalid_value",
        "Supported values are: 'output_text', 'refusal'",
    ),
    "chat's own part": (
        {"input": [{**HI, "content": [{"type": "text"}]}]},
        400,
        "invalid_value",
        "Invalid value: 'text'",
    ),
    "call without output": ({"input": [HI, item_call()]}, 400, None, "No tool output found for function call a."),
    "output without call": (
        {"input": [HI, item_result()]},
        400,
        None,
        "No tool call found for function call output with",
    ),
    "output ahead of its call": ({"input": [HI, item_result(), item_call()]}, 400, None, "No tool call found"),
    "two outputs of a call": ({"input": [item_call(), item_result(), item_result()]}, 400, None, "No tool call found"),
    "repeated call id": (
        {"input": [item_call(), item_result(), item_call(), item_result()]},
        400,
        None,
        "Duplicate function call",
    ),
    "long call id": (
        {"input": [item_call("x" * 65), item_result("x" * 65)]},
        400,
        "string_above_max_length",
        "maximum length 64, but got a string with length 65",
    ),
    "arguments of another type": (
        {"input": [item_call(arguments={}), item_result()]},
        400,
        "invalid_type",
        "'input[0].arguments': expected a string, but got an object",
    ),
    "id of another kind": (
        {"input": [item_call(id="call_1"), item_result()]},
        400,
        "invalid_value",
        "begins with 'fc'",
    ),
    "repeated id": (
        {"input": [item_call(id="fc_1"), item_result(), item_call("b", id="fc_1"), item_result("b")]},
        400,
        None,
        "Duplicate item found with id fc_1",
    ),
    "reasoning of another provider": (
        {"input": [HI, thought(encrypted_content="gAAA"), SAID]},
        400,
        "invalid_encrypted_content",
        "could not be verified",
    ),
    "reasoning that is not stored": ({"input": [HI, thought(), SAID]}, 404, None, "Item with id 'rs_1' not found"),
    "previous response that is not stored": (
        {"previous_response_id": "resp_1"},
        400,
        "previous_response_not_found",
        "Previous response with id 'resp_1' not found",
    ),
    "small output": ({"max_output_tokens": 5}, 400, "integer_below_min_value", "Expected a value >= 16, but got 5"),
    "temperature of a reasoning model": (
        {"temperature": 0.2},
        400,
        "unsupported_parameter",
        "'temperature' is not supported",
    ),
    "effort of another model": (
        {"model": "gpt-4o", "reasoning": {"effort": "low"}},
        400,
        "unsupported_parameter",
        "reasoning",
    ),
    "nested tool": (
        {"tools": [TOOL]},
        400,
        "missing_required_parameter",
        "Missing required parameter: 'tools[0].name'",
    ),
    "ill-formed tool name": (
        {"tools": [{"type": "function", **FUNCTION, "name": "a.b"}]},
        400,
        "invalid_value",
        "Invalid 'tools[0].name'",
    ),
    "too long": (
        {"model": "gpt-4o", "input": "x" * 600_000},
        400,
        "context_length_exceeded",
        "Your input exceeds the context window of this model",
    ),
}


@pytest.mark.parametrize("name", RESPONSES_REFUSED)
def test_responses_refuse_what_the_api_refuses(provider: FakeProvider, name: str) -> None:
    change, wanted, code, words = RESPONSES_REFUSED[name]
    body = {"model": MODEL, "input": "hi", **change}
    status, answer = post(provider, RESPONSES, {key: value for key, value in body.items() if value is not None})
    assert (status, answer["error"]["code"]) == (wanted, code), answer
    assert words in answer["error"]["message"]


RESPONSES_TAKEN: dict[str, dict[str, Any]] = {
    "no tools": {"tools": []},
    "neighbours of one role": {"input": [HI, HI, SAID]},
    "parallel calls": {"input": [HI, item_call(), item_call("b"), item_result("b"), item_result()]},
    "text between call and output": {"input": [HI, item_call(), SAID, item_result()]},
    "picture in an output": {
        "input": [
            item_call(),
            {**item_result(), "output": [{"type": "input_image", "image_url": "https://e.invalid/a.png"}]},
        ]
    },
    "tools": {"tools": [{"type": "function", **FUNCTION, "strict": False}], "tool_choice": "auto"},
    "a hosted tool": {"tools": [{"type": "web_search"}]},
}


@pytest.mark.parametrize("name", RESPONSES_TAKEN)
def test_responses_take_what_the_api_takes(provider: FakeProvider, name: str) -> None:
    status, answer = post(provider, RESPONSES, {"model": MODEL, "input": "hi", **RESPONSES_TAKEN[name]})
    assert status == 200, answer


def test_key_is_asked_for() -> None:
    with FakeProvider(api_key="right", models=[MODEL]) as provider:
        with asking(provider, "wrong") as client, pytest.raises(openai.AuthenticationError) as caught:
            client.responses.create(model=MODEL, input="hi")
        assert caught.value.code == "invalid_api_key"
        with asking(provider, "right") as client:
            client.responses.create(model=MODEL, input="hi")
            with pytest.raises(openai.NotFoundError) as lost:
                client.responses.create(model="gpt-x", input="hi")
            assert [one.id for one in client.models.list()] == [MODEL]
        assert lost.value.code == "model_not_found"


ANSWER = Answer(
    "It looks like rain.",
    (AnswerCall("look", {"city": "Rome"}), AnswerCall("look", '{"city": "Os', id="mine")),
    thinking="Two cities.",
)


def test_chat_answer_is_the_same_whole_and_as_a_stream() -> None:
    with FakeProvider(answers=[ANSWER] * 3) as provider, asking(provider) as client:
        messages: list[openai.types.chat.ChatCompletionMessageParam] = [{"role": "user", "content": "hi"}]
        whole = client.chat.completions.create(model=MODEL, messages=messages).choices[0]
        chunks = list(client.chat.completions.create(model=MODEL, messages=messages, stream=True))
        options: openai.types.chat.ChatCompletionStreamOptionsParam = {"include_usage": True}
        counted = list(
            client.chat.completions.create(model=MODEL, messages=messages, stream=True, stream_options=options)
        )
    assert (whole.message.content, whole.finish_reason) == (ANSWER.text, "tool_calls")
    assert [one.to_dict()["function"] for one in whole.message.tool_calls or []] == [
        {"name": "look", "arguments": '{"city":"Rome"}'},
        {"name": "look", "arguments": '{"city": "Os'},
    ]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == ANSWER.text
    assert all(chunk.choices and chunk.usage is None for chunk in chunks)
    assert chunks[-1].choices[0].finish_reason == "tool_calls"
    parts = [part for chunk in chunks for part in chunk.choices[0].delta.tool_calls or []]
    texts = [
        "".join((one.function and one.function.arguments) or "" for one in parts if one.index == at) for at in (0, 1)
    ]
    assert texts == ['{"city":"Rome"}', '{"city": "Os']
    assert [one.id for one in parts if one.id][1] == "mine"
    assert counted[-1].choices == []
    assert counted[-1].usage is not None
    assert counted[-1].usage.completion_tokens_details is not None
    assert counted[-1].usage.completion_tokens_details.reasoning_tokens == 3


def test_responses_answer_is_the_same_whole_and_as_a_stream() -> None:
    with FakeProvider(answers=[ANSWER] * 2) as provider, asking(provider) as client:
        whole = client.responses.create(model=MODEL, input="hi")
        with client.responses.stream(model=MODEL, input="hi") as stream:
            events = list(stream)
            pieced = stream.get_final_response()
    assert [item.type for item in whole.output] == ["reasoning", "message", "function_call", "function_call"]
    assert whole.output_text == pieced.output_text == ANSWER.text
    assert [event.sequence_number for event in events if hasattr(event, "sequence_number")] == list(range(len(events)))
    assert sum(event.type == "response.output_text.delta" for event in events) == 3
    assert whole.usage == pieced.usage
    assert [one.arguments for one in pieced.output if one.type == "function_call"][1] == '{"city": "Os'


def test_incomplete_response_says_why() -> None:
    answers = [Answer("So", finish_reason="max_output_tokens")] * 2
    with FakeProvider(answers=answers) as provider, asking(provider) as client:
        whole = client.responses.create(model=MODEL, input="hi")
        last = [*client.responses.create(model=MODEL, input="hi", stream=True)][-1]
    assert (whole.status, whole.incomplete_details and whole.incomplete_details.reason) == (
        "incomplete",
        "max_output_tokens",
    )
    assert last.type == "response.incomplete"


def test_previous_response_is_continued() -> None:
    with FakeProvider(answers=[ANSWER, "It rains."]) as provider:
        _, first = post(provider, RESPONSES, {"model": MODEL, "input": "hi"})
        before = provider.last.prompt.tokens
        grown = {"model": MODEL, "previous_response_id": first["id"], "input": outputs_of(first)}
        status, answer = post(provider, RESPONSES, grown)
    assert (status, answer["previous_response_id"]) == (200, first["id"])
    assert provider.last.prompt.tokens > before
    assert provider.last.body == grown


def outputs_of(response: dict[str, Any]) -> list[dict[str, Any]]:
    return [item_result(item["call_id"]) for item in response["output"] if item["type"] == "function_call"]


SEALED = Answer("Sun.", (AnswerCall("look"),), thinking="Hm.")


def test_sealed_reasoning_is_taken_only_unaltered_and_with_what_it_led_to() -> None:
    with FakeProvider(answers=[SEALED], repeat=True) as provider:
        asked = {"model": MODEL, "input": "hi", "store": False, "include": ["reasoning.encrypted_content"]}
        _, answer = post(provider, RESPONSES, asked)
        reasoning, message, function = answer["output"]
        outputs = outputs_of(answer)
        assert post(provider, RESPONSES, {**asked, "input": [HI, reasoning, message, function, *outputs]})[0] == 200
        altered = {**reasoning, "encrypted_content": reasoning["encrypted_content"][:-4] + "AAA="}
        status, refused = post(provider, RESPONSES, {**asked, "input": [HI, altered, message, function, *outputs]})
        assert (status, refused["error"]["code"]) == (400, "invalid_encrypted_content")
        for led in ([], [HI]):
            _, refused = post(provider, RESPONSES, {**asked, "input": [HI, reasoning, *led]})
            assert "was provided without its required following item" in refused["error"]["message"]


def test_stored_items_need_the_reasoning_that_led_to_them() -> None:
    with FakeProvider(answers=[SEALED], repeat=True) as provider:
        _, answer = post(provider, RESPONSES, {"model": MODEL, "input": "hi"})
        reasoning, message, function = answer["output"]
        rest = [function, *outputs_of(answer)]
        assert post(provider, RESPONSES, {"model": MODEL, "input": [HI, reasoning, message, *rest]})[0] == 200
        _, refused = post(provider, RESPONSES, {"model": MODEL, "input": [HI, message, *rest]})
        assert "was provided without its required 'reasoning' item" in refused["error"]["message"]
        free = {key: value for key, value in message.items() if key != "id"}
        assert post(provider, RESPONSES, {"model": MODEL, "input": [HI, free, *rest]})[0] == 200
        reference = {"type": "item_reference", "id": reasoning["id"]}
        assert post(provider, RESPONSES, {"model": MODEL, "input": [HI, reference, message, *rest]})[0] == 200


def test_tokens_are_counted_without_an_answer(provider: FakeProvider) -> None:
    with asking(provider) as client:
        counted = client.responses.input_tokens.count(model=MODEL, input="x" * 400)
        client.responses.create(model=MODEL, input="x" * 400)
    assert provider.last.prompt.tokens == counted.input_tokens >= 100


def test_request_is_logged_by_segment(provider: FakeProvider) -> None:
    body = {"model": MODEL, "tools": [TOOL], "messages": [{"role": "developer", "content": "Be brief."}, HI]}
    post(provider, CHAT, body)
    last = provider.last
    assert last.segments["messages"].bytes == len('[{"role":"user","content":"hi"}]')
    assert last.segments["system"].tokens > 0 < last.segments["tools"].tokens
    assert sum(one.tokens for one in last.segments.values()) == last.prompt.tokens
