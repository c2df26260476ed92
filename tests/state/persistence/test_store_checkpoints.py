"""Checkpoints over a store: what they cost, what they keep, who may read them, and what two writers do to one run."""

import asyncio
import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.core.contracts.codec import encode
from agentkit.core.contracts.errors import (
    CodecError,
    Conflict,
    Corrupt,
    FormatError,
    FreezeError,
    ScopeError,
    StoreError,
)
from agentkit.core.contracts.ports import Put
from agentkit.core.contracts.types import Message, Scope, Usage, mark
from agentkit.core.runtime import ScopedStore, UnscopedStore
from agentkit.state.context import PrefixContext, WorkingContext
from agentkit.state.persistence import Checkpointer, StoreCheckpoints, dehydrate, rehydrate
from agentkit.state.stores import InMemoryStore
from tests.state.persistence.counting import CountingStore, FlakyStore
from tests.strategies import messages

ME = Scope(1)


def turn(ctx: WorkingContext, n: int) -> WorkingContext:
    return ctx.append(Message("user", f"question {n:06d}"), Message("assistant", f"answer {n:06d}"))


async def save(checkpointer: Checkpointer, ctx: WorkingContext, n: int = 0, status: str = "running") -> int:
    return (await checkpointer.snapshot("run", dehydrate(ctx, Usage(n, n), n), status)).version


async def loaded(checkpointer: Checkpointer, version: int | None = None) -> WorkingContext:
    found = await (checkpointer.resume("run") if version is None else checkpointer.at_version("run", version))
    assert found is not None
    return rehydrate(found.state)[0]


def stored(ctx: WorkingContext) -> bytes:
    """All of a context, to the byte: meta, NaN, the order of keys."""
    return encode(dehydrate(ctx, Usage(), 0))


# -- what it costs (W8) ------------------------------------------------------------------------------------------------


async def costs(turns: int, edit: Callable[[WorkingContext, int], Any]) -> list[tuple[int, int, int]]:
    """Bytes, statements and commits of each turn's snapshot."""
    store = CountingStore()
    checkpointer = Checkpointer(StoreCheckpoints(store, ME))
    ctx = WorkingContext(PrefixContext("sys" * 100), scratchpad={"big": ["x" * 100] * 100})
    found = []
    for n in range(turns):
        edit(ctx, n)
        before = store.written, store.statements, store.commits
        await save(checkpointer, ctx, n)
        found.append((store.written - before[0], store.statements - before[1], store.commits - before[2]))
    assert sum(store.read.values()) == 0  # finding out what is new reads nothing
    return found


def note_and_record(ctx: WorkingContext, n: int) -> None:
    turn(ctx, n).note("step", n)
    ctx.journal.record({"kind": "row", "id": n})


def compacting(ctx: WorkingContext, n: int) -> None:
    turn(ctx, n)
    if n % 50 == 49:
        ctx.rewrite(len(ctx.messages) - 10, [mark(Message("user", f"summary {n}"), "summary")], version=ctx.version)


@pytest.mark.anyio
@pytest.mark.parametrize("edit", [turn, note_and_record, compacting])
async def test_turn_costs_the_same_at_any_length(edit: Callable[[WorkingContext, int], Any]) -> None:
    """W8, over 1,000 turns."""
    found = await costs(1000, edit)
    early, late = found[10:110], found[-100:]
    assert sum(b for b, _, _ in late) <= 1.1 * sum(b for b, _, _ in early)
    assert max(s for _, s, _ in late) <= max(s for _, s, _ in early)
    assert {c for _, _, c in found} == {1}
    assert max(b for b, _, _ in late) < 1500


@pytest.mark.anyio
async def test_ten_thousand_turns_are_flat() -> None:
    """W8. One message a turn; all turns but the first write the same statements."""
    found = await costs(10_000, lambda ctx, n: ctx.append(Message("user", f"{n:06d}")))
    assert {s for _, s, _ in found[1:]} == {3}
    assert found[-1][0] <= 1.1 * found[10][0]


