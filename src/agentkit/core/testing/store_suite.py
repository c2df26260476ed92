"""What every store has to do, as tests that any implementation can run. Needs asyncio and the store under test.

With pytest and an asyncio plugin (anyio's, say):

```python
class TestMyStore(StoreSuite):
    pytestmark = pytest.mark.anyio

    @pytest.fixture
    def open_store(self, tmp_path):
        return lambda clock: MyStore(tmp_path / "store", clock=clock)
```
`open_store(clock)` opens the same place each time it is called in one test, after the store before it was closed: a
durable store then holds what that one held. What a store declares in its capabilities that it cannot do is skipped.
"""

from __future__ import annotations

import asyncio
import datetime
import math
import unittest
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from decimal import Decimal
from functools import partial
from typing import Any, NoReturn, TypeAlias, TypeVar

from agentkit.core.contracts.errors import CodecError, Conflict, Fenced, StoreError, TooLarge
from agentkit.core.contracts.frozen import deep_freeze
from agentkit.core.contracts.ports import (
    MISSING,
    Append,
    Batch,
    Clock,
    Delete,
    Lease,
    LeasingStore,
    Put,
    SearchingStore,
    Store,
)
from agentkit.core.contracts.types import Chunk, Message, NativeBlock, Scope, TextBlock, ToolCall, Usage, mark
from agentkit.core.runtime.scoped import ScopedStore

from .doubles import FakeClock

E = TypeVar("E", bound=BaseException)
OpenStore: TypeAlias = Callable[[Clock], Store]
START = 1_700_000_000.0

VALUES: tuple[Any, ...] = (
    None,
    True,
    0,
    -(2**70),
    1.5,
    -0.0,
    math.inf,
    "",
    "half a pair \ud800, a \0, \r\n, \u2028, <|endoftext|>, 你好, 🙂",
    b"",
    b"\x00\xff raw",
    [],
    {},
    [1, [2, {"a": None}]],
    (1, ("two", [3])),
    {1, "a", (2,)},
    frozenset({b"x"}),
    {"$": "an own key", "b": {"$": 1}},
    {1: "int", "1": "str", (1,): "tuple", None: "none", 1.5: "float", b"x": "bytes"},
    datetime.date(2026, 2, 28),
    datetime.datetime(2026, 2, 28, 23, 59, 59, 999_999, tzinfo=datetime.timezone(datetime.timedelta(hours=-3.5))),
    datetime.time(1, 2, 3),
    uuid.UUID(int=7),
    Decimal("1.10"),
    Usage(1, 2, 0.5),
    Scope("acme", 1),
    Chunk("text", "source", 0.5, {"page": 1}),
    mark(Message("user", "hi\ud800", meta={"id": "m1"}), "pinned"),
    Message("assistant", [TextBlock("a"), NativeBlock("p", {"x": [1]})], tool_calls=[ToolCall("1", "t", '{"a": 1}')]),
)
"""A value of each kind that every store carries."""

ODD_KEYS = (
    "a", "A", "a ", " a", "a/b", "a//b", "../a", "a%", "a_", "a*", "a[b]", "a\\b", "a\0b", "a\nb", "a'b", 'a"b',
    "%", "_", "ab", "é", "e\u0301", "ß", "ss", "\uffff", "\U00010000", "\U0010ffff",
    "a" * 2_048, "ü" * 1_024, "🙂" * 512,
)  # fmt: skip
"""All different, all legal."""


@contextmanager
def raising(kind: type[E]) -> Iterator[list[E]]:
    """The block must raise `kind`; the list then holds what it raised."""
    caught: list[E] = []
    try:
        yield caught
    except kind as error:
        caught.append(error)
    else:
        raise AssertionError(f"expected a {kind.__name__}")


@asynccontextmanager
async def opened(open_store: OpenStore, clock: Clock | None = None) -> AsyncIterator[Store]:
    store = open_store(clock or FakeClock(START))
    try:
        yield store
    finally:
        await store.aclose()


