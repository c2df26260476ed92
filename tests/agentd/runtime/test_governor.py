"""The governor: no limit is ever crossed by calls that cost what they were estimated at, over lives, crashes, clocks
that go back and contexts that commit at the same time."""

import asyncio
import copy
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentd.config.thinking import Window
from agentd.records import Abilities, Ids, Records
from agentd.runtime.budgets import Amount, Counter, Stretch, counter_of
from agentd.runtime.governor import GOVERNOR, LOOK_AGAIN, Governor, Level, Refused, Reservation, Wait
from agentkit.core.contracts.errors import Corrupt
from agentkit.core.contracts.scope import Scope
from agentkit.core.contracts.usage import Usage
from agentkit.state.stores import InMemoryStore

from .desks import Clock, records_of, settings_of

pytestmark = pytest.mark.anyio

MINUTE, HOUR, DAY, WEEK = 60_000, 3_600_000, 86_400_000, 604_800_000
NOON = int(datetime(2026, 3, 4, 12, 0, 30, tzinfo=UTC).timestamp() * 1000)  # a Wednesday
TIMES = st.integers(0, 4_000_000_000_000)


def governor(clock: Clock, *windows: dict[str, Any], tactic: str = "wait", **more: Any) -> Governor:
    budget: dict[str, Any] = {"windows": list(windows), "tactic": tactic}
    for name in ("lifetime_tokens",):
        if name in more:
            budget[name] = more.pop(name)
    quota = more.pop("quota_of", None)
    sleep = more.pop("sleep", asyncio.sleep)
    made = Governor(settings_of(intelligence={"budget": budget}, **more), clock, quota_of=quota, sleep=sleep)
    for meter in made.missing("c1", "ann"):
        made.load(meter, [])
    return made


def granted(found: Reservation | Wait | Refused) -> Reservation:
    assert isinstance(found, Reservation), found
    return found


# Windows


@pytest.mark.parametrize(
    ("stretch", "start"),
    [
        (Stretch("second"), (2026, 3, 4, 12, 0, 30)),
        (Stretch("minute"), (2026, 3, 4, 12, 0, 0)),
        (Stretch("hour"), (2026, 3, 4, 12, 0, 0)),
        (Stretch("day"), (2026, 3, 4, 0, 0, 0)),
        (Stretch("day", 6 * HOUR), (2026, 3, 4, 6, 0, 0)),
        (Stretch("day", 18 * HOUR), (2026, 3, 3, 18, 0, 0)),
        (Stretch("week"), (2026, 3, 2, 0, 0, 0)),
        (Stretch("week", 4 * DAY), (2026, 2, 27, 0, 0, 0)),
    ],
)
def test_windows_are_aligned_to_utc(stretch: Stretch, start: tuple[int, ...]) -> None:
    year, month, day, hour, minute, second = start
    found = datetime.fromtimestamp(stretch.start(NOON) / 1000, UTC)
    assert found == datetime(year, month, day, hour, minute, second, tzinfo=UTC)


@given(TIMES, st.sampled_from(["second", "minute", "hour", "day", "week"]), st.data())
def test_windows_tile_time(now: int, per: str, data: st.DataObject) -> None:
    stretch = Stretch(per, data.draw(st.integers(0, Stretch(per).length - 1)))
    start = stretch.start(now)
    assert start <= now < start + stretch.length
    assert stretch.start(start) == start
    assert stretch.start(start - 1) == start - stretch.length
    assert stretch.start(start + stretch.length) == start + stretch.length
    if per == "week":
        moment = datetime.fromtimestamp((start - stretch.later) / 1000, UTC)
        assert (moment.weekday(), moment.hour, moment.minute) == (0, 0, 0)


def test_clock_set_back_opens_no_window() -> None:
    clock = Clock(NOON)
    made = governor(clock, {"per": "minute", "requests": 1})
    made.settle(granted(made.reserve(1, 1, None, context="c1")), Usage(1, 1))
    clock.now -= MINUTE
    found = made.reserve(1, 1, None, context="c1")
    assert isinstance(found, Wait)
    assert found.until == Stretch("minute").start(NOON) + MINUTE
    clock.now = found.until
    granted(made.reserve(1, 1, None, context="c1"))


