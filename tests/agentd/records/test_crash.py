"""Killed at any moment: a commit is there whole or not at all, and what was acknowledged is there."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentkit.state.stores import SQLiteStore
from tests.agentd.records.making import records

pytestmark = [pytest.mark.anyio, pytest.mark.crash]
ROUNDS = 40 if os.environ.get("AGENTKIT_SOAK") else 5


def _killed_after(path: Path, commits: int) -> int:
    """Runs the writer until it has said so many numbers; the last one that it said."""
    writer = Path(__file__).parent / "writer.py"
    child = subprocess.Popen([sys.executable, "-W", "error", writer, path], stdout=subprocess.PIPE)
    assert child.stdout is not None
    said = [child.stdout.readline() for _ in range(commits)]
    child.kill()
    return int((said + child.communicate()[0].splitlines(keepends=True))[-1])


async def test_f1_row_and_log_agree_after_any_kill(tmp_path: Path) -> None:
    """W4, with the lease of the killed one taken over at once."""
    path = tmp_path / "a.db"
    last = 0
    for at in range(ROUNDS):
        acknowledged = _killed_after(path, 3 + 7 * at)
        assert acknowledged > last
        async with SQLiteStore(path, exclusive=True) as store:
            mine = records(store)
            row = await mine.get("context", "root")
            assert row is not None
            last = int(row.state)
            assert row.seq == last
            assert acknowledged <= last <= acknowledged + 1
            assert await mine.entries("log", "root") == [b'"line %d"' % n for n in range(1, 2 * last + 1)]
            assert [hit.n for hit in await mine.search("log", "root", f"line {2 * last}", 1)] == [2 * last]
