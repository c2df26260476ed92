"""The lock file beside a database: who has the file to himself, or that several have it open. Touches that one file.

The operating system holds the lock for as long as the process lives, so a dead owner blocks nobody; the text in the
file only says who it is. The file itself stays, since removing it would let two processes lock two files of one name.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from agentkit.core.contracts.errors import Held, StoreError

if sys.platform != "win32":
    import fcntl

_STARTED = time.time()


class LockFile:
    """A lock on a database, taken at construction and freed by `close` or the end of the process.

    Raises Held, naming the holder, when the lock cannot be had at once.
    """

    def __init__(self, database: Path, *, exclusive: bool) -> None:
        if sys.platform == "win32":
            raise StoreError("a SQLiteStore needs the file locks of a POSIX system")
        path = database.with_name(database.name + ".lock")
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise StoreError(f"the lock file {path} cannot be opened: {error.strerror}") from error
        try:
            fcntl.flock(self._file, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _text(self._file)
            self.close()
            raise _refusal(database, holder) from None
        except OSError as error:
            self.close()
            raise StoreError(
                f"{path} cannot be locked: {error.strerror}; choose a file system that has locks"
            ) from error
        # Whoever left a text here is gone. A disk without room for a new one still gives the lock.
        with contextlib.suppress(OSError):
            os.ftruncate(self._file, 0)
            if exclusive:
                os.pwrite(self._file, json.dumps(_own_name()).encode(), 0)

    def take_turn(self) -> bool:
        """Whether this process is the next to write, of several that share the database. False when another one is.

        Only for fairness: who writes without pause has to line up again behind those who wait.
        """
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
        except OSError:
            return False
        return True

    def end_turn(self) -> None:
        with contextlib.suppress(OSError):
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1)

    def close(self, *, clear: bool = False) -> None:
        """Frees the lock; `clear` takes this process's name off it."""
        if self._file >= 0:
            with contextlib.suppress(OSError):
                if clear:
                    os.ftruncate(self._file, 0)
            os.close(self._file)
            self._file = -1


def _own_name() -> dict[str, str | int]:
    started = datetime.fromtimestamp(_STARTED, UTC).isoformat(timespec="seconds")
    return {"host": socket.gethostname(), "pid": os.getpid(), "started": started}


def _text(file: int) -> dict[str, object]:
    try:
        found = json.loads(os.pread(file, 4096, 0))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _refusal(database: Path, holder: dict[str, object]) -> Held:
    if holder:
        owner = f"process {holder.get('pid')} on {holder.get('host')}, started {holder.get('started')}"
        return Held(f"{database} belongs to {owner}; stop that process, or use another file", owner=owner)
    return Held(f"{database} is open in another process; close it there, or use another file")