def skip_without(store: Store, ability: str) -> None:
    if not getattr(store.capabilities, ability):
        raise unittest.SkipTest(f"the store declares that it cannot do this: {ability}")


async def everything(store: Store) -> dict[str, Any]:
    """All keys with what they hold: a value and its version, or a log."""
    found: dict[str, Any] = {}
    for key in await store.keys():
        try:
            found[key] = await store.versioned(key)
        except StoreError:
            found[key] = await store.list(key)
    return found


def refuse() -> NoReturn:
    raise AssertionError("this producer must not be called")


class ValueSuite:
    """Single values: what is carried, under which keys, and that reads and writes share nothing."""

    async def test_is_a_store(self, open_store: OpenStore) -> None:
        async with opened(open_store) as store:
            assert isinstance(store, Store)
            assert store.capabilities == store.capabilities
            assert isinstance(store, LeasingStore) or not store.capabilities.lease
            assert isinstance(store, SearchingStore) or not store.capabilities.search

    async def test_values_come_back_equal(self, open_store: OpenStore) -> None:
        async with opened(open_store) as store:
            for number, value in enumerate(VALUES):
                await store.set(f"k{number}", value)
                await store.append("log", value)
            for number, value in enumerate(VALUES):
                found = await store.get(f"k{number}", MISSING)
                assert (found, type(found)) == (value, type(value))
            assert await store.list("log") == list(VALUES)
            assert (await store.get(f"k{len(VALUES) - 2}")).meta == VALUES[-2].meta

    async def test_stored_none_is_a_hit(self, open_store: OpenStore) -> None:
        async with opened(open_store) as store:
            assert await store.get("k", "absent") == "absent"
            assert await store.get("k") is None
            await store.set("k", None)
            assert await store.get("k", MISSING) is None
            assert await store.get_or_set("k", refuse) is None
            found = await store.versioned("k")
            assert found is not None
            assert found[0] is None

    async def test_large_text_comes_back(self, open_store: OpenStore) -> None:
        async with opened(open_store) as store:
            text = "ä\0\ud800 \r\n" * 140_000
            await store.set("k", {"text": text})
            await store.append("log", text)
            assert await store.get("k") == {"text": text}
            assert await store.list("log") == [text]

    async def test_reads_alias_nothing(self, open_store: OpenStore) -> None:
        async with opened(open_store) as store:
            value: dict[str, Any] = {"a": [1]}
            await store.set("k", value)
            await store.append("log", value)
            value["a"].append(2)
            first = await store.get("k")
            (item,) = await store.list("log")
            assert (first, item) == ({"a": [1]}, {"a": [1]})
            first["a"].append(3)
            item["a"].append(3)
            assert await store.get("k") == {"a": [1]}
            assert await store.list("log") == [{"a": [1]}]
            made = await store.get_or_set("made", lambda: value)
            made["a"].append(4)
            value["a"].append(5)
            assert await store.get("made") == {"a": [1, 2]}

    async def test_frozen_values_come_back_writable(self, open_store: OpenStore) -> None:
        async with opened(open_store) as store:
            await store.set("k", deep_freeze({"a": [1]}))
            found = await store.get("k")
            found["a"].append(2)
            assert found == {"a": [1, 2]}

    async def test_other_values_are_refused(self, open_store: OpenStore) -> None:
        async with opened(open_store) as store:
            await store.set("k", 1)
            before = await everything(store)
            for write in (
                lambda: store.set("k", object()),
                lambda: store.append("log", {"a": object()}),
                lambda: store.compare_and_set("new", [object()], expected=0),
                lambda: store.commit([Put("new", 1), Append("log", (1, object()))]),
                lambda: store.get_or_set("new", object),
            ):
                with raising(CodecError):
                    await write()
                assert await everything(store) == before

    async def test_keys_are_told_apart(self, open_store: OpenStore) -> None:
        async with opened(open_store) as store:
            for number, key in enumerate(ODD_KEYS):
                await store.set(key, number)
            for number, key in enumerate(ODD_KEYS):
                assert await store.get(key) == number
            assert await store.keys() == sorted(ODD_KEYS)
            for key in ODD_KEYS:
                assert await store.delete(key)
            assert await store.keys() == []

    async def test_illegal_keys_are_refused(self, open_store: OpenStore) -> None:
        async with opened(open_store) as store:
            for kind, key in (
                (ValueError, ""),
                (ValueError, "a" * 2_049),
                (ValueError, "ü" * 1_025),
                (ValueError, "half \ud800"),
                (TypeError, b"bytes"),
                (TypeError, None),
            ):
                bad: Any = key
                for call in (
                    lambda key: store.get(key),
                    lambda key: store.set(key, 1),
                    lambda key: store.delete(key),
                    lambda key: store.get_or_set(key, refuse),
                    lambda key: store.append(key, 1),
                    lambda key: store.list(key),
                    lambda key: store.versioned(key),
                    lambda key: store.compare_and_set(key, 1, expected=0),
                    lambda key: store.commit([Put("fine", 1), Delete(key)]),
                ):
                    with raising(kind):
                        await call(bad)
            assert await store.keys() == []

    async def test_too_large_values_are_refused(self, open_store: OpenStore) -> None:
        async with opened(open_store) as store:
            limit = store.capabilities.max_value
            if limit is None or limit > 10_000_000:
                raise unittest.SkipTest("the store has no limit, or one that a test should not reach")
            await store.set("k", b"x" * limit)
            for write in (
                lambda: store.set("k", b"x" * (limit + 1)),
                lambda: store.append("log", "x" * limit),
                lambda: store.commit([Put("new", 1), Append("log", ("x", "x" * limit))]),
            ):
                with raising(TooLarge):
                    await write()
            assert await store.keys() == ["k"]
            assert await store.get("k") == b"x" * limit

    async def test_delete_says_what_was_there(self, open_store: OpenStore) -> None:
        async with opened(open_store) as store:
            await store.set("k", 1)
            await store.append("log", 1)
            assert [await store.delete(key) for key in ("k", "k", "log", "log", "never")] == [
                True,
                False,
                True,
                False,
                False,
            ]
            assert await store.keys() == []
            assert await store.list("log") == []

    async def test_close_twice_is_harmless(self, open_store: OpenStore) -> None:
        store = open_store(FakeClock(START))
        await store.aclose()
        await store.aclose()
        async with opened(open_store) as store:
            await store.set("k", 1)
            await store.aclose()


