"""What a subagent is, what it may do and what it is told. Values; touches only its arguments."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal

import msgspec

from agentd.config import Settings
from agentkit.core.contracts.jsontext import wire_json

from .checking import Checker, UnusableSchema
from .inbox import Task
from .principals import Role
from .residents import SUBAGENTS
from .tools.base import ToolError

NOTE_SHOWN = 2_000
"""Characters of an answer that a note holds; `run.status` and `subagent.status` have all of it."""


class Child(msgspec.Struct, frozen=True, omit_defaults=True):
    """One subagent. `id`: its handle, the place of the call that started it. `context`, `turn`: whose it is; `task`:
    its latest piece of work, `before`: earlier ones that have not ended; `root`: the conversation at the top; `depth`
    counts from 1; `tools`: what it may use; `steps`, `seconds`: limits of each piece of work, `tokens`: of all of them;
    `spent`: tokens of those that have ended. `ended`, `state`, `text`, `output`: how it ended."""

    id: str
    context: str
    turn: str
    task: str
    root: str
    depth: int
    mode: Literal["sync", "async"]
    principal: str
    role: Role
    tools: tuple[str, ...]
    steps: int
    tokens: int
    seconds: float
    schema: dict[str, Any] | None = None
    before: tuple[str, ...] = ()
    state: str = "working"
    ended: bool = False
    text: str = ""
    output: Any = None
    spent: int = 0
    was_asked_again: bool = False
    started: int = 0
    updated: int = 0

    @property
    def own_context(self) -> str:
        return f"{SUBAGENTS}{self.id}"

    @property
    def work(self) -> tuple[str, ...]:
        """All its pieces of work that have not ended, in order, the latest last."""
        return (*self.before, self.task)

    @property
    def told(self) -> dict[str, Any]:
        """What the model that started it is told."""
        told: dict[str, Any] = {"handle": self.id, "state": self.state}
        if self.ended:
            told["result"] = self.output if self.state == "completed" else self.text
        return told

    @property
    def note(self) -> str:
        """What its end is told as: the answer is quoted, since it is data and no order."""
        return f"Subagent {self.id} has ended as {self.state}. {quoted(self.text)}"


def quoted(text: str) -> str:
    """What a run or subagent brought, marked as its words, cut where it is long."""
    if not text:
        return "It brought nothing."
    shown = text if len(text) <= NOTE_SHOWN else f"{text[:NOTE_SHOWN]}…"
    return f"What it brought, quoted:\n{shown}"


def require_schema(schema: Mapping[str, Any] | None) -> None:
    """ToolError where `output_schema` is none that an answer could be checked by."""
    if schema is not None:
        try:
            Checker(schema, what="output_schema")
        except UnusableSchema as error:
            raise ToolError(str(error)) from error


def fitting(child: Child, task: Task) -> tuple[Any, str | None]:
    """The answer as `output_schema` has it, and what is wrong with it."""
    if child.schema is None or task.state != "completed":
        return task.output, None
    value = task.output
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(_unfenced(value))
        except msgspec.DecodeError:
            value = task.output
    return value, Checker(child.schema, what="output_schema").fault(value, of="the answer")


def _unfenced(text: str) -> bytes:
    """JSON that a model has put into a code fence."""
    lines = text.strip().splitlines()
    if len(lines) > 2 and lines[0].startswith("```") and lines[-1].strip() == "```":
        lines = lines[1:-1]
    return "\n".join(lines).encode()


def first_message(
    instruction: str, schema: Mapping[str, Any] | None, skills: Sequence[str], prefix: str
) -> str:  # fmt: skip
    """What a subagent is told to do."""
    parts = [instruction]
    if skills:
        parts.append("Use " + ", ".join(f"{prefix}{name}" for name in skills) + ".")
    if schema is not None:
        parts.append(f"Answer with JSON alone, by this JSON Schema:\n{wire_json(dict(schema))}")
    return "\n\n".join(parts)


def narrowed(settings: Settings, child: Child, granted: Collection[str]) -> Settings:
    """The settings that a subagent's turns go by: its tools and limits, never wider than those of the instance.
    `granted`: names of the tools that its principal has now, since a reload may have taken some away."""
    run = settings.limits.run
    limits = run.model_copy(
        update={
            "steps": min(run.steps, child.steps),
            "tokens": min(run.tokens, max(child.tokens - child.spent, 0)),
            "deadline": min(run.deadline, timedelta(seconds=child.seconds)),
        }
    )
    mine = tuple(name for name in child.tools if name in granted)
    tools = settings.tools.model_copy(update={"grants": {**settings.tools.grants, child.role: mine}})
    return settings.model_copy(
        update={"limits": settings.limits.model_copy(update={"run": limits}), "tools": tools}
    )  # fmt: skip
