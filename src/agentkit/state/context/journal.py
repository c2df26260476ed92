"""`MutationJournal`: an append-only log with a watermark, for streaming progress upward once. Touches only its
arguments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar

JournalEntryT = TypeVar("JournalEntryT")


class MutationJournal(Generic[JournalEntryT]):
    """What an agent did, in order. Entries behind the watermark are absorbed by the reader, those past it are not yet.

    Seed entries start committed. Entries are never rewritten, copied or deduplicated; applying one diff twice is the
    caller's fault. No lock of its own.
    """

    __slots__ = ("_committed", "_entries")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, entries: Iterable[JournalEntryT] = ()) -> None:
        self._entries: list[JournalEntryT] = list(entries)
        self._committed = len(self._entries)

    def record(self, entry: JournalEntryT) -> None:
        """Add one entry."""
        self._entries.append(entry)

    def apply(self, entries: Iterable[JournalEntryT]) -> None:
        """Add entries of another journal as they are; its own `view()` and failing generators are safe."""
        self._entries.extend(list(entries))

    def view(self) -> tuple[JournalEntryT, ...]:
        """All entries."""
        return tuple(self._entries)

    def diff(self) -> list[JournalEntryT]:
        """The entries past the watermark, in a fresh list."""
        return self._entries[self._committed :]

    def since(self, position: int) -> list[JournalEntryT]:
        """The entries from `position` on, in a fresh list."""
        return self._entries[position:]

    def has_uncommitted(self) -> bool:
        """Whether entries lie past the watermark."""
        return self._committed < len(self._entries)

    def mark_committed(self) -> None:
        """Move the watermark to the end."""
        self._committed = len(self._entries)

    @property
    def committed_index(self) -> int:
        """How many entries lie behind the watermark."""
        return self._committed

    def size(self) -> int:
        """How many entries there are."""
        return len(self._entries)

    def copy(self) -> MutationJournal[JournalEntryT]:
        """The same entries and watermark; later writes on one side do not show on the other."""
        return self.restore(self._entries, self._committed)

    @classmethod
    def restore(cls, entries: Iterable[Any], committed: int) -> MutationJournal[Any]:
        """A journal with its watermark at `committed`, between 0 and the number of entries (ValueError)."""
        journal: MutationJournal[Any] = cls(entries)
        if type(committed) is not int or not 0 <= committed <= len(journal._entries):
            raise ValueError(f"the watermark must be between 0 and {len(journal._entries)}, not {committed!r}")
        journal._committed = committed
        return journal

    def __getstate__(self) -> tuple[list[JournalEntryT], int]:
        return list(self._entries), self._committed

    def __setstate__(self, state: tuple[list[JournalEntryT], int]) -> None:
        self._entries, self._committed = state

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[JournalEntryT]:
        return iter(self.view())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MutationJournal):
            return NotImplemented
        return self._entries == other._entries and self._committed == other._committed

    def __repr__(self) -> str:
        return f"MutationJournal({self._entries!r}, committed={self._committed})"
