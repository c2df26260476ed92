"""What the model is shown of a log. Touches only its arguments.

`view` is a pure function of the entries: any version of it stays readable, comparable and restorable, since a log is
only ever added to. The state row carries the newest view, so that the log need not be read to go on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from agentkit.state.compaction import Ranges, Summary
from agentkit.state.compaction.ranges import minus, numbers_in, size_of, union, within

from .record import (
    Clear,
    Compaction,
    ContextState,
    Entry,
    Mark,
    Masking,
    Pin,
    PlanChange,
    Restore,
    SkillChange,
    SkillRef,
    Told,
    Unpin,
    Visible,
)


@dataclass(frozen=True)
class View:
    """What version `version` shows: the visible entries and how, the summary of what was folded, pins, skills, plan.

    `last`: the newest entry it has seen. `told`: what the rendered summary says of itself.
    """

    version: int = 1
    visible: Visible = field(default_factory=Visible)
    summary: Summary = field(default_factory=Summary)
    told: Told = field(default_factory=Told)
    pins: tuple[int, ...] = ()
    skills: tuple[SkillRef, ...] = ()
    plan: Any = field(default=None, hash=False)
    last: int = 0

    def shows(self, n: int) -> bool:
        """Whether entry `n` is in the view."""
        tail = self.visible.tail
        return (tail is not None and tail <= n) or within(self.visible.ranges, n)

    def entries(self, log: Iterable[Entry]) -> list[Entry]:
        """The visible messages and loads of skills among `log`, in order."""
        return [entry for entry in log if self.shows(entry.n) and (entry.is_message or entry.kind == "skill")]


@dataclass(frozen=True)
class ViewDifference:
    """Entries that only one of two views shows, those that both show in different ways, and whether the summary, the
    pins, the skills and the plan are others."""

    added: Ranges
    removed: Ranges
    remarked: tuple[int, ...]
    summary: bool
    pins: bool
    skills: bool
    plan: bool


def view(log: Iterable[Entry], version: int | None = None) -> View:
    """The view of `version` as it was when the next one began, None for the current one.

    `log`: all entries from the first on, in order. Raises ValueError for a version that the log does not have.
    """
    current = View()
    past: dict[int, View] = {}
    for entry in log:
        current = _advanced(current, entry, past)
        if version is not None and version in past:
            return past[version]
    if version is None or version == current.version:
        return current
    raise ValueError(f"this log has versions 1 to {current.version}, not {version}")


def versions(log: Iterable[Entry]) -> tuple[View, ...]:
    """Every version's view, the current one last."""
    current = View()
    past: dict[int, View] = {}
    for entry in log:
        current = _advanced(current, entry, past)
    return (*past.values(), current)


def advance(current: View, entry: Entry) -> View:
    """The view after one more entry. Raises ValueError for a `restore`, which needs the log: use `restored`."""
    if isinstance(entry.body, Restore):
        raise ValueError("a restore takes an older view out of the log")
    return _advanced(current, entry, {})


def restored(old: View, entry: Entry) -> View:
    """The older view `old` as the current one from `entry`, a restore, on."""
    return replace(
        old,
        version=entry.body.version,
        visible=msgspec.structs.replace(old.visible, tail=entry.n + 1),
        last=entry.n,
    )


def of_state(state: ContextState) -> View:
    """The current view, from the state row alone."""
    return View(
        state.version, state.view, state.summary, state.told, state.pins, state.skills, state.plan, state.next - 1
    )


def with_view(state: ContextState, shown: View) -> ContextState:
    """The state with that view as its current one."""
    return msgspec.structs.replace(
        state,
        version=shown.version,
        view=shown.visible,
        summary=shown.summary,
        told=shown.told,
        pins=shown.pins,
        skills=shown.skills,
        plan=shown.plan,
        next=shown.last + 1,
    )


def difference(old: View, new: View) -> ViewDifference:
    """What changed between two versions; entries that came after the older one count as added."""
    last = max(old.last, new.last)
    before, after = _closed_ranges(old.visible, last=old.last), _closed_ranges(new.visible, last=last)
    both = {n for n in (*old.visible.marks, *new.visible.marks) if old.shows(n) and new.shows(n)}
    remarked = tuple(sorted(n for n in both if old.visible.marks.get(n) != new.visible.marks.get(n)))
    return ViewDifference(
        minus(after, before),
        minus(before, after),
        remarked,
        old.summary != new.summary,
        old.pins != new.pins,
        old.skills != new.skills,
        old.plan != new.plan,
    )