def test_clock_that_was_far_ahead_does_not_close_the_window_for_good() -> None:
    clock = Clock(NOON + 365 * DAY)
    made = governor(clock, {"per": "minute", "requests": 1})
    made.settle(granted(made.reserve(1, 1, None, context="c1")), Usage(1, 1))
    clock.now = NOON
    found = made.reserve(1, 1, None, context="c1")
    assert isinstance(found, Wait)
    assert found.until == Stretch("minute").start(NOON) + MINUTE


# Decisions


def test_f42_what_can_never_fit_is_refused_at_once() -> None:
    made = governor(Clock(), {"per": "hour", "tokens": 1_000}, tactic="wait")
    found = made.reserve(900, 200, None, context="c1")
    assert isinstance(found, Refused)
    assert found.window == "hour"
    assert found.reason == (
        "this call alone may take 1,100 of 1,000 tokens that intelligence.budget.windows[0] allows in each hour"
    )


def test_f42_waiting_call_runs_after_the_reset() -> None:
    clock = Clock(NOON)
    made = governor(clock, {"per": "hour", "tokens": 1_000})
    made.settle(granted(made.reserve(700, 200, None, context="c1")), Usage(700, 200))
    wait = made.reserve(700, 200, None, context="c1")
    assert wait == Wait(Stretch("hour").start(NOON) + HOUR, "hour")
    clock.now = wait.until - 1
    assert made.reserve(700, 200, None, context="c1") == wait
    clock.now = wait.until
    granted(made.reserve(700, 200, None, context="c1"))


@pytest.mark.parametrize(("tactic", "is_failure"), [("refuse", False), ("fail", True)])
def test_other_tactics_do_not_wait(tactic: str, is_failure: bool) -> None:
    made = governor(Clock(), {"per": "day", "requests": 1}, tactic=tactic)
    assert made.is_over("c1") is None
    made.settle(granted(made.reserve(1, 1, None, context="c1")), Usage(1, 1))
    found = made.reserve(1, 1, None, context="c1")
    assert isinstance(found, Refused)
    assert found.is_failure is is_failure
    assert found.reason == (
        "intelligence.budget.windows[0] is used up: with this call it would be 2 of 1 requests in each day"
    )
    assert made.is_over("c1") == "intelligence.budget.windows[0] is used up: 1 of 1 requests in each day"


def test_call_waits_for_the_last_of_its_windows() -> None:
    clock = Clock(NOON)
    made = governor(clock, {"per": "minute", "tokens": 100}, {"per": "day", "requests": 1})
    made.settle(granted(made.reserve(90, 0, None, context="c1")), Usage(90))
    assert made.reserve(90, 0, None, context="c1") == Wait(Stretch("day").start(NOON) + DAY, "day")
    under_way = governor(clock, {"per": "minute", "tokens": 100}, {"per": "day", "requests": 2})
    under_way.settle(granted(under_way.reserve(1, 0, None, context="c1")), Usage(1))
    granted(under_way.reserve(90, 0, None, context="c1"))
    found = under_way.reserve(90, 0, None, context="c1")
    assert found == Wait(Stretch("day").start(NOON) + DAY, "day"), "their end gives back tokens, but no requests"


@pytest.mark.parametrize("tactic", ["wait", "refuse"])
def test_lifetime_and_conversation_never_begin_anew(tactic: str) -> None:
    clock = Clock()
    made = governor(clock, tactic=tactic, lifetime_tokens=100, agent={"conversation_budget": {"tokens": 50}})
    made.settle(granted(made.reserve(30, 0, None, context="c1")), Usage(30))
    found = made.reserve(30, 0, None, context="c1")
    assert isinstance(found, Refused)
    assert found.reason == "agent.conversation_budget is used up: with this call it would be 60 of 50 tokens in all"
    made.load(made.missing("c2")[0], [])
    made.settle(granted(made.reserve(45, 0, None, context="c2")), Usage(45))
    made.load(made.missing("c3")[0], [])
    found = made.reserve(40, 0, None, context="c3")
    assert isinstance(found, Refused)
    assert found.window == "lifetime"
    clock.now += 52 * WEEK
    assert isinstance(made.reserve(40, 0, None, context="c3"), Refused)


