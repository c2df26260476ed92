"""What a caller hands over beside the messages, as data that JSON over HTTP can carry. Touches only its arguments."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from agentkit.core.contracts.surrogates import replace_surrogates


def sendable(value: Any, place: str) -> Any:
    """A copy of plain data as it can be sent: lone surrogates, which no UTF-8 holds, become U+FFFD.

    `place` names the value where it is refused: ValueError for NaN and infinities, TypeError for bytes, sets and keys
    that are no text. An object that is none of JSON's is left as it is, since a client may know what to make of it.
    """
    if isinstance(value, str):
        return replace_surrogates(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{place} must be a finite number, not {value}: JSON has no other")
    if isinstance(value, (bytes, bytearray, memoryview, set, frozenset)):
        raise TypeError(f"{place} must be JSON data, not {type(value).__name__}")
    if isinstance(value, Mapping):
        made = {}
        for key, held in value.items():
            if not isinstance(key, str):
                raise TypeError(f"{place} has the key {key!r}; keys must be str, not {type(key).__name__}")
            made[replace_surrogates(key)] = sendable(held, f"{place}.{key}")
        return made
    if isinstance(value, (list, tuple)):
        return [sendable(held, f"{place}[{at}]") for at, held in enumerate(value)]
    return value
