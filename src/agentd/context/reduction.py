"""What a reduction is: a plan made on one version, the reasons for making none, and the control entries that carry it
out. Touches only its arguments."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from agentkit.state.compaction import Ranges, Source, Summary, Verdict
from agentkit.state.compaction.ranges import told, within

from .messages import Known, source
from .record import Compaction, ContextState, Control, Entry, Mark, Masking, entry_of
from .view import View, advance, of_state

REASONS = (
    "below_trigger", "nothing_to_fold", "no_safe_cut", "open_obligation", "not_worth_it", "no_progress", "breaker_open",
    "in_progress", "stale", "prefix_too_large",
)  # fmt: skip
"""Why a reduction is declined."""


@dataclass(frozen=True)
class Declined:
    """Nothing is done. `reason` is one of REASONS, `detail` says what was found; `size`: of the request, in tokens."""

    reason: str
    detail: str = ""
    size: int = 0
    verdict: Verdict | None = None

    def __post_init__(self) -> None:
        if self.reason not in REASONS:
            raise ValueError(f"unknown reason {self.reason!r}; known are {', '.join(REASONS)}")


@dataclass(frozen=True)
class Step:
    """What one tier does: `tokens` won, by estimate, and `usd` that rewriting the cache behind it costs, None where no
    price is known."""

    tier: int
    tokens: int
    entries: dict[int, Mark] = field(default_factory=dict, hash=False)
    usd: float | None = None


@dataclass(frozen=True)
class Plan:
    """What a reduction will do to version `version` of `context`, as it stood at entry `seen`.

    `folded`: entries that leave the view; `back`: entries that return for a pin; `pins`: as they were then; `target`:
    the size aimed at, `before`: the size found, both of a request in tokens; `reason`: trigger, command, pays or
    overflow. `delta`: the summary of what is folded where it is written without a model, by an emergency.
    """

    context: str
    version: int
    seen: int
    tier: int
    steps: tuple[Step, ...]
    folded: Ranges
    back: Ranges
    pins: tuple[int, ...]
    target: int
    reason: str
    before: int
    delta: Summary | None = None

    @property
    def folds(self) -> bool:
        """Whether a summary of `folded` has to be written before it can be applied."""
        return bool(self.folded)

    def sources(self, log: Iterable[Entry], *, known: Known | None = None) -> list[Source]:
        """The entries to summarise, in full. `known`: messages made before, by entry."""
        return [source(entry, None, known) for entry in log if entry.is_message and within(self.folded, entry.n)]


def told_plan(made: Plan) -> str:
    """One line for a log: numbers only, no content."""
    won = ", ".join(f"tier {step.tier} {step.tokens:,}" for step in made.steps)
    return f"version {made.version}: {won or 'nothing shortened'}; folds {told(made.folded) or 'nothing'}"


def view_after(
    state: ContextState, plan: Plan, delta: Summary, *, now: int, evicted: tuple[str, ...]
) -> tuple[View, list[Entry]]:
    """The view once a plan is carried out, and the control entries that make it so, all of one new version."""
    version, shown = state.version + 1, of_state(state)
    bodies: list[Control] = []
    for step in plan.steps:
        by_how: dict[Any, dict[int, int]] = {}
        for n, mark in sorted(step.entries.items()):
            by_how.setdefault(mark.how, {})[n] = mark.value
        bodies += [Masking(version, step.tier, how, values) for how, values in by_how.items()]
    if plan.folded or plan.back:
        bodies.append(
            Compaction(
                version,
                plan.tier,
                plan.folded,
                plan.back,
                replace(delta, covers=plan.folded),
                handled=state.handled,
                evicted=evicted,
            )
        )
    controls = [entry_of(state.next + at, body, ts=now) for at, body in enumerate(bodies)]
    for entry in controls:
        shown = advance(shown, entry)
    return shown, controls