def test_narrowest_limit_is_named() -> None:
    quota = Window(per="day", requests=1)
    made = governor(
        Clock(), {"per": "week", "requests": 1}, {"per": "second", "requests": 1}, tactic="refuse",
        quota_of={"ann": quota}.get, agent={"conversation_budget": {"requests": 1}},
    )  # fmt: skip
    keys = ["agent.conversation_budget", "the sender's quota", "intelligence.budget.windows[1]",
            "intelligence.budget.windows[0]", "intelligence.budget.lifetime_tokens"]  # fmt: skip
    assert [limit.key for limit in made.limits("c1", "ann")] == keys
    granted(made.reserve(1, 1, None, context="c1", principal="ann"))
    found = made.reserve(1, 1, None, context="c1", principal="ann")
    assert isinstance(found, Refused)
    assert found.window == "context"


def test_quota_is_a_principals_own() -> None:
    made = governor(Clock(), tactic="refuse", quota_of=lambda id: Window(per="day", requests=1))
    granted(made.reserve(1, 1, None, context="c1", principal="ann"))
    assert isinstance(made.reserve(1, 1, None, context="c2", principal="ann"), Refused)
    made.load(made.missing("c3", "bob")[0], [])
    granted(made.reserve(1, 1, None, context="c3", principal="bob"))


def test_money_without_a_price_is_refused() -> None:
    made = governor(Clock(), {"per": "day", "usd": 1.0})
    found = made.reserve(1, 1, None, context="c1")
    assert isinstance(found, Refused)
    assert "there is no price for this model" in found.reason
    reserved = granted(made.reserve(1, 1, 0.6, context="c1"))
    made.settle(reserved, Usage(1, 1, 0.5))
    granted(made.reserve(1, 1, 0.5, context="c1"))
    assert isinstance(made.reserve(1, 1, 0.000001, context="c1"), Wait)


def test_f7_call_without_usage_is_charged_its_estimate() -> None:
    made = governor(Clock(), {"per": "day", "tokens": 1_000})
    reserved = granted(made.reserve(100, 400, None, context="c1"))
    made.settle(reserved, None)
    made.settle(reserved, Usage(1, 1))
    assert [level.spent for level in made.levels("c1")] == [Amount(500, 1)]


def test_call_that_was_not_made_costs_nothing() -> None:
    made = governor(Clock(), {"per": "day", "tokens": 1_000})
    made.release(granted(made.reserve(100, 400, None, context="c1")))
    assert [(level.spent, level.reserved) for level in made.levels("c1")] == [(Amount(), Amount())]


def test_f41_each_kind_of_call_is_in_the_figures() -> None:
    made = governor(Clock(), {"per": "day", "tokens": 1_000_000})
    for n, kind in enumerate(("turn", "preflight", "compaction", "think"), 1):
        made.settle(granted(made.reserve(100, 100, 1.0, kind=kind, context="c1")), Usage(10 * n, 1, 0.25))
    assert made.figures() == {
        "turn": {"tokens": 11, "requests": 1, "usd": 0.25}, "preflight": {"tokens": 21, "requests": 1, "usd": 0.25},
        "compaction": {"tokens": 31, "requests": 1, "usd": 0.25}, "think": {"tokens": 41, "requests": 1, "usd": 0.25},
    }  # fmt: skip
    assert [level.spent for level in made.levels("c1")] == [Amount(104, 4, 1_000_000)]


def test_window_of_a_call_pays_for_it() -> None:
    """A call that ends in the next window costs the one that it was made in."""
    clock = Clock(NOON)
    made = governor(clock, {"per": "minute", "tokens": 100})
    reserved = granted(made.reserve(90, 0, None, context="c1"))
    clock.now += MINUTE
    granted(made.reserve(90, 0, None, context="c1"))
    made.settle(reserved, Usage(90))
    assert [(level.spent.tokens, level.reserved.tokens) for level in made.levels("c1")] == [(0, 90)]


def test_counter_that_is_not_loaded_opens_no_window() -> None:
    made = Governor(settings_of(), Clock())
    with pytest.raises(RuntimeError, match="await `ready` before `reserve`"):
        made.reserve(1, 1, None, context="c1")


