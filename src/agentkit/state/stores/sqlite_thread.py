"""A thread that owns one database connection and serves asyncio callers of any loop, in the order they came.

An event loop never waits for the disk here: a call is put into a queue, and its outcome comes back as one wake-up for
all calls that were served together. Cancelling a call that waits takes it out; one that is being served runs to its
end, before anything that is called later.
"""

from __future__ import annotations

import asyncio
import copy
import queue
import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import groupby
from typing import Any, TypeVar

from agentkit.core.contracts.errors import StoreError

from .sqlite_file import Transaction, patiently

T = TypeVar("T")

MAX_GROUP = 256
"""Calls in one transaction: enough to share a disk flush, few enough that the first of them does not wait long."""


class _Call:
    """One call on its way. `work` is what to call with the connection, or a value that `together` takes. `writes`: it
    belongs into a transaction."""

    __slots__ = ("error", "future", "loop", "result", "work", "writes")

    def __init__(self, work: Any, writes: bool) -> None:
        self.work, self.writes = work, writes
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()
        self.result: Any = None
        self.error: Exception | None = None

    @property
    def is_wanted(self) -> bool:
        return not self.future.cancelled()


class ConnectionThread:
    """`connect` opens the connection, in the thread, with the first call and again after it failed. `grouped`: writing
    calls that wait share a transaction. `closing` and `closed` run at the end, before and after the connection is
    closed. `told` makes the error that a caller gets of one that was raised. `together` does what is no function: it
    gets the values of calls that follow each other, in a transaction, and returns a result or StoreError for each, a
    StoreError meaning that nothing of it was written. `transaction` begins and ends what
    writes; `patience`: seconds that what reads waits for other processes."""

    def __init__(
        self,
        name: str,
        connect: Callable[[], sqlite3.Connection],
        *,
        told: Callable[[Exception], Exception],
        grouped: bool = False,
        transaction: Callable[[sqlite3.Connection], AbstractContextManager[None]] = Transaction,
        together: Callable[[sqlite3.Connection, Sequence[Any]], Sequence[Any]] = lambda db, values: (),
        patience: float = 0,
        closing: Callable[[], None] = lambda: None,
        closed: Callable[[], None] = lambda: None,
    ) -> None:
        self._name, self._connect, self._told = name, connect, told
        self._grouped, self._transaction, self._patience = grouped, transaction, patience
        self._together = together
        self._closing, self._closed = closing, closed
        self._queue: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._guard = threading.Lock()  # guards the three below
        self._thread: threading.Thread | None = None
        self._is_stopped = False
        self._ended: list[_Call] = []
        self.connection: sqlite3.Connection | None = None
        """Owned by the thread; kept here so that nothing closes it in a forked child."""

    def call(self, work: Callable[[sqlite3.Connection], T], *, writes: bool = False) -> asyncio.Future[T]:
        """`work(connection)`, run in the thread. A StoreError must be raised before `work` has written anything."""
        return self._post(_Call(work, writes))

    def carry_out(self, value: object) -> asyncio.Future[Any]:
        """What `together` makes of a value."""
        return self._post(_Call(value, True))

    def _post(self, call: _Call) -> asyncio.Future[Any]:
        with self._guard:
            if self._is_stopped:
                raise StoreError("this store was closed")
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
                self._thread.start()
            self._queue.put(call)
        return call.future

    def stop(self) -> None:
        """Takes no more calls; those that wait are still served. Does not wait for that."""
        with self._guard:
            if not self._is_stopped:
                self._is_stopped = True
                if self._thread is None:
                    self._closed()
                else:
                    self._queue.put(None)

    def join(self, timeout: float | None = None) -> None:
        """Waits until the thread has ended; never from an event loop."""
        if self._thread is not None:
            self._thread.join(timeout)

    async def ended(self) -> None:
        """Waits, after `stop`, until the connection is closed."""
        with self._guard:
            if self._thread is None or not self._thread.is_alive():
                return
            waiter = _Call(lambda db: None, False)
            self._ended.append(waiter)
        await waiter.future

    def _serve(self) -> None:
        while self._serve_waiting():
            pass
        self._closing()
        if self.connection is not None:
            self.connection.close()
            self.connection = None
        self._closed()
        with self._guard:
            ended, self._ended = self._ended, []
            self._thread = None
        self._deliver(ended)

    def _serve_waiting(self) -> bool:
        """Serves what waits, or the next call; False after the last. No result outlives its delivery here."""
        calls = [self._queue.get()]
        while len(calls) < MAX_GROUP and not self._queue.empty():
            calls.append(self._queue.get())
        wanted = [call for call in calls if call is not None and call.is_wanted]
        if wanted:
            try:
                if self.connection is None:
                    self.connection = self._connect()
            except Exception as error:
                for call in wanted:
                    call.error = copy.copy(error)  # one each: a traceback belongs to one task
            else:
                self._run(self.connection, wanted)
            self._deliver(wanted)
        return None not in calls

    def _run(self, db: sqlite3.Connection, calls: list[_Call]) -> None:
        if self._grouped and len(calls) > 1:
            try:
                with self._transaction(db):
                    for is_function, found in groupby(calls, lambda call: callable(call.work)):
                        if is_function:
                            for call in found:
                                self._call(db, call)
                        else:
                            self._carry_out(db, list(found))
                return
            except Exception:
                # One of them met a full disk or a value it cannot take. Nothing was written: each tries for itself, so
                # that only those fail which have to.
                for call in calls:
                    call.result = call.error = None
        for call in calls:
            try:
                if not callable(call.work):
                    with self._transaction(db):
                        self._carry_out(db, [call])
                elif call.writes:
                    with self._transaction(db):
                        call.result = call.work(db)
                else:
                    call.result = patiently(partial(call.work, db), self._patience)
            except Exception as error:
                call.error = error

    def _call(self, db: sqlite3.Connection, call: _Call) -> None:
        try:
            call.result = call.work(db)
        except StoreError as refusal:  # raised before anything was written: the others go on
            call.error = refusal

    def _carry_out(self, db: sqlite3.Connection, calls: Sequence[_Call]) -> None:
        found = self._together(db, [call.work for call in calls])
        for call, outcome in zip(calls, found, strict=True):
            if isinstance(outcome, StoreError):
                call.error = outcome
            else:
                call.result = outcome

    def _deliver(self, calls: list[_Call]) -> None:
        by_loop: dict[asyncio.AbstractEventLoop, list[_Call]] = {}
        for call in calls:
            if call.error is not None:
                call.error = self._told(call.error)
            by_loop.setdefault(call.loop, []).append(call)
        for loop, own in by_loop.items():
            try:
                loop.call_soon_threadsafe(_settle, own)
            except RuntimeError:  # that loop is closed, and nobody waits any more
                continue


def _settle(calls: list[_Call]) -> None:
    for call in calls:
        if not call.future.done():
            if call.error is None:
                call.future.set_result(call.result)
            else:
                call.future.set_exception(call.error)
