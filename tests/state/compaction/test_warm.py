"""C13: with a warm cache the request for a summary extends the conversation's prefix, byte for byte, where that is
cheaper than sending the entries again."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import pytest

from agentkit.core.contracts.offers import Breakpoint, ToolSchema
from agentkit.core.contracts.requests import ChatRequest, LLMResult
from agentkit.core.contracts.types import Message, ToolCall, Usage
from agentkit.models.adapters.anthropic import AnthropicLLM
from agentkit.models.adapters.openai_responses import OpenAIResponsesLLM
from agentkit.models.catalog import rates
from agentkit.state.compaction import Conversation, Source, Summariser, SummaryFailed, Written, summarising

MODEL = "claude-sonnet-4-6"


@dataclass(frozen=True)
class Price:
    """USD per million tokens."""

    input: float
    read: float | None
    write: float | None = None


SUMMARY = json.dumps({"facts": [{"text": "the port is 8080", "n": 3}], "narrative": "it went on"})
HOW = Summariser(MODEL, 200_000)
USED = Usage(10, 5)


def told(n: int) -> str:
    return f"entry {n}: " + f"the port is {8_000 + n}, and more is said of it. " * 60


SOURCES = [Source(n, "user" if n % 2 else "assistant", told(n)) for n in range(1, 13)]


def conversation(**changes: Any) -> Conversation:
    messages = [Message(source.speaker, source.text) for source in SOURCES]
    request = ChatRequest(
        (Message("system", "You are terse."), *messages, Message("user", "go on")),
        MODEL,
        (ToolSchema("look", "Looks."),),
        cache_hint=(Breakpoint(1), Breakpoint(13)),
        prefix=1,
        options={"effort": "low"},
    )
    priced = rates(MODEL)
    assert priced is not None
    return replace(Conversation(request, 8_000, 8_000, priced), **changes)


def driven(
    warm: Conversation | None, *answers: LLMResult, sources: list[Source] = SOURCES, how: Summariser = HOW
) -> tuple[list[ChatRequest], Written]:
    """The requests that were made, and what was written."""
    asked: list[ChatRequest] = []
    left = list(answers)
    steps = summarising(sources, how, conversation=warm)
    request = next(steps)
    while True:
        asked.append(request)
        try:
            request = steps.send(left.pop(0))
        except StopIteration as end:
            return asked, end.value


def test_c13_the_request_is_the_conversation_and_the_instruction_behind_it() -> None:
    warm = conversation()
    (request,), written = driven(warm, LLMResult(SUMMARY, (), USED, "stop"))
    assert all(a is b for a, b in zip(request.messages, warm.request.messages, strict=False))
    assert len(request.messages) == len(warm.request.messages) + 1
    assert replace(request, messages=(), max_tokens=None) == replace(warm.request, messages=(), max_tokens=None)
    assert (written.calls, written.usage) == (1, USED)
    assert [fact.text for fact in written.delta.facts] == ["the port is 8080"]
    text = request.messages[-1].content
    assert '<entry n="3" by="user">\nentry 3: the port is 8003' in text
    assert len(text) < sum(len(source.text) for source in SOURCES) / 3, "entries are named, not sent again"


@pytest.mark.parametrize("make", [AnthropicLLM, OpenAIResponsesLLM], ids=lambda make: make.__name__)
def test_c13_the_bytes_in_front_are_those_of_the_conversation(make: Any) -> None:
    warm, model = conversation(), MODEL if make is AnthropicLLM else "gpt-5.6-sol"
    (request,), _ = driven(warm, LLMResult(SUMMARY, (), USED, "stop"))
    llm = make(None)
    before, now = (llm.body(replace(one, model=model)) for one in (warm.request, request))
    field = "messages" if make is AnthropicLLM else "input"
    for key in ("tools", "system", "output_config", "reasoning", "tool_choice"):
        assert json.dumps(before.get(key)) == json.dumps(now.get(key))
    said = json.dumps(before[field])[:-1]
    if make is AnthropicLLM:  # the last user turn goes on
        said = said.removesuffix("]}")
    assert json.dumps(now[field]).startswith(said)


@pytest.mark.parametrize(
    "answer",
    [
        LLMResult("", (ToolCall("c", "look"),), USED, "tool_calls"),
        LLMResult("I go on, then.", (), USED, "stop"),
        LLMResult(SUMMARY[:20], (), USED, "length"),
    ],
    ids=["tool call", "no summary", "cut off"],
)
def test_c11_what_is_no_summary_there_is_asked_for_in_a_request_of_its_own(answer: LLMResult) -> None:
    asked, written = driven(conversation(), answer, LLMResult(SUMMARY, (), USED, "stop"))
    assert [request.response_format is None for request in asked] == [True, False]
    assert (written.calls, written.usage) == (2, USED + USED)
    with pytest.raises(SummaryFailed):
        driven(conversation(), answer, answer)


@pytest.mark.parametrize(
    "warm",
    [
        None,
        conversation(tokens=20_000, read=0),
        conversation(tokens=150_000, read=150_000),
        conversation(tokens=199_000, read=199_000, rates=Price(3.0, 0.001)),
        conversation(rates=Price(3.0, None)),
    ],
    ids=["cold", "nothing of it is in the cache", "dearer", "beyond the window", "no price of a read"],
)
def test_where_it_does_not_pay_the_entries_are_sent_by_themselves(warm: Conversation | None) -> None:
    (request,), written = driven(warm, LLMResult(SUMMARY, (), USED, "stop"))
    assert request.response_format is not None
    assert [message.role for message in request.messages] == ["system", "user"]
    assert written.calls == 1


def test_nothing_to_fold_asks_nothing() -> None:
    with pytest.raises(StopIteration):
        next(summarising([], HOW, conversation=conversation()))
