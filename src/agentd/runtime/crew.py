"""What runs and subagents have in common: the actors as they know them, waiting for an end, and writing that does not
give up while the actors go on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from agentkit.core.contracts.errors import Conflict, Corrupt, FormatError, StoreError

from .inbox import Item

T = TypeVar("T")
log = logging.getLogger("agentd")


class Crew(Protocol):
    """Who does the work of contexts."""

    def post(self, item: Item) -> None: ...

    async def command(self, context: str, run: Callable[[Any], Awaitable[Any]]) -> Any: ...

    def cancel(self, task: str, reason: str) -> bool: ...

    def settle_bound(self, kind: str, id: str) -> None: ...

    async def may_retry(self, context: str) -> bool: ...


class Ends:
    """Who waits for the end of what, by id."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}

    async def next(self, id: str) -> None:
        """Wait until `tell` is called for it."""
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(id, []).append(waiting)
        try:
            await waiting
        finally:
            left = self._waiting[id]
            left.remove(waiting)
            if not left:
                del self._waiting[id]

    def tell(self, id: str) -> None:
        """It has ended, and that is durable."""
        for waiting in self._waiting.get(id, ()):
            if not waiting.done():
                waiting.set_result(None)


async def persistently(write: Callable[[], Awaitable[T]], crew: Crew, context: str) -> T | None:
    """What `write` gives, tried again and again while the store fails. None once this life goes down with it: the next
    one finds out what is to be written."""
    while True:
        try:
            return await write()
        except (Conflict, Corrupt, FormatError):  # no trouble that passes
            raise
        except (StoreError, OSError) as error:
            log.warning("work beside the turns could not be written down yet: %s", error)
            if not await crew.may_retry(context):
                return None