def test_damaged_counter_is_named() -> None:
    with pytest.raises(Corrupt, match=r"the budget counter 'governor/day/0'"):
        counter_of(b'{"spent": 7}', "governor/day/0")


# Waiting


async def test_call_held_up_by_others_waits_for_their_end() -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        await asyncio.Event().wait()

    made = governor(Clock(NOON), {"per": "week", "tokens": 100}, sleep=sleep)
    reserved = granted(made.reserve(90, 0, None, context="c1"))
    wait = made.reserve(50, 0, None, context="c1")
    assert wait == Wait(NOON + LOOK_AGAIN, "week", held=True)
    waiting = asyncio.create_task(made.passed(wait))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not waiting.done()
    made.settle(reserved, Usage(20))
    await waiting
    assert slept == [LOOK_AGAIN / 1000]
    granted(made.reserve(50, 0, None, context="c1"))


async def test_wait_for_a_reset_ends_with_the_clock_alone() -> None:
    over = asyncio.Event()

    async def sleep(seconds: float) -> None:
        assert seconds == 30
        await over.wait()

    made = governor(Clock(NOON), {"per": "minute", "requests": 1}, sleep=sleep)
    made.settle(granted(made.reserve(90, 0, None, context="c1")), Usage(20))
    wait = made.reserve(50, 0, None, context="c1")
    assert isinstance(wait, Wait)
    waiting = asyncio.create_task(made.passed(wait))
    await asyncio.sleep(0)
    over.set()
    await waiting


# Over lives


async def opened(records: Records, clock: Clock, *windows: dict[str, Any], **more: Any) -> Governor:
    """A governor as a new life starts it."""
    budget = {"windows": list(windows), "tactic": "wait", **more.pop("budget", {})}
    made = Governor(settings_of(intelligence={"budget": budget}, **more), clock)
    await made.ready(records, "c1", "ann")
    return made


async def commit(records: Records, made: Governor, context: str = "c1") -> None:
    made.stored(await records.commit(made.writes(context)))


async def test_f41_crash_loop_cannot_spend_past_a_window() -> None:
    clock = Clock(NOON)
    records = records_of(clock, Ids(clock, lambda n: b"\3" * n))
    calls = 0
    for _ in range(20):
        made = await opened(records, clock, {"per": "day", "tokens": 1_000}, budget={"lifetime_tokens": 1_600})
        found = made.reserve(100, 200, None, context="c1")
        if isinstance(found, Reservation):
            await commit(records, made)
            calls += 1  # the call is made, and the process dies in it
    assert calls == 3
    clock.now += DAY
    for _ in range(20):
        made = await opened(records, clock, {"per": "day", "tokens": 1_000}, budget={"lifetime_tokens": 1_600})
        found = made.reserve(100, 200, None, context="c1")
        if isinstance(found, Reservation):
            await commit(records, made)
            calls += 1
    assert calls == 5, "1,600 tokens in all lives are five such calls"
    made = await opened(records, clock)
    assert made.figures() == {"lost": {"tokens": 1_500, "requests": 5, "usd": 0.0}}


async def test_f41_restart_opens_no_window() -> None:
    clock = Clock(NOON)
    records = records_of(clock, Ids(clock, lambda n: b"\3" * n))
    windows = [{"per": "hour", "requests": 2}, {"per": "week", "tokens": 500, "reset": "36h"}]
    budget = {"agent": {"conversation_budget": {"tokens": 450}}}
    made = await opened(records, clock, *windows, **budget)
    made.settle(granted(made.reserve(200, 100, None, kind="think", context="c1")), Usage(150, 50))
    await commit(records, made)
    before = made.levels("c1", "ann")
    again = await opened(records, clock, *windows, **budget)
    assert again.levels("c1", "ann") == before
    assert again.figures() == made.figures()
    assert again.writes("c1") == []


async def test_writes_are_handed_out_again_until_stored() -> None:
    clock = Clock(NOON)
    records = records_of(clock, Ids(clock, lambda n: b"\3" * n))
    made = await opened(records, clock, {"per": "day", "tokens": 1_000})
    assert made.writes("c1") == []
    reserved = granted(made.reserve(100, 0, None, context="c1"))
    first = made.writes("c1")
    assert [write.id for write in first] == ["day/0", "lifetime/0"]
    await records.commit(first)  # and the answer is lost
    await commit(records, made)
    assert made.writes("c1") == []
    made.settle(reserved, Usage(60))
    await commit(records, made)
    row = await records.get(GOVERNOR, "day/0")
    assert row is not None
    assert counter_of(row.state, "") == Counter(Stretch("day").start(NOON), Amount(60, 1))


