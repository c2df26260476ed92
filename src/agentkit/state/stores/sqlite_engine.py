"""The lock, connections and threads of one SQLite store, from its first call to its end. Touches its file.

One thread owns the connection that writes and checkpoints. An exclusive store has two more, which only read: one for
single calls, one for searches, which may take long. Where several processes share the file, one connection does all.
"""

from __future__ import annotations

import atexit
import os
import sqlite3
import weakref
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from agentkit.core.contracts.errors import StoreError

from . import sqlite_schema as sql
from .lockfile import LockFile
from .sqlite_books import Books
from .sqlite_file import Transaction, as_store_error, open_for_reading, open_for_writing, patiently
from .sqlite_index import Index
from .sqlite_thread import ConnectionThread
from .sqlite_writes import Write, carry_out

T = TypeVar("T")


class SQLiteEngine:
    """Runs a store's work where it belongs. Holds no reference to the store, so that a forgotten one is closed."""

    def __init__(self, path: Path, exclusive: bool, read_only: bool, synchronous: str, timeout: float) -> None:
        self.path, self._exclusive, self._read_only = path, exclusive, read_only
        self._synchronous, self._timeout = synchronous, timeout
        self._set_up()
        _RUNNING.add(self)

    def _set_up(self) -> None:
        self._pid = os.getpid()
        self._lock: LockFile | None = None
        self._index, self.books = Index(), Books()
        # The writer serves everything where only one connection may be busy at a time.
        self._writer = self._thread(
            "writer", self._open_writer, grouped=self._exclusive, closing=self._close_readers, closed=self._unlock
        )
        self._reader = self._thread("reader", self._open_reader) if self._exclusive else self._writer
        self._finder = self._thread("finder", self._open_reader) if self._exclusive else self._writer

    def _thread(
        self,
        role: str,
        connect: Callable[[], sqlite3.Connection],
        *,
        grouped: bool = False,
        closing: Callable[[], None] = lambda: None,
        closed: Callable[[], None] = lambda: None,
    ) -> ConnectionThread:
        return ConnectionThread(
            f"agentkit-sqlite-{role}",
            connect,
            told=lambda error: as_store_error(error, self.path),
            grouped=grouped,
            transaction=self._transaction,
            together=self._carry_out,
            patience=self._timeout,
            closing=closing,
            closed=closed,
        )

    def write(self, work: Callable[[sqlite3.Connection, Index], T]) -> Awaitable[T]:
        """Called, not only awaited, by who waits for it: the order of calls is that of the writes."""
        self._check_process()
        if self._read_only:
            raise StoreError(f"{self.path} was opened to be read only")
        return self._writer.call(lambda db: work(db, self._index), writes=True)

    def carry_out(self, write: Write) -> Awaitable[tuple[int, ...]]:
        """The numbers of a write, which shares its transaction and its statements with those that wait beside it."""
        self._check_process()
        if self._read_only:
            raise StoreError(f"{self.path} was opened to be read only")
        return self._writer.carry_out(write)

    def _carry_out(self, db: sqlite3.Connection, writes: Sequence[Any]) -> Sequence[Any]:
        return carry_out(db, self._index, self.books, writes)

    async def read(self, work: Callable[[sqlite3.Connection, Index], T]) -> T:
        return await self._on(lambda: self._reader, work)

    async def search(self, work: Callable[[sqlite3.Connection, Index], T]) -> T:
        return await self._on(lambda: self._finder, work)

    async def _on(self, thread: Callable[[], ConnectionThread], work: Callable[[sqlite3.Connection, Index], T]) -> T:
        self._check_process()
        if self._writer.connection is None:  # a reading connection alone would find no file, or an older form
            await self._writer.call(lambda db: None)
        return await thread().call(lambda db: work(db, self._index))

    def stop(self) -> None:
        """Ends the threads without waiting for them."""
        if self._pid == os.getpid():
            self._writer.stop()

    def join(self) -> None:
        self._writer.join(5)

    async def aclose(self) -> None:
        if self._pid == os.getpid():
            self._writer.stop()
            await self._writer.ended()

    def forget_parent(self) -> None:
        """In a forked child: connections and threads belong to the parent. They are left open, since closing them here
        would take its locks; this process opens its own."""
        _INHERITED.append((self._writer, self._reader, self._finder))
        if self._lock is not None:
            self._lock.close()
        self._set_up()

    def _check_process(self) -> None:
        if self._pid != os.getpid():  # forked without Python's hooks
            self.forget_parent()

    def _open_writer(self) -> sqlite3.Connection:
        if self._read_only:
            db = open_for_reading(self.path, timeout=self._timeout)
            patiently(lambda: self._index.look(db), self._timeout)
            return db
        if self._lock is None:
            self._lock = LockFile(self.path, exclusive=self._exclusive)
        try:
            db = open_for_writing(
                self.path, exclusive=self._exclusive, synchronous=self._synchronous, timeout=self._timeout
            )
            try:
                patiently(lambda: self._index.look(db), self._timeout)
                if self._exclusive:
                    self._index.catch_up(db)
                    db.execute(sql.FREE_CLAIMS)
            except BaseException:
                db.close()
                raise
        except BaseException:
            self._unlock()
            raise
        return db

    def _transaction(self, db: sqlite3.Connection) -> Transaction:
        if self._exclusive:
            return Transaction(db, books=self.books)
        return Transaction(db, self._timeout, self._lock, books=self.books)

    def _open_reader(self) -> sqlite3.Connection:
        return open_for_reading(self.path, timeout=self._timeout)

    def _unlock(self) -> None:
        if self._lock is not None:
            self._lock.close(clear=self._exclusive)
            self._lock = None

    def _close_readers(self) -> None:
        # The last connection to close folds the log into the file, and that has to be the one that writes.
        for thread in (self._reader, self._finder):
            if thread is not self._writer:
                thread.stop()
                thread.join()


_RUNNING: weakref.WeakSet[SQLiteEngine] = weakref.WeakSet()
_INHERITED: list[tuple[ConnectionThread, ...]] = []


def _stop_all() -> None:
    running = list(_RUNNING)
    for threads in running:
        threads.stop()
    for threads in running:
        threads.join()


def _forget_parents() -> None:
    for threads in list(_RUNNING):
        threads.forget_parent()


atexit.register(_stop_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_parents)
