"""Calls of the model: paid for beforehand, settled afterwards. Awaits the model that is handed in."""

from __future__ import annotations

from agentkit.core.contracts.errors import PermanentError, StoreError, TransientError
from agentkit.core.contracts.requests import ChatRequest, LLMResult
from agentkit.core.contracts.usage import Usage
from agentkit.models.catalog import cost, rates

from .events import Events
from .governor import Governor, Refused, Reservation, Wait
from .models import Models
from .pictures import Pictures

MAX_OUTPUT = 4_096
"""Tokens of an answer that are set aside where a request names no limit."""


class Refusal(RuntimeError):
    """The budget does not allow this call. `is_failure`: the turn is to end as failed, not as refused."""

    def __init__(self, reason: str, *, is_failure: bool = False) -> None:
        self.is_failure = is_failure
        super().__init__(reason)


class ModelCalls:
    """The one way in which the daemon calls its model."""

    def __init__(self, model: Models, governor: Governor, events: Events, pictures: Pictures) -> None:
        self.model, self.governor, self._events, self._pictures = model, governor, events, pictures

    async def aclose(self) -> None:
        """Close the connections to the model."""
        await self.model.aclose()

    def reserve(
        self, kind: str, tokens: int, request: ChatRequest, *, context: str, principal: str
    ) -> Reservation | Wait:
        """Set aside what a call of `tokens` prompt tokens may cost. Raises Refusal where it may not be made."""
        output = request.max_tokens or MAX_OUTPUT
        usd = _usd(request.model, tokens, output)
        found = self.governor.reserve(tokens, output, usd, kind=kind, context=context, principal=principal)
        if isinstance(found, Refused):
            self._events.emit("budget.refused", context, None, window=found.window, reason=found.reason)
            raise Refusal(found.reason, is_failure=found.is_failure)
        if isinstance(found, Wait):
            self._events.emit("budget.wait", context, None, window=found.window, until=found.until)
        return found

    async def run(self, request: ChatRequest, reservation: Reservation) -> LLMResult:
        """Make the call. Whatever becomes of it is charged: what was reported, else what was set aside."""
        usage = None
        try:
            result = await self._chat(request)
            # Without a figure in it nothing was reported, unless the answer cost nothing.
            if result.cached or result.usage != Usage():
                usage = result.usage
            return result
        except (OSError, StoreError) as error:
            # A model that was handed in may let errors of its transport, or of a cache of its own, through; they are
            # not those of this instance's store.
            raise TransientError(f"{type(error).__name__}: {error}") from error
        finally:
            self.governor.settle(reservation, usage, usd=None if usage is None else _cost(request.model, usage))

    async def _chat(self, request: ChatRequest) -> LLMResult:
        """Ask with pictures, and where that is refused without them: a text-only model would else refuse every request
        of a context from its first picture on."""
        filled = await self._pictures.filled(request)
        try:
            return await self.model.chat(filled)
        except PermanentError:
            without = await self._pictures.filled(request, hide=True)
            if without.messages == filled.messages:
                raise
            result = await self.model.chat(without)
            self._pictures.refused(request.model)
            return result


def _cost(model: str | None, usage: Usage) -> float:
    return usage.cost_usd or cost(model, usage)


def _usd(model: str | None, tokens: int, output: int) -> float | None:
    """What a call may cost at most: everything fresh, the whole output used. None where no price is known."""
    return None if rates(model) is None else cost(model, Usage(tokens, output))
