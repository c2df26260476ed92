"""Which settings may change while the daemon runs. Values only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from agentd.config.faults import Path, key_text
from agentd.config.section import Section
from agentd.config.settings import Settings

RELOADABLE: tuple[Path, ...] = (
    ("agent",), ("context",), ("memory",), ("skills",), ("tools",), ("limits",), ("intelligence", "budget"), ("mcp",),
    ("triggers",),
)  # fmt: skip
FIXED: tuple[Path, ...] = (("agent", "name"),)
"""Keys below a reloadable one that are none: the name is part of every key in the store."""


@dataclass(frozen=True, slots=True)
class Changes:
    """The new settings may be used from the next turn on; a turn in flight keeps those it started with.

    `keys` are the keys that differ, as messages write them; none if nothing does.
    """

    settings: Settings
    keys: tuple[str, ...]

    @property
    def sections(self) -> frozenset[str]:
        """The sections that differ."""
        return frozenset(key.partition(".")[0] for key in self.keys)


@dataclass(frozen=True, slots=True)
class Refused:
    """Nothing is taken over: these keys differ and need a restart."""

    keys: tuple[str, ...]

    def __str__(self) -> str:
        return f"not reloaded: {', '.join(self.keys)} cannot change while the daemon runs; restart it"


def reload(old: Settings, new: Settings) -> Changes | Refused:
    """Whether a running daemon may go from `old` to `new`, all of it or nothing. A changed secret is a changed key."""
    changed = tuple(_differences(old, new, ()))
    refused = tuple(key_text(path) for path in changed if not _may_change(path))
    return Refused(refused) if refused else Changes(new, tuple(map(key_text, changed)))


def _differences(old: Section, new: Section, at: Path) -> Iterator[Path]:
    for name in type(old).model_fields:
        before, after = getattr(old, name), getattr(new, name)
        if isinstance(before, Section) and type(before) is type(after):
            yield from _differences(before, after, (*at, name))
        elif before != after:
            yield (*at, name)


def _may_change(path: Path) -> bool:
    def is_within(roots: tuple[Path, ...]) -> bool:
        return any(path[: len(root)] == root for root in roots)

    return is_within(RELOADABLE) and not is_within(FIXED)
