"""Replays end where the recording ended, whatever happened in between."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.core.contracts.errors import Corrupt, StoreError
from agentkit.core.contracts.scope import Scope
from agentkit.core.contracts.types import Message, TextBlock
from agentkit.inspect import inspect_transcript
from agentkit.inspect.replay import Origin, Progress, ReplayOptions, replay, take_turn, turns
from agentkit.state.context import CharClassTokenCounter, PrefixContext, WorkingContext
from agentkit.state.persistence import Checkpointer, StoreCheckpoints, rehydrate
from agentkit.state.stores import InMemoryStore
from agentkit.transcripts import Transcript
from tests.inspect.samples import UNPRICED, compacted, hostile, response, session, transcript

MADE: list[Callable[[], Transcript]] = [session, compacted, hostile]
OPTIONS = ReplayOptions(Scope("acme"), CharClassTokenCounter())
ORIGIN = Origin("a.jsonl", "digest")


class Stop(Exception):
    """Ends a replay where a process would have been killed."""


class Log:
    """Notes what a replay tells, and may end it."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.begun: list[tuple[int, int]] = []
        self.seen: list[Progress] = []
        self.stop_at = stop_at

    def start(self, done: int, of: int, /) -> None:
        self.begun.append((done, of))

    def turn(self, progress: Progress, /) -> None:
        self.seen.append(progress)
        if progress.turn == self.stop_at:
            raise Stop


def checkpointer(store: InMemoryStore) -> Checkpointer:
    return Checkpointer(StoreCheckpoints(store, OPTIONS.scope))


def run(store: InMemoryStore, made: Transcript, log: Log, **changes: Any) -> Progress:
    options = replace(OPTIONS, **changes)
    return asyncio.run(replay(made, checkpointer(store), "run", ORIGIN, options, log))


def stored(store: InMemoryStore) -> WorkingContext:
    found = asyncio.run(checkpointer(store).resume("run", include_terminal=True))
    assert found is not None
    return rehydrate(found.state)[0]


@pytest.mark.parametrize("made", MADE, ids=lambda made: made.__name__)
def test_turns_end_at_the_context(made: Callable[[], Transcript]) -> None:
    recorded = made()
    context = WorkingContext(recorded.context.prefix)
    for turn in turns(recorded):
        take_turn(context, turn, recorded)
    assert context.messages == recorded.context.messages
    assert [r for turn in turns(recorded) for r in turn.responses] == list(recorded.responses)


@pytest.mark.parametrize("made", MADE, ids=lambda made: made.__name__)
def test_stored_context_is_the_recorded_one(made: Callable[[], Transcript]) -> None:
    recorded, store, log = made(), InMemoryStore(), Log()
    last = run(store, recorded, log)
    found = stored(store)
    assert found.messages == recorded.context.messages
    assert found.prefix == recorded.context.prefix
    assert found.scope == OPTIONS.scope
    assert [progress.turn for progress in log.seen] == list(range(1, last.turns + 1))
    assert last == log.seen[-1]


@pytest.mark.parametrize("made", MADE, ids=lambda made: made.__name__)
def test_sums_are_those_of_the_report(made: Callable[[], Transcript]) -> None:
    recorded = made()
    last = run(InMemoryStore(), recorded, Log())
    one = inspect_transcript(recorded)
    assert last.usage == one.usage
    assert last.cost == one.cost


@pytest.mark.parametrize("made", MADE, ids=lambda made: made.__name__)
def test_stopped_after_any_turn_goes_on(made: Callable[[], Transcript]) -> None:
    """Stopped behind each turn in turn, with a new process every time, nothing is taken twice or left out."""
    recorded, store, seen = made(), InMemoryStore(), Log()
    count = len(list(turns(recorded)))
    for at in range(1, count):
        log = Log(stop_at=at)
        with pytest.raises(Stop):
            run(store, recorded, log, resume=at > 1)
        assert log.begun == [(at - 1, count)]
        seen.seen += log.seen
    seen.seen.append(run(store, recorded, Log(), resume=True))
    whole, straight = InMemoryStore(), Log()
    run(whole, recorded, straight)
    assert stored(store) == stored(whole)
    assert [(p.turn, p.messages, p.usage, p.cost) for p in seen.seen] == [
        (p.turn, p.messages, p.usage, p.cost) for p in straight.seen
    ]


def test_sizes_follow_the_reports() -> None:
    log = Log()
    run(InMemoryStore(), session(), log)
    assert [progress.size.source for progress in log.seen] == ["provider"] * 6
    assert [progress.size.reported for progress in log.seen] == [
        r.reported for r in inspect_transcript(session()).responses
    ]


