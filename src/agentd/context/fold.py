"""What to fold: the decision of tier 4 and of the emergency, on units. Touches only its arguments.

Kept and folded are each other's exact complement. What is kept begins with a user or note entry wherever there is one
in front of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from agentkit.state.compaction import Ranges
from agentkit.state.compaction.ranges import ranges_of

from .record import Entry, UserMsg
from .units import Unit, Work, holding


@dataclass(frozen=True)
class Hold:
    """Units that have to stay, by place: the requests of the work in hand, pinned ones, open obligations."""

    hand: frozenset[int]
    pinned: frozenset[int]
    owed: frozenset[int]

    @property
    def all(self) -> frozenset[int]:
        return self.hand | self.pinned | self.owed


def hold(
    found: Sequence[Unit],
    log: Iterable[Entry],
    work: Work,
    *,
    handled: int | None,
    pins: Collection[int],
    owed: Collection[int],
) -> Hold:
    """What has to stay. Requests in hand are user entries that no finished turn has handled, or of the turn in hand."""
    requests = {
        entry.n
        for entry in log
        if isinstance(entry.body, UserMsg)
        and (entry.n > (handled or 0) or (work.turn is not None and entry.turn == work.turn))
    }
    return Hold(frozenset(holding(found, requests)), frozenset(holding(found, pins)), frozenset(holding(found, owed)))


def plan_fold(
    found: Sequence[Unit], held: Hold, *, keep_last: int, room: int, user_room: int
) -> tuple[set[int], str | None]:
    """The places of the units to fold, and if there are none, why. `room`: tokens that what is kept should not exceed.

    Kept are the last `keep_last` entries, widened to whole units and back to where an exchange begins; whatever is
    held; and older user entries, newest first, within `user_room` tokens. While that is over `room`, whole exchanges go
    from its old end; then the oldest rounds of the work in hand, down to its request and its last round.
    """
    hand = _hand_start(found, held)
    start = min(_widened(found, keep_last), hand)
    always = held.all | _recent_users(found, start, held.all, user_room)
    running = list(accumulate((unit.tokens for unit in found), initial=0))
    stay = list(accumulate((unit.tokens if at in always else 0 for at, unit in enumerate(found)), initial=0))

    def kept_tokens(begin: int) -> int:
        return running[-1] - running[begin] + stay[begin]

    for point in [at for at, unit in enumerate(found) if unit.opens and start < at <= hand]:
        if kept_tokens(start) <= room:
            break
        start = point
    folded = {at for at in range(start) if at not in always}
    if start == hand:
        folded |= _from_the_work_in_hand(found, hand, always, kept_tokens(start) - room)
    folded = with_opener(found, folded)
    if folded:
        return folded, None
    if held.owed:
        free = replace(held, owed=frozenset())
        if plan_fold(found, free, keep_last=keep_last, room=room, user_room=user_room)[0]:
            return folded, "open_obligation"
    openings = sum(unit.opens or unit.is_round for unit in found)
    return folded, "no_safe_cut" if len(found) > 1 and openings < 2 else "nothing_to_fold"


def _from_the_work_in_hand(found: Sequence[Unit], hand: int, always: Collection[int], excess: int) -> set[int]:
    """The oldest units behind the request, until `excess` tokens are gone; the last round and what came after stay."""
    rounds = [at for at in range(hand, len(found)) if found[at].is_round]
    end = rounds[-1] if rounds else len(found) - 1
    gone: set[int] = set()
    for at in range(hand + 1, end):
        if excess <= 0:
            break
        if at not in always:
            gone.add(at)
            excess -= found[at].tokens
    return gone


def plan_emergency(found: Sequence[Unit], held: Hold) -> set[int]:
    """The places of the units to fold when nothing else makes the request fit: all but what is held, the current
    request and the last complete round."""
    rounds = [at for at, unit in enumerate(found) if unit.is_round and at not in held.owed]
    kept = held.all | ({rounds[-1]} if rounds else set()) | ({_hand_start(found, held)} if found else set())
    return with_opener(found, {at for at in range(len(found)) if at not in kept})


def with_opener(found: Sequence[Unit], folded: set[int]) -> set[int]:
    """`folded` without the last user or note entry in front of the first kept unit, where that opens no exchange."""
    first = next((at for at in range(len(found)) if at not in folded), None)
    if first is None or found[first].opens:
        return folded
    opener = max((at for at in range(first) if found[at].opens), default=None)
    return folded if opener is None else folded - {opener}


def ranges_of_units(folded: Iterable[Unit], order: Collection[int], shown: Ranges) -> Ranges:
    """The entries of these units as ranges, and with them what the runtime wrote behind them: a control entry is shown
    by itself nowhere, and one that stayed for each turn would make the view grow with the log.

    `order`: the numbers of all that the view shows; `shown`: its ranges, so that nothing is named that was not in it.
    """
    taken = {n for unit in folded for n in unit.numbers}
    if not taken:
        return ()
    kept = set(order) - taken
    gone: list[int] = []
    for first, last in shown:
        stays = False  # what stands behind a gap belongs to what left through it
        for n in range(first, last + 1):
            stays = n in kept or (stays and n not in taken)
            if not stays:
                gone.append(n)
    return ranges_of(gone)


def _widened(found: Sequence[Unit], keep_last: int) -> int:
    start, entries = len(found), 0
    while start > 0 and entries < keep_last:
        start -= 1
        entries += len(found[start].numbers)
    while 0 < start < len(found) and not found[start].opens:
        start -= 1
    return start


def _recent_users(found: Sequence[Unit], start: int, held: Collection[int], room: int) -> frozenset[int]:
    kept: set[int] = set()
    for at in range(start - 1, -1, -1):
        if found[at].kind != "user" or at in held:
            continue
        room -= found[at].tokens
        if room < 0:
            break
        kept.add(at)
    return frozenset(kept)


def _hand_start(found: Sequence[Unit], held: Hold) -> int:
    """Where the work in hand begins: at its first request, between turns at the last exchange."""
    if held.hand:
        return min(held.hand)
    return max((at for at, unit in enumerate(found) if unit.opens), default=0)
