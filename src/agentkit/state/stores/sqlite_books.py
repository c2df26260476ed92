"""What a transaction has read of versions and leases, and what it has still to write of them: calls that share it read
and write each once. Works on the connection that it is given, inside the transaction.
"""

from __future__ import annotations

import sqlite3

from . import sqlite_schema as sql
from .rules import Claim

SWEPT = 32
"""Values past their time that a call removes at most, so that removing keeps up with writing and holds nobody up."""


class Books:
    """Of one connection; `close` before the transaction's end, `forget` behind it, however it ended."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self._version: int | None = None
        self._is_raised = False
        self._claims: dict[str, Claim | None] = {}
        self._calls, self._now = 0, 0.0

    def version(self, db: sqlite3.Connection) -> int:
        """The last version that was given out."""
        if self._version is None:
            self._version = int(db.execute(sql.COUNTER, ("version",)).fetchone()[0])
        return self._version

    def give_out(self, version: int) -> None:
        """Versions up to this one are given out."""
        self._is_raised = self._is_raised or version != self._version
        self._version = version

    def claim(self, db: sqlite3.Connection, name: str) -> Claim | None:
        """What is known of a lease name."""
        if name not in self._claims:
            row = db.execute(sql.CLAIM, (name,)).fetchone()
            self._claims[name] = None if row is None else Claim(*row)
        return self._claims[name]

    def set_claim(self, db: sqlite3.Connection, name: str, claim: Claim) -> None:
        db.execute(sql.SET_CLAIM, (name, *claim))
        self._claims[name] = claim

    def called(self, now: float) -> None:
        """A call has written; what is past its time then may go."""
        self._calls, self._now = self._calls + 1, max(self._now, now)

    def close(self, db: sqlite3.Connection) -> None:
        """Write what is left to write."""
        if self._is_raised:
            db.execute(sql.SET_COUNTER, (self._version, "version"))
        if self._calls:
            db.execute(sql.SWEEP, (self._now, SWEPT * self._calls))
