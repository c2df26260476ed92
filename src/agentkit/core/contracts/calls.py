"""One call on its way to a model or a tool, and what middleware around it looks like. Touches only its arguments.

Chat middleware is a function `(call, proceed)` that yields deltas, usually those of `proceed(call)`; tool middleware is
one that awaits and returns a result. The first middleware of a list is the outermost. An iterator that `proceed`
returned need not be closed: the invoker closes all of them, outermost first, when the call ends in whatever way.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar

from .errors import MeterExceeded
from .ports import Ctx
from .requests import ChatRequest, Delta, ToolRequest
from .usage import Usage

R = TypeVar("R")

CALL_MARKS = ("billed", "cache_hit", "model", "layout")
"""What the library's own middleware notes in `call.meta`: the call is paid for; the answer came from memoize; the model
that `fallback` had answer; the layout of what was sent after a compaction in front of the call."""


@dataclass(frozen=True)
class Call(Generic[R]):
    """A request, the run it belongs to, and a dict that lives as long as the call. `dataclasses.replace(call,
    request=...)` keeps that dict, so an outer middleware sees what an inner one wrote."""

    request: R
    ctx: Ctx
    meta: dict[str, Any] = field(default_factory=dict, compare=False)


ChatCall: TypeAlias = Call[ChatRequest]
ToolInvocation: TypeAlias = Call[ToolRequest]
ChatNext: TypeAlias = Callable[[ChatCall], AsyncIterator[Delta]]
ToolNext: TypeAlias = Callable[[ToolInvocation], Awaitable[Any]]
ChatMiddleware: TypeAlias = Callable[[ChatCall, ChatNext], AsyncIterator[Delta]]
ToolMiddleware: TypeAlias = Callable[[ToolInvocation, ToolNext], Awaitable[Any]]


def heed(ctx: Ctx) -> None:
    """CancelledError when the run was asked to stop."""
    if ctx.cancel is not None and ctx.cancel.is_set():
        raise asyncio.CancelledError("the run was asked to stop")


async def metered(call: ChatCall, proceed: ChatNext) -> AsyncIterator[Delta]:
    """Chat middleware that guards the run's budget before a call and bills the call once, wherever and however often
    it stands in the chain. A cached answer costs nothing; a call that failed is billed what was reported until then."""
    call.ctx.guard()
    usage: Usage | None = None
    cached = False
    try:
        async for delta in proceed(call):
            usage = delta.usage or usage
            cached = cached or delta.cached
            yield delta
    except BaseException:
        # The failure is what the caller has to hear of, not the limit that was crossed on the way.
        if usage is not None and not cached and _first_bill(call):
            with suppress(MeterExceeded):
                call.ctx.charge(usage)
        raise
    if not cached and _first_bill(call):
        call.ctx.charge(usage or Usage())


def _first_bill(call: ChatCall) -> bool:
    already = call.meta.get("billed", False)
    call.meta["billed"] = True
    return not already
