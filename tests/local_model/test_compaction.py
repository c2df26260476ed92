"""A summary that a real model writes under a JSON Schema is applied; one that is cut off changes nothing. Of what it
says nothing is asked: the model is far too small."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from agentkit.agents import Agent, Hooks, RequestBuilder
from agentkit.core.contracts.messages import marked
from agentkit.core.contracts.requests import ChatRequest, LLMResult
from agentkit.core.contracts.types import Message
from agentkit.core.testing import make_test_ctx
from agentkit.state.compaction import Compacted, Declined, Summariser, SummarizeCompactor
from agentkit.state.context import CharClassTokenCounter, WorkingContext
from tests.local_model.model import MODEL, STANDING, LocalModel, wire_of

pytestmark = [pytest.mark.anyio, pytest.mark.local_model]

MOVED = (
    "We moved the ticket sale from the red house to kiosk 7, because the roof leaks over the counter. The carpenter "
    "comes on Monday 8 June and needs two weeks, if the weather holds. Until then the old signs are covered, and the "
    "safe stays where it is. The harbour master is called Ines Vidal; her number is 4417, at night that of the watch."
)
FULL = (
    "The ferry of Friday 14:30 is full, with 112 people and 31 bicycles on the list. A school class of 24 asks for "
    "places on Saturday at 9:00 and back at noon; their teacher pays by invoice, not in cash. The long pier is closed "
    "for cars on both days, since the market needs the room, so whoever brings a car parks behind the mill."
)
TALK = (
    ("user", MOVED),
    ("assistant", "Noted: tickets are sold at kiosk 7 until the roof is mended."),
    ("user", FULL),
    ("assistant", "Then I shall offer the class the ferry of Saturday at 9:00."),
    ("user", "When does it leave?"),
)
COUNTER = CharClassTokenCounter()


def schema(**text: int) -> dict[str, Any]:
    """The form of an answer; `text` bounds its texts, and then its lists too."""
    said = {"type": "string", **text}
    fact = {"type": "object", "properties": {"text": said}, "required": ["text"], "additionalProperties": False}
    facts = {"type": "array", "items": fact, **({"maxItems": 1} if text else {})}
    properties = {"narrative": said, "facts": facts}
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def summariser(model: LocalModel, form: dict[str, Any], asked: list[LLMResult]) -> Callable[..., Awaitable[LLMResult]]:
    """Calls the model for a summary: the library's request with a shorter instruction, and this form of the answer."""
    llm = model.chat()

    async def call(request: ChatRequest) -> LLMResult:
        short = (Message("system", "Sum up the entries as JSON."), *request.messages[1:])
        answer = await llm.chat(replace(request, messages=short, response_format=form, options={"seed": 1}))
        asked.append(answer)
        return answer

    return call


def compactor(call: Callable[..., Awaitable[LLMResult]], output: int, **options: Any) -> SummarizeCompactor:
    how = Summariser(MODEL, window=4_096, max_output=output, prompt="Sum up.")
    return SummarizeCompactor(call, max_tokens=200, goal=190, keep_recent=1, summary_tokens=150, how=how, **options)


def context() -> WorkingContext:
    return WorkingContext(messages=[Message(role, text) for role, text in TALK[:-1]], token_counter=COUNTER)


async def test_a_bounded_summary_is_applied_and_the_prefix_stays(model: LocalModel) -> None:
    asked: list[LLMResult] = []
    folding = compactor(summariser(model, schema(minLength=1, maxLength=24), asked), 64)
    sent: list[ChatRequest] = []
    hooks = Hooks(before_model=lambda request, ctx: sent.append(request))
    whole = Agent("sea", MODEL, prompt=STANDING, max_tokens=8, hooks=hooks)
    folded = Agent("sea", MODEL, request_builder=RequestBuilder(STANDING, compactor=folding), max_tokens=8, hooks=hooks)
    llm, wc = model.chat(), context()
    ctx = make_test_ctx(llm=llm)
    before = (await whole.run("Hello.", ctx)).usage
    result = await folded.run(TALK[-1][1], ctx, context=wc)
    assert [answer.finish_reason for answer in asked] == ["stop"]
    assert isinstance(asked[0].parsed, dict)
    summary = wc.messages[0]
    assert marked(summary, "summary") is not None
    assert asked[0].parsed["narrative"].strip() in summary.content
    assert wc.messages[-2].content == TALK[-1][1]
    assert COUNTER.measure(wc.messages[:-1]) < COUNTER.measure([Message(role, text) for role, text in TALK])
    standing = len(model.tokens(wire_of(*wc.prefix.as_messages()), open_end=False))
    assert before.prompt_tokens > standing
    assert standing <= result.usage.cache_read_tokens < result.usage.prompt_tokens
    first, second = (json.dumps(llm.body(request)["messages"][0]) for request in sent)
    assert first == second


@pytest.mark.parametrize("fallback", [False, True])
async def test_an_unbounded_summary_runs_into_the_limit_and_counts_for_nothing(
    model: LocalModel, fallback: bool
) -> None:
    asked: list[LLMResult] = []
    folding = compactor(summariser(model, schema(), asked), 8, fallback=fallback)
    messages = [Message(role, text) for role, text in TALK]
    made = await folding.summarise(messages, counter=COUNTER)
    assert (asked[0].finish_reason, asked[0].parsed, asked[0].usage.output_tokens) == ("length", None, 8)
    if not fallback:
        assert isinstance(made, Declined)
        assert made.reason == "no_summary"
        assert "cut off" in made.detail
        assert await folding.compact(messages, counter=COUNTER) is messages
    else:
        assert isinstance(made, Compacted)
        assert made.degraded
        about = marked(made.summary, "summary")
        assert about is not None
        assert (about["covers"], about["state"]["facts"] != []) == (4, True)
        assert made.messages(messages)[-1] is messages[-1]
