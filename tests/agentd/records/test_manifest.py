"""The manifest: what changed since the last start, and generations that leave each other alone."""

import json

import pytest

from agentd.records import Add, Ids, Records, Save, Start, open_manifest, open_next_generation
from agentd.records.manifest import read_manifest
from agentkit.core.contracts.errors import Corrupt, FormatError
from agentkit.core.testing import FaultyStore
from agentkit.state.stores import InMemoryStore
from tests.agentd.records.making import everything, records

pytestmark = pytest.mark.anyio
KEY = "agentd/orgNone:domNone/me/0/manifest/agent"


async def test_first_start_changes_nothing_and_is_on_record() -> None:
    mine = records(InMemoryStore())
    assert await read_manifest(mine) is None
    assert await open_manifest(mine, {"agent": "1"}) == Start(1, 1, (), ())
    assert await read_manifest(mine) == Start(1, 1, (), ())


async def test_changed_sections_are_named_once() -> None:
    mine = records(InMemoryStore())
    await open_manifest(mine, {"agent": "1", "context": "1", "old": "1"})
    changed = {"agent": "2", "context": "1", "new": "1"}
    assert await open_manifest(mine, changed) == Start(1, 2, ("agent", "new", "old"), ())
    assert await open_manifest(mine, changed) == Start(1, 3, (), ())


async def test_f54_fresh_adopts_and_deletes_nothing_and_stays_in_force() -> None:
    store = InMemoryStore()
    mine = records(store)
    old = mine.of_generation((await open_manifest(mine, {})).generation)
    await old.commit([Save("context", "root", b"1"), Save("inbox", "1", b"1"), Add("log", "root", 1, (b'"x"',))])
    before = {key: value for key, value in (await everything(store)).items() if "/0/" not in key}

    fresh = await open_next_generation(mine, {})
    assert (fresh.generation, fresh.retired) == (2, (1,))
    new = mine.of_generation(2)
    assert await new.get("context", "root") is None
    assert (await new.ids("inbox"), await new.entries("log", "root"), await new.search("log", "root", "x")) == (
        [],
        [],
        [],
    )
    assert {key: value for key, value in (await everything(store)).items() if "/0/" not in key} == before

    await new.commit([Save("context", "root", b"2")])
    plain = await open_manifest(mine, {})
    assert (plain.generation, plain.starts) == (2, 3)
    row = await mine.of_generation(plain.generation).get("context", "root")
    assert row is not None
    assert row.state == b"2"
    again = await open_next_generation(mine, {})
    assert (again.generation, again.retired) == (3, (1, 2))


async def test_fresh_without_a_past_is_the_first_generation() -> None:
    assert await open_next_generation(records(InMemoryStore()), {}) == Start(1, 1, (), ())


async def test_f54_lost_answer_opens_one_generation_and_no_more() -> None:
    store = FaultyStore(InMemoryStore())
    mine = records(store)
    await open_manifest(mine, {})
    store.lose(of="commit")
    assert (await open_next_generation(mine, {})).generation == 2
    assert (await open_manifest(mine, {})).generation == 2


async def test_what_a_newer_release_added_survives() -> None:
    store = InMemoryStore()
    mine = records(store)
    await open_manifest(mine, {})
    row = json.loads(await store.get(KEY))
    row["state"]["zone"] = [1]
    await store.set(KEY, json.dumps(row).encode())
    await open_manifest(mine, {})
    state = json.loads(await store.get(KEY))["state"]
    assert (state["zone"], state["starts"]) == ([1], 2)


@pytest.mark.parametrize(
    ("state", "kind"), [({"v": 2}, FormatError), ({"generation": "x"}, Corrupt), ([], Corrupt), (None, None)]
)
async def test_manifest_that_cannot_be_read_stops_the_start(state: object, kind: type[Exception] | None) -> None:
    store = InMemoryStore()
    mine = records(store)
    await mine.of_generation(0).commit([Save("manifest", "agent", json.dumps(state).encode())])
    before = await store.get(KEY)
    if kind is None:
        assert await open_manifest(mine, {}) == Start(1, 1, (), ())
        return
    for opened in (open_manifest, open_next_generation):
        with pytest.raises(kind, match="record manifest 'agent'"):
            await opened(mine, {})
    assert await store.get(KEY) == before


async def test_instances_have_manifests_of_their_own() -> None:
    store = InMemoryStore()

    def instance(name: str) -> Records:
        return records(store, instance=name, ids=Ids())

    await open_next_generation(instance("a"), {})
    await open_next_generation(instance("a"), {})
    assert (await open_manifest(instance("b"), {})).generation == 1
    assert (await open_manifest(instance("a"), {})).generation == 2
