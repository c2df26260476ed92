"""Checks of what a caller passed: a TypeError or ValueError that names argument, found and expected. Touches only its
arguments."""

from __future__ import annotations

from typing import Any


def require(value: object, kind: type, what: str) -> None:
    """TypeError unless `value` is a `kind`."""
    if not isinstance(value, kind):
        raise TypeError(f"{what} must be a {kind.__name__}, not {type(value).__name__}")


def require_int(value: object, what: str) -> None:
    """TypeError unless `value` is an int, and no bool."""
    if type(value) is not int:
        raise TypeError(f"{what} must be an int, not {type(value).__name__}")


def check_size(value: Any, name: str) -> None:
    """TypeError unless the field `name` of `value` is an int or None, ValueError when it is negative."""
    size = getattr(value, name)
    if size is not None and type(size) is not int:
        raise TypeError(f"{type(value).__name__}.{name} must be an int or None, not {type(size).__name__}")
    if size is not None and size < 0:
        raise ValueError(f"{type(value).__name__}.{name} must not be negative: {size}")


def settle_text(value: Any, *names: str, optional: bool = False) -> None:
    """Makes those fields of the frozen `value` exactly `str`, or None where that is `optional`; TypeError for others.

    A subclass of str may print itself as something else (an Enum member does), and its class would travel with it.
    """
    for name in names:
        text = getattr(value, name)
        if type(text) is str or (optional and text is None):
            continue
        if not isinstance(text, str):
            or_none = " or None" if optional else ""
            raise TypeError(f"{type(value).__name__}.{name} must be a str{or_none}, not {type(text).__name__}")
        object.__setattr__(value, name, str.__str__(text))
