"""What only the SQLite store does: locks, journal modes, group commit, damage, older files, the text index."""

import asyncio
import gc
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from agentkit.core.contracts.errors import Conflict, Corrupt, Fenced, StoreError, TooLarge
from agentkit.core.contracts.ports import MISSING, Append, Delete, Put
from agentkit.core.contracts.types import Message
from agentkit.core.testing import FakeClock
from agentkit.state.stores import SQLiteStore, find, sqlite_file, sqlite_schema
from agentkit.state.stores import sqlite as sqlite_module

pytestmark = pytest.mark.anyio


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@contextmanager
def raw(path: Path) -> Iterator[sqlite3.Connection]:
    db = sqlite3.connect(path, isolation_level=None, timeout=0)
    try:
        yield db
    finally:
        db.close()


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every statement that a store's connections run, in order."""
    seen: list[str] = []
    connect = sqlite_file.connect

    def traced(path: Path, *, writable: bool) -> sqlite3.Connection:
        db = connect(path, writable=writable)
        db.set_trace_callback(seen.append)
        return db

    monkeypatch.setattr(sqlite_file, "connect", traced)
    return seen


def count(statements: list[str], begin: str) -> int:
    return sum(statement.startswith(begin) for statement in statements)


# --- opening ---


@pytest.mark.parametrize("name", ["", ":memory:", "file:x.db"])
def test_only_files_are_opened(name: str) -> None:
    with pytest.raises(ValueError, match="path"):
        SQLiteStore(name)


def test_settings_are_checked(path: Path) -> None:
    with pytest.raises(ValueError, match="synchronous"):
        SQLiteStore(path, synchronous="OFF")
    with pytest.raises(ValueError, match="exclusive or read_only"):
        SQLiteStore(path, exclusive=True, read_only=True)
    assert not path.exists()


async def test_relative_path_is_fixed_at_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    store = SQLiteStore("store.db")
    monkeypatch.chdir("/")
    async with store:
        await store.set("k", 1)
    assert store.path == path
    assert path.exists()


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("place", ["missing/store.db", "file.txt/store.db", "folder"])
async def test_impossible_places_are_named(tmp_path: Path, place: str, exclusive: bool) -> None:
    (tmp_path / "file.txt").write_text("x")
    (tmp_path / "folder").mkdir()
    async with SQLiteStore(tmp_path / place, exclusive=exclusive) as store:
        for _ in range(2):
            with pytest.raises(StoreError, match=place):
                await store.get("k")


@pytest.mark.parametrize("exclusive", [False, True])
async def test_opening_is_tried_again(tmp_path: Path, exclusive: bool) -> None:
    async with SQLiteStore(tmp_path / "later" / "store.db", exclusive=exclusive) as store:
        with pytest.raises(StoreError):
            await store.set("k", 1)
        (tmp_path / "later").mkdir()
        await store.set("k", 1)
        assert await store.get("k") == 1


