"""Reading what is stored, beside a running daemon or without one: contexts, logs, views, versions. Writes nothing.

Touches the records that are handed in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from agentd.context.messages import message_of, messages
from agentd.context.record import APART, Compaction, ContextState, Entry
from agentd.context.registry import NotYours, Status, status_of
from agentd.context.resident import LOG, STATE
from agentd.context.rows import decode_entry, decode_state
from agentd.context.view import View, ViewDifference, difference, versions, view
from agentd.records import Records
from agentkit.core.contracts.errors import Corrupt, FormatError
from agentkit.core.contracts.messages import Message
from agentkit.state.context import PrefixContext, WorkingContext
from agentkit.transcripts import Transcript, dumps

PAGE = 2_000
"""Log lines that are read at once."""


@dataclass(frozen=True)
class Unreadable:
    """A context whose rows cannot be read: damaged, or of a newer release."""

    id: str
    reason: str


@dataclass(frozen=True)
class VersionInfo:
    """One version of a context: what made it, the last entry it saw, how many entries it shows and covers."""

    version: int
    made_by: str
    until: int
    shown: int
    covered: int
    before: int
    after: int


class Reader:
    """What is stored of one instance's contexts."""

    def __init__(self, records: Records) -> None:
        self.records = records

    async def contexts(self) -> list[Status | Unreadable]:
        """All contexts, by id."""
        found: list[Status | Unreadable] = []
        for id in sorted(await self.records.ids(STATE)):
            try:
                found.append(status_of(await self.state(id)))
            except (Corrupt, FormatError) as error:
                found.append(Unreadable(id, str(error)))
        return found

    async def state(self, id: str) -> ContextState:
        """The state of a context. NotYours where there is none, Corrupt or FormatError where it cannot be read."""
        row = await self.records.get(STATE, id)
        if row is None:
            raise NotYours(f"there is no context {id!r}")
        apart = {}
        for name in APART:
            found = await self.records.get(name, id)
            if found is not None and found.state != b"null":
                apart[name] = found.state
        state = decode_state(row.state, apart, id=id)
        return msgspec.structs.replace(state, seq=row.seq, fence=row.fence)

    async def log(self, id: str, first: int = 1, last: int | None = None) -> list[Entry]:
        """Entries by number."""
        state = await self.state(id)
        end = state.next - 1 if last is None else min(last, state.next - 1)
        found: list[Entry] = []
        for start in range(max(first, 1), end + 1, PAGE):
            lines = await self.records.entries(LOG, id, start, min(start + PAGE - 1, end))
            found += [decode_entry(line, where=f"an entry of context {id!r}") for line in lines]
        return found

    async def view(self, id: str, version: int | None = None) -> tuple[View, list[Message]]:
        """What a version shows, and as messages. ValueError for one that there is not."""
        log = await self.log(id)
        shown = view(log, version)
        return shown, [one.message for one in messages(shown, log, context=id)]

    async def versions(self, id: str) -> list[VersionInfo]:
        """Every version and what made it."""
        log = await self.log(id)
        makers: dict[int, Entry] = {}
        for entry in log:
            made = getattr(entry.body, "version", None)
            if isinstance(made, int) and entry.kind in ("compaction", "mask", "clear", "restore"):
                makers[made] = entry
        found = []
        for one in versions(log):
            maker = makers.get(one.version)
            body = maker.body if maker is not None else None
            by = "start" if maker is None else _made_by(maker)
            before, after = (getattr(body, "before", 0), getattr(body, "after", 0)) if body is not None else (0, 0)
            shown = sum(1 for entry in log if entry.n <= one.last and entry.is_message and one.shows(entry.n))
            covered = sum(last - first + 1 for first, last in one.summary.covers)
            found.append(VersionInfo(one.version, by, one.last, shown, covered, before, after))
        return found

    async def diff(self, id: str, old: int, new: int | None = None) -> ViewDifference:
        """What a newer version shows differently."""
        log = await self.log(id)
        return difference(view(log, old), view(log, new))

    async def search(self, id: str, text: str, limit: int = 20) -> Sequence[tuple[int, str]]:
        """Entries that contain every word of `text`, folded or not: number and a piece of the text around the match."""
        await self.state(id)
        return [(hit.n, hit.excerpt) for hit in await self.records.search(LOG, id, text, limit)]

    async def export(self, id: str, version: int | None = None) -> str:
        """A context in agentkit's own transcript format: its whole log, or what a version showed."""
        if version is None:
            log = await self.log(id)
            found = [message_of(entry.body) for entry in log if entry.is_message]
        else:
            _, found = await self.view(id, version)
        context = WorkingContext(PrefixContext())
        context.extend(found)
        return dumps(Transcript("agentd", id, context=context, history=tuple(found)))


def _made_by(entry: Entry) -> str:
    body = entry.body
    if isinstance(body, Compaction):
        return f"tier {body.tier}{' without a model' if body.degraded else ''}"
    return f"tier {body.tier}" if entry.kind == "mask" else entry.kind
