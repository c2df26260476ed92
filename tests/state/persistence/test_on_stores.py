"""Checkpoints on every store that the library ships, over several lives of a file."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agentkit.agents import Agent
from agentkit.core.contracts.errors import Conflict
from agentkit.core.contracts.ports import Store
from agentkit.core.contracts.types import Message, Scope, Usage
from agentkit.core.policies import memoize
from agentkit.core.testing import FakeLLM, FakeTool, make_test_ctx
from agentkit.state.context import PrefixContext, WorkingContext
from agentkit.state.persistence import Checkpointer, StoreCheckpoints, dehydrate, rehydrate
from agentkit.state.stores import InMemoryStore, SQLiteStore

ME = Scope("acme", 1)
KINDS = ["memory", "shared file", "exclusive file"]


def make(kind: str, folder: Path) -> Store:
    if kind == "memory":
        return InMemoryStore()
    return SQLiteStore(folder / "store.db", exclusive=kind == "exclusive file")


@pytest.fixture(params=KINDS)
async def store(request: pytest.FixtureRequest, tmp_path: Path, anyio_backend: str) -> AsyncIterator[Store]:
    made = make(request.param, tmp_path)
    yield made
    await made.aclose()


@pytest.mark.anyio
async def test_long_run_comes_back(store: Store) -> None:
    checkpointer = Checkpointer(StoreCheckpoints(store, ME))
    ctx = WorkingContext(PrefixContext("sys"), scratchpad={"plan": {"steps": [], "seen": {1, 2}}}, scope=ME)
    for n in range(60):
        ctx.append(Message("user", f"q{n}", meta={"n": n}), Message("assistant", f"a{n}\x00\ud800"))
        ctx.scratchpad["plan"]["steps"].append((n, b"x"))
        ctx.journal.record({"n": n})
        if n % 20 == 19:
            ctx.rewrite(len(ctx.messages) - 5, [Message("user", f"summary {n}")], version=ctx.version)
        await checkpointer.snapshot("run", dehydrate(ctx, Usage(n), n))
    reader = Checkpointer(StoreCheckpoints(store, ME))
    found = await reader.resume("run")
    assert found is not None
    back, usage, iteration, _ = rehydrate(found.state)
    assert (back, back.version, usage, iteration) == (ctx, 3, Usage(59), 60)
    early = await reader.at_version("run", 10)
    assert early is not None
    assert [m.content for m in rehydrate(early.state)[0].messages][::2] == [f"q{n}" for n in range(10)]
    assert await reader.list_versions("run") == list(range(1, 61))
    await reader.delete("run")
    assert await store.keys() == []


@pytest.mark.anyio
async def test_ten_at_once_and_two_writers(store: Store) -> None:
    first, second = (Checkpointer(StoreCheckpoints(store, ME)) for _ in range(2))
    made = await asyncio.gather(*(first.snapshot("run", {"n": n}) for n in range(10)))
    assert sorted(c.version for c in made) == list(range(1, 11))
    await second.resume("run")
    await first.snapshot("run", {"n": 10})
    with pytest.raises(Conflict):
        await second.snapshot("run", {"n": 99})


@pytest.mark.parametrize("kind", KINDS[1:])
def test_run_goes_on_in_another_life(kind: str, tmp_path: Path) -> None:
    async def live(n: int) -> WorkingContext:
        store = make(kind, tmp_path)
        checkpointer = Checkpointer(StoreCheckpoints(store, ME))
        found = await checkpointer.resume("run")
        ctx = WorkingContext() if found is None else rehydrate(found.state)[0]
        ctx.append(Message("user", f"life {n}")).note("lives", n)
        await checkpointer.snapshot("run", dehydrate(ctx, Usage(), n))
        await store.aclose()
        return ctx

    for n in range(4):
        ctx = asyncio.run(live(n))
        assert ([m.content for m in ctx.messages], ctx.get("lives")) == ([f"life {i}" for i in range(n + 1)], n)


@pytest.mark.anyio
async def test_memoize_asks_once(store: Store) -> None:
    llm, tool = FakeLLM("the answer, in pieces"), FakeTool("t", {"n": (1, None)})
    agent = Agent("a", "fake")

    async def ask(scope: Scope) -> str:
        ctx = make_test_ctx(
            llm=llm, store=store, scope=scope, chat_middleware=[memoize()], tool_middleware=[memoize(ttl=60)]
        )
        assert await ctx.invoker.invoke_tool(tool.request(x=1), ctx, tool) == {"n": (1, None)}
        return (await agent.run("what?", ctx)).output

    answers = await asyncio.gather(*(ask(ME) for _ in range(100)), *(ask(Scope("other")) for _ in range(100)))
    assert set(answers) == {"the answer, in pieces"}
    assert (llm.calls, len(tool.calls)) == (2, 2)
