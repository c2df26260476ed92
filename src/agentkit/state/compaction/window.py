"""`WindowCompactor`: a sliding window of turns. Touches only its arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentkit.core.contracts.counting import TokenCounter
from agentkit.core.contracts.messages import Message
from agentkit.core.contracts.ports import Ctx
from agentkit.core.contracts.tokens import measure

from .base import Declined, Plan, require_size
from .cut import cut_points, obligations, without_openers


@dataclass(frozen=True)
class WindowCompactor:
    """Keeps the last `turns` turns, a turn beginning with a user message, once there are more than `slack` beyond them.

    Every move of the window gives up what the provider's cache holds behind the prefix, so it moves in steps: with
    `slack` 10, ten turns are dropped at once after each ten.
    """

    turns: int = 20
    slack: int = 10

    def __post_init__(self) -> None:
        require_size(self.turns, "turns")
        require_size(self.slack, "slack")

    def plan(self, messages: Sequence[Message], *, counter: TokenCounter | None = None) -> Plan | Declined:
        """What to drop, or why nothing is dropped."""
        before = measure(messages, counter)
        points = cut_points(messages)
        if len(points) < self.turns + self.slack:
            return Declined("below_trigger", f"{len(points) + 1} turns of {self.turns} + {self.slack}", before)
        at = points[-self.turns] if self.turns else points[-1]
        owed = obligations(messages)
        gone = without_openers(messages, {i for i in range(at) if i not in owed})
        if not gone:
            return Declined("open_obligation", "all turns in front of the window are pinned or owed an answer", before)
        kept = tuple(i for i in range(len(messages)) if i not in gone)
        return Plan(tuple(sorted(gone)), kept, before, measure([messages[i] for i in kept], counter))

    async def compact(
        self, messages: Sequence[Message], ctx: Ctx | None = None, /, *, counter: TokenCounter | None = None
    ) -> Sequence[Message]:
        """The shortened transcript; `messages` itself when nothing is to be done."""
        plan = self.plan(messages, counter=counter)
        return plan.messages(messages) if isinstance(plan, Plan) else messages
