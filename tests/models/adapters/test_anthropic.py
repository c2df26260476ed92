"""The adapter of Anthropic's messages, with Anthropic's own client against a provider on loopback."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from itertools import pairwise
from typing import Any

import anthropic
import httpx2
import pytest

from agentkit.core.contracts.errors import (
    AuthError,
    ContextOverflowError,
    EmptyRequestError,
    PermanentError,
    TransientError,
)
from agentkit.core.contracts.offers import Breakpoint, ToolSchema
from agentkit.core.contracts.requests import ChatRequest, Delta, LLMResult, assemble_deltas
from agentkit.core.contracts.types import (
    DocumentBlock,
    ImageBlock,
    Message,
    NativeBlock,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolCall,
)
from agentkit.models.adapters.anthropic import AnthropicLLM
from agentkit.models.adapters.anthropic_request import closed_schema
from agentkit.models.testing.provider import Answer, AnswerCall, Exchange, FakeProvider, Gate, WireFault

pytestmark = pytest.mark.anyio

MODEL = "claude-haiku-4-5"
USER = Message("user", "hi")
TOOLS = (ToolSchema("look", "Looks.", {"type": "object", "properties": {"b": {"type": "integer"}, "a": {}}}),)


class Served:
    """A provider with a script, and the adapter on it."""

    def __init__(self, provider: FakeProvider, **how: Any) -> None:
        self.provider = provider
        self.client = anthropic.AsyncAnthropic(api_key="test", base_url=provider.url)
        self.llm = AnthropicLLM(self.client, model=MODEL, **how)

    @property
    def body(self) -> dict[str, Any]:
        body: dict[str, Any] = self.provider.last.body
        return body


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    with FakeProvider() as provider:
        one = Served(provider)
        yield one
        await one.client.close()


async def streamed(llm: AnthropicLLM, request: ChatRequest) -> tuple[list[Delta], LLMResult]:
    deltas = [delta async for delta in llm.stream(request)]
    return deltas, assemble_deltas(deltas)


def ask(*messages: Message, **how: Any) -> ChatRequest:
    return ChatRequest(messages or (USER,), **how)


# Answers


async def both(answer: Any, request: ChatRequest, **how: Any) -> LLMResult:
    """The answer, whole and as a stream, which have to agree."""
    with FakeProvider([answer, answer], **how) as provider:
        one = Served(provider)
        whole = await one.llm.chat(request)
        deltas, result = await streamed(one.llm, request)
        await one.client.close()
    assert "".join(delta.text for delta in deltas) == whole.text
    ids = {call.id for call in whole.tool_calls} | {call.id for call in result.tool_calls}
    assert len(ids) == len(whole.tool_calls) + len(result.tool_calls)
    assert [(c.name, c.arguments) for c in result.tool_calls] == [(c.name, c.arguments) for c in whole.tool_calls]
    assert (result.text, result.finish_reason, result.model) == (whole.text, whole.finish_reason, whole.model)
    assert [type(block) for block in result.blocks] == [type(block) for block in whole.blocks]
    return whole


async def test_an_answer_in_text_whole_and_streamed() -> None:
    result = await both("Hello, world.", ask())
    assert result.text == "Hello, world."
    assert result.finish_reason == "stop"
    assert result.model == MODEL
    assert result.blocks == ()
    said = result.meta["anthropic"]
    assert said["stop_reason"] == "end_turn"
    assert said["id"].startswith("msg_")
    assert said["usage"]["output_tokens"] == result.usage.output_tokens > 0
    assert result.usage.cost_usd > 0


async def test_calls_thinking_and_text_keep_their_places() -> None:
    answer = Answer("Let me look.", (AnswerCall("look", {"b": 1}), AnswerCall("look", {"b": 2})), thinking="Hm.")
    result = await both(
        answer, ask(tools=TOOLS, temperature=None, options={"thinking": {"type": "enabled", "budget_tokens": 1024}})
    )
    assert result.finish_reason == "tool_calls"
    assert [call.arguments for call in result.tool_calls] == [{"b": 1}, {"b": 2}]
    assert isinstance(result.blocks[0], ThinkingBlock)
    assert result.blocks[0].text == "Hm."
    assert result.blocks[0].signature


async def test_redacted_thinking_comes_back_as_it_was() -> None:
    result = await both(
        Answer("Yes.", thinking="x", redacted=True),
        ask(temperature=None, options={"thinking": {"type": "enabled", "budget_tokens": 1024}}),
    )
    assert isinstance(result.blocks[0], RedactedThinkingBlock)


@pytest.mark.parametrize(
    ("reason", "finish"),
    [("max_tokens", "length"), ("stop_sequence", "stop"), ("pause_turn", "pause_turn"), ("refusal", "refusal"),
     ("model_context_window_exceeded", "length")],
)  # fmt: skip
async def test_why_an_answer_ended_is_told_in_the_librarys_words(reason: str, finish: str) -> None:
    result = await both(Answer("So", finish_reason=reason), ask())
    assert result.finish_reason == finish
    assert result.meta["anthropic"]["stop_reason"] == reason


async def test_usage_is_in_disjoint_counters() -> None:
    usage = {"fresh": 7, "read": 100, "write_short": 20, "write_long": 5, "output": 9}
    with FakeProvider([Answer("x", usage=usage)], repeat=True) as provider:
        one = Served(provider)
        for result in (await one.llm.chat(ask()), (await streamed(one.llm, ask()))[1]):
            found = result.usage
            assert (found.input_tokens, found.cache_read_tokens, found.cache_write_tokens) == (7, 100, 25)
            assert (found.cache_write_long_tokens, found.output_tokens) == (5, 9)
        await one.client.close()


async def test_arguments_that_are_no_json_are_kept_and_sent_back_as_an_object_e5() -> None:
    with FakeProvider([Answer("", (AnswerCall("look", '{"b": '),)), "ok"]) as provider:
        one = Served(provider)
        _, result = await streamed(one.llm, ask(tools=TOOLS))
        (call,) = result.tool_calls
        assert call.invalid
        assert call.raw == '{"b": '
        await one.llm.chat(
            ask(USER, result.message, Message("tool", "bad", "look", call.id, is_error=True), tools=TOOLS)
        )
        assert one.body["messages"][1]["content"][0]["input"] == {"_raw": '{"b": '}
        await one.client.close()


async def test_a_native_block_goes_back_as_it_came_key_order_included() -> None:
    search = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
    found = {
        "type": "web_search_tool_result",
        "tool_use_id": "srvtoolu_1",
        "content": [
            {"url": "u", "type": "web_search_result", "title": "t", "encrypted_content": "e", "page_age": None}
        ],
    }
    with FakeProvider([Answer("There.", native=(search, found))], repeat=True) as provider:
        one = Served(provider)
        for result in (await one.llm.chat(ask()), (await streamed(one.llm, ask()))[1]):
            assert [type(block) for block in result.blocks] == [NativeBlock, NativeBlock, TextBlock]
            await one.llm.chat(ask(USER, result.message, USER))
            sent = one.body["messages"][1]["content"]
            assert json.dumps(sent) == json.dumps([search, found, {"type": "text", "text": "There."}])
        await one.client.close()


async def test_an_answer_that_is_sent_again_is_the_same_bytes() -> None:
    """K4: what came is what goes back, the order of keys in arguments included."""
    answer = Answer("Looking.", (AnswerCall("look", '{"b": 1, "a": {"y": 1, "x": [1.0, 1e2]}}'),), thinking="Hm.")
    options = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
    with FakeProvider([answer], repeat=True) as provider:
        one = Served(provider)
        talk = [USER]
        bodies = []
        for _ in range(3):
            _, result = await streamed(one.llm, ask(*talk, tools=TOOLS, temperature=None, options=options))
            bodies.append(provider.last.raw)
            (call,) = result.tool_calls
            talk += [result.message, Message("tool", "seen", "look", call.id)]
        inputs = [m["content"][-1]["input"] for m in one.body["messages"] if m["role"] == "assistant"]
        assert json.dumps(inputs[0]) == '{"b": 1, "a": {"y": 1, "x": [1.0, 100.0]}}'
        for before, after in pairwise(bodies):
            head = before[: before.index(b'],"model"')]
            assert after.startswith(head)
        await one.client.close()


async def test_a_paused_turn_goes_back_as_it_came() -> None:
    search = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
    with FakeProvider([Answer("", native=(search,), finish_reason="pause_turn"), "Done."]) as provider:
        one = Served(provider)
        _, result = await streamed(one.llm, ask(model="claude-opus-4-6"))
        assert result.finish_reason == "pause_turn"
        await one.llm.chat(ask(USER, result.message, model="claude-opus-4-6"))
        assert one.body["messages"][-1] == {"role": "assistant", "content": [search]}
        await one.client.close()


# Requests


async def test_system_text_tools_and_messages_each_in_their_place(served: Served) -> None:
    request = ask(
        Message("system", "be brief"),
        Message("system", "facts", name="grounding"),
        USER,
        Message("assistant", "look", tool_calls=[ToolCall("a", "look", {"b": 1}), ToolCall("b", "look", '{"b":2}')]),
        Message("tool", "1", "look", "a"),
        Message("tool", [TextBlock("see"), ImageBlock(b"\x89PNG", "image/png")], "look", "b"),
        Message("user", [TextBlock("and?"), DocumentBlock(b"%PDF-1", "application/pdf", title="paper")]),
        tools=TOOLS,
        max_tokens=77,
        temperature=0.5,
    )
    await served.llm.chat(request)
    assert served.body == {
        "max_tokens": 77,
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "hi"}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "look"},
                    {"type": "tool_use", "id": "a", "name": "look", "input": {"b": 1}},
                    {"type": "tool_use", "id": "b", "name": "look", "input": {"b": 2}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "a", "content": "1"},
                    {
                        "type": "tool_result",
                        "tool_use_id": "b",
                        "content": [
                            {"type": "text", "text": "see"},
                            {
                                "type": "image",
                                "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw=="},
                            },
                        ],
                    },
                    {"type": "text", "text": "and?"},
                    {
                        "type": "document",
                        "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0x"},
                        "title": "paper",
                    },
                ],
            },
        ],
        "model": MODEL,
        "stream": False,
        "system": [{"type": "text", "text": "be brief"}, {"type": "text", "text": "facts"}],
        "temperature": 0.5,
        "tools": [
            {
                "name": "look",
                "description": "Looks.",
                "input_schema": {"properties": {"a": {}, "b": {"type": "integer"}}, "type": "object"},
            }
        ],
    }


async def test_later_system_text_stays_where_it_stands_as_framed_user_text(served: Served) -> None:
    await served.llm.chat(
        ask(Message("system", "be brief"), USER, Message("assistant", "yes"), Message("system", "now loud"))
    )
    assert served.body["system"] == [{"type": "text", "text": "be brief"}]
    (block,) = served.body["messages"][-1]["content"]
    assert "<system-message" in block["text"]


async def test_the_prefix_of_the_request_says_what_is_standing_text(served: Served) -> None:
    await served.llm.chat(ask(Message("system", "be brief"), Message("system", "a summary"), USER, prefix=1))
    assert served.body["system"] == [{"type": "text", "text": "be brief"}]
    assert "a summary" in served.body["messages"][0]["content"][0]["text"]


async def test_a_repair_is_reported_in_the_meta(served: Served) -> None:
    """G1: what was sent in place of the record is said."""
    result = await served.llm.chat(ask(USER, Message("assistant", "", tool_calls=[ToolCall("a", "look")])))
    assert ("unanswered", 1) in result.meta["repaired"]


async def test_options_go_out_under_the_names_of_the_interface(served: Served) -> None:
    options = {
        "stop": "END",
        "top_k": 5,
        "metadata": {"user_id": "u"},
        "cache_key": "k",
        "seed": 1,
        "parallel_tool_calls": False,
        "betas": ["one-2026", "two-2026"],
    }
    result = await served.llm.chat(ask(tools=TOOLS, options=options))
    body = served.body
    assert body["stop_sequences"] == ["END"]
    assert (body["top_k"], body["metadata"]) == (5, {"user_id": "u"})
    assert body["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}
    assert "seed" not in body
    assert "cache_key" not in body
    assert result.meta["dropped"] == ("seed",)
    assert served.provider.last.headers["anthropic-beta"] == "one-2026,two-2026"


async def test_a_parameter_that_the_model_refuses_is_left_out_and_named(served: Served) -> None:
    result = await served.llm.chat(ask(model="claude-opus-4-7", temperature=0.0, options={"effort": "xhigh"}))
    assert "temperature" not in served.body
    assert served.body["output_config"] == {"effort": "xhigh"}
    assert result.meta["dropped"] == ("temperature",)


@pytest.mark.parametrize(
    ("choice", "sent"),
    [("auto", {"type": "auto"}), ("required", {"type": "any"}), ("none", {"type": "none"}),
     ({"name": "look"}, {"type": "tool", "name": "look"})],
)  # fmt: skip
async def test_a_choice_of_tools(served: Served, choice: Any, sent: Any) -> None:
    await served.llm.chat(ask(tools=TOOLS, tool_choice=choice))
    assert served.body["tool_choice"] == sent


async def test_a_forced_call_that_the_model_refuses_is_left_to_it_and_named(served: Served) -> None:
    result = await served.llm.chat(ask(tools=TOOLS, tool_choice="any", model="claude-sonnet-5-5"))
    assert "tool_choice" not in served.body
    assert "tool_choice" in result.meta["dropped"]


async def test_a_form_of_the_answer_is_asked_for_and_read() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}, "inner": {"type": "object", "properties": {}}}}
    with FakeProvider(['{"n": 3}', "no json"]) as provider:
        one = Served(provider)
        result = await one.llm.chat(ask(response_format=schema, options={"effort": "low"}, model="claude-sonnet-4-6"))
        assert result.parsed == {"n": 3}
        sent = one.body["output_config"]
        assert sent["effort"] == "low"
        assert sent["format"]["type"] == "json_schema"
        assert sent["format"]["schema"]["additionalProperties"] is False
        assert sent["format"]["schema"]["properties"]["inner"]["additionalProperties"] is False
        assert (await one.llm.chat(ask(response_format=schema))).parsed is None
        await one.client.close()


def test_a_constraint_that_the_interface_refuses_moves_into_the_description() -> None:
    schema = {
        "type": "object",
        "properties": {
            "n": {"type": "integer", "minimum": 1, "maximum": 9, "description": "How many."},
            "type": {"type": "array", "items": {"type": "string", "maxLength": 3}, "minItems": 1},
            "one": {"anyOf": [{"$ref": "#/$defs/inner"}, {"type": "null"}]},
            "any": {"type": "object", "additionalProperties": True, "default": {"type": "object"}},
        },
        "$defs": {"inner": {"type": "object", "properties": {}}},
    }
    assert closed_schema(schema) == {
        "type": "object",
        "properties": {
            "n": {"type": "integer", "description": "How many. (minimum: 1, maximum: 9)"},
            "type": {"type": "array", "items": {"type": "string", "description": "(maxLength: 3)"}, "minItems": 1},
            "one": {"anyOf": [{"$ref": "#/$defs/inner"}, {"type": "null"}]},
            "any": {"type": "object", "additionalProperties": True, "default": {"type": "object"}},
        },
        "$defs": {"inner": {"type": "object", "properties": {}, "additionalProperties": False}},
        "additionalProperties": False,
    }
    assert closed_schema(True) is True


async def test_a_start_of_the_answer_is_refused_before_the_network_where_the_model_takes_none(served: Served) -> None:
    with pytest.raises(PermanentError, match="must end with a user"):
        await served.llm.chat(ask(USER, Message("assistant", "So"), model="claude-opus-4-6"))
    assert not served.provider.requests
    await served.llm.chat(ask(USER, Message("assistant", "So"), model=MODEL))
    assert served.body["messages"][-1]["role"] == "assistant"


async def test_nothing_to_answer_is_refused_before_the_network(served: Served) -> None:
    with pytest.raises(EmptyRequestError):
        await served.llm.chat(ask(Message("system", "s")))
    with pytest.raises(EmptyRequestError):
        [delta async for delta in served.llm.stream(ask(Message("system", "s")))]
    assert not served.provider.requests


async def test_tokens_by_the_providers_count(served: Served) -> None:
    request = ask(Message("system", "be brief"), USER, tools=TOOLS, temperature=0.5, options={"stop": "x"})
    assert await served.llm.count_exact(request) > 0
    assert served.provider.last.path.startswith("/v1/messages/count_tokens")
    assert not {"max_tokens", "temperature", "stop_sequences"} & served.body.keys()


async def test_a_body_can_be_looked_at_without_sending(served: Served) -> None:
    request = ask(Message("system", "be brief"), USER, temperature=0.5)
    body = served.llm.body(request)
    await served.llm.chat(request)
    assert {**body, "stream": False} == served.body


# Cache marks


async def test_the_plan_becomes_marks_and_the_provider_reads_them() -> None:
    system = Message("system", "s" * 20_000)
    with FakeProvider() as provider:
        one = Served(provider)
        hint = (Breakpoint(1, "1h"), Breakpoint(2))
        await one.llm.chat(ask(system, USER, cache_hint=hint))
        assert one.body["system"][-1]["cache_control"] == {"type": "ephemeral", "ttl": "1h"}
        assert one.body["messages"][-1]["content"][-1]["cache_control"] == {"type": "ephemeral"}
        talk = (system, USER, Message("assistant", "yes"), Message("user", "more"))
        result = await one.llm.chat(ask(*talk, cache_hint=(Breakpoint(1, "1h"), Breakpoint(2), Breakpoint(4))))
        assert result.usage.cache_read_tokens > 4_096
        assert result.usage.input_tokens == 0
        await one.client.close()


# Faults


async def failing(fault: Any, request: ChatRequest, *, stream: bool = False) -> tuple[BaseException, int]:
    """What an adapter raises, and how many requests it made."""
    with FakeProvider(faults=[fault] * 4) as provider:
        one = Served(provider)
        with pytest.raises((AuthError, PermanentError, TransientError, ContextOverflowError)) as caught:
            await (streamed(one.llm, request) if stream else one.llm.chat(request))
        await one.client.close()
        return caught.value, len(provider.requests)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("kind", "wanted"),
    [("auth", AuthError), ("permission", AuthError), ("billing", PermanentError), ("rate_limit", TransientError),
     ("overloaded", TransientError), ("server", TransientError), ("too_large", PermanentError)],
)  # fmt: skip
async def test_an_error_is_mapped_once_and_asked_once(kind: str, wanted: type[Exception], stream: bool) -> None:
    error, requests = await failing(kind, ask(), stream=stream)
    assert isinstance(error, wanted)
    assert requests == 1  # retries are the library's business
    assert error.__cause__ is not None
    assert "test" not in str(error)


async def test_a_rate_limit_says_how_long_to_wait() -> None:
    error, _ = await failing(WireFault("rate_limit", retry_after=7.0), ask())
    assert isinstance(error, TransientError)
    assert error.retry_after == 7.0


async def test_a_request_above_the_window_teaches_it() -> None:
    with FakeProvider(windows={MODEL: 1_000}) as provider:
        one = Served(provider)
        with pytest.raises(ContextOverflowError) as caught:
            await one.llm.chat(ask(Message("user", "x" * 8_000)))
        assert caught.value.window == 1_000
        await one.client.close()


@pytest.mark.parametrize(
    "fault",
    [
        WireFault(cut_after=3),
        WireFault(cut_after=0),
        WireFault(malformed_after=3),
        WireFault("overloaded", error_after=3),
    ],
    ids=["cut", "never begun", "malformed", "error inside"],
)
async def test_a_stream_that_breaks_may_be_asked_again_and_gives_no_half_message(fault: WireFault) -> None:
    with FakeProvider(["A rather long answer, in pieces."], repeat=True, faults=[fault]) as provider:
        one = Served(provider)
        deltas: list[Delta] = []

        async def read() -> None:
            async for delta in one.llm.stream(ask()):
                deltas.append(delta)  # noqa: PERF401 - what came before the fault counts

        with pytest.raises(TransientError):
            await read()
        assert all(delta.finish_reason is None and not delta.blocks and delta.usage is None for delta in deltas)
        _, result = await streamed(one.llm, ask())
        assert result.text == "A rather long answer, in pieces."
        await one.client.close()


async def test_a_whole_answer_that_is_cut_may_be_asked_again() -> None:
    error, requests = await failing(WireFault(cut_after=1), ask())
    assert isinstance(error, TransientError)
    assert requests == 1


async def test_a_stream_that_is_left_early_closes_its_connection() -> None:
    gate = Gate()
    with FakeProvider(["word " * 50], faults=[WireFault(pause=gate, pause_after=5)]) as provider:
        one = Served(provider)
        async with aclosing(one.llm.stream(ask())) as deltas:
            await anext(deltas)
        pool = one.client._client._transport._pool  # type: ignore[attr-defined]
        assert all(not connection.is_available() or connection.is_idle() for connection in pool.connections)
        assert not [c for c in pool.connections if not c.is_idle() and not c.is_closed()]
        gate.open()
        await one.client.close()


async def test_cancelling_a_stream_is_not_swallowed() -> None:
    gate = Gate()
    with FakeProvider(["word " * 50], faults=[WireFault(pause=gate, pause_after=5)]) as provider:
        one = Served(provider)
        begun = asyncio.Event()

        async def read() -> None:
            async for _ in one.llm.stream(ask()):
                begun.set()

        task = asyncio.create_task(read())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        gate.open()
        await one.client.close()


@pytest.mark.parametrize("stream", [False, True])
async def test_thinking_whose_conversation_has_changed_is_left_to_the_provider(stream: bool) -> None:
    """A compaction alters what stood in front of thinking: models that check it refuse the request, or leave it out."""
    message = (
        "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different "
        'conversation. Remove the block, or set `thinking.block_binding.prefix_mismatch_behavior` to "drop_block".'
    )
    bodies: list[dict[str, Any]] = []
    betas: list[str | None] = []

    def handle(request: httpx2.Request) -> httpx2.Response:
        body = json.loads(request.content)
        bodies.append(body)
        betas.append(request.headers.get("anthropic-beta"))
        if "block_binding" not in body.get("thinking", {}):
            error = {"type": "invalid_request_error", "message": message}
            return httpx2.Response(400, json={"type": "error", "error": error})
        answer = {
            "id": "msg_1", "type": "message", "role": "assistant", "model": body["model"], "stop_reason": "end_turn",
            "content": [{"type": "text", "text": "So."}], "usage": {"input_tokens": 9, "output_tokens": 1},
            "input_transformations": [{"type": "thinking_dropped", "path": "messages.1.content.0"}],
        }  # fmt: skip
        if not body["stream"]:
            return httpx2.Response(200, json=answer)
        events: list[dict[str, Any]] = [{"type": "message_start", "message": answer}, {"type": "message_stop"}]
        text = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
        return httpx2.Response(200, text=text, headers={"content-type": "text/event-stream"})

    http = httpx2.AsyncClient(transport=httpx2.MockTransport(handle))
    client = anthropic.AsyncAnthropic(api_key="test", base_url="http://127.0.0.1", http_client=http)
    llm = AnthropicLLM(client, model="claude-fable-5-1")
    talk = [USER, Message("assistant", [ThinkingBlock("hm", "s"), TextBlock("yes")]), USER]
    for number in (2, 3):
        result = (await streamed(llm, ask(*talk)))[1] if stream else await llm.chat(ask(*talk))
        assert len(bodies) == number  # refused once, and from then on never again
        assert result.text == "So."
        assert result.meta["anthropic"]["input_transformations"][0]["type"] == "thinking_dropped"
    assert bodies[1]["thinking"] == {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
    assert betas == [None, "thinking-binding-controls-2026-08-01", "thinking-binding-controls-2026-08-01"]
    with pytest.raises(PermanentError, match="bound to a different conversation"):
        await AnthropicLLM(client, model="claude-sonnet-5-5").chat(
            ask(*talk, options={"thinking": {"type": "between_tools"}})
        )


async def test_no_model_is_a_callers_mistake(served: Served) -> None:
    llm = AnthropicLLM(served.client)
    with pytest.raises(ValueError, match="no model"):
        await llm.chat(ask())


def test_the_adapter_needs_no_client_library_to_be_imported() -> None:
    code = (
        "import sys, agentkit.models.adapters.anthropic\n"
        "assert not {'anthropic', 'openai', 'httpx', 'httpx2', 'pydantic'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


async def test_every_request_passes_the_providers_checks(served: Served) -> None:
    def answered(exchange: Exchange) -> bool:
        return exchange.status == 200

    await served.llm.chat(ask(USER, USER, Message("assistant", "", tool_calls=[ToolCall("é", "lo ok")]), USER))
    assert all(map(answered, served.provider.requests))
