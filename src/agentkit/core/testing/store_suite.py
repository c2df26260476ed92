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

from .store_lives import DurableSuite, LeaseSuite, SearchSuite, TenantSuite
from .store_values import LifetimeSuite, ListingSuite, ValueSuite, VersionSuite
from .store_writes import BatchSuite, FlightSuite, LogSuite


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
