"""A store in this process's memory, for tests, caches and short-lived runs. Touches its dictionaries and a clock."""

from __future__ import annotations

import builtins
import heapq
import threading
import time
from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from agentkit.core.contracts.ports import Clock, Hit, Lease, StoreCapabilities

from .find import Query, searchable
from .rules import (
    NOTHING,
    AppendStep,
    Body,
    Claim,
    Held,
    PutStep,
    Step,
    check_claim,
    check_count,
    check_key,
    check_lease,
    check_page,
    check_text,
    decide,
    is_current,
    is_free,
    is_over,
    require_current,
    require_log,
    require_value,
    unpack,
)
from .single import SingleKeyCalls


@dataclass(frozen=True)
class _Value:
    body: Body
    version: int
    deadline: float | None


@dataclass
class _Log:
    bodies: builtins.list[Body] = field(default_factory=builtins.list)


class InMemoryStore(SingleKeyCalls):
    """The Store port over dictionaries, with leases and search. Values are kept encoded, so what is read is a copy.

    `clock`: seconds, for lifetimes and leases. `max_value`: largest encoded value in bytes. May be shared by several
    threads and event loops; `aclose` changes nothing, so that another life can open it again.
    """

    def __init__(self, clock: Clock = time.monotonic, *, max_value: int | None = None) -> None:
        super().__init__(clock, StoreCapabilities(lease=True, search=True, max_value=max_value))
        self._guard = threading.Lock()  # guards everything below
        self._entries: dict[str, _Value | _Log] = {}
        self._sorted: builtins.list[str] = []
        self._deadlines: builtins.list[tuple[float, str, int]] = []  # a heap; entries of overwritten values are stale
        self._claims: dict[str, Claim] = {}
        self._version = 0

    async def list(self, key: str, *, start: int = 0, stop: int | None = None) -> builtins.list[Any]:
        bodies = self._log(key)
        first = check_count(start, "start")
        last = len(bodies) if stop is None else check_count(stop, "stop")
        return [unpack(body, key, at) for at, body in enumerate(bodies[first:last], first)]

    async def keys(self, prefix: str = "", *, after: str | None = None, limit: int | None = None) -> builtins.list[str]:
        check_page(prefix, after, limit)
        found: builtins.list[str] = []
        with self._guard:
            now = self._clock()
            at = bisect_left(self._sorted, prefix)
            if after is not None:
                at = max(at, bisect_right(self._sorted, after))
            while at < len(self._sorted) and (limit is None or len(found) < limit):
                key = self._sorted[at]
                if not key.startswith(prefix):
                    break
                if self._held(key, now) != NOTHING:
                    found.append(key)
                at += 1
        return found

    async def lease(self, name: str, owner: str, ttl: float) -> Lease | None:
        """The right to write under `name`, or None while another owner has it. `ttl` in seconds."""
        seconds, now = check_claim(name, owner, ttl), self._clock()
        with self._guard:
            if not is_free(self._claims.get(name), owner, now):
                return None
            self._version += 1
            self._claims[name] = Claim(owner, self._version, now + seconds)
            return Lease(name, owner, self._version, seconds)

    async def renew(self, lease: Lease) -> bool:
        """Whether the lease is still the current one; it then lasts for its ttl from now."""
        now = self._clock()
        with self._guard:
            if not is_current(self._claims.get(check_lease(lease).name), lease):
                return False
            self._claims[lease.name] = Claim(lease.owner, lease.fence, now + lease.ttl)
            return True

    async def release(self, lease: Lease) -> bool:
        """Gives a lease up; False when it was not the current one."""
        with self._guard:
            if not is_current(self._claims.get(check_lease(lease).name), lease):
                return False
            self._claims[lease.name] = Claim(None, lease.fence, 0.0)
            return True

    async def search(self, key: str, text: str, limit: int = 20) -> Sequence[Hit]:
        """Items of a log that contain every word of `text`, in any case, the newest first; none for a blank text."""
        query, bodies = Query(check_text(text)), self._log(key)
        check_count(limit, "limit")
        hits: builtins.list[Hit] = []
        for at in range(len(bodies) - 1, -1, -1):
            if len(hits) >= limit:
                break
            excerpt = query.excerpt(searchable(bodies[at]))
            if excerpt is not None:
                hits.append(Hit(key, at, excerpt))
        return hits

    async def aclose(self) -> None:
        """Nothing to free: the data stay until the store is no longer referenced."""

    async def _read(self, key: str, now: float) -> tuple[Body, int] | None:
        with self._guard:
            require_value(key, self._held(key, now))
            found = self._entries.get(key)
            if isinstance(found, _Value) and not is_over(found.deadline, now):
                return found.body, found.version
        return None

    async def _write(self, steps: builtins.list[Step], now: float, fence: Lease | None) -> tuple[int, ...]:
        with self._guard:
            if fence is not None:
                require_current(self._claims.get(fence.name), fence)
            effects, self._version = decide(steps, lambda key: self._held(key, now), self._version, now)
            for step, number in effects:
                if isinstance(step, PutStep):
                    self._put(step.key, _Value(step.body, number, step.deadline))
                elif isinstance(step, AppendStep):
                    if step.bodies:
                        self._log_for_append(step.key).bodies.extend(step.bodies)
                else:
                    self._remove(step.key)
            self._sweep(now)
        return tuple(effect.number for effect in effects)

    def _log(self, key: str) -> builtins.list[Body]:
        check_key(key)
        now = self._clock()
        with self._guard:
            require_log(key, self._held(key, now))
            found = self._entries.get(key)
            return found.bodies[:] if isinstance(found, _Log) else []

    def _held(self, key: str, now: float) -> Held:
        found = self._entries.get(key)
        if isinstance(found, _Log):
            return Held(length=len(found.bodies))
        if found is None or is_over(found.deadline, now):
            return NOTHING
        return Held(version=found.version)

    def _put(self, key: str, value: _Value) -> None:
        if key not in self._entries:
            insort(self._sorted, key)
        self._entries[key] = value
        if value.deadline is not None:
            heapq.heappush(self._deadlines, (value.deadline, key, value.version))

    def _log_for_append(self, key: str) -> _Log:
        found = self._entries.get(key)
        if not isinstance(found, _Log):
            if found is None:
                insort(self._sorted, key)
            found = self._entries[key] = _Log()
        return found

    def _remove(self, key: str) -> None:
        if self._entries.pop(key, None) is not None:
            del self._sorted[bisect_left(self._sorted, key)]

    def _sweep(self, now: float) -> None:
        while self._deadlines and self._deadlines[0][0] <= now:
            _, key, version = heapq.heappop(self._deadlines)
            found = self._entries.get(key)
            if isinstance(found, _Value) and found.version == version:
                self._remove(key)
