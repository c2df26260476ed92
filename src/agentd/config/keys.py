"""Which keys the document has: read from the types of the settings. Values only."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from datetime import timedelta
from functools import cache
from typing import Any, Literal, NamedTuple, get_args, get_origin

from pydantic.fields import FieldInfo

from agentd.config.faults import Path, key_text
from agentd.config.secrets import SecretRef
from agentd.config.section import Section, alternatives, section_of
from agentd.config.settings import Settings
from agentd.config.values import Address, Rate, TokenLimit

_SINGLE = (bool, int, float, str, timedelta, Address, Rate, TokenLimit)


class Key(NamedTuple):
    """A key of the document that takes a value: no section, though perhaps a list or a mapping of free names."""

    path: Path
    field: FieldInfo


def types_at(path: Path) -> tuple[Any, ...]:
    """The types that a value at `path` may have; none for a path that no document has."""
    kinds: tuple[Any, ...] = (Settings,)
    for step in path:
        kinds = tuple(kind for parent in kinds for kind in _below(parent, step))
    return kinds


def _below(parent: Any, step: str | int) -> tuple[Any, ...]:
    if isinstance(parent, type) and issubclass(parent, Section):
        field = parent.model_fields.get(step) if isinstance(step, str) else None
        return () if field is None else alternatives(field.annotation)
    if parent is SecretRef:
        return (str,) if step in ("env", "file") else ()
    origin, args = get_origin(parent), get_args(parent)
    if origin is tuple and isinstance(step, int):
        return alternatives(args[0])
    if origin is dict and isinstance(step, str):
        names = alternatives(args[0])[0]
        return alternatives(args[1]) if get_origin(names) is not Literal or step in get_args(names) else ()
    return (Any,) if parent is Any else ()


def takes_text(path: Path) -> bool:
    """Whether a variable or flag for `path` is text as it stands, rather than a value in the document's notation."""
    kinds = types_at(path)
    return any(kind is str or get_origin(kind) is Literal or _shorthand(kind) for kind in kinds)


def _shorthand(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Section) and kind.shorthand is not None


def takes_reference(path: Path) -> bool:
    """Whether a secret may stand at `path`."""
    return SecretRef in types_at(path)


def is_container(path: Path) -> bool:
    """Whether a list or a mapping is due at `path`, so that anything else there is misplaced and is not shown."""
    return not any(kind in _SINGLE or get_origin(kind) is Literal for kind in types_at(path))


def members(path: Path) -> tuple[str, ...]:
    """The keys of the mapping at `path`; none where names are free."""
    found: list[str] = []
    for kind in types_at(path):
        if isinstance(kind, type) and issubclass(kind, Section):
            found += kind.model_fields
        elif get_origin(kind) is dict and get_origin(names := alternatives(get_args(kind)[0])[0]) is Literal:
            found += get_args(names)
    return tuple(found)


@cache
def all_keys() -> tuple[Key, ...]:
    """Every key that takes a value, in the document's order; below a list or a mapping of free names, none."""
    return tuple(_keys(Settings, ()))


def _keys(section: type[Section], at: Path) -> Iterator[Key]:
    for name, field in section.model_fields.items():
        below = section_of(field.annotation)
        if below is not None and below.shorthand is None and (section is Settings or field.default is not None):
            yield from _keys(below, (*at, name))
        else:
            yield Key((*at, name), field)


def suggestion(path: Path) -> str:
    """What somebody who wrote this unknown key may have meant, as the end of a sentence."""
    parent, key = path[:-1], str(path[-1])
    known = members(parent)
    near = difflib.get_close_matches(key.lower(), known, n=1, cutoff=0.6)
    if near:
        return f"did you mean {key_text((*parent, near[0]))}?"
    elsewhere = [known.path for known in all_keys() if known.path[-1] == key]
    if elsewhere:
        return f"did you mean {key_text(elsewhere[0])}?"
    where = key_text(parent) if parent else "the document"
    return f"{where} has {', '.join(known)}" if known else f"{where} has no keys of its own"
