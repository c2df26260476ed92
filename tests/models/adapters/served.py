"""Adapters in front of a fake provider or of canned responses, and what their requests have in common."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import Any

import httpx2
import openai
from google import genai
from google.genai import types

from agentkit.core.contracts.requests import ChatRequest, Delta, LLMResult, assemble_deltas
from agentkit.core.contracts.types import Message, ToolSchema
from agentkit.models.adapters.gemini import GeminiLLM
from agentkit.models.adapters.openai_chat import OpenAIChatLLM
from agentkit.models.adapters.openai_responses import OpenAIResponsesLLM
from agentkit.models.testing.provider import FakeProvider

ONCE = httpx2.Limits(max_keepalive_connections=0)
"""No connection is kept, so that none is left open when a test's event loop ends."""

LOOK = ToolSchema("look", "Looks around.", {"type": "object", "properties": {"at": {"type": "string"}}})
ASK = ToolSchema("ask", "Asks.", {"type": "object", "properties": {}})


class Canned(httpx2.AsyncByteStream):
    """A streamed body in pieces; `closed` once the client let go of it. `wait` is called behind the last piece."""

    def __init__(self, *pieces: bytes, wait: Callable[[], Any] | None = None) -> None:
        self.pieces, self.wait, self.closed = pieces, wait, False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            yield piece
        if self.wait is not None:
            await self.wait()

    async def aclose(self) -> None:
        self.closed = True


class Wire:
    """A transport that answers each request with the next of `answers`: JSON data, or a Canned event stream. It keeps
    the bodies, and the last answer is given again."""

    def __init__(self, *answers: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self.answers, self.status, self.headers = list(answers), status, headers or {}
        self.raw: list[bytes] = []
        self.paths: list[str] = []
        self.transport = httpx2.MockTransport(self._answer)

    @property
    def bodies(self) -> list[Any]:
        return [json.loads(raw) for raw in self.raw]

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        self.raw.append(request.content)
        self.paths.append(request.url.path)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Canned):
            headers = {"content-type": "text/event-stream", **self.headers}
            return httpx2.Response(self.status, headers=headers, stream=answer)
        return httpx2.Response(self.status, headers=self.headers, json=answer)

    def openai(self) -> openai.AsyncOpenAI:
        http = httpx2.AsyncClient(transport=self.transport)
        return openai.AsyncOpenAI(api_key="k", base_url="http://127.0.0.1:9/v1", http_client=http)

    def gemini(self) -> genai.Client:
        return _gemini("http://127.0.0.1:9", transport=self.transport)


def events(*data: Any, done: bool = True) -> bytes:
    """An event stream of these data; an event has the name that its data give it as `type`."""
    names = [f"event: {one['type']}\n" if isinstance(one, dict) and "type" in one else "" for one in data]
    lines = [f"{name}data: {json.dumps(one)}\n\n" for name, one in zip(names, data, strict=True)]
    return "".join([*lines, "data: [DONE]\n\n" if done else ""]).encode()


def chat_llm(provider: FakeProvider, **options: Any) -> OpenAIChatLLM:
    return OpenAIChatLLM(_openai(provider), **options)


def responses_llm(provider: FakeProvider, **options: Any) -> OpenAIResponsesLLM:
    return OpenAIResponsesLLM(_openai(provider), **options)


def gemini_llm(provider: FakeProvider, **options: Any) -> GeminiLLM:
    return GeminiLLM(_gemini(provider.url, limits=ONCE), **options)


def _gemini(url: str, **http: Any) -> genai.Client:
    # Certificates that nobody asks for take half a second to read.
    own, unused = {"verify": False, **http}, {"verify": False}
    return genai.Client(
        api_key="k", http_options=types.HttpOptions(base_url=url, client_args=unused, async_client_args=own)
    )


def _openai(provider: FakeProvider) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(
        api_key="k", base_url=provider.openai_url, http_client=httpx2.AsyncClient(limits=ONCE, verify=False)
    )


def asking(*messages: Message, model: str | None = None, **fields: Any) -> ChatRequest:
    return ChatRequest(messages, model, **{"temperature": None, **fields})


async def answered(llm: Any, request: ChatRequest, *, stream: bool) -> LLMResult:
    """The answer, asked for whole or as a stream."""
    if not stream:
        result: LLMResult = await llm.chat(request)
        return result
    deltas: list[Delta] = []
    async with aclosing(llm.stream(request)) as pieces:
        deltas = [delta async for delta in pieces]
    assert "".join(d.text for d in deltas[:-1]) == assemble_deltas(deltas).text
    return assemble_deltas(deltas)


async def gathered(llm: Any, request: ChatRequest, into: list[Delta]) -> None:
    """Adds the pieces of a stream to a list, one by one, until it ends or fails."""
    async with aclosing(llm.stream(request)) as pieces:
        async for delta in pieces:
            into += [delta]


def is_continued(shorter: Sequence[Any], longer: Sequence[Any]) -> bool:
    """Whether a list of wire messages begins with the bytes of another."""
    written = json.dumps(list(shorter), ensure_ascii=False)
    return json.dumps(list(longer), ensure_ascii=False).startswith(written[:-1])
