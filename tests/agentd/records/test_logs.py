"""Logs and artifacts: lines by number, found by any piece of them on every store, bytes under their own digest."""

import hashlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import pytest

from agentd.records import ANY, Abilities, Add, Found, Records, Remove, Save, Unsupported
from agentkit.core.contracts.errors import Corrupt, StoreError
from agentkit.core.contracts.ports import Store
from agentkit.core.testing import FaultyStore
from agentkit.state.stores import InMemoryStore, SQLiteStore
from tests.agentd.records.making import faulty, records

pytestmark = pytest.mark.anyio

LINES = tuple(
    msgspec.json.encode({"n": n, "kind": kind, "body": body})
    for n, (kind, body) in enumerate(
        (
            ("user", {"parts": [{"type": "text", "text": "Please fix src/agentkit/core/codec.py and C:\\Temp\\x"}]}),
            ("assistant", {"tool_calls": [{"name": "grep_files", "arguments": {"pattern": "MAX_DEPTH = 100"}}]}),
            ("tool", {"content": {"rows": ["数据库连接失败", {"ident_4711": "Straße \"quoted\""}]}}),
            ("note", {"text": "half written:\nnext line"}),
        ),
        1,
    )
)  # fmt: skip


@pytest.fixture(params=["memory", "sqlite", "sqlite shared", "no search", "no search on disk"])
async def mine(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Records]:
    path = tmp_path / "a.db"
    made: dict[str, Callable[[], Store]] = {
        "memory": InMemoryStore,
        "sqlite": lambda: SQLiteStore(path, exclusive=True),
        "sqlite shared": lambda: SQLiteStore(path),
        "no search": lambda: FaultyStore(InMemoryStore(), searches=False),
        "no search on disk": lambda: SQLiteStore(path, exclusive=True),
    }
    store = made[request.param]()
    yield records(store, abilities=Abilities(search=False) if "disk" in request.param else None)
    await store.aclose()


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("codec.py", [1]), ("KIT/core/co", [1]), ("C:\\Temp\\", [1]), ("max_depth", [2]), ("grep 100", [2]),
        ("数据", [3]), ("连接失败", [3]), ("失", [3]), ("STRASSE", [3]), ('"quoted"', [3]), ("ident_4711", []),
        ("line", [4]), ("te", [4, 3, 1]), ("codec decoy", []), ("", []), ("parts", []),
    ],
)  # fmt: skip
async def test_f32_entries_are_found_by_pieces(mine: Records, text: str, numbers: list[int]) -> None:
    """By path, identifier, CJK word, in any case; names of fields are no text, nor is another context's."""
    await mine.commit([Add("log", "other", 1, LINES), Add("log", "c", 1, LINES[:2])])
    await mine.commit([Add("log", "c", 3, LINES[2:])])
    found = await mine.search("log", "c", text)
    assert [hit.n for hit in found] == numbers
    assert all(type(hit) is Found and hit.excerpt for hit in found)


async def test_newest_are_found_first_up_to_the_limit(mine: Records) -> None:
    await mine.commit([Add("log", "c", 1, tuple(b'"word %d"' % n for n in range(1, 601)))])
    assert [hit.n for hit in await mine.search("log", "c", "word", 3)] == [600, 599, 598]
    assert [hit.n for hit in await mine.search("log", "c", "word 25", 2)] == [525, 425]
    assert await mine.search("log", "c", "word", 0) == []
    assert await mine.search("log", "none", "word") == []


async def test_lines_come_back_by_number(mine: Records) -> None:
    lines = (b'{"a": "\xc3\xbc"}', b"not json", b"\x00\xff", b"")
    await mine.commit([Add("log", "c", 1, lines)])
    assert await mine.entries("log", "c") == list(lines)
    assert await mine.entries("log", "c", 2, 3) == list(lines[1:3])
    assert await mine.entries("log", "c", 4) == [b""]
    assert await mine.entries("log", "c", 5) == await mine.entries("log", "c", 3, 2) == []
    with pytest.raises(ValueError, match="numbered from 1 on"):
        await mine.entries("log", "c", 0)
    await mine.commit([Remove("log", "c", ANY)])
    assert await mine.entries("log", "c") == []