class ListingSuite:
    """`keys`: literal prefixes, code point order, pages."""

    async def test_prefixes_are_literal(self, open_store: OpenStore) -> None:
        async with opened(open_store) as store:
            for key in ODD_KEYS:
                await store.set(key, 1)
            for prefix in ("", *"aAeéz%_*\0\uffff\U0010ffff", "a%", "a_", "a*", "a[", "a\\", "a/"):
                assert await store.keys(prefix) == sorted(key for key in ODD_KEYS if key.startswith(prefix)), prefix

    async def test_pages_are_complete(self, open_store: OpenStore) -> None:
        async with opened(open_store) as store:
            names = [f"p/{number:03}" for number in range(25)]
            for name in [*reversed(names), "o", "q"]:
                await store.append(name, 1)
            found: list[str] = []
            while page := await store.keys("p/", after=found[-1] if found else None, limit=7):
                assert len(page) <= 7
                found += page
            assert found == names
            assert await store.keys("p/", after="p/003x", limit=2) == ["p/004", "p/005"]
            assert await store.keys("p/", after="a", limit=1) == ["p/000"]
            assert await store.keys("p/", after="p/024") == []
            assert await store.keys("p/", after="z") == []
            assert await store.keys("p/", limit=0) == []

    async def test_listing_refuses_nonsense(self, open_store: OpenStore) -> None:
        async with opened(open_store) as store:
            ask: Any = store.keys
            for kind, options in (
                (ValueError, {"limit": -1}),
                (TypeError, {"limit": 1.5}),
                (TypeError, {"limit": True}),
                (TypeError, {"prefix": b"a"}),
                (TypeError, {"after": 3}),
                (ValueError, {"prefix": "\ud800"}),
            ):
                with raising(kind):
                    await ask(**options)

    async def test_listing_agrees_with_reading(self, open_store: OpenStore) -> None:
        """Under parallel writes (M3)."""
        async with opened(open_store) as store:

            async def churn(number: int) -> None:
                for turn in range(8):
                    key = f"k{(number + turn) % 5}"
                    if turn % 3 == 2:
                        await store.delete(key)
                    else:
                        await store.set(key, number)
                    for listed in await store.keys("k"):
                        assert listed in {"k0", "k1", "k2", "k3", "k4"}

            await asyncio.gather(*[churn(number) for number in range(6)])
            for key in ("k0", "k1", "k2", "k3", "k4"):
                assert (key in await store.keys()) == (await store.get(key, MISSING) is not MISSING)