async def test_contexts_commit_at_the_same_time_without_conflict() -> None:
    clock = Clock(NOON)
    records = records_of(clock, Ids(clock, lambda n: b"\3" * n))
    made = await opened(records, clock, {"per": "day", "tokens": 10_000_000})

    async def work(context: str) -> None:
        for _ in range(5):
            await made.ready(records, context)
            reserved = granted(made.reserve(100, 20, None, context=context))
            await commit(records, made, context)
            await asyncio.sleep(0)
            made.settle(reserved, Usage(50, 5))
            await commit(records, made, context)

    await asyncio.gather(*(work(f"c{n}") for n in range(64)))
    assert len(await records.ids(GOVERNOR)) <= 2 * 64
    again = await opened(records, clock, {"per": "day", "tokens": 10_000_000})
    assert [level.spent for level in again.levels()] == [Amount(64 * 5 * 55, 64 * 5)]


async def test_lanes_are_given_back() -> None:
    clock = Clock(NOON)
    records = records_of(clock, Ids(clock, lambda n: b"\3" * n))
    made = await opened(records, clock)
    for n in range(50):
        made.settle(granted(made.reserve(1, 1, None, context=f"c{n}")), Usage(1, 1))
        await commit(records, made, f"c{n}")
    assert await records.ids(GOVERNOR) == ["lifetime/0"]


async def test_store_that_cannot_list_keeps_the_figures() -> None:
    clock = Clock(NOON)
    ids = Ids(clock, lambda n: b"\3" * n)
    store = InMemoryStore(lambda: clock() / 1000)
    records = Records(store, Scope(), instance="one", clock=clock, ids=ids, abilities=Abilities(list=False))
    made = await opened(records, clock, {"per": "day", "tokens": 1_000})
    one, two = (granted(made.reserve(100, 0, None, context=name)) for name in ("c1", "c2"))
    await commit(records, made, "c2")
    again = await opened(records, clock, {"per": "day", "tokens": 1_000})
    assert [level.spent for level in again.levels()] == [Amount(100, 1)]
    assert (one.lane, two.lane) == (0, 1), "the first lane was never stored, and hides no later one"


async def test_meters_of_idle_conversations_leave_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentd.runtime.governor.IDLE_METERS", 3)
    clock = Clock(NOON)
    records = records_of(clock, Ids(clock, lambda n: b"\3" * n))
    made = await opened(records, clock, agent={"conversation_budget": {"tokens": 100}})
    for n in range(10):
        await made.ready(records, f"c{n}")
        made.settle(granted(made.reserve(60, 0, None, context=f"c{n}")), Usage(60))
        await commit(records, made, f"c{n}")
    assert made.missing("c0"), "it left memory"
    await made.ready(records, "c0")
    assert isinstance(made.reserve(60, 0, None, context="c0"), Refused)


async def test_meter_of_a_call_under_way_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentd.runtime.governor.IDLE_METERS", 2)
    clock = Clock(NOON)
    records = records_of(clock, Ids(clock, lambda n: b"\3" * n))
    made = await opened(records, clock, agent={"conversation_budget": {"tokens": 100}})
    reserved = granted(made.reserve(60, 0, None, context="c1"))
    for n in range(5):
        await made.ready(records, f"d{n}")
    made.settle(reserved, Usage(50))
    await commit(records, made)
    assert [level.spent.tokens for level in made.levels("c1")] == [50]