async def test_failed_opening_fails_each_call_once(tmp_path: Path) -> None:
    async with SQLiteStore(tmp_path / "missing" / "store.db", exclusive=True) as store:
        outcomes = await asyncio.gather(*[store.set(f"k{n}", n) for n in range(9)], return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {StoreError}
        assert len({id(outcome) for outcome in outcomes}) == 9


async def test_calls_after_close_are_refused(path: Path) -> None:
    store = SQLiteStore(path, exclusive=True)
    await store.set("k", 1)
    late = [asyncio.ensure_future(store.append("log", n)) for n in range(20)]
    await asyncio.sleep(0)
    await store.aclose()
    assert sorted(await asyncio.gather(*late)) == list(range(20))  # what was called before is finished
    for call in (store.get("k"), store.set("k", 2), store.search("log", "x")):
        with pytest.raises(StoreError, match="closed"):
            await call
    async with SQLiteStore(path, exclusive=True) as again:
        assert await again.get("k") == 1


async def test_cancelled_close_still_frees_the_file(path: Path) -> None:
    store = SQLiteStore(path, exclusive=True)
    await store.set("k", 1)
    closing = asyncio.ensure_future(store.aclose())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    await store.aclose()
    async with SQLiteStore(path, exclusive=True) as again:
        assert await again.get("k") == 1


async def test_forgotten_store_is_closed(path: Path) -> None:
    before = set(threading.enumerate())
    store = SQLiteStore(path, exclusive=True)
    await store.set("k", 1)
    threads = set(threading.enumerate()) - before
    assert threads
    del store
    gc.collect()
    for thread in threads:
        await asyncio.to_thread(thread.join, 10)
        assert not thread.is_alive()
    async with SQLiteStore(path, exclusive=True) as again:
        assert await again.get("k") == 1


def test_store_left_open_ends_with_the_process(path: Path) -> None:
    script = f"""
import asyncio, sys
from agentkit.state.stores import SQLiteStore
store = SQLiteStore({str(path)!r}, exclusive=True)
async def main():
    await store.set("k", 1)
    await store.get("k")
    asyncio.ensure_future(store.set("late", 1))
    await asyncio.sleep(0)
asyncio.run(main())
"""
    run = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stderr) == (0, "")
    assert not path.with_name("store.db-wal").exists()  # folded into the file: closed in order


@pytest.mark.parametrize("exclusive", [False, True])
def test_forked_child_leaves_the_parents_file_alone(path: Path, exclusive: bool) -> None:
    script = f"""
import asyncio, os
from agentkit.core.contracts.errors import StoreError
from agentkit.state.stores import SQLiteStore
store = SQLiteStore({str(path)!r}, exclusive={exclusive})
asyncio.run(store.set("k", "parent"))
child = os.fork()
if child == 0:
    try:
        asyncio.run(store.append("log", "child"))
    except StoreError as error:
        assert {exclusive} and str(os.getppid()) in str(error), error
    else:
        assert not {exclusive}
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
async def main():
    await store.append("log", "parent")
    print(await store.list("log"), await store.get("k"))
    await store.aclose()
asyncio.run(main())
"""
    # Python itself advises against a fork beside threads; that it happens all the same is the point here.
    ignoring = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", script]
    run = subprocess.run(ignoring, capture_output=True, text=True, timeout=60)
    wanted = "['parent'] parent" if exclusive else "['child', 'parent'] parent"
    assert (run.stdout.strip(), run.stderr) == (wanted, "")


async def test_read_only_sees_what_the_owner_wrote(path: Path) -> None:
    async with SQLiteStore(path, exclusive=True) as owner, SQLiteStore(path, read_only=True) as reader:
        await owner.set("k", 1)
        await owner.append("log", "some text")
        assert (await reader.get("k"), await reader.list("log"), await reader.keys()) == (
            1,
            ["some text"],
            ["k", "log"],
        )
        assert [hit.position for hit in await reader.search("log", "text")] == [0]
        await owner.set("k", 2)
        assert await reader.get("k") == 2
        for write in (reader.set("k", 3), reader.append("log", 1), reader.lease("n", "o", 1)):
            with pytest.raises(StoreError, match="read only"):
                await write
    missing = path.with_name("missing.db")
    async with SQLiteStore(missing, read_only=True) as reader:
        with pytest.raises(StoreError, match="cannot be opened"):
            await reader.get("k")
    assert not missing.exists()


# --- foreign, newer and damaged files ---


async def refused(path: Path, kind: type[StoreError], match: str) -> None:
    before = path.read_bytes()
    for options in ({}, {"exclusive": True}, {"read_only": True}):
        async with SQLiteStore(path, **options) as store:  # type: ignore[arg-type]
            with pytest.raises(kind, match=match):
                await store.get("k")
    assert path.read_bytes() == before
    assert not path.with_name(path.name + "-wal").exists()


async def test_another_programs_database_is_left_alone(path: Path) -> None:
    with raw(path) as db:
        db.execute("CREATE TABLE notes (text)")
        db.execute("INSERT INTO notes VALUES ('mine')")
    await refused(path, StoreError, "another program's database")
    with raw(path) as db:
        db.execute("PRAGMA application_id = 7")
    await refused(path, StoreError, "another program's database")


