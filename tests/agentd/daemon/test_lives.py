"""From one life to the next, and between two at once: who may have a store, what a new generation adopts, when a
conversation is closed and deleted, and clocks that jump."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agentd.context.registry import NotYours
from agentd.records import Save
from agentd.runtime.daemon import SWEEP, Daemon
from agentd.runtime.principals import Principal
from agentkit.core.contracts.errors import Fenced, Held
from agentkit.core.testing import FaultyStore
from agentkit.state.stores import InMemoryStore
from tests.agentd.daemon.house import (
    House,
    StrictLLM,
    answers,
    forever,
    log_of,
    results,
    settings_of,
    texts,
    until,
    users,
)
from tests.agentd.daemon.test_damage import KEYS, in_state, told

pytestmark = pytest.mark.anyio
ANN, BOB = Principal("ann"), Principal("bob")
DAY = 86_400.0
ROOT = Path(__file__).resolve().parents[3]
HOLDER = """\
import asyncio, sys
from agentd.runtime.daemon import Daemon
from tests.agentd.daemon.house import StrictLLM, settings_of

async def main():
    settings = settings_of(store__kind="sqlite", store__path=sys.argv[1])
    async with await Daemon.open(settings, model=StrictLLM("done"), environ={}) as agent:
        task = await agent.ask("from the other process", context="c")
        print(task.state, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


class Chores:
    """Time for the daemon's own chores: a sweep happens when a test says so, and a lease is renewed likewise."""

    def __init__(self) -> None:
        self._sweeps: asyncio.Queue[None] = asyncio.Queue()
        self.rests = 0

    async def sleep(self, seconds: float) -> None:
        if seconds == SWEEP:
            self.rests += 1
            await self._sweeps.get()
        elif seconds >= 5:
            await forever()

    async def sweep(self) -> None:
        """One sweep, to its end."""
        await until(lambda: self.rests > 0)
        before = self.rests
        self._sweeps.put_nowait(None)
        await until(lambda: self.rests > before)


# One store, two daemons


@contextmanager
def other_process(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has the store and has done a piece of work."""
    environ = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"}
    started = subprocess.Popen([sys.executable, "-c", HOLDER, str(folder)], env=environ, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)  # fmt: skip
    with started as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "completed\n", process.stderr.read()
        try:
            yield process
        finally:
            process.kill()


async def test_f8_a_second_process_is_refused_at_once_naming_the_first_and_a_dead_one_blocks_nobody(
    tmp_path: Path,
) -> None:
    settings = settings_of(store__kind="sqlite", store__path=tmp_path)
    with other_process(tmp_path) as process:
        with pytest.raises(Held) as refused:
            await Daemon.open(settings, model=StrictLLM("done"), environ={})
        assert str(process.pid) in str(refused.value)
        process.send_signal(signal.SIGKILL)
        process.wait(30)
        async with await Daemon.open(settings, model=StrictLLM("done"), environ={}) as agent:
            assert len(await users(agent, "c")) == 1, "what it had done is there"
            assert (await agent.ask("mine", context="c")).text == "done"


async def test_f9_an_owner_whose_lease_was_taken_over_writes_nothing_more_and_drops_what_it_has_in_hand() -> None:
    """The first is paused inside a call while another takes its lease; it wakes up, and all it does is end."""
    store, seen = FaultyStore(InMemoryStore()), asyncio.Event()
    house = House(store=store)

    async def post(asked: Any) -> str:
        await seen.wait()
        return "of the first owner"

    house.hands.do["post"] = post
    async with house.life(StrictLLM([("post", {})], "of the first owner"), sleep=Chores().sleep) as first:
        accepted = await first.send("go", context="c")
        await house.hands.begun.wait()
        lease = first.services.records.lease
        assert lease is not None
        assert await store.release(lease)
        assert await store.lease(lease.name, "another", 15.0) is not None
        before = await store.keys(), store.written
        seen.set()
        await asyncio.wait_for(first.until_over(), 10)
        assert first.halted == "the lease of the store was lost to another process"
        with pytest.raises(Exception, match="going down"):
            await first.send("more", context="c")
        waiting = asyncio.ensure_future(first.wait(accepted.task.id))
        await asyncio.wait({waiting}, timeout=0.01)
        assert not waiting.done()
        waiting.cancel()
        await first.actors.stop()
        assert (await store.keys(), store.written) == before
        assert told(first, "store.fenced")


async def test_f9_a_lease_that_cannot_be_renewed_ends_the_life() -> None:
    store = InMemoryStore()
    renewing: asyncio.Queue[None] = asyncio.Queue()

    async def sleep(seconds: float) -> None:
        await (renewing.get() if seconds == 5 else forever())

    async with House(store=store).life(StrictLLM("done"), sleep=sleep) as agent:
        lease = agent.services.records.lease
        assert lease is not None
        renewing.put_nowait(None)
        assert await store.release(lease)
        renewing.put_nowait(None)
        await asyncio.wait_for(agent.until_over(), 10)
        assert agent.halted is not None
        with pytest.raises(Fenced):
            await agent.services.records.commit([Save("memory", "k", b"1")])


# Clocks


async def test_f10_appends_in_one_tick_and_under_a_clock_set_back_keep_their_order() -> None:
    house = House()
    async with house.life(StrictLLM("done")) as agent:
        await agent.ask("first", context="c")
        await agent.ask("second", context="c")
        house.clock.now -= 3600
        await agent.ask("third", context="c")
        await agent.until_idle()
    house.clock.now -= 3600
    model = StrictLLM([("post", {})], "done")
    async with house.life(model) as agent:
        await agent.ask("fourth", context="c")
        assert agent.halted is None
        log = await log_of(agent, "c")
        assert [entry.n for entry in log] == list(range(1, len(log) + 1))
        assert [entry.parts[0].text for entry in await users(agent, "c")] == ["first", "second", "third", "fourth"]  # type: ignore[union-attr]
        said = texts(model.requests[-1])
        assert said.index("first") < said.index("second") < said.index("third") < said.index("fourth")
        assert told(agent, "store.conflict") == []


# Generations


async def test_f54_fresh_adopts_nothing_deletes_nothing_and_stays_in_force() -> None:
    house = House()
    store = house.store
    async with house.life(StrictLLM([("memory.set", {"key": "k", "value": 1})], "done")) as agent:
        await agent.ask("of yore", context="c", principal=ANN, message_id="m")
        agent.pause()
        waiting = await agent.send("left over", context="d")
        await house.end(agent)
    first = {key: await store.get(key) for key in await store.keys(KEYS.base) if "/log/" not in key}
    assert len(first) > 5
    model = StrictLLM("done")
    async with house.life(model, fresh=True) as agent:
        await agent.until_idle()
        assert model.requests == [], "what was left over is not taken up"
        assert len(agent.services.inbox) == 0
        with pytest.raises(LookupError):
            await agent.wait(waiting.task.id)
        task = await agent.ask("new", context="c", principal=BOB, message_id="m")
        assert task.text == "done"
        assert "of yore" not in texts(model.requests[-1])
        assert (await agent.services.memories.instance.get("k"))[0] is None
    async with house.life(StrictLLM("done")) as agent:
        await agent.until_idle()
        assert len(await users(agent, "c")) == 1, "the new generation stays in force"
        assert (await agent.send("new", context="c", principal=BOB, message_id="m")).is_duplicate
        with pytest.raises(NotYours):
            await agent.send("of yore", context="c", principal=ANN)
    assert {key: await store.get(key) for key in await store.keys(KEYS.base) if "/log/" not in key} == first
    assert len(await store.list(KEYS.key("log", "c"))) > 0


# The end of conversations


async def test_f55_a_closed_conversation_is_reopened_by_its_owner_with_its_archive() -> None:
    house, chores, model = House(a2a__conversation_ttl="30d"), Chores(), StrictLLM("done")
    async with house.life(model) as agent:
        await agent.ask("the first word", context="c", principal=ANN)
    house.clock.advance(30 * DAY - 1)
    async with house.life(model, sleep=chores.sleep) as agent:
        await chores.sweep()
        row = await agent.services.records.get("context", "c")
        assert row is not None
        assert b'"closed"' not in row.state
        house.clock.advance(1)
        await chores.sweep()
        row = await agent.services.records.get("context", "c")
        assert row is not None
        assert b'"closed"' in row.state
        with pytest.raises(NotYours):
            await agent.send("mine now", context="c", principal=BOB)
        assert (await agent.ask("me again", context="c", principal=ANN)).text == "done"
        assert "the first word" in texts(model.requests[-1])
        assert (await agent.command("status", context="c"))["status"] == "open"
        assert len(await users(agent, "c")) == 2


async def test_f55_a_conversation_that_stayed_in_memory_is_closed_as_well() -> None:
    house, chores = House(), Chores()
    async with house.life(StrictLLM("done"), sleep=chores.sleep) as agent:
        await agent.ask("the first word", context="c", principal=ANN)
        await agent.until_idle()
        house.clock.advance(31 * DAY)
        await chores.sweep()
        assert "c" not in agent.contexts, "closed and unloaded"
        row = await agent.services.records.get("context", "c")
        assert row is not None
        assert b'"closed"' in row.state
        assert (await agent.ask("me again", context="c", principal=ANN)).text == "done"
        assert await answers(agent, "c") == ["done", "done"]


async def test_f55_a_deleted_id_is_given_to_nobody_else_and_begins_anew_for_its_owner() -> None:
    house, chores, model = House(store__retention__contexts="10d"), Chores(), StrictLLM("done")
    async with house.life(model) as agent:
        await agent.ask("the first word", context="c", principal=ANN)
        await agent.ask("kept", context="root")
    house.clock.advance(40 * DAY)
    async with house.life(model, sleep=chores.sleep) as agent:
        await chores.sweep()
        await chores.sweep()
        assert await agent.services.records.entries("log", "c") == []
        for principal in (BOB, Principal("anonymous", "anonymous")):
            with pytest.raises(NotYours):
                await agent.send("mine now", context="c", principal=principal)
        with pytest.raises(NotYours):
            await agent.command("status", context="c", principal=ANN)
        assert (await agent.ask("me again", context="c", principal=ANN)).text == "done"
        assert "the first word" not in texts(model.requests[-1])
        assert [entry.n for entry in await log_of(agent, "c")][:1] == [1]
        assert len(await users(agent, "root")) == 1, "root is never closed"


async def test_f55_a_message_that_comes_while_a_conversation_is_closed_is_answered() -> None:
    store = FaultyStore(InMemoryStore())
    house, chores = House(store=store), Chores()
    async with house.life(StrictLLM("done")) as agent:
        await agent.ask("the first word", context="c", principal=ANN)
    house.clock.advance(31 * DAY)
    async with house.life(StrictLLM("done"), sleep=chores.sleep) as agent:
        await until(lambda: chores.rests > 0)
        closing, accepting = store.delay(1, "commit"), store.delay(2, "commit")
        sweeping = asyncio.ensure_future(chores.sweep())
        await closing.reached()
        asking = asyncio.ensure_future(agent.ask("me again", context="c", principal=ANN))
        for _ in range(50):  # as far as it gets
            await asyncio.sleep(0)
        closing.open()
        await sweeping
        accepting.open()
        assert (await asyncio.wait_for(asking, 10)).text == "done"
        assert agent.halted is None
        assert told(agent, "store.conflict") == []
        assert len(await users(agent, "c")) == 2


@pytest.mark.parametrize("kind", ["context", "task"])
@pytest.mark.parametrize("change", [lambda row: b"garbage", in_state(created="seven")])
async def test_f11_a_row_that_cannot_be_read_keeps_no_other_from_being_closed_or_deleted(
    kind: str, change: Callable[[bytes], bytes]
) -> None:
    house, chores = House(store__retention__tasks="10d"), Chores()
    async with house.life(StrictLLM("done")) as agent:
        tasks = [await agent.ask("go", context=context) for context in ("a", "b", "c")]
    key = KEYS.key(kind, {"context": "a", "task": tasks[0].id}[kind])
    damaged = change(await house.store.get(key))
    await house.store.set(key, damaged)
    house.clock.advance(31 * DAY)
    async with house.life(StrictLLM("done"), sleep=chores.sleep) as agent:
        await chores.sweep()
        rows = [await house.store.get(KEYS.key("context", context)) for context in ("b", "c")]
        assert all(b'"closed"' in row for row in rows)
        assert [await agent.services.records.get("task", task.id) for task in tasks[1:]] == [None, None]
        assert await house.store.get(key) == damaged


# Memory


async def test_f38_the_ttl_of_memory_holds_to_the_millisecond_over_a_restart() -> None:
    house, chores = House(), Chores()
    setting = [("memory.set", {"key": "short", "value": 1, "ttl": "90s"}), ("memory.set", {"key": "kept", "value": 2})]
    asking = [("memory.get", {"key": "short"}), ("memory.list", {})]
    async with house.life(StrictLLM(setting, "done")) as agent:
        await agent.ask("set", context="c")
    key = KEYS.key("memory", "short")
    for wait, found in ((89.999, True), (0.001, False)):
        house.clock.advance(wait)
        model = StrictLLM(asking, "done")
        async with house.life(model, sleep=chores.sleep) as agent:
            await agent.ask("get", context="c")
            got, listed = [result.content for result in await results(agent, "c")][-2:]
            assert got["found"] == found
            assert listed["keys"] == ["kept", "short"][: 1 + found]
            assert ("short" in texts(model.requests[0]).rpartition("<runtime-state")[2]) == found
            assert await house.store.get(key) is not None
            if not found:
                await chores.sweep()
                assert await house.store.get(key) is None, "gone in truth"


async def test_f39_failed_listings_of_keys_change_no_mode() -> None:
    store = FaultyStore(InMemoryStore())
    setting = [("memory.set", {"key": "k", "value": 1})]
    listing: list[tuple[str, dict[str, Any]]] = [("memory.list", {})]
    model = StrictLLM(setting, listing, "done", listing, "done")
    async with House(store=store).life(model, sleep=Chores().sleep) as agent:
        store.fail(1, "keys", times=3)
        await agent.ask("set and list", context="c")
        await agent.ask("list", context="c")
        assert [result.content["keys"] for result in (await results(agent, "c"))[1:]] == [["k"], ["k"]]
        assert await store.keys(KEYS.start("memory", "_")) == [], "no index is begun beside"