class LifetimeSuite:
    """TTLs, by a clock that is moved (M2)."""

    async def test_expiry_is_exact(self, open_store: OpenStore) -> None:
        clock = FakeClock(START)
        async with opened(open_store, clock) as store:
            skip_without(store, "ttl")
            await store.set("k", 1, ttl=1.5)
            await store.compare_and_set("c", 1, expected=0, ttl=1.5)
            await store.commit([Put("b", 1, ttl=1.5)])
            assert await store.get_or_set("g", lambda: 1, ttl=1.5) == 1
            clock.advance(1.499)
            assert await store.keys() == ["b", "c", "g", "k"]
            assert [await store.get(key) for key in "bcgk"] == [1, 1, 1, 1]
            clock.now = START + 1.5
            assert [await store.get(key) for key in "bcgk"] == [None] * 4
            assert await store.keys() == []

    async def test_expired_is_absent_for_every_method(self, open_store: OpenStore) -> None:
        clock = FakeClock(START)
        async with opened(open_store, clock) as store:
            skip_without(store, "ttl")
            names = ("get", "versioned", "keys", "delete", "cas", "cas0", "append", "list", "made", "put", "gone")
            for name in names:
                await store.set(name, "old", ttl=5)
            seen = await store.versioned("cas")
            assert seen is not None
            clock.advance(5)
            assert await store.get("get", MISSING) is MISSING
            assert await store.versioned("versioned") is None
            assert await store.keys() == []
            assert await store.delete("delete") is False
            with raising(Conflict) as caught:
                await store.compare_and_set("cas", "new", expected=seen[1])
            assert caught[0].actual == 0
            assert await store.compare_and_set("cas0", "new", expected=0) > seen[1]
            assert await store.append("append", 1) == 0
            assert await store.list("list") == []
            assert await store.get_or_set("made", lambda: "new") == "new"
            assert await store.commit([Delete("gone", expected=0), Append("put", (1,), at=0)]) == (0, 0)
            assert await store.keys() == ["append", "cas0", "made", "put"]

    async def test_set_without_ttl_clears_the_deadline(self, open_store: OpenStore) -> None:
        clock = FakeClock(START)
        async with opened(open_store, clock) as store:
            skip_without(store, "ttl")
            await store.set("k", 1, ttl=5)
            await store.set("k", 2)
            await store.set("longer", 1, ttl=5)
            await store.set("longer", 2, ttl=50)
            clock.advance(6)
            assert [await store.get("k"), await store.get("longer")] == [2, 2]
            clock.advance(44)
            assert [await store.get("k"), await store.get("longer")] == [2, None]

    async def test_zero_ttl_expires_at_once(self, open_store: OpenStore) -> None:
        async with opened(open_store) as store:
            skip_without(store, "ttl")
            await store.set("k", 1)
            await store.set("k", 2, ttl=0)
            assert await store.get("k", MISSING) is MISSING
            assert await store.keys() == []

    async def test_illegal_ttls_are_refused(self, open_store: OpenStore) -> None:
        async with opened(open_store) as store:
            bad: Any
            for kind, bad in (
                (ValueError, -1),
                (ValueError, math.nan),
                (ValueError, math.inf),
                (ValueError, 10**400),
                (TypeError, "5"),
                (TypeError, True),
            ):
                for write in (
                    lambda ttl: store.set("k", 1, ttl=ttl),
                    lambda ttl: store.compare_and_set("k", 1, expected=0, ttl=ttl),
                    lambda ttl: store.get_or_set("k", refuse, ttl=ttl),
                    lambda ttl: store.commit([Put("k", 1, ttl=ttl)]),
                ):
                    with raising(kind):
                        await write(bad)
            assert await store.keys() == []

    async def test_a_store_without_ttl_says_so(self, open_store: OpenStore) -> None:
        async with opened(open_store) as store:
            if store.capabilities.ttl:
                raise unittest.SkipTest("the store honours lifetimes")
            with raising(StoreError):
                await store.set("k", 1, ttl=5)
            assert await store.keys() == []


