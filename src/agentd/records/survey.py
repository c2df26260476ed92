"""What a store holds and whether it can be read: `agentd check --store`. Touches the store that is handed in, and of a
SQLite store its file and lock, which it reads.

Goes through all tenants and generations of one instance, a page of keys at a time.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from agentkit.core.contracts.errors import Corrupt, FormatError, StoreError
from agentkit.state.stores import SQLiteStore
from agentkit.state.stores.sqlite_file import as_store_error, is_wal_safe, open_for_reading

from . import manifest
from .envelope import Row, decode
from .keys import Name, lease_name, name_of, part
from .ownership import Owner, holder, is_dead
from .records import ARTIFACT, Records

LOG = "log"
"""The kind whose records are logs, which have lines and no envelope."""

PAGE = 500
"""Keys that are listed at once."""

LINES = 2_000
"""Lines of a log that are read at once."""

UNREADABLE = (ValueError, RecursionError, Corrupt, FormatError, msgspec.MsgspecError)
"""What a record that cannot be read raises."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A record that cannot be read, and why. `entry`: the line of a log, by number."""

    name: Name
    reason: str
    entry: int | None = None


@dataclass(frozen=True, slots=True)
class DiskFile:
    """The file of a SQLite store. `size` in bytes, its write-ahead log included; `faults`: what SQLite's own check
    found, nothing in a sound file; `has_wal_bug`: this SQLite can damage a file that two connections write at once, so
    one connection alone has to write; `locked_by`: the process that has the file to itself."""

    path: Path
    size: int
    sqlite: str
    has_wal_bug: bool
    faults: tuple[str, ...]
    locked_by: str | None


@dataclass(frozen=True, slots=True)
class Survey:
    """`held_by`: who last signed for the lease, and until when (ms); `counts`: records by generation and kind, of all
    tenants, None where the store cannot list; `size`: bytes of rows and artifacts by kind; `lines`: lines of logs that
    were read; `indexed`: keys in an index that was made anew; `cut_short`: why not everything was looked at, which is
    damage of the store as a whole."""

    store: str
    file: DiskFile | None
    held_by: tuple[str, int] | None
    generation: int | None
    starts: int
    counts: Mapping[int, Mapping[str, int]] | None
    tombstones: int
    size: Mapping[str, int]
    unreadable: tuple[Unreadable, ...]
    lines: int = 0
    indexed: int | None = None
    cut_short: str | None = None

    @property
    def is_sound(self) -> bool:
        return not self.unreadable and not self.cut_short and (self.file is None or not self.file.faults)


@dataclass
class _Found:
    counts: dict[int, Counter[str]] = field(default_factory=dict)
    size: Counter[str] = field(default_factory=Counter)
    tombstones: int = 0
    lines: int = 0
    unreadable: list[Unreadable] = field(default_factory=list)


async def survey(
    records: Records,
    *,
    read: Callable[[Row], object] = lambda row: None,
    read_line: Callable[[bytes, int], object] | None = None,
    rebuild_index: Callable[[], Awaitable[int]] | None = None,
) -> Survey:
    """Look at everything that the instance of `records` has in its store, and read each row.

    `read`: reads the state of a row by its kind, and raises ValueError, Corrupt or FormatError for one that it cannot.
    `read_line`: the same for a line of a log and its number; logs are left out without it.
    `rebuild_index`: makes the list of memory keys anew where the store cannot list, and returns how many there are.
    """
    store = records.store
    file = await asyncio.to_thread(_look_at_file, store.path) if isinstance(store, SQLiteStore) else None
    indexed = None if rebuild_index is None else await rebuild_index()
    last = held = cut_short = None
    found = _Found()
    try:
        if records.abilities.list:
            await _check_all(records, read, read_line, found)
        held = await holder(store, lease_name(records.prefix, records.scope, records.instance))
    except Corrupt as error:
        cut_short = str(error)
    try:
        last = await manifest.read_manifest(records)
    except (Corrupt, FormatError) as error:
        if not records.abilities.list:  # else it is among the rows, and reported there
            cut_short = cut_short or str(error)
    counts = {generation: dict(sorted(found.counts[generation].items())) for generation in sorted(found.counts)}
    return Survey(
        type(store).__name__,
        file,
        None if held is None else (str(held.owner), held.until),
        None if last is None else last.generation,
        0 if last is None else last.starts,
        counts if records.abilities.list else None,
        found.tombstones,
        dict(sorted(found.size.items())),
        tuple(found.unreadable),
        found.lines,
        indexed,
        cut_short,
    )