async def test_no_database_is_left_alone(path: Path) -> None:
    path.write_bytes(b"just a text that somebody wrote, long enough to be looked at as a header of a file" * 20)
    await refused(path, Corrupt, "no SQLite database; restore it from a backup, or use another file")


async def test_newer_form_is_refused(path: Path) -> None:
    async with SQLiteStore(path) as store:
        await store.set("k", 1)
    with raw(path) as db:
        db.execute(f"PRAGMA user_version = {sqlite_schema.VERSION + 1}")
    await refused(path, StoreError, "reads up to")


async def test_empty_file_becomes_a_store(path: Path) -> None:
    path.write_bytes(b"")
    async with SQLiteStore(path) as store:
        await store.set("k", 1)
        assert await store.get("k") == 1


@pytest.mark.parametrize("exclusive", [False, True])
async def test_damaged_pages_are_reported(path: Path, exclusive: bool) -> None:
    async with SQLiteStore(path, exclusive=exclusive) as store:
        await store.commit([Append("log", tuple("x" * 3_000 for _ in range(50)))])
        await store.set("k", "fine")
    data = bytearray(path.read_bytes())
    with raw(path) as db:
        (page,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'item'").fetchone()
    data[(page - 1) * 4096 : page * 4096] = b"\xff" * 4096
    path.write_bytes(data)
    async with SQLiteStore(path, exclusive=exclusive) as store:
        with pytest.raises(Corrupt, match="damaged; restore it from a backup, or save what can be read") as caught:
            await store.list("log")
        assert caught.value.key is None
        assert await store.get("k") == "fine"


async def test_truncated_file_is_reported(path: Path) -> None:
    async with SQLiteStore(path) as store:
        await store.commit([Append("log", tuple("x" * 3_000 for _ in range(50)))])
    path.write_bytes(path.read_bytes()[:20_000])
    async with SQLiteStore(path) as store:
        with pytest.raises(Corrupt):
            await store.list("log")


async def test_damaged_records_are_named(path: Path) -> None:
    """Sound records on either side are read (W6)."""
    async with SQLiteStore(path) as store:
        await store.commit([Append("log", (0, 1, 2, 3)), Put("bad", 1), Put("good", 2)])
    with raw(path) as db:
        db.execute('UPDATE item SET body = \'{"$":"nonsense"\' WHERE id & 2147483647 = 2')
        db.execute("UPDATE entry SET body = '{' WHERE key = 'bad'")
    for exclusive in (False, True):
        async with SQLiteStore(path, exclusive=exclusive) as store:
            with pytest.raises(Corrupt, match="item 2 of 'log'") as caught:
                await store.list("log")
            assert (caught.value.key, caught.value.position) == ("log", 2)
            assert await store.list("log", stop=2) == [0, 1]
            assert await store.list("log", start=3) == [3]
            with pytest.raises(Corrupt, match="'bad' cannot be read") as caught:
                await store.get("bad")
            assert (caught.value.key, caught.value.position) == ("bad", None)
            with pytest.raises(Corrupt):
                await store.get_or_set("bad", lambda: 2)
            assert await store.get("good") == 2
            assert await store.search("log", "nothing") == []
    async with SQLiteStore(path) as store:
        await store.set("bad", "mended")
        assert await store.get("bad") == "mended"
        assert await store.delete("log")


async def test_text_that_is_no_utf8_is_reported(path: Path) -> None:
    async with SQLiteStore(path) as store:
        await store.set("k", "x")
    with raw(path) as db:
        db.execute("UPDATE entry SET body = CAST(x'22ff22' AS TEXT)")
    async with SQLiteStore(path) as store:
        with pytest.raises(Corrupt, match="no UTF-8"):
            await store.get("k")


# --- disk full, locked ---


@pytest.mark.parametrize("exclusive", [False, True])
async def test_full_disk_refuses_and_damages_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch, exclusive: bool
) -> None:
    """The call counts as not made; what fits still goes in, also beside one that does not (W7)."""
    connect = sqlite_file.connect

    def small(path: Path, *, writable: bool) -> sqlite3.Connection:
        db = connect(path, writable=writable)
        db.execute("PRAGMA max_page_count = 60")
        return db

    monkeypatch.setattr(sqlite_file, "connect", small)
    async with SQLiteStore(path, exclusive=exclusive) as store:
        await store.commit([Put("k", "old"), Append("log", ("a",))])
        for _ in range(2):
            with pytest.raises(StoreError, match="disk is full"):
                await store.commit([Put("k", "new"), Append("log", ("x" * 400_000,))])
            assert (await store.get("k"), await store.list("log")) == ("old", ["a"])
        outcomes = await asyncio.gather(
            *[store.append(f"log {n}", b"x" * (400_000 if n == 3 else 10)) for n in range(6)], return_exceptions=True
        )
        assert [type(outcome) for outcome in outcomes] == [int, int, int, StoreError, int, int]
    with raw(path) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    monkeypatch.undo()
    async with SQLiteStore(path, exclusive=exclusive) as store:
        assert await store.append("log", "x" * 400_000) == 1


