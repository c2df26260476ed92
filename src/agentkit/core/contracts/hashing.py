"""`stable_hash`: one key for equal plain values, the same in every process. Touches only its argument."""

from __future__ import annotations

import datetime
import decimal
import enum
import hashlib
import uuid
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from itertools import chain
from typing import Any, NamedTuple


def stable_hash(value: Any) -> str:
    """SHA-256 of `value` as 64 hexadecimal digits; no clock, memory address or hash seed goes into it.

    Takes str, int, float, bool, None, bytes, date, time, datetime, UUID, Decimal, Enum, dataclasses, and mappings, sets
    and sequences of these, at any depth. Mappings and sets count by content, not order. `1`, `1.0`, `True` and `"1"`
    differ, list and tuple do not. Raises TypeError for anything else, ValueError for a value that contains itself.
    """
    # A work list in place of recursion. A container is pushed twice, in front of its parts and behind them: popped the
    # second time, the digests of its parts are the last of `digests`.
    digests: list[bytes] = []
    done: dict[int, tuple[Any, bytes]] = {}  # with the value, so that its id stays taken
    open_ids: set[int] = set()
    work: list[tuple[Any, _Parts | None]] = [(value, None)]
    while work:
        item, parts = work.pop()
        if parts is not None:
            start = len(digests) - len(parts.values)
            digests[start:] = [parts.digest(digests[start:])]
            done[id(item)] = item, digests[-1]
            open_ids.discard(id(item))
        elif (leaf := _leaf(item)) is not None:
            digests.append(hashlib.sha256(leaf).digest())
        elif id(item) in done:
            digests.append(done[id(item)][1])
        elif id(item) in open_ids:
            raise ValueError("a value that contains itself cannot be hashed")
        else:
            parts = _parts(item)
            open_ids.add(id(item))
            work.append((item, parts))
            work.extend((part, None) for part in reversed(parts.values))
    return digests[0].hex()


def _leaf(value: Any) -> bytes | None:
    kind = type(value)
    if value is None or kind is bool:
        return b"c" + repr(value).encode()
    if isinstance(value, enum.Enum):
        name = value.name or hex(value.value)  # a combination of flags may have no name
        return _tagged(b"E", _named(kind), name.encode())
    if isinstance(value, str):
        return b"s" + value.encode("utf-8", "surrogatepass")
    if isinstance(value, int):
        return b"i" + hex(value).encode()
    if isinstance(value, float):
        return b"f" + repr(float(value)).encode()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return b"b" + bytes(value)
    if isinstance(value, (datetime.date, datetime.time)):
        return _tagged(b"t", kind.__name__.encode(), value.isoformat().encode())
    if isinstance(value, uuid.UUID):
        return b"u" + value.bytes
    if isinstance(value, decimal.Decimal):
        return b"d" + str(value).encode()
    return None


class _Parts(NamedTuple):
    """What a container is made of: `width` values make up one entry."""

    head: bytes
    values: list[Any]
    width: int = 1
    ordered: bool = True

    def digest(self, digests: list[bytes]) -> bytes:
        entries = [b"".join(digests[at : at + self.width]) for at in range(0, len(digests), self.width)]
        return hashlib.sha256(_tagged(self.head, *(entries if self.ordered else sorted(entries)))).digest()


def _parts(value: Any) -> _Parts:
    kind = type(value)
    if is_dataclass(value) and not isinstance(value, type):
        named = [(f.name, getattr(value, f.name)) for f in fields(value)]
        return _Parts(_tagged(b"D", _named(kind)), list(chain.from_iterable(named)), 2)
    if isinstance(value, Mapping):
        return _Parts(b"m", list(chain.from_iterable(value.items())), 2, ordered=False)
    if isinstance(value, AbstractSet):
        return _Parts(b"S", list(value), ordered=False)
    if isinstance(value, Sequence):
        return _Parts(b"l", list(value))
    raise TypeError(f"cannot hash a {kind.__name__} by content; pass plain data instead")


def _named(kind: type) -> bytes:
    return f"{kind.__module__}.{kind.__qualname__}".encode()


def _tagged(tag: bytes, *parts: bytes) -> bytes:
    return tag + b"".join(len(part).to_bytes(8, "big") + part for part in parts)
