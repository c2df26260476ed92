"""Where a record is in the store: its full name as one key, and back. Touches only its arguments.

    PREFIX/SCOPE/INSTANCE/GENERATION/KIND/ID

No two names share a key. All parts but the last are free of slashes, so the id is the rest, whatever it holds. An id
stands as it is but for NUL, which some databases cannot store: keys of one kind therefore sort as their ids do, and a
listing by prefix or from a place on is one of keys too.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import quote

from agentkit.core.contracts.scope import Scope

MAX_ID = 256
"""Bytes of UTF-8 in an id."""

MAX_BASE = 1_400
"""Bytes in the part of a key ahead of its kind. With the longest kind and id, twice as long once escaped, it stays
within the 2,048 that every store takes."""

ABOVE = 0
"""The generation of what stands above all generations: manifest and leases."""

_KIND = re.compile(r"[a-z][a-z0-9_]{0,31}")
_ESCAPED = re.compile("[\0\1]")
_ESCAPES = {"\0": "\1\1", "\1": "\1\2"}
_UNESCAPED = re.compile("\1(.?)", re.DOTALL)
_PLAIN = {"\1": "\0", "\2": "\1"}


class Name(NamedTuple):
    """A key taken apart; `scope` and the names are as they stand in it."""

    prefix: str
    scope: str
    instance: str
    generation: int
    kind: str
    id: str


class Keys:
    """The keys of one tenant, instance and generation. ValueError for names that cannot be part of a key."""

    def __init__(self, prefix: str, scope: Scope, instance: str, generation: int) -> None:
        if not isinstance(scope, Scope):
            raise TypeError(f"scope must be a Scope, not {type(scope).__name__}")
        if type(generation) is not int or generation < 0:
            raise ValueError(f"a generation is a number from 0 on, not {generation!r}")
        self._named = prefix, instance, generation
        self.base = instance_part(prefix, scope, instance) + f"{generation}/"
        if len(self.base) > MAX_BASE:
            raise ValueError(
                f"store prefix, scope and instance name take {len(self.base)} bytes of each key, {MAX_BASE} are "
                "allowed: shorten one of them"
            )
        self._starts: dict[str, str] = {}

    def within(self, scope: Scope) -> Keys:
        """The same for another tenant."""
        prefix, instance, generation = self._named
        return Keys(prefix, scope, instance, generation)

    def key(self, kind: str, id: str) -> str:
        """The key of a record."""
        start = self._starts.get(kind) or self.start(kind)
        # Nearly every id: printable, so free of what is escaped, and a character is a byte.
        if type(id) is str and id.isascii() and id.isprintable() and 0 < len(id) <= MAX_ID:
            return start + id
        return start + escape(check_id(id))

    def start(self, kind: str, prefix: str = "") -> str:
        """What the keys of all ids of this kind begin with that begin with `prefix`."""
        found = self._starts.get(kind)
        if found is None:
            if not _KIND.fullmatch(kind):
                raise ValueError(f"a kind of record is a short name such as context or memory, not {kind!r:.60}")
            found = self._starts[kind] = f"{self.base}{kind}/"
        return found + escape(check_text(prefix)) if prefix else found

    def id_of(self, key: str, kind: str) -> str:
        """The id in a key of this kind."""
        return unescape(key[len(self.start(kind)) :])


def instance_part(prefix: str, scope: Scope, instance: str) -> str:
    """What the keys of all generations of one instance begin with."""
    return f"{part(prefix, 'store prefix')}/{scope.key()}/{part(instance, 'instance name')}/"


def lease_name(prefix: str, scope: Scope, instance: str, name: str = "instance") -> str:
    """The name of a lease: of a whole instance, or of what is called `name` in it."""
    return Keys(prefix, scope, instance, ABOVE).key("lease", name)


def name_of(key: str) -> Name | None:
    """A key taken apart, None for one that is no record's."""
    parts = key.split("/", 5)
    if len(parts) != 6 or not parts[3].isdecimal() or not parts[3].isascii() or not parts[5]:
        return None
    prefix, scope, instance, generation, kind, id = parts
    try:
        return Name(prefix, scope, instance, int(generation), kind, unescape(id))
    except ValueError:
        return None


def check_id(id: object) -> str:
    """The id; TypeError for no text, ValueError for one that is empty, too long, or no valid UTF-8."""
    text = check_text(id)
    size = len(text) if text.isascii() else len(text.encode())
    if not 1 <= size <= MAX_ID:
        raise ValueError(f"an id has 1 to {MAX_ID} bytes of UTF-8, this one {size}")
    return text


def check_text(text: object) -> str:
    """An id or the beginning of one; TypeError for no text, ValueError for half a surrogate pair in it."""
    if not isinstance(text, str):
        raise TypeError(f"an id must be a str, not {type(text).__name__}")
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise ValueError(
                f"an id must be valid UTF-8, this one has half a surrogate pair at {error.start}: put U+FFFD for it"
            ) from None
    return text


def escape(id: str) -> str:
    """The id without NUL, in the same order as the ids: NUL becomes 1 1, and the escape character 1 itself 1 2."""
    return _ESCAPED.sub(lambda found: _ESCAPES[found[0]], id)


def unescape(text: str) -> str:
    """The id that `escape` had. ValueError for what it never gives."""
    if "\0" in text or any(found[1] not in _PLAIN for found in _UNESCAPED.finditer(text)):
        raise ValueError(f"{text!r:.300} is no key of a record")
    return _UNESCAPED.sub(lambda found: _PLAIN[found[1]], text)


def part(text: str, what: str = "name") -> str:
    """A name as it stands in a key, free of slashes."""
    if not isinstance(text, str):
        raise TypeError(f"a {what} must be a str, not {type(text).__name__}")
    if not text:
        raise ValueError(f"a {what} must not be empty")
    try:
        return quote(text, safe="")
    except UnicodeEncodeError:
        raise ValueError(f"a {what} must be valid UTF-8, this one has half a surrogate pair: {text!r:.100}") from None
