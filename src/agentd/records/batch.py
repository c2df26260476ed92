"""One commit, before and after: the writes as steps of the store, and what they are worth once it answered, or did not.
Touches only its arguments."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from agentkit.core.contracts.errors import Conflict
from agentkit.core.contracts.ports import Append, Delete, Put

from .envelope import GONE, Row, encode, require_json
from .keys import Keys
from .writes import Add, Anything, Remove, Save, Write


class Stamp(msgspec.Struct, frozen=True):
    """What all envelopes of one commit have in common."""

    commit: str
    ts: int
    fence: int
    instance: str


class Batch:
    """The writes of one commit. ValueError or TypeError for what cannot be one."""

    def __init__(self, writes: Sequence[Write], keys: Keys, stamp: Stamp, *, can_delete: bool = True) -> None:
        self._stamp = stamp
        self.writes: list[Write] = []
        self.keys: list[str] = []
        self._kept: list[bool] = []
        self.unseen: list[int] = []
        """The places of rows that have to be looked at before, since their writer did not say what it saw."""
        rows: set[str] = set()
        for at, write in enumerate(writes):
            if isinstance(write, Save):
                require_json(write.state, write.kind, write.id)
                if isinstance(write.seen, Anything):
                    self.unseen.append(at)
            elif isinstance(write, Add):
                _require_lines(write)
            elif not isinstance(write, Remove):
                raise TypeError(f"a commit holds Save, Add and Remove, not {type(write).__name__}")
            key = (keys if write.scope is None else keys.within(write.scope)).key(write.kind, write.id)
            if not isinstance(write, Add):
                if key in rows:
                    raise ValueError(f"one commit writes a record once, this one writes {key!r} twice")
                rows.add(key)
            self.keys.append(key)
            self._kept.append(isinstance(write, Save))
            if can_delete or not isinstance(write, Remove):
                self.writes.append(write)
            else:
                self.writes.append(Save(write.kind, write.id, GONE, write.seen, write.scope))
                if isinstance(write.seen, Anything):
                    self.unseen.append(at)
        self._before: dict[int, Row | None] = {}
        self._made: dict[int, Row] = {}
        self._sent: list[int] = []

    @property
    def saves(self) -> list[int]:
        """The places of the writes that leave a row: tombstones too."""
        return [at for at, write in enumerate(self.writes) if isinstance(write, Save)]

    @property
    def rows_named(self) -> list[int]:
        """The places of all writes that are not about a log's lines."""
        return [at for at, write in enumerate(self.writes) if not isinstance(write, Add)]

    def look(self, at: int, row: Row | None) -> bool:
        """Take in what is there now, for a row of `unseen` or one that should be absent. Whether that is news."""
        write = self.writes[at]
        if not isinstance(write, Save) or isinstance(write.seen, Row):
            return False
        if write.seen is None and row is not None and not row.gone:
            return False
        before = self._before.get(at)
        self._before[at] = row
        return (before.version if before is not None else 0) != (row.version if row is not None else 0)

    def steps(self) -> list[Put | Append | Delete]:
        """What the store has to do, all or nothing."""
        steps: list[Put | Append | Delete] = []
        self._sent = []
        for at, (write, key) in enumerate(zip(self.writes, self.keys, strict=True)):
            if isinstance(write, Save):
                before = write.seen if isinstance(write.seen, Row) else self._before.get(at)
                if before is None and not self._kept[at]:
                    continue  # nothing is there to be removed
                stamp, seq = self._stamp, 1 if before is None else before.seq + 1
                made = Row(
                    write.kind, write.id, seq, write.state, stamp.ts, stamp.fence, stamp.commit,
                    unknown=None if before is None else before.unknown,
                )  # fmt: skip
                self._made[at] = made
                steps.append(Put(key, encode(made, stamp.instance), expected=0 if before is None else before.version))
            elif isinstance(write, Add):
                # Lines are bytes to the store: kept as they are, and searched by the strings inside their JSON, so that
                # a path or a quote is found as it was written. As text they would be encoded a second time, and found
                # with the escapes of the first.
                steps.append(Append(key, write.lines, at=write.first - 1))
            else:
                seen = write.seen
                steps.append(Delete(key, expected=seen.version if isinstance(seen, Row) else None))
            self._sent.append(at)
        return steps

    def rows(self, numbers: Sequence[int]) -> tuple[Row, ...]:
        """The rows of the saves once the store has answered `numbers` to the last `steps`."""
        found = zip(self._sent, numbers, strict=True)
        return tuple([_with_version(self._made[at], number) for at, number in found if self._kept[at]])

    # After an answer that did not come, or a conflict that may be one with this very commit

    def landed(self, found: dict[int, Row | None]) -> tuple[Row, ...] | None:
        """The rows of the saves, given what is at their places now; None when this commit did not write them.

        One that somebody else has written since comes back with version 0, which conflicts with whatever is there.
        """
        mine = {at: row for at, row in found.items() if row is not None and row.commit == self._stamp.commit}
        if not mine:
            return None
        return tuple(mine.get(at) or self._made[at] for at in self._sent if self._kept[at])

    def conflict(self, error: Conflict, rows: dict[int, Row | None]) -> Conflict:
        """A store's conflict in terms of records: seq instead of the store's version, the number of the next entry
        instead of a length."""
        at = next((at for at, key in enumerate(self.keys) if key == error.key), None)
        if at is None:
            return error
        write = self.writes[at]
        name = f"{write.kind}/{write.id}"
        if isinstance(write, Add):
            return Conflict(name, write.first, error.actual + 1)
        seen, row = write.seen, rows.get(at)
        return Conflict(name, seen.seq if isinstance(seen, Row) else 0, row.seq if row is not None else 0)


def _require_lines(write: Add) -> None:
    if type(write.first) is not int or write.first < 1:
        raise ValueError(f"entries of a log are numbered from 1 on, not {write.first!r}")
    for line in write.lines:
        if type(line) is not bytes:
            raise TypeError(f"a line of a log must be bytes, not {type(line).__name__}")


def _with_version(row: Row, version: int) -> Row:
    return Row(row.kind, row.id, row.seq, row.state, row.ts, row.fence, row.commit, version, row.unknown)
