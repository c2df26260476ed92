"""What may only be kept or folded whole: one user or note entry, or one round, a model's answer with the results of its
calls. Touches only its arguments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from agentkit.core.contracts.validity import answered, open_calls

from .messages import Shown
from .record import AssistantMsg, Call, Entry, ToolMsg


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
    # An answer that brings the result of its own call, from the provider's side, owns nothing of another entry.
    owner = {result: call for call, result in answered([s.message for s in found]) if call < result}
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
            by_call.update((call.id, unit) for call in _calls(entry))
        members[unit].append(entry.n)
        unit_of.append(unit)
        previous = kind
    joined = _joined(members, _unsure(members, log), log)
    weights = sizes or {}
    return [Unit(tuple(ns), log[ns[0]].kind, sum(weights.get(n, 0) for n in ns)) for ns in joined]


def _unsure(members: Sequence[Sequence[int]], log: Mapping[int, Entry]) -> set[int]:
    """Places of rounds with a result that names no call, or one of several. Which call it answers is then a matter of
    what stands in front of it, so folding that would answer another call."""
    named = Counter(call.id for ns in members for n in ns for call in _calls(log[n]))
    return {
        at
        for at, ns in enumerate(members)
        for n in ns
        if isinstance(result := log[n].body, ToolMsg) and (not result.id or named[result.id] > 1)
    }


def _joined(members: Sequence[list[int]], unsure: Collection[int], log: Mapping[int, Entry]) -> list[list[int]]:
    """The units, each unsure round made one with all from the user or note entry in front of it on. `settled_calls`
    sees to it that a log of ours has none; one that was taken over may."""
    joined: list[list[int]] = []
    for at, ns in enumerate(members):
        if at not in unsure:
            joined.append(ns)
            continue
        whole = ns
        while joined:
            part = joined.pop()
            whole = part + whole
            if log[part[0]].kind in ("user", "note"):
                break
        joined.append(sorted(whole))
    return joined


def _calls(entry: Entry) -> tuple[Call, ...]:
    return entry.body.tool_calls if isinstance(entry.body, AssistantMsg) else ()


def settled_calls(msg: AssistantMsg, mint: Callable[[], str]) -> AssistantMsg:
    """An answer as it goes into the log: each call under an id of ours, the provider's kept beside it.

    Every call gets one, since nobody can tell without reading the whole log whether a provider's id was there before,
    and a result must name one call only. `mint`: makes ids that are never made again.
    """
    if not msg.tool_calls:
        return msg
    calls = tuple(
        msgspec.structs.replace(call, id=mint(), original=call.id if call.original is None else call.original)
        for call in msg.tool_calls
    )
    return msgspec.structs.replace(msg, tool_calls=calls)


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
