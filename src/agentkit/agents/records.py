"""A run in its checkpoints: what is written down before and after each call of a tool, and how a run is found again.
Touches the checkpointer that is handed in.

What has run is told from what may have: a call is noted as started before its tool is, and its result as soon as it is
there. So a run that is taken up repeats nothing, whatever it was killed in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakKeyDictionary

from agentkit.core.contracts.errors import FormatError, RunSuspendedError
from agentkit.core.contracts.messages import Message, ToolCall
from agentkit.core.contracts.ports import Ctx
from agentkit.core.contracts.scope import Scope
from agentkit.core.contracts.usage import Usage
from agentkit.core.runtime import RunContext
from agentkit.state.context import CharClassTokenCounter, WorkingContext

from .approval import Decision, decision_of
from .results import AgentResult

if TYPE_CHECKING:  # persistence is loaded by those who keep checkpoints: it is a third of the time to import an agent
    from agentkit.state.persistence import Checkpoint, Checkpointer

FORMAT = 1
"""Raised by a change that an older release would misread."""

CheckpointerSource: TypeAlias = "Checkpointer | Callable[[Ctx], Checkpointer]"

_billed: WeakKeyDictionary[Any, set[str]] = WeakKeyDictionary()
"""By budget: the runs whose spending is in it already, so that one resumed where it began is not billed twice."""


def store_checkpointer(ctx: Ctx) -> Checkpointer:
    """A checkpointer over the run's own store, for `ReActCognition(checkpointer=store_checkpointer)`: one agent then
    serves several tenants, each in its own part of the store."""
    if ctx.store is None:
        raise ValueError("this run has no store to keep checkpoints in: pass Services(store=...)")
    from agentkit.state.persistence import Checkpointer, StoreCheckpoints

    return Checkpointer(StoreCheckpoints(ctx.store, ctx.scope))


def checkpointer_for(given: CheckpointerSource | None, ctx: Ctx) -> Checkpointer | None:
    """The checkpointer of a run: the cognition's, else the one that the run was wired with, if any."""
    if given is None and isinstance(ctx, RunContext):
        given = ctx.services.checkpointer
    if given is None or hasattr(given, "snapshot"):
        return given  # type: ignore[return-value]
    return given(ctx)


def run_id_of(ctx: Ctx) -> str:
    """What a run is stored under: the correlation id, and below the top of a request its path."""
    return ctx.correlation_id + getattr(ctx, "path", "")


@dataclass
class Progress:
    """How far a run is. `round`: that of the calls that are open, 0 for none; `started`: ids of those that were begun;
    `pending`: those that wait for a decision; `results`: those that are there, by call id; `decided`: what was decided
    on calls that waited."""

    usage: Usage = field(default_factory=Usage)
    calls: int = 0
    steps: int = 0
    repairs: int = 0
    round: int = 0
    prompt_version: str | None = None
    text: str = ""
    open: tuple[ToolCall, ...] = ()
    pending: tuple[ToolCall, ...] = ()
    started: set[str] = field(default_factory=set)
    results: dict[str, Message] = field(default_factory=dict)
    decided: dict[str, Decision] = field(default_factory=dict)

    def in_order(self) -> list[Message]:
        """The results that are there, in the order of their calls."""
        return [self.results[call.id] for call in self.open if call.id in self.results]


