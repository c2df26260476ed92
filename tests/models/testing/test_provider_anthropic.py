"""The fake provider on Anthropic's wire, asked by Anthropic's own client and by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anthropic
import pytest

from agentkit.models.testing.provider import Answer, AnswerCall, FakeProvider
from tests.models.testing.posts import post

MODEL = "claude-haiku-4-5"
HI = {"role": "user", "content": "hi"}
TOOL = {"name": "look", "description": "Looks.", "input_schema": {"type": "object"}}
CALL = {"type": "tool_use", "id": "a", "name": "look", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "a", "content": "sun"}


@pytest.fixture(scope="module")
def provider() -> Iterator[FakeProvider]:
    with FakeProvider() as one:
        yield one


def asking(provider: FakeProvider, key: str = "k") -> anthropic.Anthropic:
    return anthropic.Anthropic(api_key=key, base_url=provider.url, max_retries=0)


def said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def model(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def marked(block: dict[str, Any], ttl: str = "5m") -> dict[str, Any]:
    return {**block, "cache_control": {"type": "ephemeral", "ttl": ttl}}


def text(words: str = "x") -> dict[str, Any]:
    return {"type": "text", "text": words}


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no max_tokens": ({"max_tokens": None}, "max_tokens: Field required"),
    "no messages": ({"messages": []}, "at least one message is required"),
    "unknown field": ({"frequency_penalty": 1}, "frequency_penalty: Extra inputs are not permitted"),
    "unknown field of a message": ({"messages": [{**HI, "name": "x"}]}, "messages.0.name: Extra inputs"),
    "unknown field of a block": ({"messages": [user({**text(), "id": "x"})]}, "messages.0.content.0.text.id: Extra"),
    "wrong type": ({"max_tokens": "many"}, "max_tokens: Input should be a valid integer"),
    "content of another type": (
        {"messages": [{"role": "user", "content": 7}]},
        "content: Input should be a valid string",
    ),
    "unknown role": ({"messages": [{"role": "tool", "content": "x"}]}, "messages.0.role: Input should be"),
    "system among messages": ({"messages": [HI, {"role": "system", "content": "x"}]}, "role 'system' is not supported"),
    "first from the assistant": ({"messages": [said("x"), HI]}, "first message must always use the user role"),
    "empty content": ({"messages": [{"role": "user", "content": ""}]}, "must have non-empty content"),
    "empty text block": ({"messages": [user(text(""))]}, "text content blocks must be non-empty"),
    "blank text block": ({"messages": [user(text(" \n"))]}, "must contain non-whitespace text"),
    "empty system block": ({"system": [text("")]}, "system: text content blocks must be non-empty"),
    "unknown block": ({"messages": [user({"type": "sound"})]}, "Input tag 'sound'"),
    "call of the user": ({"messages": [user(CALL)]}, "Input tag 'tool_use'"),
    "unanswered call": ({"messages": [HI, model(CALL), HI]}, "without `tool_result` blocks immediately after: a"),
    "unanswered call at the end": (
        {"messages": [HI, model(CALL)]},
        "without `tool_result` blocks immediately after: a",
    ),
    "half of the results": (
        {"messages": [HI, model(CALL, {**CALL, "id": "b"}), user(RESULT)]},
        "immediately after: b",
    ),
    "text ahead of the result": ({"messages": [HI, model(CALL), user(text(), RESULT)]}, "immediately after: a"),
    "orphaned result": ({"messages": [user(RESULT)]}, "unexpected `tool_use_id` found in `tool_result` blocks: a"),
    "late result": ({"messages": [HI, model(CALL), user(RESULT), said("x"), user(RESULT)]}, "unexpected `tool_use_id`"),
    "two results of a call": (
        {"messages": [HI, model(CALL), user(RESULT, RESULT)]},
        "each tool_use must have a",
    ),
    "repeated call id": (
        {"messages": [HI, model(CALL), user(RESULT), model(CALL), user(RESULT)]},
        "`tool_use` ids must be unique",
    ),
    "ill-formed call id": (
        {"messages": [HI, model({**CALL, "id": "a.1"}), user({**RESULT, "tool_use_id": "a.1"})]},
        r"tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'",
    ),
    "ill-formed tool name": ({"tools": [{**TOOL, "name": "look at"}]}, "tools.0.custom.name: String should match"),
    "long tool name": ({"tools": [{**TOOL, "name": "x" * 129}]}, "tools.0.custom.name: String should match"),
    "repeated tool name": ({"tools": [TOOL, TOOL]}, "Tool names must be unique"),
    "schema of another type": (
        {"tools": [{**TOOL, "input_schema": {}}]},
        "schema.type: Input should be 'object'",
    ),
    "choice of no tool": ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "go"}}, "Tool 'go' not found"),
    "choice without tools": ({"tool_choice": {"type": "auto"}}, "only be specified while providing tools"),
    "picture in an error": (
        {
            "messages": [
                HI,
                model(CALL),
                user(
                    {
                        **RESULT,
                        "is_error": True,
                        "content": [{"type": "image", "source": {"type": "url", "url": "https://e.invalid/a.png"}}],
                    }
                ),
            ]
        },
        'all content must be type "text" if "is_error" is true',
    ),
    "five marks": (
        {"messages": [user(*[marked(text()) for _ in range(5)])]},
        "A maximum of 4 blocks with",
    ),
    "long lifetime behind a short one": (
        {"system": [marked(text())], "messages": [user(marked(text(), "1h"))]},
        "a ttl='1h' cache_control block must not come after a ttl='5m'",
    ),
    "unknown lifetime": ({"system": [marked(text(), "2h")]}, "cache_control.ttl: Input should be '5m' or '1h'"),
    "mark on thinking": (
        {"messages": [HI, model(marked({"type": "thinking", "thinking": "x", "signature": "s"}), text()), HI]},
        "thinking.cache_control: Extra inputs are not permitted",
    ),
    "thinking without signature": (
        {"messages": [HI, model({"type": "thinking", "thinking": "x"}, text()), HI]},
        "thinking.signature: Field required",
    ),
    "thinking of another provider": (
        {"messages": [HI, model({"type": "thinking", "thinking": "x", "signature": "c2ln"}, text()), HI]},
        "Invalid `signature` in `thinking` block",
    ),
    "redacted thinking of another provider": (
        {"messages": [HI, model({"type": "redacted_thinking", "data": "c2ln"}, text()), HI]},
        "Invalid `data` in `redacted_thinking` block",
    ),
    "blank at the end of a prefill": ({"messages": [HI, said("It is ")]}, "cannot end with trailing whitespace"),
    "prefill of a model that takes none": (
        {"model": "claude-opus-4-7", "messages": [HI, said("It is")]},
        "does not support assistant message prefill",
    ),
    "temperature of a model that takes none": (
        {"model": "claude-opus-4-7", "temperature": 1.0},
        "`temperature` is deprecated for this model",
    ),
    "temperature with thinking": (
        {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 2000, "temperature": 0.5},
        "may only be set to 1 when thinking is enabled",
    ),
    "temperature out of range": ({"temperature": 1.5}, "temperature: Input should be less than or equal to 1"),
    "small budget": ({"thinking": {"type": "enabled", "budget_tokens": 10}}, "greater than or equal to 1024"),
    "budget above max_tokens": (
        {"thinking": {"type": "enabled", "budget_tokens": 2048}},
        "must be greater than",
    ),
    "thinking of another kind": (
        {"model": "claude-opus-4-7", "thinking": {"type": "enabled", "budget_tokens": 2048}, "max_tokens": 9000},
        '"thinking.type.enabled" is not supported for this model',
    ),
    "forced tool with thinking": (
        {
            "thinking": {"type": "enabled", "budget_tokens": 1024},
            "max_tokens": 2000,
            "tools": [TOOL],
            "tool_choice": {"type": "any"},
        },
        "Thinking may not be enabled when tool_choice forces tool use",
    ),
    "thinking left out of a round": (
        {
            "thinking": {"type": "enabled", "budget_tokens": 1024},
            "max_tokens": 2000,
            "messages": [HI, model(CALL), user(RESULT)],
        },
        "Expected `thinking` or `redacted_thinking`, but found `tool_use`",
    ),
    "server call without its result": (
        {"messages": [HI, model({**CALL, "type": "server_tool_use"}, text()), HI]},
        "was found without a corresponding result block",
    ),
    "too long": ({"messages": [user(text("x" * 900_000))]}, "tokens > 200000 maximum"),
    "too long with its output": (
        {"messages": [user(text("x" * 796_000))], "max_tokens": 64_000},
        " + 64000 > 200000, decrease input length",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refuses_what_the_api_refuses(provider: FakeProvider, name: str) -> None:
    change, words = REFUSED[name]
    body = {"model": MODEL, "max_tokens": 100, "messages": [HI], **change}
    body = {key: value for key, value in body.items() if value is not None}
    status, answer = post(provider, "/v1/messages", body)
    assert (status, answer["error"]["type"]) == (400, "invalid_request_error"), answer
    assert words in answer["error"]["message"]
    assert answer["type"] == "error"
    assert provider.last.error == answer
    assert provider.last.status == 400


TAKEN: dict[str, dict[str, Any]] = {
    "two user messages": {"messages": [HI, HI]},
    "two answers": {"messages": [HI, said("a"), said("b"), HI]},
    "results in two messages": {
        "messages": [HI, model(CALL, {**CALL, "id": "b"}), user(RESULT), user({**RESULT, "tool_use_id": "b"})]
    },
    "text behind results": {"messages": [HI, model(CALL), user(RESULT, text())]},
    "result without content": {"messages": [HI, model(CALL), user({"type": "tool_result", "tool_use_id": "a"})]},
    "prefill": {"messages": [HI, said("It is")]},
    "late system text of a model that takes it": {
        "model": "claude-opus-4-8",
        "messages": [HI, {"role": "system", "content": "x"}],
    },
    "four marks, long ones first": {
        "tools": [marked(TOOL, "1h")],
        "system": [marked(text(), "1h")],
        "messages": [user(marked(text()), marked(text()))],
    },
    "paused server call": {"messages": [HI, model(text(), {**CALL, "type": "server_tool_use"})]},
    "automatic mark": {"cache_control": {"type": "ephemeral"}},
}


@pytest.mark.parametrize("name", TAKEN)
def test_takes_what_the_api_takes(provider: FakeProvider, name: str) -> None:
    status, answer = post(
        provider, "/v1/messages", {"model": MODEL, "max_tokens": 100, "messages": [HI], **TAKEN[name]}
    )
    assert status == 200, answer


def test_key_and_version_are_asked_for(provider: FakeProvider) -> None:
    body = {"model": MODEL, "max_tokens": 100, "messages": [HI]}
    status, answer = post(provider, "/v1/messages", body, {"x-api-key": "", "authorization": ""})
    assert (status, answer["error"]["type"]) == (401, "authentication_error")
    status, answer = post(provider, "/v1/messages", body, {"anthropic-version": ""})
    assert (status, answer["error"]["message"]) == (400, "anthropic-version: header is required")


def test_only_the_given_key_is_taken() -> None:
    with FakeProvider(api_key="right") as provider:
        with asking(provider, "wrong") as client, pytest.raises(anthropic.AuthenticationError):
            client.messages.create(model=MODEL, max_tokens=9, messages=[{"role": "user", "content": "hi"}])
        with asking(provider, "right") as client:
            client.messages.create(model=MODEL, max_tokens=9, messages=[{"role": "user", "content": "hi"}])
        assert not any("wrong" in str(one.headers) or "right" in str(one.headers) for one in provider.requests)


def test_unknown_model_and_path_are_not_found() -> None:
    with FakeProvider(models=[MODEL]) as provider:
        status, answer = post(provider, "/v1/messages", {"model": "claude-x", "max_tokens": 9, "messages": [HI]})
        assert (status, answer["error"]["type"], answer["error"]["message"]) == (
            404,
            "not_found_error",
            "model: claude-x",
        )
        assert post(provider, "/v1/complete", {})[0] == 404
        with asking(provider) as client:
            assert [one.id for one in client.models.list()] == [MODEL]


def test_body_that_is_no_json_is_refused(provider: FakeProvider) -> None:
    status, answer = post(provider, "/v1/messages", b"{")
    assert (status, answer["error"]["message"]) == (400, "The request body is not valid JSON.")


ANSWER = Answer(
    "It looks like rain.",
    (AnswerCall("look", {"city": "Rome"}), AnswerCall("look", {"city": "Oslo", "when": ["now", 3]}, id="mine")),
    thinking="Two cities.",
)


def test_answer_is_the_same_whole_and_as_a_stream() -> None:
    messages: list[anthropic.types.MessageParam] = [{"role": "user", "content": "hi"}]
    with FakeProvider(answers=[ANSWER, ANSWER]) as provider, asking(provider) as client:
        whole = client.messages.create(model=MODEL, max_tokens=100, messages=messages)
        with client.messages.stream(model=MODEL, max_tokens=100, messages=messages) as stream:
            kinds = [event.type for event in stream]
            pieced = stream.get_final_message()
    assert [block.type for block in whole.content] == ["thinking", "text", "tool_use", "tool_use"]
    assert whole.stop_reason == pieced.stop_reason == "tool_use"
    assert whole.usage.output_tokens == pieced.usage.output_tokens
    assert kinds.count("text") == 3
    for one, other in zip(whole.content, pieced.content, strict=True):
        assert {**one.model_dump(), "id": 0} == {**other.model_dump(exclude={"parsed_output"}), "id": 0}
    calls = [block for block in whole.content if block.type == "tool_use"]
    assert [call.input for call in calls] == [{"city": "Rome"}, {"city": "Oslo", "when": ["now", 3]}]
    assert calls[1].id == "mine"


def test_thinking_comes_back_only_unaltered() -> None:
    for redacted in (False, True):
        with FakeProvider(answers=[Answer("Sun.", thinking="Hm.", redacted=redacted)], repeat=True) as provider:
            start: dict[str, Any] = {"model": MODEL, "max_tokens": 100, "messages": [HI]}
            _, answer = post(provider, "/v1/messages", start)
            grown: dict[str, Any] = {**start, "messages": [HI, {"role": "assistant", "content": answer["content"]}, HI]}
            assert post(provider, "/v1/messages", grown)[0] == 200
            thought = answer["content"][0]
            field = "data" if redacted else "thinking"
            altered = {**thought, field: thought[field][1:] if redacted else "Hmm."}
            grown["messages"][1] = {"role": "assistant", "content": [altered, *answer["content"][1:]]}
            status, refused = post(provider, "/v1/messages", grown)
            assert status == 400
            assert "Invalid `" in refused["error"]["message"]
            grown["messages"][1] = {"role": "assistant", "content": [answer["content"][1], thought]}
            assert "cannot be `thinking`" in post(provider, "/v1/messages", grown)[1]["error"]["message"]


def test_tokens_are_counted_without_an_answer(provider: FakeProvider) -> None:
    with asking(provider) as client:
        counted = client.messages.count_tokens(model=MODEL, messages=[{"role": "user", "content": "x" * 400}])
        client.messages.create(model=MODEL, max_tokens=9, messages=[{"role": "user", "content": "x" * 400}])
    assert provider.last.prompt.tokens == counted.input_tokens >= 100
    status, answer = post(provider, "/v1/messages/count_tokens", {"model": MODEL, "messages": [HI], "max_tokens": 5})
    assert (status, answer["error"]["message"]) == (400, "max_tokens: Extra inputs are not permitted")


def test_finish_reason_and_usage_are_as_told() -> None:
    answer = Answer("So", finish_reason="max_tokens", usage={"fresh": 7, "read": 100, "output": 3})
    with FakeProvider(answers=[answer]) as provider:
        _, got = post(provider, "/v1/messages", {"model": MODEL, "max_tokens": 3, "messages": [HI]})
    assert got["stop_reason"] == "max_tokens"
    usage = got["usage"]
    assert (usage["input_tokens"], usage["cache_read_input_tokens"], usage["output_tokens"]) == (7, 100, 3)
    assert provider.last.spent is not None
    assert provider.last.spent.prompt == 107


def test_request_is_logged_by_segment(provider: FakeProvider) -> None:
    body = {"model": MODEL, "max_tokens": 9, "tools": [TOOL], "system": "Be brief.", "messages": [HI]}
    post(provider, "/v1/messages", body)
    last = provider.last
    assert last.body == body
    assert last.model == MODEL
    assert set(last.segments) == {"tools", "system", "messages"}
    assert last.segments["messages"].bytes == len('[{"role":"user","content":"hi"}]')
    assert sum(one.tokens for one in last.segments.values()) == last.prompt.tokens
    assert last.answer == Answer("OK.")


def test_native_blocks_are_given_out_as_they_are() -> None:
    block = {"type": "compaction", "content": "Short."}
    with FakeProvider(answers=[Answer("Done.", native=(block,))] * 2) as provider, asking(provider) as client:
        _, got = post(provider, "/v1/messages", {"model": MODEL, "max_tokens": 9, "messages": [HI]})
        messages: list[anthropic.types.beta.BetaMessageParam] = [{"role": "user", "content": "hi"}]
        with client.beta.messages.stream(model=MODEL, max_tokens=9, messages=messages) as stream:
            pieced = stream.get_final_message()
    assert got["content"][0] == block
    assert [one.type for one in pieced.content] == ["compaction", "text"]
