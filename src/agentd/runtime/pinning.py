"""Pinning entries of a context that may be folded. Touches the records that are handed in."""

from __future__ import annotations

from collections.abc import Sequence

from agentd.context.messages import entry_message
from agentd.context.pins import pinned
from agentd.context.record import Entry, Pin
from agentd.context.resident import Context
from agentd.records import Records
from agentkit.state.context import CharClassTokenCounter

from .recalling import entries_of


async def pins_of(records: Records, held: Context, entries: Sequence[int], *, window: int) -> list[Pin]:
    """The pins to add for these entries. Raises PinRefused for what cannot be pinned."""
    last = held.state.next - 1
    numbers = sorted(n for n in {*held.state.pins, *entries} if 1 <= n <= last)
    found = {entry.n: entry for entry in await entries_of(records, held, numbers)}
    counter = CharClassTokenCounter()

    def size(entry: Entry) -> int:
        return counter.measure([entry_message(entry, None, held.known)])

    return pinned(held.state.pins, entries, last=last, entry=found.get, size=size, window=window)
