"""What may only be kept or folded whole: one user or note entry, or one round, a model's answer with the results of its
calls. Touches only its arguments."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from agentkit.core.contracts.validity import answered, open_calls

from .messages import Shown
from .record import AssistantMsg, Entry, ToolMsg


@dataclass(frozen=True)
class Work:
    """What is going on in the context. `turn`: the id of the turn in hand, None between turns; `open_calls`: ids of
    calls that a human, a timer or a background run still owes a result. Every other call without one is dead."""

    turn: str | None = None
    open_calls: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        object.__setattr__(self, "open_calls", frozenset(self.open_calls))


@dataclass(frozen=True)
class Unit:
    """Entries by number, ascending. `kind`: of the first one; `tokens`: estimated."""

    numbers: tuple[int, ...]
    kind: str
    tokens: int = field(default=0, compare=False)

    @property
    def opens(self) -> bool:
        """Whether an exchange begins here, and so whether what is kept may begin here."""
        return self.kind in ("user", "note")

    @property
    def is_round(self) -> bool:
        return self.kind == "assistant"


def units(shown: Sequence[Shown], log: Mapping[int, Entry], sizes: Mapping[int, int] | None = None) -> list[Unit]:
    """The units of these messages, by first entry. `sizes`: tokens by entry number.

    A result goes with its call wherever it stands, an orphan with what is in front of it, and so does a skill's text.
    """
    found = [s for s in shown if s.n is not None]
    owner = {result: call for call, result in answered([s.message for s in found])}
    unit_of: list[int] = []
    members: list[list[int]] = []
    by_call: dict[str, int] = {}
    previous = ""
    for at, one in enumerate(found):
        entry = log[one.n or 0]
        kind = entry.kind
        if at in owner:
            unit = unit_of[owner[at]]
        elif kind == "tool" and isinstance(entry.body, ToolMsg) and entry.body.id in by_call:
            unit = by_call[entry.body.id]
        elif members and (kind in ("tool", "skill") or (kind == "assistant" and previous == "assistant")):
            unit = unit_of[-1]
        else:
            unit = len(members)
            members.append([])
        if isinstance(entry.body, AssistantMsg):
            by_call.update((call.id, unit) for call in entry.body.tool_calls)
        members[unit].append(entry.n)
        unit_of.append(unit)
        previous = kind
    weights = sizes or {}
    return [Unit(tuple(ns), log[ns[0]].kind, sum(weights.get(n, 0) for n in ns)) for ns in members]


def obliged(shown: Sequence[Shown], log: Mapping[int, Entry], work: Work) -> frozenset[int]:
    """Entries whose calls are still owed a result, by number.

    These are calls that have nothing but a pending result, calls that `work` names, and, while a turn is in hand, those
    of the last answer that have none yet.
    """
    found = [s for s in shown if s.n is not None]
    calls = open_calls([s.message for s in found])
    open_ids = {id(call) for call in calls}
    pending = {m.body.id for m in map(log.__getitem__, (s.n or 0 for s in found))
               if isinstance(m.body, ToolMsg) and m.body.state == "pending"}  # fmt: skip
    owed: set[int] = set()
    for one in found:
        for call in one.message.tool_calls:
            is_open = id(call) in open_ids and (call.id in pending or work.turn is not None)
            if one.n is not None and (is_open or call.id in work.open_calls):
                owed.add(one.n)
    return frozenset(owed)


def holding(found: Iterable[Unit], numbers: Collection[int]) -> set[int]:
    """Places of the units that hold any of these entries."""
    return {at for at, unit in enumerate(found) if any(n in numbers for n in unit.numbers)}
