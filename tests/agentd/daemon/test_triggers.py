"""Triggers: one piece of work for each tick, none twice, and the missed ones as one."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agentd.config import Changes, Settings
from agentd.context.registry import NotYours
from agentd.records import ANY, Save
from agentd.runtime.daemon import Daemon
from agentd.runtime.principals import Principal
from agentkit.core.testing import FaultyStore
from agentkit.state.stores import InMemoryStore
from tests.agentd.daemon.doubtful import Doubtful
from tests.agentd.daemon.house import START, House, StrictLLM, forever, settings_of, settled, users

pytestmark = pytest.mark.anyio
HOURLY = "[{name: hourly, every: 1h, prompt: look around}]"
HOUR = 3_600


def house(triggers: str = HOURLY, **more: Any) -> House:
    made = House(triggers=triggers, **more)
    made.clock.advance(HOUR - made.clock.now % HOUR + 1)  # a second past the full hour
    return made


def life(of: House, model: StrictLLM) -> Any:
    return of.life(model, sleep=of.clock.sleep)


async def told(agent: Daemon, context: str = "root") -> int:
    """How often the trigger has spoken to a conversation, once all of it is worked on."""
    await settled()
    await agent.until_idle()
    if context not in await agent.services.records.ids("context"):
        return 0
    return len(await users(agent, context))


async def test_each_tick_is_worked_on_once() -> None:
    place = house()
    async with life(place, StrictLLM("looked")) as agent:
        assert await told(agent) == 0, "of a new grid nothing was missed"
        place.clock.advance(HOUR - 2)
        assert await told(agent) == 0
        for count in (1, 2, 3):
            place.clock.advance(HOUR if count > 1 else 2)
            assert await told(agent) == count
        (status,) = (await agent.command("status"))["triggers"]
        assert status["name"] == "hourly"
        assert (status["last"] % (HOUR * 1000), status["next"] - status["last"]) == (0, HOUR * 1000)


async def test_missed_ticks_are_one_and_a_restart_repeats_none() -> None:
    place = house()
    async with life(place, StrictLLM("looked")) as agent:
        await settled()
        place.clock.advance(HOUR)
        assert await told(agent) == 1
    async with life(place, StrictLLM("looked")) as agent:
        assert await told(agent) == 1
    place.clock.advance(5 * HOUR)
    async with life(place, StrictLLM("looked")) as agent:
        assert await told(agent) == 2
        place.clock.advance(HOUR)
        assert await told(agent) == 3


async def test_clock_set_back_repeats_nothing() -> None:
    place = house()
    async with life(place, StrictLLM("looked")) as agent:
        await settled()
        place.clock.advance(HOUR)
        assert await told(agent) == 1
    place.clock.now -= 3 * HOUR
    async with life(place, StrictLLM("looked")) as agent:
        assert await told(agent) == 1
        place.clock.advance(HOUR)
        assert await told(agent) == 1


async def test_work_that_is_not_done_is_not_heaped_up() -> None:
    place, model = house(), StrictLLM(answer=lambda request: forever())
    async with life(place, model) as agent:
        await settled()
        for _ in range(4):
            place.clock.advance(HOUR - 1)
            await settled()
        assert len(agent.services.inbox.waiting) == 1
        await place.end(agent)


async def test_conversation_of_its_own_and_no_more_after_a_reload() -> None:
    place = house("[{name: a, every: 1h, prompt: look, context: watch}]")
    async with life(place, StrictLLM("looked")) as agent:
        await settled()
        place.clock.advance(HOUR)
        assert (await told(agent, "watch"), await told(agent)) == (1, 0)
        changed = settings_of(triggers="[]")
        assert isinstance(await agent.reload(changed), Changes)
        place.clock.advance(HOUR)
        assert await told(agent, "watch") == 1


async def test_f14_store_that_fails_delays_a_tick_and_loses_none() -> None:
    store = FaultyStore(InMemoryStore())
    place = house(store=store, store__on_error="degrade")
    async with life(place, StrictLLM("looked")) as agent:
        await settled()
        store.break_down()
        place.clock.advance(HOUR)
        await settled()
        store.mend()
        for _ in range(40):
            place.clock.advance(1)
            await settled()
        assert await told(agent) == 1


@pytest.mark.parametrize("owner", ["ann", ""])
async def test_f44_speaks_in_the_name_of_whose_conversation_it_is(owner: str) -> None:
    """A trigger has no more rights in a conversation than who owns it; one that it opened is the operators'."""
    place = house("[{name: a, every: 1h, prompt: look, context: case}]", tools__grants='{"user": ["look"]}')
    model = StrictLLM("looked")
    async with life(place, model) as agent:
        if owner:
            await agent.ask("hello", context="case", principal=Principal(owner))
        await settled()
        place.clock.advance(HOUR)
        await told(agent, "case")
        said = (await users(agent, "case"))[-1]
        assert said.principal == (owner or "operator")
        assert ({tool.name for tool in model.requests[-1].tools or ()} == {"look"}) == bool(owner)
        if not owner:
            with pytest.raises(NotYours):
                await agent.send("mine now", context="case", principal=Principal("bob"))


