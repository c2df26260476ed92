"""What a type hint means as JSON: the schema that a model is told, and the reading of what it sent. Touches only its
arguments.

Objects are closed. A hint that has no faithful form in JSON is refused where it is declared, not when a model answers.
"""

from __future__ import annotations

import dataclasses
import datetime
import types
import typing
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, MutableMapping, MutableSequence, Sequence
from collections.abc import Set as AbstractSet
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

from agentkit.core.contracts.jsontext import canonical_json

Read: TypeAlias = Callable[[Any, str, list[str]], Any]
"""`(value, path, problems) -> value of the hint`; what is wrong is added to `problems`, in words for a model."""

ACCEPTED = (
    "str, int, float, bool, None, Any, Literal, Enum, list, tuple, set, dict with str keys, unions, Annotated, "
    "dataclasses, TypedDict, pydantic models, date, datetime, UUID"
)

_LISTS: dict[Any, Callable[[list[Any]], Any]] = {
    list: list, Sequence: list, MutableSequence: list, Iterable: list, Collection: list,
    set: set, frozenset: frozenset, AbstractSet: set,
}  # fmt: skip
_MAPPINGS = (dict, Mapping, MutableMapping)
_NAMED = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
_TEXTS: dict[Any, tuple[str, Callable[[str], Any]]] = {
    datetime.datetime: ("date-time", datetime.datetime.fromisoformat),
    datetime.date: ("date", datetime.date.fromisoformat),
    uuid.UUID: ("uuid", uuid.UUID),
}
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


def shape_of(hint: Any, where: str = "the type") -> Shape:
    """What `hint` means as JSON. TypeError naming `where` for a hint that JSON cannot express."""
    return _shape(hint, where, ())


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
        plain = type(entry.default) in _NAMED
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
            problems.append(f"{_at(path)}unknown: {', '.join(sorted(unknown))} (known: {known})")
        if missing:
            problems.append(f"{_at(path)}missing: {', '.join(missing)}")
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
            problems.append(f"{_at(path)}{error}")
            return None

    return Shape(schema, read)


def _shape(hint: Any, where: str, inside: tuple[Any, ...]) -> Shape:
    if isinstance(hint, typing.NewType):
        return _shape(hint.__supertype__, where, inside)
    if hasattr(hint, "__value__"):  # an alias made by a `type` statement
        return _shape(hint.__value__, where, inside)
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return _described(_shape(args[0], where, inside), args[1:])
    if origin in (typing.Required, typing.NotRequired, typing.Final):
        return _shape(args[0], where, inside)
    if hint is Any or hint is object:
        return Shape({}, lambda value, path, problems: value)
    if hint is None or hint in _NAMED:
        return _scalar(type(None) if hint is None else hint)
    if origin is typing.Literal:
        return _choice([(value, value) for value in args], where)
    if origin in (typing.Union, types.UnionType):
        return _union([_shape(arg, where, inside) for arg in args])
    base = hint if origin is None else origin
    if base is tuple:
        return _tuple(args, where, inside)
    if base in _LISTS:
        return _list(_shape(args[0] if args else Any, f"{where}[]", inside), _LISTS[base], base)
    if base in _MAPPINGS:
        return _mapping(args, where, inside)
    if isinstance(hint, type):
        return _class(hint, where, inside)
    raise TypeError(f"{where}: {_name(hint)} has no form in JSON; use {ACCEPTED}")


def _class(hint: type, where: str, inside: tuple[Any, ...]) -> Shape:
    if hint in _TEXTS:
        return _text(*_TEXTS[hint])
    if issubclass(hint, Enum):
        return _choice([(member.value, member) for member in hint], where)
    if is_model(hint):
        return _model(hint, where)
    if hint in inside:
        raise TypeError(f"{where}: {_name(hint)} contains itself, which a closed schema cannot express")
    inside = (*inside, hint)
    if typing.is_typeddict(hint):
        return _typed_dict(hint, where, inside)
    if dataclasses.is_dataclass(hint):
        return _dataclass(hint, where, inside)
    raise TypeError(f"{where}: {_name(hint)} has no form in JSON; use {ACCEPTED}")


