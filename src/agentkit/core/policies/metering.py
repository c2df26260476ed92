"""`meter`: middleware that bills a run's model calls. Touches only the run of the call."""

from __future__ import annotations

from agentkit.core.contracts.calls import ChatMiddleware, metered


def meter() -> ChatMiddleware:
    """Bills one logical call once, however often it was retried and on either side of `memoize`; a cached one is free.

    `Invoker` does the same outside all middleware. Put `meter` further in where a call should be guarded and billed
    before the middleware around it goes on: inside a fallback, for instance.
    """
    return metered
