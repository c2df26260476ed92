"""The full-text index beside a SQLite store's logs: which items may contain which words. Works on the connection that
it is given, inside the transaction that its caller has opened.

Only a process that has the file to itself writes the index, in the transaction that writes the item. Others note in
`unindexed` what they append, so that a search can look through that, and the next such process adds it. A SQLite
without FTS5 or its trigram tokenizer leaves everything to a scan.
"""

from __future__ import annotations

import heapq
import sqlite3
from collections.abc import Generator, Sequence

from . import sqlite_schema as sql
from .find import REVISION, fold, searchable
from .rules import Body
from .sqlite_file import Transaction


class Index:
    """What is known of the file's index. `is_kept`: this process adds to it; `is_current`: it can be searched."""

    def __init__(self) -> None:
        self.is_kept = False
        self.is_current = False

    def look(self, db: sqlite3.Connection) -> None:
        """Sees whether there is an index that this release and this SQLite can use."""
        self.is_kept = self.is_current = False
        (revision,) = db.execute(sql.COUNTER, ("index",)).fetchone()
        if revision == REVISION and db.execute(sql.HAS_INDEX).fetchone() is not None:
            self.is_current = _can_search(db)

    def catch_up(self, db: sqlite3.Connection) -> None:
        """Makes the index, or adds what others have appended. Outside a transaction: it takes one for each portion."""
        if not self.is_current:
            try:
                with Transaction(db):
                    db.execute(sql.DROP_INDEX)
                    db.execute(sql.CREATE_INDEX)
                    db.execute(sql.NOTE_ALL_UNINDEXED)
                    db.execute(sql.SET_COUNTER, (REVISION, "index"))
            except sqlite3.OperationalError as error:
                if "no such" in str(error):  # module, or tokenizer
                    return
                raise
        while rows := db.execute(sql.FIRST_UNINDEXED).fetchall():
            with Transaction(db):
                _index(db, rows)
                db.execute(sql.FORGET_UNINDEXED, (rows[0][0], rows[-1][0]))
        self.is_kept = self.is_current = True

    def add(self, db: sqlite3.Connection, items: Sequence[tuple[int, Body]]) -> None:
        """Takes in new items, each with its number."""
        if self.is_kept:
            _index(db, items)
        elif self.is_current:
            db.executemany(sql.NOTE_UNINDEXED, [(item,) for item, _ in items])

    def remove(self, db: sqlite3.Connection, first: int, last: int) -> None:
        """Takes out the items in this range of numbers; before they are deleted, since it reads them."""
        if not self.is_current:
            db.execute(sql.SET_COUNTER, (None, "index"))  # what there is can no longer be right: it is made anew
            return
        outside = {item for (item,) in db.execute(sql.UNINDEXED, (first, last))}
        for item, body in db.execute(sql.ITEMS, (first, last)):
            if item not in outside and (text := fold(searchable(body))):
                db.execute(sql.UNINDEX_ITEM, (item, text))
        db.execute(sql.FORGET_UNINDEXED, (first, last))

    def candidates(self, db: sqlite3.Connection, trigrams: Sequence[str], base: int) -> Generator[tuple[int, Body]]:
        """The items of a log that may contain all of these, or all items where there is nothing to look up; newest
        first."""
        items = base, base | sql.MAX_POSITION
        if self.is_current and trigrams:
            asked = " ".join('"' + trigram.replace('"', '""') + '"' for trigram in trigrams)
            cursors = [db.execute(sql.FIND_ITEMS, (asked, *items)), db.execute(sql.UNINDEXED_ITEMS, items)]
        else:
            cursors = [db.execute(sql.ITEMS_NEWEST_FIRST, items)]
        try:
            yield from heapq.merge(*cursors, key=lambda row: -row[0])
        finally:
            for cursor in cursors:
                cursor.close()


def _index(db: sqlite3.Connection, items: Sequence[tuple[int, Body]]) -> None:
    texts = [(item, text) for item, body in items if (text := fold(searchable(body)))]
    for rows in sql.portions(texts):
        db.execute(sql.indexing(len(rows)), [value for row in rows for value in row])


def _can_search(db: sqlite3.Connection) -> bool:
    try:
        db.execute("SELECT rowid FROM item_text WHERE item_text MATCH '\"abc\"' LIMIT 1").fetchone()
    except sqlite3.OperationalError as error:
        if "no such" in str(error):
            return False
        raise
    return True