async def test_locked_file_holds_up_no_loop(path: Path) -> None:
    async with SQLiteStore(path, timeout=0.3) as store:
        await store.set("k", 1)
        with raw(path) as db:
            db.execute("BEGIN EXCLUSIVE")
            beats = 0

            async def beat() -> None:
                nonlocal beats
                while True:
                    beats += 1
                    await asyncio.sleep(0.005)

            beating = asyncio.ensure_future(beat())
            for call in (store.set("k", 2), store.get("k")):
                with pytest.raises(StoreError, match="kept it locked"):
                    await call
            beating.cancel()
            assert beats > 20
            db.execute("ROLLBACK")
        assert await store.get("k") == 1
        await store.set("k", 3)


async def test_too_large_for_sqlite_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = sqlite_file.connect

    def limited(path: Path, *, writable: bool) -> sqlite3.Connection:
        db = connect(path, writable=writable)
        db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 100_000)
        return db

    monkeypatch.setattr(sqlite_file, "connect", limited)
    for exclusive in (False, True):
        async with SQLiteStore(path, exclusive=exclusive) as store:
            with pytest.raises(TooLarge):
                await store.set("k", "x" * 200_000)
            assert await store.get("k", MISSING) is MISSING


def test_read_only_folder_is_named(path: Path) -> None:
    """As somebody who is not root, since root may write everywhere."""
    script = f"""
import asyncio, os
from agentkit.core.contracts.errors import StoreError
from agentkit.state.stores import SQLiteStore
if os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
async def main():
    for exclusive in (False, True):
        try:
            await SQLiteStore({str(path)!r}, exclusive=exclusive).set("k", 1)
        except StoreError as error:
            print(error)
asyncio.run(main())
"""
    asyncio.run(SQLiteStore(path).set("k", 1))
    path.with_name("store.db.lock").unlink()
    before = path.read_bytes()
    path.chmod(0o444)
    path.parent.chmod(0o555)
    try:
        run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    finally:
        path.parent.chmod(0o755)
    assert run.stdout.count("ermission") == 2, run
    assert path.read_bytes() == before


# --- journal modes ---


@pytest.mark.parametrize(
    ("version", "is_safe"),
    [
        ((3, 40, 1), False),
        ((3, 44, 5), False),
        ((3, 44, 6), True),
        ((3, 45, 0), False),
        ((3, 50, 6), False),
        ((3, 50, 7), True),
        ((3, 51, 0), False),
        ((3, 51, 2), False),
        ((3, 51, 3), True),
        ((3, 52, 0), True),
        ((4, 0, 0), True),
    ],
)
def test_versions_with_a_sound_wal(version: tuple[int, int, int], is_safe: bool) -> None:
    assert sqlite_file.is_wal_safe(version) is is_safe


def journal_mode(path: Path) -> str:
    with raw(path) as db:
        return str(db.execute("PRAGMA journal_mode").fetchone()[0])