class VersionSuite:
    """Versions and compare-and-set: the stale writer is told (W1), whatever the clock says (W2)."""

    async def test_versions_rise_and_never_come_back(self, open_store: OpenStore) -> None:
        clock = FakeClock(START)
        async with opened(open_store, clock) as store:
            seen: list[int] = []
            for turn in range(4):
                await store.set("k", turn)
                found = await store.versioned("k")
                assert found is not None
                seen.append(found[1])
                seen.append(await store.compare_and_set("k", "x", expected=found[1]))
                await store.delete("k")
                clock.now -= 10
            assert seen == sorted(set(seen))
            assert seen[0] > 0
            assert await store.versioned("k") is None

    async def test_stale_writer_gets_a_conflict(self, open_store: OpenStore) -> None:
        async with opened(open_store) as store:
            first = await store.compare_and_set("k", "first", expected=0)
            second = await store.compare_and_set("k", "second", expected=first)
            for expected in (0, first, second + 1):
                with raising(Conflict) as caught:
                    await store.compare_and_set("k", "stale", expected=expected)
                assert (caught[0].key, caught[0].expected, caught[0].actual) == ("k", expected, second)
            assert await store.versioned("k") == ("second", second)
            await store.delete("k")
            with raising(Conflict) as caught:
                await store.compare_and_set("k", "stale", expected=second)
            assert caught[0].actual == 0
            assert await store.get("k", MISSING) is MISSING

    async def test_expected_must_be_a_version(self, open_store: OpenStore) -> None:
        async with opened(open_store) as store:
            bad: Any
            for kind, bad in ((TypeError, None), (TypeError, "1"), (TypeError, True), (ValueError, -1)):
                with raising(kind):
                    await store.compare_and_set("k", 1, expected=bad)

    async def test_one_of_many_wins(self, open_store: OpenStore) -> None:
        async with opened(open_store) as store:
            outcomes = await asyncio.gather(
                *[store.compare_and_set("k", number, expected=0) for number in range(20)], return_exceptions=True
            )
            (version,) = [outcome for outcome in outcomes if isinstance(outcome, int)]
            assert sum(isinstance(outcome, Conflict) for outcome in outcomes) == 19
            assert await store.versioned("k") == (outcomes.index(version), version)


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


