"""What reads one kind of JSON: scalars, choices, arrays, objects, each with its schema. Touches only its arguments.

A reader never raises on data: what is wrong is added to a list, in words for the model that sent it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from agentkit.core.contracts.jsontext import canonical_json

Read: TypeAlias = Callable[[Any, str, list[str]], Any]
"""`(value, path, problems) -> value of the hint`; what is wrong is added to `problems`, in words for a model."""

NAMED = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
_SHOWN = 60


class Shape(NamedTuple):
    """A hint, understood: its JSON Schema, and the function that reads a value."""

    schema: dict[str, Any]
    read: Read


class Field(NamedTuple):
    """One key of an object. `default`: what stands for it where it is left out, in the schema only when JSON has it."""

    shape: Shape
    required: bool
    default: Any = dataclasses.MISSING


def read_as(shape: Shape, value: Any, where: str = "") -> Any:
    """`value` (plain JSON data) as what the hint asks for; ValueError listing all that is wrong with it."""
    problems: list[str] = []
    found = shape.read(value, where, problems)
    if problems:
        raise ValueError("; ".join(problems))
    return found


def object_shape(fields: Mapping[str, Field], make: Callable[[dict[str, Any]], Any]) -> Shape:
    """A closed object: every key known, those without a default required."""
    schema: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
    for name, entry in fields.items():
        plain = type(entry.default) in NAMED
        schema["properties"][name] = {**entry.shape.schema, "default": entry.default} if plain else entry.shape.schema
    required = [name for name, entry in fields.items() if entry.required]
    if required:
        schema["required"] = required

    def read(value: Any, path: str, problems: list[str]) -> Any:
        if not isinstance(value, Mapping):
            return _wrong("an object", value, path, problems)
        before = len(problems)
        unknown = [str(name) for name in value if name not in fields]
        missing = [name for name, entry in fields.items() if entry.required and name not in value]
        if unknown:
            known = ", ".join(fields) or "none"
            problems.append(f"{at(path)}unknown: {', '.join(sorted(unknown))} (known: {known})")
        if missing:
            problems.append(f"{at(path)}missing: {', '.join(missing)}")
        found = {
            name: entry.shape.read(value[name], f"{path}.{name}" if path else name, problems)
            for name, entry in fields.items()
            if name in value
        }
        if len(problems) > before:
            return None
        try:
            return make(found)
        except (ValueError, TypeError) as error:  # checks of the class itself
            problems.append(f"{at(path)}{error}")
            return None

    return Shape(schema, read)


def scalar(kind: Any) -> Shape:
    """A text, number, boolean or null."""
    name = NAMED[kind]

    def read(value: Any, path: str, problems: list[str]) -> Any:
        if kind is float and type(value) is int:
            return float(value)
        if kind is int and type(value) is float and value.is_integer():
            return int(value)  # JSON has one kind of number
        return (
            value
            if type(value) is kind
            else _wrong(f"a {name}" if name[0] not in "i" else f"an {name}", value, path, problems)
        )

    return Shape({"type": name}, read)


def text(form: str, parse: Callable[[str], Any]) -> Shape:
    """A text in the format `form`, which `parse` reads; it raises ValueError for others."""

    def read(value: Any, path: str, problems: list[str]) -> Any:
        try:
            return parse(value) if isinstance(value, str) else _wrong(f"a {form} text", value, path, problems)
        except ValueError:
            return _wrong(f"a {form} text", value, path, problems)

    return Shape({"type": "string", "format": form}, read)


def choice(values: Sequence[tuple[Any, Any]], where: str) -> Shape:
    """One of (what is sent, what it means)."""
    sent = [value for value, _ in values]
    odd = [value for value in sent if type(value) not in NAMED]
    if odd:
        raise TypeError(
            f"{where}: {odd[0]!r} has no form in JSON; a choice is made of texts, numbers, booleans and None"
        )
    kinds = {NAMED[type(value)] for value in sent}
    schema: dict[str, Any] = {"enum": sent}
    if len(kinds) == 1:
        schema = {"type": kinds.pop(), **schema}

    def read(value: Any, path: str, problems: list[str]) -> Any:
        for known, meant in values:
            if type(known) is type(value) and known == value:  # True equals 1
                return meant
        return _wrong(f"one of {', '.join(map(repr, sent))}", value, path, problems)

    return Shape(schema, read)


def union(shapes: list[Shape]) -> Shape:
    """The first of `shapes` that takes a value."""

    def read(value: Any, path: str, problems: list[str]) -> Any:
        found: list[list[str]] = []
        for shape in shapes:
            mine: list[str] = []
            made = shape.read(value, path, mine)
            if not mine:
                return made
            found.append(mine)
        # An object that is nearly right deserves to hear what it lacks; of scalars, what would be right is enough.
        objects = [mine for shape, mine in zip(shapes, found, strict=True) if shape.schema.get("type") == "object"]
        if isinstance(value, Mapping) and len(objects) == 1:
            problems += objects[0]
            return None
        return _wrong(" or ".join(str(s.schema.get("type", "one of a choice")) for s in shapes), value, path, problems)

    return Shape({"anyOf": [shape.schema for shape in shapes]}, read)


def list_of(item: Shape, make: Callable[[list[Any]], Any]) -> Shape:
    """An array, which `make` puts into its container."""
    schema: dict[str, Any] = {"type": "array", "items": item.schema}
    if make in (set, frozenset):
        schema["uniqueItems"] = True

    def read(value: Any, path: str, problems: list[str]) -> Any:
        if not _is_list(value):
            return _wrong("an array", value, path, problems)
        before = len(problems)
        found = [item.read(part, f"{path}[{place}]", problems) for place, part in enumerate(value)]
        if len(problems) > before:
            return None
        try:
            return make(found)
        except TypeError:  # what a set cannot hold
            return _wrong("an array of texts, numbers and the like", value, path, problems)

    return Shape(schema, read)


def tuple_of(items: Sequence[Shape]) -> Shape:
    """An array of just these, in order."""
    schema = {
        "type": "array", "prefixItems": [item.schema for item in items], "minItems": len(items), "maxItems": len(items),
    }  # fmt: skip

    def read(value: Any, path: str, problems: list[str]) -> Any:
        if not _is_list(value) or len(value) != len(items):
            return _wrong(f"an array of {len(items)}", value, path, problems)
        pairs = enumerate(zip(items, value, strict=True))
        return tuple([item.read(part, f"{path}[{place}]", problems) for place, (item, part) in pairs])

    return Shape(schema, read)


def mapping_of(item: Shape) -> Shape:
    """An object of any keys."""

    def read(value: Any, path: str, problems: list[str]) -> Any:
        if not isinstance(value, Mapping):
            return _wrong("an object", value, path, problems)
        return {key: item.read(part, f"{path}[{key!r}]", problems) for key, part in value.items()}

    return Shape({"type": "object", "additionalProperties": item.schema}, read)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray))


def at(path: str) -> str:
    """How a problem begins: with its place, if it has one."""
    return f"{path}: " if path else ""


def _wrong(wanted: str, value: Any, path: str, problems: list[str]) -> None:
    told = canonical_json(value)
    shown = told if len(told) <= _SHOWN else f"{told[:_SHOWN]}..."
    problems.append(f"{at(path)}expected {wanted}, got {shown}")
