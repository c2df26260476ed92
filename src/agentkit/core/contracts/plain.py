"""Values to plain JSON and back, without loss: the machine inside the codec. Touches only its arguments.

What JSON can carry stays as it is. Everything else is an object with the key `$`, which names its kind:

```
{"$": "tuple", "v": [...]}                  also set, frozenset: in the order of their items' JSON text
{"$": "dict", "v": [key, value, ...]}       a dict with keys that are no plain text
{"$": "$", "$$": ...}                       a dict that has the key "$": keys of dollar signs get one more
{"$": "bytes", "v": "aGk="}                 base64
{"$": "str", "v": "a\\ud800"}                lone surrogates and backslashes escaped, so that the text is valid UTF-8
{"$": "float", "v": "nan"}                  also inf and -inf
{"$": "int", "v": "0x1f"}                   integers of more digits than every reader takes
{"$": "datetime", "v": "2026-01-01T12:00:00+01:00", "zone": ..., "name": ..., "fold": 1}
{"$": "message", "role": "user", "content": "hi"}
```
Subclasses (named tuples, enums) are refused, since they would come back as something else; a frozen dict or list comes
back plain, and equal. What a class of the project or of a user looks like is registered from outside: see `codec`.
"""

from __future__ import annotations

import base64
import datetime
import importlib
import json
import math
import re
import threading
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any, TypeAlias, TypeVar

from .errors import CodecError, FormatError, FreezeError
from .frozen import FrozenDict, FrozenList

V = TypeVar("V")
T = TypeVar("T")

Writer: TypeAlias = Callable[[Any, bool, int], dict[str, Any]]
"""`(value, strict, room) -> object with the key "$"`. `strict`: tag odd texts and numbers; `room`: levels left."""
Reader: TypeAlias = Callable[[dict[str, Any]], Any]
"""`(object with the key "$", its parts read already) -> value`."""

MAX_LEVELS = 800
"""Nesting of the JSON text. The standard reader gives up at the interpreter's recursion limit, by default 1,000; 400
levels of wire data and 100 of notes fit, and twice as many JSON levels where a tag is needed at each."""

MAX_DECIMAL_BITS = 2_000
"""Larger integers are written in hexadecimal: the interpreter may be set to read no more than 640 decimal digits."""

ATOMS = frozenset({str, int, float, bool, type(None)})
_MOSTLY_PLAIN = ATOMS - {int}
DICTS = frozenset({dict, FrozenDict})
LISTS: dict[type, str | None] = {list: None, FrozenList: None, tuple: "tuple", set: "set", frozenset: "frozenset"}
_LONE = re.compile("[\ud800-\udfff]")


def encode(value: Any) -> bytes:
    """`value` as JSON text, in valid UTF-8 that any strict JSON reader takes.

    Raises CodecError with the path to the first part that cannot be carried without loss, FreezeError for a value that
    contains itself or is nested beyond `MAX_LEVELS`.
    """
    return with_full_stack(_encode, value)


def decode(data: bytes | str) -> Any:
    """The value that `encode` was given. Raises FormatError for text that it does not write, or an unknown kind."""
    return with_full_stack(_decode, data)


def to_plain(value: Any) -> Any:
    """`value` as the plain data that `encode` writes; raises as `encode` does."""
    return with_full_stack(lambda given: checked(given, True), value)


def from_plain(plain: Any) -> Any:
    """The value that `to_plain` was given. Raises FormatError as `decode` does."""
    return with_full_stack(_from_plain, plain)


def described(value: Any) -> dict[str, Any]:
    """`to_plain` of a registered value, without the key that names its kind."""
    plain: dict[str, Any] = to_plain(value)
    del plain["$"]
    return plain


def from_mapping(cls: type[T], data: Any) -> T:
    """A value of `cls` from a mapping that anybody may have written; `cls` is one that has a `from_dict`."""
    if cls not in FROM_MAPPING:
        _load_forms()
    made: T = FROM_MAPPING[cls](data)
    return made


def _load_forms() -> None:
    # By name and on demand: the forms import every value of the project, and each of these may import this module.
    importlib.import_module(".codec", __package__)


class Refused(Exception):
    """Travels up from the part that cannot be carried and collects the path to it, innermost step first."""

    def __init__(self, reason: str, deep: bool = False) -> None:
        self.reason, self.deep = reason, deep
        self.path: list[str] = []
        self.inside: list[int] = []

    def as_error(self, root: str) -> CodecError | FreezeError:
        steps = self.path[::-1]
        path = root + "".join(steps[:12]) + ("..." if len(steps) > 12 else "")
        if not self.deep:
            return CodecError(f"{path}: {self.reason}")
        if len(set(self.inside)) < len(self.inside):
            return FreezeError(f"{path}: a value that contains itself cannot be stored", cycle=True)
        return FreezeError(f"{path}: {self.reason}")