class LeaseSuite:
    """Leases and fences (W3)."""

    async def test_one_owner_at_a_time(self, open_store: OpenStore) -> None:
        clock = FakeClock(START)
        async with opened(open_store, clock) as store:
            leasing = leases(store)
            first = await leasing.lease("n", "one", 15)
            assert first is not None
            assert (first.name, first.owner, first.ttl) == ("n", "one", 15)
            assert await leasing.lease("n", "two", 15) is None
            other = await leasing.lease("other", "two", 15)
            assert other is not None
            clock.advance(14.999)
            assert await leasing.lease("n", "two", 15) is None
            assert await leasing.renew(first)
            clock.advance(14.999)
            assert await leasing.lease("n", "two", 15) is None
            clock.advance(0.002)
            second = await leasing.lease("n", "two", 15)
            assert second is not None
            assert second.fence > first.fence
            assert (await leasing.renew(first), await leasing.release(first)) == (False, False)
            assert await leasing.release(second)
            assert not await leasing.release(second)
            third = await leasing.lease("n", "one", 15)
            assert third is not None
            assert third.fence > second.fence
            again = await leasing.lease("n", "one", 15)
            assert again is not None
            assert again.fence > third.fence

    async def test_an_outdated_fence_writes_nothing(self, open_store: OpenStore) -> None:
        clock = FakeClock(START)
        async with opened(open_store, clock) as store:
            leasing = leases(store)
            first = await leasing.lease("n", "one", 15)
            assert first is not None
            assert await store.commit([Append("log", (1,))], fence=first) == (0,)
            clock.advance(60)
            assert await store.commit([Append("log", (2,))], fence=first) == (1,)  # nobody else has claimed it
            second = await leasing.lease("n", "two", 15)
            assert second is not None
            before = await everything(store)
            stale = (first, Lease("unknown", "one", first.fence, 15), Lease("n", "one", second.fence, 15))
            for fence in stale:
                batches: tuple[Batch, ...] = ([], [Put("k", 1), Append("log", (3,)), Delete("log")])
                for batch in batches:
                    with raising(Fenced):
                        await store.commit(batch, fence=fence)
                    assert await everything(store) == before
            assert await store.commit([Append("log", (3,))], fence=second) == (2,)
            await leasing.release(second)
            with raising(Fenced):
                await store.commit([Append("log", (4,))], fence=second)

    async def test_one_of_many_is_granted(self, open_store: OpenStore) -> None:
        async with opened(open_store) as store:
            leasing = leases(store)
            granted = await asyncio.gather(*[leasing.lease("n", f"owner {n}", 5) for n in range(10)])
            assert sum(lease is not None for lease in granted) == 1

    async def test_nonsense_is_refused_as_a_lease(self, open_store: OpenStore) -> None:
        async with opened(open_store) as store:
            ask: Any = leases(store).lease
            for kind, arguments in (
                (ValueError, ("", "o", 1)),
                (TypeError, (1, "o", 1)),
                (ValueError, ("n", "", 1)),
                (TypeError, ("n", None, 1)),
                (ValueError, ("n", "o", -1)),
                (TypeError, ("n", "o", "1")),
            ):
                with raising(kind):
                    await ask(*arguments)


def leases(store: Store) -> LeasingStore:
    skip_without(store, "lease")
    assert isinstance(store, LeasingStore)
    return store


def finder(store: Store) -> SearchingStore:
    skip_without(store, "search")
    assert isinstance(store, SearchingStore)
    return store


