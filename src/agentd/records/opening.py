"""Opening the store that the settings name, and looking at the room on its disk. Touches its folder and file."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from agentd.config import Settings
from agentkit.core.contracts.errors import StoreError
from agentkit.core.contracts.ports import Clock
from agentkit.state.stores import InMemoryStore, SQLiteStore

FILE = "agentd.db"
"""The database in the store's folder."""


class NoRoom(StoreError):
    """The disk of the store has less free space than store.min_free."""


async def open_store(
    settings: Settings, environ: Mapping[str, str], *, read_only: bool = False, clock: Clock = time.time
) -> InMemoryStore | SQLiteStore:
    """The store of the settings, open. `clock` in seconds; `read_only`: beside a daemon that may be running.

    Raises Held while another process has it, StoreError naming the folder or file for anything else that is wrong.
    """
    kind = settings.store_kind
    if kind == "memory":
        if read_only:
            raise StoreError("store.kind is memory, which ends with its process: there is nothing to look into")
        return InMemoryStore(clock)
    if kind != "sqlite":
        raise StoreError(f"store.kind {kind!r} is not in this release; sqlite and memory are")
    path = settings.store_folder(environ) / FILE
    if read_only:
        require_store(settings, environ)
    else:
        _make_folder(path.parent)
    store = SQLiteStore(path, exclusive=not read_only, clock=clock, read_only=read_only)
    try:
        await store.open()
    except BaseException:
        await store.aclose()
        raise
    return store


def require_room(
    path: Path | None, min_free: int, *, free: Callable[[Path], int] = lambda path: shutil.disk_usage(path).free
) -> None:
    """NoRoom when the disk of `path` has fewer than `min_free` bytes left; None, for no disk, always has room.

    `free`: bytes that are left on the disk of a path.
    """
    if path is not None and (left := free(path)) < min_free:
        raise NoRoom(
            f"the disk of {path} has {left:,} bytes left, less than the {min_free:,} of store.min_free: free some"
        )


def require_store(settings: Settings, environ: Mapping[str, str]) -> None:
    """StoreError where the settings' SQLite store was not made yet."""
    path = settings.store_folder(environ) / FILE
    if not path.exists():
        raise StoreError(f"there is no store at {path}: nothing was stored yet, or store.path names another folder")


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"the store's folder {folder} cannot be made: {error.strerror}; make it, or name another in store.path"
        ) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise StoreError(
            f"the store's folder {folder} cannot be written to; give this user access, or name another in store.path"
        )
