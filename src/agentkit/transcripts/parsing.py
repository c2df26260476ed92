"""JSON as it is found in recorded files: tolerant where nothing is lost, explicit where something is.

Touches only its arguments.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from agentkit.core.contracts.errors import FreezeError
from agentkit.core.contracts.frozen import MAX_WIRE_DEPTH, deep_freeze
from agentkit.core.contracts.jsontext import json_text

from .report import Reporter

# One object a constant: two imports of the same file are then equal, although NaN is not equal to NaN.
_CONSTANTS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


def _whole_number(digits: str) -> int | str:
    try:
        return int(digits)
    except ValueError:  # more digits than the interpreter reads
        return digits


# Control characters inside strings are read as they are: writers of logs forget to escape them.
_decoder = json.JSONDecoder(strict=False, parse_constant=_CONSTANTS.__getitem__)
_scan: Callable[[str, int], tuple[Any, int]] = vars(_decoder)["scan_once"]
"""The decoder without its look for white space in front: a third of the time that a short line takes."""
_long_numbers = json.JSONDecoder(strict=False, parse_constant=_CONSTANTS.__getitem__, parse_int=_whole_number)


class Unreadable(ValueError):
    """A text that is no JSON; the message says where and why. Stays inside this package."""


def parse(text: str) -> Any:
    """The plain value that `text` spells; Unreadable when there is none. Numbers too long to read become text."""
    try:
        value, end = _scan(text, 0)
        if end == len(text) or not text[end:].strip(" \t\r\n"):
            return value
    except (StopIteration, RecursionError, ValueError):
        pass
    try:
        return _decoder.decode(text)
    except json.JSONDecodeError as error:
        raise _unreadable(error) from None
    except RecursionError:
        raise Unreadable("nested too deeply to be read") from None
    except ValueError:
        return _long_numbers.decode(text)


def parse_all(text: str) -> list[Any]:
    """The values that stand in `text` one after the other, whatever white space is between them."""
    values: list[Any] = []
    at = _blank_end(text, 0)
    while at < len(text):
        try:
            value, at = _long_numbers.raw_decode(text, at)
        except json.JSONDecodeError as error:
            raise _unreadable(error) from None
        except RecursionError:
            raise Unreadable("nested too deeply to be read") from None
        values.append(value)
        at = _blank_end(text, at)
    return values


def _blank_end(text: str, at: int) -> int:
    found = _BLANKS.match(text, at)
    return found.end() if found else at


def _unreadable(error: json.JSONDecodeError) -> Unreadable:
    place = f"line {error.lineno} column {error.colno}" if error.lineno > 1 else f"column {error.colno}"
    return Unreadable(f"{error.msg} at {place}")


_BLANKS = re.compile(r"[ \t\r\n]*")
_TOKENS = re.compile(r'"(?:[^"\\]++|\\.)*+"|"(?:[^"\\]++|\\.?)*+\Z|[\[\]{},]', re.DOTALL)
_CLOSING = {"{": "}", "[": "]"}


def salvage(text: str) -> Any:
    """The value of a JSON text that was cut off, without its last, incomplete element; Unreadable if that is not it.

    Cuts where the last complete element ended and closes what is open there.
    """
    open_ends: list[str] = []
    end = 0
    for token in _TOKENS.finditer(text):
        sign = token[0]
        if sign in _CLOSING:
            open_ends.append(_CLOSING[sign])
            end = token.end()
        elif sign == ",":
            end = token.start()
        elif len(sign) == 1 and sign != '"':
            if not open_ends or open_ends.pop() != sign:
                raise Unreadable("brackets do not match")
            end = token.end()
    if not open_ends:
        raise Unreadable("not cut off, but broken")
    return parse(text[:end] + "".join(reversed(open_ends)))


def bounded(value: Any) -> tuple[Any, bool]:
    """A deep-frozen copy, and whether it is whole: parts nested too deeply to be frozen become their JSON text."""
    try:
        return deep_freeze(value, max_depth=MAX_WIRE_DEPTH), True
    except FreezeError:
        return deep_freeze(_cut_deep(value, MAX_WIRE_DEPTH - 1), max_depth=MAX_WIRE_DEPTH), False


def seal(value: Any, report: Reporter, place: str) -> Any:
    """A deep-frozen copy; what had to be cut because it is nested too deeply is reported."""
    try:
        return deep_freeze(value, max_depth=MAX_WIRE_DEPTH)
    except FreezeError:
        report.repair("nested", place, "deep parts kept as JSON text", "nested deeper than values may be")
        return bounded(value)[0]


def _cut_deep(value: Any, room: int) -> Any:
    # Plain loops: a comprehension would take a second frame a level and come near the interpreter's limit.
    kind = type(value)
    if kind is not dict and kind is not list:
        return value
    if not room:
        return json_text(value)
    if kind is dict:
        record = {}
        for key, item in value.items():
            record[key] = _cut_deep(item, room - 1)
        return record
    items = []
    for item in value:
        items.append(_cut_deep(item, room - 1))  # noqa: PERF401 - as said above
    return items


def without(record: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    """A copy of a record less some keys."""
    return {k: v for k, v in record.items() if k not in keys}


def event_stream(text: str) -> Iterator[Any]:
    """The JSON data of a recorded stream of server-sent events, in order; what is no JSON is passed over."""
    for line in text.split("\n"):
        if line.startswith("data:"):
            data = line[5:].strip()
            if data and data != "[DONE]":
                try:
                    value = parse(data)
                except Unreadable:
                    continue
                yield bounded(value)[0]