@pytest.mark.anyio
async def test_row_stays_small_after_many_edits() -> None:
    """Hundreds of messages replaced in place leave hundreds of ranges; they are written once, not in each row."""
    store = CountingStore()
    checkpointer = Checkpointer(StoreCheckpoints(store, ME))
    ctx = WorkingContext(messages=[Message("tool", "result " * 50, tool_call_id=str(n)) for n in range(600)])
    await save(checkpointer, ctx)
    masked = [m.with_text("[masked]") if n % 2 else m for n, m in enumerate(ctx.messages)]
    ctx.rewrite(600, masked, version=ctx.version)
    await save(checkpointer, ctx)
    sizes = []
    for n in range(5):
        turn(ctx, n)
        before = store.written
        await save(checkpointer, ctx)
        sizes.append(store.written - before)
    assert max(sizes) < 1200
    assert await loaded(checkpointer) == ctx
    again = Checkpointer(StoreCheckpoints(store, ME))
    assert await loaded(again) == ctx
    before = store.written
    await save(again, turn(await loaded(again), 9))
    assert store.written - before < 1200


@pytest.mark.anyio
async def test_loading_reads_what_is_shown() -> None:
    store = CountingStore()
    checkpointer = Checkpointer(StoreCheckpoints(store, ME))
    ctx = WorkingContext()
    for n in range(100):
        await save(checkpointer, turn(ctx, n))
    ctx.rewrite(190, [Message("user", "summary")], version=ctx.version)
    await save(checkpointer, ctx)
    store.read.clear()
    assert len((await loaded(checkpointer)).messages) == 11
    assert {key.rpartition("/")[2]: n for key, n in store.read.items()} == {"versions": 1, "messages": 11, "parts": 1}
    store.read.clear()
    assert len((await loaded(checkpointer, 3)).messages) == 6
    assert store.read["org1:domNone/checkpoint/run/messages"] == 6


# -- what it keeps -------------------------------------------------------------------------------------------------


@dataclass
class Own:
    n: int = 0


EDITS: list[Callable[[WorkingContext, Message, int], Any]] = [
    lambda c, m, n: c.append(m),
    lambda c, m, n: c.append(m, Message("assistant", str(n))),
    lambda c, m, n: c.extend(c.messages[-2:]),
    lambda c, m, n: c.note("abc"[n % 3], {"deep": [n, {"m": str(n)}]}),
    lambda c, m, n: c.note("n", bool(n % 2) if n % 3 else n % 2),
    lambda c, m, n: c.scratchpad.pop("abc"[n % 3], None),
    lambda c, m, n: c.scratchpad.get("a", {"deep": []})["deep"].append(n),
    lambda c, m, n: c.journal.record({"n": n, "deep": [n]}),
    lambda c, m, n: c.journal.mark_committed(),
    lambda c, m, n: c.rewrite(n % (len(c.messages) + 1), [m], version=c.version),
    lambda c, m, n: c.clear_messages(),
    lambda c, m, n: c.messages.__setitem__(slice(None), [mark(x, "pinned", n=n) for x in c.messages]),
    lambda c, m, n: setattr(c, "prefix", PrefixContext(f"sys {n % 2}", [m])),
    lambda c, m, n: c.messages.reverse(),
]
Ops = list[tuple[int, Message, int, int]]


@given(
    st.lists(st.tuples(st.integers(0, len(EDITS) - 1), messages(), st.integers(0, 30), st.integers(0, 9)), max_size=25)
)
def test_every_version_comes_back(ops: Ops) -> None:
    """Random edits; now and then the run goes on from what is stored, in this process, in another, or from an older
    version. Each version stays what it was, read from where nothing is known of it."""

    async def check() -> None:
        store = InMemoryStore()
        checkpointer = Checkpointer(StoreCheckpoints(store, ME))
        ctx = WorkingContext()
        kept: list[WorkingContext] = []
        for edit, message, n, how in ops:
            EDITS[edit](ctx, message, n)
            kept.append(copy.deepcopy(ctx))
            assert await save(checkpointer, ctx, n) == len(kept)
            if how == 0:
                ctx = await loaded(checkpointer)
            elif how == 1:
                checkpointer = Checkpointer(StoreCheckpoints(store, ME))
                ctx = await loaded(checkpointer)
            elif how == 2:
                checkpointer = Checkpointer(StoreCheckpoints(store, ME))
            elif how == 3:
                ctx = await loaded(checkpointer, n % len(kept) + 1)
            elif how == 4:
                ctx = copy.deepcopy(ctx)
        other = Checkpointer(StoreCheckpoints(store, ME))
        for version, expected in enumerate(kept, 1):
            assert stored(await loaded(other, version)) == stored(expected)

    asyncio.run(check())


