"""A context as a decision about its size looks at it. Touches only its arguments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .fold import Hold, hold
from .messages import Known, Shown, messages
from .record import ContextState, Entry
from .settings import RULE_SHARE, Reduction
from .tiers import Tail
from .tokens import Conditions, RequestSize, request_size
from .units import Unit, Work, obliged, units
from .view import View, of_state


@dataclass(frozen=True)
class Scene:
    """A context looked at: its view as messages, units and sizes, everything a plan rests on."""

    state: ContextState
    shown: list[Shown]
    log: dict[int, Entry]
    units: list[Unit]
    held: Hold
    size: RequestSize
    known: Known

    @property
    def tail(self) -> Tail:
        return Tail(self.shown, self.log, self.units, self.state.view.marks, frozenset(self.state.pins), self.known)


def look(
    state: ContextState,
    log: Iterable[Entry],
    settings: Reduction,
    conditions: Conditions,
    *,
    work: Work | None = None,
    bodies: Mapping[str, str] | None = None,
    known: Known | None = None,
) -> Scene:
    """The scene of a context. `log`: its visible entries at least and, for each pinned entry that is folded, its round;
    `bodies`: texts of loaded skills by hash; `known`: messages made before, by entry."""
    work = work or Work()
    known = {} if known is None else known
    entries = list(log)
    by_number = {entry.n: entry for entry in entries}
    shown = shown_messages(of_state(state), entries, state.id, settings, conditions, bodies=bodies, known=known)
    sizes = {one.n: conditions.counter.measure([one.message]) for one in shown if one.n is not None}
    found = units(shown, by_number, sizes)
    owed = obliged(shown, by_number, work)
    held = hold(
        found,
        (by_number[n] for unit in found for n in unit.numbers),
        work,
        handled=state.handled,
        pins=state.pins,
        owed=owed,
    )
    size = request_size(shown, conditions, anchor=state.anchor, version=state.version)
    return Scene(state, shown, by_number, found, held, size, known)


def shown_messages(
    view: View,
    log: Iterable[Entry],
    context: str,
    settings: Reduction,
    conditions: Conditions,
    *,
    bodies: Mapping[str, str] | None = None,
    known: Known | None = None,
) -> list[Shown]:
    """The messages of a view, its summary within the room that the window leaves it."""
    window = conditions.window
    return messages(
        view,
        log,
        context=context,
        bodies=bodies,
        summary_tokens=settings.summary_room(window),
        rule_tokens=int(RULE_SHARE * window),
        known=known,
    )