class RunRecord:
    """The checkpoints of one run."""

    def __init__(self, checkpointer: Checkpointer, run_id: str, ctx: Ctx) -> None:
        self.run_id = run_id
        self._checkpointer, self._ctx = checkpointer, ctx
        self._written = False

    @property
    def is_written(self) -> bool:
        """Whether anything of the run is stored."""
        return self._written

    async def require_new(self) -> None:
        """RunSuspendedError where there is an unfinished run of this id."""
        found = await self._checkpointer.resume(self.run_id, include_terminal=True)
        if found is not None:
            waits = "waits for decisions" if found.status == "suspended" else f"was left {found.status}"
            raise RunSuspendedError(
                f"the run {self.run_id!r} {waits}: resume it with agent.resume({self.run_id!r}, decisions, ctx), or "
                "delete its checkpoint"
            )
        note_billed(self._ctx, self.run_id)

    async def save(self, wc: WorkingContext, progress: Progress, status: str = "running", **more: Any) -> None:
        """Write down where the run stands; what raises says that it is not written."""
        from agentkit.state.persistence import dehydrate

        state = dict(dehydrate(wc, progress.usage, progress.steps))
        if progress.results:
            state["messages"] = (*wc.view(), *progress.in_order())
        scope = self._ctx.scope
        state["scope"] = {"org_id": scope.org_id, "domain_id": scope.domain_id}
        state["agent"] = {
            "format": FORMAT,
            "calls": progress.calls,
            "repairs": progress.repairs,
            "round": progress.round,
            "prompt_version": progress.prompt_version,
            "pending": [call.id for call in progress.pending],
            "started": sorted(progress.started),
            "decided": {call_id: decision.to_plain() for call_id, decision in progress.decided.items()},
            **more,
        }
        await self._checkpointer.snapshot(self.run_id, state, status, ctx=self._ctx)
        self._written = True

    async def end(self, wc: WorkingContext, progress: Progress, result: AgentResult) -> None:
        """Make the end of a run durable that was written down at all."""
        if self._written:
            end = {"output": result.output, "partial": result.partial, "reason": result.reason}
            await self.save(wc, progress, "done", end=end)

    async def forget(self) -> None:
        """Delete the checkpoints of a run whose end is durable."""
        if self._written:
            await self._checkpointer.delete(self.run_id)
            self._written = False

    async def find(self) -> Found:
        """The run as it was left. LookupError for an unknown id, and for one of another tenant."""
        checkpoint = await self._checkpointer.resume(self.run_id, include_terminal=True)
        saved = None if checkpoint is None else checkpoint.state.get("agent")
        if checkpoint is None or saved is None or _scope_of(checkpoint) != self._ctx.scope:
            raise LookupError(f"there is no run {self.run_id!r} to resume")
        if saved["format"] > FORMAT:
            raise FormatError(f"the run has format {saved['format']}; this release reads up to {FORMAT}")
        self._written = True
        return _found(checkpoint, saved)


@dataclass(frozen=True)
class Found:
    """A run that was found again. `context` holds what it knew, without the open calls' results; `end`: how it ended,
    where it had and only its checkpoint was left."""

    context: WorkingContext
    progress: Progress
    status: str
    end: Mapping[str, Any] | None

    def fill(self, wc: WorkingContext) -> None:
        """Put what the run knew into `wc`, in place of what is there."""
        saved = self.context
        if list(wc.messages) != saved.messages:
            wc.clear_messages()
        wc.messages[:] = saved.messages
        wc.prefix = saved.prefix
        for mine, theirs in ((wc.scratchpad, saved.scratchpad), (wc.policies, saved.policies)):
            mine.clear()
            mine.update(theirs)
        wc.journal = saved.journal
        wc.limit = saved.limit if wc.limit is None else wc.limit
        wc._version = max(wc.version, saved.version)  # a context goes on counting its rewrites


def note_billed(ctx: Ctx, run_id: str) -> bool:
    """Note that the run's spending is in the budget of `ctx`; whether it was so before."""
    budget = getattr(ctx, "budget", None)
    if budget is None:
        return True
    runs = _billed.setdefault(budget, set())
    known = run_id in runs
    runs.add(run_id)
    return known


def restore_budget(ctx: Ctx, run_id: str, progress: Progress) -> None:
    """Bill what the run had spent before, unless it was spent from this very budget."""
    if not note_billed(ctx, run_id) and isinstance(ctx, RunContext):
        ctx.budget.restore(progress.usage, progress.calls)


def _scope_of(checkpoint: Checkpoint) -> Scope | None:
    saved = checkpoint.state.get("scope")
    return None if saved is None else Scope(saved.get("org_id"), saved.get("domain_id"))


def _found(checkpoint: Checkpoint, saved: Mapping[str, Any]) -> Found:
    from agentkit.state.persistence import rehydrate

    context, usage, after, _ = rehydrate(checkpoint.state, token_counter=CharClassTokenCounter())
    progress = Progress(
        usage,
        saved["calls"],
        after - 1,
        saved["repairs"],
        saved["round"],
        saved["prompt_version"],
        started=set(saved["started"]),
        decided={call_id: decision_of(plain) for call_id, plain in saved["decided"].items()},
    )
    progress.text = _last_text(context.messages)
    if progress.round:
        at = max(i for i, message in enumerate(context.messages) if message.tool_calls)
        progress.open = context.messages[at].tool_calls
        ids = {call.id for call in progress.open}
        progress.pending = tuple(call for call in progress.open if call.id in saved["pending"])
        behind = context.messages[at + 1 :]
        progress.results = {m.tool_call_id: m for m in behind if m.tool_call_id in ids}
        context.messages[at + 1 :] = [m for m in behind if m.tool_call_id not in ids]
    return Found(context, progress, checkpoint.status, saved.get("end"))


def _last_text(messages: Sequence[Message]) -> str:
    return next((m.content for m in reversed(messages) if m.role == "assistant" and m.content), "")
