"""How runs end, and where they wait. Frozen values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from agentkit.core.contracts.messages import ToolCall
from agentkit.core.contracts.usage import Usage


@dataclass(frozen=True)
class Suspended:
    """A run that waits for decisions on the `pending` calls: `Agent.resume(run_id, decisions, ctx)` goes on with it, in
    any process that has the same store."""

    run_id: str
    pending: tuple[ToolCall, ...]
    reason: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "pending", tuple(self.pending))


@dataclass(frozen=True)
class AgentResult:
    """How a run ended. `output`: the model's last text; `parsed`: what the parser made of it; `usage`: of all calls.

    `partial`: the run stopped short. `reason` says why it ended where the model did not end it: `invalid_output` when
    no answer could be parsed, `exhausted_steps` at the ceiling of a tool loop, `suspended` (what it waits for is in
    `suspended`), or the text of a stop condition, which is not partial.
    """

    output: str
    usage: Usage = field(default_factory=Usage)
    partial: bool = False
    parsed: Any = None
    prompt_version: str | None = None
    reason: str | None = None
    suspended: Suspended | None = field(default=None, kw_only=True)
