"""A store as one tenant sees it. Touches the store that is handed in.

Every key begins with the tenant's key and a slash, so that tenants cannot meet, and listing shows one tenant only.
"""

from __future__ import annotations

import builtins
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from agentkit.core.contracts.errors import Conflict, ScopeError, StoreError
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
from agentkit.core.contracts.scope import Scope

OPERATIONS = (Put, Append, Delete)
"""What a batch is made of; anything else is left to the store to refuse."""


class PrefixedStore:
    """A Store whose keys all begin with `prefix` in the store behind it; conflicts name the key as it was given.

    `scope` is the tenant it belongs to, None for keys that all tenants share. `inner` is the raw store, which stays
    open when this view is closed.
    """

    def __init__(self, store: Store, prefix: str, scope: Scope | None) -> None:
        if isinstance(store, PrefixedStore):
            raise TypeError(
                f"{type(self).__name__} takes a raw store, and this one has keys of its own: pass its .inner"
            )
        if not isinstance(store, Store):
            raise TypeError(f"store must be a Store, not {type(store).__name__}")
        self.inner, self.prefix, self.scope = store, prefix, scope

    @property
    def capabilities(self) -> StoreCapabilities:
        return self.inner.capabilities

    async def get(self, key: str, default: Any = None) -> Any:
        return await self.inner.get(self._raw(key), default)

    async def set(self, key: str, value: Any, ttl: float | None = None) -> None:
        await self.inner.set(self._raw(key), value, ttl)

    async def delete(self, key: str) -> bool:
        return await self.inner.delete(self._raw(key))

    async def get_or_set(self, key: str, producer: Callable[[], Any | Awaitable[Any]], ttl: float | None = None) -> Any:
        return await self.inner.get_or_set(self._raw(key), producer, ttl)

    async def append(self, key: str, item: Any) -> int:
        return await self.inner.append(self._raw(key), item)

    async def list(self, key: str, *, start: int = 0, stop: int | None = None) -> builtins.list[Any]:
        return await self.inner.list(self._raw(key), start=start, stop=stop)

    async def keys(self, prefix: str = "", *, after: str | None = None, limit: int | None = None) -> builtins.list[str]:
        behind = None if after is None else self.prefix + after
        found = await self.inner.keys(self.prefix + prefix, after=behind, limit=limit)
        return [key[len(self.prefix) :] for key in found]

    async def versioned(self, key: str) -> tuple[Any, int] | None:
        return await self.inner.versioned(self._raw(key))

    async def compare_and_set(self, key: str, value: Any, *, expected: int, ttl: float | None = None) -> int:
        with self._own_keys():
            return await self.inner.compare_and_set(self._raw(key), value, expected=expected, ttl=ttl)

    async def commit(self, batch: Batch, *, fence: Lease | None = None) -> tuple[int, ...]:
        if fence is not None and not isinstance(fence, Lease):
            raise TypeError(f"fence must be None or a Lease, not {type(fence).__name__}")
        held = None if fence is None else replace(fence, name=self._raw(fence.name))
        given: Sequence[Any] = batch
        steps = [replace(op, key=self._raw(op.key)) if isinstance(op, OPERATIONS) else op for op in given]
        with self._own_keys():
            return await self.inner.commit(steps, fence=held)

    async def lease(self, name: str, owner: str, ttl: float) -> Lease | None:
        granted = await self._leasing().lease(self._raw(name), owner, ttl)
        return None if granted is None else replace(granted, name=name)

    async def renew(self, lease: Lease) -> bool:
        return await self._leasing().renew(replace(lease, name=self._raw(lease.name)))

    async def release(self, lease: Lease) -> bool:
        return await self._leasing().release(replace(lease, name=self._raw(lease.name)))

    async def search(self, key: str, text: str, limit: int = 20) -> Sequence[Hit]:
        if not self.capabilities.search or not isinstance(self.inner, SearchingStore):
            raise StoreError(f"{type(self.inner).__name__} cannot search; its capabilities say so")
        return [replace(hit, key=key) for hit in await self.inner.search(self._raw(key), text, limit)]

    async def aclose(self) -> None:
        """Nothing: the store behind belongs to whoever opened it."""

    def _leasing(self) -> LeasingStore:
        if not self.capabilities.lease or not isinstance(self.inner, LeasingStore):
            raise StoreError(f"{type(self.inner).__name__} grants no leases; its capabilities say so")
        return self.inner

    def _raw(self, key: str) -> str:
        if not isinstance(key, str):
            raise TypeError(f"a store key must be a str, not {type(key).__name__}")
        if not key:
            raise ValueError("a store key must not be empty")
        return self.prefix + key

    @contextmanager
    def _own_keys(self) -> Iterator[None]:
        try:
            yield
        except Conflict as conflict:
            raise Conflict(conflict.key.removeprefix(self.prefix), conflict.expected, conflict.actual) from conflict

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.inner!r}, prefix={self.prefix!r})"


class ScopedStore(PrefixedStore):
    """The part of `store` that belongs to `scope`; keys begin with `scope.key() + "/"`. There is no default scope."""

    scope: Scope

    def __init__(self, store: Store, scope: Scope) -> None:
        if not isinstance(scope, Scope):
            raise TypeError(f"scope must be a Scope, not {type(scope).__name__}")
        super().__init__(store, scope.key() + "/", scope)


class UnscopedStore(PrefixedStore):
    """The part of `store` that all tenants share, on purpose; keys begin with `shared/`."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, "shared/", None)


def scoped(store: Store, scope: Scope) -> ScopedStore:
    """`store` as `scope` sees it: a raw or shared store is wrapped, this tenant's own view returned as it is.

    Raises ScopeError for another tenant's view.
    """
    if isinstance(store, ScopedStore):
        if store.scope != scope:
            raise ScopeError(f"a store of {store.scope.key()} cannot serve a run of {scope.key()}")
        return store
    return ScopedStore(store.inner if isinstance(store, UnscopedStore) else store, scope)
