"""`stable_hash`: one key for equal plain values, the same in every process. Touches only its argument."""

from __future__ import annotations

import datetime
import decimal
import enum
import hashlib
import uuid
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from typing import Any


def stable_hash(value: Any) -> str:
    """SHA-256 of `value` as 64 hexadecimal digits; no clock, memory address or hash seed goes into it.

    Takes str, int, float, bool, None, bytes, date, time, datetime, UUID, Decimal, Enum, dataclasses, and mappings, sets
    and sequences of these. Mappings and sets count by content, not order. `1`, `1.0`, `True` and `"1"` differ, list and
    tuple do not. Raises TypeError for anything else, ValueError for a value that contains itself.
    """
    try:
        return _digest(value).hex()
    except RecursionError:
        raise ValueError("the value contains itself or is nested too deeply to be hashed") from None


def _digest(value: Any) -> bytes:
    return hashlib.sha256(_bytes_of(value)).digest()


def _bytes_of(value: Any) -> bytes:
    kind = type(value)
    if value is None or kind is bool:
        return b"c" + repr(value).encode()
    if isinstance(value, enum.Enum):
        return _tagged(b"E", _named(kind), _digest(value.name))
    if kind is str or isinstance(value, str):
        return b"s" + str(value).encode("utf-8", "surrogatepass")
    if isinstance(value, int):
        return b"i" + hex(value).encode()
    if isinstance(value, float):
        return b"f" + repr(float(value)).encode()
    if isinstance(value, (bytes, bytearray)):
        return b"b" + bytes(value)
    if isinstance(value, (datetime.date, datetime.time)):
        return _tagged(b"t", kind.__name__.encode(), value.isoformat().encode())
    if isinstance(value, uuid.UUID):
        return b"u" + value.bytes
    if isinstance(value, decimal.Decimal):
        return b"d" + str(value).encode()
    if is_dataclass(value) and not isinstance(value, type):
        parts = [_digest(f.name) + _digest(getattr(value, f.name)) for f in fields(value)]
        return _tagged(b"D", _named(kind), *parts)
    if isinstance(value, Mapping):
        return _tagged(b"m", *sorted(_digest(k) + _digest(v) for k, v in value.items()))
    if isinstance(value, AbstractSet):
        return _tagged(b"S", *sorted(map(_digest, value)))
    if isinstance(value, (list, tuple)):
        return _tagged(b"l", *map(_digest, value))
    raise TypeError(f"cannot hash a {kind.__name__} by content; pass plain data instead")


def _named(kind: type) -> bytes:
    return f"{kind.__module__}.{kind.__qualname__}".encode()


def _tagged(tag: bytes, *parts: bytes) -> bytes:
    return tag + b"".join(len(part).to_bytes(8, "big") + part for part in parts)
