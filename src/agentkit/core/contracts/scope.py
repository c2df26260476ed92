"""`Scope`, the tenant key (not a message predicate: those are in `state.context`). Touches only its arguments."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Scope:
    """The tenant that stores, caches, meters and callbacks are keyed by. Each id is an int, a str or None.

    Equal scopes have equal keys and unequal ones never share one; nothing is case-folded or normalised.
    Raises TypeError for an id of another type (bool too), ValueError for an empty string.
    """

    org_id: int | str | None = None
    domain_id: int | str | None = None

    def __post_init__(self) -> None:
        for name in ("org_id", "domain_id"):
            value = getattr(self, name)
            if value is not None and type(value) is not int and not isinstance(value, str):
                raise TypeError(f"Scope.{name} must be an int, a str or None, not {type(value).__name__}")
            if value == "":
                raise ValueError(f"Scope.{name} must not be empty; use None for no {name}")
            if isinstance(value, str) and type(value) is not str:
                object.__setattr__(self, name, str.__str__(value))

    def key(self) -> str:
        """`org{org}:dom{domain}`, e.g. `org1:domNone` or `orgacme:domNone`.

        In a string id every UTF-8 byte outside `[A-Za-z0-9_.~-]` is percent-encoded, and so is the first character of
        an id that could be read as a number or as None: `"1"` gives `org%31`.
        """
        return f"org{_part(self.org_id)}:dom{_part(self.domain_id)}"


def _part(value: int | str | None) -> str:
    if not isinstance(value, str):
        return _digits(value) if isinstance(value, int) else "None"
    raw = value.encode("utf-8", "surrogatepass")
    text = re.sub(rb"[^A-Za-z0-9_.~-]", lambda found: b"%%%02X" % found[0][0], raw).decode("ascii")
    if value == "None" or text[0].isdigit() or text[0] == "-":
        return f"%{ord(text[0]):02X}{text[1:]}"
    return text


def _digits(number: int) -> str:
    # The interpreter's printing limit is 640 digits or more. Hexadecimal has none, and begins as no decimal form does.
    return str(number) if number.bit_length() <= 2_000 else hex(number)
