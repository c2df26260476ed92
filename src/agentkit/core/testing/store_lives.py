"""The part of the store suite about leases, search, restarts and tenants."""

from __future__ import annotations

import asyncio
from typing import Any

from agentkit.core.contracts.errors import Conflict, Fenced, StoreError
from agentkit.core.contracts.ports import (
    MISSING,
    Append,
    Batch,
    Delete,
    Lease,
    Put,
)
from agentkit.core.contracts.types import Message, NativeBlock, Scope, TextBlock, ToolCall
from agentkit.core.runtime.scoped import ScopedStore

from .doubles import FakeClock
from .store_tools import (
    START,
    VALUES,
    OpenStore,
    everything,
    finder,
    leases,
    opened,
    raising,
    skip_without,
)


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
            piece = "".join(chr(0x4E00 + number) for number in range(5_000))
            await store.append("log", "before " + piece + " behind")
            assert [hit.position for hit in await finder(store).search("log", piece[100:4_900], 10**30)] == [1]
            assert list(await finder(store).search("log", piece[100:4_900] + "x")) == []


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
