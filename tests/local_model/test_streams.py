"""Streams say what whole answers say, on each wire, and whoever leaves in the middle harms nobody."""

from __future__ import annotations

from contextlib import aclosing

import pytest

from agentkit.agents import Agent
from agentkit.core.contracts.requests import ChatRequest
from agentkit.core.contracts.types import Message
from agentkit.core.testing import make_test_ctx
from agentkit.models.adapters.openai_chat import OpenAIChatLLM
from agentkit.models.usage import read_usage
from agentkit.state.context import WorkingContext
from tests.local_model.model import MODEL, STANDING, LocalModel
from tests.models.adapters.served import answered

pytestmark = [pytest.mark.anyio, pytest.mark.local_model]

WIRES = ("chat", "anthropic", "responses")
CAPITAL = "What is the capital of France?"


def asking(text: str = CAPITAL, length: int = 8, **options: object) -> ChatRequest:
    messages = (Message("system", STANDING), Message("user", text))
    return ChatRequest(messages, MODEL, max_tokens=length, options={"seed": 1, **options})


@pytest.mark.parametrize("wire", WIRES)
async def test_a_stream_adds_up_to_the_whole_answer(model: LocalModel, wire: str) -> None:
    llm = model.on(wire)
    await llm.chat(asking())
    whole = await answered(llm, asking(), stream=False)
    joined = await answered(llm, asking(), stream=True)
    assert whole.text
    assert (joined.text, joined.usage, joined.finish_reason) == (whole.text, whole.usage, whole.finish_reason)
    assert (joined.message.content, joined.model) == (whole.text, MODEL)  # ids of items are made anew


@pytest.mark.parametrize("wire", ["chat", "anthropic"])
async def test_an_answer_that_is_cut_says_so_on_both_ways(model: LocalModel, wire: str) -> None:
    llm, asked = model.on(wire), asking("Tell me about the sea.")
    for stream in (False, True):
        result = await answered(llm, asked, stream=stream)
        assert (result.finish_reason, result.usage.output_tokens) == ("length", 8)


@pytest.mark.parametrize("wire", WIRES)
async def test_who_leaves_in_the_middle_leaves_nothing_behind(model: LocalModel, wire: str) -> None:
    agent = Agent("sea", MODEL, prompt=STANDING, max_tokens=32, options={"seed": 1})
    ctx, wc = make_test_ctx(llm=model.on(wire)), WorkingContext()
    async with aclosing(agent.stream("Tell me about the sea.", ctx, context=wc)) as events:
        async for event in events:
            assert event.kind == "message_delta"
            break
    assert [message.role for message in wc.messages] == ["user"]
    result = await agent.run("Now in three words.", ctx, context=wc)
    assert [message.role for message in wc.messages] == ["user", "user", "assistant"]
    assert result.usage.cache_read_tokens > 0
    assert result.output == wc.messages[-1].content != ""


async def test_an_answer_is_held_to_its_form(model: LocalModel) -> None:
    words = ["yes", "no"]
    form = {"type": "object", "properties": {"says": {"enum": words}}, "required": ["says"]}
    agent = Agent("sea", MODEL, prompt=STANDING, max_tokens=24, options={"seed": 1}, response_format=form)
    result = await agent.run("Do bicycles go free?", make_test_ctx(llm=model.chat()))
    assert result.parsed in [{"says": word} for word in words]
    assert not result.partial


async def test_one_prompt_has_one_normal_form_on_three_wires(model: LocalModel) -> None:
    await model.chat().chat(asking())
    size = await model.messages().count_exact(asking())
    assert await model.responses().count_exact(asking()) == size
    for wire in WIRES:
        usage = (await model.on(wire).chat(asking())).usage
        assert (usage.input_tokens, usage.cache_read_tokens, usage.cache_write_tokens) == (1, size - 1, 0)
        assert usage.output_tokens == 8


@pytest.mark.parametrize("stream", [False, True])
async def test_no_read_is_told_from_no_figure(model: LocalModel, stream: bool) -> None:
    llm = model.chat()
    short = ChatRequest((Message("user", CAPITAL),), MODEL, max_tokens=8, options={"cache_prompt": False})
    result = await answered(llm, short, stream=stream)
    assert result.usage.cache_read_tokens == 0 < result.usage.input_tokens
    assert read_usage(result.meta["llama.cpp"], "llama.cpp").cache_known


@pytest.mark.parametrize("stream", [False, True])
async def test_an_unknown_compatible_server_reports_the_same(model: LocalModel, stream: bool) -> None:
    own = await answered(model.chat(), asking(), stream=stream)
    other = OpenAIChatLLM(model.openai(), model=MODEL, provider="compatible")
    result = await answered(other, asking(), stream=stream)
    assert result.usage.prompt_tokens == own.usage.prompt_tokens
    assert result.usage.cache_read_tokens == result.usage.prompt_tokens - 1
