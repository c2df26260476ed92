"""The tables of a SQLite store, every query by name, and the steps from older files to this form. Holds text only,
and runs it on the connection it is given.

`entry` has a row for each key. A value is in the row: `body` is JSON as TEXT, or a bytes value as BLOB. A log has its
number in `log`, and its items in `item` under `log << 31 | position`: one tree, in the order of reading, appended to
without touching any other row.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import TypeVar

APPLICATION_ID = 0x41474B54
"""In the file's header: tells a store from any other SQLite database."""

POSITION_BITS = 31
MAX_POSITION = (1 << POSITION_BITS) - 1


def create_tables(db: sqlite3.Connection) -> None:
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    db.execute(
        "CREATE TABLE entry (key TEXT NOT NULL PRIMARY KEY, version INTEGER NOT NULL, log INTEGER, deadline REAL, body)"
    )
    db.execute("CREATE INDEX entry_deadline ON entry (deadline) WHERE deadline IS NOT NULL")
    db.execute("CREATE TABLE item (id INTEGER PRIMARY KEY, body NOT NULL)")
    db.execute("CREATE TABLE claim (name TEXT NOT NULL PRIMARY KEY, owner TEXT, fence INTEGER, deadline REAL)")
    db.execute("CREATE TABLE counter (name TEXT NOT NULL PRIMARY KEY, value)")
    db.execute("CREATE TABLE unindexed (id INTEGER PRIMARY KEY)")
    db.execute("INSERT INTO counter VALUES ('version', 0), ('log', 0), ('index', NULL)")


MIGRATIONS: tuple[Callable[[sqlite3.Connection], None], ...] = (create_tables,)
"""The n-th makes a file of version n out of one of version n - 1. None is ever changed once released."""

VERSION = len(MIGRATIONS)

READ = "SELECT version, log, deadline, body FROM entry WHERE key = ?"
HOLD = "SELECT version, log, deadline FROM entry WHERE key = ?"
LOOK_AT_ONCE = 128
"""Keys that are looked up in one query."""
ITEMS = "SELECT id, body FROM item WHERE id BETWEEN ? AND ? ORDER BY id"
ITEMS_NEWEST_FIRST = "SELECT id, body FROM item WHERE id BETWEEN ? AND ? ORDER BY id DESC"
KEYS = """
SELECT key FROM entry WHERE key >= :first AND key < :end AND (deadline IS NULL OR deadline > :now)
ORDER BY key LIMIT :limit
"""
OPEN_LOG = "INSERT OR REPLACE INTO entry (key, version, log) VALUES (?, 0, ?)"
REMOVE_ITEMS = "DELETE FROM item WHERE id BETWEEN ? AND ?"
SWEEP = "DELETE FROM entry WHERE key IN (SELECT key FROM entry WHERE deadline <= ? LIMIT ?)"

COUNTER = "SELECT value FROM counter WHERE name = ?"
SET_COUNTER = "UPDATE counter SET value = ? WHERE name = ?"

CLAIM = "SELECT owner, fence, deadline FROM claim WHERE name = ?"
SET_CLAIM = "INSERT OR REPLACE INTO claim (name, owner, fence, deadline) VALUES (?, ?, ?, ?)"
FREE_CLAIMS = "UPDATE claim SET owner = NULL"

# The index keeps no text, only which items have which three characters: what it finds is compared in full. Folding is
# done before, so that a scan and the index agree.
CREATE_INDEX = """
CREATE VIRTUAL TABLE item_text USING fts5 (
    text, content = '', columnsize = 0, detail = none, tokenize = 'trigram case_sensitive 1')
"""
DROP_INDEX = "DROP TABLE IF EXISTS item_text"
HAS_INDEX = "SELECT 1 FROM sqlite_master WHERE name = 'item_text'"
UNINDEX_ITEM = "INSERT INTO item_text (item_text, rowid, text) VALUES ('delete', ?, ?)"
FIND_ITEMS = """
SELECT item.id, item.body FROM item_text CROSS JOIN item ON item.id = item_text.rowid
WHERE item_text MATCH ? AND item_text.rowid BETWEEN ? AND ? ORDER BY item_text.rowid DESC
"""
NOTE_UNINDEXED = "INSERT INTO unindexed (id) VALUES (?)"
NOTE_ALL_UNINDEXED = "INSERT OR IGNORE INTO unindexed (id) SELECT id FROM item"
FORGET_UNINDEXED = "DELETE FROM unindexed WHERE id BETWEEN ? AND ?"
UNINDEXED = "SELECT id FROM unindexed WHERE id BETWEEN ? AND ?"
UNINDEXED_ITEMS = """
SELECT item.id, item.body FROM unindexed CROSS JOIN item ON item.id = unindexed.id
WHERE unindexed.id BETWEEN ? AND ? ORDER BY unindexed.id DESC
"""
FIRST_UNINDEXED = """
SELECT item.id, item.body FROM unindexed CROSS JOIN item ON item.id = unindexed.id ORDER BY unindexed.id LIMIT 500
"""


# Statements about several rows. Numbers of rows are powers of two, so that there are few of them and SQLite's module
# keeps them prepared.

ROWS_AT_ONCE = 64
"""Rows of one statement: with four values each within the 999 that every SQLite takes."""

R = TypeVar("R")


def portions(rows: Sequence[R]) -> Iterator[Sequence[R]]:
    """The rows in portions whose sizes are powers of two, the largest first."""
    at = 0
    while at < len(rows):
        size = min(1 << (len(rows) - at).bit_length() - 1, ROWS_AT_ONCE)
        yield rows[at : at + size]
        at += size


@cache
def looking(count: int) -> str:
    """What so many keys hold, those that hold something, as one text: words `place,version,log,last item,expires`. One
    row, since each row of a result is a step of its own."""
    asked = ", ".join(f"({at}, ?)" for at in range(count))
    last = f"""
        SELECT id FROM item WHERE id BETWEEN log << {POSITION_BITS} AND log << {POSITION_BITS} | {MAX_POSITION}
        ORDER BY id DESC LIMIT 1"""
    return f"""
    WITH asked (place, key) AS (VALUES {asked})
    SELECT group_concat(place || ',' || version || ',' || ifnull(log, '') || ','
        || CASE WHEN log IS NULL THEN '' ELSE ifnull(({last}), '') END || ',' || (deadline IS NOT NULL), ' ')
    FROM asked JOIN entry ON entry.key = asked.key
    """


@cache
def putting(count: int) -> str:
    return f"""
    INSERT INTO entry (key, version, log, deadline, body) VALUES {_values("(?, ?, NULL, ?, ?)", count)}
    ON CONFLICT (key) DO UPDATE SET version = excluded.version, log = NULL, deadline = excluded.deadline,
        body = excluded.body
    """


@cache
def adding(count: int) -> str:
    return f"INSERT INTO item (id, body) VALUES {_values('(?, ?)', count)}"


@cache
def indexing(count: int) -> str:
    return f"INSERT INTO item_text (rowid, text) VALUES {_values('(?, ?)', count)}"


@cache
def removing(count: int) -> str:
    return f"DELETE FROM entry WHERE key IN ({_values('?', count)})"


def _values(row: str, count: int) -> str:
    return ", ".join([row] * count)
