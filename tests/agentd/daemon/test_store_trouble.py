"""A store that fails: for a moment, for a commit's answer only, for good, on a full disk. Whatever was acknowledged is
durable, nothing is there twice, and work goes on once the store is mended."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agentd.config import Settings
from agentd.records.opening import NoRoom
from agentd.runtime.daemon import Daemon, Draining
from agentd.runtime.events import Event
from agentkit.core.contracts.errors import Conflict, Corrupt, Fenced, StoreError, TooLarge
from agentkit.core.testing import FaultyStore
from agentkit.state.stores import InMemoryStore, SQLiteStore
from tests.agentd.daemon.house import House, Said, StrictLLM, answers, log_of, results, settings_of, until, users
from tests.agentd.daemon.test_ends import at_once

pytestmark = pytest.mark.anyio
DEGRADE = {"store__on_error": "degrade"}


ROUNDS: list[Said] = [[("look", {"n": 1}), ("post", {"n": 2})], [("memory.set", {"key": "k", "value": 3})], "done"]
"""Two rounds, one of which changes something, then an answer."""


def model() -> StrictLLM:
    """The same rounds in every context."""
    return StrictLLM(answer=lambda request: ROUNDS[sum(bool(message.tool_calls) for message in request.messages)])


def house(**given: Any) -> tuple[House, FaultyStore]:
    store = FaultyStore(InMemoryStore())
    return House(store=store, **given), store


async def kinds(agent: Daemon, context: str) -> list[str]:
    return [entry.kind for entry in await log_of(agent, context)]


async def usual(agent: Daemon, store: FaultyStore, operation: str | None = None) -> tuple[list[str], int]:
    """Kinds of entries of a turn, and how many operations of the store it takes."""
    await agent.ask("go", context="first")
    await agent.until_idle()
    before = store.operations.copy()
    assert (await agent.ask("go", context="second")).text == "done"
    await agent.until_idle()
    made = store.operations - before
    return await kinds(agent, "second"), made.total() if operation is None else made[operation]


def told(agent: Daemon, name: str) -> list[Event]:
    found = agent.events.since(0)
    assert isinstance(found, list)
    return [event for event in found if event.name == name]


# Faults that pass


async def test_f14_faults_of_any_operation_that_pass_are_not_noticed() -> None:
    own, store = house()
    async with own.life(model(), sleep=at_once) as agent:
        expected, count = await usual(agent, store)
        for nth in range(1, count + 1):
            own.hands.calls.clear()
            store.fail(nth, times=3)
            task = await agent.ask("go", context=f"c{nth}")
            await agent.until_idle()
            assert (task.state, task.text) == ("completed", "done"), f"at {nth}"
            assert await kinds(agent, f"c{nth}") == expected
            assert own.hands.names() == ["look", "post"]
        assert agent.halted is None
        assert {event.data["given_up"] for event in told(agent, "store.error")} == {False}


@pytest.mark.parametrize("times", [1, 3, 4])
async def test_f14_a_commit_whose_answer_was_lost_is_neither_lost_nor_doubled(times: int) -> None:
    own, store = house()
    async with own.life(model(), sleep=at_once) as agent:
        expected, count = await usual(agent, store, "commit")
        for nth in range(1, count + 1):
            own.hands.calls.clear()
            store.lose(nth, "commit", times=times)
            task = await agent.ask("go", context=f"c{nth}", message_id=f"m{nth}")
            await agent.until_idle()
            assert (task.state, task.text) == ("completed", "done"), f"at {nth}"
            assert await kinds(agent, f"c{nth}") == expected
            assert own.hands.names() == ["look", "post"]
            assert [entry.n for entry in await log_of(agent, f"c{nth}")] == list(range(1, len(expected) + 1))


async def test_f14_faults_while_it_starts_are_not_noticed_either() -> None:
    own, store = house()
    store.fail(1, times=3)
    async with own.life(model(), sleep=at_once) as agent:
        assert (await agent.ask("go", context="c")).text == "done"


# Faults that last


@pytest.mark.parametrize("full", [False, True])
async def test_f14_a_store_that_fails_for_good_halts_and_the_next_life_completes_once(full: bool) -> None:
    own, store = house()

    async def spoil(asked: Any) -> str:
        store.fill_disk() if full else store.break_down()
        return "posted"

    own.hands.do["post"] = spoil
    async with own.life(model(), sleep=at_once) as agent:
        accepted = await agent.send("go", context="c", message_id="m")
        waiting = asyncio.ensure_future(agent.wait(accepted.task.id))
        await asyncio.wait_for(agent.until_over(), 10)
        assert agent.halted == "the store failed"
        assert not waiting.done(), "nobody is told of an end that is not stored"
        with pytest.raises(Draining):
            await agent.send("more", context="c")
        waiting.cancel()
    store.mend()
    store.free_disk()
    own.hands.do.clear()
    async with own.life(StrictLLM("done"), sleep=at_once) as agent:
        task = await agent.wait(accepted.task.id)
        assert (task.state, task.text) == ("completed", "done")
        assert [result.state for result in await results(agent, "c")] == ["", "unknown"]
        assert own.hands.names() == ["look", "post"], "what changed something is not run again"
        assert len(await users(agent, "c")) == 1
        assert (await agent.send("go", context="c", message_id="m")).is_duplicate


@pytest.mark.parametrize("full", [False, True])
async def test_f14_a_degraded_instance_serves_on_and_resumes_once_the_store_is_mended(full: bool) -> None:
    own, store = house(**DEGRADE)
    mended = asyncio.Event()

    async def spoil(asked: Any) -> str:
        store.fill_disk() if full else store.break_down()
        return "posted"

    async def sleep(seconds: float) -> None:
        await (mended.wait() if 1 <= seconds < 5 else at_once(seconds))

    async with own.life(model(), sleep=sleep) as agent:
        await agent.ask("go", context="other")
        own.hands.calls.clear()
        own.hands.do["post"] = spoil
        accepted = await agent.send("go", context="c")
        waiting = asyncio.ensure_future(agent.wait(accepted.task.id))
        await until(lambda: agent.actors.is_degraded)
        assert agent.halted is None
        told_by = await agent.command("status", context="other")
        assert told_by["degraded"]
        with pytest.raises((StoreError, OSError)):
            await agent.send("more", context="d", message_id="n")
        assert not waiting.done()
        store.mend()
        store.free_disk()
        mended.set()
        assert (await waiting).state == "completed"
        assert not (await agent.command("status", context="other"))["degraded"]
        assert own.hands.names() == ["look", "post"], "what changed something is not run again"
        own.hands.do.clear()
        again = await agent.send("more", context="d", message_id="n")
        assert not again.is_duplicate, "what was refused was not taken in"
        assert (await agent.wait(again.task.id)).text == "done"
        assert (len(await users(agent, "c")), len(await users(agent, "d"))) == (1, 1)


async def test_f14_a_message_that_was_taken_in_without_an_answer_is_worked_on_when_it_comes_again() -> None:
    """The commit is done, its answer is lost, and the store cannot be asked: the sender hears of a fault."""
    own, store = house(**DEGRADE)

    async def sleep(seconds: float) -> None:
        if seconds < 1:
            store.break_down()
        await at_once(seconds)

    async with own.life(StrictLLM("done"), sleep=sleep) as agent:
        await agent.ask("first", context="c")
        await agent.until_idle()
        store.lose(1, "commit")
        with pytest.raises((StoreError, OSError)):
            await agent.send("go", context="c", message_id="m")
        store.mend()
        again = await agent.send("go", context="c", message_id="m")
        assert (await asyncio.wait_for(agent.wait(again.task.id), 10)).text == "done"
        await agent.until_idle()
        assert [entry.message_id for entry in await users(agent, "c")] == [None, "m"]
        assert await answers(agent, "c") == ["done", "done"]


# Little room, no room, no access


async def _let_grow(store: SQLiteStore, pages: int) -> None:
    """Let the database grow by this much and no more, which is what SQLite makes of a full disk."""

    def limit(db: sqlite3.Connection, index: Any) -> None:
        (count,) = db.execute("PRAGMA page_count").fetchone()
        db.execute(f"PRAGMA max_page_count = {count + pages}")

    await store._engine.write(limit)


async def test_f14_under_min_free_new_work_is_refused_and_work_in_flight_finishes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = House(store=SQLiteStore(tmp_path / "agentd.db"), store__min_free="1MB")
    go_on = asyncio.Event()
    own.hands.do["post"] = lambda asked: go_on.wait()
    async with own.life(model(), sleep=at_once) as agent:
        accepted = await agent.send("go", context="c", message_id="m")
        await own.hands.begun.wait()
        free = 999_999
        monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free))
        own.clock.advance(2)
        with pytest.raises(NoRoom, match=r"999,999 bytes left, less than the 1,000,000 of store\.min_free: free some"):
            await agent.send("more", context="d")
        assert (await agent.send("go", context="c", message_id="m")).is_duplicate, "that is no new work"
        go_on.set()
        assert (await agent.wait(accepted.task.id)).text == "done"
        free = 1_000_000
        own.clock.advance(2)
        assert (await agent.ask("more", context="d")).text == "done"


async def test_f14_a_disk_that_is_full_in_truth_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "agentd.db")
    own = House(store=store)
    async with own.life(StrictLLM("x" * 3000), sleep=at_once) as agent:
        acknowledged = [(await agent.ask("go", context="c", message_id="m0")).id]
        await _let_grow(store, 12)
        n, refused = 0, ""
        while agent.halted is None:
            n += 1
            try:
                acknowledged.append((await agent.send("y" * 3000, context="c", message_id=f"m{n}")).task.id)
            except (StoreError, OSError) as error:
                refused = str(error)
                break
        assert 0 < n < 100
        assert "full" in refused or agent.halted, "a full disk is called by its name"
        await agent.until_idle()
    own.store = SQLiteStore(tmp_path / "agentd.db")
    async with own.life(StrictLLM("done"), sleep=at_once) as agent:
        for task in acknowledged:
            assert (await agent.wait(task)).state == "completed"
        ids = [entry.message_id for entry in await users(agent, "c")]
        assert ids[: len(acknowledged)] == [f"m{at}" for at in range(len(acknowledged))]
        assert len(ids) - len(acknowledged) in (0, 1), "one that was refused may be there"


async def test_f14_a_store_folder_that_cannot_be_used_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def settings(path: Path) -> Settings:
        return settings_of(store__kind="sqlite", store__path=path)

    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(StoreError, match=r"folder .*file cannot be made: .*; make it, or name another in store\.path"):
        await Daemon.open(settings(tmp_path / "file"), model=model(), environ={})
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "agentd.db").write_text("this is no database, whatever its name says" * 100)
    with pytest.raises(StoreError, match=r"agentd\.db"):
        await Daemon.open(settings(tmp_path / "text"), model=model(), environ={})
    assert (tmp_path / "text" / "agentd.db").read_text().startswith("this is no database")
    (tmp_path / "shut").mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # whoever runs this test may write anywhere
    with pytest.raises(
        StoreError, match=r"shut cannot be written to; give this user access, or name another in store\.path"
    ):
        await Daemon.open(settings(tmp_path / "shut"), model=model(), environ={})


# What is no trouble of the store


@pytest.mark.parametrize("error", [ConnectionResetError("x"), TimeoutError("x"), OSError(28, "x"), StoreError("x"),
                                   Fenced("x"), Conflict("x"), Corrupt("x", key="x")])  # fmt: skip
async def test_a_fault_of_a_model_or_a_tool_is_not_taken_for_one_of_the_store(error: Exception) -> None:
    own, _ = house()

    async def post(asked: Any) -> str:
        raise error

    own.hands.do["post"] = post
    async with own.life(StrictLLM([("post", {})], error, "done"), sleep=at_once) as agent:
        task = await agent.ask("go", context="c")
        assert [(result.is_error, result.state) for result in await results(agent, "c")] == [(True, "")]
        assert agent.halted is None
        assert told(agent, "store.error") == []
        again = isinstance(error, OSError)  # a transport's fault: the model is asked once more
        assert (task.state, task.exit) == (("completed", 0) if again else ("failed", 4))
        assert (await agent.ask("again", context="c")).text == "done"


@pytest.mark.parametrize("on_error", ["halt", "degrade"])
@pytest.mark.parametrize("nth", [1, 2])
async def test_what_is_too_large_for_the_store_fails_its_turn_and_nothing_else(on_error: str, nth: int) -> None:
    """A result that cannot be stored, and then the end of the turn neither."""
    own, store = house(store__on_error=on_error)

    async def post(asked: Any) -> str:
        store.fail(1, "commit", times=nth, error=TooLarge("the value has 2 bytes, this store takes 1"))
        return "posted"

    own.hands.do["post"] = post
    talk = StrictLLM([("post", {"n": 2})], "done")
    async with own.life(talk, sleep=at_once) as agent:
        task = await asyncio.wait_for(agent.ask("go", context="c"), 10)
        assert (task.state, task.exit) == ("failed", 1)
        assert "TooLarge: the value has 2 bytes" in task.reason
        assert agent.halted is None
        assert (await agent.ask("go", context="d")).text == "done"
        assert (await agent.ask("go", context="c")).text == "done", "its context goes on"
        assert told(agent, "store.error") == []
