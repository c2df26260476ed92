"""`FakeMemory`: a MemorySource that recalls by rule. Touches only its arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agentkit.core.contracts.ports import Ctx


class FakeMemory:
    """A memory whose recall is given beforehand, and which notes what it is asked and told.

    `items`: what every query recalls; or a mapping of substrings to items, of which the first that the question
    contains counts (nothing where none does); or an exception, which is raised. What is written is recalled behind
    them, for the tenant that wrote it only. A query gets the first `k`.
    """

    def __init__(self, items: Sequence[Any] | Mapping[str, Sequence[Any]] | BaseException = ()) -> None:
        self.queries: list[tuple[str, str, int]] = []
        """(scope key, text, k) of every query, in order."""
        self.written: list[tuple[str, Any]] = []
        """(scope key, item) of everything that was written, in order."""
        self._items = items

    async def query(self, text: str, ctx: Ctx, /, k: int = 5) -> list[Any]:
        self.queries.append((ctx.scope.key(), text, k))
        given = self._items
        if isinstance(given, BaseException):
            raise given
        if isinstance(given, Mapping):
            given = next((items for part, items in given.items() if part in text), ())
        return [*given, *(item for key, item in self.written if key == ctx.scope.key())][:k]

    async def write(self, items: Sequence[Any], ctx: Ctx, /) -> int:
        """How many were taken: all of them."""
        if isinstance(self._items, BaseException):
            raise self._items
        self.written += [(ctx.scope.key(), item) for item in items]
        return len(items)
