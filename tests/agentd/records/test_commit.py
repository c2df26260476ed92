"""Commits: all or nothing, on what was seen, tried again when that may help, and neither lost nor doubled."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentd.records import ANY, Abilities, Add, Records, Remove, Row, Save, Write
from agentkit.core.contracts.errors import Conflict, Fenced, StoreError, TooLarge
from agentkit.core.contracts.ports import Lease
from agentkit.core.contracts.scope import Scope
from agentkit.core.testing import FaultyStore
from agentkit.state.stores import InMemoryStore, SQLiteStore
from tests.agentd.records.making import Waiting, everything, faulty, records

pytestmark = pytest.mark.anyio


async def test_commit_returns_the_rows_of_its_saves() -> None:
    mine = records(InMemoryStore())
    rows = await mine.commit(
        [
            Save("context", "a", b"1"),
            Add("log", "a", 1, (b'"x"',)),
            Save("plan", "a", b"2"),
            Save("task", "t", b"3", ANY),
        ]
    )
    assert [(row.kind, row.id, row.seq, row.state) for row in rows] == [
        ("context", "a", 1, b"1"), ("plan", "a", 1, b"2"), ("task", "t", 1, b"3"),
    ]  # fmt: skip
    assert len({row.commit for row in rows}) == 1
    for row in rows:
        assert await mine.get(row.kind, row.id) == row


async def test_nothing_to_write_asks_the_store_for_nothing() -> None:
    store = faulty()
    assert await records(store).commit([]) == ()
    assert store.operations == {}


async def test_seen_row_is_followed_and_a_stale_one_refused() -> None:
    mine = records(InMemoryStore())
    (first,) = await mine.commit([Save("context", "a", b"1")])
    (second,) = await mine.commit([Save("context", "a", b"2", first)])
    assert second.seq == 2
    with pytest.raises(Conflict, match="'context/a' is at 2, not at the expected 1"):
        await mine.commit([Save("context", "a", b"3", first), Save("context", "b", b"3")])
    with pytest.raises(Conflict, match="'context/a' is at 2, not at the expected 0"):
        await mine.commit([Save("context", "a", b"3")])
    assert await mine.get("context", "b") is None
    assert await mine.get("context", "a") == second


async def test_log_that_is_elsewhere_refuses_the_whole_commit() -> None:
    mine = records(InMemoryStore())
    await mine.commit([Add("log", "a", 1, (b"1", b"2"))])
    for first in (1, 2, 4):
        with pytest.raises(Conflict, match=f"'log/a' is at 3, not at the expected {first}"):
            await mine.commit([Save("context", "a", b"1"), Add("log", "a", first, (b"9",))])
    assert await mine.get("context", "a") is None
    assert await mine.entries("log", "a") == [b"1", b"2"]


async def test_removed_row_is_gone_and_a_stale_removal_refused() -> None:
    mine = records(InMemoryStore())
    (first,) = await mine.commit([Save("inbox", "1", b"1")])
    (second,) = await mine.commit([Save("inbox", "1", b"2", first)])
    with pytest.raises(Conflict, match="'inbox/1' is at 2, not at the expected 1"):
        await mine.commit([Remove("inbox", "1", first)])
    await mine.commit([Remove("inbox", "1", second)])
    assert await mine.get("inbox", "1") is None
    assert await mine.commit([Remove("inbox", "1", ANY), Remove("inbox", "2", ANY)]) == ()


async def test_any_writes_over_what_is_there_and_counts_on() -> None:
    store = faulty()
    mine, other = records(store), records(store)
    await other.commit([Save("task", "t", b"1")])
    (row,) = await mine.commit([Save("task", "t", b"2", ANY)])
    assert row.seq == 2
    gate = store.delay(of="commit")
    writing = asyncio.create_task(mine.commit([Save("task", "t", b"3", ANY)]))
    await gate.reached()
    await other.commit([Save("task", "t", b'"between"', row)])
    gate.open()
    assert [row.seq for row in await writing] == [4]


async def test_commit_that_makes_no_sense_is_refused_before_the_store_is_asked() -> None:
    store = faulty()
    mine = records(store)
    for kind, writes, meaning in (
        (ValueError, [Save("task", "t", b"1"), Save("task", "t", b"2")], "twice"),
        (ValueError, [Save("task", "t", b"1"), Remove("task", "t", ANY)], "twice"),
        (ValueError, [Add("log", "a", 0, (b"1",))], "numbered from 1"),
        (TypeError, [Add("log", "a", 1, ("text",))], "must be bytes"),  # type: ignore[arg-type]
        (TypeError, [Save("task", "t", "1")], "task 't' must be bytes"),  # type: ignore[arg-type]
        (ValueError, [Save("task", "t", b"1 2")], "the state of task 't' is no JSON"),
        (ValueError, [Save("task", "t", b"")], "is no JSON"),
        (TypeError, ["nonsense"], "holds Save, Add and Remove"),
    ):
        with pytest.raises(kind, match=meaning):
            await mine.commit(writes)  # type: ignore[arg-type]
    assert store.operations == {}


async def test_tenants_instances_and_generations_do_not_meet() -> None:
    store = InMemoryStore()
    mine = records(store)
    others = [
        mine.within(Scope(None, "b")), mine.of_generation(2),
        records(store, instance="you"), records(store, prefix="x"),
    ]  # fmt: skip
    await mine.commit([Save("context", "root", b"1"), Add("log", "root", 1, (b'"x"',))])
    for other in others:
        assert await other.get("context", "root") is None
        assert await other.ids("context") == []
        assert await other.entries("log", "root") == []
        assert await other.search("log", "root", "x") == []
        await other.commit([Save("context", "root", b"2")])
    assert len(await everything(store)) == 2 + len(others)


async def test_one_commit_reaches_another_tenant_and_is_whole() -> None:
    ann = Scope(domain_id="ann")
    mine = records(InMemoryStore())
    hers = mine.within(ann)
    rows = await mine.commit(
        [Save("context", "a", b"1"), Save("memory", "a", b"2", scope=ann), Add("log", "a", 1, (b'"x"',), ann)]
    )
    assert await mine.get("memory", "a") is None
    assert await hers.get("memory", "a") == rows[1]
    assert await hers.get("context", "a") is None
    assert (await mine.entries("log", "a"), await hers.entries("log", "a")) == ([], [b'"x"'])
    with pytest.raises(Conflict, match="'memory/a' is at 1, not at the expected 0"):
        await mine.commit([Save("context", "b", b"1"), Save("memory", "a", b"3", scope=ann)])
    assert await mine.get("context", "b") is None
    # What nobody has seen is looked at where it is.
    await mine.commit([Save("memory", "a", b"4", ANY, ann), Save("memory", "a", b"5")])
    assert [(await one.get("memory", "a")) is not None for one in (mine, hers)] == [True, True]
    again = await hers.get("memory", "a")
    assert again is not None
    assert (again.seq, again.state) == (2, b"4")
    await mine.commit([Remove("memory", "a", again, ann)])
    assert (await hers.get("memory", "a"), await mine.get("memory", "a") is None) == (None, False)


@pytest.mark.parametrize("can_delete", [True, False])
async def test_f14_lost_answer_of_a_commit_for_another_tenant(can_delete: bool) -> None:
    store, ann = faulty(deletes=can_delete), Scope(domain_id="ann")
    mine = records(store, abilities=Abilities(delete=can_delete))
    (row,) = await mine.commit([Save("memory", "a", b"1", scope=ann)])
    store.lose(of="commit")
    await mine.commit([Remove("memory", "a", row, ann), Add("log", "a", 1, (b"1",), ann)])
    assert await mine.within(ann).get("memory", "a") is None
    assert await mine.within(ann).entries("log", "a") == [b"1"]


async def test_every_write_states_the_fence(tmp_path: Path) -> None:
    store = InMemoryStore()
    lease = await store.lease("n", "one", 15)
    assert lease is not None
    mine = records(store, lease=lease)
    (row,) = await mine.commit([Save("context", "root", b"1")])
    assert row.fence == lease.fence
    await store.release(lease)
    before = await everything(store)
    for writes in (
        [Save("context", "root", b"2", row)],
        [Add("log", "root", 1, (b"1",))],
        [Remove("context", "root", ANY)],
    ):
        with pytest.raises(Fenced):
            await mine.commit(writes)
        with pytest.raises(Fenced):
            await mine.within(Scope(1)).commit(writes)
    with pytest.raises(Fenced):
        await mine.artifact(b"1")
    assert await everything(store) == before


async def test_f10_one_tick_and_a_clock_set_back_keep_the_order() -> None:
    """W2."""
    times = iter([5, 5, 5, 3, 1, 9])
    mine = records(InMemoryStore(), clock=lambda: next(times))
    row = None
    for n in range(1, 7):
        (row,) = await mine.commit([Save("context", "a", b"1", row), Add("log", "a", n, (b"%d" % n,))])
    assert row is not None
    assert (row.seq, row.ts) == (6, 9)
    assert await mine.entries("log", "a") == [b"1", b"2", b"3", b"4", b"5", b"6"]


async def test_f12_bytes_of_a_commit_do_not_grow_with_the_log() -> None:
    """W8."""
    store = faulty()
    mine = records(store)
    line, sizes = b'{"n": 1, "body": "some words"}', []
    for before in (100, 100_000):
        have = len(await mine.entries("log", "a"))
        await mine.commit([Add("log", "a", have + 1, (line,) * (before - have))])
        store.written = 0
        await mine.commit([Save("context", "a", b"{}", ANY), Add("log", "a", before + 1, (line, line))])
        sizes.append(store.written)
    assert sizes[1] <= sizes[0] * 1.1


# F14

BATCHES: dict[str, Callable[[Row, Row], list[Write]]] = {
    "a save": lambda seen, old: [Save("context", "a", b"2", seen)],
    "a new row": lambda seen, old: [Save("context", "new", b"2")],
    "a row of ours alone": lambda seen, old: [Save("context", "a", b"2", ANY)],
    "lines": lambda seen, old: [Add("log", "a", 2, (b"two", b"three"))],
    "a removal": lambda seen, old: [Remove("inbox", "1", old)],
    "a removal of ours alone": lambda seen, old: [Remove("inbox", "1", ANY)],
    "all of them": lambda seen, old: [
        Remove("inbox", "1", old), Add("log", "a", 2, (b"two",)),
        Save("context", "a", b"2", seen), Save("plan", "a", b"1"),
    ],
}  # fmt: skip


async def _ready(batch: str) -> tuple[FaultyStore, Records, Waiting, list[Write]]:
    store, waiting = faulty(), Waiting()
    mine = records(store, waiting=waiting)
    seen, old = await mine.commit([Save("context", "a", b"1"), Save("inbox", "1", b"1"), Add("log", "a", 1, (b"one",))])
    return store, mine, waiting, BATCHES[batch](seen, old)


async def _done_once(store: FaultyStore, mine: Records, batch: str, rows: Sequence[Row]) -> None:
    """What the store holds is what one successful commit leaves, and the rows are as they are there."""
    _, other, _, writes = await _ready(batch)
    expected = await other.commit(writes)
    assert [(row.kind, row.id, row.seq, row.state, row.version) for row in rows] == [
        (row.kind, row.id, row.seq, row.state, row.version) for row in expected
    ]
    for row in rows:
        assert await mine.get(row.kind, row.id) == row
    assert await mine.entries("log", "a") == await other.entries("log", "a")
    assert await mine.ids("inbox") == await other.ids("inbox")
    assert len(await everything(store)) == len(await everything(other.store))


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("times", [1, 2, 3])
async def test_f14_fault_that_passes_is_not_noticed(batch: str, times: int) -> None:
    store, mine, waiting, writes = await _ready(batch)
    store.fail(of="commit", times=times, error=OSError("a hiccup"))
    rows = await mine.commit(writes)
    await _done_once(store, mine, batch, rows)
    assert waiting.slept == pytest.approx([0.05, 0.1, 0.15][:times])
    assert [(one.operation, one.attempt, one.is_last) for one in waiting.troubles] == [
        ("commit", n, False) for n in range(1, times + 1)
    ]


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("times", [1, 3])
async def test_f14_lost_answer_neither_loses_nor_doubles(batch: str, times: int) -> None:
    store, mine, _, writes = await _ready(batch)
    store.lose(of="commit")
    if times > 1:
        store.fail(2, of="commit", times=times - 1)
    rows = await mine.commit(writes)
    await _done_once(store, mine, batch, rows)


@pytest.mark.parametrize("batch", BATCHES)
async def test_f14_answer_lost_at_the_last_try_is_read_back(batch: str) -> None:
    store, mine, waiting, writes = await _ready(batch)
    store.fail(of="commit", times=3)
    store.lose(4, of="commit")
    rows = await mine.commit(writes)
    await _done_once(store, mine, batch, rows)
    assert waiting.troubles[-1].is_last


@pytest.mark.parametrize("batch", BATCHES)
async def test_f14_lasting_fault_is_raised_and_work_goes_on_after(batch: str) -> None:
    store, mine, waiting, writes = await _ready(batch)
    before = await everything(store.inner)
    store.fill_disk()
    with pytest.raises(StoreError, match="disk is full"):
        await mine.commit(writes)
    assert await everything(store.inner) == before
    assert [one.is_last for one in waiting.troubles] == [False, False, False, True]
    store.free_disk()
    await _done_once(store, mine, batch, await mine.commit(writes))


async def test_f14_broken_store_is_raised_as_it_is() -> None:
    store, mine, _, writes = await _ready("all of them")
    store.break_down()
    with pytest.raises(OSError, match="out of order"):
        await mine.commit(writes)
    with pytest.raises(OSError, match="out of order"):
        await mine.get("context", "a")
    store.mend()
    await _done_once(store, mine, "all of them", await mine.commit(writes))


async def test_f14_refusals_are_not_tried_again() -> None:
    store, mine, waiting, writes = await _ready("a save")
    for refusal in (Conflict("x", 1, 2), Fenced(), TooLarge()):
        count = store.operations["commit"]
        store.fail(of="commit", error=refusal)
        with pytest.raises(type(refusal)):
            await mine.commit(writes)
        assert store.operations["commit"] == count + 1
    assert waiting.slept == []


async def test_f14_answer_lost_before_the_lease_was_lost() -> None:
    """What is durable is told so, though its writer may write no more."""
    store, waiting = faulty(), Waiting()
    lease = await store.lease("n", "one", 15)
    assert lease is not None
    mine = records(store, waiting=waiting, lease=lease)
    store.lose(of="commit")

    async def taken_over(seconds: float) -> None:
        await store.release(lease)

    waiting.sleep = taken_over  # type: ignore[method-assign]
    mine = records(store, waiting=waiting, lease=lease)
    (row,) = await mine.commit([Save("context", "a", b"1")])
    assert row == await mine.get("context", "a")
    with pytest.raises(Fenced):
        await mine.commit([Save("context", "a", b"2", row)])


async def test_lost_answer_then_another_writer_is_a_conflict_and_no_merge() -> None:
    """W1: it was written over by somebody else before it could be read back."""
    store, waiting = faulty(), Waiting()
    other = records(store.inner)

    async def overwritten(seconds: float) -> None:
        await other.commit([Save("context", "a", b'"theirs"', await other.get("context", "a"))])

    waiting.sleep = overwritten  # type: ignore[method-assign]
    mine = records(store, waiting=waiting)
    store.lose(of="commit")
    with pytest.raises(Conflict, match="'context/a' is at 2, not at the expected 0"):
        await mine.commit([Save("context", "a", b'"mine"')])


async def test_late_answer_is_a_fault_that_passes() -> None:
    store, waiting = faulty(), Waiting()
    mine = Records(store, Scope(), instance="me", clock=lambda: 1, ids=lambda: "c", retry=waiting.retry(timeout=0.01))
    gate = store.delay(of="commit", done=True)
    (row,) = await mine.commit([Save("context", "a", b"1")])
    gate.open()
    assert row == await mine.get("context", "a")
    assert "no answer within 0.01 s (store.timeout)" in str(waiting.troubles[0].error)


async def test_reads_are_tried_again() -> None:
    store, mine, waiting, _ = await _ready("a save")
    for name, read in (
        ("versioned", mine.get("context", "a")),
        ("list", mine.entries("log", "a")),
        ("keys", mine.ids("inbox")),
        ("search", mine.search("log", "a", "one")),
    ):
        store.fail(of=name, times=3)
        assert await read
    assert len(waiting.slept) == 12


@given(st.data())
def test_f14_any_faults_in_any_order_keep_log_and_row_together(data: st.DataObject) -> None:
    """W4, W7: after each commit, told or not, the log has as many lines as the row says."""

    async def run() -> None:
        store = faulty()
        mine = records(store)
        seen, lines = None, 0
        for _ in range(data.draw(st.integers(1, 8))):
            how = data.draw(st.sampled_from(["fine", "fail", "lose"]))
            times = data.draw(st.integers(1, 6))
            if how == "fail":
                store.fail(of="commit", times=times)
            elif how == "lose":
                store.lose(of="commit", times=times)
            new = data.draw(st.integers(1, 3))
            writes: list[Write] = [
                Save("context", "a", str(lines + new).encode(), seen),
                Add("log", "a", lines + 1, tuple(b"%d" % (lines + at) for at in range(new))),
            ]
            try:
                (seen,) = await mine.commit(writes)
                lines += new
            except StoreError:
                assert how == "fail"
                assert times > 3
            store._armed.clear()
            found = await mine.get("context", "a")
            assert found == seen
            assert await mine.entries("log", "a") == [b"%d" % at for at in range(lines)]

    asyncio.run(run())


async def test_commit_is_the_same_on_disk(tmp_path: Path) -> None:
    async with SQLiteStore(tmp_path / "a.db", exclusive=True) as inner:
        store = FaultyStore(inner)
        lease = await store.lease("n", "one", 15)
        mine = records(store, lease=lease)
        (row,) = await mine.commit([Save("context", "a", b'{"a":1}'), Add("log", "a", 1, (b"one",))])
        store.lose(of="commit")
        (row,) = await mine.commit([Save("context", "a", b'{"a":2}', row), Add("log", "a", 2, (b"two",))])
    async with SQLiteStore(tmp_path / "a.db", read_only=True) as reader:
        there = records(reader)
        assert await there.get("context", "a") == row
        assert await there.entries("log", "a") == [b"one", b"two"]
        assert isinstance(lease, Lease)
        assert row.fence == lease.fence