async def _check_all(
    records: Records, read: Callable[[Row], object], read_line: Callable[[bytes, int], object] | None, found: _Found
) -> None:
    async for key, name in _names(records):
        found.counts.setdefault(name.generation, Counter())[name.kind] += 1
        if name.kind == LOG:
            if read_line is not None:
                await _check_log(records, key, name, read_line, found)
            continue
        try:
            await _check(records, key, name, read, found)
        except UNREADABLE as error:
            found.unreadable.append(Unreadable(name, str(error)))


async def _check_log(
    records: Records, key: str, name: Name, read_line: Callable[[bytes, int], object], found: _Found
) -> None:
    """Every line of a log. Of a page with one that the store cannot give, those before it are read, then those behind
    it."""
    first, stop = 1, LINES
    while True:
        damage: Corrupt | None = None
        try:
            lines = await records.store.list(key, start=first - 1, stop=stop)
        except Corrupt as error:
            if error.position is None:  # the store as a whole
                raise
            damage, stop = error, error.position
            lines = await records.store.list(key, start=first - 1, stop=stop)
        for n, line in enumerate(lines, first):
            try:
                if type(line) is not bytes:
                    raise ValueError(f"it is a {type(line).__name__}, not a line")
                read_line(line, n)
            except UNREADABLE as error:
                found.unreadable.append(Unreadable(name, str(error), n))
        found.lines += len(lines)
        if damage is not None:
            found.unreadable.append(Unreadable(name, str(damage), stop + 1))
            stop += 1
        elif first + len(lines) <= stop:
            return
        first, stop = stop + 1, stop + LINES


async def _names(records: Records) -> AsyncIterator[tuple[str, Name]]:
    """The keys of the instance, of all tenants and generations."""
    prefix, own, after = f"{part(records.prefix)}/", part(records.instance), None
    while page := await records.store.keys(prefix, after=after, limit=PAGE):
        for key in page:
            name = name_of(key)
            if name is not None and name.instance == own:
                yield key, name
        after = page[-1]


async def _check(records: Records, key: str, name: Name, read: Callable[[Row], object], found: _Found) -> None:
    value = await records.store.versioned(key)
    if value is None:  # removed meanwhile
        return
    if type(value[0]) is bytes:
        found.size[name.kind] += len(value[0])
    if name.kind == ARTIFACT:
        _check_artifact(value[0], name.id)
        return
    row = decode(*value, name.kind, name.id)
    if row.gone:
        found.tombstones += 1
    elif name.kind == manifest.KIND:
        manifest.decoded(row.state)
    else:
        read(row)


def _check_artifact(data: Any, sha: str) -> None:
    if type(data) is not bytes or hashlib.sha256(data).hexdigest() != sha:
        raise ValueError("its bytes have another digest than its name says")


def _look_at_file(path: Path) -> DiskFile:
    size = sum(one.stat().st_size for one in (path, path.with_name(path.name + "-wal")) if one.exists())
    try:
        with closing(open_for_reading(path, timeout=5)) as db:
            said = [str(line) for (line,) in db.execute("PRAGMA integrity_check(20)")]
        faults = () if said == ["ok"] else tuple(said)
    except (sqlite3.Error, StoreError) as error:
        faults = (str(as_store_error(error, path)),)
    version = sqlite3.sqlite_version_info
    return DiskFile(path, size, sqlite3.sqlite_version, not is_wal_safe(version), faults, _locked_by(path))


def _locked_by(path: Path) -> str | None:
    """Who is named in the lock file, unless that process has ended: the name of one that was killed stays there."""
    try:
        found = json.loads(path.with_name(path.name + ".lock").read_bytes() or b"{}")
        owner = Owner(str(found["host"]), int(found["pid"]), str(found["started"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return None if is_dead(owner) else str(owner)
