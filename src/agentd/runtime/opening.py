"""Opening an instance's records: the store, its lease, the generation in force. Touches what the settings name."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from agentd.config import Settings, digests
from agentd.records import Ids, Records, Retry, Trouble
from agentd.records.keys import ABOVE, Keys
from agentd.records.manifest import Start, open_manifest, open_next_generation, read_manifest
from agentd.records.opening import open_store, require_room, require_store
from agentd.records.ownership import acquire, release, renew, this_process
from agentkit.core.contracts.errors import StoreError
from agentkit.core.contracts.ports import Lease, Store
from agentkit.core.contracts.scope import Scope
from agentkit.state.stores import SQLiteStore

from .reading import Reader

log = logging.getLogger("agentd")


@dataclass
class Opened:
    """An instance that this process has. `clock` in ms; `troubles` hears of faults of the store that may pass."""

    store: Store
    records: Records
    lease: Lease | None
    start: Start
    clock: Callable[[], int]
    sleep: Callable[[float], Awaitable[None]]
    ids: Callable[[], str]
    troubles: Troubles
    min_free: int
    free: Callable[[Path], int] | None = None
    looked_at: int = -1_000

    async def renew(self) -> bool:
        """Whether the lease is still ours."""
        return self.lease is None or await renew(self.store, self.lease, clock=self.clock)

    def require_room(self) -> None:
        """NoRoom when the disk of the store is nearly full: no new work is taken in then. Looked at once a second."""
        now = self.clock()
        if isinstance(self.store, SQLiteStore) and not 0 <= now - self.looked_at < 1_000:
            given = {} if self.free is None else {"free": self.free}
            require_room(self.store.path, self.min_free, **given)
            self.looked_at = now

    async def aclose(self) -> None:
        try:
            if self.lease is not None:
                await release(self.store, self.lease)
        except (StoreError, OSError) as error:  # the store is what failed, and its lease ends by itself
            log.warning("the lease could not be given back: %s", error)
        finally:
            await self.store.aclose()


class Troubles:
    """Passes on what the records tell of a store that fails, once somebody listens."""

    def __init__(self) -> None:
        self.listener: Callable[[Trouble], None] | None = None

    def __call__(self, trouble: Trouble) -> None:
        if self.listener is not None:
            self.listener(trouble)


async def open_instance(
    settings: Settings,
    environ: Mapping[str, str],
    *,
    fresh: bool = False,
    as_start: bool = True,
    clock: Callable[[], float],
    sleep: Callable[[float], Awaitable[None]],
    ids: Callable[[], str] | None = None,
    store: Store | None = None,
) -> Opened:
    """Take the store, the lease of the instance and the generation in force, or with `fresh` the next one.

    `as_start`: note it as one; without, only the first is. `store`: in place of the configured one. Raises Held while
    another process has it, StoreError, FormatError.
    """

    def now() -> int:
        return int(clock() * 1000)

    found = store if store is not None else await open_store(settings, environ, clock=clock)
    lease: Lease | None = None
    troubles = Troubles()
    try:
        scope = scope_of(settings)
        given = settings.store
        retry = Retry(timeout=given.timeout.total_seconds(), sleep=sleep, on_trouble=troubles)
        minted = ids or Ids(now)
        if found.capabilities.lease:
            name = Keys(given.prefix, scope, settings.agent.name, ABOVE).key("lease", "instance")
            ttl = given.lease.ttl.total_seconds()
            lease = await acquire(found, name, this_process(), ttl, clock=now, retry=retry)
        records = Records(
            found, scope, instance=settings.agent.name, prefix=given.prefix, lease=lease, clock=now, ids=minted,
            retry=retry,
        )  # fmt: skip
        start = None if as_start else await read_manifest(records)
        if start is None:
            opened = open_next_generation if fresh else open_manifest
            start = await opened(records, digests(settings))
        records = records.of_generation(start.generation)
        return Opened(found, records, lease, start, now, sleep, minted, troubles, given.min_free)
    except BaseException:
        if lease is not None:
            await release(found, lease)
        if store is None:
            await found.aclose()
        raise


@asynccontextmanager
async def holding(
    settings: Settings, environ: Mapping[str, str] | None = None, *, make: bool = False
) -> AsyncIterator[Opened]:
    """An instance without its daemon, to change what is stored. `make`: a store that is not there is made. Raises Held
    while a daemon has it, StoreError."""
    if settings.store_kind == "memory":
        raise StoreError("store.kind is memory, which ends with its process: there is nothing to change")
    variables = os.environ if environ is None else environ
    if not make:
        require_store(settings, variables)
    opened = await open_instance(settings, variables, as_start=False, clock=time.time, sleep=asyncio.sleep)
    try:
        yield opened
    finally:
        await opened.aclose()


@asynccontextmanager
async def reading(settings: Settings, environ: Mapping[str, str] | None = None) -> AsyncIterator[Reader]:
    """The stored contexts of an instance, read only, also beside a running daemon. Raises StoreError."""
    store = await open_store(settings, os.environ if environ is None else environ, read_only=True)
    try:
        records = Records(
            store, scope_of(settings), instance=settings.agent.name, prefix=settings.store.prefix, clock=lambda: 0,
            ids=lambda: "",
        )  # fmt: skip
        start = await read_manifest(records)
        yield Reader(records.of_generation(start.generation) if start is not None else records)
    finally:
        await store.aclose()


def scope_of(settings: Settings) -> Scope:
    """The tenant that the instance belongs to."""
    return Scope(settings.store.scope.org, settings.store.scope.domain)
