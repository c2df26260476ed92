"""Recall over the log of one context: by number, or by words. Touches the records that are handed in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentd.context.recall import MAX_LIMIT, Recalled, RecallRefused, parsed_entries, says, told_entries
from agentd.context.record import Entry
from agentd.context.resident import LOG, Context
from agentd.context.rows import decode_entry
from agentd.context.view import View, view
from agentd.records import Records
from agentkit.core.contracts.counting import SyncTokenCounter
from agentkit.state.compaction.ranges import numbers_in
from agentkit.state.context import CharClassTokenCounter

FETCHED = 4
"""Hits that are looked at first for each one that is asked for: some only match what the record says beside the
message."""


async def recall(
    records: Records, held: Context, asked: Mapping[str, Any], counter: SyncTokenCounter | None = None
) -> Recalled:
    """Entries of this context, and of no other. `asked`: `query` or `entries`, and `version`, `limit`, `max_tokens`.

    `version`: only entries that it showed. Raises RecallRefused for what makes no sense.
    """
    query, entries = asked.get("query"), asked.get("entries")
    if (query is None) == (entries is None):
        raise RecallRefused("recall takes one of query (words) and entries (numbers such as 12-20,31)")
    limit = min(int(asked.get("limit") or 10), MAX_LIMIT)
    tokens = int(asked.get("max_tokens") or 4_000)
    last, counter = held.state.next - 1, counter or CharClassTokenCounter()
    older = await _version(records, held, asked.get("version"))
    if entries is not None:
        numbers = [n for n in numbers_in(parsed_entries(str(entries), last)) if older is None or older.shows(n)]
        found = await entries_of(records, held, numbers[: 4 * limit])
        return told_entries(found, held.view, counter=counter, limit=limit, max_tokens=tokens,
                            more=len(numbers) > 4 * limit)  # fmt: skip
    words = str(query).split()
    if not words:
        raise RecallRefused("a query needs at least one word")
    found, more = await _saying(records, held, words, limit, older)
    return told_entries(found, held.view, counter=counter, limit=limit, max_tokens=tokens, more=more)


async def _saying(
    records: Records, held: Context, words: list[str], limit: int, older: View | None
) -> tuple[list[Entry], bool]:
    """The newest `limit` messages that hold these words, oldest first, and whether there are more."""
    found: list[Entry] = []
    looked_at, wanted = 0, FETCHED * limit
    while True:
        hits = await records.search(LOG, held.id, " ".join(words), wanted)
        numbers = sorted(hit.n for hit in hits[looked_at:] if older is None or older.shows(hit.n))
        entries = await entries_of(records, held, numbers)
        found = [entry for entry in entries if entry.is_message and says(entry, words)] + found
        if len(found) > limit or len(hits) < wanted:
            return found[-limit:], len(found) > limit
        # What a record says beside its message may match in more entries than were asked for.
        looked_at, wanted = len(hits), 4 * wanted


async def _version(records: Records, held: Context, version: Any) -> View | None:
    if version is None:
        return None
    if int(version) == held.state.version:
        return held.view
    log = [decode_entry(line, where=f"an entry of context {held.id!r}") for line in await records.entries(LOG, held.id)]
    try:
        return view(log, int(version))
    except ValueError as error:
        raise RecallRefused(str(error)) from error


async def entries_of(records: Records, held: Context, numbers: list[int]) -> list[Entry]:
    """Entries by number, ascending: from memory where they are there, else in runs from the log."""
    found: dict[int, Entry] = {}
    missing = []
    for n in numbers:
        entry = held.entry(n)
        if entry is not None:
            found[n] = entry
        else:
            missing.append(n)
    while missing:
        first = last = missing.pop(0)
        while missing and missing[0] - last <= 8:
            last = missing.pop(0)
        for line in await records.entries(LOG, held.id, first, last):
            entry = decode_entry(line, where=f"an entry of context {held.id!r}")
            if entry.n in numbers:
                found[entry.n] = entry
    return [found[n] for n in sorted(found)]
