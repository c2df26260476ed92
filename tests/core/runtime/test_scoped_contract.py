"""A tenant's view passes the suite of all stores, but for keys that leave no room for the tenant in front."""

from collections.abc import Callable
from typing import Any

import pytest

from agentkit.core.contracts.ports import Clock
from agentkit.core.contracts.types import Scope
from agentkit.core.runtime import ScopedStore, UnscopedStore
from agentkit.core.testing import StoreSuite
from agentkit.state.stores import InMemoryStore

pytestmark = pytest.mark.anyio


class ViewSuite(StoreSuite):
    async def test_keys_are_told_apart(self, open_store: Callable[[Clock], Any]) -> None:
        store = open_store(lambda: 0.0)
        room = 2048 - len(store.prefix)
        await store.set("k" * room, 1)
        with pytest.raises(ValueError, match="1 to 2048 bytes"):
            await store.set("k" * (room + 1), 1)
        assert await store.keys() == ["k" * room]

    async def test_prefixes_are_literal(self, open_store: Callable[[Clock], Any]) -> None:
        store = open_store(lambda: 0.0)
        names = ["a", "a%", "a_b", "a*", "aXb", "A", "a[b]", "a\\", "é", "\U0010ffff"]
        for name in names:
            await store.set(name, 1)
        for prefix in ("", "a", "a%", "a_", "a*", "a[", "a\\", "A", "é", "\uffff"):
            assert await store.keys(prefix) == sorted(name for name in names if name.startswith(prefix)), prefix

    async def test_tenants_do_not_meet(self, open_store: Callable[[Clock], Any]) -> None:
        with pytest.raises(TypeError, match="takes a raw store"):
            ScopedStore(open_store(lambda: 0.0), Scope(1))


class TestScopedStore(ViewSuite):
    @pytest.fixture
    def open_store(self) -> Callable[[Clock], Any]:
        return lambda clock: ScopedStore(InMemoryStore(clock, max_value=3_000_000), Scope("a:b", "é"))


class TestUnscopedStore(ViewSuite):
    @pytest.fixture
    def open_store(self) -> Callable[[Clock], Any]:
        return lambda clock: UnscopedStore(InMemoryStore(clock, max_value=3_000_000))
