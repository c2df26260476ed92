"""Above the window the real server refuses, the window is learnt, the context shortened, and the run goes on."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from agentkit.agents import Agent, Hooks, RequestBuilder
from agentkit.core.contracts.errors import ContextOverflowError
from agentkit.core.contracts.ports import LLM
from agentkit.core.contracts.requests import ChatRequest, Delta, LLMResult, assemble_deltas
from agentkit.core.contracts.types import Message
from agentkit.core.testing import make_test_ctx
from agentkit.state.compaction import TruncationCompactor
from agentkit.state.context import CharClassTokenCounter, WorkingContext
from tests.local_model.model import MODEL, STANDING, LocalModel
from tests.models.adapters.served import answered

pytestmark = [pytest.mark.anyio, pytest.mark.local_model]

WINDOW = 4_096
LONG = "word " * 5_000
"""5,000 tokens, refused before any of them is computed."""


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("wire", ["chat", "anthropic", "responses"])
async def test_too_long_a_request_is_refused_and_names_the_window(model: LocalModel, wire: str, stream: bool) -> None:
    with pytest.raises(ContextOverflowError) as refused:
        await answered(model.on(wire), ChatRequest((Message("user", LONG),), MODEL, max_tokens=8), stream=stream)
    assert refused.value.window == WINDOW


class Noted:
    """A model that notes what reaches it."""

    def __init__(self, llm: LLM) -> None:
        self.llm, self.requests = llm, list[ChatRequest]()

    async def chat(self, request: ChatRequest, /) -> LLMResult:
        return assemble_deltas([delta async for delta in self.stream(request)])

    def stream(self, request: ChatRequest, /) -> AsyncIterator[Delta]:
        self.requests.append(request)
        return self.llm.stream(request)


def long_context() -> WorkingContext:
    wc = WorkingContext(token_counter=CharClassTokenCounter())
    return wc.append(
        Message("user", f"Read this: {LONG}"),
        Message("assistant", "Done."),
        Message("user", "When does the ferry leave?"),
        Message("assistant", "At nine."),
    )


@pytest.mark.parametrize("wire", ["chat", "anthropic"])
async def test_the_agent_learns_the_window_compacts_and_succeeds(model: LocalModel, wire: str) -> None:
    llm, told = Noted(model.on(wire)), list[tuple[int, int]]()
    hooks = Hooks(after_compaction=lambda done, ctx: told.append((done.messages_before, done.messages_after)))
    builder = RequestBuilder(STANDING, compactor=TruncationCompactor(max_tokens=12_000, keep_recent=2))
    agent = Agent("sea", MODEL, request_builder=builder, max_tokens=8, options={"seed": 1}, hooks=hooks)
    ctx, wc = make_test_ctx(llm=llm), long_context()
    result = await agent.run("When is it back?", ctx, context=wc)
    assert result.output
    assert not result.partial
    assert told == [(5, 3)]
    assert result.usage.prompt_tokens < 300
    refused, taken = llm.requests
    assert refused.messages[0] == taken.messages[0] == wc.prefix.as_messages()[0]
    # What was learnt holds: the next one is shortened before anything is sent in vain.
    await agent.run("When is it back?", ctx, context=long_context())
    assert len(llm.requests) == 3


async def test_without_a_compactor_the_second_request_is_refused_before_the_network(model: LocalModel) -> None:
    agent = Agent("sea", MODEL, max_tokens=8)
    llm = Noted(model.chat())
    ctx = make_test_ctx(llm=llm)
    with pytest.raises(ContextOverflowError) as provider:
        await agent.run(LONG, ctx)
    with pytest.raises(ContextOverflowError) as own:
        await agent.run(LONG, ctx)
    assert (provider.value.window, own.value.window) == (WINDOW, WINDOW)
    assert len(llm.requests) == 1
    assert not provider.value.sizes
    assert own.value.sizes
