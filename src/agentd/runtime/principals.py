"""Who speaks. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from agentd.config import Settings

Role: TypeAlias = Literal["root", "operator", "user", "agent", "anonymous"]


@dataclass(frozen=True, slots=True)
class Principal:
    """A sender. `id` tells it from all others; `role` is what it may: the runtime itself is `root`. `agent`: the
    subagent that works in this sender's name, and may less."""

    id: str
    role: Role = "user"
    agent: str = ""


OPERATOR: Final = Principal("operator", "operator")
"""Whoever runs the process: the command line, and code that embeds the daemon."""
ROOT_PRINCIPAL: Final = Principal("root", "root")
"""The daemon itself: its notes, and what it does on its own."""


def sender_of(settings: Settings, owner: str | None) -> Principal:
    """The owner of a context as a sender, in the role of the rule that names it, else a user's. A context without an
    owner is that of whoever runs the process."""
    if owner is None or owner == OPERATOR.id:
        return OPERATOR
    rules = {rule.id: rule.role for rule in settings.a2a.principals}
    return Principal(owner, rules.get(owner, "user"))
