"""Every store passes the public contract suite: in memory, SQLite shared and exclusive, and a tenant's view of one."""

from collections.abc import Callable
from pathlib import Path

import pytest

from agentkit.core.contracts.ports import Clock
from agentkit.core.testing import StoreSuite
from agentkit.state.stores import InMemoryStore, SQLiteStore

pytestmark = pytest.mark.anyio


class TestInMemoryStore(StoreSuite):
    @pytest.fixture
    def open_store(self) -> Callable[[Clock], InMemoryStore]:
        return lambda clock: InMemoryStore(clock, max_value=3_000_000)


class TestSharedSQLiteStore(StoreSuite):
    @pytest.fixture
    def open_store(self, tmp_path: Path) -> Callable[[Clock], SQLiteStore]:
        return lambda clock: SQLiteStore(tmp_path / "a store.db", clock=clock, max_value=3_000_000)


class TestExclusiveSQLiteStore(StoreSuite):
    @pytest.fixture
    def open_store(self, tmp_path: Path) -> Callable[[Clock], SQLiteStore]:
        return lambda clock: SQLiteStore(tmp_path / "ä%20?#.db", exclusive=True, clock=clock, max_value=3_000_000)
