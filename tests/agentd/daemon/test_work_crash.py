"""A real daemon with subagents and background runs, killed with SIGKILL: behind every commit, and in the middle of
calls. The next life brings all of it to its end, and starts nothing twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from agentd.config import load
from agentd.context.record import NoteMsg, ToolMsg
from agentd.runtime.daemon import Daemon
from tests.agentd.daemon.house import StrictLLM, log_of
from tests.agentd.daemon.test_crash import ROOT, SOAK
from tests.agentd.daemon.verdict import lines
from tests.agentd.daemon.work_life import CONFIG

pytestmark = [pytest.mark.crash, pytest.mark.anyio]
COMMITS = range(1, 22) if SOAK else (2, 5, 8, 11, 14)


def start(folder: Path, slow: str = "", kill_at: str | None = None) -> subprocess.Popen[str]:
    environ = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"}
    if kill_at is not None:
        environ |= {"AGENTD_TEST": "1", "AGENTD_KILL_AT": kill_at}
    command = [sys.executable, str(Path(__file__).with_name("work_life.py")), str(folder), slow]
    return subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def live(folder: Path, slow: str = "", kill_at: str | None = None) -> int:
    """A life to its end; its exit code."""
    life = start(folder, slow, kill_at)
    _, errors = life.communicate(timeout=60)
    assert life.returncode in (0, -signal.SIGKILL), errors
    return life.returncode


def killed_in(folder: Path, tool: str) -> None:
    """A life that is killed while a call of `tool` is made."""

    def calls() -> int:
        effects = folder / "effects.jsonl"
        return sum(one["tool"] == tool for one in lines(effects)) if effects.exists() else 0

    before, life, end = calls(), start(folder, tool), time.monotonic() + 60
    try:
        while calls() == before:
            assert life.poll() is None, life.stderr.read() if life.stderr else ""
            assert time.monotonic() < end
            time.sleep(0.01)
    finally:
        life.kill()
        life.communicate()


async def verdict(folder: Path) -> dict[str, Any]:
    """What is stored after all, looked at by one more life; what holds in any case is asserted."""
    ends = lines(folder / "ends.jsonl")
    assert {(end["state"], end["text"]) for end in ends} == {("completed", "all done")}, ends
    settings = load([folder / "agent.yaml"], environ={}, flags=[("store.path", str(folder / "store"))])
    keys = defaultdict(set)
    for one in lines(folder / "effects.jsonl"):
        keys[one["tool"], one["n"]].add(one["key"])
    assert all(len(found) == 1 for found in keys.values()), "what is repeated is so under its own key"
    async with await Daemon.open(settings, model=StrictLLM("hello")) as agent:
        records = agent.services.records
        assert await records.ids("inbox") == await records.ids("running") == await records.ids("wait") == []
        contexts = [id for id in await records.ids("context") if id.startswith("subagent/")]
        assert (len(contexts), len(await records.ids("subagent")), len(await records.ids("run"))) == (1, 1, 2)
        bodies = [entry.body for entry in await log_of(agent, "c")]
        notes = [body.text.partition(". ")[0] for body in bodies if isinstance(body, NoteMsg)]
        results = [body for body in bodies if isinstance(body, ToolMsg)]
        runs = {run: await agent.services.runs.find(run) for run in await records.ids("run")}
        plan = (await agent.command("plan.get", context="c"))["plan"]
        assert (await agent.ask("be legal", context="c")).text == "hello", "its transcript is legal"
    assert len(results) == 6
    assert results[0].content["result"] == "seven"
    assert len(notes) == len(set(notes)) == 2
    return {
        "states": {run.tool: run.state for run in runs.values() if run is not None},
        "notes": {note.split()[3]: note.split()[-1] for note in notes},
        "plan": plan["items"][0]["status"],
        "posts": sum(one["tool"] == "post" for one in lines(folder / "effects.jsonl")),
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "agent.yaml").write_text(CONFIG)
    return tmp_path


@pytest.mark.parametrize("nth", COMMITS)
async def test_f1_f4_killed_behind_any_commit_the_next_life_goes_on_with_both(folder: Path, nth: int) -> None:
    assert live(folder, kill_at=f"commit:{nth}") == -signal.SIGKILL
    assert live(folder) == 0
    found = await verdict(folder)
    assert found["states"]["put"] == "completed"
    # What changes something outside ran once at most: it is told as unknown where it may have.
    assert (found["states"]["post"], found["posts"]) in [("completed", 1), ("unknown", 0), ("unknown", 1)]
    assert found["notes"] == found["states"]
    assert found["plan"] == "done"


@pytest.mark.parametrize("point", ["round.started", "tool.done", "end.before"])
async def test_f1_killed_at_a_point_in_the_subagents_turn(folder: Path, point: str) -> None:
    """The second pass of each of these is the subagent's, or the one behind it."""
    live(folder, kill_at=f"{point}:2")
    assert live(folder) == 0
    assert (await verdict(folder))["states"]["put"] == "completed"


async def test_f3_killed_in_a_call_of_a_run_it_is_unknown_or_repeated(folder: Path) -> None:
    killed_in(folder, "post")
    assert live(folder) == 0
    found = await verdict(folder)
    assert (found["states"], found["posts"]) == ({"put": "completed", "post": "unknown"}, 1)


async def test_f4_killed_in_a_call_of_the_subagent_it_goes_on(folder: Path) -> None:
    killed_in(folder, "put")
    killed_in(folder, "put")
    assert live(folder) == 0
    found = await verdict(folder)
    assert found["states"] == {"put": "completed", "post": "completed"}
    mine = [one for one in lines(folder / "effects.jsonl") if one["n"] == 1]
    assert (len(mine), len({json.dumps(one) for one in mine})) == (3, 1), "again, with the same key"