@pytest.mark.anyio
async def test_going_back_writes_nothing_twice() -> None:
    store = CountingStore()
    checkpointer = Checkpointer(StoreCheckpoints(store, ME))
    ctx = WorkingContext()
    for n in range(50):
        await save(checkpointer, turn(ctx, n))
    ctx.rewrite(98, [Message("user", "summary")], version=ctx.version)
    await save(checkpointer, ctx)
    old = await loaded(checkpointer, 50)
    before = store.written
    await save(checkpointer, turn(old, 50))
    assert store.written - before < 1000
    assert await loaded(checkpointer) == old


@pytest.mark.anyio
async def test_other_states_are_kept_too() -> None:
    """A state need not come from a context: lists stay lists, and what has not the usual form stands in the row."""
    store = InMemoryStore()
    checkpointer = Checkpointer(StoreCheckpoints(store, ME))
    states: list[dict[str, Any]] = [
        {},
        {"messages": [Message("user", "x"), {"role": "user"}], "step": 1},
        {"messages": [Message("user", "x"), {"role": "user"}, "y"], "step": {"a": (1, 2)}},
        {"messages": "none", "journal": [1], "scratchpad": 5, "prefix": None},
        {"messages": (), "journal": {"entries": [1, {"a": 2}], "other": 1}, "scratchpad": {}, "prefix": {}},
        {"scratchpad": {1: "x"}},
        {"messages": [Message("user", "x")], "format": 7},
    ]
    for state in states:
        await checkpointer.snapshot("run", state)
    for reader in (checkpointer, Checkpointer(StoreCheckpoints(store, ME))):
        for version, state in enumerate(states, 1):
            found = await reader.at_version("run", version)
            assert found is not None
            assert found.state == state
            assert isinstance(found.state.get("messages"), type(state.get("messages"))) or "messages" not in state


@pytest.mark.anyio
async def test_run_ids_of_any_kind() -> None:
    """T3: ids are data."""
    store = InMemoryStore()
    checkpointer = Checkpointer(StoreCheckpoints(store, ME))
    ids = [
        "a",
        "A",
        "a/head",
        "a/",
        "../x",
        "%61",
        "\ud800",
        "\udc00",
        "x" * 5000,
        "x" * 5001,
        "#",
        "é",
        "e\u0301",
        " ",
    ]
    for run_id in ids:
        await checkpointer.snapshot(run_id, {"id": run_id.encode("utf-8", "surrogatepass")})
    for run_id in ids:
        found = await checkpointer.resume(run_id)
        assert found is not None
        assert found.state == {"id": run_id.encode("utf-8", "surrogatepass")}
        assert await checkpointer.list_versions(run_id) == [1]
    await checkpointer.delete("a")
    assert await checkpointer.resume("a/head") is not None


# -- who may read it -----------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_other_tenant_finds_nothing() -> None:
    """T1, T5: a foreign run is an unknown one."""
    store = InMemoryStore()
    mine, other = (Checkpointer(StoreCheckpoints(store, scope)) for scope in (ME, Scope(10)))
    await save(mine, WorkingContext(messages=[Message("user", "secret")]))
    assert (await other.resume("run"), await other.list_versions("run")) == (None, [])
    assert await other.at_version("run", 1) is None
    await other.delete("run")
    assert await save(other, WorkingContext()) == 1
    assert (await loaded(mine)).messages == [Message("user", "secret")]
    assert all(key.startswith(("org1:domNone/", "org10:domNone/")) for key in await store.keys())


