"""A SQLite file as a store's: opened, checked, brought up to date, and its errors told apart. Touches that file.

Journal modes follow from a bug: SQLite 3.7.0 to 3.51.2, but for 3.50.7 and 3.44.6 and later of their lines, can damage
a database in WAL mode when two connections write or checkpoint at the same instant. So several processes use WAL only
with a repaired SQLite; otherwise, and always in an older file, they use the rollback journal. One process alone uses
WAL with any version, since one connection of one thread does all writing and checkpointing.
"""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from agentkit.core.contracts.errors import Corrupt, StoreError, TooLarge

from . import sqlite_schema as sql
from .lockfile import LockFile
from .sqlite_books import Books

T = TypeVar("T")

MAX_TURN = 0.5
"""Seconds to wait for a turn; the one whose turn it is may have been stopped, or the file system have no such locks."""

_ERRORS: dict[str, tuple[type[StoreError], str]] = {
    "SQLITE_BUSY": (StoreError, "another process kept it locked for too long; nothing was written, try again"),
    "SQLITE_LOCKED": (StoreError, "it is locked by another connection; nothing was written, try again"),
    "SQLITE_FULL": (StoreError, "the disk is full; nothing of this call was written, free some space and try again"),
    "SQLITE_READONLY": (StoreError, "it can only be read; check the permissions of the file and its folder"),
    "SQLITE_PERM": (StoreError, "access was refused; check the permissions of the file and its folder"),
    "SQLITE_CANTOPEN": (StoreError, "it cannot be opened; check that its folder exists and may be written to"),
    "SQLITE_IOERR": (StoreError, "the disk failed; whether this call was written shows when it is read back"),
    "SQLITE_TOOBIG": (TooLarge, "the value is larger than SQLite takes"),
    "SQLITE_NOTADB": (Corrupt, "it is no SQLite database; restore it from a backup, or use another file"),
    "SQLITE_CORRUPT": (
        Corrupt,
        "it is damaged; restore it from a backup, or save what can be read: sqlite3 FILE .recover | sqlite3 NEW_FILE",
    ),
}
"""By the primary name of SQLite's result code. A code that is not here is a StoreError with SQLite's own words."""


def as_store_error(error: Exception, path: Path) -> Exception:
    """What a caller is told of an exception; one that is none of SQLite's is passed on."""
    if isinstance(error, sqlite3.DataError):
        return TooLarge(f"{path}: the value is larger than SQLite takes ({error})")
    if not isinstance(error, sqlite3.Error):
        return error
    if str(error).startswith("Could not decode"):  # Python's own, without a code
        return Corrupt(f"{path}: it holds text that is no UTF-8 and cannot be read; restore it from a backup")
    name = getattr(error, "sqlite_errorname", "") or ""
    primary = "_".join(name.split("_")[:2])
    kind, meaning = _ERRORS.get(primary, (StoreError, str(error)))
    told = kind(f"{path}: {meaning}" + (f" ({error}, {name})" if primary in _ERRORS else ""))
    told.__cause__ = error
    return told


def is_wal_safe(version: tuple[int, ...]) -> bool:
    """Whether several processes may use WAL with this version of SQLite."""
    return version >= (3, 51, 3) or (3, 50, 7) <= version < (3, 51) or (3, 44, 6) <= version < (3, 45)


def connect(path: Path, *, writable: bool) -> sqlite3.Connection:
    """A connection that does not wait for others: see `patiently`."""
    mode = "rwc" if writable else "ro"
    db = sqlite3.connect(f"{path.as_uri()}?mode={mode}", uri=True, timeout=0, isolation_level=None)
    try:
        db.execute("PRAGMA temp_store = MEMORY")
        db.execute("PRAGMA cache_size = -16000")  # KiB
    except BaseException:
        db.close()
        raise
    return db


def open_for_writing(path: Path, *, exclusive: bool, synchronous: str, timeout: float) -> sqlite3.Connection:
    """A connection to a store of the current form, made or brought up to date if need be.

    Raises StoreError for the database of another program or of a newer release; it is then left as it was.
    """
    if path.is_dir():
        raise StoreError(f"{path} is a folder; a store needs the path of a file in it")
    return patiently(lambda: _open(path, exclusive, synchronous), timeout)


