"""`StoreMemory`: what was written is recalled by its words. Touches the store of the run, or the one that is handed in.

A tenant's items stand in one log, the newest with an id in force, so that a recall is one read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentkit.core.contracts.checks import require_int
from agentkit.core.contracts.errors import Conflict, Corrupt
from agentkit.core.contracts.frozen import deep_freeze, thaw
from agentkit.core.contracts.hashing import stable_hash
from agentkit.core.contracts.ports import Append, Ctx, Delete, MemoryItem, Put, Store
from agentkit.core.contracts.requests import Chunk
from agentkit.core.runtime import UnscopedStore, scoped

from .ranking import rank

ATTEMPTS = 50
"""Writers that may get ahead before a write gives up with Conflict: more mean that a store does not work."""
SLACK = 100
"""Superseded items that a log may hold beside as many as are in force, before it is written anew."""


@dataclass(frozen=True)
class Written:
    """Ids of the items that a write added, those it changed, and those that stood there as they are."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Log:
    """A tenant's log as it was read: where it is, how long, and the items in force by id, oldest first."""

    store: Store
    key: str
    length: int
    items: dict[str, MemoryItem]


class StoreMemory:
    """A MemorySource over a store: the same item twice stays once, and a change under the same id supersedes.

    Items are kept per scope and `name`, in `store`, else in the run's own; a run without one is a ValueError. An
    UnscopedStore, which somebody chose on purpose, is one memory for all tenants. A query
    reads all items of its tenant, so this is for thousands of them, not for millions. They are ranked by the words they
    share with the question (`rank`); what shares none is not recalled.
    """

    def __init__(self, store: Store | None = None, *, name: str = "default") -> None:
        if store is not None and not isinstance(store, Store):
            raise TypeError(f"store must be a Store, not {type(store).__name__}")
        if not isinstance(name, str):
            raise TypeError(f"name must be a str, not {type(name).__name__}")
        if not name or "/" in name:
            raise ValueError(f"name must not be empty nor hold a slash: {name!r}")
        self._store, self._key = store, f"memory/{name}"

    async def query(self, text: str, ctx: Ctx, /, k: int = 5) -> list[Chunk]:
        """The up to `k` items nearest to `text`, best first; `meta` is the item's, with its `id`."""
        if not isinstance(text, str):
            raise TypeError(f"text must be a str, not {type(text).__name__}")
        require_int(k, "k")
        if k < 0:
            raise ValueError(f"k must not be negative: {k}")
        items = list((await self._read(ctx)).items.values())
        found = rank(text, [f"{item.source} {item.text}" for item in items], k)
        return [
            Chunk(items[i].text, items[i].source, score, {**items[i].meta, "id": items[i].id}) for i, score in found
        ]

    async def write(self, items: Sequence[Any], ctx: Ctx, /) -> Written:
        """Remember `items`, each a MemoryItem, a Chunk or a text; all of them or, where it raises, none.

        An item without an id gets one from its text. Of several with one id the last counts. CodecError for a `meta`
        that no store carries.
        """
        wanted = {str(item.id): item for item in map(_item, _listed(items))}
        for _ in range(ATTEMPTS):
            log = await self._read(ctx)
            fresh = {id: item for id, item in wanted.items() if not _same(log.items.get(id), item)}
            if not fresh or await _committed(log.store, _with(log, fresh)):
                return Written(
                    tuple(id for id in fresh if id not in log.items),
                    tuple(id for id in fresh if id in log.items),
                    tuple(id for id in wanted if id not in fresh),
                )
        raise Conflict(self._key, 0, 0)

    async def forget(self, ids: Iterable[str], ctx: Ctx, /) -> int:
        """Take items out of memory and out of the store; how many there were."""
        gone = {ids} if isinstance(ids, str) else set(ids)
        for _ in range(ATTEMPTS):
            log = await self._read(ctx)
            left = [item for id, item in log.items.items() if id not in gone]
            if len(left) == len(log.items):
                return 0
            if await _committed(log.store, _anew(log, left)):
                return len(log.items) - len(left)
        raise Conflict(self._key, 0, 0)

    async def _read(self, ctx: Ctx) -> _Log:
        store = ctx.store if self._store is None else self._store
        if self._store is not None and not isinstance(store, UnscopedStore):
            store = scoped(self._store, ctx.scope)
        if store is None:
            raise ValueError("a StoreMemory needs a store: give it one, or the run, by Services(store=...)")
        rows = await store.list(self._key)
        items: dict[str, MemoryItem] = {}
        for position, row in enumerate(rows):
            item = _from_row(row, self._key, position)
            items.pop(str(item.id), None)
            items[str(item.id)] = item
        return _Log(store, self._key, len(rows), items)


def _with(log: _Log, fresh: dict[str, MemoryItem]) -> list[Put | Append | Delete]:
    """The batch that adds items to a log, written anew once most of it is superseded."""
    force = {id: item for id, item in log.items.items() if id not in fresh} | fresh
    if log.length + len(fresh) > 2 * len(force) + SLACK:
        return _anew(log, list(force.values()))
    return [Append(log.key, tuple(map(_row, fresh.values())), at=log.length)]


def _anew(log: _Log, items: list[MemoryItem]) -> list[Put | Append | Delete]:
    batch: list[Put | Append | Delete] = [Delete(log.key, expected=log.length)]
    return [*batch, Append(log.key, tuple(map(_row, items)), at=0)] if items else batch


async def _committed(store: Store, batch: Sequence[Put | Append | Delete]) -> bool:
    """Whether the batch was written: False when somebody else wrote first."""
    try:
        await store.commit(batch)
    except Conflict:
        return False
    return True


def _listed(items: Any) -> list[Any]:
    if isinstance(items, (str, MemoryItem, Chunk)) or not isinstance(items, Iterable):
        raise TypeError(f"items must be a list of items, not {type(items).__name__}: write([item], ctx)")
    return list(items)


def _item(given: Any) -> MemoryItem:
    if isinstance(given, str):
        given = MemoryItem(given)
    elif isinstance(given, Chunk):
        given = MemoryItem(given.text, None, given.source, given.meta)
    if not isinstance(given, MemoryItem):
        raise TypeError(f"an item must be a MemoryItem, a Chunk or a str, not {type(given).__name__}")
    for field, value in (("text", given.text), ("source", given.source), ("id", given.id or "x")):
        if not isinstance(value, str):
            raise TypeError(f"MemoryItem.{field} must be a str, not {type(value).__name__}")
    id = given.id or stable_hash(given.text)[:32]
    return MemoryItem(given.text, id, given.source, deep_freeze(dict(given.meta)))


def _same(held: MemoryItem | None, item: MemoryItem) -> bool:
    return held is not None and held == item and held.meta == item.meta


def _row(item: MemoryItem) -> dict[str, Any]:
    return {"id": item.id, "text": item.text, "source": item.source, "meta": thaw(item.meta)}


def _from_row(row: Any, key: str, position: int) -> MemoryItem:
    if not (isinstance(row, Mapping) and isinstance(row.get("text"), str) and isinstance(row.get("id"), str)):
        raise Corrupt(f"{key!r} holds no memory item at {position}", key=key, position=position)
    return MemoryItem(row["text"], row["id"], str(row.get("source", "")), deep_freeze(dict(row.get("meta") or {})))
