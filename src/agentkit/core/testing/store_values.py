"""The part of the store suite about single values: what is carried, listed, how long it lives, its versions."""

from __future__ import annotations

import asyncio
import math
import unittest
from typing import Any

from agentkit.core.contracts.errors import CodecError, Conflict, StoreError, TooLarge
from agentkit.core.contracts.frozen import deep_freeze
from agentkit.core.contracts.ports import (
    MISSING,
    Append,
    Delete,
    LeasingStore,
    Put,
    SearchingStore,
    Store,
)

from .doubles import FakeClock
from .store_tools import (
    ODD_KEYS,
    START,
    VALUES,
    OpenStore,
    everything,
    opened,
    raising,
    refuse,
    skip_without,
)


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
            assert await store.keys("p/", limit=10**30) == names

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
