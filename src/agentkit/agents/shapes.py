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
from typing import Any

from .readers import NAMED, Field, Shape, at, choice, list_of, mapping_of, object_shape, scalar, text, tuple_of, union

ACCEPTED = (
    "str, int, float, bool, None, Any, Literal, Enum, list, tuple, set, dict with str keys, unions, Annotated, "
    "dataclasses, TypedDict, pydantic models, date, datetime, UUID"
)

_LISTS: dict[Any, Callable[[list[Any]], Any]] = {
    list: list, Sequence: list, MutableSequence: list, Iterable: list, Collection: list,
    set: set, frozenset: frozenset, AbstractSet: set,
}  # fmt: skip
_MAPPINGS = (dict, Mapping, MutableMapping)
_TEXTS: dict[Any, tuple[str, Callable[[str], Any]]] = {
    datetime.datetime: ("date-time", datetime.datetime.fromisoformat),
    datetime.date: ("date", datetime.date.fromisoformat),
    uuid.UUID: ("uuid", uuid.UUID),
}


def shape_of(hint: Any, where: str = "the type") -> Shape:
    """What `hint` means as JSON. TypeError naming `where` for a hint that JSON cannot express."""
    return _shape(hint, where, ())


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
    if hint is None or hint in NAMED:
        return scalar(type(None) if hint is None else hint)
    if origin is typing.Literal:
        return choice([(value, value) for value in args], where)
    if origin in (typing.Union, types.UnionType):
        return union([_shape(arg, where, inside) for arg in args])
    base = hint if origin is None else origin
    if base is tuple:
        return _tuple(args, where, inside)
    if base in _LISTS:
        return list_of(_shape(args[0] if args else Any, f"{where}[]", inside), _LISTS[base])
    if base in _MAPPINGS:
        return _mapping(args, where, inside)
    if isinstance(hint, type):
        return _class(hint, where, inside)
    raise TypeError(f"{where}: {_name(hint)} has no form in JSON; use {ACCEPTED}")


def _class(hint: type, where: str, inside: tuple[Any, ...]) -> Shape:
    if hint in _TEXTS:
        return text(*_TEXTS[hint])
    if issubclass(hint, Enum):
        return choice([(member.value, member) for member in hint], where)
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


def hints_of(
    owner: Any, where: str, names: dict[str, Any] | None = None, local: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Type hints of a class, or of what has annotations, resolved by `names` (None: those of its module) and `local`;
    TypeError where one names what cannot be found."""
    try:
        return typing.get_type_hints(owner, names, dict(local or {}), include_extras=True)
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
                problems.append(f"{at(path)}{error}")
                return None
            for item in details():
                place = ".".join([path, *map(str, item["loc"])] if path else map(str, item["loc"]))
                problems.append(f"{at(place)}{item['msg']}")
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
    told = next((note for note in notes if isinstance(note, str)), None)
    return shape if told is None else Shape({**shape.schema, "description": told}, shape.read)


def _tuple(args: tuple[Any, ...], where: str, inside: tuple[Any, ...]) -> Shape:
    if not args or (len(args) == 2 and args[1] is Ellipsis):
        return list_of(_shape(args[0] if args else Any, f"{where}[]", inside), tuple)
    return tuple_of([_shape(arg, f"{where}[{place}]", inside) for place, arg in enumerate(args)])


def _mapping(args: tuple[Any, ...], where: str, inside: tuple[Any, ...]) -> Shape:
    if args and args[0] is not str:
        raise TypeError(
            f"{where}: the keys of an object in JSON are texts, so a dict needs str keys, not {_name(args[0])}"
        )
    return mapping_of(_shape(args[1] if args else Any, f"{where}{{}}", inside))


def _name(hint: Any) -> str:
    return hint.__qualname__ if isinstance(hint, type) else str(hint)