def with_full_stack(work: Callable[[V], T], value: V) -> T:
    """`work(value)`; where the caller's own frames leave too little of the stack, in a thread that has all of it."""
    try:
        return work(value)
    except RecursionError:
        results: list[T] = []
        errors: list[BaseException] = []

        def run() -> None:
            try:
                results.append(work(value))
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=run, name="agentkit-codec")
        thread.start()
        thread.join()
        if not errors:
            return results[0]
        if isinstance(errors[0], RecursionError):
            raise FormatError("nested too deeply for this interpreter's recursion limit") from None
        raise errors[0] from None


# --- writing ---

_dumps = json.JSONEncoder(ensure_ascii=False, check_circular=False, allow_nan=False, separators=(",", ":")).encode


def _encode(value: Any) -> bytes:
    # Odd texts and numbers are rare: they are looked for only when the plain form turns out to be no strict JSON.
    try:
        return _dumps(checked(value, False)).encode("utf-8")
    except ValueError:
        return _dumps(checked(value, True)).encode("utf-8")


def checked(value: Any, strict: bool) -> Any:
    try:
        return write_plain(value, strict, MAX_LEVELS)
    except Refused as refused:
        raise refused.as_error(type(value).__name__) from None


def write_plain(value: Any, strict: bool, room: int) -> Any:
    # One frame a level, whatever the container: the depth that is promised has to fit the stack.
    kind = type(value)
    if kind in ATOMS:
        return _strict_atom(value, kind) if strict or kind is int else value
    if room <= 0:
        raise Refused(f"nested beyond {MAX_LEVELS} levels of JSON, which no reader would take", deep=True)
    at: Any = None
    items: list[Any] = []
    try:
        if kind in DICTS:
            out: dict[str, Any] = {}
            for at, item in value.items():
                if type(at) is not str or (strict and _is_odd(at)):
                    break
                out[at] = item if type(item) in _MOSTLY_PLAIN and not strict else write_plain(item, strict, room - 1)
            else:
                return _escaped(out) if "$" in out else out
            pairs: list[Any] = []
            for at, item in value.items():
                pairs += write_plain(at, strict, room - 2), write_plain(item, strict, room - 2)
            return {"$": "dict", "v": pairs}
        if kind in LISTS:
            tag = LISTS[kind]
            below = room - 1 if tag is None else room - 2
            for item in value:  # no comprehension: it would take a second frame, and not tell where it failed
                plain = item if type(item) in _MOSTLY_PLAIN and not strict else write_plain(item, strict, below)
                items.append(plain)
            if tag is None:
                return items
            if tag != "tuple":
                items.sort(key=_dumps)  # nothing that is stored depends on the order of a set
            return {"$": tag, "v": items}
        writer = WRITERS.get(kind)
        if writer is None:
            _load_forms()
            writer = WRITERS.get(kind)
        if writer is None:
            raise Refused(f"a value of type {kind.__module__}.{kind.__qualname__} cannot be stored without loss")
        return writer(value, strict, room)
    except Refused as refused:
        if kind in DICTS:
            refused.path.append(f"[{at!r:.40}]" if type(at) in ATOMS else f"[<{type(at).__name__}>]")
        elif kind in LISTS:
            refused.path.append(f"[{len(items)}]")
        refused.inside.append(id(value))
        raise


def _strict_atom(value: Any, kind: type) -> Any:
    if kind is str and _is_odd(value):
        return {"$": "str", "v": _ODD.sub(_escape, value)}
    if kind is float and not math.isfinite(value):
        return {"$": "float", "v": repr(value)}
    if kind is int and value.bit_length() > MAX_DECIMAL_BITS:
        return {"$": "int", "v": hex(value)}
    return value


def _is_odd(text: str) -> bool:
    return not text.isascii() and _LONE.search(text) is not None


def _escape(found: re.Match[str]) -> str:
    return "\\\\" if found[0] == "\\" else f"\\u{ord(found[0]):04x}"


def _escaped(plain: dict[str, Any]) -> dict[str, Any]:
    return {"$": "$", **{key if not key or key.strip("$") else key + "$": item for key, item in plain.items()}}


