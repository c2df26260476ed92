"""`TruncationCompactor`: the oldest goes. Touches only its arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentkit.core.contracts.counting import TokenCounter
from agentkit.core.contracts.messages import Message
from agentkit.core.contracts.ports import Ctx
from agentkit.core.contracts.tokens import measure

from .base import Declined, Plan, enough, require_size
from .cut import plan_cut


@dataclass(frozen=True)
class TruncationCompactor:
    """Drops the oldest exchanges once a transcript is over `max_tokens`, and keeps at least `keep_recent` messages.

    System text, summaries, pins and open calls stay. Where one long turn is all there is, its oldest rounds go, down to
    its request and its last round.
    """

    max_tokens: int = 12_000
    keep_recent: int = 4

    def __post_init__(self) -> None:
        require_size(self.max_tokens, "max_tokens")
        require_size(self.keep_recent, "keep_recent")

    def plan(self, messages: Sequence[Message], *, counter: TokenCounter | None = None) -> Plan | Declined:
        """What to drop, or why nothing is dropped."""
        before = measure(messages, counter)
        if before <= self.max_tokens:
            return Declined("below_trigger", f"{before} of {self.max_tokens} tokens", before)
        return enough(plan_cut(messages, goal=self.max_tokens, keep_recent=self.keep_recent, counter=counter))

    async def compact(
        self, messages: Sequence[Message], ctx: Ctx | None = None, /, *, counter: TokenCounter | None = None
    ) -> Sequence[Message]:
        """The shortened transcript; `messages` itself when nothing is to be done."""
        plan = self.plan(messages, counter=counter)
        return plan.messages(messages) if isinstance(plan, Plan) else messages
