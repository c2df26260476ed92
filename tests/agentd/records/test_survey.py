"""The survey of a store: what is there, whose it is, and everything that cannot be read, with nothing changed."""

import json
from pathlib import Path

import pytest

from agentd.records import ANY, Abilities, Add, Records, Remove, Row, Save, acquire, open_manifest, open_next_generation
from agentd.records.keys import lease_name
from agentd.records.ownership import this_process
from agentd.records.survey import survey
from agentkit.core.contracts.scope import Scope
from agentkit.state.stores import InMemoryStore, SQLiteStore
from tests.agentd.records.making import NOBODY, NOW, everything, faulty, records

pytestmark = pytest.mark.anyio


async def _filled(mine: Records) -> str:
    await open_manifest(mine, {})
    await mine.commit(
        [Save("context", "root", b"1"), Save("plan", "root", b"null"), Add("log", "root", 1, (b"1", b"2"))]
    )
    await mine.within(Scope(None, "b/c")).commit([Save("context", "c/1", b'{"bad": 1}')])
    sha = await mine.artifact(b"data")
    await open_next_generation(mine, {})
    await mine.of_generation(2).commit([Save("context", "root", b"22"), Save("task", "t", b"3")])
    await mine.of_generation(2).commit([Remove("task", "t", ANY)])
    return sha


def _read(row: Row) -> None:
    if row.kind == "context" and not isinstance(json.loads(row.state), int):
        raise ValueError("the state is no number")


async def test_survey_counts_and_names_what_cannot_be_read() -> None:
    store = InMemoryStore()
    mine = records(store)
    sha = await _filled(mine)
    await records(store, instance="another").commit([Save("context", "root", b"{}")])
    base = "agentd/orgNone:domNone/me"
    await store.set(f"{base}/1/artifact/{sha}", b"dat4")
    await store.set(f"{base}/2/context/newer", b'{"v": 7}')
    await store.set(f"{base}/2/context/damaged", {"not": "bytes"})
    before = await everything(store)
    found = await survey(mine, read=_read)
    assert await everything(store) == before
    assert (found.store, found.generation, found.starts, found.file) == ("InMemoryStore", 2, 2, None)
    assert found.counts == {
        0: {"manifest": 1},
        1: {"artifact": 1, "context": 2, "log": 1, "plan": 1},
        2: {"context": 3},
    }
    assert found.tombstones == 1
    assert found.size["artifact"] == 4
    told = {(one.name.scope, one.name.generation, one.name.kind, one.name.id): one.reason for one in found.unreadable}
    none = "orgNone:domNone"
    assert set(told) == {
        (none, 1, "artifact", sha), (none, 2, "context", "newer"), (none, 2, "context", "damaged"),
        ("orgNone:domb%2Fc", 1, "context", "c/1"),
    }  # fmt: skip
    assert "has form 7" in told[none, 2, "context", "newer"]
    assert told["orgNone:domb%2Fc", 1, "context", "c/1"] == "the state is no number"
    assert not found.is_sound


async def test_survey_of_a_file_tells_its_state_and_owner(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    me = this_process()
    async with SQLiteStore(path, exclusive=True) as store:
        lease = await acquire(store, lease_name("agentd", NOBODY, "me"), me, 15, clock=lambda: NOW)
        await _filled(records(store, lease=lease))
        async with SQLiteStore(path, read_only=True) as reader:
            found = await survey(records(reader))
    assert found.is_sound
    assert found.held_by == (str(me), NOW + 15_000)
    assert found.file is not None
    assert found.file.faults == ()
    assert found.file.size >= path.stat().st_size > 0
    assert found.file.sqlite.startswith("3.")
    assert found.file.locked_by is not None
    assert f"process {me.pid} on {me.host}" in found.file.locked_by
    async with SQLiteStore(path, read_only=True) as reader:
        after = await survey(records(reader))
    assert after.file is not None
    assert after.file.locked_by is None


async def test_survey_reports_a_damaged_file(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    async with SQLiteStore(path, exclusive=True) as store:
        mine = records(store)
        await mine.commit([Save("memory", f"key {n}", json.dumps("x" * 2_000).encode()) for n in range(200)])
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(size // 2 // 4096 * 4096)
        file.write(b"\xff" * 64)
    async with SQLiteStore(path, read_only=True) as reader:
        found = await survey(records(reader, abilities=Abilities(list=False)))
    assert found.file is not None
    assert found.file.faults
    assert not found.is_sound
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (size - 4096))
    async with SQLiteStore(path, read_only=True) as reader:
        found = await survey(records(reader))
    assert found.cut_short is not None
    assert "it is damaged" in found.cut_short


async def test_damaged_manifest_is_one_of_the_rows() -> None:
    store = InMemoryStore()
    mine = records(store)
    await store.set("agentd/orgNone:domNone/me/0/manifest/agent", b"{")
    found = await survey(mine)
    assert found.generation is None
    assert [one.name.kind for one in found.unreadable] == ["manifest"]


async def test_store_that_cannot_list_is_not_counted_and_its_index_made_anew() -> None:
    mine = records(faulty(lists=False), abilities=Abilities(list=False))

    async def rebuild() -> int:
        return 7

    found = await survey(mine, rebuild_index=rebuild)
    assert (found.counts, found.indexed, found.is_sound) == (None, 7, True)


async def test_survey_goes_through_many_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentd.records.survey.PAGE", 7)
    mine = records(InMemoryStore())
    for n in range(50):
        await mine.commit([Save("memory", str(n), b"1")])
    assert (await survey(mine)).counts == {1: {"memory": 50}}
