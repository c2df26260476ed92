"""Which calls wait for a human, and what the human said. Touches only its arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agentkit.core.contracts.errors import InvalidDecisionError
from agentkit.core.contracts.jsontext import json_text, parse_object
from agentkit.core.contracts.messages import ToolCall
from agentkit.core.contracts.ports import Ctx

from .tools import Tool, Toolbox

APPROVE, REJECT = "approve", "reject"
REJECTED = "The user rejected this call. It was not run."


def autonomy_of(ctx: Ctx) -> str:
    """How freely tools run: that of a RunContext; a bare Ctx asks nobody."""
    found: str = getattr(ctx, "autonomy", "auto")
    return found


def needs_approval(tool: Tool, autonomy: str) -> bool:
    """Whether a call of `tool` waits: those that require approval at `auto`, all with side effects at `gated`, all at
    `manual`."""
    return tool.requires_approval or autonomy == "manual" or (autonomy == "gated" and tool.side_effecting)


def gated(calls: Sequence[ToolCall], tools: Toolbox, autonomy: str) -> tuple[ToolCall, ...]:
    """The calls that wait for approval. One that cannot be run, for an unknown tool or bad arguments, does not."""
    return tuple(
        call
        for call in calls
        if (tool := tools.get(call.name)) is not None and needs_approval(tool, autonomy) and tools.problem(call) is None
    )


@dataclass(frozen=True)
class Decision:
    """What was decided on a call. `arguments`: those to run it with in place of its own."""

    approved: bool
    arguments: Mapping[str, Any] | None = None

    def applied(self, call: ToolCall) -> ToolCall:
        """The call as it is to be run."""
        return call if self.arguments is None else replace(call, arguments=self.arguments, raw=None)

    def to_plain(self) -> Any:
        """As it stands in a checkpoint."""
        return (APPROVE if self.approved else REJECT) if self.arguments is None else dict(self.arguments)


def decide(decisions: Mapping[str, Any], pending: Sequence[ToolCall], tools: Toolbox) -> dict[str, Decision]:
    """The decision on each pending call, by its id: `approve`, `reject`, or new arguments as a mapping or the text of a
    JSON object. A call without a decision is rejected.

    InvalidDecisionError for any other value, for arguments that the tool does not take, and for an id that waits for
    nothing.
    """
    if not isinstance(decisions, Mapping):
        raise InvalidDecisionError(f"decisions must be a mapping by call id, not a {type(decisions).__name__}")
    by_id = {call.id: call for call in pending}
    unknown = sorted(str(key) for key in decisions if key not in by_id)
    if unknown:
        waiting = ", ".join(by_id) or "none"
        raise InvalidDecisionError(f"no call waits for a decision as {', '.join(unknown)}; waiting: {waiting}")
    return {call.id: _decision(decisions.get(call.id), call, tools) for call in pending}


def _decision(value: Any, call: ToolCall, tools: Toolbox) -> Decision:
    if value is None or value == REJECT:
        return Decision(False)
    if value == APPROVE:
        return Decision(True)
    arguments = parse_object(value) if isinstance(value, str) else value
    if not isinstance(arguments, Mapping):
        raise InvalidDecisionError(
            f"the decision on {call.name} ({call.id}) must be {APPROVE!r}, {REJECT!r} or new arguments, "
            f"a mapping or the text of a JSON object; it is {value!r:.60}"
        )
    decision = Decision(True, arguments)
    problem = tools.problem(decision.applied(call))
    if problem is not None:
        raise InvalidDecisionError(f"the decision on {call.name} ({call.id}): {problem}")
    return decision


def decision_of(plain: Any) -> Decision:
    """What `Decision.to_plain` wrote down."""
    return Decision(True, plain) if isinstance(plain, Mapping) else Decision(plain == APPROVE)


def changed_note(decision: Decision) -> str | None:
    """What the model is told in front of a result that other arguments led to than those it gave."""
    if decision.arguments is None:
        return None
    return f"The user changed the arguments of this call to {json_text(decision.arguments)}."
