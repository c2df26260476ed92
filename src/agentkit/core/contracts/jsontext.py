"""JSON text of any value, and the one reader of tool-call arguments. Touches only its arguments."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Mapping
from functools import cache
from typing import Any, NoReturn


def json_text(value: Any) -> str:
    """`value` as JSON with Python's default separators, not ASCII-escaped, other objects as `str`. Never raises.

    What plain `json.dumps` refuses (odd keys, cycles, any depth, objects whose `str` fails) gets a readable stand-in.
    """
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except Exception:  # the objects' own code runs here and may raise anything
        return _tolerant_text(value)


def wire_json(value: Any) -> str:
    """`value` as strict JSON, the same in every process: sets sorted, bytes as base64, NaN and infinities as text."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, default=_plain)
    except Exception:  # as in json_text
        return _tolerant_text(value)


def canonical_json(value: Any) -> str:
    """`wire_json` with keys sorted at every depth: equal for mappings that differ in order alone."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, default=_plain, sort_keys=True)
    except Exception:  # keys of several types do not sort; as in json_text
        return _tolerant_text(value, sort=True)


def _plain(value: Any) -> Any:
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=canonical_json)
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, Mapping):
        return dict(value)
    return _address().sub("", str(value))


@cache
def _address() -> re.Pattern[str]:
    # Where an object without a text of its own happens to lie in memory.
    return re.compile(" at 0x[0-9A-Fa-f]+")


_CONTAINERS = (dict, list, tuple, set, frozenset)


def _tolerant_text(value: Any, sort: bool = False) -> str:
    # A work list of texts and values, last first, so that no nesting exhausts the stack. Types are asked of `type`,
    # since an object may raise when it is asked for its class.
    parts: list[str] = []
    open_ids: set[int] = set()
    work: list[tuple[str, Any]] = [("value", value)]
    while work:
        what, item = work.pop()
        if what == "text":
            parts.append(item)
        elif what == "close":
            open_ids.discard(item)
        elif not issubclass(type(item), _CONTAINERS):
            parts.append(_leaf_text(item))
        elif id(item) in open_ids:
            parts.append('"..."')
        else:
            try:
                flat = _flattened(item, sort)
            except Exception:  # a subclass whose iteration fails
                parts.append(_stand_in(item))
                continue
            open_ids.add(id(item))
            work.append(("close", id(item)))
            work.extend(reversed(flat))
    return "".join(parts)


def _flattened(item: Any, sort: bool) -> list[tuple[str, Any]]:
    """One container as the texts and values that make up its JSON."""
    is_map = issubclass(type(item), dict)
    entries: list[list[tuple[str, Any]]]
    if is_map:
        rows = sorted(item.items(), key=lambda kv: _leaf_text(kv[0])) if sort else list(item.items())
        entries = [[("text", _key_text(k) + ": "), ("value", v)] for k, v in rows]
    else:
        values = sorted(item, key=_leaf_text) if issubclass(type(item), (set, frozenset)) else item
        entries = [[("value", v)] for v in values]
    flat: list[tuple[str, Any]] = [("text", "{" if is_map else "[")]
    for number, entry in enumerate(entries):
        if number:
            flat.append(("text", ", "))
        flat.extend(entry)
    flat.append(("text", "}" if is_map else "]"))
    return flat


def _key_text(key: Any) -> str:
    text = _leaf_text(key)
    return text if text.startswith('"') else json.dumps(text, ensure_ascii=False)


def _leaf_text(value: Any) -> str:
    try:
        if isinstance(value, float) and not math.isfinite(value):
            return f'"{float(value)!r}"'
        plain = value if value is None or isinstance(value, (str, int, float)) else _plain(value)
        return json.dumps(plain, ensure_ascii=False)
    except Exception:  # the object's own code runs here and may raise anything
        return _stand_in(value)


def _stand_in(value: Any) -> str:
    if issubclass(type(value), int):  # of more digits than the interpreter prints
        return f'"{int.__index__(value):#x}"'
    return json.dumps(f"<{type(value).__name__}>", ensure_ascii=False)


class _NotAnObject(ValueError):
    pass


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise _NotAnObject(text)
    return number


def _refuse_constant(text: str) -> NoReturn:
    raise _NotAnObject(text)


_decoder = json.JSONDecoder(parse_float=_finite, parse_constant=_refuse_constant)


def parse_object(text: str) -> dict[str, Any] | None:
    """The JSON object that a provider's argument string holds; `{}` for blank text or `null`; None when it is none.

    Refused: broken JSON, anything but an object, NaN or infinite numbers, integers of more digits than the interpreter
    reads, nesting that exhausts the parser.
    """
    stripped = text.strip(" \t\r\n")
    if not stripped or stripped == "null":
        return {}
    try:
        value = _decoder.decode(stripped)
    except (ValueError, RecursionError):
        return None
    return value if type(value) is dict else None
