"""Every row and log line of a store is read; what cannot be is named, and nothing is changed."""

import json
from pathlib import Path
from typing import Any

import pytest

from agentd.config import Settings, load
from agentd.context.memory import INDEX, index_of
from agentd.records import ANY, Abilities, Add, Records, Save, open_manifest
from agentd.runtime.daemon import Daemon
from agentd.runtime.store_check import check_records, check_store
from agentkit.core.contracts.errors import Corrupt, StoreError
from agentkit.core.contracts.scope import Scope
from agentkit.state.stores import InMemoryStore
from tests.agentd.daemon.model import ObedientLLM, task
from tests.agentd.records.making import everything, faulty, records

pytestmark = pytest.mark.anyio

BUSY = task(
    "all",
    [{"tool": "memory.set", "args": {"key": "k", "value": 1}}],
    [{"tool": "plan.create", "args": {"goal": "g", "items": ["one"]}}],
    [{"tool": "artifact.create", "args": {"name": "a.txt", "content": "text"}}],
)


def settings_in(folder: Path) -> Settings:
    (folder / "agent.yaml").write_text("agent: {name: desk}\nintelligence: {endpoints: ['replay:x'], model: m}\n")
    return load([folder / "agent.yaml"], environ={}, flags=[("store.path", str(folder / "store"))])


async def worked(store: InMemoryStore, folder: Path) -> Records:
    """The records of an instance that has done a piece of work; the store is left open."""
    store_aclose, store.aclose = store.aclose, _nothing  # type: ignore[method-assign]
    async with await Daemon.open(settings_in(folder), model=ObedientLLM(), store=store, environ={}) as agent:
        assert (await agent.ask(BUSY, context="c")).state == "completed"
        found = agent.services.records.under(None)
    store.aclose = store_aclose  # type: ignore[method-assign]
    return found


async def _nothing() -> None:
    pass


async def test_everything_that_a_daemon_wrote_can_be_read(tmp_path: Path) -> None:
    store = InMemoryStore()
    mine = await worked(store, tmp_path)
    before = await everything(store)
    found = await check_records(mine)
    assert await everything(store) == before
    assert found.unreadable == ()
    assert found.is_sound
    assert found.counts is not None
    assert {"context", "log", "plan", "memory", "artifact", "artifacts", "task"} <= set(found.counts[1])
    assert found.lines > 8


@pytest.mark.parametrize(
    ("kind", "id", "state", "why"),
    [
        ("context", "c", b'{"next": "many"}', "many|int"),
        ("context", "c", b'{"v": 99}', "form 99"),
        ("plan", "c", b'{"items": 3}', "plan"),
        ("summary", "c", b"3", "c"),
        ("memory", "k", b"[]", "'k'"),
        ("memory", "_index", b"{}", "list of memory keys"),
        ("artifacts", "c", b"{}", "array"),
        ("inbox", "00000000000000000001", b'{"n": 1, "context": "c", "turn": "t", "body": {}}', "role"),
        ("seen", "p/m", b"{}", "digest"),
        ("task", "t", b"[]", "object"),
        ("governor", "day", b"[]", "day"),
    ],
)
async def test_a_row_that_does_not_parse_is_named(kind: str, id: str, state: bytes, why: str) -> None:
    mine = records(InMemoryStore())
    await mine.commit([Save(kind, id, state, ANY)])
    found = await check_records(mine)
    assert [(one.name.kind, one.name.id) for one in found.unreadable] == [(kind, id)]
    assert any(word in found.unreadable[0].reason for word in why.split("|"))
    assert not found.is_sound


async def test_a_manifest_whose_state_does_not_parse_is_named() -> None:
    mine = records(InMemoryStore())
    await mine.of_generation(0).commit([Save("manifest", "agent", b'{"generation": "x"}', ANY)])
    found = await check_records(mine)
    assert [one.name.kind for one in found.unreadable] == ["manifest"]


async def test_lines_that_do_not_parse_are_named_in_every_tenant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentd.records.survey.LINES", 3)
    mine = records(InMemoryStore())
    good = [json.dumps({"n": n, "kind": "note", "body": {"text": "x"}}).encode() for n in range(1, 9)]
    lines = [*good[:3], b"{", good[4], b'{"n": 6, "v": 99, "kind": "note"}', good[7], good[7]]
    await mine.within(Scope(None, "other")).commit([Add("log", "c", 1, tuple(lines))])
    found = await check_records(mine)
    assert [one.entry for one in found.unreadable] == [4, 6, 7]
    assert "form 99" in found.unreadable[1].reason
    assert found.unreadable[2].reason == "it says that it is entry 8"
    assert (found.lines, {one.name.scope for one in found.unreadable}) == (8, {"orgNone:domother"})


async def test_lines_behind_one_that_the_store_cannot_give_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentd.records.survey.LINES", 4)
    store = InMemoryStore()
    mine = records(store)
    lines = [json.dumps({"n": n, "kind": "note", "body": {"text": "x"}}).encode() for n in range(1, 11)]
    await mine.commit([Add("log", "c", 1, tuple(lines))])
    listed = store.list

    async def damaged(key: str, *, start: int = 0, stop: int | None = None) -> list[Any]:
        for at in (2, 3, 8):
            if start <= at < (len(lines) if stop is None else stop):
                raise Corrupt(f"line at {at}", key=key, position=at)
        return await listed(key, start=start, stop=stop)

    monkeypatch.setattr(store, "list", damaged)
    found = await check_records(mine)
    assert [one.entry for one in found.unreadable] == [3, 4, 9]
    assert found.lines == 7


async def test_log_that_lost_its_end_is_named() -> None:
    mine = records(InMemoryStore())
    await open_manifest(mine, {})
    line = b'{"n": 1, "kind": "note", "body": {"text": "x"}}'
    await mine.commit([Save("context", "whole", b'{"next": 2}', ANY), Add("log", "whole", 1, (line,))])
    await mine.commit([Save("context", "short", b'{"next": 3}', ANY), Add("log", "short", 1, (line,))])
    await mine.commit([Save("context", "gone", b'{"next": 2}', ANY), Save("context", "new", b"{}", ANY)])
    found = await check_records(mine)
    assert [(one.name.kind, one.name.id, one.entry) for one in found.unreadable] == [
        ("log", "gone", 1),
        ("log", "short", 2),
    ]
    assert found.unreadable[1].reason == "it ends before entry 2, which its context counts"
    assert found.unreadable[1].name.generation == 1


async def test_a_store_that_is_not_there_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no store at"):
        await check_store(settings_in(tmp_path), {})
    assert not (tmp_path / "store").exists()


async def test_list_of_memory_keys_loses_those_without_a_value() -> None:
    mine = records(faulty(lists=False), abilities=Abilities(list=False))
    writes = [Save("memory", key, b'{"value": 1}', None) for key in ("a", "b")]
    await mine.commit([*writes, Save("memory", INDEX, index_of(["a", "b", "gone"]), None)])
    found = await check_records(mine)
    assert (found.indexed, found.counts, found.is_sound) == (2, None, True)
    row = await mine.get("memory", INDEX)
    assert row is not None
    assert row.state == index_of(["a", "b"])
