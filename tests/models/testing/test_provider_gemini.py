"""The fake provider on Gemini's wire, asked by Google's own client and by hand."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import pytest
from google import genai
from google.genai import errors, types

from agentkit.models.testing.provider import Answer, AnswerCall, FakeProvider
from tests.models.testing.posts import post

MODEL = "gemini-2.5-pro"
DECLARED: dict[str, Any] = {"name": "look", "description": "Looks.", "parameters_json_schema": {"type": "object"}}


@pytest.fixture(scope="module")
def provider() -> Iterator[FakeProvider]:
    with FakeProvider() as one:
        yield one


def asking(provider: FakeProvider) -> genai.Client:
    return genai.Client(api_key="k", http_options=types.HttpOptions(base_url=provider.url))


def ask(provider: FakeProvider, body: Any, model: str = MODEL, action: str = "generateContent") -> tuple[int, Any]:
    return post(provider, f"/v1beta/models/{model}:{action}", body)


def user(*parts: Any) -> dict[str, Any]:
    return {"role": "user", "parts": list(parts)}


def model(*parts: Any) -> dict[str, Any]:
    return {"role": "model", "parts": list(parts)}


HI = user({"text": "hi"})
CALL = {"functionCall": {"name": "look", "args": {"city_name": "Rome"}}}
RESULT = {"functionResponse": {"name": "look", "response": {"result": "sun"}}}

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no contents": ({"contents": []}, "contents is not specified"),
    "unknown field": ({"messages": []}, 'Unknown name "messages"'),
    "unknown setting": ({"generationConfig": {"max_tokens": 3}}, 'Unknown name "maxTokens"'),
    "unknown field of a part": (
        {"contents": [user({"words": "x"})]},
        "Unknown name \"words\" at 'contents[0].parts[0]'",
    ),
    "wrong type": ({"contents": [user({"text": 7})]}, "(text): string is expected"),
    "no parts": ({"contents": [user()]}, "must not be empty"),
    "empty part": ({"contents": [user({})]}, "must have one initialized field"),
    "two kinds of a part": ({"contents": [user({"text": "x", **CALL})]}, "oneof field 'data' is already set"),
    "unknown role": ({"contents": [{"role": "assistant", "parts": [{"text": "x"}]}]}, "Please use a valid role"),
    "unanswered call": ({"contents": [HI, model(CALL), HI]}, "function response parts is equal to the number"),
    "unanswered call at the end": ({"contents": [HI, model(CALL)]}, "function response parts is equal to the number"),
    "half of the results": ({"contents": [HI, model(CALL, CALL), user(RESULT)]}, "is equal to the number"),
    "orphaned result": ({"contents": [user(RESULT)]}, "is equal to the number"),
    "call behind a call's own turn": (
        {"contents": [HI, model({"text": "x"}), model(CALL), user(RESULT)]},
        "function call turn comes immediately after a user turn",
    ),
    "call at the start": ({"contents": [model(CALL), user(RESULT)]}, "comes immediately after a user turn"),
    "ill-formed tool name": (
        {"tools": [{"functionDeclarations": [{**DECLARED, "name": "1look"}]}]},
        "Invalid function name. Must start with a letter",
    ),
    "repeated tool name": (
        {"tools": [{"functionDeclarations": [DECLARED, DECLARED]}]},
        "Duplicate function declaration",
    ),
    "signature of another provider": (
        {"contents": [HI, model({"text": "x", "thoughtSignature": "c2ln"}), HI]},
        "Thought signature is not valid",
    ),
    "too long": (
        {"contents": [user({"text": "x" * 4_400_000})]},
        "exceeds the maximum number of tokens allowed (1048576)",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refuses_what_the_api_refuses(provider: FakeProvider, name: str) -> None:
    change, words = REFUSED[name]
    status, answer = ask(provider, {"contents": [HI], **change})
    assert (status, answer["error"]["code"], answer["error"]["status"]) == (400, 400, "INVALID_ARGUMENT"), answer
    assert words in answer["error"]["message"]


def test_calls_of_the_current_turn_need_their_signature() -> None:
    newer = "gemini-3-flash-preview"
    with FakeProvider(
        answers=[Answer(calls=(AnswerCall("look", {}), AnswerCall("look", {})))], repeat=True
    ) as provider:
        bare = {"contents": [HI, model(CALL), user(RESULT)]}
        assert ask(provider, bare)[0] == 200
        status, answer = ask(provider, bare, newer)
        assert (status, "missing a thought_signature" in answer["error"]["message"]) == (400, True)
        waived = {**CALL, "thoughtSignature": base64.b64encode(b"skip_thought_signature_validator").decode()}
        assert ask(provider, {"contents": [HI, model(waived, CALL), user(RESULT, RESULT)]}, newer)[0] == 200
        assert ask(provider, {"contents": [HI, model(CALL), user(RESULT), HI]}, newer)[0] == 200
        _, made = ask(provider, {"contents": [HI]}, newer)
        content = made["candidates"][0]["content"]
        assert [("thoughtSignature" in part) for part in content["parts"]] == [True, False]
        assert ask(provider, {"contents": [HI, content, user(RESULT, RESULT)]}, newer)[0] == 200


def test_key_and_model_are_asked_for() -> None:
    with FakeProvider(api_key="right", models=[MODEL]) as provider:
        status, answer = ask(provider, {"contents": [HI]})
        assert (status, answer["error"]["message"]) == (400, "API key not valid. Please pass a valid API key.")
    with FakeProvider(models=["gemini-x"]) as provider:
        status, answer = ask(provider, {"contents": [HI]})
        assert (status, answer["error"]["status"]) == (404, "NOT_FOUND")
    with FakeProvider(api_key="right") as provider:
        assert (
            post(
                provider,
                f"/v1beta/models/{MODEL}:generateContent?key=right",
                {"contents": [HI]},
                {"x-goog-api-key": "", "authorization": ""},
            )[0]
            == 200
        )


ANSWER = Answer("It looks like rain.", (AnswerCall("look", {"city": "Rome"}),), thinking="A city.")


def test_answer_is_the_same_whole_and_as_a_stream() -> None:
    tool = types.Tool(function_declarations=[types.FunctionDeclaration(**DECLARED)])
    config = types.GenerateContentConfig(
        tools=[tool],
        system_instruction="Be brief.",
        automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
    )
    with FakeProvider(answers=[ANSWER] * 3) as provider:
        client = asking(provider)
        whole = client.models.generate_content(model=MODEL, contents="hi", config=config)
        pieces = [*client.models.generate_content_stream(model=MODEL, contents="hi", config=config)]
        content = whole.candidates[0].content if whole.candidates else None
        assert content is not None
        said = types.Content(role="user", parts=[types.Part(text="hi")])
        result = types.Content(role="user", parts=[types.Part.from_function_response(name="look", response={"r": 1})])
        client.models.generate_content(model=MODEL, contents=[said, content, result], config=config)
        client.close()
    parts = [part for piece in pieces if piece.parts for part in piece.parts]
    assert "".join(part.text or "" for part in parts if not part.thought) == ANSWER.text
    assert "".join(part.text or "" for part in parts if part.thought) == "A city."
    assert [call.args for piece in pieces for call in piece.function_calls or []] == [{"city": "Rome"}]
    assert pieces[-1].usage_metadata == whole.usage_metadata
    assert whole.usage_metadata is not None
    assert whole.usage_metadata.thoughts_token_count == 2
    assert [one.status for one in provider.requests] == [200] * 3
    assert all(segment.tokens for segment in provider.last.segments.values())
    assert provider.last.model == MODEL


def test_tokens_are_counted_without_an_answer(provider: FakeProvider) -> None:
    client = asking(provider)
    counted = client.models.count_tokens(model=MODEL, contents="x" * 400).total_tokens
    client.close()
    ask(provider, {"contents": [user({"text": "x" * 400})]})
    assert counted == provider.last.prompt.tokens >= 100
    inner = {"model": f"models/{MODEL}", "contents": [HI]}
    assert ask(provider, {"generateContentRequest": inner}, action="countTokens")[1]["totalTokens"] < 20


def test_client_raises_its_own_error() -> None:
    with FakeProvider(faults=["rate_limit"]) as provider:
        client = asking(provider)
        with pytest.raises(errors.ClientError, match="RESOURCE_EXHAUSTED"):
            client.models.generate_content(model=MODEL, contents="hi")
        client.close()


@pytest.mark.anyio
async def test_asynchronous_client_is_served() -> None:
    with FakeProvider(["a text of some length"]) as provider:
        client = asking(provider)
        stream = await client.aio.models.generate_content_stream(model=MODEL, contents="hi")
        text = "".join([piece.text or "" async for piece in stream])
        await client.aio.aclose()
        client.close()
    assert text == "a text of some length"
