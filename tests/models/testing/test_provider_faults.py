"""What goes wrong on request, and how the providers' own clients meet it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import anthropic
import anyio
import openai
import pytest
from anyio import to_thread

from agentkit.core.contracts.errors import FormatError
from agentkit.models.testing.provider import Answer, AnswerCall, Exchange, FakeProvider, Gate, WireFault
from tests.models.testing.posts import post

CLAUDE, GPT = "claude-sonnet-4-6", "gpt-5.6-sol"
HI: list[Any] = [{"role": "user", "content": "hi"}]
BODIES: dict[str, dict[str, Any]] = {
    "/v1/messages": {"model": CLAUDE, "max_tokens": 99, "messages": HI},
    "/v1/chat/completions": {"model": GPT, "messages": HI},
    "/v1/responses": {"model": GPT, "input": HI},
    "/v1beta/models/gemini-2.5-pro:generateContent": {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]},
}


def claude(provider: FakeProvider, retries: int = 0) -> anthropic.Anthropic:
    return anthropic.Anthropic(api_key="k", base_url=provider.url, max_retries=retries)


def gpt(provider: FakeProvider, retries: int = 0) -> openai.OpenAI:
    return openai.OpenAI(api_key="k", base_url=provider.openai_url, max_retries=retries)


ASKED: dict[str, Callable[[FakeProvider], Any]] = {
    "anthropic": lambda provider: claude(provider).messages.create(**BODIES["/v1/messages"]),
    "anthropic stream": lambda provider: [*claude(provider).messages.create(**BODIES["/v1/messages"], stream=True)],
    "chat": lambda provider: gpt(provider).chat.completions.create(**BODIES["/v1/chat/completions"]),
    "chat stream": lambda provider: [
        *gpt(provider).chat.completions.create(**BODIES["/v1/chat/completions"], stream=True)
    ],
    "responses": lambda provider: gpt(provider).responses.create(**BODIES["/v1/responses"]),
    "responses stream": lambda provider: [*gpt(provider).responses.create(**BODIES["/v1/responses"], stream=True)],
}


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize(
    ("kind", "statuses"),
    [
        ("auth", {401}),
        ("billing", {429}),
        ("overloaded", {503, 529}),
        ("permission", {403}),
        ("rate_limit", {429}),
        ("server", {500}),
        ("too_large", {413}),
        ("unavailable", {503}),
    ],
)
def test_each_kind_of_error_has_its_status(path: str, kind: str, statuses: set[int]) -> None:
    with FakeProvider(faults=[kind]) as provider:
        status, answer = post(provider, path, BODIES[path])
        assert status in statuses
        assert answer["error"]["message"]
        assert (provider.last.status, provider.last.error) == (status, answer)
        assert provider.last.fault == WireFault(kind)
        assert provider.last.answer is None
        assert post(provider, path, BODIES[path])[0] == 200


@pytest.mark.parametrize("name", ASKED)
def test_clients_raise_their_own_error(name: str) -> None:
    fault = WireFault("rate_limit", retry_after=1.5, message="Too fast.")
    limits = (anthropic.RateLimitError, openai.RateLimitError)
    with FakeProvider(faults=[fault]) as provider, pytest.raises(limits, match="Too fast") as caught:
        ASKED[name](provider)
    assert isinstance(caught.value, limits)
    assert caught.value.response.headers["retry-after"] == "1.5"


def test_client_that_retries_gets_the_answer() -> None:
    faults = [
        WireFault("overloaded", headers={"retry-after-ms": "1"}),
        WireFault("server", headers={"retry-after-ms": "1"}),
    ]
    with FakeProvider(answers=["At last."], faults=faults) as provider, claude(provider, 2) as client:
        message = client.messages.create(**BODIES["/v1/messages"])
    assert message.content[0].type == "text"
    assert [one.status for one in provider.requests] == [529, 500, 200]


def test_faults_come_in_order_where_they_fit() -> None:
    def asks_gpt(exchange: Exchange) -> bool:
        return exchange.model == GPT

    faults = [WireFault("server", when=asks_gpt), None, WireFault("rate_limit", times=2)]
    with FakeProvider(faults=faults) as provider:
        order = ["/v1/messages", "/v1/messages", "/v1/chat/completions", "/v1/messages", "/v1/messages"]
        statuses = [post(provider, path, BODIES[path])[0] for path in order]
    assert statuses == [200, 429, 500, 429, 200]


def test_status_may_be_another() -> None:
    with FakeProvider(faults=[{"kind": "server", "status": 502, "times": None}]) as provider:
        assert [post(provider, "/v1/messages", BODIES["/v1/messages"])[0] for _ in range(3)] == [502] * 3


def test_refused_and_failed_requests_write_no_cache() -> None:
    text = {"type": "text", "text": "word " * 2_000, "cache_control": {"type": "ephemeral"}}
    body = {**BODIES["/v1/messages"], "messages": [{"role": "user", "content": [text]}]}
    with FakeProvider(faults=["overloaded"]) as provider:
        post(provider, "/v1/messages", body)
        _, answer = post(provider, "/v1/messages", body)
    assert answer["usage"]["cache_read_input_tokens"] == 0


@pytest.mark.parametrize("name", ASKED)
@pytest.mark.parametrize("after", [0, 2])
def test_connection_is_cut(name: str, after: int) -> None:
    with FakeProvider(faults=[WireFault(cut_after=after)]) as provider, pytest.raises(Exception) as caught:
        ASKED[name](provider)
    kinds = {kind.__name__ for kind in type(caught.value).__mro__}
    assert kinds & {"APIConnectionError", "RemoteProtocolError"}, caught.value
    assert provider.last.status == 200


@pytest.mark.parametrize("name", [one for one in ASKED if "stream" in one])
def test_stream_brings_what_is_no_json(name: str) -> None:
    with FakeProvider(faults=[WireFault(malformed_after=2)]) as provider, pytest.raises(Exception) as caught:
        ASKED[name](provider)
    assert isinstance(caught.value, (json.JSONDecodeError, anthropic.APIError, openai.APIError)), caught.value


@pytest.mark.parametrize("name", ["anthropic stream", "chat stream"])
def test_stream_ends_with_an_error(name: str) -> None:
    fault = WireFault("overloaded", error_after=3, message="Not now.")
    with (
        FakeProvider(faults=[fault]) as provider,
        pytest.raises((anthropic.APIError, openai.APIError), match="Not now"),
    ):
        ASKED[name](provider)
    assert provider.last.answer is not None


def test_responses_stream_ends_with_an_error_event() -> None:
    with FakeProvider(faults=[WireFault("rate_limit", error_after=3)]) as provider, gpt(provider) as client:
        events = [*client.responses.create(**BODIES["/v1/responses"], stream=True)]
    assert len(events) == 4
    last = events[-1]
    assert last.type == "error"
    assert (last.code, last.sequence_number) == ("rate_limit_exceeded", 3)


def test_answer_may_be_empty() -> None:
    with FakeProvider(answers=["a", "b", "c"], faults=[WireFault(empty=True, times=3)]) as provider:
        assert post(provider, "/v1/messages", BODIES["/v1/messages"])[1]["content"] == []
        chat = post(provider, "/v1/chat/completions", BODIES["/v1/chat/completions"])[1]
        assert chat["choices"][0]["message"]["content"] is None
        assert post(provider, "/v1/responses", BODIES["/v1/responses"])[1]["output"] == []


def test_arguments_may_stop_in_the_middle() -> None:
    answer = Answer("", (AnswerCall("look", {"city": "Rome"}), AnswerCall("look", {"city": "Oslo"})))
    with FakeProvider([answer, answer], faults=[WireFault(truncated=True, times=2)]) as provider:
        choice = post(provider, "/v1/chat/completions", BODIES["/v1/chat/completions"])[1]["choices"][0]
        assert choice["finish_reason"] == "length"
        texts = [call["function"]["arguments"] for call in choice["message"]["tool_calls"]]
        assert texts == ['{"city":"Rome"}', '{"city"']
        with claude(provider) as client:
            events = [*client.messages.create(**BODIES["/v1/messages"], stream=True)]
        pieces = [
            event.delta.partial_json
            for event in events
            if event.type == "content_block_delta" and event.index == 1 and event.delta.type == "input_json_delta"
        ]
        assert "".join(pieces) == '{"city"'


@pytest.mark.anyio
async def test_first_byte_waits_for_a_gate() -> None:
    gate = Gate()
    with FakeProvider(faults=[WireFault(before=gate)]) as provider:
        async with anthropic.AsyncAnthropic(api_key="k", base_url=provider.url, max_retries=0) as client:
            done = anyio.Event()

            async def ask() -> None:
                await client.messages.create(**BODIES["/v1/messages"])
                done.set()

            async with anyio.create_task_group() as group:
                group.start_soon(ask)
                await to_thread.run_sync(gate.reached.wait)
                assert not done.is_set()
                assert len(provider.requests) == 1
                gate.open()
            assert done.is_set()


@pytest.mark.anyio
async def test_stream_waits_between_its_events() -> None:
    gate = Gate()
    with FakeProvider(["a longer text than one piece"], faults=[WireFault(pause=gate, pause_after=4)]) as provider:
        async with anthropic.AsyncAnthropic(api_key="k", base_url=provider.url, max_retries=0) as client:
            stream = await client.messages.create(**BODIES["/v1/messages"], stream=True)
            kinds: list[str] = []
            async for event in stream:
                kinds.append(event.type)
                if len(kinds) == 3:  # of four events so far; the client keeps a ping to itself
                    await to_thread.run_sync(gate.reached.wait)
                    gate.open()
    assert kinds[:3] == ["message_start", "content_block_start", "content_block_delta"]
    assert kinds[-1] == "message_stop"


def test_closing_frees_whoever_waits() -> None:
    gate = Gate()
    before = threading.active_count()
    failed: list[type[BaseException]] = []

    def ask(provider: FakeProvider) -> None:
        try:
            post(provider, "/v1/messages", BODIES["/v1/messages"])
        except Exception as error:
            failed.append(type(error))

    with FakeProvider(faults=[WireFault(before=gate)]) as provider:
        thread = threading.Thread(target=ask, args=(provider,))
        thread.start()
        gate.reached.wait()
    thread.join()
    assert len(failed) == 1
    assert threading.active_count() == before


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("slow", "'slow' is no kind of error"),
        ({"status": 500}, "needs a kind"),
        ({"sort": "server"}, r"faults\[0\]: sort is not known here"),
        ({"kind": "server", "times": 0}, "at least 1"),
        (7, "must be a text or a mapping, not int"),
    ],
)
def test_fault_that_cannot_be_read_is_refused(fault: Any, words: str) -> None:
    with pytest.raises((FormatError, ValueError), match=words):
        FakeProvider(faults=[fault])
