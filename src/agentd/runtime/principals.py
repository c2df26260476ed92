"""Who speaks. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

Role: TypeAlias = Literal["root", "operator", "user", "agent", "anonymous"]


@dataclass(frozen=True, slots=True)
class Principal:
    """A sender. `id` tells it from all others; `role` is what it may: the runtime itself is `root`."""

    id: str
    role: Role = "user"


OPERATOR: Final = Principal("operator", "operator")
"""Whoever runs the process: the command line, and code that embeds the daemon."""
ROOT_PRINCIPAL: Final = Principal("root", "root")
"""The daemon itself: its notes, and what it does on its own."""