async def test_meter_that_is_loaded_twice_at_once_counts_on(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(NOON)
    records = records_of(clock, Ids(clock, lambda n: b"\3" * n))
    listed, slow = records.ids, iter((1, 2, 5))

    async def ids(kind: str, **named: Any) -> list[str]:
        found = await listed(kind, **named)
        if named["prefix"].startswith("context."):
            for _ in range(next(slow, 0)):
                await asyncio.sleep(0)
        return found

    made = await opened(records, clock, agent={"conversation_budget": {"tokens": 100}})
    monkeypatch.setattr(records, "ids", ids)

    async def work() -> None:
        await made.ready(records, "c9")
        made.reserve(40, 0, None, context="c9")

    await asyncio.gather(work(), work(), work())
    assert [level.reserved.tokens for level in made.levels("c9")] == [80]


# Any order of things


@dataclass
class World:
    """What really was spent, by when the call was allowed, beside what the governor believes."""

    clock: Clock
    records: Records
    made: Governor
    open: list[tuple[Reservation, str, int]] = field(default_factory=list)
    calls: list[tuple[int, int]] = field(default_factory=list)

    def spent_in(self, stretch: Stretch, at: int) -> int:
        return sum(tokens for when, tokens in self.calls if stretch.start(when) == stretch.start(at))


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("reserve"), st.integers(0, 3), st.integers(0, 60)),
        st.tuples(st.just("settle"), st.integers(0, 5), st.integers(0, 100)),
        st.tuples(st.just("lose"), st.integers(0, 5), st.just(0)),
        st.tuples(st.just("clock"), st.integers(0, 90_000), st.just(0)),
        st.tuples(st.just("crash"), st.just(0), st.just(0)),
    ),
    max_size=40,
)
LIMITS = ({"per": "minute", "tokens": 150}, {"per": "hour", "tokens": 400})


def _added_up(governor: Governor) -> list[Level]:
    """The levels without what is carried on from call to call."""
    fresh = copy.copy(governor)
    fresh._sums = {}
    return fresh.levels("c0")


@given(st.lists(st.tuples(st.integers(-90_000, 90_000), st.integers(0, 3), st.booleans()), max_size=30))
def test_carried_sums_are_those_of_the_lanes_whatever_the_clock_does(steps: list[tuple[int, int, bool]]) -> None:
    async def lived() -> None:
        clock = Clock(NOON)
        records = records_of(clock, Ids(clock, lambda n: b"\3" * n))
        made = await opened(records, clock, *LIMITS, budget={"lifetime_tokens": 2_000})
        under_way: list[Reservation] = []
        for by, context, is_new in steps:
            clock.now += by
            if is_new:
                found = made.reserve(20, 10, None, context=f"c{context}")
                under_way += [found] if isinstance(found, Reservation) else []
            elif under_way:
                made.settle(under_way.pop(context % len(under_way)), Usage(7))
            assert made.levels("c0") == _added_up(made)

    asyncio.run(lived())


@given(STEPS)
def test_f41_no_window_is_overspent_in_any_order(steps: list[tuple[str, int, int]]) -> None:
    asyncio.run(_lived(steps))


async def _lived(steps: list[tuple[str, int, int]]) -> None:
    clock = Clock(NOON)
    records = records_of(clock, Ids(clock, lambda n: b"\3" * n))
    world = World(clock, records, await opened(records, clock, *LIMITS, budget={"lifetime_tokens": 2_000}))
    for what, number, size in steps:
        if what == "clock":
            clock.now += number
        elif what == "crash":
            # The calls under way may have cost all that was set aside.
            world.open.clear()
            world.made = await opened(records, clock, *LIMITS, budget={"lifetime_tokens": 2_000})
        elif what == "reserve":
            context = f"c{number}"
            found = world.made.reserve(size, 10, None, context=context)
            if isinstance(found, Reservation):
                await commit(records, world.made, context)
                world.open.append((found, context, len(world.calls)))
                world.calls.append((clock.now, found.amount.tokens))
        elif world.open:
            reserved, context, call = world.open.pop(number % len(world.open))
            if what == "settle":
                cost = reserved.amount.tokens * size // 100
                world.made.settle(reserved, Usage(cost))
                world.calls[call] = world.calls[call][0], cost
            else:
                world.made.settle(reserved, None)
            await commit(records, world.made, context)
        assert world.made.levels("c0") == _added_up(world.made)
        for when, _ in world.calls:
            assert world.spent_in(Stretch("minute"), when) <= 150
            assert world.spent_in(Stretch("hour"), when) <= 400
        assert sum(tokens for _, tokens in world.calls) <= 2_000
