"""A store that fails when a test says so: before an operation, after it, on a full disk, or until it is mended; or that
waits. Touches the store that it is wrapped around.

    store = FaultyStore(InMemoryStore())
    store.fail(2)                # the second operation from now on is refused before it is done
    store.lose(of="commit")      # the next commit is done, and its answer lost
    gate = store.delay(of="get") # the next get waits until `gate.open()`
    store.fill_disk()            # no write is done until `free_disk()`
"""

from __future__ import annotations

import asyncio
import builtins
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from agentkit.core.contracts import codec
from agentkit.core.contracts.errors import StoreError
from agentkit.core.contracts.ports import (
    Append,
    Batch,
    Delete,
    Hit,
    Lease,
    LeasingStore,
    Put,
    SearchingStore,
    Store,
    StoreCapabilities,
)

T = TypeVar("T")

READS = ("get", "versioned", "list", "keys", "search")
WRITES = ("set", "delete", "get_or_set", "append", "compare_and_set", "commit", "lease", "renew", "release")


class Gate:
    """Holds up one operation. `reached()` waits until it has come, `open()` lets it go on."""

    def __init__(self) -> None:
        self._reached, self._opened = asyncio.Event(), asyncio.Event()

    async def reached(self) -> None:
        await self._reached.wait()

    def open(self) -> None:
        self._opened.set()

    async def _pass(self) -> None:
        self._reached.set()
        await self._opened.wait()


@dataclass
class _Armed:
    """A fault that waits for its operation. `left`: matching operations until then; `times`: how often it acts."""

    how: str
    of: str | None
    left: int
    times: int = 1
    error: Exception | None = None
    gate: Gate | None = None


