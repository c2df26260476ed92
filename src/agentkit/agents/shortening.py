"""Shortens the context of a run with the compactor of its request builder. Touches the context and what is handed in.

The middleware `compaction` does the same inside the invoker; this is for an agent that has its own compactor, and for a
request that turned out too large.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import is_

from agentkit.core.contracts.errors import AgentKitError, Conflict, MeterExceeded
from agentkit.core.contracts.ports import Compactor, Ctx
from agentkit.core.contracts.tokens import measure
from agentkit.core.policies.compacting import HIGHEST_SCALE, LOWEST_SCALE, Scaled
from agentkit.state.context import WorkingContext

from .hooks import CompactionWatch, Hooks, watching

LARGEST_SCALE = 64.0
"""How much larger than it is counted a transcript is shown to a compactor that sees no reason to shorten it."""


async def shorten(wc: WorkingContext, compactor: Compactor, ctx: Ctx, *, factor: float = 1.0) -> bool:
    """Whether the compactor shortened the tail. It counts in the provider's tokens, as far as these are known; `factor`
    makes the tail that much larger still.

    What arrived while it worked stays. When somebody else rewrote the context meanwhile, theirs counts.
    """
    tail, version = tuple(wc.messages), wc.version
    scale = factor * providers_scale(wc)
    counter = wc.token_counter if scale == 1.0 else Scaled(wc.token_counter, scale)
    try:
        left = await compactor.compact(tail, ctx, counter=counter)
    except MeterExceeded:
        raise
    except AgentKitError as error:  # a compaction that fails leaves the context as it is, and the call goes on
        ctx.emit("compaction.failed", error=type(error).__name__, messages=len(tail))
        return False
    if not left or (len(left) == len(tail) and all(map(is_, left, tail))):
        return False
    watch, before = CompactionWatch(watching.get() or Hooks()), wc.count().tokens
    await watch.before_rewrite(wc, ctx)
    try:
        wc.rewrite(len(tail), left, version=version)
    except Conflict:
        return False
    ctx.emit("compaction.done", messages=len(tail), left=len(left), tokens=before, tokens_left=wc.count().tokens)
    await watch.after_rewrite(wc, ctx)
    return True


def providers_scale(wc: WorkingContext) -> float:
    """How many of the provider's tokens one of the tail's estimated tokens is; 1.0 before it has reported any."""
    count, in_tail = wc.count(), measure(wc.messages, wc.token_counter)
    if count.source != "provider" or wc.sent is None or not in_tail:
        return 1.0
    standing = wc.sent.segment("frozen").tokens
    return min(max((count.tokens - standing) / in_tail, LOWEST_SCALE), HIGHEST_SCALE)


async def shorten_to_fit(
    wc: WorkingContext, compactor: Compactor, ctx: Ctx, factor: float, fits: Callable[[], bool]
) -> bool:
    """Whether the tail was shortened for a request that was too large by `factor`. A compactor whose own threshold is
    higher is shown a transcript that much larger, then twice that and so on, until what is left `fits`."""
    changed, factor = False, max(factor, 1.0)
    while factor <= LARGEST_SCALE:
        if await shorten(wc, compactor, ctx, factor=factor):
            changed = True
            if fits():
                break
        factor *= 2
    return changed
