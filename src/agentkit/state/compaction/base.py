"""What every compactor shares: the estimate, the decision to shorten or not, and how it is applied. Touches only its
arguments; nothing here calls a model.

A compaction is planned on what was seen and applied through `WorkingContext.rewrite`, which refuses when the context
was rewritten since. What is kept is the exact complement of what goes, message by message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from agentkit.core.contracts.errors import Conflict
from agentkit.core.contracts.messages import Message
from agentkit.core.contracts.tokens import estimate_message_tokens
from agentkit.state.context import WorkingContext

_approx_tokens = estimate_message_tokens
"""The project's one estimate, under the name that the design document imports here."""

REASONS = (
    "below_trigger",
    "nothing_to_fold",
    "no_safe_cut",
    "open_obligation",
    "not_worth_it",
    "no_summary",
)
"""Why a compactor leaves a transcript as it is."""

MIN_GAIN = 0.1
"""The share by which a compaction has to shrink a transcript: below it, the lost cache costs more than it saves."""


@dataclass(frozen=True)
class Declined:
    """Nothing is done. `reason` is one of REASONS, `detail` says what was found; `before` in estimated tokens."""

    reason: str
    detail: str = ""
    before: int = 0

    def __post_init__(self) -> None:
        if self.reason not in REASONS:
            raise ValueError(f"unknown reason {self.reason!r}; known are {', '.join(REASONS)}")


@dataclass(frozen=True)
class Plan:
    """What a compaction will do. `folded` and `kept`: indices into the messages it was planned on, all of them.

    `changed`: shorter versions of kept messages, by index; `before` and `after` in estimated tokens, a summary that is
    still to be written not included.
    """

    folded: tuple[int, ...]
    kept: tuple[int, ...]
    before: int
    after: int
    changed: dict[int, Message] = field(default_factory=dict, hash=False)

    def messages(self, source: Sequence[Message]) -> list[Message]:
        """What is left of `source`."""
        return [self.changed.get(i, source[i]) for i in self.kept]


def apply(context: WorkingContext, plan: Plan, *, version: int, summary: Message | None = None) -> WorkingContext:
    """Carry out a plan that was made on `context` at `version`: Conflict when it was rewritten since.

    Messages appended meanwhile stay. `summary` goes in front of what is kept.
    """
    if version != context.version:
        raise Conflict("the context", version, context.version)
    seen = len(plan.kept) + len(plan.folded)
    head = plan.messages(context.messages[:seen])
    return context.rewrite(seen, head if summary is None else [summary, *head], version=version)


def enough(plan: Plan | Declined) -> Plan | Declined:
    """The plan, unless it shrinks the transcript by less than MIN_GAIN."""
    if isinstance(plan, Plan) and plan.after > plan.before * (1 - MIN_GAIN):
        return Declined("not_worth_it", f"only from {plan.before} to {plan.after} tokens", plan.before)
    return plan


def require_size(value: object, what: str) -> None:
    """TypeError or ValueError for what is no number of tokens, messages or turns."""
    if type(value) is not int:
        raise TypeError(f"{what} must be an int, not {type(value).__name__}")
    if value < 0:
        raise ValueError(f"{what} must not be negative: {value}")