def test_finished_run_has_nothing_left() -> None:
    store, log = InMemoryStore(), Log()
    last = run(store, session(), Log())
    again = run(store, session(), log, resume=True)
    assert log.begun == [(6, 6)]
    assert log.seen == []
    assert (again.turn, again.messages, again.usage, again.cost) == (6, last.messages, last.usage, last.cost)


def test_run_that_exists_is_refused() -> None:
    store = InMemoryStore()
    run(store, session(), Log())
    with pytest.raises(StoreError, match=r"run 'run' is there already, at turn 6 of 6; go on with --resume"):
        run(store, session(), Log())


@pytest.mark.parametrize(
    ("origin", "said"),
    [
        (Origin("a.jsonl", "other"), "as it was then, which has changed since"),
        (Origin("b.jsonl", "other"), "started from conversation 1 of a.jsonl;"),
        (Origin("a.jsonl", "digest", 2), "started from conversation 1 of a.jsonl;"),
    ],
)
def test_other_origin_is_refused(origin: Origin, said: str) -> None:
    store = InMemoryStore()
    run(store, session(), Log())
    before = stored(store)
    with pytest.raises(StoreError, match=said):
        asyncio.run(replay(session(), checkpointer(store), "run", origin, replace(OPTIONS, resume=True)))
    assert stored(store) == before


def test_run_of_another_kind_is_refused() -> None:
    store = InMemoryStore()
    asyncio.run(checkpointer(store).snapshot("run", {"messages": ()}))
    with pytest.raises(StoreError, match="is no replay"):
        run(store, session(), Log(), resume=True)


def test_damaged_cost_is_told() -> None:
    store = InMemoryStore()
    run(store, session(), Log())

    async def damage() -> None:
        keeper = checkpointer(store)
        found = await keeper.resume("run", include_terminal=True)
        assert found is not None
        await keeper.snapshot("run", found.state, metadata={**found.metadata, "cost": {"usd": "much"}})

    asyncio.run(damage())
    with pytest.raises(Corrupt, match="cannot be read back"):
        run(store, session(), Log(), resume=True)


def test_tenants_do_not_meet() -> None:
    """T1: the same run id of another tenant is another run."""
    store = InMemoryStore()
    run(store, session(), Log())
    other = replace(OPTIONS, scope=Scope("other"))
    keeper = Checkpointer(StoreCheckpoints(store, other.scope))
    asyncio.run(replay(session(turns=2), keeper, "run", ORIGIN, other))
    assert stored(store).messages == session().context.messages


def test_unpriced_cost_stays_unknown() -> None:
    last = run(InMemoryStore(), session(model=UNPRICED), Log())
    assert last.cost.usd is None
    priced = run(InMemoryStore(), session(), Log())
    assert priced.cost.usd is not None
    assert priced.cost.usd > Decimal(0)


def test_prompt_in_blocks_is_prefix_all_the_same() -> None:
    """A prompt recorded in blocks stands in the prefix as plain text, and in no turn."""
    prompt = Message(
        "system", [TextBlock("Be brief. ", {"cache_control": {"type": "ephemeral"}}), TextBlock("Be kind.")]
    )
    made = transcript([Message("user", "q"), Message("assistant", "a")], prefix=PrefixContext("Be brief. Be kind."))
    made = replace(made, history=(prompt, *made.history[1:]))
    assert [turn.incoming for turn in turns(made)] == [(made.history[1],)]
    sizes = inspect_transcript(made).responses[0].estimate
    assert sizes is not None
    assert (sizes.frozen, sizes.tail) == (10, 5)
    assert stored_after(made).messages == list(made.history[1:])


def stored_after(made: Transcript) -> WorkingContext:
    store = InMemoryStore()
    run(store, made, Log())
    return stored(store)


@given(st.lists(st.sampled_from(["user", "assistant", "tool", "system"]), max_size=12), st.data())
def test_any_order_of_roles_ends_at_the_context(roles: list[str], data: st.DataObject) -> None:
    history = [Message(role, f"{role} {n}") for n, role in enumerate(roles)]
    answers = [n for n, message in enumerate(history) if message.role == "assistant"]
    responses = [response(n, input_tokens=5) for n in answers if data.draw(st.booleans())]
    made = transcript(history, responses)
    context = WorkingContext(made.context.prefix)
    for turn in turns(made):
        take_turn(context, turn, made)
    assert context.messages == made.context.messages
    assert sum(len(turn.responses) for turn in turns(made)) == len(responses)
