"""The Store port's calls about one key, on top of a store's batches: one way to write, whatever was called."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, TypeVar

from agentkit.core.contracts.errors import Conflict
from agentkit.core.contracts.ports import Append, Batch, Clock, Delete, Lease, Put, StoreCapabilities

from .flights import Flights
from .rules import (
    Body,
    PutStep,
    Step,
    check_count,
    check_key,
    check_lease,
    check_seconds,
    deadline_of,
    pack,
    prepare,
    unpack,
)

S = TypeVar("S", bound="SingleKeyCalls")


class SingleKeyCalls:
    """What `_read` and `_write` of a backend add up to. No part of any contract: that is the Store port."""

    def __init__(self, clock: Clock, capabilities: StoreCapabilities) -> None:
        self._clock = clock
        self._capabilities = capabilities
        self._flights = Flights()

    @abstractmethod
    async def _read(self, key: str, now: float) -> tuple[Body, int] | None:
        """The stored form and version of a value; StoreError where a log is."""

    @abstractmethod
    def _write(self, steps: list[Step], now: float, fence: Lease | None) -> Awaitable[tuple[int, ...]]:
        """Carries out what `decide` makes of the steps, all or none, unless the fence is outdated (Fenced)."""

    @abstractmethod
    async def aclose(self) -> None: ...

    @property
    def capabilities(self) -> StoreCapabilities:
        return self._capabilities

    async def get(self, key: str, default: Any = None) -> Any:
        found = await self._read(check_key(key), self._clock())
        return default if found is None else unpack(found[0], key)

    async def versioned(self, key: str) -> tuple[Any, int] | None:
        found = await self._read(check_key(key), self._clock())
        return None if found is None else (unpack(found[0], key), found[1])

    async def set(self, key: str, value: Any, ttl: float | None = None) -> None:
        await self.commit([Put(key, value, ttl=ttl)])

    async def compare_and_set(self, key: str, value: Any, *, expected: int, ttl: float | None = None) -> int:
        return (await self.commit([Put(key, value, expected=check_count(expected, "expected"), ttl=ttl)]))[0]

    async def delete(self, key: str) -> bool:
        return (await self.commit([Delete(key)]))[0] == 1

    async def append(self, key: str, item: Any) -> int:
        return (await self.commit([Append(key, (item,))]))[0]

    async def commit(self, batch: Batch, *, fence: Lease | None = None) -> tuple[int, ...]:
        """Puts, appends and deletes, one after the other, all or none.

        Returns a number for each: the version that a put got, the position of the first appended item, 1 or 0 for a
        delete that removed something or nothing. The version of a log, for a delete, is its length.
        """
        if fence is not None:
            check_lease(fence)
        now = self._clock()
        return await self._write(prepare(batch, now, self._capabilities.max_value), now, fence)

    async def get_or_set(self, key: str, producer: Callable[[], Any | Awaitable[Any]], ttl: float | None = None) -> Any:
        """The stored value, or what the producer gives; of all who ask at once in this process, one producer runs.

        When the key was set by somebody else while the producer ran, that value stays and is returned.
        """
        check_key(key)
        if ttl is not None:
            check_seconds(ttl)
        if not callable(producer):
            raise TypeError(f"a producer must be callable, not {type(producer).__name__}")

        async def read() -> Body | None:
            found = await self._read(key, self._clock())
            return None if found is None else found[0]

        async def write(value: Any) -> Body:
            body = pack(value, self._capabilities.max_value)
            while True:
                now = self._clock()
                try:
                    await self._write([PutStep(key, body, deadline_of(ttl, now), expected=0)], now, None)
                    return body
                except Conflict:
                    if (found := await read()) is not None:
                        return found

        return unpack(await self._flights.run(key, read, producer, write), key)

    async def __aenter__(self: S) -> S:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
