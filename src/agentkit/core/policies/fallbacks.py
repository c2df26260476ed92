"""`fallback`: another model answers when one fails for good. Touches only its arguments."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

from agentkit.core.contracts.calls import ChatCall, ChatMiddleware, ChatNext
from agentkit.core.contracts.errors import ContextOverflowError, TransientError
from agentkit.core.contracts.requests import Delta


def fallback(*models: str) -> ChatMiddleware:
    """Chat middleware that asks the next of `models` when the request's own model, then each in turn, ends in a
    TransientError. Stand it outside `retry` and `CircuitBreaker`, which end in one once they have given up.

    A caller's mistake, a refused credential or a request above the window never moves on: another model would hide it.
    Nor does an answer whose first piece has come. `call.meta["model"]` names the model that answered (None for a
    request that names none), as `ContextOverflowError.model` does the one that refused; `fallback` is emitted for each
    step, and the usage, with its price, is that of the model that answered. When all fail, the TransientError names
    them, with the last failure as its cause.

    A `memoize` outside keeps the answer under the model that was asked for; inside, under the one that answered.
    """
    for model in models:
        if not isinstance(model, str):
            raise TypeError(f"a model must be a str, not {type(model).__name__}: fallback('first', 'second')")
    if not models:
        raise ValueError("fallback needs at least one model to go to")

    async def falling_back(call: ChatCall, proceed: ChatNext) -> AsyncIterator[Delta]:
        own = call.request.model
        chain = [own, *(model for model in dict.fromkeys(models) if model != own)]
        for at, model in enumerate(chain):
            begun = False
            asked = call if model == own else replace(call, request=replace(call.request, model=model))
            try:
                async for delta in proceed(asked):
                    if not begun:
                        begun = True
                        call.meta["model"] = model
                    yield delta
                call.meta["model"] = model
                return
            except ContextOverflowError as error:
                error.model = error.model or model
                raise
            except TransientError as error:
                if begun:
                    raise
                if at + 1 == len(chain):
                    if at == 0:
                        raise
                    tried = ", ".join(map(str, chain))
                    raise TransientError(
                        f"none of {tried} answered, the last: {error}", retry_after=error.retry_after
                    ) from error
                call.ctx.emit("fallback", failed=model, next=chain[at + 1], error=type(error).__name__)

    return falling_back
