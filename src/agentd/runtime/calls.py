"""Calls of the model: paid for beforehand, settled afterwards. Awaits the model that is handed in."""

from __future__ import annotations

from dataclasses import dataclass

from agentkit.core.contracts.errors import TransientError
from agentkit.core.contracts.ports import LLM
from agentkit.core.contracts.requests import ChatRequest, LLMResult
from agentkit.core.contracts.usage import Usage
from agentkit.models.catalog import cost, rates

from .events import Events
from .governor import Governor, Refused, Reservation, Wait


class Refusal(RuntimeError):
    """The budget does not allow this call."""


@dataclass(frozen=True)
class Ticket:
    """A call that may be made: what it is for, and what was set aside for it."""

    kind: str
    reservation: Reservation


class ModelCalls:
    """The one way in which the daemon calls its model."""

    def __init__(self, model: LLM, governor: Governor, events: Events) -> None:
        self.model, self.governor, self._events = model, governor, events

    def reserve(
        self, kind: str, tokens: int, request: ChatRequest, *, context: str, principal: str, settings_model: str
    ) -> Ticket | Wait:
        """Set aside what a call of `tokens` prompt tokens may cost. Raises Refusal where it may not be made."""
        output = request.max_tokens or 4_096
        usd = _usd(request.model or settings_model, tokens, output)
        found = self.governor.reserve(tokens, output, usd, kind=kind, context=context, principal=principal)
        if isinstance(found, Wait):
            self._events.emit("budget.wait", context, None, window=found.window, until=found.until)
            return found
        if isinstance(found, Refused):
            self._events.emit("budget.refused", context, None, window=found.window, reason=found.reason)
            raise Refusal(found.reason)
        return Ticket(kind, found)

    async def run(self, request: ChatRequest, ticket: Ticket) -> LLMResult:
        """Make the call. Whatever becomes of it is charged: what was reported, else what was set aside."""
        usage = None
        try:
            try:
                result = await self.model.chat(request)
            except (OSError, TimeoutError) as error:
                # A model that was handed in may let its transport's errors through; they are not the store's.
                raise TransientError(f"{type(error).__name__}: {error}") from error
            usage = result.usage
            return result
        finally:
            self.governor.settle(ticket.reservation, usage)


def _usd(model: str, tokens: int, output: int) -> float | None:
    """What a call may cost at most: everything fresh, the whole output used. None where no price is known."""
    if rates(model) is None:
        return None
    return cost(model, Usage(tokens, output))