class SearchSuite:
    """Search in a log, by pieces of words."""

    ITEMS: tuple[Any, ...] = (
        Message("user", "Please fix src/agentkit/core/contracts/codec.py"),
        Message(
            "assistant", tool_calls=[ToolCall("1", "grep_files", {"pattern": "MAX_DEPTH = 100", "in": ["tests/"]})]
        ),
        Message("tool", "数据库连接失败 at 10:42", tool_call_id="1"),
        {"n": 3, "kind": "note", "body": {"text": 'He said "Straße", C:\\Temp\\x, 100% of a_b'}},
        b'{"kind": "raw", "body": "encoded by its writer: ident_4711"}',
        b"\xff\xfe no text at all",
        "half a pair \ud800x, D:\\x, a zero \0y, and a line\nbreak",
        [Message("user", [TextBlock("block text"), NativeBlock("p", {"deep": ["nativeword"]})]), 5, None],
        "AAA aaa aAa",
    )

    async def test_words_are_found_by_pieces(self, open_store: OpenStore) -> None:
        async with opened(open_store) as store:
            search = finder(store).search
            await store.append("before", "decoy: codec.py MAX_DEPTH 数据库")
            await store.commit([Append("log", self.ITEMS)])
            await store.append("log2", "decoy: codec.py MAX_DEPTH 数据库")
            for text, positions in (
                ("codec.py", [0]),
                ("KIT/CORE/con", [0]),
                ("py", [0]),
                ("a", [8, 7, 6, 4, 3, 2, 1, 0]),
                ("x_dep", [1]),
                ("grep 100 tests/", [1]),
                ("数据", [2]),
                ("连接失败", [2]),
                ("库 10:", [2]),
                ("strasse", [3]),
                ("STRASSE", [3]),
                ('"Straße"', [3]),
                ("C:\\Temp\\", [3]),
                ("100%", [3]),
                ("a_b", [3]),
                ("ident_4711", [4]),
                ("\ud800x", [6]),
                ("D:\\x", [6]),
                ("\0y", [6]),
                ("line break", [6]),
                ("nativeword", [7]),
                ("block text", [7]),
                ("aaaa", []),
                ("AAA*", []),
                ("NEAR(AAA aaa)", []),
                ("-aaa", []),
                ("text:block", []),
                ("codec decoy", []),
                ("assistant", []),
            ):
                hits = await search("log", text)
                assert [hit.position for hit in hits] == positions, ascii(text)
                assert {hit.key for hit in hits} <= {"log"}

    async def test_excerpts_show_the_match(self, open_store: OpenStore) -> None:
        async with opened(open_store) as store:
            search = finder(store).search
            await store.append("log", Message("user", "ß" * 300 + " the needle " + "y" * 300))
            (hit,) = await search("log", "Needle")
            assert "the needle" in hit.excerpt
            assert hit.excerpt.startswith("...")
            assert hit.excerpt.endswith("...")
            assert len(hit.excerpt) < 200

    async def test_the_newest_come_first(self, open_store: OpenStore) -> None:
        async with opened(open_store) as store:
            search = finder(store).search
            for number in range(30):
                await store.append("log", f"word {'even' if number % 2 == 0 else 'odd'} {number}")
            assert [hit.position for hit in await search("log", "word", 4)] == [29, 28, 27, 26]
            assert [hit.position for hit in await search("log", "even", 3)] == [28, 26, 24]
            assert [hit.position for hit in await search("log", "dd", 3)] == [29, 27, 25]
            assert len(await search("log", "word")) == 20
            assert await search("log", "word", 0) == []

    async def test_nothing_is_found_where_nothing_is(self, open_store: OpenStore) -> None:
        async with opened(open_store) as store:
            search = finder(store).search
            await store.append("log", "some text")
            assert [list(await search("log", blank)) for blank in ("", " \n")] == [[], []]
            assert list(await search("never", "some")) == []
            await store.set("value", "some text")
            with raising(StoreError):
                await search("value", "some")
            with raising(TypeError):
                await search("log", b"some")  # type: ignore[arg-type]
            with raising(ValueError):
                await search("log", "some", -1)

    async def test_deleted_text_is_not_found(self, open_store: OpenStore) -> None:
        async with opened(open_store) as store:
            search = finder(store).search
            await store.commit([Append("log", self.ITEMS)])
            await store.commit([Append("kept", ("codec.py",))])
            await store.delete("log")
            assert list(await search("log", "codec.py")) == []
            await store.append("log", "another")
            assert list(await search("log", "codec.py")) == []
            assert [hit.position for hit in await search("kept", "codec.py")] == [0]
            with raising(Conflict):
                await store.commit([Append("log", ("refused text",)), Delete("log", expected=9)])
            assert list(await search("log", "refused")) == []

    async def test_large_items_are_found(self, open_store: OpenStore) -> None:
        async with opened(open_store) as store:
            await store.append("log", "lorem ipsum " * 20_000 + "the_needle " + "dolor " * 20_000)
            (hit,) = await finder(store).search("log", "the_needle")
            assert "the_needle" in hit.excerpt


