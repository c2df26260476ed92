"""A store with faults on demand: none armed it passes the contract suite, and each fault does what it says, once."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from agentkit.core.contracts.errors import StoreError
from agentkit.core.contracts.ports import Append, Clock, Delete, Put
from agentkit.core.testing import FaultyStore, StoreSuite
from agentkit.state.stores import InMemoryStore, SQLiteStore

pytestmark = pytest.mark.anyio


class TestWithoutFaults(StoreSuite):
    @pytest.fixture
    def open_store(self) -> Callable[[Clock], FaultyStore]:
        return lambda clock: FaultyStore(InMemoryStore(clock, max_value=3_000_000))


class TestWithoutFaultsOnDisk(StoreSuite):
    @pytest.fixture
    def open_store(self, tmp_path: Path) -> Callable[[Clock], FaultyStore]:
        return lambda clock: FaultyStore(
            SQLiteStore(tmp_path / "a.db", exclusive=True, clock=clock, max_value=3_000_000)
        )


class TestWithoutSearch(StoreSuite):
    @pytest.fixture
    def open_store(self) -> Callable[[Clock], FaultyStore]:
        return lambda clock: FaultyStore(InMemoryStore(clock, max_value=3_000_000), searches=False)


@pytest.fixture
def store() -> FaultyStore:
    return FaultyStore(InMemoryStore())


async def test_nth_operation_fails_once_and_is_not_done(store: FaultyStore) -> None:
    store.fail(2)
    await store.set("a", 1)
    with pytest.raises(StoreError, match="this set failed on purpose"):
        await store.set("a", 2)
    await store.set("b", 3)
    assert (await store.get("a"), await store.get("b")) == (1, 3)


async def test_failures_are_counted_by_name(store: FaultyStore) -> None:
    store.fail(of="commit", times=2, error=OSError("gone"))
    await store.set("a", 1)
    for _ in range(2):
        with pytest.raises(OSError, match="gone"):
            await store.commit([Put("a", 2)])
    await store.commit([Put("a", 3)])
    assert store.operations == {"set": 1, "commit": 3}
    with pytest.raises(ValueError, match="no operation 'comit'"):
        store.fail(of="comit")


async def test_lost_answer_leaves_what_was_done(store: FaultyStore) -> None:
    store.lose(of="commit")
    with pytest.raises(StoreError, match="lost on purpose"):
        await store.commit([Append("log", (1, 2))])
    assert await store.list("log") == [1, 2]


@pytest.mark.parametrize("done", [False, True])
async def test_delayed_operation_waits_for_its_gate(store: FaultyStore, done: bool) -> None:
    gate = store.delay(of="set", done=done)
    waiting = asyncio.create_task(store.set("a", 1))
    await gate.reached()
    assert await store.get("a") == (1 if done else None)
    assert not waiting.done()
    gate.open()
    await waiting
    assert await store.get("a") == 1


async def test_full_disk_takes_no_writes_until_freed(store: FaultyStore) -> None:
    await store.set("a", 1)
    store.fill_disk()
    with pytest.raises(StoreError, match="disk is full"):
        await store.set("a", 2)
    assert await store.get("a") == 1
    store.free_disk()
    await store.set("a", 2)
    assert await store.get("a") == 2


async def test_broken_store_fails_until_mended(store: FaultyStore) -> None:
    store.break_down()
    for _ in range(5):
        with pytest.raises(OSError, match="out of order"):
            await store.get("a")
    store.mend()
    assert await store.get("a") is None


async def test_variants_refuse_what_they_never_could() -> None:
    store = FaultyStore(InMemoryStore(), lists=False, deletes=False, searches=False)
    assert not store.capabilities.search
    for call in (
        lambda: store.keys(),
        lambda: store.delete("a"),
        lambda: store.commit([Put("a", 1), Delete("b")]),
        lambda: store.search("a", "b"),
    ):
        with pytest.raises(StoreError, match="cannot"):
            await call()
    assert await store.get("a") is None


async def test_bytes_written_are_keys_and_values(store: FaultyStore) -> None:
    await store.commit([Put("key", b"12345"), Append("log", (b"12", b"345"))])
    assert store.written == 8 + 8
    store.fail()
    with pytest.raises(StoreError):
        await store.commit([Put("key", b"12345")])
    assert store.written == 16
