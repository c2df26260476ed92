"""What is remembered stays once, a change supersedes, and no tenant recalls what another wrote."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.agents import Agent
from agentkit.core.contracts.errors import CodecError, Corrupt, ScopeError
from agentkit.core.contracts.hashing import stable_hash
from agentkit.core.contracts.ports import MemoryItem, MemorySource, Store
from agentkit.core.contracts.types import Chunk, Scope
from agentkit.core.runtime import NullCtx, RunContext, UnscopedStore, scoped
from agentkit.core.testing import FakeLLM, make_test_ctx
from agentkit.state.memory import StoreMemory, Written
from agentkit.state.memory.store_memory import SLACK
from agentkit.state.stores import InMemoryStore, SQLiteStore

pytestmark = pytest.mark.anyio
ID_OF_ANNA = stable_hash("Anna owns billing.")[:32]


def run(store: Store | None, scope: Scope | None = None) -> RunContext:
    return make_test_ctx(store=store, scope=scope)


@pytest.fixture(params=["memory", "sqlite", "exclusive sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    makers: dict[str, Callable[[], Store]] = {
        "memory": InMemoryStore,
        "sqlite": lambda: SQLiteStore(tmp_path / "m.db"),
        "exclusive sqlite": lambda: SQLiteStore(tmp_path / "m.db", exclusive=True),
    }
    return makers[request.param]()


async def texts(memory: MemorySource, ctx: RunContext, question: str, k: int = 5) -> list[str]:
    return [chunk.text for chunk in await memory.query(question, ctx, k=k)]


async def test_same_item_stays_once_and_a_change_supersedes(store: Store) -> None:
    memory, ctx = StoreMemory(), run(store)
    plan = MemoryItem("Deploys go out on Tuesday.", "deploys", "wiki", {"page": 3})
    assert await memory.write([plan, "Anna owns billing."], ctx) == Written(("deploys", ID_OF_ANNA))
    assert await memory.write(["Anna owns billing.", plan], ctx) == Written((), (), (ID_OF_ANNA, "deploys"))
    assert ctx.store is not None
    assert len(await ctx.store.list("memory/default")) == 2
    moved = MemoryItem("Deploys go out on Monday.", "deploys", "wiki", {"page": 3})
    assert await memory.write([moved], ctx) == Written((), ("deploys",))
    assert await texts(memory, ctx, "when do deploys go out?") == ["Deploys go out on Monday."]
    found = (await memory.query("deploys", ctx))[0]
    assert (found.source, dict(found.meta)) == ("wiki", {"page": 3, "id": "deploys"})
    assert isinstance(found, Chunk)
    assert (found.score or 0) > 0
    await store.aclose()


async def test_change_of_meta_or_source_alone_is_a_change() -> None:
    memory, ctx = StoreMemory(), run(InMemoryStore())
    for item in (MemoryItem("a", "1"), MemoryItem("a", "1", "wiki"), MemoryItem("a", "1", "wiki", {"n": 1})):
        await memory.write([item], ctx)
        assert not (await memory.write([item], ctx)).changed
    assert dict((await memory.query("a", ctx))[0].meta) == {"n": 1, "id": "1"}


async def test_last_of_one_write_counts() -> None:
    memory, ctx = StoreMemory(), run(InMemoryStore())
    assert await memory.write([MemoryItem("a one", "1"), MemoryItem("a two", "1")], ctx) == Written(("1",))
    assert await texts(memory, ctx, "a") == ["a two"]


async def test_tenants_are_apart(store: Store) -> None:
    memory = StoreMemory()
    first, second = run(store, Scope(1)), run(store, Scope(2))
    await memory.write(["the number is 7"], first)
    assert await texts(memory, second, "number") == []
    await memory.write(["the number is 8"], second)
    assert await texts(memory, first, "number") == ["the number is 7"]
    await store.aclose()


async def test_given_store_is_scoped_all_the_same() -> None:
    raw = InMemoryStore()
    memory = StoreMemory(raw)
    await memory.write(["the number is 7"], run(None, Scope(1)))
    assert await texts(memory, run(None, Scope(2)), "number") == []
    assert await raw.keys() == ["org1:domNone/memory/default"]
    with pytest.raises(ScopeError):
        await StoreMemory(scoped(raw, Scope(1))).query("number", run(None, Scope(2)))


async def test_shared_store_is_shared_on_purpose() -> None:
    raw = InMemoryStore()
    for memory in (StoreMemory(UnscopedStore(raw)), StoreMemory()):
        first, second = run(UnscopedStore(raw), Scope(1)), run(UnscopedStore(raw), Scope(2))
        await memory.write(["the number is 7"], first)
        assert await texts(memory, second, "number") == ["the number is 7"]


async def test_names_are_memories_of_their_own() -> None:
    ctx = run(InMemoryStore())
    await StoreMemory(name="people").write(["Anna"], ctx)
    assert await texts(StoreMemory(name="places"), ctx, "Anna") == []


async def test_forgotten_items_leave_the_store(store: Store) -> None:
    memory, ctx = StoreMemory(), run(store)
    await memory.write([MemoryItem("a secret", "1"), MemoryItem("a fact", "2")], ctx)
    await memory.write([MemoryItem("a newer secret", "1")], ctx)
    assert await memory.forget(["1", "nobody"], ctx) == 1
    assert ctx.store is not None
    assert "secret" not in str(await ctx.store.list("memory/default"))
    assert await memory.forget("2", ctx) == 1
    assert await memory.forget("2", ctx) == 0
    assert await ctx.store.list("memory/default") == []
    assert len((await memory.write(["again"], ctx)).added) == 1
    await store.aclose()


async def test_log_stays_in_proportion_to_what_is_in_force(store: Store) -> None:
    memory, ctx = StoreMemory(), run(store)
    await memory.write([MemoryItem("kept", "kept")], ctx)
    for number in range(2 * SLACK):
        await memory.write([MemoryItem(f"number {number}", "changing")], ctx)
    assert ctx.store is not None
    assert len(await ctx.store.list("memory/default")) <= 2 * 2 + SLACK
    assert await texts(memory, ctx, "number kept") == ["kept", f"number {2 * SLACK - 1}"]
    await store.aclose()


async def test_writers_at_once_lose_nothing(store: Store) -> None:
    memory, ctx = StoreMemory(), run(store)
    await asyncio.gather(*(memory.write([f"word{n % 10} note"], ctx) for n in range(20)))
    assert len(await texts(memory, ctx, "note", k=99)) == 10
    await store.aclose()


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["x one", "x two", "x three"])), max_size=30))
async def test_recalls_what_a_dict_would_hold(writes: list[tuple[str, str]]) -> None:
    memory, ctx, held = StoreMemory(), run(InMemoryStore()), dict[str, str]()
    for id, text in writes:
        report = await memory.write([MemoryItem(text, id)], ctx)
        was = held.get(id)
        assert report == (
            Written((id,)) if was is None else Written((), (), (id,)) if was == text else Written((), (id,))
        )
        held[id] = text
    assert {c.meta["id"]: c.text for c in await memory.query("x", ctx, k=9)} == held


async def test_agent_is_grounded_in_it() -> None:
    llm, ctx_store = FakeLLM("ok"), InMemoryStore()
    ctx = make_test_ctx(llm=llm, store=ctx_store)
    memory = StoreMemory()
    await memory.write([MemoryItem("Deploys go out on Tuesday.", None, "wiki")], ctx)
    await Agent("a", "m", memory=memory).run("when do deploys go out?", ctx)
    grounding = [m.content for m in llm.requests[0].messages if m.name == "grounding"]
    assert grounding == ["Relevant context:\n[wiki] Deploys go out on Tuesday."]


async def test_damaged_row_is_corrupt() -> None:
    ctx = run(InMemoryStore())
    assert ctx.store is not None
    await ctx.store.append("memory/default", "x")
    with pytest.raises(Corrupt, match="holds no memory item at 0"):
        await StoreMemory().query("x", ctx)


async def test_nothing_is_written_when_one_item_cannot_be() -> None:
    memory, ctx = StoreMemory(), run(InMemoryStore())
    with pytest.raises(CodecError):
        await memory.write(["fine", MemoryItem("bad", meta={"x": object()})], ctx)
    assert await texts(memory, ctx, "fine") == []


async def test_mistakes_are_named() -> None:
    memory, ctx = StoreMemory(), run(InMemoryStore())
    bad: Any = memory
    for wrong in ("text", 3, MemoryItem("x")):
        with pytest.raises(TypeError, match="items must be a list of items"):
            await bad.write(wrong, ctx)
    with pytest.raises(TypeError, match="an item must be a MemoryItem, a Chunk or a str, not int"):
        await bad.write([3], ctx)
    with pytest.raises(TypeError, match="k must be an int"):
        await bad.query("x", ctx, k="5")
    with pytest.raises(ValueError, match="k must not be negative"):
        await memory.query("x", ctx, k=-1)
    with pytest.raises(ValueError, match="needs a store"):
        await memory.query("x", NullCtx())
    with pytest.raises(ValueError, match="slash"):
        StoreMemory(name="a/b")
    wrong_store: Any = {}
    with pytest.raises(TypeError, match="store must be a Store"):
        StoreMemory(wrong_store)
