"""Records for tests: a store, a clock that stands still, ids that can be told apart, and no waiting."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from agentd.records import Abilities, Ids, Records, Retry, Trouble
from agentkit.core.contracts.ports import Lease, Store
from agentkit.core.contracts.scope import Scope
from agentkit.core.testing import FaultyStore
from agentkit.state.stores import InMemoryStore

NOW = 1_700_000_000_000
NOBODY = Scope()


@dataclass
class Waiting:
    """Stands in for sleep, and notes what it was asked for and which faults there were."""

    slept: list[float] = field(default_factory=list)
    troubles: list[Trouble] = field(default_factory=list)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    def retry(self, timeout: float | None = None) -> Retry:
        return Retry(timeout=timeout, sleep=self.sleep, on_trouble=self.troubles.append)


def records(
    store: Store,
    *,
    scope: Scope = NOBODY,
    waiting: Waiting | None = None,
    lease: Lease | None = None,
    abilities: Abilities | None = None,
    **others: Any,
) -> Records:
    return Records(
        store,
        scope,
        instance=others.pop("instance", "me"),
        lease=lease,
        clock=others.pop("clock", lambda: NOW),
        ids=others.pop("ids", Ids(lambda: NOW)),
        retry=(waiting or Waiting()).retry(),
        abilities=abilities,
        **others,
    )


def faulty(**variant: bool) -> FaultyStore:
    return FaultyStore(InMemoryStore(), **variant)


async def everything(store: Store) -> dict[str, Any]:
    """All keys of a store and what they hold."""
    found: dict[str, Any] = {}
    for key in await store.keys():
        found[key] = await (store.list(key) if "/log/" in key else store.versioned(key))
    return found


Act = Callable[[Records], Awaitable[object]]
