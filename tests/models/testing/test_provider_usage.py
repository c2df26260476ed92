"""What the fake provider reports as usage: the rules of the prompt caches, over conversations that grow."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import anthropic
import openai
import pytest

from agentkit.models.testing.provider import FakeProvider
from agentkit.models.usage import read_usage
from tests.models.testing.posts import post

CLAUDE, GPT = "claude-sonnet-4-6", "gpt-5.6-sol"
MARK = {"type": "ephemeral"}
LONG = "word " * 2_000


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def grown(length: int, *, mark: bool = True) -> dict[str, Any]:
    """A conversation of so many turns, with a mark on the system text and on the last block."""
    messages: list[dict[str, Any]] = []
    for at in range(length):
        messages.append({"role": "user", "content": [{"type": "text", "text": f"{at} {LONG}"}]})
        messages.append({"role": "assistant", "content": "Yes."})
    messages.append({"role": "user", "content": [{"type": "text", "text": f"{length} {LONG}"}]})
    if mark:
        messages[-1]["content"][0]["cache_control"] = MARK
    system = [{"type": "text", "text": LONG, "cache_control": {**MARK, "ttl": "1h"}}]
    return {"model": CLAUDE, "max_tokens": 50, "system": system, "messages": messages}


def test_marked_conversation_reads_what_it_wrote() -> None:
    clock = Clock()
    with FakeProvider(clock=clock) as provider:
        sizes = []
        for length in range(4):
            _, answer = post(provider, "/v1/messages", grown(length))
            usage = answer["usage"]
            sizes.append(
                (usage["cache_read_input_tokens"], usage["cache_creation_input_tokens"], usage["input_tokens"])
            )
            clock.now += 60
    for (read, write, _), (next_read, next_write, fresh) in pairwise(sizes):
        assert next_read == read + write
        assert next_write > 2_000
        assert fresh == 0
    first = provider.requests[0]
    assert first.spent is not None
    assert first.spent.write_long > 2_000 < first.spent.write_short
    assert first.bill.write_long == first.spent.write_long


def test_entries_expire_by_the_clock_that_is_given() -> None:
    clock = Clock()
    body = grown(1)
    with FakeProvider(clock=clock) as provider:
        post(provider, "/v1/messages", body)
        clock.now += 301
        _, answer = post(provider, "/v1/messages", body)
        system = answer["usage"]["cache_read_input_tokens"]
        assert 2_000 < system < 4_000
        clock.now += 3_601
        _, answer = post(provider, "/v1/messages", body)
        assert answer["usage"]["cache_read_input_tokens"] == 0


def test_keys_share_nothing() -> None:
    with FakeProvider() as provider:
        post(provider, "/v1/messages", grown(1), {"x-api-key": "one"})
        _, other = post(provider, "/v1/messages", grown(1), {"x-api-key": "two"})
        _, same = post(provider, "/v1/messages", grown(1), {"x-api-key": "one"})
    assert other["usage"]["cache_read_input_tokens"] == 0
    assert same["usage"]["cache_read_input_tokens"] > 5_000


def test_without_a_mark_nothing_is_kept() -> None:
    body = {"model": CLAUDE, "max_tokens": 9, "messages": [{"role": "user", "content": LONG}]}
    with FakeProvider() as provider:
        for _ in range(2):
            _, answer = post(provider, "/v1/messages", body)
            assert answer["usage"]["cache_read_input_tokens"] == answer["usage"]["cache_creation_input_tokens"] == 0


def test_counters_add_up_on_each_wire() -> None:
    """The normal form of what is reported has as many tokens as the prompt, whichever way a wire counts."""
    chat = {"model": GPT, "messages": [{"role": "user", "content": LONG}]}
    responses = {"model": GPT, "input": f"Another {LONG}"}  # both wires share one cache
    gemini = {"contents": [{"role": "user", "parts": [{"text": LONG}]}]}
    asked: list[tuple[str, str, dict[str, Any]]] = [
        ("/v1/messages", "anthropic", grown(1)),
        ("/v1/chat/completions", "openai_chat", chat),
        ("/v1/responses", "openai_responses", responses),
        ("/v1beta/models/gemini-2.5-pro:generateContent", "gemini", gemini),
    ]
    with FakeProvider() as provider:
        for path, wire, body in asked:
            for again in range(2):
                status, answer = post(provider, path, body)
                assert status == 200, answer
                reading = read_usage(answer.get("usage") or answer["usageMetadata"], wire)
                assert reading.usage.prompt_tokens == provider.last.prompt.tokens
                assert (reading.usage.cache_read_tokens > 2_000) is bool(again)
                assert set(reading.flags) <= {"ttl_unknown"}  # chat completions do not split writes by lifetime


def test_prompt_cache_key_keeps_requests_apart() -> None:
    body = {"model": GPT, "input": LONG}
    with FakeProvider() as provider:
        reads = []
        for key in ("a", "b", "a"):
            _, answer = post(provider, "/v1/responses", {**body, "prompt_cache_key": key})
            reads.append(answer["usage"]["input_tokens_details"]["cached_tokens"])
    assert reads[:2] == [0, 0]
    assert reads[2] > 2_000


def test_explicit_marks_are_honoured() -> None:
    """o3: what stands in front of a mark is read again, whatever comes behind it."""
    mark = {"mode": "explicit"}
    content = [{"type": "input_text", "text": LONG, "prompt_cache_breakpoint": mark}]
    with FakeProvider() as provider:
        reads = []
        for at in range(2):
            items = [{"role": "developer", "content": content}, {"role": "user", "content": f"It is {at} o'clock."}]
            status, answer = post(
                provider, "/v1/responses", {"model": GPT, "input": items, "prompt_cache_options": mark}
            )
            assert status == 200, answer
            reads.append(answer["usage"]["input_tokens_details"]["cached_tokens"])
    assert reads[0] == 0
    assert reads[1] > 2_000


def test_model_without_cache_rules_pays_for_all() -> None:
    body = {"model": "my-own", "messages": [{"role": "user", "content": LONG}]}
    with FakeProvider() as provider:
        _, answer = post(provider, "/v1/chat/completions", body)
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert provider.last.bill is None


@pytest.mark.anyio
async def test_stream_reports_the_same_usage() -> None:
    text: anthropic.types.TextBlockParam = {"type": "text", "text": LONG, "cache_control": {"type": "ephemeral"}}
    messages: list[anthropic.types.MessageParam] = [{"role": "user", "content": [text]}]
    reads = []
    with FakeProvider() as provider:
        async with anthropic.AsyncAnthropic(api_key="k", base_url=provider.url, max_retries=0) as claude:
            for _ in range(2):
                async with claude.messages.stream(model=CLAUDE, max_tokens=9, messages=messages) as stream:
                    reads.append((await stream.get_final_message()).usage.cache_read_input_tokens)
        assert reads == [0, provider.last.bill.read]
        assert provider.last.bill.read > 2_000
        async with (
            openai.AsyncOpenAI(api_key="k", base_url=provider.openai_url, max_retries=0) as gpt,
            gpt.responses.stream(model=GPT, input=LONG) as told,
        ):
            usage = (await told.get_final_response()).usage
    assert usage is not None
    assert usage.input_tokens == provider.last.prompt.tokens
    assert usage.input_tokens_details.cache_write_tokens == provider.last.bill.write > 2_000


def test_reply_is_only_as_long_as_it_is_counted() -> None:
    """A counter of one's own decides what all figures are."""
    with FakeProvider(answers=["four words make this"], counter=lambda text: len(text.split())) as provider:
        _, answer = post(provider, "/v1/messages", grown(0))
    assert answer["usage"]["output_tokens"] == 4
