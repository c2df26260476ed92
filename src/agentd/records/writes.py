"""What records are written with: the kinds of write, what a store cannot do, how faults are met. Values only."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import msgspec

from agentkit.core.contracts.errors import StoreError
from agentkit.core.contracts.scope import Scope

from .envelope import Row
from .watch import Watch


class Anything:
    """The type of ANY."""

    def __repr__(self) -> str:
        return "ANY"

    def __reduce__(self) -> str:
        return "ANY"


ANY: Final = Anything()
"""As what was seen: whatever is there is written over, and the fence alone protects it. For rows that only this process
writes. A row that cannot be read is not written over, even so."""


class Save(msgspec.Struct, frozen=True):
    """Write a row. `state`: JSON text, `null` for a tombstone; it is not looked into. `seen`: the row that this one
    follows; None: there must be none, or a tombstone. `scope`: the tenant whose row it is, where that is another one
    than the records are of; its change is committed together with theirs."""

    kind: str
    id: str
    state: bytes
    seen: Row | Anything | None = None
    scope: Scope | None = None


class Add(msgspec.Struct, frozen=True):
    """Add lines to the end of a log. `first`: the number of the first one, from 1 on, one more than the log has."""

    kind: str
    id: str
    first: int
    lines: tuple[bytes, ...]
    scope: Scope | None = None


class Remove(msgspec.Struct, frozen=True):
    """Take away a row, or with ANY a log."""

    kind: str
    id: str
    seen: Row | Anything
    scope: Scope | None = None


Write: TypeAlias = Save | Add | Remove


@dataclass(frozen=True, slots=True)
class Found:
    """A log line that a search found: its number, and a piece of the text around the match."""

    n: int
    excerpt: str


class Unsupported(StoreError):
    """The store was declared unable to do this."""


@dataclass(frozen=True, slots=True)
class Abilities:
    """What a store can do beyond values, logs and commits. Declared once; a passing error never changes it. What cannot
    be listed needs an index of its own; what cannot be deleted becomes a tombstone; what cannot be searched is read
    through."""

    list: bool = True
    delete: bool = True
    search: bool = True


@dataclass(frozen=True, slots=True)
class Trouble:
    """A fault that may pass: which operation, the how-manieth try in a row it was. `is_last`: it is given up."""

    operation: str
    attempt: int
    error: Exception
    is_last: bool


@dataclass(frozen=True, slots=True)
class Retry:
    """How faults that may pass are met: tried again `times` times, after `pause` seconds x the number of the try.

    `timeout`: seconds for one operation, None for no limit. `on_trouble` is told of each fault; refusals are no faults,
    and are never tried again.
    """

    times: int = 3
    pause: float = 0.05
    timeout: float | None = 10.0
    sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep
    on_trouble: Callable[[Trouble], None] | None = None
    watch: Watch | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.timeout is None:
            made = None
        else:
            made = Watch(self.timeout, f"the store gave no answer within {self.timeout:g} s (store.timeout)")
        object.__setattr__(self, "watch", made)