async def test_f48_paused_it_is_taken_in_and_waits() -> None:
    place = house()
    async with life(place, StrictLLM("looked")) as agent:
        await settled()
        agent.pause()
        for _ in range(3):
            place.clock.advance(HOUR)
            await settled()
        assert (len(agent.services.inbox.waiting), agent.actors.running) == (1, {})
        agent.resume()
        assert await told(agent) == 1
        await agent.drain()
        place.clock.advance(HOUR)
        await settled()
        assert agent.services.inbox.waiting == []


async def test_faulty_row_holds_up_its_own_trigger_alone() -> None:
    place = house("[{name: a, every: 1h, prompt: look, context: a}, {name: b, every: 1h, prompt: look, context: b}]")
    async with life(place, StrictLLM("looked")) as agent:
        await agent.services.records.commit([Save("trigger", "a", b'{"every": "none"}', ANY)])
        await settled()
        place.clock.advance(HOUR)
        assert (await told(agent, "a"), await told(agent, "b")) == (0, 1)
        place.clock.advance(HOUR)
        assert await told(agent, "b") == 2


async def test_f14_tick_whose_commit_was_taken_for_failed_is_worked_on_in_this_life() -> None:
    store = Doubtful(lost=True)
    place = house(store=store, store__on_error="degrade")
    async with life(place, StrictLLM("looked")) as agent:
        await settled()
        place.clock.advance(HOUR - 2)
        await settled()
        store.left = 1
        place.clock.advance(2)
        for _ in range(20):  # less than the lease lasts
            await settled()
            place.clock.advance(0.25)
        store.mend()
        for _ in range(60):
            await settled()
            place.clock.advance(1)
        assert await told(agent) == 1


async def test_clock_that_is_set_forward_is_noticed_within_a_minute() -> None:
    """As is a machine that has slept: a sleep of a process goes by another clock."""
    place = house("[{name: daily, every: 1d, prompt: look}]")

    async with life(place, StrictLLM("looked")) as agent:
        await settled()
        place.clock.now += 86_400 - 61  # nobody wakes of it
        place.clock.advance(61)
        assert await told(agent) == 1


@pytest.mark.parametrize(
    ("triggers", "fault"),
    [("[{name: a, every: 10ms, prompt: x}]", "at least 1s"), ("[{name: a, every: 1h}]", "prompt"),
     ("[{name: a, every: 1h, prompt: x, context: subagent/x}]", "a subagent's conversation")],
)  # fmt: skip
def test_triggers_that_make_no_sense_are_refused(triggers: str, fault: str) -> None:
    with pytest.raises(Exception, match=fault):
        settings_of(triggers=triggers)


def test_triggers_of_one_name_are_refused_and_they_keep_a_store() -> None:
    with pytest.raises(Exception, match="unique"):
        settings_of(triggers="[{name: a, every: 1h, prompt: x}, {name: a, every: 2h, prompt: y}]")
    found: Settings = settings_of(triggers=HOURLY, agent__prompt="hello")
    assert found.model_copy(update={}).triggers[0].context == "root"


ROOT = Path(__file__).parents[3]

LIFE = """
import asyncio, json, sys
from agentd.config import load
from agentd.runtime.daemon import Daemon
from tests.agentd.daemon.house import StrictLLM

async def main(folder, now):
    settings = load([], environ={}, flags=[("intelligence.endpoints", "['fake:none']"), ("intelligence.model", "m"),
        ("agent.name", "t"), ("agent.preflight", "never"), ("store.path", folder),
        ("triggers", "[{name: hourly, every: 1h, prompt: look}]")])
    async with await Daemon.open(settings, model=StrictLLM("looked"), clock=lambda: float(now)) as agent:
        last = {}
        while last.get("tick") != int(float(now)) // 3600:
            await asyncio.sleep(0.01)
            row = await agent.services.records.get("trigger", "hourly")
            last = {} if row is None else json.loads(row.state)
        if "task" in last:
            await agent.wait(last["task"])

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.crash
@pytest.mark.parametrize("point", ["inbox.before", "inbox.after", "end.task"])
def test_f1_killed_around_a_tick_it_is_worked_on_once(tmp_path: Path, point: str) -> None:
    """One life notes the grid, the next is killed at the tick, the third one finds it."""
    code, store, first = tmp_path / "life.py", tmp_path / "store", START // HOUR * HOUR + 1
    code.write_text(LIFE)

    def lived(now: float, kill: str = "") -> int:
        paths = f"{ROOT}{os.pathsep}{ROOT / 'src'}"  # the life imports a double of these tests
        environ = {**os.environ, "PYTHONPATH": paths, "AGENTD_TEST": "1"} | ({"AGENTD_KILL_AT": kill} if kill else {})
        command = [sys.executable, str(code), str(store), str(now)]
        return subprocess.run(command, env=environ, timeout=60, capture_output=True).returncode

    assert lived(first) == 0
    assert lived(first + HOUR, point) == -signal.SIGKILL
    assert lived(first + HOUR) == 0
    assert lived(first + HOUR) == 0
    with closing(sqlite3.connect(f"file:{store}/agentd.db?mode=ro", uri=True)) as db:
        assert db.execute("select count(*) from entry where key like '%/task/%'").fetchone() == (1,)
        (state,) = db.execute("select body from entry where key like '%/context/root'").fetchone()
        assert json.loads(state)["state"]["turns"] == 1
