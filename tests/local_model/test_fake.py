"""The fake provider and the real server tell the same: normal form, class of error, order of a stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import groupby
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from agentkit.core.contracts.errors import AgentKitError, ContextOverflowError, PermanentError
from agentkit.core.contracts.requests import ChatRequest, Delta, LLMResult
from agentkit.core.contracts.types import Message
from agentkit.models.testing.provider import Answer, FakeProvider
from tests.local_model.model import MODEL, STANDING, LocalModel
from tests.models.adapters.served import answered, gathered

pytestmark = [pytest.mark.anyio, pytest.mark.local_model]

WIRES = ("chat", "anthropic", "responses")
PATHS = {"chat": "/v1/chat/completions", "anthropic": "/v1/messages", "responses": "/v1/responses"}


def asking(text: str = "What is the capital of France?", **options: object) -> ChatRequest:
    return ChatRequest((Message("system", STANDING), Message("user", text)), MODEL, max_tokens=16, options=options)


def faked(real: LLMResult, wire: str) -> Answer:
    """What the real one said, for the fake to say."""
    cut = {"chat": "length", "anthropic": "max_tokens", "responses": "max_output_tokens"}[wire]
    usage = real.usage
    told = {"fresh": usage.input_tokens, "read": usage.cache_read_tokens, "output": usage.output_tokens}
    return Answer(real.text, finish_reason=cut if real.finish_reason == "length" else None, usage=told)


@pytest.mark.parametrize("question", ["What is the capital of France?", "Tell me about the sea."])
@pytest.mark.parametrize("wire", WIRES)
async def test_the_same_answer_has_the_same_normal_form(model: LocalModel, wire: str, question: str) -> None:
    real = model.on(wire)
    await real.chat(asking(question))
    for stream in (False, True):
        said = await answered(real, asking(question), stream=stream)
        with FakeProvider([faked(said, wire)]) as provider:
            fake = await answered(LocalModel(provider.url).on(wire), asking(question), stream=stream)
        assert fake.message.content == said.message.content
        assert (fake.usage, fake.finish_reason, fake.model) == (said.usage, said.finish_reason, said.model)
        assert (fake.tool_calls, fake.parsed, fake.partial) == (said.tool_calls, said.parsed, said.partial)


@pytest.mark.parametrize("wire", WIRES)
async def test_the_last_piece_of_a_stream_has_all_but_the_text(model: LocalModel, wire: str) -> None:
    pieces: dict[str, list[Delta]] = {"real": [], "fake": []}
    await gathered(model.on(wire), asking(), pieces["real"])
    with FakeProvider(["The capital of France is Paris."]) as provider:
        await gathered(LocalModel(provider.url).on(wire), asking(), pieces["fake"])
    for found in pieces.values():
        *texts, last = found
        assert len(texts) > 2
        assert all(delta == Delta(delta.text) and delta.text for delta in texts)
        assert (last.text, last.finish_reason, last.usage is None) == ("", "stop", False)


def kinds(url: str, wire: str, body: dict[str, Any]) -> list[str]:
    """The events of a stream in their order, runs of one kind as one."""
    headers = {"content-type": "application/json", "authorization": "Bearer none", "x-api-key": "none"}
    request = Request(url + PATHS[wire], json.dumps(body).encode(), {**headers, "anthropic-version": "2023-06-01"})
    with urlopen(request, timeout=60) as answer:
        data = [line[5:].strip() for line in answer.read().decode().splitlines() if line.startswith("data:")]
    return [kind for kind, _ in groupby(kind for one in data for kind in _kinds(one)) if kind != "ping"]


def _kinds(data: str) -> Iterator[str]:
    if data == "[DONE]":
        yield data
        return
    event = json.loads(data)
    if "type" in event:
        yield event["type"]
    elif not event["choices"]:
        yield "usage"
    else:
        choice = event["choices"][0]
        yield choice["finish_reason"] or ("text" if choice["delta"].get("content") else "role")


@pytest.mark.parametrize("wire", WIRES)
def test_the_events_of_a_stream_come_in_the_same_order(model: LocalModel, wire: str) -> None:
    said = [{"role": "user", "content": "What is the capital of France?"}]
    body: dict[str, Any] = {"model": MODEL, "temperature": 0, "stream": True}
    body |= {"input": said, "max_output_tokens": 16} if wire == "responses" else {"messages": said, "max_tokens": 16}
    if wire == "chat":
        body["stream_options"] = {"include_usage": True}
    real = kinds(model.url, wire, body)
    with FakeProvider(["The capital of France is Paris."]) as provider:
        assert kinds(provider.url, wire, body) == real
    assert len(real) > 4


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("wire", WIRES)
async def test_what_is_refused_is_refused_with_the_same_error(model: LocalModel, wire: str, stream: bool) -> None:
    long = asking("word " * 5_000)
    odd = asking(temperature="hot")
    with FakeProvider(windows={MODEL: 4_096}, counter=lambda text: len(text.split())) as provider:
        fake = LocalModel(provider.url)
        for request, kind in ((long, ContextOverflowError), (odd, PermanentError)):
            found: list[AgentKitError] = []
            for llm in (model.on(wire), fake.on(wire)):
                with pytest.raises(kind) as refused:
                    await answered(llm, request, stream=stream)
                found.append(refused.value)
            assert type(found[0]) is type(found[1])
            windows = [getattr(error, "window", None) for error in found]
            if wire == "responses" and kind is ContextOverflowError:  # OpenAI's own words there do not name it
                assert windows == [4_096, None]
            else:
                assert windows[0] == windows[1]


def test_unknown_paths_are_not_found_on_either(model: LocalModel) -> None:
    with FakeProvider() as provider:
        for url in (model.url, provider.url):
            with pytest.raises(HTTPError) as refused:
                LocalModel(url).post("/v1/nothing", {})
            assert (refused.value.code, json.load(refused.value)["error"]["type"]) == (404, "not_found_error")
