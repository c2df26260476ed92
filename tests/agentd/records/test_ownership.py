"""Who may write: the second is refused naming the first, a dead owner blocks nobody, a late one writes nothing."""

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agentd.records import Add, Held, Owner, Records, Save, acquire, release, renew, this_process
from agentd.records.keys import lease_name
from agentd.records.ownership import holder, is_dead, start_of
from agentkit.core.contracts.errors import Conflict, Fenced, StoreError
from agentkit.core.contracts.ports import Store
from agentkit.core.testing import FakeClock, FaultyStore
from agentkit.state.stores import InMemoryStore, SQLiteStore
from tests.agentd.records.making import NOBODY, Waiting, everything, records

pytestmark = pytest.mark.anyio

NAME = lease_name("agentd", NOBODY, "me")
ONE = Owner("here", 1, "2026-01-01T00:00:00+00:00", "life one")
TWO = Owner("there", 2, "2026-01-02T00:00:00+00:00", "life two")
TTL = 15.0


class Clock(FakeClock):
    def ms(self) -> int:
        return int(self.now * 1000)


@pytest.fixture
def clock() -> Clock:
    return Clock(1_700_000_000.0)


@pytest.fixture(params=["memory", "sqlite"])
async def stores(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> AsyncIterator[tuple[Store, Store]]:
    """Two openers of one place."""
    if request.param == "memory":
        shared = InMemoryStore(clock)
        yield shared, shared
        return
    first, second = (SQLiteStore(tmp_path / "a.db", clock=clock) for _ in range(2))
    yield first, second
    await first.aclose()
    await second.aclose()


async def test_f8_second_opener_is_refused_at_once_naming_the_first(stores: tuple[Store, Store], clock: Clock) -> None:
    lease = await acquire(stores[0], NAME, ONE, TTL, clock=clock.ms)
    clock.advance(5)
    for _ in range(2):
        with pytest.raises(
            Held, match=r"agent 'me' belongs to process 1 on here, started 2026-01-01T.* ends in 10 s"
        ) as caught:
            await acquire(stores[1], NAME, TWO, TTL, clock=clock.ms)
        assert (caught.value.owner, caught.value.lasts) == (str(ONE), 10)
    assert await renew(stores[0], lease, clock=clock.ms)
    with pytest.raises(Held) as caught:
        await acquire(stores[1], NAME, TWO, TTL, clock=clock.ms)
    assert caught.value.lasts == 15
    assert await release(stores[0], lease)
    taken = await acquire(stores[1], NAME, TWO, TTL, clock=clock.ms)
    assert taken.fence > lease.fence


async def test_f8_dead_owner_is_taken_over_from_at_once(stores: tuple[Store, Store], clock: Clock) -> None:
    lease = await acquire(stores[0], NAME, ONE, TTL, clock=clock.ms)
    asked: list[Owner] = []

    def dead(owner: Owner) -> bool:
        asked.append(owner)
        return True

    taken = await acquire(stores[1], NAME, TWO, TTL, clock=clock.ms, is_dead=dead)
    assert asked == [ONE]
    assert taken.fence > lease.fence
    held = await holder(stores[0], NAME)
    assert held is not None
    assert (held.owner, held.fence) == (TWO, taken.fence)
    assert not await renew(stores[0], lease, clock=clock.ms)


async def test_f8_silent_owner_is_taken_over_from_when_its_time_is_over(
    stores: tuple[Store, Store], clock: Clock
) -> None:
    await acquire(stores[0], NAME, ONE, TTL, clock=clock.ms)
    clock.advance(TTL)
    assert (await acquire(stores[1], NAME, TWO, TTL, clock=clock.ms)).owner == TWO.text


async def test_f9_owner_paused_past_its_lease_writes_nothing(stores: tuple[Store, Store], clock: Clock) -> None:
    """W3."""
    lease = await acquire(stores[0], NAME, ONE, TTL, clock=clock.ms)
    paused = records(stores[0], lease=lease)
    (row,) = await paused.commit([Save("context", "root", b"1"), Add("log", "root", 1, (b"1",))])
    clock.advance(3600)
    taken = await acquire(stores[1], NAME, TWO, TTL, clock=clock.ms)
    (theirs,) = await records(stores[1], lease=taken).commit([Save("context", "root", b"2", row)])
    before = await everything(stores[1])
    with pytest.raises(Fenced):
        await paused.commit([Save("context", "root", b"3", row)])
    with pytest.raises(Fenced):
        await paused.commit([Save("context", "root", b"3", theirs), Add("log", "root", 2, (b"2",))])
    with pytest.raises(Fenced):
        await paused.artifact(b"data")
    assert not await renew(stores[0], lease, clock=clock.ms)
    assert not await release(stores[0], lease)
    assert await everything(stores[1]) == before


async def test_f9_append_storm_of_two_writers_loses_and_mixes_nothing(
    stores: tuple[Store, Store], clock: Clock
) -> None:
    """Each writes batches of three, going by what it last saw; ownership passes to and fro between any two batches."""
    owners = (ONE, TWO)
    writers: list[Records | None] = [None, None]
    written: list[bytes] = []
    seen = [0, 0]
    for at in range(40):
        me = (at * 7 // 3) % 2
        if at % 4 == 0:
            clock.advance(TTL)
            lease = await acquire(stores[me], NAME, owners[me], TTL, clock=clock.ms)
            writers[me] = records(stores[me], lease=lease)
            seen[me] = len(await records(stores[me]).entries("log", "root"))
        mine = writers[me]
        if mine is None:
            continue
        lines = tuple(b"%d/%d/%d" % (me, at, n) for n in range(3))
        try:
            await mine.commit([Add("log", "root", seen[me] + 1, lines)])
        except (Fenced, Conflict):
            continue
        seen[me] += 3
        written += lines
    assert len({line[:1] for line in written}) == 2
    assert await records(stores[0]).entries("log", "root") == written


async def test_same_process_may_ask_again(stores: tuple[Store, Store], clock: Clock) -> None:
    first = await acquire(stores[0], NAME, ONE, TTL, clock=clock.ms)
    again = await acquire(stores[0], NAME, ONE, TTL, clock=clock.ms)
    assert again.fence > first.fence


async def test_holder_that_did_not_sign_is_waited_for(clock: Clock) -> None:
    store = InMemoryStore(clock)
    assert await store.lease(NAME, "somebody", TTL)
    with pytest.raises(Held, match="which did not say which"):
        await acquire(store, NAME, TWO, TTL, clock=clock.ms, is_dead=lambda owner: True)
    clock.advance(TTL)
    assert (await acquire(store, NAME, TWO, TTL, clock=clock.ms)).owner == TWO.text


async def test_stale_signature_takes_nothing_from_its_successor(clock: Clock) -> None:
    """The one that signed is dead, the one that holds has not signed yet: nobody's lease is given up for it."""
    store = InMemoryStore(clock)
    await acquire(store, NAME, ONE, TTL, clock=clock.ms)
    clock.advance(TTL)
    theirs = await store.lease(NAME, TWO.text, TTL)
    assert theirs is not None
    with pytest.raises(Held):
        await acquire(store, NAME, Owner("x", 3), TTL, clock=clock.ms, is_dead=lambda owner: owner == ONE)
    assert await store.renew(theirs)


async def test_lease_is_given_back_when_it_cannot_be_signed(clock: Clock) -> None:
    store, waiting = FaultyStore(InMemoryStore(clock)), Waiting()
    store.fail(of="commit", times=4)
    with pytest.raises(StoreError, match="on purpose"):
        await acquire(store, NAME, ONE, TTL, clock=clock.ms, retry=waiting.retry())
    assert (await acquire(store, NAME, TWO, TTL, clock=clock.ms)).owner == TWO.text


async def test_store_without_leases_is_refused(clock: Clock) -> None:
    class Leaseless(InMemoryStore):
        pass

    store = Leaseless(clock)
    store._capabilities = type(store.capabilities)(lease=False)
    with pytest.raises(StoreError, match="Leaseless grants no leases"):
        await acquire(store, NAME, ONE, TTL, clock=clock.ms)


# Processes


def test_this_process_is_alive_and_has_a_name() -> None:
    me = this_process()
    assert me == this_process()
    assert me.pid == os.getpid()
    assert not is_dead(me)
    assert str(me) == f"process {me.pid} on {me.host}, started {me.started}"
    assert f'"pid":{me.pid}' in me.text


@pytest.mark.parametrize("life", ["as it is", ""])
def test_ended_process_is_dead_and_a_foreign_one_may_live(life: str) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    here = this_process()
    world = here.life.rpartition(" ")[0]
    owner = Owner(here.host, child.pid, "", f"{world} {start_of(child.pid)}" if life and here.life else "")
    assert not is_dead(owner)
    assert not is_dead(Owner("elsewhere", 2**22 + 1, "", owner.life))
    child.communicate(b"\n")
    assert is_dead(owner)


@pytest.mark.skipif(not this_process().life, reason="the system does not say when a process was started")
def test_process_with_a_used_number_is_another_one() -> None:
    here = this_process()
    world = here.life.rpartition(" ")[0]
    assert is_dead(Owner(here.host, here.pid, "", f"{world} 1"))
    assert not is_dead(Owner(here.host, 2**22 + 1, "", "another boot 1"))
    assert start_of(2**22 + 1) is None


def test_odd_owner_is_not_taken_for_dead() -> None:
    for pid in (2**70, -(2**70)):
        assert not is_dead(Owner(this_process().host, pid))
