"""The seam for counting tokens; `ports` has it too. Nothing but protocols."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from .messages import Message


@runtime_checkable
class TokenCounter(Protocol):
    """Counts prompt tokens. In-process counters also have `measure`, the same without awaiting."""

    async def estimate(self, messages: Sequence[Message], /) -> int: ...


@runtime_checkable
class SyncTokenCounter(TokenCounter, Protocol):
    """A counter that needs no I/O."""

    def measure(self, messages: Sequence[Message], /) -> int: ...
