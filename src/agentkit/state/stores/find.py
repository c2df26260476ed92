"""Finding text in stored items: what of an item is text, and whether a query's words are in it. Touches only its
arguments.

A query is split at white space; an item is found when it contains every word, in any case, anywhere in its text. An
index over trigrams and a scan of the items use the same folding, so that they find the same.
"""

from __future__ import annotations

import json
import re
import unicodedata
from bisect import bisect_right
from typing import Any

from agentkit.core.contracts.plain import READERS

from .rules import Body

REVISION = f"1-{unicodedata.unidata_version}"
"""Of `searchable` and `fold` together: an index made under another revision has to be made anew."""

EXCERPT = 60
"""Characters of an excerpt on either side of the match."""

MAX_TRIGRAMS = 48
"""Of a query that are looked up: more hardly narrow the choice, and what is chosen is compared in full anyway."""

_ENCODED = re.compile(r"(?:data:[^,]{0,200},)?[A-Za-z0-9+/_-]{1024,}={0,2}")
_LONE = re.compile("[\0\ud800-\udfff]")


def searchable(body: Body) -> str:
    """The text of an item: its strings at any depth, joined by line ends; keys, roles and encoded bytes left out.

    A bytes value counts as text when it is UTF-8, and as JSON when it is that too. Never raises.
    """
    if isinstance(body, bytes):
        try:
            body = body.decode("utf-8")
        except UnicodeDecodeError:
            return ""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return body
    except TypeError:  # a damaged row
        return ""
    if isinstance(value, str):
        return value
    parts: list[str] = []
    work = [value]
    while work:
        item = work.pop()
        if isinstance(item, str):
            if not _ENCODED.fullmatch(item):
                parts.append(item)
        elif isinstance(item, list):
            work.extend(reversed(item))
        elif isinstance(item, dict):
            work.extend(reversed(_texts_of(item)))
    return "\n".join(parts)


def _texts_of(item: dict[str, Any]) -> list[Any]:
    tag = item.get("$")
    if tag == "bytes":
        return []
    if tag == "str":
        return [READERS["str"](item)] if isinstance(item.get("v"), str) else []
    skipped = ("$", "role", "type") if tag == "message" else ("$",)
    return [value for key, value in item.items() if key not in skipped]


def fold(text: str) -> str:
    """Text as it is compared: case-folded; NUL and lone surrogates, which no index takes, as U+FFFD."""
    return _LONE.sub("\ufffd", text).casefold()


class Query:
    """The words of a search."""

    def __init__(self, text: str) -> None:
        self.words = tuple(dict.fromkeys(fold(text).split()))

    @property
    def trigrams(self) -> tuple[str, ...]:
        """Every item that matches contains all of these; none when every word is shorter than three characters."""
        found = dict.fromkeys(word[at : at + 3] for word in self.words for at in range(len(word) - 2))
        return tuple(found)[:MAX_TRIGRAMS]

    def excerpt(self, text: str) -> str | None:
        """A piece of `text` around its first match, or None when it is not found by this query."""
        folded = fold(text)
        if not self.words or not all(word in folded for word in self.words):
            return None
        word = max(self.words, key=len)
        at = folded.index(word)
        start, end = at, at + len(word)
        if len(folded) != len(text):  # some letters fold to several, such as the German sharp s
            start, end = _unfolded(text, start), _unfolded(text, end)
        head, tail = max(0, start - EXCERPT), min(len(text), end + EXCERPT)
        piece = " ".join(text[head:tail].split())
        return ("..." if head else "") + piece + ("..." if tail < len(text) else "")


def _unfolded(text: str, at: int) -> int:
    """The place in `text` of the character that gives the one at `at` in its folded form."""
    return bisect_right(range(len(text)), at, key=lambda place: len(fold(text[: place + 1])))