class FaultyStore:
    """The Store port, with faults on demand; without any it does what the store behind it does.

    `lists`, `deletes`, `searches`: False for a store that was never able to. `operations` counts calls by name, failed
    ones too; `written` counts the bytes of keys and encoded values that the store behind was given to write.
    """

    def __init__(self, store: Store, *, lists: bool = True, deletes: bool = True, searches: bool = True) -> None:
        self.inner = store
        self.operations: Counter[str] = Counter()
        self.written = 0
        self._lists, self._deletes, self._searches = lists, deletes, searches
        self._armed: builtins.list[_Armed] = []
        self._broken: Callable[[], Exception] | None = None
        self._is_full = False

    # Arming. `nth` counts from now on, operations called `of` only, or all.

    def fail(self, nth: int = 1, of: str | None = None, *, times: int = 1, error: Exception | None = None) -> None:
        """That operation, and those after it up to `times`, raise and are not done."""
        self._arm(_Armed("fail", of, nth, times, error))

    def lose(self, nth: int = 1, of: str | None = None, *, times: int = 1, error: Exception | None = None) -> None:
        """That operation, and those after it up to `times`, are done and raise all the same."""
        self._arm(_Armed("lose", of, nth, times, error))

    def delay(self, nth: int = 1, of: str | None = None, *, done: bool = False) -> Gate:
        """That operation waits until the gate is opened; `done`: it is done before, and only its answer waits."""
        gate = Gate()
        self._arm(_Armed("late" if done else "delay", of, nth, gate=gate))
        return gate

    def break_down(self, error: Callable[[], Exception] | None = None) -> None:
        """Every operation raises what `error` makes, until `mend`."""
        self._broken = error or (lambda: OSError(5, "the store is out of order, on purpose"))

    def mend(self) -> None:
        self._broken = None

    def fill_disk(self) -> None:
        """Every write raises, until `free_disk`; reads go on."""
        self._is_full = True

    def free_disk(self) -> None:
        self._is_full = False

    def _arm(self, fault: _Armed) -> None:
        if fault.of is not None and fault.of not in READS + WRITES:
            raise ValueError(f"a store has no operation {fault.of!r}; it has {', '.join(READS + WRITES)}")
        if fault.left < 1 or fault.times < 1:
            raise ValueError("operations are counted from 1 on")
        self._armed.append(fault)

    # The port

    @property
    def capabilities(self) -> StoreCapabilities:
        own = self.inner.capabilities
        return replace(own, search=own.search and self._searches)

    async def get(self, key: str, default: Any = None) -> Any:
        return await self._do("get", lambda: self.inner.get(key, default))

    async def set(self, key: str, value: Any, ttl: float | None = None) -> None:
        await self._do("set", lambda: self.inner.set(key, value, ttl), lambda: [(key, value)])

    async def delete(self, key: str) -> bool:
        self._require(self._deletes, "delete")
        return await self._do("delete", lambda: self.inner.delete(key), lambda: [(key,)])

    async def get_or_set(self, key: str, producer: Callable[[], Any | Awaitable[Any]], ttl: float | None = None) -> Any:
        return await self._do("get_or_set", lambda: self.inner.get_or_set(key, producer, ttl))

    async def append(self, key: str, item: Any) -> int:
        return await self._do("append", lambda: self.inner.append(key, item), lambda: [(key, item)])

    async def list(self, key: str, *, start: int = 0, stop: int | None = None) -> builtins.list[Any]:
        return await self._do("list", lambda: self.inner.list(key, start=start, stop=stop))

    async def keys(self, prefix: str = "", *, after: str | None = None, limit: int | None = None) -> builtins.list[str]:
        self._require(self._lists, "list keys")
        return await self._do("keys", lambda: self.inner.keys(prefix, after=after, limit=limit))

    async def versioned(self, key: str) -> tuple[Any, int] | None:
        return await self._do("versioned", lambda: self.inner.versioned(key))

    async def compare_and_set(self, key: str, value: Any, *, expected: int, ttl: float | None = None) -> int:
        def act() -> Awaitable[int]:
            return self.inner.compare_and_set(key, value, expected=expected, ttl=ttl)

        return await self._do("compare_and_set", act, lambda: [(key, value)])

    async def commit(self, batch: Batch, *, fence: Lease | None = None) -> tuple[int, ...]:
        if not self._deletes and isinstance(batch, Sequence):
            self._require(not any(isinstance(step, Delete) for step in batch), "delete")
        return await self._do("commit", lambda: self.inner.commit(batch, fence=fence), lambda: _handed(batch))

    async def lease(self, name: str, owner: str, ttl: float) -> Lease | None:
        return await self._do("lease", lambda: self._leasing().lease(name, owner, ttl))

    async def renew(self, lease: Lease) -> bool:
        return await self._do("renew", lambda: self._leasing().renew(lease))

    async def release(self, lease: Lease) -> bool:
        return await self._do("release", lambda: self._leasing().release(lease))

    async def search(self, key: str, text: str, limit: int = 20) -> Sequence[Hit]:
        inner = self.inner
        if not self.capabilities.search or not isinstance(inner, SearchingStore):
            raise StoreError("this store cannot search; its capabilities say so")
        return await self._do("search", lambda: inner.search(key, text, limit))

    async def aclose(self) -> None:
        await self.inner.aclose()

    async def _do(
        self,
        name: str,
        act: Callable[[], Awaitable[T]],
        handed: Callable[[], Iterable[Sequence[Any]]] = lambda: (),
    ) -> T:
        self.operations[name] += 1
        fault = self._due(name)
        if self._broken is not None:
            raise self._broken()
        if self._is_full and name in WRITES:
            raise StoreError("the disk is full, on purpose; nothing of this call was written")
        if fault is not None and fault.how == "fail":
            raise fault.error or StoreError(f"this {name} failed on purpose; nothing of it was done")
        if fault is not None and fault.how == "delay" and fault.gate is not None:
            await fault.gate._pass()
        answer = await act()
        self.written += sum(_size(part) for parts in handed() for part in parts)
        if fault is not None and fault.how == "lose":
            raise fault.error or StoreError(f"the answer of this {name} was lost on purpose")
        if fault is not None and fault.how == "late" and fault.gate is not None:
            await fault.gate._pass()
        return answer

    def _due(self, name: str) -> _Armed | None:
        found = None
        for fault in self._armed[:]:
            if fault.of in (None, name):
                fault.left -= 1
                if found is None and fault.left <= 0:
                    found = fault
                    fault.times -= 1
                    if not fault.times:
                        self._armed.remove(fault)
        return found

    def _require(self, is_able: bool, what: str) -> None:
        if not is_able:
            raise StoreError(f"this store cannot {what}")

    def _leasing(self) -> LeasingStore:
        if not self.capabilities.lease or not isinstance(self.inner, LeasingStore):
            raise StoreError("this store grants no leases; its capabilities say so")
        return self.inner


def _handed(batch: Batch) -> Iterable[Sequence[Any]]:
    for step in batch:
        if isinstance(step, Put):
            yield step.key, step.value
        elif isinstance(step, Append):
            yield step.key, *step.items
        else:
            yield (step.key,)


def _size(part: Any) -> int:
    """Bytes of a key or value as a store keeps it; a text counts as a key, since its quotes hardly matter."""
    if isinstance(part, bytes):
        return len(part)
    return len(part.encode("utf-8", "surrogatepass")) if isinstance(part, str) else len(codec.encode(part))
