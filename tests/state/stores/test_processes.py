"""Several processes on one file."""

import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from agentkit.core.contracts.errors import StoreError
from agentkit.core.contracts.ports import MISSING
from agentkit.state.stores import SQLiteStore
from tests.state.stores.processes import finish, start

pytestmark = [pytest.mark.anyio, pytest.mark.crash]
TIMES = 400 if os.environ.get("AGENTKIT_SOAK") else 60


async def test_two_counting_processes_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    counting = [start("count", path, TIMES), start("count", path, TIMES)]
    told = [finish(process).strip() for process in counting]
    assert told[0] == told[1]  # what one has made, the other was given
    async with SQLiteStore(path) as store:
        assert await store.get("counter") == 2 * TIMES
        assert Counter(await store.list("log")) == {process.pid: TIMES for process in counting}


async def test_second_opener_is_told_who_holds_the_file(tmp_path: Path) -> None:
    """Refused at once with the owner's name; a dead owner blocks nobody (W3)."""
    path = tmp_path / "store.db"
    holder = start("hold", path)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n", holder.communicate()
        for exclusive in (True, False):
            store = SQLiteStore(path, exclusive=exclusive)
            for _ in range(2):
                with pytest.raises(StoreError, match=f"belongs to process {holder.pid} on .*, started 2"):
                    await store.open()
            await store.aclose()
        async with SQLiteStore(path, read_only=True) as reader:
            assert await reader.get("k", MISSING) is MISSING
        holder.send_signal(signal.SIGSTOP)  # alive, if not kicking: still the owner
        with pytest.raises(StoreError, match=f"belongs to process {holder.pid}"):
            await SQLiteStore(path, exclusive=True).open()
    finally:
        holder.kill()
        holder.communicate()
    async with SQLiteStore(path, exclusive=True) as store:
        assert await store.lease("name", "the next one", 15) is not None


async def test_exclusive_waits_for_nobody(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with SQLiteStore(path) as shared, SQLiteStore(path) as other:
        await shared.set("k", 1)
        assert await other.get("k") == 1
        alone = SQLiteStore(path, exclusive=True)
        with pytest.raises(StoreError, match="open in another process"):
            await alone.open()
        await shared.aclose()
        with pytest.raises(StoreError, match="open in another process"):
            await alone.open()
        await other.aclose()
        assert await alone.get("k") == 1  # the same object gets it once it is free
        with pytest.raises(StoreError, match=f"belongs to process {os.getpid()}"):
            await SQLiteStore(path).open()
        await alone.aclose()
    async with SQLiteStore(path) as shared:
        assert await shared.get("k") == 1