def visible_numbers(shown: View) -> Iterator[int]:
    """The numbers in the view up to the newest entry it has seen, those of control entries among them included."""
    return numbers_in(_closed_ranges(shown.visible, last=shown.last))


def visible_size(shown: View) -> int:
    """How many numbers that is."""
    return size_of(_closed_ranges(shown.visible, last=shown.last))


def _closed_ranges(visible: Visible, *, last: int) -> Ranges:
    return visible.ranges if visible.tail is None else union(visible.ranges, ((visible.tail, last),))


def _advanced(current: View, entry: Entry, past: dict[int, View]) -> View:
    body = entry.body
    if isinstance(body, (Compaction, Masking, Clear, Restore)) and body.version > current.version:
        ranges = _closed_ranges(current.visible, last=entry.n - 1)
        closed = msgspec.structs.replace(current.visible, ranges=ranges, tail=None)
        past[current.version] = replace(current, visible=closed, last=entry.n - 1)
        current = replace(current, version=body.version)
    if isinstance(body, Restore):
        if body.restored not in past:
            raise ValueError(f"entry {entry.n} restores version {body.restored}, which is not before it")
        return restored(past[body.restored], entry)
    return replace(_changed(current, entry), last=entry.n)


def _changed(current: View, entry: Entry) -> View:
    body = entry.body
    if isinstance(body, Compaction):
        return _folded(current, body)
    if isinstance(body, Masking):
        marks = {n: Mark(body.how, value) for n, value in body.entries.items() if current.shows(n)}
        visible = msgspec.structs.replace(current.visible, marks={**current.visible.marks, **marks})
        return replace(current, visible=visible)
    if isinstance(body, Clear):
        return View(version=current.version, visible=Visible(tail=entry.n + 1), told=Told(current.version))
    if isinstance(body, Pin):
        return current if body.entry in current.pins else replace(current, pins=(*current.pins, body.entry))
    if isinstance(body, Unpin):
        return replace(current, pins=tuple(n for n in current.pins if n != body.entry))
    if isinstance(body, PlanChange):
        return replace(current, plan=body.result)
    if isinstance(body, SkillChange):
        return replace(current, skills=_skills(current.skills, body, entry.n))
    return current


def _folded(current: View, fold: Compaction) -> View:
    visible = current.visible
    last = fold.folded[-1][1] if fold.folded else 0
    ranges, tail = visible.ranges, visible.tail
    if tail is not None and last >= tail:
        ranges, tail = union(ranges, ((tail, last),)), last + 1
    ranges = union(minus(ranges, fold.folded), fold.back)
    if tail is not None and ranges and ranges[-1][1] == tail - 1:
        # One spelling: what touches the open end belongs to it.
        ranges, tail = ranges[:-1], ranges[-1][0]
    marks = {n: mark for n, mark in visible.marks.items() if not within(fold.folded, n)}
    merged = current.summary.merge(fold.summary)
    covers = minus(union(current.summary.covers, fold.folded), fold.back)
    gone = {ref.name for ref in current.skills if ref.status == "unloaded"}
    skills = tuple(
        msgspec.structs.replace(ref, status="evicted") if ref.name in fold.evicted else ref
        for ref in current.skills
        if ref.name not in gone
    )
    return replace(
        current,
        visible=Visible(ranges, tail, marks),
        summary=replace(merged, covers=covers),
        told=Told(fold.version, fold.handled),
        skills=skills,
    )


def _skills(skills: tuple[SkillRef, ...], change: SkillChange, n: int) -> tuple[SkillRef, ...]:
    """Unloading takes a name from the set at once and its text with the next fold: until then it is `unloaded`. One
    whose text has left before is gone."""
    if change.op == "unload":
        return tuple(
            msgspec.structs.replace(ref, status="unloaded") if ref.name == change.name else ref
            for ref in skills
            if not (ref.name == change.name and ref.status == "evicted")
        )
    held = next((ref for ref in skills if ref.name == change.name), None)
    made = SkillRef(change.name, change.new or "", change.args, n)
    stays = held is not None and change.op == "change"
    if held is not None and change.op == "change":
        made = msgspec.structs.replace(held, hash=change.new or "", status="", entry=n)
    elif held is not None and held.status == "unloaded" and (held.hash, held.args) == (made.hash, made.args):
        # Its text is still shown where it was; moving it would change what a provider has cached behind that place.
        made, stays = msgspec.structs.replace(held, status=""), True
    return (
        tuple(made if ref.name == change.name else ref for ref in skills)
        if stays
        else (*(ref for ref in skills if ref.name != change.name), made)
    )
