"""Opening the configured store: where it is, who may, what is wrong, and how much room there is."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentd.config import Settings
from agentd.records import Held, Save
from agentd.records.opening import FILE, NoRoom, open_store, require_room
from agentkit.core.contracts.errors import StoreError
from agentkit.state.stores import InMemoryStore, SQLiteStore
from tests.agentd.config.loading import settings
from tests.agentd.records.making import records

pytestmark = pytest.mark.anyio

HOLD = """
import asyncio, sys
from agentkit.state.stores import SQLiteStore
async def hold():
    async with SQLiteStore(sys.argv[1], exclusive=True) as store:
        await store.set("k", 1)
        print("held", flush=True)
        sys.stdin.read()
asyncio.run(hold())
"""


def _holding(path: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", HOLD, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def configured(folder: Path, **store: object) -> Settings:
    given = {"kind": "sqlite", "path": str(folder / "state"), **store}
    return settings(folder, "store: {" + ", ".join(f"{name}: {value}" for name, value in given.items()) + "}")


async def test_store_is_a_file_in_a_folder_of_its_own(tmp_path: Path) -> None:
    found = configured(tmp_path)
    async with await open_store(found, {}) as store:
        assert isinstance(store, SQLiteStore)
        assert store.path == tmp_path / "state" / FILE
        (row,) = await records(store).commit([Save("context", "root", b"1")])
        async with await open_store(found, {}, read_only=True) as reader:
            assert await records(reader).get("context", "root") == row
            with pytest.raises(StoreError, match="opened to be read only"):
                await records(reader).commit([Save("context", "root", b"2", row)])
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
    async with await open_store(found, {}, read_only=True) as reader:
        assert await records(reader).get("context", "root") == row


async def test_folder_is_the_users_unless_named(tmp_path: Path) -> None:
    found = settings(tmp_path, "store: {kind: sqlite}", "agent: {name: ada/..}")
    async with await open_store(found, {"XDG_STATE_HOME": str(tmp_path / "xdg")}):
        assert (tmp_path / "xdg/agentd/ada%2F%2E%2E" / FILE).exists()


async def test_memory_store_is_one_and_has_nothing_to_look_into(tmp_path: Path) -> None:
    found = settings(tmp_path, "store: {kind: memory}")
    assert isinstance(await open_store(found, {}), InMemoryStore)
    with pytest.raises(StoreError, match=r"store\.kind is memory"):
        await open_store(found, {}, read_only=True)
    assert not (tmp_path / "state").exists()


async def test_store_that_is_not_built_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"store\.kind 'postgres' is not in this release"):
        await open_store(configured(tmp_path, kind="postgres"), {})


async def test_looking_makes_nothing(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"there is no store at .*state/agentd\.db: nothing was stored yet"):
        await open_store(configured(tmp_path), {}, read_only=True)
    assert not (tmp_path / "state").exists()


async def test_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    with pytest.raises(StoreError, match=r"state cannot be made: .*; make it, or name another in store\.path"):
        await open_store(configured(tmp_path), {})


async def test_folder_that_cannot_be_written_to_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write everywhere, and tests may run as root
    with pytest.raises(StoreError, match=r"state cannot be written to; give this user access"):
        await open_store(configured(tmp_path), {})


async def test_f8_second_process_is_refused_naming_the_first_and_a_dead_one_blocks_nobody(tmp_path: Path) -> None:
    found = configured(tmp_path)
    path = tmp_path / "state" / FILE
    path.parent.mkdir()
    child = _holding(path)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"held\n"
        with pytest.raises(Held, match=f"{FILE} belongs to process {child.pid} on .*; stop that process") as caught:
            await open_store(found, {})
        assert caught.value.owner is not None
        assert caught.value.owner.startswith(f"process {child.pid} on ")
        async with await open_store(found, {}, read_only=True) as reader:
            assert await reader.get("k") == 1
    finally:
        child.kill()
        child.communicate()
    async with await open_store(found, {}) as store:
        assert await store.get("k") == 1


def test_full_disk_is_told_with_both_figures(tmp_path: Path) -> None:
    require_room(tmp_path, 1_000, free=lambda path: 1_000)
    require_room(None, 1_000, free=lambda path: 0)
    require_room(tmp_path, 1)
    with pytest.raises(NoRoom, match=r"has 999 bytes left, less than the 1,000 of store\.min_free"):
        require_room(tmp_path, 1_000, free=lambda path: 999)
