"""Writers that are killed at random moments: what was acknowledged is there, whole, and at most what was in flight
beside it (W4)."""

import asyncio
import os
import random
import signal
import sqlite3
import subprocess
from pathlib import Path
from typing import IO

import pytest

from agentkit.state.stores import SQLiteStore
from tests.state.stores.processes import start
from tests.state.stores.worker import WRITERS

KILLS = 300 if os.environ.get("AGENTKIT_SOAK") else 30
pytestmark = [pytest.mark.anyio, pytest.mark.crash]


def first_line(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.communicate()[1].decode()
    return line


def kill(process: subprocess.Popen[bytes]) -> list[bytes]:
    """Kills and returns the acknowledgements that were still in the pipe."""
    process.kill()
    pipe: IO[bytes] | None = process.stdout
    assert pipe is not None
    lines = pipe.read().splitlines()
    process.communicate()
    return lines


def note(acknowledged: dict[str, int], lines: list[bytes]) -> None:
    for line in lines:
        key, turn = line.decode().split()
        acknowledged[key] = max(acknowledged[key], int(turn))


async def check(path: Path, acknowledged: dict[str, int], mode: str) -> None:
    """Reads all back. `acknowledged` is moved on to what was found: the turn in flight may have landed."""
    async with SQLiteStore(path, exclusive=mode == "exclusive") as store:
        for key, turn in acknowledged.items():
            head = await store.get(f"head/{key}", 0)
            assert turn <= head <= turn + 1
            entries = [message.content[:14].strip() for message in await store.list(f"log/{key}")]
            assert entries == [f"turn {n} part {part}"[:14].strip() for n in range(1, head + 1) for part in range(3)]
            acknowledged[key] = head
        if mode == "exclusive":
            writer = next(iter(acknowledged))
            last = acknowledged[writer]
            hits = await store.search(f"log/{writer}", f"turn {last} part", 3)
            assert [hit.position for hit in hits] == ([last * 3 - 1, last * 3 - 2, last * 3 - 3] if last else [])


def check_file(path: Path) -> None:
    db = sqlite3.connect(path)
    try:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        stray = "SELECT count(*) FROM item WHERE id >> 31 NOT IN (SELECT log FROM entry WHERE log IS NOT NULL)"
        assert db.execute(stray).fetchone() == (0,)
    finally:
        db.close()


async def test_killed_exclusive_writer_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    acknowledged = {f"a/{number}": 0 for number in range(WRITERS)}
    dice = random.Random(12)
    for number in range(KILLS):
        process = start("write", path, "exclusive", "a")
        lines = [first_line(process)]
        await asyncio.sleep(dice.uniform(0, 0.08))
        note(acknowledged, lines + kill(process))
        await check(path, acknowledged, "exclusive")
        if number % 10 == 0:
            check_file(path)
    kill(start("write", path, "exclusive", "a"))
    await check(path, acknowledged, "shared")  # whose journal is another one
    check_file(path)
    assert min(acknowledged.values()) > KILLS


async def test_stopped_writers_lose_nothing(tmp_path: Path) -> None:
    """Two processes on one file, each stopped at random moments and sent on; what it then writes is still whole."""
    path = tmp_path / "store.db"
    acknowledged = {f"{name}/{number}": 0 for name in "ab" for number in range(WRITERS)}
    dice = random.Random(56)
    writers = [start("write", path, "shared", name) for name in "ab"]
    note(acknowledged, [first_line(writer) for writer in writers])
    for _ in range(KILLS // 3):
        stopped = dice.choice(writers)
        stopped.send_signal(signal.SIGSTOP)
        await asyncio.sleep(dice.uniform(0, 0.1))
        stopped.send_signal(signal.SIGCONT)
        note(acknowledged, [first_line(writer) for writer in writers])
    for writer in writers:
        note(acknowledged, kill(writer))
    await check(path, acknowledged, "shared")
    check_file(path)


async def test_killed_shared_writers_lose_nothing(tmp_path: Path) -> None:
    """Two processes on one file. One is killed, the other goes on; then it is killed too."""
    path = tmp_path / "store.db"
    acknowledged = {f"{name}/{number}": 0 for name in "ab" for number in range(WRITERS)}
    dice = random.Random(34)
    for number in range(KILLS // 2):
        first, second = start("write", path, "shared", "a"), start("write", path, "shared", "b")
        note(acknowledged, [first_line(first), first_line(second)])
        await asyncio.sleep(dice.uniform(0, 0.1))
        note(acknowledged, kill(first))
        note(acknowledged, [first_line(second), first_line(second)])
        await asyncio.sleep(dice.uniform(0, 0.05))
        note(acknowledged, kill(second))
        await check(path, acknowledged, "shared")
        if number % 10 == 0:
            check_file(path)
    check_file(path)
    assert sum(acknowledged.values()) > KILLS
