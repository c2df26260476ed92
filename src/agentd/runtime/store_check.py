"""Whether everything that an instance has stored can be read: each row by what its kind holds, each line of each log.
Opens the store that the settings name, for reading, also beside a running daemon.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from agentd.config import Settings
from agentd.context import plan
from agentd.context.memory import INDEX, keys_of, read_record
from agentd.context.record import APART
from agentd.context.resident import STATE
from agentd.context.rows import decode_entry, decode_state
from agentd.records import Records, Row
from agentd.records.keys import Keys, name_of
from agentd.records.opening import open_store
from agentd.records.survey import LOG, Survey, Unreadable, survey
from agentkit.core.contracts.errors import Corrupt, FormatError

from .budgets import counter_of
from .inbox import Item, Seen, Task
from .memory import KIND as MEMORY
from .memory import rebuilt_index
from .opening import scope_of
from .tools.artifact_tools import ARTIFACTS, Listed


async def check_store(settings: Settings, environ: Mapping[str, str]) -> Survey:
    """Look at all tenants and generations of the configured instance. Raises StoreError where the store cannot be
    opened."""
    store = await open_store(settings, environ, read_only=True)
    try:
        records = Records(
            store, scope_of(settings), instance=settings.agent.name, prefix=settings.store.prefix, clock=lambda: 0,
            ids=lambda: "",
        )  # fmt: skip
        return await check_records(records)
    finally:
        await store.aclose()


async def check_records(records: Records) -> Survey:
    """The same for records that are open. Where the store cannot list, the list of memory keys is made anew."""

    async def rebuild() -> int:
        return await rebuild_index(records)

    found = await survey(
        records, read=read_row, read_line=_read_line, rebuild_index=None if records.abilities.list else rebuild
    )
    if not records.abilities.list or found.generation is None or found.cut_short is not None:
        return found
    short = await short_logs(records.of_generation(found.generation))
    return replace(found, unreadable=(*found.unreadable, *short))


async def short_logs(records: Records) -> list[Unreadable]:
    """Logs that have lost their last entries: the state of their context counts more than there are."""
    found: list[Unreadable] = []
    for id in await records.ids(STATE):
        last = await _last_entry(records, id)
        # Looked at again before it is told: beside a daemon that just deletes it.
        if last and not await records.entries(LOG, id, last, last) and last == await _last_entry(records, id):
            name = name_of(Keys(records.prefix, records.scope, records.instance, records.generation).key(LOG, id))
            if name is not None:
                found.append(Unreadable(name, f"it ends before entry {last}, which its context counts", last))
    return found


async def _last_entry(records: Records, id: str) -> int:
    """The number of the last entry, 0 for none, and for a context that cannot be read."""
    try:
        row = await records.get(STATE, id)
        return 0 if row is None else decode_state(row.state, id=id).next - 1
    except (Corrupt, FormatError):
        return 0


async def rebuild_index(records: Records) -> int:
    """Take those keys out of the list of memory keys that have no value any more; how many are left.

    A value whose key no list names cannot be found in a store that cannot list. Corrupt for a list that cannot be read.
    """
    row = await records.get(MEMORY, INDEX)
    listed = [] if row is None else keys_of(row.state)
    kept = [key for key in listed if await records.get(MEMORY, key) is not None]
    if kept != listed:
        await records.commit([await rebuilt_index(records, kept)])
    return len(kept)


def read_row(row: Row) -> None:
    """Read the state of a row. Raises Corrupt, FormatError or ValueError for one that cannot be read; a kind that is
    not known here passes."""
    reader = _READERS.get(row.kind)
    if reader is not None:
        reader(row)


def _read_line(line: bytes, n: int) -> None:
    found = decode_entry(line, where=f"entry {n}")
    if found.n != n:
        raise ValueError(f"it says that it is entry {found.n}")


def _read_apart(row: Row) -> None:
    state = decode_state(b"{}", {row.kind: row.state}, id=row.id)
    plan.plan_of(state.plan)


def _read_memory(row: Row) -> None:
    if row.id == INDEX:
        keys_of(row.state)
    else:
        read_record(row.state, row.id)


def _read_item(row: Row) -> None:
    item: Item = msgspec.json.decode(row.state, type=Item)
    _ = item.message


def _of(kind: Any) -> Callable[[Row], object]:
    decoder = msgspec.json.Decoder(kind)
    return lambda row: decoder.decode(row.state)


_READERS: Mapping[str, Callable[[Row], object]] = {
    STATE: lambda row: decode_state(row.state, id=row.id),
    **dict.fromkeys(APART, _read_apart),
    MEMORY: _read_memory,
    ARTIFACTS: _of(list[Listed]),
    "inbox": _read_item,
    "seen": _of(Seen),
    "task": _of(Task),
    "governor": lambda row: counter_of(row.state, row.id),
}
