"""The Store port over one SQLite file. Touches that file, its lock file and a clock, from threads of its own."""

from __future__ import annotations

import builtins
import os
import sqlite3
import time
import weakref
from collections.abc import Awaitable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from agentkit.core.contracts.ports import Clock, Hit, Lease, StoreCapabilities

from . import sqlite_schema as sql
from .find import Query, searchable
from .rules import (
    Body,
    Claim,
    Held,
    Step,
    check_claim,
    check_count,
    check_key,
    check_lease,
    check_page,
    check_seconds,
    check_text,
    is_current,
    is_free,
    is_over,
    require_log,
    require_value,
    unpack,
)
from .single import SingleKeyCalls
from .sqlite_engine import SQLiteEngine
from .sqlite_file import Snapshot
from .sqlite_index import Index
from .sqlite_writes import Write

MAX_VALUE = 500_000_000
"""Bytes; SQLite as it is usually built takes rows up to 1,000,000,000."""

LEVELS = ("NORMAL", "FULL", "EXTRA")
"""Of `synchronous`: below NORMAL an acknowledged write could be lost, or the file, when the power fails."""

END_OF_KEYS = "\U0010ffff" * 513
"""Behind every key in code point order, since no key is as long."""


class SQLiteStore(SingleKeyCalls):
    """Values and logs in one file, durable when acknowledged. Opened with the first call, or by `open`.

    Several processes may open the file, and each call is a transaction. With `exclusive=True` one process has it to
    itself, under a lock file that names it: waiting writes share a transaction and a disk flush, reads go on beside
    them, and texts are indexed for `search` as they are written. `read_only=True` reads a file beside its owner.

    `clock`: seconds since the epoch, for lifetimes and leases. `synchronous`: NORMAL, FULL or EXTRA; with FULL an
    acknowledged write survives a power failure, with NORMAL in an exclusive store the last ones may not. `timeout`:
    seconds to wait for other processes. Usable from any number of event loops, one after the other or at once.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        exclusive: bool = False,
        clock: Clock = time.time,
        synchronous: str = "FULL",
        *,
        read_only: bool = False,
        timeout: float = 30.0,
        max_value: int = MAX_VALUE,
    ) -> None:
        if synchronous not in LEVELS:
            raise ValueError(f"synchronous must be one of {', '.join(LEVELS)}, not {synchronous!r}")
        if exclusive and read_only:
            raise ValueError("a store is opened exclusively to write to it; choose exclusive or read_only")
        check_seconds(timeout, "timeout")
        check_count(max_value, "max_value")
        name = os.fspath(path)
        if not name or name == ":memory:" or name.startswith("file:"):
            raise ValueError(f"{name!r} is no path of a file; an InMemoryStore keeps nothing on disk")
        super().__init__(
            clock,
            StoreCapabilities(durable=True, shared=not exclusive, lease=True, search=True, max_value=max_value),
        )
        self._engine = SQLiteEngine(Path(name).absolute(), exclusive, read_only, synchronous, timeout)
        self._finalizer = weakref.finalize(self, self._engine.stop)
        self._finalizer.atexit = False  # the engine sees to the end of the process, and waits for its threads

    @property
    def path(self) -> Path:
        return self._engine.path

    async def open(self) -> None:
        """Opens the file now, so that a wrong path, a lock or damage shows here and not at the first use."""
        await self._engine.read(lambda db, index: None)

    async def aclose(self) -> None:
        """Finishes the calls that were made, closes the file and frees the lock; later calls raise StoreError."""
        await self._engine.aclose()

    async def list(self, key: str, *, start: int = 0, stop: int | None = None) -> builtins.list[Any]:
        check_key(key)
        first = min(check_count(start, "start"), sql.MAX_POSITION)
        last = sql.MAX_POSITION if stop is None else min(check_count(stop, "stop") - 1, sql.MAX_POSITION)
        now = self._clock()

        def read(db: sqlite3.Connection, index: Index) -> builtins.list[Any]:
            with Snapshot(db):
                log = _log_of(db, key, now)
                if log is None or last < first:
                    return []
                base = log << sql.POSITION_BITS
                rows = db.execute(sql.ITEMS, (base | first, base | last)).fetchall()
            return [unpack(body, key, item - base) for item, body in rows]

        return await self._engine.read(read)

    async def keys(self, prefix: str = "", *, after: str | None = None, limit: int | None = None) -> builtins.list[str]:
        check_page(prefix, after, limit)
        asked = {
            "first": prefix if after is None else max(prefix, after + "\0"),
            "end": _behind(prefix),
            "now": self._clock(),
            "limit": -1 if limit is None else min(limit, MAX_VALUE),  # SQLite has integers of 64 bits
        }
        return await self._engine.read(lambda db, index: [key for (key,) in db.execute(sql.KEYS, asked)])

    async def lease(self, name: str, owner: str, ttl: float) -> Lease | None:
        """The right to write under `name`, or None while another owner has it. `ttl` in seconds.

        An exclusive store frees the leases of its predecessor when it is opened: whoever held them is gone.
        """
        seconds, now, books = check_claim(name, owner, ttl), self._clock(), self._engine.books

        def grant(db: sqlite3.Connection, index: Index) -> Lease | None:
            if not is_free(books.claim(db, name), owner, now):
                return None
            fence = books.version(db) + 1
            books.give_out(fence)
            books.set_claim(db, name, Claim(owner, fence, now + seconds))
            return Lease(name, owner, fence, seconds)

        return await self._engine.write(grant)

    async def renew(self, lease: Lease) -> bool:
        """Whether the lease is still the current one; it then lasts for its ttl from now."""
        return await self._settle_claim(lease, Claim(lease.owner, lease.fence, self._clock() + lease.ttl))

    async def release(self, lease: Lease) -> bool:
        """Gives a lease up; False when it was not the current one."""
        return await self._settle_claim(lease, Claim(None, lease.fence, 0.0))

    async def _settle_claim(self, lease: Lease, claim: Claim) -> bool:
        check_lease(lease)
        books = self._engine.books

        def settle(db: sqlite3.Connection, index: Index) -> bool:
            if not is_current(books.claim(db, lease.name), lease):
                return False
            books.set_claim(db, lease.name, claim)
            return True

        return await self._engine.write(settle)

    async def search(self, key: str, text: str, limit: int = 20) -> Sequence[Hit]:
        """Items of a log that contain every word of `text`, in any case, the newest first; none for a blank text.

        Words of three characters and more are looked up in the index of an exclusive store; all else is a scan.
        """
        check_key(key)
        query, now = Query(check_text(text)), self._clock()
        check_count(limit, "limit")

        def find(db: sqlite3.Connection, index: Index) -> builtins.list[Hit]:
            hits: builtins.list[Hit] = []
            with Snapshot(db):
                log = _log_of(db, key, now)
                if log is None or not limit or not query.words:
                    return hits
                base = log << sql.POSITION_BITS
                with closing(index.candidates(db, query.trigrams, base)) as candidates:
                    for item, body in candidates:
                        excerpt = query.excerpt(searchable(body))
                        if excerpt is not None:
                            hits.append(Hit(key, item - base, excerpt))
                            if len(hits) == limit:
                                break
            return hits

        return await self._engine.search(find)

    async def _read(self, key: str, now: float) -> tuple[Body, int] | None:
        def read(db: sqlite3.Connection, index: Index) -> tuple[Body, int] | None:
            row = db.execute(sql.READ, (key,)).fetchone()
            if row is None or is_over(row[2], now):
                return None
            version, log, _, body = row
            require_value(key, Held(length=1) if log is not None else Held(version))
            return body, version

        return await self._engine.read(read)

    def _write(self, steps: builtins.list[Step], now: float, fence: Lease | None) -> Awaitable[tuple[int, ...]]:
        return self._engine.carry_out(Write(steps, now, fence))


def _log_of(db: sqlite3.Connection, key: str, now: float) -> int | None:
    """The number of a log, None where nothing is; StoreError where a value is."""
    row = db.execute(sql.HOLD, (key,)).fetchone()
    if row is None:
        return None
    version, log, deadline = row
    if log is None and not is_over(deadline, now):
        require_log(key, Held(version))
    return None if log is None else int(log)


def _behind(prefix: str) -> str:
    """The first text in code point order behind all that begin with `prefix`."""
    head = prefix.rstrip("\U0010ffff")
    if not head:
        return END_OF_KEYS
    following = ord(head[-1]) + 1
    return head[:-1] + chr(0xE000 if following == 0xD800 else following)
