"""What one process knows of a stored run, and the batch that takes it to its next version. Touches only its arguments.

| key below the run's | holds |
|---|---|
| `head` | version, length of each log, id of the last commit; written with the version that was seen |
| `versions` | log of small rows, one a version: status, counters, and where in the other logs its state stands |
| `messages`, `journal` | logs of what the run ever had, each item once |
| `parts` | log of what changes rarely: prefix, scratchpad changes and indexes, layouts of many ranges |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from agentkit.core.contracts.frozen import FrozenDict, FrozenList, deep_freeze
from agentkit.core.contracts.ports import Append, Put
from agentkit.state.context import MessageView

from .checkpoint import Checkpoint
from .run_log import LogView, NotesStep, NotesView, Range, Step, joined, same

ROW_FORMAT = 1
"""Raised by a change of the rows that an older release would misread."""

INLINE = 8
"""Ranges that a version's row holds itself. Where a rewrite left more, all but the last are a part of their own, which
later rows name, so that a row stays small whatever was rewritten."""

LISTS = (tuple, FrozenList, MessageView)


class Shares(NamedTuple):
    """A state, taken apart by where it is kept; None for a share that the state has not, or not in the usual form."""

    messages: tuple[Any, ...] | FrozenList[Any] | MessageView | None
    entries: tuple[Any, ...] | FrozenList[Any] | None
    notes: FrozenDict[str, Any] | None
    prefix: FrozenDict[str, Any] | None
    rest: dict[str, Any]


def shares_of(state: Mapping[str, Any]) -> Shares:
    """`messages`, the entries of `journal`, `scratchpad` and `prefix`; all else is the rest."""
    rest = dict(state)
    messages = rest.pop("messages") if type(rest.get("messages")) in LISTS else None
    entries = None
    journal = rest.get("journal")
    if type(journal) is FrozenDict and type(journal.get("entries")) in LISTS:
        entries = journal["entries"]
        rest["journal"] = {key: value for key, value in journal.items() if key != "entries"}
    notes = rest.get("scratchpad")
    if type(notes) is FrozenDict and all(type(key) is str for key in notes):
        del rest["scratchpad"]
    else:
        notes = None
    prefix = rest.pop("prefix") if type(rest.get("prefix")) is FrozenDict else None
    return Shares(messages, entries, notes, prefix, rest)


@dataclass(frozen=True)
class Keys:
    """The keys of one run."""

    head: str
    versions: str
    messages: str
    journal: str
    parts: str

    @classmethod
    def of(cls, base: str) -> Keys:
        return cls(*(f"{base}/{name}" for name in ("head", "versions", "messages", "journal", "parts")))

    def all(self) -> tuple[str, ...]:
        return self.head, self.versions, self.messages, self.journal, self.parts


@dataclass
class Layouts:
    """The ranges last written as a part of their own, and where."""

    ranges: tuple[Range, ...] = ()
    place: int = -1

    def row(self, ranges: tuple[Range, ...], parts: list[Any], length: int) -> tuple[dict[str, Any], Layouts]:
        """How a row names `ranges`, adding a part where it must, and the layouts once that is stored."""
        if len(ranges) <= INLINE:
            return {"base": None, "ranges": [list(r) for r in ranges]}, self
        base, last = ranges[:-1], ranges[-1]
        after = self
        if base != self.ranges:
            after = Layouts(base, length + len(parts))
            parts.append({"layout": [list(r) for r in base]})
        return {"base": after.place, "ranges": [list(last)]}, after


@dataclass(frozen=True)
class Plan:
    """A version about to be stored, and what is known once it is."""

    commit: str
    batch: tuple[Put | Append, ...]
    version: int
    messages: Step | None
    entries: Step | None
    notes: NotesStep | None
    prefix: tuple[Any, int] | None
    layouts: dict[str, Layouts]
    parts: int


@dataclass
class RunState:
    """What this process last saw of a run; `seen` is the store's version of its head, 0 for a run not stored yet."""

    seen: int = 0
    version: int = 0
    messages: LogView = field(default_factory=LogView)
    journal: LogView = field(default_factory=LogView)
    notes: NotesView = field(default_factory=NotesView)
    prefix: tuple[Any, int] | None = None
    layouts: dict[str, Layouts] = field(default_factory=dict)
    parts: int = 0
    pending: Plan | None = None
    """A commit whose outcome is not known: it was cancelled, or the connection broke."""

    def plan(self, checkpoint: Checkpoint, keys: Keys, scope_key: str, commit: str) -> Plan:
        """The one batch that stores `checkpoint`: new items, a row, the head; refused if anybody else wrote since."""
        shares = shares_of(checkpoint.state)
        parts: list[Any] = []
        layouts = dict(self.layouts)
        row: dict[str, Any] = {
            "format": ROW_FORMAT,
            "version": checkpoint.version,
            "created_at": checkpoint.created_at,
            "status": checkpoint.status,
            "metadata": checkpoint.metadata,
            "state": shares.rest,
        }
        steps: dict[str, Step | None] = {"messages": None, "journal": None}
        for name, view, items in (
            ("messages", self.messages, shares.messages),
            ("journal", self.journal, shares.entries),
        ):
            if items is None:
                continue
            step = steps[name] = view.plan(items if type(items) is MessageView else tuple(items))
            row[name], layouts[name] = layouts.get(name, Layouts()).row(step.ranges, parts, self.parts)
            if type(items) is FrozenList:
                row[name]["list"] = True
        prefix = self.prefix
        if shares.prefix is not None:
            if prefix is None or not same(prefix[0], shares.prefix):
                prefix = shares.prefix, self.parts + len(parts)
                parts.append({"prefix": shares.prefix})
            row["prefix"] = prefix[1]
        notes = None
        if shares.notes is not None:
            notes = self.notes.plan(shares.notes, self.parts + len(parts))
            parts += () if notes is None else notes.items
            where = self.notes if notes is None else notes
            row["notes"] = [where.start, where.stop]
        return Plan(
            commit,
            self._batch(keys, scope_key, commit, checkpoint, row, steps, parts),
            checkpoint.version,
            steps["messages"],
            steps["journal"],
            notes,
            prefix,
            layouts,
            self.parts + len(parts),
        )

    def _batch(
        self,
        keys: Keys,
        scope_key: str,
        commit: str,
        checkpoint: Checkpoint,
        row: dict[str, Any],
        steps: dict[str, Step | None],
        parts: list[Any],
    ) -> tuple[Put | Append, ...]:
        appends: list[Put | Append] = []
        lengths = {"messages": self.messages.length, "journal": self.journal.length, "parts": self.parts}
        fresh = {name: () if step is None else step.fresh for name, step in steps.items()} | {"parts": tuple(parts)}
        # Entries come as they are, since freezing all of them in each version would follow the length of the run.
        fresh["journal"] = tuple([deep_freeze(entry) for entry in fresh["journal"]])
        for name, items in fresh.items():
            if items:
                appends.append(Append(getattr(keys, name), items, at=lengths[name]))
                lengths[name] += len(items)
        head = {
            "format": ROW_FORMAT,
            "scope": scope_key,
            "run": checkpoint.run_id,
            "version": checkpoint.version,
            "commit": commit,
            "lengths": lengths,
        }
        return (
            Put(keys.head, head, expected=self.seen),
            Append(keys.versions, (row,), at=self.version),
            *appends,
        )

    def advance(self, plan: Plan, seen: int) -> None:
        """The plan was stored; `seen` is the head's version in the store."""
        self.seen, self.version, self.pending = seen, plan.version, None
        if plan.messages is not None:
            self.messages.advance(plan.messages)
        if plan.entries is not None:
            self.journal.advance(plan.entries)
        if plan.notes is not None:
            self.notes.advance(plan.notes)
        self.prefix, self.layouts, self.parts = plan.prefix, plan.layouts, plan.parts


def ranges_in(view: Mapping[str, Any], base: Any) -> tuple[Range, ...]:
    """The ranges that a row names; `base` is the layout it refers to, where it does."""
    return joined((start, stop) for start, stop in [*(base or ()), *view["ranges"]])
