"""Carrying out a reduction: the control entries it writes and the state after it. Touches only its arguments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from agentkit.state.compaction import Summary, checked
from agentkit.state.compaction.ranges import within

from .messages import Known
from .record import Breaker, Compaction, ContextState, Entry, Msg, SkillChange, SkillRef, TextPart, ToolMsg, UserMsg
from .reduction import Declined, Plan, view_after
from .scene import look, shown_messages
from .settings import Reduction
from .skills import references
from .tokens import Conditions, context_estimate, request_size
from .units import Work
from .view import of_state, with_view

FAILURES = 3
"""Failures in a row that open the breaker."""
REST = 8
"""Turns until one more try, doubled each time that fails too."""


@dataclass(frozen=True)
class Applied:
    """A reduction that was carried out: the state after it and the entries to be written with it. `before` and `after`:
    the request's size by the same estimate; `dropped`: what the summary claimed and the record does not bear out."""

    state: ContextState
    entries: tuple[Entry, ...]
    before: int
    after: int
    evicted: tuple[str, ...] = ()
    dropped: tuple[tuple[str, str], ...] = ()


def apply(
    state: ContextState,
    log: Iterable[Entry],
    plan: Plan,
    delta: Summary | None,
    settings: Reduction,
    conditions: Conditions,
    *,
    now: int,
    work: Work | None = None,
    degraded: bool = False,
    usage: Mapping[str, Any] | None = None,
    bodies: Mapping[str, str] | None = None,
    known: Known | None = None,
) -> Applied | Declined:
    """Carry out `plan` with the summary `delta` of what it folds (None where it folds nothing or brings its own).

    Refused as `stale` when the version moved or a folded entry has since been pinned or become an obligation, and as
    `no_progress` when the result is not `min_gain` smaller; an emergency has its own measure. Entries appended
    meanwhile are untouched. `now` in ms. Raises ValueError when a summary is due and none is given.
    """
    entries = list(log)
    known = {} if known is None else known
    if state.version != plan.version:
        return Declined("stale", f"planned on version {plan.version}, the context is at {state.version}")
    if pinned := [n for n in state.pins if n not in plan.pins and within(plan.folded, n)]:
        return Declined("stale", f"entries {pinned} have been pinned since")
    scene = look(state, entries, settings, conditions, work=work, bodies=bodies, known=known)
    owed = {n for at in scene.held.owed for n in scene.units[at].numbers}
    if any(within(plan.folded, n) for n in owed):
        return Declined("stale", "a folded entry has become an obligation since")
    given = plan.delta if delta is None else delta
    if plan.folds and given is None:
        raise ValueError("this plan folds entries, so it needs a summary of them")
    found = checked(given or Summary(), plan.sources(entries, known=known), old=state.summary)
    evicted = _evicted(state, entries, plan, settings)
    shown, controls = view_after(state, plan, found.summary, now=now, evicted=evicted)
    plain = request_size(scene.shown, conditions).tokens
    rest = shown_messages(shown, entries, state.id, settings, conditions, bodies=bodies, known=known)
    after = request_size(rest, conditions).tokens
    if plan.tier != 5 and after > plain * (1 - settings.min_gain):
        return Declined("no_progress", f"from {plain:,} to {after:,} tokens", plain)
    controls = [
        _with_figures(entry, before=plain, after=after, degraded=degraded or plan.tier == 5, usage=usage)
        for entry in controls
    ]
    made = msgspec.structs.replace(
        with_view(state, replace(shown, last=controls[-1].n if controls else shown.last)),
        anchor=None,
        breaker=Breaker() if plan.folds else state.breaker,
        model_window=conditions.window,
        updated=now,
    )
    made = msgspec.structs.replace(made, est_tokens=context_estimate(made, rest, conditions))
    return Applied(made, tuple(controls), plain, after, evicted, found.dropped)


def failed(state: ContextState, *, now: int, window: int) -> ContextState:
    """The state after a fold that failed or made no progress; the third in a row opens the breaker."""
    held = state.breaker
    breaker = msgspec.structs.replace(held, failures=held.failures + 1)
    if breaker.failures >= FAILURES:
        rest = REST * 2**held.openings
        breaker = Breaker(breaker.failures, now, state.turns + rest, window, held.openings + 1)
    return msgspec.structs.replace(state, breaker=breaker, updated=now)


def _with_figures(entry: Entry, *, before: int, after: int, degraded: bool, usage: Mapping[str, Any] | None) -> Entry:
    changes: dict[str, Any] = {"before": before, "after": after}
    if isinstance(entry.body, Compaction):
        changes |= {"degraded": degraded, "usage": dict(usage or {})}
    return msgspec.structs.replace(entry, body=msgspec.structs.replace(entry.body, **changes))


def _evicted(state: ContextState, entries: Iterable[Entry], plan: Plan, settings: Reduction) -> tuple[str, ...]:
    """Skills whose text leaves with this fold: neither a load nor a reference to them is kept."""
    if not plan.folds:
        return ()
    shown = of_state(state)
    kept = [e for e in entries if shown.shows(e.n) and not within(plan.folded, e.n)]
    named = set(references((_text(e.body) for e in kept if e.is_message), settings.reference_prefix))
    # One that was unloaded and loaded again is shown where it first stood: its latest load counts here.
    named |= {e.body.name for e in kept if isinstance(e.body, SkillChange) and e.body.op != "unload"}

    def is_kept(ref: SkillRef) -> bool:
        if shown.shows(ref.entry) and not within(plan.folded, ref.entry):
            return True
        return ref.name in named

    return tuple(ref.name for ref in state.skills if ref.status == "" and not is_kept(ref))


def _text(msg: Msg) -> str:
    if isinstance(msg, UserMsg):
        return "\n".join(part.text for part in msg.parts if isinstance(part, TextPart))
    if isinstance(msg, ToolMsg):
        return msg.content if isinstance(msg.content, str) else ""
    return msg.text
