"""A real daemon killed with SIGKILL: at every durable step of its work, and at random under load. Whatever was
acknowledged is there once, transcripts are legal, and nothing with an effect ran again in silence."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agentd.runtime.kill_points import NAMES
from tests.agentd.daemon.verdict import lines, verify

pytestmark = pytest.mark.crash
ROOT = Path(__file__).resolve().parents[3]
SOAK = bool(os.environ.get("AGENTKIT_SOAK"))
MESSAGES = 10
CONFIG = """\
agent: {name: crash, preflight: never, tools: {internal: [memory.set, plan.create, plan.update]}}
intelligence: {endpoints: ['fake:none'], model: none, max_output: 200}
context: {model_window: 2400, keep_last: 4}
"""
# One commit does what the end's three points stand for, so each of them is passed behind it.
POINTS = sorted(NAMES - {"commit"})
COMMITS = range(1, 60) if SOAK else (1, 2, 5, 11, 17, 23, 31)
REPEATS = 3 if SOAK else 1


def start(folder: Path, kill_at: str | None = None) -> subprocess.Popen[str]:
    environ = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"}
    if kill_at is not None:
        environ |= {"AGENTD_TEST": "1", "AGENTD_KILL_AT": kill_at}
    command = [sys.executable, str(Path(__file__).with_name("life.py")), str(folder), str(MESSAGES)]
    return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def live(folder: Path, kill_at: str | None = None) -> int:
    """A life to its end; its exit code. One that failed of itself says why."""
    life = start(folder, kill_at)
    _, errors = life.communicate(timeout=120)
    assert life.returncode in (0, -signal.SIGKILL), errors
    return life.returncode


def prepared(folder: Path) -> Path:
    (folder / "agent.yaml").write_text(CONFIG)
    return folder


@pytest.mark.parametrize("nth", range(1, REPEATS + 1))
@pytest.mark.parametrize("point", POINTS)
def test_f1_killed_at_a_point_the_next_life_completes_once(tmp_path: Path, point: str, nth: int) -> None:
    folder = prepared(tmp_path)
    killed = live(folder, f"{point}:{nth}")
    if nth == 1 and point != "restore.sealed":
        assert killed == -signal.SIGKILL, f"{point} was never passed {nth} times"
    assert live(folder) == 0
    found = asyncio.run(verify(folder))
    assert found["acknowledged"] == found["ended"] == MESSAGES


@pytest.mark.parametrize("nth", COMMITS)
def test_f1_killed_behind_any_commit_the_next_life_completes_once(tmp_path: Path, nth: int) -> None:
    folder = prepared(tmp_path)
    assert live(folder, f"commit:{nth}") == -signal.SIGKILL
    assert live(folder) == 0
    found = asyncio.run(verify(folder))
    assert found["acknowledged"] == found["ended"] == MESSAGES


def test_f1_a_crash_while_a_crash_is_mended(tmp_path: Path) -> None:
    folder = prepared(tmp_path)
    for kill_at in ("round.started:2", "commit:2", "commit:4", "tool.done:2", "end.before:1"):
        live(folder, kill_at)
    assert live(folder) == 0
    assert asyncio.run(verify(folder))["ended"] == MESSAGES


@pytest.mark.parametrize("seed", range(40 if SOAK else 2))
def test_f1_killed_at_random_under_load(tmp_path: Path, seed: int) -> None:
    """Lives of a random length on one store, until one of them is done."""
    folder, chance, kills = prepared(tmp_path), random.Random(seed), 0
    wanted = 25 if SOAK else 3
    for _ in range(wanted * 4):
        life = start(folder)
        time.sleep(chance.uniform(0.3, 1.6))
        if life.poll() is None and kills < wanted:
            life.send_signal(signal.SIGKILL)
            kills += 1
        _, errors = life.communicate(timeout=120)
        assert life.returncode in (0, -signal.SIGKILL), errors
        if life.returncode == 0:
            break
    assert live(folder) == 0
    found = asyncio.run(verify(folder))
    assert found["acknowledged"] == found["ended"] == MESSAGES
    assert len(lines(folder / "lives.jsonl")) >= 1
