"""One context in memory: its state, the entries that are shown, and what of it is not stored yet. Touches only its
arguments; it has one owner, who alone changes it and writes what it hands out.

Whatever changes is a value that is replaced, so a write that failed is undone by going back to the last stored one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from agentd.records import Add, Row, Save, Write
from agentkit.core.contracts.counting import SyncTokenCounter
from agentkit.core.contracts.errors import Corrupt
from agentkit.core.contracts.jsontext import json_text
from agentkit.core.contracts.messages import Message
from agentkit.state.compaction import Ranges
from agentkit.state.compaction.ranges import minus, numbers_in, union

from .applying import Applied
from .messages import Known, entry_message, messages
from .record import (
    APART,
    MESSAGE_KINDS,
    ContextState,
    Control,
    Entry,
    Msg,
    entry_of,
)
from .rows import decode_entry, encode_apart, encode_entry, encode_state
from .showing import Showing
from .view import View, advance, of_state, restored, with_view

STATE, LOG = "context", "log"
"""Kinds of a context's state row and of its log."""


@dataclass(frozen=True)
class Stored:
    """What of a context is in the store: its rows by kind, and the state that they hold."""

    state: ContextState
    rows: Mapping[str, Row]


class Context:
    """A context while it is in memory. Entries that a reduction took out of the view leave memory with the next
    `forget`; they stay in the log."""

    def __init__(self, state: ContextState, counter: SyncTokenCounter, stored: Stored | None = None) -> None:
        self.state = state
        self.known: Known = {}
        """Messages that were made of entries, so that each is converted and counted once."""
        self._counter = counter
        self._stored = stored
        self._entries: dict[int, Entry] = {}
        self._pending: list[Entry] = []
        self._is_loaded = state.next == 1
        self.showing = Showing(counter, self._entries_get, self.known)
        """The messages of the current view, carried on while it grows."""

    def _entries_get(self, n: int) -> Entry | None:
        return self._entries.get(n)

    @property
    def id(self) -> str:
        return self.state.id

    @property
    def is_dirty(self) -> bool:
        """Whether something is not stored yet."""
        return bool(self._pending) or self._stored is None or self.state is not self._stored.state

    @property
    def is_new(self) -> bool:
        """Whether nothing of it was ever stored."""
        return self._stored is None

    @property
    def is_loaded(self) -> bool:
        """Whether the shown entries are in memory."""
        return self._is_loaded

    @property
    def entries(self) -> list[Entry]:
        """The entries in memory, in order: those that are shown, and what came since it was loaded."""
        return list(self._entries.values())

    def entry(self, n: int) -> Entry | None:
        """An entry that is in memory."""
        return self._entries.get(n)

    @property
    def view(self) -> View:
        return of_state(self.state)

    # Loading

    def missing(self) -> Ranges:
        """The numbers whose entries have to be read from the log before the context can be shown."""
        if self._is_loaded:
            return ()
        visible, last = self.state.view, self.state.next - 1
        ranges = visible.ranges
        if visible.tail is not None and visible.tail <= last:
            ranges = union(ranges, ((visible.tail, last),))
        held = tuple((n, n) for n in self._entries)
        return minus(ranges, union(held)) if held else ranges

    def load(self, lines: Iterable[bytes], *, first: int) -> None:
        """Take in lines of the log, beginning with entry `first`. Raises Corrupt or FormatError naming the entry."""
        for n, line in enumerate(lines, first):
            entry = decode_entry(line, where=f"entry {n} of context {self.id!r}")
            if entry.n != n:
                raise Corrupt(f"entry {n} of context {self.id!r} says that it is entry {entry.n}")
            self._entries[n] = entry

    def loaded(self) -> None:
        """All that `missing` named is there. Raises Corrupt, naming the first entry that the log does not have."""
        for n in numbers_in(self.missing()):
            raise Corrupt(f"the log of context {self.id!r} has no entry {n}, which its state row shows")
        self._entries = dict(sorted(self._entries.items()))
        self._is_loaded = True
        self.recount()

    def recount(self) -> None:
        """The estimate by what is really there: the row may be of a release that counted otherwise, or entries shown
        in another way."""
        clean = not self.is_dirty
        shown = messages(self.view, self._entries.values(), context=self.id, known=self.known)
        # One by one, as they are added when entries come, or a restart would change the figure by its rounding.
        found = sum(self._counter.measure([one.message]) for one in shown) + self._plan_size(self.state.plan)
        if found == self.state.est_tokens:
            return
        self.state = msgspec.structs.replace(self.state, est_tokens=found)
        if clean and self._stored is not None:
            self._stored = Stored(self.state, self._stored.rows)

    def _plan_size(self, plan: Any) -> int:
        return 0 if plan is None else self._counter.measure([Message("user", json_text(plan))])

    def forget(self) -> None:
        """Let go of what is stored and not shown any more."""
        shown, waiting = self.view, {entry.n for entry in self._pending}
        gone = [n for n in self._entries if not shown.shows(n) and n not in waiting]
        for n in gone:
            del self._entries[n]
        marks = self.state.view.marks
        for key in [key for key in self.known if key[0] not in self._entries or key[1] != marks.get(key[0])]:
            del self.known[key]

    # Changes

    def append(
        self,
        body: Msg | Control,
        *,
        now: int,
        turn: str | None = None,
        round: int | None = None,
        source: str | None = None,
    ) -> Entry:
        """Add one entry to the log, and to the view what it does to it. A `Restore` needs the older view: `restore`."""
        made = entry_of(self.state.next, body, ts=now, turn=turn, round=round, source=source)
        if made.kind in MESSAGE_KINDS:
            est = self._counter.measure([entry_message(made, None, self.known)])
            made = msgspec.structs.replace(made, est=est)
            state = msgspec.structs.replace(
                self.state, next=made.n + 1, est_tokens=self.state.est_tokens + est, updated=now
            )
        else:
            state = msgspec.structs.replace(with_view(self.state, advance(self.view, made)), updated=now)
            if state.plan is not self.state.plan:
                grown = self._plan_size(state.plan) - self._plan_size(self.state.plan)
                state = msgspec.structs.replace(state, est_tokens=max(self.state.est_tokens + grown, 0))
        self._take([made], state)
        return made

    def apply(self, applied: Applied) -> None:
        """Take over a reduction."""
        self._take(applied.entries, applied.state)

    def restore(self, old: View, body: Any, *, now: int) -> Entry:
        """Make the older view `old` the current one, by the control body `body`. Its entries may have to be loaded."""
        made = entry_of(self.state.next, body, ts=now)
        state = msgspec.structs.replace(with_view(self.state, restored(old, made)), anchor=None, updated=now)
        self._take([made], state)
        self._is_loaded = not self._unheld()
        if self._is_loaded:  # otherwise once its entries are there
            self.recount()
        return made

    def update(self, **fields: Any) -> None:
        """Replace fields of the state that no entry carries."""
        state = msgspec.structs.replace(self.state, **fields)
        if state != self.state:
            self.state = state

    def _take(self, entries: Sequence[Entry], state: ContextState) -> None:
        for entry in entries:
            self._entries[entry.n] = entry
            self._pending.append(entry)
        self.state = state

    def _unheld(self) -> bool:
        shown = self.view
        visible = self.state.view
        ranges = visible.ranges if visible.tail is None else union(visible.ranges, ((visible.tail, shown.last),))
        return any(n not in self._entries for n in numbers_in(ranges))

    # Storing

    def writes(self) -> list[Write]:
        """What has to be stored, all in one commit; nothing when nothing changed. Call `stored` once it is."""
        if not self.is_dirty:
            return []
        held = self._stored
        row = held.rows.get(STATE) if held is not None else None
        self.state = msgspec.structs.replace(self.state, seq=(row.seq if row is not None else 0) + 1)
        found: list[Write] = [Save(STATE, self.id, encode_state(self.state), row)]
        for name, data in self._apart_changes().items():
            found.append(Save(name, self.id, data, held.rows.get(name) if held is not None else None))
        if self._pending:
            lines = tuple(encode_entry(entry) for entry in self._pending)
            found.append(Add(LOG, self.id, self._pending[0].n, lines))
        return found

    def stored(self, rows: Iterable[Row]) -> None:
        """What `writes` handed out is stored, as these rows."""
        mine = {row.kind: row for row in rows if row.id == self.id and row.kind in (STATE, *APART)}
        held = self._stored.rows if self._stored is not None else {}
        fence = mine[STATE].fence if STATE in mine else self.state.fence
        self.state = msgspec.structs.replace(self.state, fence=fence)
        self._pending = []
        self._stored = Stored(self.state, {**held, **mine})

    def revert(self) -> None:
        """Go back to what is stored: a write failed."""
        for entry in self._pending:
            self._entries.pop(entry.n, None)
            for key in [key for key in self.known if key[0] == entry.n]:
                del self.known[key]
        self._pending = []
        if self._stored is not None:
            self.state = self._stored.state
            self._is_loaded = self._is_loaded and not self._unheld()

    def _apart_changes(self) -> dict[str, bytes]:
        """The fields stored apart that differ from what is stored; an emptied one as null. A field that is the same
        object is the same, so a turn that touched none of them encodes none."""
        before = self._stored.state if self._stored is not None else ContextState()
        changed = [name for name in APART if getattr(self.state, name) is not getattr(before, name)]
        if not changed:
            return {}
        now, was = encode_apart(self.state), encode_apart(before)
        return {name: now.get(name, b"null") for name in changed if now.get(name) != was.get(name)}