def _open(path: Path, exclusive: bool, synchronous: str) -> sqlite3.Connection:
    db = connect(path, writable=True)
    try:
        found = check_identity(db, path)
        _set_journal(db, path, exclusive=exclusive, is_new=found == 0)
        db.execute(f"PRAGMA synchronous = {synchronous}")
        db.execute("PRAGMA journal_size_limit = 67108864")  # bytes; the log is cut back to it after a large transaction
        _migrate(db, path)
    except BaseException:
        db.close()
        raise
    return db


def open_for_reading(path: Path, *, timeout: float) -> sqlite3.Connection:
    return patiently(lambda: _open_read_only(path), timeout)


def _open_read_only(path: Path) -> sqlite3.Connection:
    db = connect(path, writable=False)
    try:
        if check_identity(db, path) != sql.VERSION:
            raise StoreError(f"{path} is no store yet, or of an older form: open it for writing once")
    except BaseException:
        db.close()
        raise
    return db


def check_identity(db: sqlite3.Connection, path: Path) -> int:
    """The version of the file's form, 0 for a new file; StoreError when it is not for this release to touch."""
    (application,) = db.execute("PRAGMA application_id").fetchone()
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if application != sql.APPLICATION_ID:
        (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if application or version or tables:
            raise StoreError(f"{path} is another program's database and was left as it is; use another file")
        return 0
    if version > sql.VERSION:
        raise StoreError(
            f"{path} has form {version}, this release reads up to {sql.VERSION}; it was left as it is: "
            "open it with the release that wrote it, or a newer one"
        )
    return int(version)


def _set_journal(db: sqlite3.Connection, path: Path, *, exclusive: bool, is_new: bool) -> None:
    (mode,) = db.execute("PRAGMA journal_mode").fetchone()
    if exclusive or (is_wal_safe(sqlite3.sqlite_version_info) and (is_new or mode == "wal")):
        wanted = "wal"
    else:
        # Unlike "delete", its end of a commit is on the disk at the level FULL: a power cut cannot take it back.
        wanted = "truncate"
    (mode,) = db.execute(f"PRAGMA journal_mode = {wanted}").fetchone()
    if mode != wanted:
        raise StoreError(
            f"{path} is in journal mode {mode!r} and cannot be taken to {wanted!r} while others have it open "
            f"(SQLite {sqlite3.sqlite_version}); close it there first"
        )


def _migrate(db: sqlite3.Connection, path: Path) -> None:
    if check_identity(db, path) == sql.VERSION:
        return
    with Transaction(db):
        # Looked at once more under the lock: another process may have done it meanwhile.
        for number in range(check_identity(db, path), sql.VERSION):
            sql.MIGRATIONS[number](db)
            db.execute(f"PRAGMA user_version = {number + 1}")


def patiently(act: Callable[[], T], seconds: float) -> T:
    """`act()`, again and again while another process has the file locked, up to so many seconds.

    SQLite's own waiting sleeps up to 100 ms between two looks. A process that writes without pause leaves gaps of less
    than one, so that the other would wait for seconds, or for ever.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            return act()
        except sqlite3.OperationalError as error:
            name = getattr(error, "sqlite_errorname", "")
            if not name.startswith("SQLITE_BUSY") or time.monotonic() >= deadline:
                raise
        _pause()


def _pause() -> None:
    time.sleep(random.uniform(0.0002, 0.002))


class Transaction:
    """A transaction that writes: all or nothing, the lock taken at its start so that it never has to be given up.
    `patience`: seconds to wait for other processes, with which this one takes turns by their `lock`; `books`: what is
    still to be written at its end."""

    def __init__(
        self, db: sqlite3.Connection, patience: float = 0, lock: LockFile | None = None, books: Books | None = None
    ) -> None:
        self._db, self._patience, self._lock, self._books = db, patience, lock, books

    def __enter__(self) -> None:
        if self._lock is None:
            self._db.execute("BEGIN IMMEDIATE")
            return
        end = time.monotonic() + min(self._patience, MAX_TURN)
        while not self._lock.take_turn() and time.monotonic() < end:
            _pause()
        try:
            patiently(lambda: self._db.execute("BEGIN IMMEDIATE"), self._patience)
        finally:
            self._lock.end_turn()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        try:
            if kind is None:
                if self._books is not None:
                    self._books.close(self._db)
                patiently(lambda: self._db.execute("COMMIT"), self._patience)
        finally:
            if self._books is not None:
                self._books.forget()
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")


class Snapshot:
    """Several reads that see one state."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def __enter__(self) -> None:
        self._db.execute("BEGIN")

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")