async def test_journal_mode_follows_the_version(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of several processes is in WAL mode only when it was made so by a repaired SQLite."""
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 40, 1))
    async with SQLiteStore(path) as store:
        await store.set("k", 1)
        assert journal_mode(path) == "delete"  # as a new connection sees any mode but WAL
        assert path.with_name("store.db-journal").stat().st_size == 0  # cut back, not removed
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 52, 0))
    async with SQLiteStore(path) as store:
        assert await store.get("k") == 1
        assert journal_mode(path) == "delete"  # somebody with an older SQLite may have it open too
    new = path.with_name("new.db")
    async with SQLiteStore(new) as store:
        await store.set("k", 1)
        assert journal_mode(new) == "wal"
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 40, 1))
    async with SQLiteStore(new, exclusive=True) as store:
        assert await store.get("k") == 1
        assert journal_mode(new) == "wal"
    async with SQLiteStore(new) as store:
        assert await store.get("k") == 1
        assert journal_mode(new) == "delete"


async def test_synchronous_is_set(path: Path, statements: list[str]) -> None:
    for level in ("NORMAL", "FULL", "EXTRA"):
        async with SQLiteStore(path, exclusive=True, synchronous=level) as store:
            await store.open()
        assert f"PRAGMA synchronous = {level}" in statements


# --- group commit ---


async def test_waiting_writes_share_a_transaction(path: Path, statements: list[str]) -> None:
    async with SQLiteStore(path, exclusive=True) as store:
        await store.open()
        del statements[:]
        positions = await asyncio.gather(*[store.append(f"log {n % 10}", n) for n in range(200)])
        assert sorted(positions) == sorted(list(range(20)) * 10)
        assert count(statements, "COMMIT") <= 10
        assert 0 < count(statements, "INSERT INTO item (") <= 20


async def test_shared_writes_are_transactions_of_their_own(path: Path, statements: list[str]) -> None:
    async with SQLiteStore(path) as store:
        await store.open()
        del statements[:]
        await asyncio.gather(*[store.append("log", n) for n in range(20)])
        assert count(statements, "COMMIT") == 20


async def test_refused_commits_fail_alone(path: Path, statements: list[str]) -> None:
    async with SQLiteStore(path, exclusive=True) as store:
        lease = await store.lease("n", "one", 15)
        assert lease is not None
        await store.set("k", 1)
        del statements[:]
        calls: list[Awaitable[Any]] = []
        for n in range(20):
            calls.append(store.append("log", n))
            calls.append(store.compare_and_set("k", n, expected=999))
            calls.append(store.commit([Append("log", ("never",)), Put("k", n, expected=999)]))
            calls.append(store.append("k", n))
        calls.append(store.commit([Append("log", ("fenced",))], fence=lease))
        await asyncio.gather(store.release(lease))
        calls.append(store.commit([Append("log", ("fenced",))], fence=lease))
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        kinds = [type(outcome) for outcome in outcomes]
        assert kinds == [int, Conflict, Conflict, StoreError] * 20 + [Fenced, Fenced]
        assert await store.list("log") == list(range(20))
        assert count(statements, "COMMIT") < 20
        assert count(statements, "ROLLBACK") <= count(statements, "BEGIN") - count(statements, "BEGIN IMMEDIATE")


async def test_cancelled_calls_leave_the_queue(path: Path, statements: list[str]) -> None:
    async with SQLiteStore(path, exclusive=True) as store:
        await store.open()
        go_on = threading.Event()
        busy = asyncio.ensure_future(store._engine.write(lambda db, index: go_on.wait(10)))
        await asyncio.sleep(0.01)
        waiting = [asyncio.ensure_future(store.append("log", n)) for n in range(5)]
        await asyncio.sleep(0)
        for task in waiting[1::2]:
            task.cancel()
        await asyncio.sleep(0)
        go_on.set()
        await busy
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [int, asyncio.CancelledError] * 2 + [int]
        assert await store.list("log") == [0, 2, 4]


async def test_reads_go_on_beside_a_write(path: Path) -> None:
    async with SQLiteStore(path, exclusive=True) as store:
        await store.set("k", 1)
        go_on = threading.Event()
        busy = asyncio.ensure_future(store._engine.write(lambda db, index: go_on.wait(10)))
        await asyncio.sleep(0.01)
        assert await store.get("k") == 1
        assert await store.keys() == ["k"]
        assert not busy.done()
        go_on.set()
        await busy


async def test_predecessors_leases_are_free(path: Path) -> None:
    """Nobody else can be alive with an exclusive store, so no holder of a lease is; its fence is outdated anyway."""
    clock = FakeClock(1000)
    async with SQLiteStore(path, exclusive=True, clock=clock) as store:
        first = await store.lease("n", "one", 3600)
        assert first is not None
        await store.commit([Put("k", 1)], fence=first)
    async with SQLiteStore(path, exclusive=True, clock=clock) as store:
        with pytest.raises(Fenced):
            await store.commit([Put("k", 2)], fence=first)
        second = await store.lease("n", "two", 3600)
        assert second is not None
        assert second.fence > first.fence
    async with SQLiteStore(path, clock=clock) as store:
        assert await store.lease("n", "three", 3600) is None  # others may be alive with a shared one


# --- growth ---


def written_bytes() -> int:
    for line in Path("/proc/self/io").read_text().splitlines():
        if line.startswith("wchar:"):
            return int(line.split()[1])
    raise AssertionError("no count of written bytes")


async def cost_of_appends(store: SQLiteStore, statements: list[str], times: int) -> tuple[float, float]:
    del statements[:]
    before = written_bytes()
    for n in range(times):
        await store.commit(
            [Append("log", (Message("user", f"turn {n} " + "some words " * 30),)), Put("state", {"n": n})]
        )
    return (written_bytes() - before) / times, len(statements) / times


@pytest.mark.skipif(not os.path.exists("/proc/self/io"), reason="the system does not count written bytes")
@pytest.mark.parametrize("exclusive", [False, True])
async def test_appending_costs_the_same_in_a_long_log(path: Path, statements: list[str], exclusive: bool) -> None:
    """Bytes and statements follow the new entries (W8). Beyond a flat part: an index grows by the logarithm."""
    times = 200 if exclusive else 60
    async with SQLiteStore(path, exclusive=exclusive, synchronous="NORMAL") as store:
        await cost_of_appends(store, statements, 64)
        early = await cost_of_appends(store, statements, times)
        for n in range(40):
            items = tuple(Message("user", f"filling {n} {m} " + "other words " * 30) for m in range(500))
            await store.commit([Append("log", items)])
        late = await cost_of_appends(store, statements, times)
        assert late[1] == pytest.approx(early[1], rel=0.05)
        assert late[0] < early[0] * (2 if exclusive else 1.2)
        assert len(await store.list("log", start=20_000, stop=20_010)) == 10


async def test_reading_one_item_reads_one_row(path: Path, statements: list[str]) -> None:
    async with SQLiteStore(path, exclusive=True) as store:
        await store.commit([Append("log", tuple(range(5_000)))])
        await store.list("log", start=1, stop=1)
        del statements[:]
        assert await store.list("log", start=4_999) == [4_999]
        assert len(statements) <= 4


async def test_expired_values_are_swept(path: Path) -> None:
    clock = FakeClock(1000)
    async with SQLiteStore(path, clock=clock) as store:
        await store.commit([Put(f"k{n}", "x", ttl=1) for n in range(40)])
        clock.advance(1)
        for n in range(3):
            await store.set("other", n)
    with raw(path) as db:
        assert db.execute("SELECT count(*) FROM entry").fetchone() == (1,)


# --- older files ---


def schema(path: Path) -> list[tuple[str, str]]:
    with raw(path) as db:
        rows = db.execute(
            "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'item_text%' ORDER BY name"
        ).fetchall()
        return [(str(name), " ".join(str(text).split())) for name, text in rows]


async def test_migrations_end_in_the_current_form(path: Path) -> None:
    assert len(sqlite_schema.MIGRATIONS) == sqlite_schema.VERSION
    async with SQLiteStore(path, exclusive=True) as store:
        await store.open()
    assert schema(path) == [
        (
            "claim",
            "CREATE TABLE claim (name TEXT NOT NULL PRIMARY KEY, owner TEXT, fence INTEGER, deadline REAL)",
        ),
        ("counter", "CREATE TABLE counter (name TEXT NOT NULL PRIMARY KEY, value)"),
        (
            "entry",
            "CREATE TABLE entry (key TEXT NOT NULL PRIMARY KEY, version INTEGER NOT NULL, log INTEGER, deadline REAL, "
            "body)",
        ),
        ("entry_deadline", "CREATE INDEX entry_deadline ON entry (deadline) WHERE deadline IS NOT NULL"),
        ("item", "CREATE TABLE item (id INTEGER PRIMARY KEY, body NOT NULL)"),
        ("unindexed", "CREATE TABLE unindexed (id INTEGER PRIMARY KEY)"),
    ]
    with raw(path) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (sqlite_schema.VERSION,)


async def test_older_file_is_brought_up_to_date(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with SQLiteStore(path) as store:
        await store.set("k", 1)

    def add_column(db: sqlite3.Connection) -> None:
        db.execute("ALTER TABLE entry ADD COLUMN colour TEXT")

    def fail(db: sqlite3.Connection) -> None:
        db.execute("ALTER TABLE entry ADD COLUMN shape TEXT")
        raise sqlite3.OperationalError("no")

    monkeypatch.setattr(sqlite_schema, "VERSION", 3)
    monkeypatch.setattr(sqlite_schema, "MIGRATIONS", (*sqlite_schema.MIGRATIONS, add_column, fail))
    async with SQLiteStore(path, read_only=True) as store:
        with pytest.raises(StoreError, match="older form"):
            await store.get("k")
    async with SQLiteStore(path) as store:
        with pytest.raises(StoreError):
            await store.get("k")
    assert "colour" not in str(schema(path))  # all steps or none
    monkeypatch.setattr(sqlite_schema, "VERSION", 2)
    monkeypatch.setattr(sqlite_schema, "MIGRATIONS", sqlite_schema.MIGRATIONS[:2])
    async with SQLiteStore(path) as store:
        assert await store.get("k") == 1
    assert "colour" in str(schema(path))


async def test_file_of_the_first_form_is_read(path: Path) -> None:
    """What a released version has written stays readable: the rows of a file of form 1, as it was stored."""
    with raw(path) as db:
        db.executescript((Path(__file__).parent / "form1.sql").read_text(encoding="utf-8"))
    async with SQLiteStore(path, exclusive=True) as store:
        assert await store.keys() == ["k", "log", "raw"]
        assert await store.versioned("k") == ({"a": (1, "\ud800")}, 5)
        assert await store.get("raw") == b"\x00\xff"
        assert await store.list("log") == [Message("user", "first of all"), b'{"kind": "entry"}', None]
        assert [hit.position for hit in await store.search("log", "first entry")] == []
        assert [hit.position for hit in await store.search("log", "first")] == [0]
        assert [hit.position for hit in await store.search("log", "entry")] == [1]
        assert await store.compare_and_set("new", 1, expected=0) == 6


# --- the text index ---


@asynccontextmanager
async def searching(path: Path, *, exclusive: bool) -> AsyncIterator[Callable[[str], Awaitable[list[int]]]]:
    async with SQLiteStore(path, exclusive=exclusive) as store:

        async def positions(text: str) -> list[int]:
            return [hit.position for hit in await store.search("log", text)]

        yield positions


async def test_index_takes_in_what_others_appended(path: Path, statements: list[str]) -> None:
    async with SQLiteStore(path) as store:
        await store.commit([Append("log", ("needle one", "hay")), Append("gone", ("needle",))])
    async with searching(path, exclusive=True) as positions:
        assert await positions("needle") == [0]
        assert await positions("hay") == [1]
    async with SQLiteStore(path) as store:
        await store.commit([Append("log", ("needle two", "hay")), Delete("gone"), Append("gone2", ("needle",))])
        assert [hit.position for hit in await store.search("log", "needle")] == [2, 0]
        await store.delete("gone2")
    async with searching(path, exclusive=True) as positions:
        del statements[:]
        assert await positions("needle") == [2, 0]
        assert await positions("needle two") == [2]
        assert any("item_text MATCH" in statement for statement in statements)
    with raw(path) as db:
        assert db.execute("SELECT count(*) FROM unindexed").fetchone() == (0,)
        query = "SELECT count(*) FROM item_text WHERE item_text MATCH '\"nee\"'"
        assert db.execute(query).fetchone() == (2,)  # what was deleted has left the index


async def test_index_of_another_revision_is_made_anew(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with SQLiteStore(path, exclusive=True) as store:
        await store.commit([Append("log", ("needle", "hay")), Append("gone", ("needle",))])
    monkeypatch.setattr("agentkit.state.stores.sqlite_index.REVISION", "another")
    async with SQLiteStore(path) as store:
        await store.append("log", "needle")
        assert [hit.position for hit in await store.search("log", "needle")] == [2, 0]
        await store.delete("gone")
    async with searching(path, exclusive=True) as positions:
        assert await positions("needle") == [2, 0]
    with raw(path) as db:
        assert db.execute("SELECT value FROM counter WHERE name = 'index'").fetchone() == ("another",)
        query = "SELECT count(*) FROM item_text WHERE item_text MATCH '\"nee\"'"
        assert db.execute(query).fetchone() == (2,)


async def test_search_works_without_an_index(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create = sqlite_schema.CREATE_INDEX
    monkeypatch.setattr(sqlite_schema, "CREATE_INDEX", create.replace("fts5", "fts_of_another_build"))
    async with SQLiteStore(path, exclusive=True) as store:
        await store.commit([Append("log", ("needle", "hay")), Append("gone", ("needle",))])
        assert [hit.position for hit in await store.search("log", "needle")] == [0]
        await store.delete("gone")
    monkeypatch.setattr(sqlite_schema, "CREATE_INDEX", create)
    async with searching(path, exclusive=True) as positions:
        assert await positions("needle") == [0]


async def test_index_finds_what_a_scan_finds(path: Path) -> None:
    """The same hits for every piece of the text, found by index or by looking at each item."""
    items = [
        "Größe ΣΊΣΥΦΟΣ İstanbul",
        "straße STRASSE",
        "don't 'quote' \"me\"",
        "a\0b\ud800c",
        "日本語テキスト",
        "İİİ ﬃ",
    ]
    async with SQLiteStore(path, exclusive=True) as store:
        await store.commit([Append("log", tuple(items))])
        for text in {item[at : at + size] for item in items for size in (1, 2, 3, 4, 6) for at in range(len(item))}:
            query = find.Query(text)
            expected = [at for at, item in enumerate(items) if query.excerpt(item) is not None]
            found = [hit.position for hit in await store.search("log", text)]
            assert found == expected[::-1], ascii(text)
            assert found or not text.split()


def test_excerpts_of_folded_text() -> None:
    query = find.Query("needle")
    excerpt = query.excerpt("ß" * 200 + "NEEDLE" + "İ" * 200)
    assert excerpt is not None
    assert "NEEDLE" in excerpt
    assert find.Query("").excerpt("text") is None


def test_what_counts_as_text() -> None:
    blob = "QUJD" * 400
    assert find.searchable(f'{{"data": "{blob}", "n": 1, "t": ["x", {{"y": "z"}}]}}') == "x\nz"
    assert find.searchable(b"\xff") == ""
    assert find.searchable(b"no json {") == "no json {"
    assert find.searchable('{"$":"bytes","v":"aGk="}') == ""
    assert find.searchable("[" * 5_000) == "[" * 5_000


def test_ends_of_prefixes() -> None:
    assert sqlite_module.END_OF_KEYS > "\U0010ffff" * 512
    assert sqlite_module._behind("a\ud7ff") == "a\ue000"
    assert sqlite_module._behind("a\U0010ffff") == "b"
    assert sqlite_module._behind("") == sqlite_module.END_OF_KEYS
