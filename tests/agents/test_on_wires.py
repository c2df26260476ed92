"""The agent through the real adapters and a provider on loopback, on every wire: accepted, cached, priced."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import anthropic
import httpx2
import pytest

from agentkit.agents import Agent, FunctionTool, ReActCognition, tool
from agentkit.core.contracts.ports import LLM
from agentkit.core.contracts.validity import check
from agentkit.core.policies import compaction
from agentkit.core.runtime import Budget
from agentkit.core.testing import make_test_ctx
from agentkit.models.adapters.anthropic import AnthropicLLM
from agentkit.models.testing.provider import Answer, AnswerCall, FakeProvider
from agentkit.state.compaction import TruncationCompactor
from agentkit.state.context import CharClassTokenCounter, WorkingContext
from tests.models.adapters.served import ONCE, chat_llm, gemini_llm, responses_llm

pytestmark = pytest.mark.anyio


def anthropic_llm(provider: FakeProvider) -> AnthropicLLM:
    http = httpx2.AsyncClient(limits=ONCE, verify=False)
    return AnthropicLLM(anthropic.AsyncAnthropic(api_key="k", base_url=provider.url, http_client=http))


WIRES: dict[str, tuple[str, Callable[[FakeProvider], LLM]]] = {
    "anthropic": ("claude-sonnet-4-6", anthropic_llm),
    "chat": ("gpt-5.6-sol", chat_llm),
    "responses": ("gpt-5.6-sol", responses_llm),
    "gemini": ("gemini-2.5-flash", gemini_llm),
}


@tool(side_effecting=False)
async def look(page: int) -> str:
    """Look at a page."""
    return f"page {page}: " + "words and more words on this page " * 20


@pytest.mark.parametrize("wire", WIRES)
async def test_tool_loop_is_accepted_cached_and_priced(wire: str) -> None:
    model, make = WIRES[wire]
    rounds = 5
    calls = [
        Answer(calls=(AnswerCall("look", {"page": n}), AnswerCall("look", {"page": n + 50}))) for n in range(rounds)
    ]
    with FakeProvider(answers=[*calls, "Read them all.", '{"n": 5}']) as provider:
        turns = iter(range(100))
        agent = Agent(
            "reader",
            model,
            prompt="You read pages. " * 1_500,
            volatile=lambda wc, ctx: f"<now>{next(turns)}</now>",
            cognition=ReActCognition([look]),
        )
        budget, wc = Budget(max_cost_usd=1.0), WorkingContext()
        ctx = make_test_ctx(llm=make(provider), budget=budget)
        result = await agent.run("Read.", ctx, context=wc)
        assert (result.output, result.partial) == ("Read them all.", False)
        assert len(provider.requests) == rounds + 1
        assert wc.count().source == "provider"
        usages: list[Any] = [exchange.bill for exchange in provider.requests]
        for before, after in pairwise(usages):
            if wire != "gemini":
                assert after.read == before.read + before.write_short + before.write_long
        assert result.usage.cache_read_tokens > 0.6 * result.usage.prompt_tokens
        assert 0 < budget.spent.cost_usd == result.usage.cost_usd


@pytest.mark.parametrize("wire", WIRES)
async def test_a_tool_whose_name_no_provider_takes_is_called_under_one_that_it_does(wire: str) -> None:
    """The provider sees a spelling of its own, in the tools and in the transcript; code and record keep the name."""
    model, make = WIRES[wire]
    own, sent = "pages/read now", "pages_read_now"
    reads = FunctionTool(look.function, side_effecting=False, name=own)
    with FakeProvider(answers=[Answer(calls=(AnswerCall(sent, {"page": 7}),)), "Done."]) as provider:
        agent, wc = Agent("reader", model, prompt="You read.", cognition=ReActCognition([reads])), WorkingContext()
        result = await agent.run("Read.", make_test_ctx(llm=make(provider)), context=wc)
        assert result.output == "Done."
        assert [exchange.status for exchange in provider.requests] == [200, 200]
        assert [own in str(exchange.body) for exchange in provider.requests] == [False, False]
    assert [call.name for message in wc.messages for call in message.tool_calls] == [own]
    answer = next(message for message in wc.messages if message.role == "tool")
    assert answer.content.startswith("page 7")
    assert wc.messages[1].meta["renamed"] == {sent: own}


@pytest.mark.parametrize("wire", WIRES)
async def test_loop_that_is_compacted_on_its_way_stays_acceptable(wire: str) -> None:
    """C4, K3: one prompt with a long tool loop, shortened in the middle of it, and marks that follow."""
    model, make = WIRES[wire]
    told: list[str] = []
    calls = [Answer(calls=(AnswerCall("look", {"page": n}),)) for n in range(14)]
    with FakeProvider(answers=[*calls, "Done."]) as provider:
        agent = Agent(
            "reader", model, prompt="You read pages.", volatile="<plan/>", cognition=ReActCognition([look], 20)
        )
        ctx = make_test_ctx(
            llm=make(provider),
            chat_middleware=[compaction(TruncationCompactor(max_tokens=1_200, keep_recent=4))],
            observer=lambda event: told.append(event.name),
        )
        wc = WorkingContext(token_counter=CharClassTokenCounter())
        assert (await agent.run("Read.", ctx, context=wc)).output == "Done."
        assert {exchange.status for exchange in provider.requests} == {200}
        assert told.count("compaction.done") >= 1
        assert check(wc.messages) == ()
