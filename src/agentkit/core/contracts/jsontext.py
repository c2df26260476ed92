"""JSON text of any value, and the one reader of tool-call arguments. Touches only its arguments."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
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
    return str(value)


def _tolerant_text(value: Any, sort: bool = False) -> str:
    # A work list of texts and values, last first, so that no nesting exhausts the stack.
    parts: list[str] = []
    open_ids: set[int] = set()
    work: list[tuple[str, Any]] = [("value", value)]
    while work:
        what, item = work.pop()
        if what == "text":
            parts.append(item)
        elif what == "close":
            open_ids.discard(item)
        elif isinstance(item, (dict, list, tuple, set, frozenset)):
            if id(item) in open_ids:
                parts.append('"..."')
                continue
            open_ids.add(id(item))
            is_map = isinstance(item, dict)
            entries: list[list[tuple[str, Any]]]
            if isinstance(item, dict):
                rows = sorted(item.items(), key=lambda kv: _leaf_text(kv[0])) if sort else list(item.items())
                entries = [[("text", _key_text(k) + ": "), ("value", v)] for k, v in rows]
            else:
                values = sorted(item, key=_leaf_text) if isinstance(item, (set, frozenset)) else item
                entries = [[("value", v)] for v in values]
            flat: list[tuple[str, Any]] = [("text", "{" if is_map else "[")]
            for number, entry in enumerate(entries):
                if number:
                    flat.append(("text", ", "))
                flat.extend(entry)
            flat += [("text", "}" if is_map else "]"), ("close", id(item))]
            work.extend(reversed(flat))
        else:
            parts.append(_leaf_text(item))
    return "".join(parts)


def _key_text(key: Any) -> str:
    text = _leaf_text(key)
    return text if text.startswith('"') else json.dumps(text, ensure_ascii=False)


def _leaf_text(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return f'"{float(value)!r}"'
    try:
        return json.dumps(
            _plain(value) if not isinstance(value, (str, int, float, type(None))) else value, ensure_ascii=False
        )
    except Exception:  # an integer too long to print, or an object whose str fails
        return f'"<{type(value).__name__}>"'


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
