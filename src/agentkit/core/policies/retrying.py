"""`retry`: a fault that may pass is tried again. Touches the sleep and the source of jitter that are handed in."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import count
from typing import Any, overload

from agentkit.core.contracts.calls import Call, ChatCall, ChatNext, ToolInvocation, ToolNext, heed
from agentkit.core.contracts.checks import require_int
from agentkit.core.contracts.errors import TransientError
from agentkit.core.contracts.requests import ChatRequest, Delta


def retry(
    attempts: int = 3,
    *,
    base: float = 0.5,
    longest: float = 30.0,
    sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
    jitter: Callable[[], float] = random.random,
) -> Retry:
    """Middleware, for models and tools alike, that sends a call again after a TransientError, `attempts` times in all.

    Nothing is sent again once a piece of the answer has come, and no tool that has side effects. Between two attempts
    it waits `base` seconds, doubled each time, at most `longest`, of which `jitter()`, from 0 to 1, takes off up to a
    half; never less than the provider's `retry_after`. A provider that asks for more than `longest` is not waited for.

    After several attempts the last failure is the cause of the TransientError that is raised. Every other exception,
    a cancellation first of all, passes at once. Each attempt is a call of its own for the middleware further in, a
    quota or a breaker say. Raises TypeError or ValueError for arguments that make no sense.
    """
    require_int(attempts, "attempts")
    if attempts < 1:
        raise ValueError(f"attempts must be at least 1: {attempts}")
    for name, seconds in (("base", base), ("longest", longest)):
        if not 0 <= seconds < float("inf"):
            raise ValueError(f"{name} must be finite and not negative: {seconds}")
    return Retry(attempts, base, longest, sleep, jitter)


class Retry:
    """What `retry` returns: chat middleware and tool middleware in one."""

    def __init__(
        self,
        attempts: int,
        base: float,
        longest: float,
        sleep: Callable[[float], Awaitable[Any]],
        jitter: Callable[[], float],
    ) -> None:
        self._attempts, self._base, self._longest = attempts, base, longest
        self._sleep, self._jitter = sleep, jitter

    @overload
    def __call__(self, call: ChatCall, proceed: ChatNext, /) -> AsyncIterator[Delta]: ...
    @overload
    def __call__(self, call: ToolInvocation, proceed: ToolNext, /) -> Awaitable[Any]: ...
    def __call__(self, call: Call[Any], proceed: Any, /) -> AsyncIterator[Delta] | Awaitable[Any]:
        if isinstance(call.request, ChatRequest):
            return self._stream(call, proceed)
        return self._invoke(call, proceed)

    async def _stream(self, call: ChatCall, proceed: ChatNext) -> AsyncIterator[Delta]:
        for attempt in count(1):
            begun = False
            try:
                async for delta in proceed(call):
                    begun = True
                    yield delta
                return
            except TransientError as error:
                if begun:
                    raise
                wait = self._before_next(attempt, error)
            await self._pause(call, attempt, wait)

    async def _invoke(self, call: ToolInvocation, proceed: ToolNext) -> Any:
        for attempt in count(1):
            try:
                return await proceed(call)
            except TransientError as error:
                if call.request.side_effecting:
                    raise
                wait = self._before_next(attempt, error)
            await self._pause(call, attempt, wait)
        raise AssertionError("unreachable: the attempts are counted")

    def _before_next(self, attempt: int, error: TransientError) -> float:
        """Seconds until the next attempt; raises where there is none."""
        asked = error.retry_after or 0.0
        if attempt < self._attempts and asked <= self._longest:
            doubled = min(self._base * 2.0 ** min(attempt - 1, 60), self._longest)
            return max(doubled * (1 - 0.5 * self._jitter()), asked)
        if attempt == 1:
            raise error
        raise TransientError(f"{attempt} attempts failed, the last: {error}", retry_after=error.retry_after) from error

    async def _pause(self, call: Call[Any], attempt: int, wait: float) -> None:
        call.ctx.emit("retry", attempt=attempt, of=self._attempts, wait=wait)
        await self._sleep(wait)
        heed(call.ctx)