@pytest.mark.anyio
async def test_record_carries_the_tenant() -> None:
    """A record that was moved under another tenant's key is not shown to it."""
    store = InMemoryStore()
    await save(Checkpointer(StoreCheckpoints(store, ME)), WorkingContext())
    for name in ("head", "versions"):
        source, target = (f"org{org}:domNone/checkpoint/run/{name}" for org in (1, 2))
        if name == "head":
            await store.set(target, await store.get(source))
        else:
            for row in await store.list(source):
                await store.append(target, row)
    other = Checkpointer(StoreCheckpoints(store, Scope(2)))
    assert (await other.resume("run"), await other.list_versions("run")) == (None, [])


@pytest.mark.anyio
async def test_state_of_another_tenant_is_refused() -> None:
    checkpointer = Checkpointer(StoreCheckpoints(InMemoryStore(), ME))
    with pytest.raises(ScopeError, match=r"state of org2:domNone cannot be stored for org1:domNone"):
        await save(checkpointer, WorkingContext(scope=Scope(2)))
    assert await save(checkpointer, WorkingContext(scope=ME)) == 1


def test_store_is_always_scoped() -> None:
    """T2: a raw or shared store is scoped here, another tenant's refused, a forgotten scope an error."""
    raw = InMemoryStore()
    with pytest.raises(ScopeError):
        StoreCheckpoints(ScopedStore(raw, Scope(2)), ME)
    with pytest.raises(TypeError):
        StoreCheckpoints(raw)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="scope must be a Scope"):
        StoreCheckpoints(raw, None)  # type: ignore[arg-type]
    asyncio.run(save(Checkpointer(StoreCheckpoints(UnscopedStore(raw), ME)), WorkingContext()))
    assert all(key.startswith("org1:domNone/") for key in asyncio.run(raw.keys()))


# -- two writers, failures -----------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_later_writer_is_refused() -> None:
    """W1: until it has read what the other wrote; nothing is merged."""
    store = InMemoryStore()
    first, second = (Checkpointer(StoreCheckpoints(store, ME)) for _ in range(2))
    ctx = turn(WorkingContext(), 0)
    await save(first, ctx)
    theirs = await loaded(second)
    await save(first, turn(ctx, 1))
    for _ in range(3):
        with pytest.raises(Conflict):
            await save(second, turn(theirs, 99))
    assert await loaded(Checkpointer(StoreCheckpoints(store, ME))) == ctx
    theirs = await loaded(second)
    assert theirs == ctx
    assert await save(second, turn(theirs, 2)) == 3
    with pytest.raises(Conflict):
        await save(first, turn(ctx, 3))


@pytest.mark.anyio
async def test_rebuilt_run_is_not_mistaken() -> None:
    """Deleted and built anew elsewhere to the same length: the old writer still sees a conflict."""
    store = InMemoryStore()
    first, second = (Checkpointer(StoreCheckpoints(store, ME)) for _ in range(2))
    ctx = turn(WorkingContext(), 0)
    await save(first, ctx)
    await second.delete("run")
    await save(second, turn(WorkingContext(), 5))
    with pytest.raises(Conflict):
        await save(first, turn(ctx, 1))


@pytest.mark.anyio
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("failure", [None, asyncio.CancelledError(), OSError("disk is full")])
async def test_unclear_commit_is_looked_up(late: bool, failure: BaseException | None) -> None:
    """W7: whether the commit landed or not, the next snapshot goes on from what is stored."""
    store = FlakyStore()
    checkpointer = Checkpointer(StoreCheckpoints(store, ME))
    ctx = turn(WorkingContext(), 0)
    await save(checkpointer, ctx)
    store.fail(failure, late=late)
    with pytest.raises(type(failure) if failure is not None else StoreError):
        await save(checkpointer, turn(ctx, 1))
    assert await save(checkpointer, turn(ctx, 2)) == (3 if late else 2)
    assert await loaded(checkpointer) == ctx
    assert (await loaded(checkpointer, 2)).size() == (4 if late else 6)