async def test_line_that_is_none_is_reported_by_number() -> None:
    store = InMemoryStore()
    mine = records(store)
    await mine.commit([Add("log", "c", 1, (b"1",))])
    await store.append("agentd/orgNone:domNone/me/1/log/c", {"not": "a line"})
    with pytest.raises(Corrupt, match="record entry 2 of log 'c' cannot be read") as caught:
        await mine.entries("log", "c")
    assert (caught.value.key, caught.value.position) == ("log/c", 1)
    assert await mine.entries("log", "c", 1, 1) == [b"1"]


async def test_artifact_is_kept_once_under_its_digest() -> None:
    store = faulty()
    mine = records(store)
    data = b"\x00\xff" * 50_000
    sha = await mine.artifact(data)
    assert sha == hashlib.sha256(data).hexdigest()
    written = store.written
    store.lose(of="commit")
    assert await mine.artifact(data) == sha
    assert store.written == written
    assert await mine.artifact_bytes(sha) == data
    assert await mine.artifact_bytes("0" * 64) is None
    assert await mine.ids("artifact") == [sha]
    store.lose(of="commit")
    assert await mine.artifact_bytes(await mine.artifact(b"other")) == b"other"


async def test_damaged_artifact_is_reported() -> None:
    store = InMemoryStore()
    mine = records(store)
    sha = await mine.artifact(b"data")
    await store.set(f"agentd/orgNone:domNone/me/1/artifact/{sha}", b"dat4")
    for act in (mine.artifact_bytes(sha), mine.artifact(b"data")):
        with pytest.raises(Corrupt, match=f"record artifact '{sha}'"):
            await act


# Stores that can do less


async def test_store_that_cannot_list_says_so() -> None:
    mine = records(faulty(lists=False), abilities=Abilities(list=False))
    with pytest.raises(Unsupported, match="keep an index of the records of kind 'memory'"):
        await mine.ids("memory")


async def test_f39_one_failed_listing_changes_no_mode() -> None:
    store = faulty()
    mine = records(store)
    await mine.commit([Save("memory", "a", b"1")])
    store.fail(of="keys", times=4)
    with pytest.raises(StoreError, match="on purpose") as caught:
        await mine.ids("memory")
    assert not isinstance(caught.value, Unsupported)
    assert await mine.ids("memory") == ["a"]


async def test_store_that_cannot_delete_keeps_a_tombstone() -> None:
    store = faulty(deletes=False)
    mine = records(store, abilities=Abilities(delete=False))
    rows = await mine.commit([Save("memory", id, b"1") for id in "abcde"])
    assert (
        await mine.commit([Remove("memory", "b", rows[1]), Remove("memory", "d", ANY), Remove("memory", "x", ANY)])
        == ()
    )
    assert await mine.get("memory", "b") is None
    assert await mine.ids("memory") == ["a", "c", "e"]
    assert await mine.ids("memory", limit=2) == ["a", "c"]
    assert await mine.ids("memory", after="a", limit=2) == ["c", "e"]
    (row,) = await mine.commit([Save("memory", "b", b"2")])
    assert row.seq == 3
    assert await store.keys("agentd/orgNone:domNone/me/1/memory/x") == []


async def test_f14_lost_answer_of_a_tombstone() -> None:
    store = faulty(deletes=False)
    mine = records(store, abilities=Abilities(delete=False))
    (row,) = await mine.commit([Save("memory", "a", b"1")])
    store.lose(of="commit")
    assert await mine.commit([Remove("memory", "a", row)]) == ()
    assert await mine.get("memory", "a") is None


async def test_listing_goes_by_prefix_place_and_limit() -> None:
    mine = records(InMemoryStore())
    ids = ["a", "a/1", "a/2", "a\0", "b", "ä", "🙂"]
    await mine.commit([Save("memory", id, b"1") for id in reversed(ids)])
    assert await mine.ids("memory") == sorted(ids)
    assert await mine.ids("memory", prefix="a/") == ["a/1", "a/2"]
    assert await mine.ids("memory", after="a/1", limit=2) == ["a/2", "b"]
    assert await mine.ids("memory", prefix="a", after="a/1") == ["a/2"]
    assert await mine.ids("memory", limit=0) == []
