"""The part of the store suite about writing: logs, batches, single flight."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, NoReturn

from agentkit.core.contracts.errors import Conflict, StoreError
from agentkit.core.contracts.ports import (
    Append,
    Delete,
    Put,
)

from .doubles import FakeClock
from .store_tools import (
    START,
    OpenStore,
    everything,
    opened,
    raising,
    refuse,
)


class LogSuite:
    """Logs: positions, slices, and a key that is one thing at a time."""

    async def test_positions_count_from_zero(self, open_store: OpenStore) -> None:
        async with opened(open_store) as store:
            assert [await store.append("log", f"item {number}") for number in range(5)] == [0, 1, 2, 3, 4]
            assert await store.append("other", "x") == 0
            assert await store.list("log") == [f"item {number}" for number in range(5)]
            assert await store.list("never") == []

    async def test_slices_of_a_log(self, open_store: OpenStore) -> None:
        async with opened(open_store) as store:
            items = list(range(7))
            await store.commit([Append("log", tuple(items))])
            for start in (0, 1, 6, 7, 9, 10**12):
                for stop in (None, 0, 1, 4, 7, 9, 10**12):
                    assert await store.list("log", start=start, stop=stop) == items[start:stop]
            bad: Any
            for kind, bad in ((ValueError, -1), (TypeError, 1.5), (TypeError, True)):
                with raising(kind):
                    await store.list("log", start=bad)
                with raising(kind):
                    await store.list("log", stop=bad)

    async def test_parallel_appends_all_land(self, open_store: OpenStore) -> None:
        async with opened(open_store) as store:
            positions = await asyncio.gather(*[store.append("log", number) for number in range(60)])
            assert sorted(positions) == list(range(60))
            found = await store.list("log")
            assert [found[position] for position in positions] == list(range(60))

    async def test_a_new_log_begins_at_zero(self, open_store: OpenStore) -> None:
        async with opened(open_store) as store:
            await store.commit([Append("log", (1, 2, 3))])
            await store.delete("log")
            assert await store.append("log", "new") == 0
            assert await store.list("log") == ["new"]

    async def test_a_key_is_a_value_or_a_log(self, open_store: OpenStore) -> None:
        async with opened(open_store) as store:
            await store.set("value", 1)
            await store.append("log", 1)
            before = await everything(store)
            for call in (
                lambda: store.append("value", 1),
                lambda: store.list("value"),
                lambda: store.commit([Put("new", 1), Append("value", (1,))]),
                lambda: store.get("log"),
                lambda: store.versioned("log"),
                lambda: store.set("log", 1),
                lambda: store.compare_and_set("log", 1, expected=0),
                lambda: store.get_or_set("log", refuse),
                lambda: store.commit([Put("new", 1), Put("log", 1)]),
            ):
                with raising(StoreError) as caught:
                    await call()
                assert type(caught[0]) is StoreError
                assert await everything(store) == before
            await store.commit([Delete("log"), Put("log", 2), Delete("value"), Append("value", (2,))])
            assert (await store.get("log"), await store.list("value")) == (2, [2])


class BatchSuite:
    """`commit`: all or none."""

    async def test_batches_land_whole(self, open_store: OpenStore) -> None:
        async with opened(open_store) as store:
            await store.set("old", 1)
            await store.append("log", "a")
            before = await store.versioned("old")
            assert before is not None
            numbers = await store.commit(
                [
                    Put("new", "x", expected=0),
                    Put("old", 2, expected=before[1]),
                    Append("log", ("b", "c"), at=1),
                    Append("log2", ("d",)),
                    Append("empty", ()),
                    Delete("never"),
                ]
            )
            new, old = await store.versioned("new"), await store.versioned("old")
            assert new is not None
            assert old is not None
            assert numbers == (new[1], old[1], 1, 0, 0, 0)
            assert (new[0], old[0]) == ("x", 2)
            assert old[1] > before[1]
            assert await store.list("log") == ["a", "b", "c"]
            assert await store.keys() == ["log", "log2", "new", "old"]
            assert await store.commit([]) == ()
            assert await store.commit([Delete("log"), Delete("log2", expected=1), Delete("new")]) == (1, 1, 1)

    async def test_refused_batches_leave_nothing(self, open_store: OpenStore) -> None:
        async with opened(open_store) as store:
            version = await store.compare_and_set("k", 1, expected=0)
            await store.commit([Append("log", (1, 2))])
            before = await everything(store)
            good = (Put("new", 1), Put("k", 2), Append("log", (3,)), Append("log2", (1,)), Delete("log"))
            for bad, expected, actual in (
                (Put("other", 1, expected=5), 5, 0),
                (Put("third", 1, expected=version), version, 0),
                (Append("log3", (1,), at=1), 1, 0),
                (Delete("fourth", expected=1), 1, 0),
            ):
                with raising(Conflict) as caught:
                    await store.commit([*good, bad])
                assert (caught[0].key, caught[0].expected, caught[0].actual) == (bad.key, expected, actual)
                assert await everything(store) == before
            for stale in (Append("log", (3,), at=1), Append("log", (), at=3), Delete("log", expected=1)):
                with raising(Conflict):
                    await store.commit([Put("new", 1), stale])
                assert await everything(store) == before

    async def test_steps_see_the_ones_before(self, open_store: OpenStore) -> None:
        async with opened(open_store) as store:
            first, _, second = await store.commit([Put("k", 1, expected=0), Delete("k"), Put("k", 2, expected=0)])
            assert second > first
            assert await store.versioned("k") == (2, second)
            with raising(Conflict):
                await store.commit([Put("n", 1, expected=0), Put("n", 2, expected=0)])
            assert await store.commit([Append("l", (1, 2)), Append("l", (3,), at=2)]) == (0, 2)
            assert await store.list("l") == [1, 2, 3]

    async def test_nonsense_is_refused(self, open_store: OpenStore) -> None:
        async with opened(open_store) as store:
            commit: Any = store.commit
            for kind, batch in (
                (TypeError, ["k"]),
                (TypeError, 5),
                (TypeError, [Put("k", 1), ("k", 1)]),
                (TypeError, [Put("k", 1, expected="1")]),  # type: ignore[arg-type]
                (ValueError, [Append("k", (1,), at=-1)]),
                (ValueError, [Put("k", 1, ttl=-1)]),
            ):
                with raising(kind):
                    await commit(batch)
            with raising(TypeError):
                await commit([Put("k", 1)], fence="lease")
            assert await store.keys() == []

    async def test_cancelled_writes_are_whole(self, open_store: OpenStore) -> None:
        """A cancelled call has written all or nothing, before anything that is called later (W9)."""
        async with opened(open_store) as store:
            for turn in range(20):
                task = asyncio.ensure_future(
                    store.commit([Put("a", turn), Append("log", (turn, turn)), Put("b", turn)])
                )
                for _ in range(turn % 4):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait([task])
                await store.set("last", turn)
                a, b, log = await store.get("a"), await store.get("b"), await store.list("log")
                assert a == b
                assert len(log) % 2 == 0
                assert (turn == a) == (turn in log)
                await store.commit([Delete("a"), Delete("b")])


class FlightSuite:
    """`get_or_set`: one producer at a time for a key."""

    async def test_producers_of_each_kind(self, open_store: OpenStore) -> None:
        async with opened(open_store) as store:

            async def coroutine() -> str:
                return "coroutine"

            assert await store.get_or_set("a", lambda: "plain") == "plain"
            assert await store.get_or_set("b", coroutine) == "coroutine"
            assert await store.get_or_set("c", lambda: asyncio.ensure_future(coroutine())) == "coroutine"
            assert await store.get_or_set("d", lambda: None) is None
            assert [await store.get_or_set(key, refuse) for key in "abcd"] == ["plain", "coroutine", "coroutine", None]
            with raising(TypeError):
                await store.get_or_set("e", "no callable")  # type: ignore[arg-type]

    async def test_one_of_many_produces(self, open_store: OpenStore) -> None:
        async with opened(open_store) as store:
            calls: list[str] = []
            both, release = asyncio.Event(), asyncio.Event()

            async def produce(key: str) -> list[str]:
                calls.append(key)
                if len(calls) == 2:
                    both.set()
                await release.wait()
                return [key]

            askers = [
                asyncio.ensure_future(store.get_or_set(key, partial(produce, key))) for key in ["a"] * 20 + ["b"] * 20
            ]
            await both.wait()
            release.set()
            found = await asyncio.gather(*askers)
            assert sorted(calls) == ["a", "b"]
            assert found == [["a"]] * 20 + [["b"]] * 20
            found[0].append("mine")
            assert found[1] == ["a"]

    async def test_a_failing_producer_stores_nothing(self, open_store: OpenStore) -> None:
        async with opened(open_store) as store:
            outcomes: list[Any] = [ValueError("first"), ValueError("second"), "third"]
            calls = 0

            async def produce() -> Any:
                nonlocal calls
                calls += 1
                await asyncio.sleep(0.001)
                outcome = outcomes[min(calls, len(outcomes)) - 1]
                if isinstance(outcome, ValueError):
                    raise outcome
                return outcome

            found = await asyncio.gather(*[store.get_or_set("k", produce) for _ in range(6)], return_exceptions=True)
            assert sorted(map(str, found)) == ["first", "second", *["third"] * 4]
            assert calls == 3
            assert await store.get("k") == "third"

    async def test_a_cancelled_leader_cancels_nobody_else(self, open_store: OpenStore) -> None:
        async with opened(open_store) as store:
            started: list[int] = []
            first, second, go_on = asyncio.Event(), asyncio.Event(), asyncio.Event()

            async def produce(number: int) -> int:
                started.append(number)
                (second if first.is_set() else first).set()
                await go_on.wait()
                return number

            askers = [asyncio.ensure_future(store.get_or_set("k", partial(produce, n))) for n in range(4)]
            await first.wait()
            askers[started[0]].cancel()
            waiting = next(n for n in range(4) if n != started[0])
            askers[waiting].cancel()
            await second.wait()
            go_on.set()
            outcomes = await asyncio.gather(*askers, return_exceptions=True)
            assert [n for n, o in enumerate(outcomes) if isinstance(o, asyncio.CancelledError)] == sorted(
                [started[0], waiting]
            )
            assert [o for o in outcomes if isinstance(o, int)] == [started[1]] * 2
            assert await store.get("k") == started[1]

    async def test_what_others_set_meanwhile_stays(self, open_store: OpenStore) -> None:
        async with opened(open_store) as store:

            async def produce() -> str:
                await store.set("k", "theirs")
                return "mine"

            assert await store.get_or_set("k", produce) == "theirs"
            assert await store.get("k") == "theirs"

    async def test_a_producer_asking_for_its_own_key(self, open_store: OpenStore) -> None:
        async with opened(open_store) as store:
            with raising(RuntimeError):
                await store.get_or_set("k", lambda: store.get_or_set("k", refuse))
            assert await store.get_or_set("k", lambda: store.get_or_set("other", lambda: 1)) == 1

    def test_the_next_loop_finds_it_working(self, open_store: OpenStore) -> None:
        """Made outside a loop, contended in one that ends in the middle of it, used in the next, then in a thread."""
        store = open_store(FakeClock(START))

        async def hang() -> NoReturn:
            await asyncio.Event().wait()
            raise AssertionError

        async def first() -> None:
            await store.set("k", 1)
            for _ in range(3):
                asyncio.ensure_future(store.get_or_set("made", hang))  # noqa: RUF006 - left behind on purpose
            asyncio.ensure_future(store.append("log", 1))  # noqa: RUF006
            await asyncio.sleep(0.01)

        async def second() -> None:
            assert await store.get("k") == 1
            found = await asyncio.gather(*[store.get_or_set("made", lambda: "new") for _ in range(3)])
            assert found == ["new"] * 3
            await asyncio.gather(*[store.append("log", n) for n in range(9)])
            await asyncio.to_thread(asyncio.run, third())
            await store.aclose()

        async def third() -> None:
            assert await store.get_or_set("made", refuse) == "new"
            await store.append("log", "from a thread")

        asyncio.run(first())
        asyncio.run(second())
