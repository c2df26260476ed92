"""`ClearResultsCompactor`: old tool results give way to a notice. Touches only its arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from agentkit.core.contracts.counting import TokenCounter
from agentkit.core.contracts.messages import Message
from agentkit.core.contracts.ports import Ctx
from agentkit.core.contracts.tokens import measure

from .base import Declined, Plan, enough, require_size
from .shorten import clear_result, clearable


@dataclass(frozen=True)
class ClearResultsCompactor:
    """Clears tool results once a transcript is over `max_tokens`: the largest first, until it fits.

    The calls stay, so the model still sees what it did. Spared are the last `keep_rounds` rounds, errors, pins, interim
    results and the tools in `exempt`. Nothing is cleared for less than `min_gain` tokens in all, since each edit gives
    up what the provider's cache holds behind it.
    """

    max_tokens: int = 12_000
    keep_rounds: int = 6
    min_gain: int = 2_000
    exempt: frozenset[str] = field(default=frozenset())

    def __post_init__(self) -> None:
        for name in ("max_tokens", "keep_rounds", "min_gain"):
            require_size(getattr(self, name), name)
        object.__setattr__(self, "exempt", frozenset(self.exempt))

    def plan(self, messages: Sequence[Message], *, counter: TokenCounter | None = None) -> Plan | Declined:
        """Which results to clear, or why none is cleared."""
        before = measure(messages, counter)
        if before <= self.max_tokens:
            return Declined("below_trigger", f"{before} of {self.max_tokens} tokens", before)
        found = clearable(messages, keep_rounds=self.keep_rounds, exempt=self.exempt, counter=counter)
        changed: dict[int, Message] = {}
        won = 0
        for gain, index in found:
            if before - won <= self.max_tokens:
                break
            changed[index] = clear_result(messages[index], counter=counter)
            won += gain
        if not changed:
            return Declined("nothing_to_fold", "no result is old and large enough to be cleared", before)
        if won < self.min_gain:
            return Declined("not_worth_it", f"{won} tokens would be won, the minimum is {self.min_gain}", before)
        after = measure([changed.get(i, m) for i, m in enumerate(messages)], counter)
        return enough(Plan((), tuple(range(len(messages))), before, after, changed))

    async def compact(
        self, messages: Sequence[Message], ctx: Ctx | None = None, /, *, counter: TokenCounter | None = None
    ) -> Sequence[Message]:
        """The shortened transcript; `messages` itself when nothing is to be done."""
        plan = self.plan(messages, counter=counter)
        return plan.messages(messages) if isinstance(plan, Plan) else messages