def is_model(hint: Any) -> bool:
    """Whether this is a pydantic model, told by what it offers: nothing is imported for it."""
    return isinstance(hint, type) and hasattr(hint, "model_json_schema") and hasattr(hint, "model_validate")


def hints_of(owner: Any, where: str, local: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Type hints of a class or function, names resolved; TypeError where one names what cannot be found."""
    try:
        return typing.get_type_hints(owner, localns=dict(local or {}), include_extras=True)
    except (NameError, TypeError) as error:
        raise TypeError(f"{where}: a type hint cannot be resolved: {error}") from error


def _typed_dict(hint: Any, where: str, inside: tuple[Any, ...]) -> Shape:
    fields = {}
    for name, given in hints_of(hint, where).items():
        marked = typing.get_origin(given)  # where hints are texts, the class itself does not know these marks
        required = marked is typing.Required or (name in hint.__required_keys__ and marked is not typing.NotRequired)
        fields[name] = Field(_shape(given, f"{where}.{name}", inside), required)
    return object_shape(fields, dict)


def _dataclass(hint: Any, where: str, inside: tuple[Any, ...]) -> Shape:
    hints = hints_of(hint, where)
    fields: dict[str, Field] = {}
    for item in dataclasses.fields(hint):
        if item.init:
            required = item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING
            shape = _shape(hints[item.name], f"{where}.{item.name}", inside)
            fields[item.name] = Field(shape, required, item.default)
    return object_shape(fields, lambda found: hint(**found))


def _model(hint: Any, where: str) -> Shape:
    schema = _inlined(hint.model_json_schema(), where)

    def read(value: Any, path: str, problems: list[str]) -> Any:
        try:
            return hint.model_validate(value)
        except ValueError as error:
            details = getattr(error, "errors", None)
            if details is None:
                problems.append(f"{_at(path)}{error}")
                return None
            for item in details():
                place = ".".join([path, *map(str, item["loc"])] if path else map(str, item["loc"]))
                problems.append(f"{_at(place)}{item['msg']}")
            return None

    return Shape(schema, read)


def _inlined(schema: dict[str, Any], where: str) -> dict[str, Any]:
    """The schema with its `$defs` put in where they are named, since it may become a part of another one."""
    definitions = schema.get("$defs", {})

    def walk(part: Any, inside: tuple[str, ...]) -> Any:
        if isinstance(part, list):
            return [walk(item, inside) for item in part]
        if not isinstance(part, dict):
            return part
        if "$ref" in part:
            name = part["$ref"].rpartition("/")[2]
            if name in inside:
                raise TypeError(f"{where}: {name} contains itself, which a closed schema cannot express")
            rest = {key: value for key, value in part.items() if key != "$ref"}
            return {**walk(definitions[name], (*inside, name)), **rest}
        found = {key: walk(value, inside) for key, value in part.items() if key != "$defs"}
        if found.get("type") == "object" and "properties" in found:
            found.setdefault("additionalProperties", False)
        return found

    made: dict[str, Any] = walk(schema, ())
    return made


def _described(shape: Shape, notes: Sequence[Any]) -> Shape:
    """With the first text among the notes of an Annotated as its description."""
    text = next((note for note in notes if isinstance(note, str)), None)
    return shape if text is None else Shape({**shape.schema, "description": text}, shape.read)


def _scalar(kind: Any) -> Shape:
    name = _NAMED[kind]

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


def _text(form: str, parse: Callable[[str], Any]) -> Shape:
    def read(value: Any, path: str, problems: list[str]) -> Any:
        try:
            return parse(value) if isinstance(value, str) else _wrong(f"a {form} text", value, path, problems)
        except ValueError:
            return _wrong(f"a {form} text", value, path, problems)

    return Shape({"type": "string", "format": form}, read)


def _choice(values: Sequence[tuple[Any, Any]], where: str) -> Shape:
    """One of (what is sent, what it means)."""
    sent = [value for value, _ in values]
    odd = [value for value in sent if type(value) not in _NAMED]
    if odd:
        raise TypeError(
            f"{where}: {odd[0]!r} has no form in JSON; a choice is made of texts, numbers, booleans and None"
        )
    kinds = {_NAMED[type(value)] for value in sent}
    schema: dict[str, Any] = {"enum": sent}
    if len(kinds) == 1:
        schema = {"type": kinds.pop(), **schema}

    def read(value: Any, path: str, problems: list[str]) -> Any:
        for known, meant in values:
            if type(known) is type(value) and known == value:  # True equals 1
                return meant
        return _wrong(f"one of {', '.join(map(repr, sent))}", value, path, problems)

    return Shape(schema, read)


def _union(shapes: list[Shape]) -> Shape:
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


def _list(item: Shape, make: Callable[[list[Any]], Any], base: Any) -> Shape:
    schema: dict[str, Any] = {"type": "array", "items": item.schema}
    if make is not list:
        schema["uniqueItems"] = True

    def read(value: Any, path: str, problems: list[str]) -> Any:
        if not _is_list(value):
            return _wrong("an array", value, path, problems)
        before = len(problems)
        found = [item.read(part, f"{path}[{at}]", problems) for at, part in enumerate(value)]
        if len(problems) > before:
            return None
        try:
            return make(found)
        except TypeError:  # what a set cannot hold
            return _wrong("an array of texts, numbers and the like", value, path, problems)

    return Shape(schema, read)


def _tuple(args: tuple[Any, ...], where: str, inside: tuple[Any, ...]) -> Shape:
    if not args or (len(args) == 2 and args[1] is Ellipsis):
        any_length = _list(_shape(args[0] if args else Any, f"{where}[]", inside), list, tuple)
        return Shape(
            any_length.schema, lambda value, path, problems: tuple(any_length.read(value, path, problems) or ())
        )
    items = [_shape(arg, f"{where}[{at}]", inside) for at, arg in enumerate(args)]
    schema = {
        "type": "array", "prefixItems": [item.schema for item in items], "minItems": len(items), "maxItems": len(items),
    }  # fmt: skip

    def read(value: Any, path: str, problems: list[str]) -> Any:
        if not _is_list(value) or len(value) != len(items):
            return _wrong(f"an array of {len(items)}", value, path, problems)
        return tuple(
            [
                item.read(part, f"{path}[{at}]", problems)
                for at, (item, part) in enumerate(zip(items, value, strict=True))
            ]
        )

    return Shape(schema, read)


def _mapping(args: tuple[Any, ...], where: str, inside: tuple[Any, ...]) -> Shape:
    if args and args[0] is not str:
        raise TypeError(
            f"{where}: the keys of an object in JSON are texts, so a dict needs str keys, not {_name(args[0])}"
        )
    item = _shape(args[1] if args else Any, f"{where}{{}}", inside)

    def read(value: Any, path: str, problems: list[str]) -> Any:
        if not isinstance(value, Mapping):
            return _wrong("an object", value, path, problems)
        return {key: item.read(part, f"{path}[{key!r}]", problems) for key, part in value.items()}

    return Shape({"type": "object", "additionalProperties": item.schema}, read)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray))


def _at(path: str) -> str:
    return f"{path}: " if path else ""


def _wrong(wanted: str, value: Any, path: str, problems: list[str]) -> None:
    text = canonical_json(value)
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
    problems.append(f"{_at(path)}expected {wanted}, got {shown}")


def _name(hint: Any) -> str:
    return hint.__qualname__ if isinstance(hint, type) else str(hint)
