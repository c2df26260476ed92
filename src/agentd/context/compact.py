"""Reduction of a context: what to do is a plan, made on one version; doing it is a value as well, and refused when the
context has moved on. Touches only its arguments; a summary is written in between, by whoever has a model.

*Compact* means to fold a transcript here, not the compact price table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from agentkit.core.contracts.errors import ContextOverflowError
from agentkit.state.compaction import Ranges, Summary, extract, pays
from agentkit.state.compaction.ranges import ranges_of, union, within

from .applying import Applied, apply, failed
from .fold import plan_emergency, plan_fold, ranges_of_units
from .messages import entry_message, messages
from .record import ContextState
from .reduction import REASONS, Declined, Plan, Step, told_plan, view_after
from .scene import Scene, look, shown_messages
from .settings import Reduction
from .tiers import Gain, Tail, clampable, clamped_to, maskable, superseded
from .tokens import Conditions, RequestSize, fits, request_size, require_fit
from .units import Unit, Work, units
from .view import View, of_state

__all__ = [
    "HARDEST_CLAMP",
    "REASONS",
    "Applied",
    "Declined",
    "Plan",
    "Scene",
    "Step",
    "Work",
    "apply",
    "failed",
    "is_open",
    "look",
    "plan",
    "plan_overflow",
    "told_plan",
]

HARDEST_CLAMP = 64
"""Tokens of a part below which an emergency shortens no further: what is left would say nothing."""


def plan(
    scene: Scene,
    settings: Reduction,
    conditions: Conditions,
    *,
    command: bool = False,
    target: int | None = None,
    busy: bool = False,
) -> Plan | Declined:
    """What to do about the size of a context, cheapest first, until the goal is met. Tiers 1 to 4.

    `command`: asked for explicitly, so below the trigger and with an open breaker too. `target`: size of a request to
    aim at instead of the goal. `busy`: another reduction of this context is under way.
    """
    state, size, window = scene.state, scene.size, conditions.window
    if busy:
        return Declined("in_progress", "another reduction of this context is under way", size.tokens)
    trigger = settings.trigger(window)
    fired = size.tokens > trigger or not fits(size, conditions)
    if not fired and not command:
        return _if_it_pays(scene, settings, conditions)
    fixed = round(size.factor * conditions.fixed.total)
    if fixed > trigger:
        detail = ", ".join(f"{name} {tokens:,}" for name, tokens in size.segments.items() if tokens)
        return Declined(
            "prefix_too_large", f"{fixed:,} of {int(trigger):,} tokens before any message: {detail}", size.tokens
        )
    goal = settings.goal(window) if target is None else target
    if not fits(size, conditions):
        # The reserve or the upper bound is what does not fit: aim so far below the best figure that both do.
        goal = min(goal, size.tokens * (window - conditions.fixed.output) // max(size.decisive, 1))
    steps = _cheap_steps(scene, settings, conditions, size.tokens - goal)
    won = round(size.factor * sum(step.tokens for step in steps))
    reason = "trigger" if fired else "command"
    made = _plan_of(scene, steps, goal, reason)
    if steps and size.tokens - won <= goal and not command:
        return made
    if not command and is_open(state, window):
        return made if steps else Declined("breaker_open", _told_breaker(state), size.tokens)
    marked = _with_marks(scene, steps, conditions)
    room = round((goal - fixed) / size.factor) - settings.summary_room(window)
    folded, why = plan_fold(
        marked, scene.held, keep_last=settings.keep_last, room=max(room, 0), user_room=settings.user_room(window)
    )
    if why is not None:
        return made if steps else Declined(why, f"{len(marked)} units, {len(scene.held.all)} of them held", size.tokens)
    return _folding(made, scene, folded, tier=4)


def plan_overflow(scene: Scene, settings: Reduction, conditions: Conditions) -> Plan:
    """Tier 5, for a request that would not fit: everything but what is held, the current request and the last complete
    round is folded, its summary written by form alone, and parts are shortened as hard as it takes.

    Raises ContextOverflowError with the sizes by segment when even that does not fit.
    """
    folded = plan_emergency(scene.units, scene.held)
    base = _folding(_plan_of(scene, (), settings.goal(conditions.window), "overflow"), scene, folded, tier=5)
    base = replace(base, delta=extract(base.sources(scene.log.values(), known=scene.known)) if folded else None)
    limit = settings.part_limit(conditions.window)
    while True:
        gains = clamped_to(limit, scene.tail, conditions)
        kept = [gain for gain in gains if not within(base.folded, gain.n)]
        steps = (_step(5, kept, scene, conditions),) if kept else ()
        made = replace(base, steps=steps)
        size = _size_after(made, scene, settings, conditions)
        if fits(size, conditions):
            return made
        if limit <= HARDEST_CLAMP:
            require_fit(size, conditions)
            raise ContextOverflowError(window=conditions.window, sizes=size.segments)
        limit = max(limit // 2, HARDEST_CLAMP)


def is_open(state: ContextState, window: int) -> bool:
    """Whether summaries are stopped: until as many turns as the breaker says have passed, or the window is another."""
    breaker = state.breaker
    return breaker.opened is not None and breaker.window == window and state.turns < breaker.retry


def _told_breaker(state: ContextState) -> str:
    return f"{state.breaker.failures} failures in a row; tried again from turn {state.breaker.retry} on"


def _cheap_steps(scene: Scene, settings: Reduction, conditions: Conditions, excess: int) -> tuple[Step, ...]:
    """Tiers 1 to 3 until `excess` tokens of the request are won."""
    steps: list[Step] = []
    tail, taken = scene.tail, set[int]()
    tiers: tuple[tuple[int, Callable[[Tail, Reduction, Conditions], list[Gain]]], ...] = (
        (1, clampable),
        (2, superseded),
        (3, maskable),
    )
    for tier, candidates in tiers:
        if excess <= 0:
            break
        chosen: list[Gain] = []
        for gain in candidates(tail, settings, conditions):
            if excess <= 0:
                break
            if gain.n in taken:
                continue
            chosen.append(gain)
            excess -= round(scene.size.factor * gain.tokens)
        won = sum(gain.tokens for gain in chosen)
        if not chosen or (tier == 3 and won < settings.mask_gain(conditions.window)):
            excess += round(scene.size.factor * won)
            continue
        taken.update(gain.n for gain in chosen)
        steps.append(_step(tier, chosen, scene, conditions))
    return tuple(steps)


def _if_it_pays(scene: Scene, settings: Reduction, conditions: Conditions) -> Plan | Declined:
    """Below the trigger an edit is made only for money: when the cache is cold, or the tokens it saves repay it."""
    size = scene.size.tokens
    below = Declined("below_trigger", f"{size:,} of {settings.trigger(conditions.window):,.0f} tokens", size)
    if conditions.rates is None:
        return below
    steps = _cheap_steps(scene, settings, conditions, size)
    if not steps:
        return below
    won = sum(step.tokens for step in steps)
    first = min(n for step in steps for n in step.entries)
    behind = max(_tokens_from(scene, first, conditions) - won, 0)
    verdict = pays(conditions.rates, behind, won, 0, settings.horizon_turns, warm=conditions.warm)
    if not verdict.pays:
        costs = f"${verdict.cost_now:.4f} now, ${verdict.saved_per_call:.4f} saved a call"
        detail = f"{costs}: pays after {verdict.break_even_calls:.1f} calls"
        return Declined("not_worth_it", detail, size, verdict)
    if won * scene.size.factor < settings.min_gain * size:
        return below
    return _plan_of(scene, steps, size, "pays")


def _step(tier: int, gains: Sequence[Gain], scene: Scene, conditions: Conditions) -> Step:
    won = sum(gain.tokens for gain in gains)
    usd = None
    if conditions.rates is not None:
        behind = max(_tokens_from(scene, min(gain.n for gain in gains), conditions) - won, 0)
        usd = pays(conditions.rates, behind, won, 0, 0, warm=conditions.warm).cost_now
    return Step(tier, won, {gain.n: gain.mark for gain in gains}, usd)


def _tokens_from(scene: Scene, n: int, conditions: Conditions) -> int:
    return conditions.counter.measure([one.message for one in scene.shown if one.n is not None and one.n >= n])


def _plan_of(scene: Scene, steps: tuple[Step, ...], target: int, reason: str) -> Plan:
    state = scene.state
    tier = max((step.tier for step in steps), default=0)
    return Plan(
        state.id, state.version, state.next - 1, tier, steps, (), (), state.pins, target, reason, scene.size.tokens
    )


def _folding(made: Plan, scene: Scene, folded: set[int], *, tier: int) -> Plan:
    """`made` with these units folded, and with folded pins brought back."""
    order = {one.n for one in scene.shown if one.n is not None}
    visible = scene.state.view
    ranges = visible.ranges if visible.tail is None else union(visible.ranges, ((visible.tail, made.seen),))
    gone = ranges_of_units((scene.units[at] for at in folded), order, ranges)
    steps = tuple(
        replace(step, entries={n: mark for n, mark in step.entries.items() if not within(gone, n)})
        for step in made.steps
    )
    return replace(made, tier=tier, folded=gone, back=_back(scene), steps=tuple(s for s in steps if s.entries))


def _back(scene: Scene) -> Ranges:
    """The units of pinned entries that are folded: a pin brings its whole unit back, and the request in front of it."""
    state = scene.state
    shown = of_state(state)
    missing = [n for n in state.pins if not shown.shows(n) and n in scene.log]
    if not missing:
        return ()
    entries = [entry for n, entry in sorted(scene.log.items()) if entry.is_message]
    every = messages(View(), entries, known=scene.known)
    found = units(every, scene.log)
    wanted = [at for at, unit in enumerate(found) if any(n in missing for n in unit.numbers)]
    for at in tuple(wanted):
        if not found[at].opens:
            wanted += [opener for opener in range(at - 1, -1, -1) if found[opener].opens][:1]
    return ranges_of(n for at in wanted for n in found[at].numbers if not shown.shows(n))


def _with_marks(scene: Scene, steps: tuple[Step, ...], conditions: Conditions) -> list[Unit]:
    """The units as large as they are once the steps are taken."""
    won: dict[int, int] = {}
    shown = {one.n: one.message for one in scene.shown}
    for step in steps:
        for n, mark in step.entries.items():
            after = entry_message(scene.log[n], mark, scene.known)
            won[n] = conditions.counter.measure([shown[n]]) - conditions.counter.measure([after])
    return [replace(u, tokens=u.tokens - sum(won.get(n, 0) for n in u.numbers)) for u in scene.units]


def _size_after(made: Plan, scene: Scene, settings: Reduction, conditions: Conditions) -> RequestSize:
    """The size once a plan with its own delta is applied, without an anchor."""
    shown = view_after(scene.state, made, made.delta or Summary(), now=0, evicted=())[0]
    return request_size(
        shown_messages(shown, scene.log.values(), scene.state.id, settings, conditions, known=scene.known), conditions
    )
