"""What the wires of a fake provider share: shapes of JSON objects, sealed texts, pieces of a stream. Touches only its
arguments."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeAlias

from agentkit.models.catalog.abilities import Abilities

Event: TypeAlias = "tuple[str | None, Any]"
"""A server-sent event: its name, None for none, and its data: JSON, or a text that is sent as it is."""

TEXT, NUMBER, INTEGER, FLAG, LIST, OBJECT, ANY = "string", "number", "integer", "boolean", "array", "object", "any"
"""Kinds of JSON values, in the words of JSON Schema."""


def kind_of(value: Any) -> str:
    """The kind of a JSON value; `null` for None."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return FLAG
    if isinstance(value, int):
        return INTEGER
    if isinstance(value, float):
        return NUMBER
    return TEXT if isinstance(value, str) else LIST if isinstance(value, list) else OBJECT


def is_kind(value: Any, kinds: str) -> bool:
    """Whether a value is of one of the kinds, which stand side by side: `string|array`."""
    found = kind_of(value)
    wanted = kinds.split("|")
    return ANY in wanted or found in wanted or (found == INTEGER and NUMBER in wanted)


@dataclass(frozen=True)
class Shape:
    """The fields of a JSON object and their kinds; `required`: those that must be there."""

    kinds: Mapping[str, str]
    required: tuple[str, ...] = ()


def shape(required: str = "", **kinds: str) -> Shape:
    """A shape whose `required` fields are named in one text. A field called like a keyword has a `_` behind it."""
    return Shape({name.rstrip("_"): kind for name, kind in kinds.items()}, tuple(required.split()))


@dataclass
class Seal:
    """Signs and encrypts nothing but tells its own texts from altered ones, by an HMAC under `key`."""

    key: bytes

    def sign(self, text: str) -> str:
        """The signature of a text: base64, as providers' are."""
        mac = hmac.new(self.key, text.encode("utf-8", "surrogatepass"), hashlib.sha256).digest()
        return base64.b64encode(b"fake-provider-1:" + mac).decode("ascii")

    def holds(self, text: str, signature: str) -> bool:
        return hmac.compare_digest(self.sign(text), signature) if signature.isascii() else False

    def wrap(self, text: str) -> str:
        """A text as opaque data that `opened` knows again: base64, with the letters that are safe in URLs."""
        return base64.urlsafe_b64encode(f"{self.sign(text)}.{text}".encode("utf-8", "surrogatepass")).decode("ascii")

    def opened(self, data: str) -> str | None:
        """The text of wrapped data; None for data that is not from here, or altered. Either form of base64 is taken."""
        try:
            plain = base64.b64decode(data.replace("-", "+").replace("_", "/"), validate=True)
            signature, _, text = plain.decode("utf-8", "surrogatepass").partition(".")
        except ValueError:
            return None
        return text if self.holds(text, signature) else None


@dataclass
class Desk:
    """What a wire needs of its provider: seal, ids, counter of tokens, piece length of streams in characters, windows
    of models in tokens, what models refuse, and items that the provider has stored."""

    seal: Seal
    counter: Callable[[str], int]
    piece: int
    windows: Callable[[str], int | None]
    models: tuple[str, ...] | None
    created: int
    abilities: Callable[[str], Abilities]
    stored: dict[str, Any] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def new_id(self, prefix: str) -> str:
        """The next id; the same run gives the same ones."""
        return f"{prefix}fake{next(self._numbers):08d}"

    def pieces(self, text: str) -> list[str]:
        """A text cut for a stream. None for an empty one."""
        return [text[at : at + self.piece] for at in range(0, len(text), self.piece)]


def dumped(value: Any) -> str:
    """JSON as it is sent: short, and the same for equal values in the same order."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def texts_of(value: Any) -> Iterator[str]:
    """Every text in a JSON value, keys left out; base64 data and URLs of pictures count as nothing."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for one in value:
            yield from texts_of(one)
    elif isinstance(value, dict):
        for name, one in value.items():
            if name not in ("cache_control", "prompt_cache_breakpoint", "type", "role"):
                yield from texts_of(one)
