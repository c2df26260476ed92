"""The governor: every call of the model sets aside what it may cost before it is made, and settles afterwards. Touches
a clock, and records that are handed in.

Counters are written in the commit of the work that they pay for, so contexts that commit at the same time must not
write the same row: each context that has a call under way has a *lane*, and what was spent is the sum over the lanes.
A lane is given back once all of it is stored, so there are as many as calls ever ran at the same time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from agentd.config import Settings
from agentd.config.thinking import Window
from agentd.records import ANY, Records, Row, Save, Unsupported
from agentkit.core.contracts.usage import Usage

from .budgets import (
    LIFETIME,
    MICRO,
    Amount,
    Counter,
    Limit,
    conversation_limit,
    counter_of,
    micro,
    quota_limit,
    quotas_of,
    shared_limits,
)

GOVERNOR: Final = "governor"
"""The kind of its rows. Ids are `<meter>/<lane>`."""
KINDS: Final = ("turn", "preflight", "compaction", "think")
"""What calls are made for."""
LOOK_AGAIN: Final = 60_000
"""Milliseconds after which a call that waits for others to end is looked at again, should their end be missed."""
IDLE_METERS: Final = 1_024
"""Meters of single conversations and principals that stay in memory while nothing of theirs is under way."""
PROBES: Final = 64
"""Lanes that a store which cannot list is asked for in vain, before it is taken to have no more."""
LOST: Final = "lost"
"""The kind under which calls of earlier lives count whose end nobody saw."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """What is set aside for a call. `starts`: the meters that it counts in, and the stretch of each."""

    number: int
    kind: str
    context: str
    amount: Amount
    lane: int
    starts: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Wait:
    """The call may be made later: ask again at `until`, in ms. `held`: what is in the way are calls under way, so their
    end may come first."""

    until: int
    window: str
    held: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    """The call may not be made. `is_failure`: the operator wants the turn to end as failed, not as refused."""

    reason: str
    window: str
    is_failure: bool = False


@dataclass(frozen=True, slots=True)
class Level:
    """How far a limit is used. `until`: when it begins anew, None for never."""

    key: str
    limit: Limit
    spent: Amount
    reserved: Amount
    until: int | None


@dataclass
class Lane:
    """Whose a lane is, its calls under way, and the meters that it counted in since all of it was stored."""

    context: str | None = None
    open: set[int] = field(default_factory=set)
    touched: dict[str, None] = field(default_factory=dict)


class Governor:
    """The budget of one instance. Meters are loaded before they are used (`ready`); one that is not is an error, since
    an empty counter would open a window.

    `clock`: ms; `sleep`: seconds; `quota_of`: what a principal may spend, by its id.
    """

    def __init__(
        self,
        settings: Settings,
        clock: Callable[[], int],
        *,
        sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
        quota_of: Callable[[str], Window | None] | None = None,
    ) -> None:
        self._clock, self._sleep, self._given_quotas = clock, sleep, quota_of
        self._meters: dict[str, dict[int, Counter]] = {}
        # The sum over the lanes of a meter, with the start of the stretch that it was made for: a hundred conversations
        # at once would otherwise add up a hundred lanes for each call.
        self._sums: dict[str, tuple[int, Counter]] = {}
        self._rows: dict[str, tuple[Row | None, Counter]] = {}
        self._handed: dict[str, Counter] = {}
        self._lanes: list[Lane] = []
        self._by_context: dict[str, int] = {}
        self._open: dict[int, Reservation] = {}
        self._count = 0
        self.payer: Callable[[str], str] = lambda context: context
        """Which conversation's budget a context's calls count in: a subagent's in that of the one it works for."""
        self._waiting: set[asyncio.Future[None]] = set()
        self.configure(settings)

    def configure(self, settings: Settings) -> None:
        """Take over other settings. What was spent stays; meters that are new have to be loaded."""
        self._settings = settings
        self._shared = shared_limits(settings)
        self._quota_of = self._given_quotas or quotas_of(settings)

    def limits(self, context: str, principal: str) -> list[Limit]:
        """What holds for a call, narrowest first."""
        found = [] if (own := conversation_limit(self._settings, self.payer(context))) is None else [own]
        if (quota := self._quota_of(principal)) is not None:
            found.append(quota_limit(quota, principal))
        return [*found, *self._shared]

    # Loading

    def missing(self, context: str = "", principal: str = "") -> list[str]:
        """The meters of a call that are not loaded yet."""
        return [limit.meter for limit in self.limits(context, principal) if limit.meter not in self._meters]

    def load(self, meter: str, rows: Iterable[Row]) -> None:
        """Take in all rows of a meter. What was set aside counts as spent. Raises Corrupt naming a row."""
        lanes: dict[int, Counter] = {}
        for row in rows:
            lane = row.id.rpartition("/")[2]
            counter = counter_of(row.state, f"{GOVERNOR}/{row.id}").taken_over(LOST if meter == LIFETIME else None)
            lanes[int(lane)] = counter
            self._rows[row.id] = row, counter
        self._meters[meter] = lanes
        self._sums.pop(meter, None)

    async def ready(self, records: Records, context: str = "", principal: str = "") -> None:
        """Load what a call of this context and principal counts in. Costs nothing where it is loaded."""
        for meter in self.missing(context, principal):
            rows = await _rows_of(records, meter, len(self._lanes))
            if meter not in self._meters:  # another call may have loaded it meanwhile, and counted in it
                self.load(meter, rows)
        self._drop_idle()

    def _drop_idle(self) -> None:
        over = len(self._meters) - len(self._shared) - IDLE_METERS
        if over <= 0:
            return
        kept = {limit.meter for limit in self._shared}.union(*(lane.touched for lane in self._lanes))
        for name in [name for name in self._meters if name not in kept][:over]:
            self._sums.pop(name, None)
            for lane in self._meters.pop(name):
                self._rows.pop(f"{name}/{lane}", None)

    # Before and after a call

    def reserve(
        self, tokens: int, output: int, usd: float | None, *, kind: str = "turn", context: str, principal: str = ""
    ) -> Reservation | Wait | Refused:
        """Set aside `tokens` of prompt, `output` of answer, and their price (None: nobody knows it), where every limit
        has room for it."""
        if min(tokens, output) < 0:
            raise ValueError(f"a call takes no less than 0 tokens, not {tokens} and {output}")
        now = self._clock()
        amount = Amount(tokens + output, 1, 0 if usd is None else micro(usd))
        limits = self.limits(context, principal)
        waits: list[Wait] = []
        for limit in limits:
            found = self._judged(limit, amount, usd is not None, now)
            if isinstance(found, Refused):
                return found
            if found is not None:
                waits.append(found)
        if waits:
            last = max(waits, key=lambda wait: wait.until)
            return Wait(last.until, last.window, all(wait.held for wait in waits))
        return self._granted(amount, limits, kind, context, now)

    def _judged(self, limit: Limit, amount: Amount, is_priced: bool, now: int) -> Wait | Refused | None:
        if limit.is_free:
            return None
        window = limit.meter.partition(".")[0]
        if limit.usd is not None and not is_priced:
            return Refused(f"{limit.key} is in USD, and there is no price for this model", window)
        if (short := limit.shortage(amount)) is not None:
            return Refused(f"this call alone may take {short} that {limit.key} allows {limit.within}", window)
        used = self._used(limit, now)
        if (short := limit.shortage(used.total + amount)) is None:
            return None
        # What is set aside may be given back when the calls under way end; that they were made may not.
        certain = used.spent + Amount(requests=used.reserved.requests)
        is_held = limit.shortage(certain + amount) is None
        tactic = self._settings.intelligence.budget.tactic
        if tactic == "wait" and (is_held or limit.stretch is not None):
            end = now + LOOK_AGAIN if limit.stretch is None else used.start + limit.stretch.length
            return Wait(min(end, now + LOOK_AGAIN) if is_held else end, window, is_held)
        reason = f"{limit.key} is used up: with this call it would be {short} {limit.within}"
        return Refused(reason, window, tactic == "fail")

    def _granted(self, amount: Amount, limits: list[Limit], kind: str, context: str, now: int) -> Reservation:
        lane = self._lane(context)
        starts = []
        for limit in limits:
            lanes = self._lanes_of(limit)
            counter = lanes.get(lane, Counter()).at(limit.stretch, now).reserve(amount)
            lanes[lane] = counter
            self._add(limit.meter, counter.start, Amount(), amount, limit.first(now))
            starts.append((limit.meter, counter.start))
        self._count += 1
        made = Reservation(self._count, kind, context, amount, lane, tuple(starts))
        self._open[made.number] = made
        self._lanes[lane].open.add(made.number)
        self._lanes[lane].touched.update((meter, None) for meter, _ in starts)
        return made

    def settle(self, reservation: Reservation, usage: Usage | None, *, usd: float | None = None) -> None:
        """Count what a call came to, in the stretches that it was made in; without usage, what was set aside. `usd`:
        its price where the usage does not tell it. A second time it does nothing."""
        spent = reservation.amount
        if usage is not None:
            price = usage.cost_usd if usd is None else usd
            spent = Amount(usage.prompt_tokens + usage.output_tokens, 1, micro(price))
        self._close(reservation, spent, reservation.kind)

    def release(self, reservation: Reservation) -> None:
        """Take back what was set aside for a call that was not made."""
        self._close(reservation, Amount(), None)

    def _close(self, reservation: Reservation, spent: Amount, kind: str | None) -> None:
        if self._open.pop(reservation.number, None) is None:
            return
        self._lanes[reservation.lane].open.discard(reservation.number)
        for meter, start in reservation.starts:
            lanes = self._meters[meter]
            counter = lanes[reservation.lane]
            if counter.start == start:
                by = kind if meter == LIFETIME else None
                lanes[reservation.lane] = counter.settle(reservation.amount, spent, by)
                self._add(meter, start, spent, Amount() - reservation.amount)
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)

    async def passed(self, wait: Wait) -> None:
        """Wait until it is time to ask again."""
        timer = asyncio.ensure_future(self._sleep(max(wait.until - self._clock(), 0) / 1000))
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if wait.held:
            self._waiting.add(ended)
        try:
            await asyncio.wait({timer, ended}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
            self._waiting.discard(ended)

    # Storing

    def writes(self, context: str) -> list[Save]:
        """The counters of this context's lane that are not stored yet, for its next commit. In particular for the one
        right before a call, so that a life that ends in the call has counted it. `stored` takes the rows back."""
        lane = self._by_context.get(context)
        if lane is None:
            return []
        found = []
        for meter in self._lanes[lane].touched:
            id, counter = f"{meter}/{lane}", self._meters[meter][lane]
            if not self._is_dirty(id, counter):
                continue
            row = self._rows[id][0] if id in self._rows else None
            # Of one that was handed out before, nobody knows whether it is stored.
            found.append(Save(GOVERNOR, id, counter.to_bytes(), ANY if id in self._handed else row))
            self._handed[id] = counter
        return found

    def stored(self, rows: Iterable[Row]) -> None:
        """The rows of a commit; those of others are passed over. A lane with nothing left to store is given back."""
        for row in rows:
            if row.kind == GOVERNOR and row.id in self._handed:
                self._rows[row.id] = row, self._handed.pop(row.id)
                self._give_back(int(row.id.rpartition("/")[2]))

    def _is_dirty(self, id: str, counter: Counter) -> bool:
        return id not in self._rows or self._rows[id][1] is not counter

    def _lane(self, context: str) -> int:
        lane = self._by_context.get(context)
        if lane is None:
            free = (at for at, one in enumerate(self._lanes) if one.context is None)
            lane = next(free, len(self._lanes))
            if lane == len(self._lanes):
                self._lanes.append(Lane())
            self._lanes[lane].context = context
            self._by_context[context] = lane
        return lane

    def _give_back(self, number: int) -> None:
        if number >= len(self._lanes):
            return
        lane = self._lanes[number]
        if lane.context is None or lane.open:
            return
        if any(self._is_dirty(f"{meter}/{number}", self._meters[meter][number]) for meter in lane.touched):
            return
        del self._by_context[lane.context]
        lane.context = None
        lane.touched.clear()

    # What is known

    def _lanes_of(self, limit: Limit) -> dict[int, Counter]:
        lanes = self._meters.get(limit.meter)
        if lanes is None:
            raise RuntimeError(f"the budget counter {limit.meter!r} was not loaded: await `ready` before `reserve`")
        return lanes

    def _used(self, limit: Limit, now: int) -> Counter:
        lanes = self._lanes_of(limit)
        first, known = limit.first(now), self._sums.get(limit.meter)
        if known is not None and known[0] == first:
            return known[1]
        current = [counter.at(limit.stretch, now) for counter in lanes.values()]
        start = max((c.start for c in current), default=first)
        spent, reserved = Amount(), Amount()
        for counter in current:
            spent, reserved = spent + counter.spent, reserved + counter.reserved
        found = Counter(start, spent, reserved)
        self._sums[limit.meter] = first, found
        return found

    def _add(self, meter: str, start: int, spent: Amount, reserved: Amount, first: int | None = None) -> None:
        """Carry a change of one lane, whose stretch began at `start`, into the sum, if that is of the same stretch.
        `first`: the start of the stretch of now, where the lane was brought up to it."""
        known = self._sums.get(meter)
        if known is None:
            return
        if first is not None and known[0] != first:
            del self._sums[meter]
        elif start >= known[0]:  # a lane that stands in an earlier stretch is no part of it
            total = known[1]
            begun = total.start if first is None else max(total.start, start)
            self._sums[meter] = known[0], Counter(begun, total.spent + spent, total.reserved + reserved)

    def is_over(self, context: str, principal: str = "") -> str | None:
        """Why no further call will be made at all, None where one may, or may later."""
        now, tactic = self._clock(), self._settings.intelligence.budget.tactic
        for limit in self.limits(context, principal):
            if limit.is_free or limit.meter not in self._meters or (limit.stretch is not None and tactic == "wait"):
                continue
            used = self._used(limit, now)
            if (figure := limit.used_up(used.spent)) is not None:
                return f"{limit.key} is used up: {figure} {limit.within}"
        return None

    def levels(self, context: str = "", principal: str = "") -> list[Level]:
        """How far each limit of a call is used, narrowest first; those without a figure are left out."""
        now, found = self._clock(), []
        for limit in self.limits(context, principal):
            if limit.meter not in self._meters or limit.is_free:
                continue
            used = self._used(limit, now)
            until = None if limit.stretch is None else used.start + limit.stretch.length
            found.append(Level(limit.key, limit, used.spent, used.reserved, until))
        return found

    def figures(self) -> dict[str, dict[str, float]]:
        """What was spent over all lives, by kind of call: tokens, requests, usd."""
        sums: dict[str, Amount] = {}
        for counter in self._meters.get(LIFETIME, {}).values():
            for kind, amount in counter.kinds.items():
                sums[kind] = sums.get(kind, Amount()) + amount
        return {
            kind: {"tokens": one.tokens, "requests": one.requests, "usd": one.usd / MICRO}
            for kind, one in sorted(sums.items())
        }


async def _rows_of(records: Records, meter: str, lanes: int) -> list[Row]:
    """All rows of a meter."""
    start = f"{meter}/"
    try:
        ids = await records.ids(GOVERNOR, prefix=start)
    except Unsupported:
        return await _probed(records, start, lanes)
    found = [await records.get(GOVERNOR, id) for id in ids]
    return [row for row in found if row is not None]


async def _probed(records: Records, start: str, lanes: int) -> list[Row]:
    found: list[Row] = []
    lane = missed = 0
    while missed < PROBES or lane < lanes:
        row = await records.get(GOVERNOR, f"{start}{lane}")
        lane, missed = lane + 1, 0 if row is not None else missed + 1
        if row is not None:
            found.append(row)
    return found