def _write_zoned(value: datetime.datetime | datetime.time, tag: str, strict: bool) -> dict[str, Any]:
    zone = value.tzinfo
    out: dict[str, Any] = {"$": tag}
    if zone is None:
        out["v"] = value.isoformat()
    elif type(zone) is datetime.timezone:
        offset, *name = zone.__getinitargs__()  # type: ignore[attr-defined]
        if offset.microseconds:  # not every reader of the ISO form takes offsets finer than a second
            out |= {"v": value.replace(tzinfo=None).isoformat(), "offset_us": offset // _MICROSECOND}
        else:
            out["v"] = value.isoformat()
        if name:
            out["name"] = write_plain(name[0], strict, 1)
    elif type(zone).__module__ == "zoneinfo" and getattr(zone, "key", None):
        out |= {"v": value.replace(tzinfo=None).isoformat(), "zone": str(zone)}
    else:
        raise Refused(f"a time zone of type {type(zone).__module__}.{type(zone).__qualname__} cannot be stored")
    if value.fold:
        out["fold"] = 1
    return out


# --- reading ---


def _decode(data: bytes | str) -> Any:
    try:
        text = data if isinstance(data, str) else data.decode("utf-8")
        try:
            value, end = _scan(text, 0)  # `decode` alone would look for white space first, in twice the time
            return value if end == len(text) else _decoder.decode(text)
        except StopIteration:
            return _decoder.decode(text)
    except FormatError:
        raise
    except _UNREADABLE as error:
        raise FormatError(f"stored text is not what the codec writes: {type(error).__name__}: {error}") from error


_UNREADABLE = (ValueError, TypeError, KeyError, AttributeError, ArithmeticError)
"""What readers and constructors raise on data that the codec has not written."""


def _from_plain(plain: Any) -> Any:
    try:
        text = _dumps(plain)
    except (TypeError, ValueError) as error:
        raise FormatError(f"plain data is no strict JSON: {error}") from error
    return _decode(text)


def _revive(found: dict[str, Any]) -> Any:
    """The value that an object of the text stands for; called from the innermost object outwards."""
    if "$" not in found:
        return found
    reader = READERS.get(found["$"])
    if reader is None:
        _load_forms()
        reader = READERS.get(found["$"])
    if reader is None:
        raise FormatError(
            f"stored text holds a value of the unknown kind {found['$']!r:.60}: import the module that registers it, "
            "or read it with the newer release that wrote it"
        )
    return reader(found)


_decoder = json.JSONDecoder(object_hook=_revive)
_scan: Callable[[str, int], tuple[Any, int]] = _decoder.scan_once  # type: ignore[attr-defined]


def revived(value: Any) -> Any:
    """A copy of data from anywhere with the codec's tags read; what only looks like one stays as it is."""
    kind = type(value)
    if kind is list or kind is FrozenList:
        items: list[Any] = []
        for item in value:
            items.append(revived(item))  # noqa: PERF401 - a comprehension would take a second frame for each level
        return items
    if kind is dict or kind is FrozenDict:
        inner: dict[Any, Any] = {}
        for key, item in value.items():
            inner[key] = revived(item)
        tag = inner.get("$")
        if type(tag) is str and tag in READERS:
            try:
                return READERS[tag](dict(inner))
            except _UNREADABLE:
                return inner
        return inner
    return value


def _read_dict(found: dict[str, Any]) -> dict[Any, Any]:
    flat = found["v"]
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _read_escaped(found: dict[str, Any]) -> dict[str, Any]:
    del found["$"]
    return {key if not key or key.strip("$") else key[:-1]: value for key, value in found.items()}


def _read_zoned(found: dict[str, Any], kind: Any) -> Any:
    value = kind.fromisoformat(found["v"])
    if "zone" in found:
        from zoneinfo import ZoneInfo  # needed for such values only, and not cheap to import

        value = value.replace(tzinfo=ZoneInfo(found["zone"]))
    elif "offset_us" in found or "name" in found:
        offset = found["offset_us"] * _MICROSECOND if "offset_us" in found else value.utcoffset()
        value = value.replace(tzinfo=datetime.timezone(offset, *([found["name"]] if "name" in found else [])))
    return value.replace(fold=1) if found.get("fold") else value


# --- the kinds ---

_MICROSECOND = datetime.timedelta(microseconds=1)
_ODD = re.compile("[\\\\\ud800-\udfff]")
_UNODD = re.compile(r"\\(\\|u[0-9a-f]{4})")
WRITERS: dict[type, Writer] = {
    bytes: lambda value, strict, room: {"$": "bytes", "v": base64.b64encode(value).decode("ascii")},
    datetime.date: lambda value, strict, room: {"$": "date", "v": value.isoformat()},
    datetime.datetime: lambda value, strict, room: _write_zoned(value, "datetime", strict),
    datetime.time: lambda value, strict, room: _write_zoned(value, "time", strict),
    uuid.UUID: lambda value, strict, room: {"$": "uuid", "v": str(value)},
    Decimal: lambda value, strict, room: {"$": "decimal", "v": str(value)},
}
READERS: dict[str, Reader] = {
    "$": _read_escaped,
    "dict": _read_dict,
    "tuple": lambda found: tuple(found["v"]),
    "set": lambda found: set(found["v"]),
    "frozenset": lambda found: frozenset(found["v"]),
    "str": lambda found: _UNODD.sub(lambda m: "\\" if m[1] == "\\" else chr(int(m[1][1:], 16)), found["v"]),
    "float": lambda found: float(found["v"]),
    "int": lambda found: int(found["v"], 16),
    "bytes": lambda found: base64.b64decode(found["v"], validate=True),
    "date": lambda found: datetime.date.fromisoformat(found["v"]),
    "datetime": lambda found: _read_zoned(found, datetime.datetime),
    "time": lambda found: _read_zoned(found, datetime.time),
    "uuid": lambda found: uuid.UUID(found["v"]),
    "decimal": lambda found: Decimal(found["v"]),
}
FROM_MAPPING: dict[type, Callable[[Any], Any]] = {}
"""For a class with a `from_dict`: what makes a value of a mapping that anybody may have written."""
