"""Names and patterns of them, as settings have both. Touches only its arguments."""

from __future__ import annotations

from collections.abc import Iterable


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether one of the patterns is `name`, or a prefix of it that ends in `*`."""
    return any(name.startswith(p[:-1]) if p.endswith("*") else name == p for p in patterns)
