"""Memory over records: what holds on every store, over restarts, and when the store fails."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentd.config.thinking import Memory
from agentd.context.memory import INDEX, MemoryRefused, keys_of
from agentd.records import Abilities, Records, Save
from agentd.runtime.memory import KIND, SWEPT, Change, MemoryStore
from agentkit.core.contracts.errors import Corrupt, StoreError
from agentkit.core.contracts.scope import Scope
from agentkit.core.testing import FaultyStore
from agentkit.state.stores import InMemoryStore
from tests.agentd.records.making import records
from tests.agentd.runtime.desks import Clock

pytestmark = pytest.mark.anyio

VARIANTS = {
    "whole": {},
    "no list": {"lists": False},
    "no delete": {"deletes": False},
    "neither": {"lists": False, "deletes": False},
}


class House:
    """One store through several lives of a memory."""

    def __init__(self, variant: str = "whole", limits: Memory | None = None) -> None:
        self.lacks: dict[str, bool] = VARIANTS[variant]
        self.clock, self.limits = Clock(), limits or Memory()
        self.inner = InMemoryStore()
        self.restart()

    def restart(self) -> MemoryStore:
        """A new life: nothing is known but what is stored, and no fault is left."""
        self.store = FaultyStore(self.inner, **self.lacks)
        able = Abilities(list=self.lacks.get("lists", True), delete=self.lacks.get("deletes", True))
        self.records: Records = records(self.store, abilities=able, clock=self.clock)
        self.memory = MemoryStore(self.records, self.limits, self.clock)
        return self.memory

    async def set(self, key: str, value: Any = 1, **options: Any) -> Change:
        async with self.memory.writing():
            return await self.memory.commit(await self.memory.set(key, value, **options))

    async def delete(self, key: str) -> Change:
        async with self.memory.writing():
            return await self.memory.commit(await self.memory.delete(key))

    async def value(self, key: str) -> Any:
        found, _ = await self.memory.get(key)
        return None if found is None else found.record.value

    async def keys(self) -> list[str]:
        return list((await self.memory.list(limit=1_000)).keys)

    async def stored(self) -> list[str]:
        """Keys with something under them in the store, expired or not, whatever the store can do."""
        plain = records(self.inner, abilities=Abilities(delete=False), clock=self.clock)
        return [key for key in await plain.ids(KIND) if key != INDEX]


@pytest.fixture(params=VARIANTS)
def house(request: pytest.FixtureRequest) -> House:
    return House(request.param)


# What holds on every store


async def test_what_is_set_is_there_for_the_next_life(house: House) -> None:
    done = await house.set("a", {"n": [1, None]}, ttl="5m", by="ann")
    assert done.meta == {"ts": house.clock.now, "ttl_ms": 300_000, "by": "ann", "seq": 1}
    assert not done.found
    for memory in (house.memory, house.restart()):
        found, expired = await memory.get("a")
        assert found is not None
        assert not expired
        assert (found.record.value, found.meta) == ({"n": [1, None]}, done.meta)
        assert (await memory.list()).keys == ("a",)
        assert await memory.prompt_keys() == ("a",)


async def test_f13_like_keys_are_different_keys_inside_their_scope(house: House) -> None:
    keys = [
        "a/b",
        "a//b",
        "a/b/",
        "/a/b",
        "A/b",
        "../x",
        "..",
        "a%2Fb",
        "\u00e9",
        "e\u0301",
        "memory/_index",
        "a\u20d7",
    ]
    for at, key in enumerate(keys):
        await house.set(key, at)
    house.restart()
    assert [await house.value(key) for key in keys] == list(range(len(keys)))
    assert await house.keys() == sorted(keys, key=str.encode)
    await house.delete("a//b")
    assert await house.value("a/b") == 0
    assert await house.value("a//b") is None


async def test_f13_memory_of_another_tenant_is_another_memory(house: House) -> None:
    other = MemoryStore(house.records.within(Scope("o", "d")), house.limits, house.clock)
    await house.set("a/b")
    await other.commit(await other.set("c", 2))
    assert (await other.list()).keys == ("c",)
    assert (await other.get("a/b"))[0] is None
    assert await house.keys() == ["a/b"]


async def test_seq_rises_with_each_write_and_guards_against_lost_updates(house: House) -> None:
    assert [(await house.set("a", n)).meta["seq"] for n in range(3)] == [1, 2, 3]  # type: ignore[index]
    with pytest.raises(MemoryRefused, match="at seq 3, not 2"):
        await house.set("a", "late", if_seq=2)
    assert (await house.set("a", "mine", if_seq=3)).found
    assert await house.value("a") == "mine"
    with pytest.raises(MemoryRefused, match="at seq 4, not 0"):
        await house.set("a", "new?", if_seq=0)
    assert (await house.set("b", "new", if_seq=0)).meta is not None


async def test_what_is_told_of_a_key_that_was_deleted_and_set_again_is_what_is_stored(house: House) -> None:
    await house.set("a")
    await house.delete("a")
    done = await house.set("a", 2, if_seq=0)
    found, _ = await house.memory.get("a")
    assert found is not None
    assert found.meta == done.meta
    with pytest.raises(MemoryRefused, match="read it again"):
        await house.set("a", 3, if_seq=0)


async def test_deleting_says_whether_there_was_anything(house: House) -> None:
    await house.set("a", ttl="5s")
    assert not (await house.delete("b")).found
    assert (await house.delete("a")).found
    assert not (await house.delete("a")).found
    await house.set("a", ttl="5s")
    house.clock.now += 5_000
    assert not (await house.delete("a")).found
    assert await house.stored() in ([], ["a"] if not house.records.abilities.delete else [])
    house.restart()
    assert await house.keys() == []


async def test_there_is_no_room_beyond_the_limits_and_nothing_is_evicted(house: House) -> None:
    house.limits = Memory(max_keys=2, max_bytes=400)
    house.restart()
    await house.set("a", "x" * 100)
    await house.set("b")
    for key, value, told in (("c", 1, "holds 2 keys"), ("a", "x" * 400, "400 are allowed")):
        with pytest.raises(MemoryRefused, match=told):
            await house.set(key, value)
        house.restart()
    assert await house.keys() == ["a", "b"]
    assert await house.value("a") == "x" * 100
    await house.delete("b")
    await house.set("c")
    assert await house.keys() == ["a", "c"]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["set", "delete", "pass", "sweep", "restart"]),
        st.sampled_from(["a", "a/b", "a//b", "z"]),
        st.sampled_from([None, "1s", "2s"]),
    ),
    max_size=12,
)


@pytest.mark.parametrize("variant", VARIANTS)
@given(steps=STEPS)
def test_f38_memory_is_a_dictionary_with_lifetimes(variant: str, steps: list[tuple[str, str, str | None]]) -> None:
    async def run() -> None:
        house, plain = House(variant), dict[str, tuple[int, int | None]]()
        for at, (what, key, ttl) in enumerate(steps):
            if what == "set":
                await house.set(key, at, ttl=ttl)
                plain[key] = at, None if ttl is None else house.clock.now + 1_000 * int(ttl[0])
            elif what == "delete":
                await house.delete(key)
                plain.pop(key, None)
            elif what == "pass":
                house.clock.now += 500
            elif what == "sweep":
                await house.memory.sweep()
            else:
                house.restart()
            live = {k: v for k, (v, end) in plain.items() if end is None or house.clock.now < end}
            assert await house.keys() == sorted(live)
            assert {k: await house.value(k) for k in ("a", "a/b", "a//b", "z")} == {
                k: live.get(k) for k in ("a", "a/b", "a//b", "z")
            }

    asyncio.run(run())


# Lifetimes


async def test_f38_a_value_is_gone_at_its_millisecond_in_get_and_list_and_prompt_also_after_a_restart(
    house: House,
) -> None:
    await house.set("a", ttl="250ms")
    await house.set("stays")
    for restarted in (False, True):
        if restarted:
            house.clock.now -= 250
            house.restart()
        house.clock.now += 249
        assert await house.value("a") == 1
        assert await house.keys() == ["a", "stays"]
        assert await house.memory.prompt_keys() == ("a", "stays")
        house.clock.now += 1
        assert await house.memory.get("a") == (None, True)
        assert await house.keys() == ["stays"]
        assert await house.memory.prompt_keys() == ("stays",)
    assert await house.memory.get("never") == (None, False)


async def test_f38_setting_anew_without_a_lifetime_takes_the_old_one_away(house: House) -> None:
    await house.set("a", ttl="1s")
    await house.set("a", 2)
    house.clock.now += 10_000
    assert await house.memory.sweep() == 0
    assert await house.value("a") == 2


async def test_f38_an_expired_key_counts_as_absent_for_if_seq(house: House) -> None:
    await house.set("a", ttl="1s")
    house.clock.now += 1_000
    done = await house.set("a", 2, if_seq=0)
    assert not done.found
    found, _ = await house.memory.get("a")
    assert found is not None
    assert found.meta == done.meta


async def test_f38_an_expired_key_is_physically_gone_after_one_sweep_however_many_there_are() -> None:
    house = House()
    for n in range(SWEPT + 3):
        await house.set(f"k{n}", ttl="1s")
    await house.set("stays", ttl="2s")
    house.clock.now += 1_000
    assert len(await house.stored()) == SWEPT + 4
    house.restart()
    assert await house.memory.sweep() == SWEPT + 3
    assert await house.stored() == ["stays"]
    assert await house.memory.sweep() == 0


async def test_f38_the_sweep_spares_what_was_set_anew_meanwhile(house: House) -> None:
    await house.set("a", ttl="1s")
    await house.set("b", ttl="1s")
    house.clock.now += 1_000
    async with house.memory.writing():
        sweep = asyncio.create_task(house.memory.sweep())
        await asyncio.sleep(0)
        await house.memory.commit(await house.memory.set("a", "new"))
    assert await sweep == 1
    assert await house.value("a") == "new"
    house.restart()
    assert await house.keys() == ["a"]


# Damage


async def test_a_damaged_value_is_told_of_when_it_is_read_and_the_others_serve(house: House) -> None:
    await house.set("a")
    await house.set("bad", ttl="1s")
    key = next(key for key in await house.inner.keys() if "bad" in key)
    found = await house.inner.versioned(key)
    assert found is not None
    await house.inner.compare_and_set(key, b"not an envelope", expected=found[1])
    memory = house.restart()
    assert await memory.prompt_keys() == ("a", "bad")
    with pytest.raises(Corrupt, match="bad"):
        await memory.get("bad")
    await house.set("b", ttl="1s")
    house.clock.now += 1_000
    assert await memory.sweep() == 1
    assert await house.keys() == ["a", "bad"]
    assert await house.inner.get(key) == b"not an envelope", "what cannot be read is left as it is"


# Stores that fail


async def script(house: House) -> None:
    """Each kind of change once."""
    await house.set("a/b", "one")
    await house.set("a//b", "two", ttl="1s")
    await house.set("a/b", "three")
    await house.delete("a/b")
    await house.set("c", "four")
    house.clock.now += 1_000
    await house.memory.sweep()
    await house.set("a/b", "five")


async def operations(variant: str) -> int:
    house = House(variant)
    await script(house)
    return sum(house.store.operations.values())


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("how", ["fail", "lose"])
async def test_f39_a_life_that_ends_at_any_operation_leaves_no_readable_key_unlisted(variant: str, how: str) -> None:
    for nth in range(1, await operations(variant) + 1):
        house = House(variant)
        getattr(house.store, how)(nth)
        house.store.fail(nth + 1, times=10_000)
        with pytest.raises(StoreError):
            await script(house)
        house.restart()
        readable = [key for key in ("a//b", "a/b", "c") if await house.value(key) is not None]
        assert await house.keys() == readable, f"{how} at operation {nth}"


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("how", ["fail", "lose"])
async def test_f39_a_store_that_fails_for_a_while_leaves_no_readable_key_unlisted_in_the_same_life(
    variant: str, how: str
) -> None:
    for nth in range(1, await operations(variant) + 1):
        house = House(variant)
        getattr(house.store, how)(nth)
        house.store.fail(nth + 1, times=8)  # longer than anybody tries again
        with suppress(StoreError):
            await script(house)
        house.store.operations.clear()
        house.store = FaultyStore(house.inner, **house.lacks)
        house.records.store = house.store
        await house.set("z", "six")
        readable = [key for key in ("a//b", "a/b", "c", "z") if await house.value(key) is not None]
        assert await house.keys() == readable, f"{how} at operation {nth}"
        house.restart()
        assert await house.keys() == readable, f"{how} at operation {nth}, and a restart"


@pytest.mark.parametrize("variant", VARIANTS)
async def test_f39_one_failed_listing_changes_no_mode(variant: str) -> None:
    house = House(variant)
    await house.set("a")
    house.restart()
    listing = "keys" if house.records.abilities.list else "versioned"
    house.store.fail(of=listing)
    assert await house.keys() == ["a"], "tried again unnoticed"
    house.restart()
    house.store.fail(of=listing, times=4)
    with pytest.raises(StoreError):
        await house.keys()
    assert await house.keys() == ["a"]
    await house.set("b")
    assert await house.keys() == ["a", "b"]
    assert (await house.records.get(KIND, INDEX) is None) == house.records.abilities.list


async def test_a_change_that_was_not_committed_is_not_told_of(house: House) -> None:
    await house.set("a")
    async with house.memory.writing():
        await house.memory.set("b", 1)
        assert await house.keys() == ["a"]
    async with house.memory.writing():
        await house.memory.delete("a")
    assert await house.keys() == ["a"]
    await house.set("c")
    assert await house.keys() == ["a", "c"]


@pytest.mark.parametrize(("variant", "last"), [("whole", 3), ("no list", 4), ("no delete", 6), ("neither", 4)])
async def test_a_listing_under_way_does_not_bring_back_what_is_deleted_meanwhile(variant: str, last: int) -> None:
    house = House(variant)
    for key in "abc":
        await house.set(key)
    memory = house.restart()
    gate = house.store.delay(last, of="versioned")  # all values but the last have been read by then
    listing = asyncio.create_task(memory.list())
    await gate.reached()
    await house.delete("a")
    gate.open()
    await listing
    assert await house.keys() == ["b", "c"]


async def test_two_writers_under_the_lock_lose_nothing(house: House) -> None:
    async def add(n: int) -> None:
        async with house.memory.writing():
            found = await house.value("sum") or 0
            await asyncio.sleep(0)
            await house.memory.commit(await house.memory.set("sum", found + n))

    await asyncio.gather(*(add(n) for n in range(10)))
    assert await house.value("sum") == 45


async def test_changes_that_others_committed_are_read_from_the_store(house: House) -> None:
    """What is applied without having been decided here makes the memory look again."""
    assert await house.keys() == []
    save = Save(KIND, "x", b'{"value":1,"ts":1}')
    index = [] if house.records.abilities.list else [Save(KIND, INDEX, b'["x"]')]
    await house.records.commit([save, *index])
    house.memory.applied([save, *index])
    assert await house.keys() == ["x"]


async def test_no_listing_per_turn() -> None:
    house = House()
    await house.set("a")
    await house.memory.prompt_keys()
    house.store.operations.clear()
    for n in range(5):
        await house.memory.prompt_keys()
        await house.set("a", n)
        await house.keys()
    assert house.store.operations["keys"] == 0


async def test_other_limits_hold_from_a_reload_on(house: House) -> None:
    for key in "abc":
        await house.set(key)
    house.memory.reload(Memory(max_keys=2, list_default_limit=2))
    page = await house.memory.list()
    assert (page.keys, page.next) == (("a", "b"), "b")
    with pytest.raises(MemoryRefused, match="holds 3 keys"):
        await house.set("d")
    await house.set("a", 2)


@pytest.mark.parametrize("variant", ["no list", "neither"])
async def test_f39_the_list_of_keys_holds_what_is_stored_and_no_more(variant: str) -> None:
    house = House(variant)
    for key in ("a", "b", "c"):
        await house.set(key, ttl="1s" if key == "b" else None)
    await house.delete("a")
    row = await house.records.get(KIND, INDEX)
    assert row is not None
    assert keys_of(row.state) == ["b", "c"]
    house.clock.now += 1_000
    await house.memory.sweep()
    row = await house.records.get(KIND, INDEX)
    assert row is not None
    assert keys_of(row.state) == ["c"]
