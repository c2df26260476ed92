"""The prefix that we keep stable is really reused: through the agent and two wires, after forks, rests and kills."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from agentkit.agents import Agent
from agentkit.core.contracts.requests import ChatRequest
from agentkit.core.contracts.types import Message, Scope
from agentkit.core.contracts.usage import Usage
from agentkit.core.testing import make_test_ctx
from agentkit.models.cache import explain, rules_for
from agentkit.models.cache.wire import prompt_of
from agentkit.state.compaction import TruncationCompactor
from agentkit.state.context import CharClassTokenCounter, WorkingContext
from agentkit.state.persistence import StoreCheckpoints, dehydrate, rehydrate
from agentkit.state.stores import SQLiteStore
from tests.local_model.model import MODEL, ROOT, STANDING, LocalModel, wire_of

pytestmark = [pytest.mark.anyio, pytest.mark.local_model]

QUESTIONS = ("When does the ferry leave?", "Where are tickets sold?", "May my dog come along?", "Who goes free?")
WIRES = ("chat", "anthropic")


def agent(**options: object) -> Agent:
    given = {"prompt": STANDING, "max_tokens": 8, "options": {"seed": 1}, **options}
    return Agent("harbour", MODEL, **given)  # type: ignore[arg-type]


def context() -> WorkingContext:
    return WorkingContext(token_counter=CharClassTokenCounter())


@pytest.mark.parametrize("wire", WIRES)
async def test_each_turn_reads_all_of_the_one_before(model: LocalModel, wire: str) -> None:
    wc, ctx = context(), make_test_ctx(llm=model.on(wire))
    usages = [(await agent().run(question, ctx, context=wc)).usage for question in QUESTIONS]
    for before, after in pairwise(usages):
        assert before.prompt_tokens <= after.cache_read_tokens < after.prompt_tokens
    sent = [*wc.prefix.as_messages(), *wc.messages[:-1]]
    assert usages[-1].prompt_tokens == len(model.tokens(wire_of(*sent)))


@pytest.mark.parametrize("wire", WIRES)
async def test_what_changes_every_turn_costs_only_itself(model: LocalModel, wire: str) -> None:
    """Plan, memory keys and clock stand behind all that is kept."""
    turns = iter(range(1, 9))

    def closing(wc: WorkingContext, ctx: object) -> str:
        turn = next(turns)
        return f"Plan: step {turn} of 9. Notes: pier-{turn}, dogs-{turn}. It is 09:0{turn}."

    wc, ctx = context(), make_test_ctx(llm=model.on(wire))
    asked = agent(volatile=closing)
    standing: list[int] = []
    for question in QUESTIONS[:3]:
        usage = (await asked.run(question, ctx, context=wc)).usage
        if standing:
            assert usage.cache_read_tokens >= standing[-1]
        # The turn's own end is where the closing block joined it.
        shown = wire_of(*wc.prefix.as_messages(), *wc.messages[:-1])
        standing.append(len(model.tokens(shown, open_end=False)) - 2)


def first(standing: str) -> ChatRequest:
    messages = (Message("system", standing), Message("user", QUESTIONS[0]))
    return ChatRequest(messages, MODEL, max_tokens=8, options={"seed": 1})


async def test_a_repeated_request_computes_one_token_and_one_changed_character_all_others(model: LocalModel) -> None:
    llm, changed = model.chat(), "'" + STANDING
    await llm.chat(first(STANDING))
    again = (await llm.chat(first(STANDING))).usage
    assert (again.input_tokens, again.cache_read_tokens) == (1, again.prompt_tokens - 1)
    usage = (await llm.chat(first(changed))).usage
    rules = rules_for(MODEL, "llama.cpp")
    assert rules is not None
    before, after = (prompt_of(llm.body(first(text)), "openai_chat") for text in (STANDING, changed))
    told = explain(before, after, rules=rules, usage=usage, previous_usage=again)
    # The opening of the first turn is all that both share.
    assert usage.cache_read_tokens == len(model.words("<|im_start|>system\n")) == told.actual_read == 3
    assert (told.reason, told.tier, told.index, told.cause) == ("system_changed", "system", 0, "edited")
    assert told.lost_tokens == again.prompt_tokens - 1 - 3


async def test_forks_and_rehydrated_contexts_read_as_if_nothing_had_happened(model: LocalModel) -> None:
    ctx, asked, wc = make_test_ctx(llm=model.chat()), agent(), context()
    last = Usage()
    for question in QUESTIONS[:2]:
        last = (await asked.run(question, ctx, context=wc)).usage
    fork = wc.fork()
    rested, *_ = rehydrate(dehydrate(wc, last, 1), token_counter=CharClassTokenCounter())
    read = []
    for one in (fork, rested, wc):
        usage = (await asked.run(QUESTIONS[2], ctx, context=one)).usage
        assert usage.cache_read_tokens >= last.prompt_tokens
        read.append(usage.prompt_tokens)
    assert len(set(read)) == 1


LIFE = """
import asyncio, sys
from pathlib import Path
from agentkit.core.contracts.types import Scope
from agentkit.core.testing import make_test_ctx
from agentkit.state.persistence import Checkpointer, StoreCheckpoints, dehydrate
from agentkit.state.stores import SQLiteStore
from tests.local_model.model import LocalModel
from tests.local_model.test_prefix import QUESTIONS, agent, context

async def main(url, path):
    scope, wc = Scope("harbour"), context()
    saved = Checkpointer(StoreCheckpoints(SQLiteStore(Path(path)), scope))
    ctx = make_test_ctx(llm=LocalModel(url).messages(), scope=scope)
    for turn, question in enumerate(QUESTIONS[:2]):
        result = await agent().run(question, ctx, context=wc)
        await saved.snapshot("talk", dehydrate(wc, result.usage, turn))
    print("saved", flush=True)
    sys.stdin.read()

asyncio.run(main(*sys.argv[1:]))
"""


def killed(*arguments: str) -> None:
    """A process with two turns behind it, killed while it waits."""
    command = [sys.executable, "-c", LIFE, *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        process.kill()
    assert said == "saved\n"


async def test_a_killed_process_is_followed_by_one_that_reads_what_it_left(model: LocalModel, tmp_path: Path) -> None:
    store = tmp_path / "talk.db"
    killed(model.url, str(store))
    scope, opened = Scope("harbour"), SQLiteStore(store)
    found = await StoreCheckpoints(opened, scope).latest("talk")
    assert found is not None
    wc, before, *_ = rehydrate(found.state, token_counter=CharClassTokenCounter())
    after = await agent().run(QUESTIONS[2], make_test_ctx(llm=model.messages(), scope=scope), context=wc)
    assert before.prompt_tokens <= after.usage.cache_read_tokens < after.usage.prompt_tokens
    await opened.aclose()


async def test_after_a_compaction_the_frozen_segment_is_read(model: LocalModel) -> None:
    ctx, asked, wc = make_test_ctx(llm=model.chat()), agent(), context()
    for question in QUESTIONS[:3]:
        await asked.run(question, ctx, context=wc)
    frozen = wc.segments().segment("frozen").digest
    left = await TruncationCompactor(max_tokens=1, keep_recent=2).compact(wc.messages, ctx)
    assert len(left) < wc.size()
    wc.rewrite(wc.size(), left, version=wc.version)
    usage = (await asked.run(QUESTIONS[3], ctx, context=wc)).usage
    assert wc.segments().segment("frozen").digest == frozen
    standing = len(model.tokens(wire_of(*wc.prefix.as_messages()), open_end=False))
    assert standing <= usage.cache_read_tokens < usage.prompt_tokens