@pytest.mark.anyio
async def test_unclear_commit_and_another_writer() -> None:
    store = FlakyStore()
    first, second = (Checkpointer(StoreCheckpoints(store, ME)) for _ in range(2))
    ctx = turn(WorkingContext(), 0)
    await save(first, ctx)
    store.fail(late=False)
    with pytest.raises(StoreError):
        await save(first, turn(ctx, 1))
    await save(second, turn(await loaded(second), 7))
    with pytest.raises(Conflict):
        await save(first, turn(ctx, 2))


@pytest.mark.anyio
async def test_unstorable_values_are_named_and_change_nothing() -> None:
    store = InMemoryStore()
    checkpointer = Checkpointer(StoreCheckpoints(store, ME))
    ctx = turn(WorkingContext(), 0)
    await save(checkpointer, ctx)
    ctx.note("plan", {"steps": [Own()]})
    with pytest.raises(CodecError, match="plan"):
        await save(checkpointer, ctx)
    ctx.scratchpad.clear()
    ctx.journal.record(Own())
    with pytest.raises(CodecError):
        await save(checkpointer, ctx)
    deep: list[Any] = []
    for _ in range(150):
        deep = [deep]
    ctx = turn(WorkingContext(), 0)
    ctx.journal.record({"deep": deep})
    with pytest.raises(FreezeError):
        await save(checkpointer, ctx)
    assert await checkpointer.list_versions("run") == [1]
    assert await save(checkpointer, turn(WorkingContext(), 0)) == 2


@pytest.mark.anyio
async def test_newer_rows_are_refused() -> None:
    store = InMemoryStore()
    checkpointer = Checkpointer(StoreCheckpoints(store, ME))
    await save(checkpointer, WorkingContext())
    key = "org1:domNone/checkpoint/run/head"
    await store.set(key, {**await store.get(key), "format": 2})
    for call in (checkpointer.resume("run"), checkpointer.list_versions("run"), checkpointer.at_version("run", 1)):
        with pytest.raises(FormatError, match="format 2; this release reads up to 1"):
            await call


@pytest.mark.anyio
async def test_missing_items_are_reported() -> None:
    store = InMemoryStore()
    checkpointer = Checkpointer(StoreCheckpoints(store, ME))
    await save(checkpointer, turn(WorkingContext(), 0))
    await store.delete("org1:domNone/checkpoint/run/messages")
    with pytest.raises(Corrupt, match="has 0 items from 0 to 2"):
        await checkpointer.resume("run")


@pytest.mark.anyio
async def test_memory_ends_with_the_run() -> None:
    port = StoreCheckpoints(InMemoryStore(), ME)
    checkpointer = Checkpointer(port)
    ctx = turn(WorkingContext(), 0)
    await save(checkpointer, ctx)
    assert list(port._runs) == ["run"]
    port.forget("run")
    assert await save(checkpointer, turn(ctx, 1), status="done") == 2
    assert (port._runs, checkpointer._last) == ({}, {})
    assert await checkpointer.resume("run") is None
    assert port._runs == {}


@pytest.mark.anyio
async def test_one_commit_holds_all() -> None:
    """W4: rows, messages and head together, with the versions that were seen."""
    store = CountingStore()
    batches: list[Any] = []
    commit = store.commit

    async def keep(batch: Any, **options: Any) -> tuple[int, ...]:
        batches.append(batch)
        return await commit(batch, **options)

    store.commit = keep  # type: ignore[method-assign]
    checkpointer = Checkpointer(StoreCheckpoints(store, ME))
    ctx = WorkingContext(PrefixContext("sys"), scratchpad={"a": 1})
    ctx.journal.record("x")
    await save(checkpointer, turn(ctx, 0))
    await save(checkpointer, turn(ctx, 1))
    names = [[op.key.rpartition("/")[2] for op in batch] for batch in batches]
    assert names == [["head", "versions", "messages", "journal", "parts"], ["head", "versions", "messages"]]
    assert all((op.expected if isinstance(op, Put) else op.at) is not None for batch in batches for op in batch)