class DurableSuite:
    """What is there when the store is opened again."""

    async def test_all_is_there_after_a_restart(self, open_store: OpenStore) -> None:
        async with opened(open_store) as store:
            skip_without(store, "durable")
            for number, value in enumerate(VALUES):
                await store.set(f"k{number}", value)
                await store.append("log", value)
            last = await store.compare_and_set("last", 1, expected=0)
            await store.delete("last")
            before = await everything(store)
        async with opened(open_store) as store:
            assert await everything(store) == before
            assert await store.append("log", "next") == len(VALUES)
            assert await store.compare_and_set("last", 2, expected=0) > last

    async def test_lifetimes_go_on_over_a_restart(self, open_store: OpenStore) -> None:
        clock = FakeClock(START)
        async with opened(open_store, clock) as store:
            skip_without(store, "durable")
            skip_without(store, "ttl")
            await store.set("short", 1, ttl=10)
            await store.set("long", 1, ttl=20)
            await store.set("ever", 1)
        clock.advance(9.999)
        async with opened(open_store, clock) as store:
            assert await store.keys() == ["ever", "long", "short"]
        clock.now = START + 10
        async with opened(open_store, clock) as store:
            assert await store.keys() == ["ever", "long"]
            assert await store.get("short", MISSING) is MISSING
            assert await store.compare_and_set("short", 2, expected=0)
        clock.advance(10**9)
        async with opened(open_store, clock) as store:
            assert await store.keys() == ["ever", "short"]

    async def test_fences_rise_over_a_restart(self, open_store: OpenStore) -> None:
        clock = FakeClock(START)
        async with opened(open_store, clock) as store:
            skip_without(store, "durable")
            first = await leases(store).lease("n", "one", 15)
            assert first is not None
        clock.advance(15)
        async with opened(open_store, clock) as store:
            second = await leases(store).lease("n", "two", 15)
            assert second is not None
            assert second.fence > first.fence
            with raising(Fenced):
                await store.commit([Put("k", 1)], fence=first)

    async def test_search_works_after_a_restart(self, open_store: OpenStore) -> None:
        async with opened(open_store) as store:
            skip_without(store, "durable")
            finder(store)
            await store.commit([Append("log", SearchSuite.ITEMS)])
        async with opened(open_store) as store:
            assert [hit.position for hit in await finder(store).search("log", "codec.py")] == [0]


class TenantSuite:
    """Crafted ids reach no foreign key (T3)."""

    async def test_tenants_do_not_meet(self, open_store: OpenStore) -> None:
        ids: tuple[int | str | None, ...] = (
            None, 0, 1, "1", "None", "a", "A", "a/", "a:dom", "a:domNone/", "%31", "a%2F", "..",
            "\ud800", "é", "e\u0301",
        )  # fmt: skip
        names = ("k", "k/", "/k", "..", "org1:domNone/k", "%2F")
        async with opened(open_store) as store:
            views = [ScopedStore(store, Scope(org, domain)) for org in ids for domain in (None, 1, "1", "x/k")]
            for number, view in enumerate(views):
                await view.commit([Append("log", (number,)), *[Put(name, [number, name]) for name in names]])
            for number, view in enumerate(views):
                assert await view.keys() == sorted([*names, "log"])
                assert await view.list("log") == [number]
                for name in names:
                    assert await view.get(name) == [number, name]
            for view in views[::2]:
                assert await view.commit([Delete(key) for key in await view.keys()]) == (1,) * (len(names) + 1)
            for number, view in enumerate(views):
                assert len(await view.keys()) == (0 if number % 2 == 0 else len(names) + 1)


class StoreSuite(
    ValueSuite,
    ListingSuite,
    LifetimeSuite,
    VersionSuite,
    LogSuite,
    BatchSuite,
    FlightSuite,
    LeaseSuite,
    SearchSuite,
    DurableSuite,
    TenantSuite,
):
    """The contract of the Store port."""
