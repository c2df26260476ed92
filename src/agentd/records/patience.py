"""Faults that may pass: one try at a store's operation, and more of them. Touches the operation that is handed in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from agentkit.core.contracts.errors import Conflict, Corrupt, Fenced, StoreError, TooLarge

from .writes import Retry, Trouble

T = TypeVar("T")

FAULTS = (StoreError, OSError)
"""What may pass, unless it is one of REFUSALS."""

REFUSALS = (Conflict, Fenced, TooLarge, Corrupt)
"""Answers: they would be the same again."""


async def once(call: Callable[[], Awaitable[T]], retry: Retry) -> T:
    """`call()`, or TimeoutError once it took too long; then it may yet be carried out."""
    return await (call() if retry.watch is None else retry.watch.within(call))


async def patiently(operation: str, call: Callable[[], Awaitable[T]], retry: Retry) -> T:
    """`call()`, tried again while it meets faults that may pass. It must be safe to repeat."""
    attempt = 0
    while True:
        try:
            return await once(call, retry)
        except REFUSALS:
            raise
        except FAULTS as error:
            attempt += 1
            if not await may_go_on(operation, attempt, error, retry):
                raise


async def may_go_on(operation: str, attempt: int, error: Exception, retry: Retry) -> bool:
    """Tells of a fault and waits a little; False when it was the last one to be borne."""
    is_last = attempt > retry.times
    if retry.on_trouble is not None:
        retry.on_trouble(Trouble(operation, attempt, error, is_last))
    if not is_last:
        await retry.sleep(retry.pause * attempt)
    return not is_last
