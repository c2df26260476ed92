"""Cutting, truncating, sliding and clearing: what every compactor has to keep, and what it may take."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentkit.core.contracts.errors import Conflict
from agentkit.core.contracts.tokens import estimate_message_tokens
from agentkit.core.contracts.types import Message, ToolCall, mark, marked
from agentkit.core.contracts.validity import check, open_calls, repair
from agentkit.state.compaction import (
    ClearResultsCompactor,
    Declined,
    Plan,
    TruncationCompactor,
    WindowCompactor,
    apply,
    clamp,
    cut_points,
    plan_cut,
)
from agentkit.state.context import CharClassTokenCounter, PrefixContext, WorkingContext
from tests.strategies import transcripts, valid_transcripts

pytestmark = pytest.mark.anyio


def round_of(number: int, size: int = 400, name: str = "read") -> list[Message]:
    call = ToolCall(f"c{number}", name, {"path": f"{number}.py"})
    return [
        Message("assistant", f"reading {number}", tool_calls=(call,)),
        Message("tool", "x" * size, name, call.id),
    ]


def exchange(number: int, rounds: int = 1) -> list[Message]:
    inner = [m for r in range(rounds) for m in round_of(number * 100 + r)]
    return [Message("user", f"question {number}"), *inner, Message("assistant", f"answer {number}")]


def conversation(exchanges: int) -> list[Message]:
    return [m for n in range(exchanges) for m in exchange(n)]


async def test_truncation_cuts_a_tool_heavy_transcript() -> None:
    """80 messages, 324,420 characters of arguments, which a count of texts alone takes for nothing."""
    messages: list[Message] = []
    for n in range(20):
        call = ToolCall(f"c{n}", "write", {"body": "y" * 16_210})
        result = Message("tool", "ok", "write", call.id)
        messages += [
            Message("user", "go"),
            Message("assistant", "", tool_calls=(call,)),
            result,
            Message("assistant", "k"),
        ]
    assert len(messages) == 80
    kept = await TruncationCompactor(max_tokens=1_000).compact(messages)
    assert len(kept) < 80
    assert not check(kept)


@given(transcripts(max_size=30), st.integers(0, 400), st.integers(0, 12))
@example([Message("user", "a")], 0, 0)
def test_truncation_laws(messages: list[Message], max_tokens: int, keep_recent: int) -> None:
    """Kept and folded are each other's complement, pins and open calls stay byte-equal, the view begins with a user
    message, and doing nothing has a reason."""
    plan = TruncationCompactor(max_tokens, keep_recent).plan(messages)
    if isinstance(plan, Declined):
        assert plan.reason
        return
    assert sorted((*plan.folded, *plan.kept)) == list(range(len(messages)))
    kept = plan.messages(messages)
    assert kept
    assert plan.after <= 0.9 * plan.before
    assert len(kept) >= min(keep_recent, len(messages))
    for i, message in enumerate(messages):
        owed = any(call is o for call in message.tool_calls for o in open_calls(messages))
        if marked(message, "pinned") is not None or owed or message.role == "system":
            assert i in plan.kept
    assert not check(repair(kept).messages)


@given(valid_transcripts(max_turns=12), st.integers(0, 300), st.integers(0, 6))
def test_truncation_of_valid_transcripts_stays_valid(messages: list[Message], max_tokens: int, keep: int) -> None:
    plan = TruncationCompactor(max_tokens, keep).plan(messages)
    if isinstance(plan, Plan):
        # What is kept around a gap may be neighbours of one role, which a view joins; nothing else may be wrong.
        assert {problem.code for problem in check(plan.messages(messages))} <= {"same-role"}


@given(valid_transcripts(max_turns=10))
def test_every_cut_point_leaves_a_valid_transcript(messages: list[Message]) -> None:
    for point in cut_points(messages):
        assert messages[point].role == "user"
        assert not check(messages[point:])


def test_one_long_turn_loses_its_oldest_rounds() -> None:
    messages = [Message("user", "fix it"), *[m for n in range(300) for m in round_of(n)]]
    plan = plan_cut(messages, goal=2_000, keep_recent=2)
    assert isinstance(plan, Plan)
    kept = plan.messages(messages)
    assert kept[0].content == "fix it"
    assert kept[-2:] == messages[-2:]
    assert plan.after <= 2_000
    assert not check(kept)


def test_pinned_round_keeps_its_request_in_front() -> None:
    messages = conversation(10)
    messages[1] = mark(messages[1], "pinned")
    plan = plan_cut(messages, goal=300, keep_recent=2)
    assert isinstance(plan, Plan)
    kept = plan.messages(messages)
    assert [m.content for m in kept[:2]] == ["question 0", "reading 0"]
    assert not check(kept)


def test_pending_result_holds_its_call() -> None:
    messages = conversation(6)
    messages[2] = mark(messages[2], "pending")
    plan = plan_cut(messages, goal=0, keep_recent=0)
    assert isinstance(plan, Plan)
    assert {1, 2} <= set(plan.kept)


def test_dead_call_holds_nothing_up() -> None:
    messages = [Message("user", "a"), round_of(1)[0], *conversation(6)]
    plan = plan_cut(messages, goal=0, keep_recent=0)
    assert isinstance(plan, Plan)
    assert {0, 1} <= set(plan.folded)


def test_window_moves_in_steps() -> None:
    window = WindowCompactor(turns=4, slack=3)
    assert isinstance(window.plan(conversation(7)), Declined)
    plan = window.plan(conversation(8))
    assert isinstance(plan, Plan)
    kept = plan.messages(conversation(8))
    assert [m.content for m in kept if m.role == "user"] == [f"question {n}" for n in range(4, 8)]


def test_clearing_takes_the_largest_and_spares_the_rest() -> None:
    messages = [Message("user", "go")]
    for n, size in enumerate((100, 9_000, 300, 7_000, 500, 600)):
        messages += round_of(n, size)
    messages += round_of(7, 8_000, name="exempt")
    messages += [m for n in range(8, 11) for m in round_of(n)]
    compactor = ClearResultsCompactor(max_tokens=4_500, keep_rounds=3, min_gain=100, exempt=frozenset({"exempt"}))
    plan = compactor.plan(messages)
    assert isinstance(plan, Plan)
    assert sorted(plan.changed) == [4, 8]
    after = plan.messages(messages)
    assert [m.tool_call_id for m in after] == [m.tool_call_id for m in messages]
    assert after[4].content == "[result cleared: 2,255 tokens; run the tool again to see it]"
    assert not check(after)


def test_clearing_too_little_is_refused_with_figures() -> None:
    messages = [Message("user", "go"), *[m for n in range(9) for m in round_of(n)]]
    plan = ClearResultsCompactor(max_tokens=10, keep_rounds=6, min_gain=5_000).plan(messages)
    assert plan == Declined("not_worth_it", "255 tokens would be won, the minimum is 5000", plan.before)


async def test_under_the_threshold_the_input_comes_back() -> None:
    messages = conversation(2)
    for compactor in (TruncationCompactor(), WindowCompactor(), ClearResultsCompactor()):
        assert await compactor.compact(messages) is messages


def test_counter_of_the_context_decides() -> None:
    """A trigger on one estimate and a cut on another would fire again and again."""
    dense = [Message("user", "q"), Message("assistant", '{"a":[1,2,3]}' * 400)] * 6
    counter = CharClassTokenCounter()
    limit = estimate_message_tokens(dense) + 1
    assert isinstance(TruncationCompactor(limit).plan(dense), Declined)
    plan = TruncationCompactor(limit).plan(dense, counter=counter)
    assert isinstance(plan, Plan)
    assert counter.measure(plan.messages(dense)) == plan.after <= limit


def test_apply_refuses_a_context_that_moved_on() -> None:
    context = WorkingContext(PrefixContext("p"), conversation(8))
    plan = plan_cut(context.messages, goal=100, keep_recent=2)
    assert isinstance(plan, Plan)
    seen = context.version
    context.append(Message("user", "late"))
    apply(context, plan, version=seen, summary=mark(Message("user", "so far"), "summary", covers=len(plan.folded)))
    assert context.messages[0].content == "so far"
    assert context.messages[-1].content == "late"
    assert context.size() == len(plan.kept) + 2
    with pytest.raises(Conflict):
        apply(context, plan, version=seen)


@given(st.text() | st.text("e\u0301👨‍👩🏽🇩🇪\r\n각", max_size=60), st.integers(0, 40))
@example("\ud83d" + "\udc00" * 3, 2)
@example("🇩🇪" * 9, 9)
def test_clamp_splits_no_character(text: str, limit: int) -> None:
    short = clamp(text, limit)
    if len(text) <= limit:
        assert short is text
        return
    head, _, rest = short.partition("[... ")
    notice, _, tail = rest.partition(" ...]")
    assert text.startswith(head.removesuffix("\n"))
    assert text.endswith(tail.removeprefix("\n"))
    assert f"of {len(text):,} characters" in notice
    tail = tail.removeprefix("\n")
    assert not tail or unicodedata.combining(tail[0]) == 0 or len(text) > 64


@pytest.mark.parametrize("kwargs", [{"max_tokens": -1}, {"keep_recent": -1}])
def test_negative_sizes_are_refused(kwargs: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must not be negative"):
        TruncationCompactor(**kwargs)


def test_sizes_of_another_type_are_refused() -> None:
    with pytest.raises(TypeError, match="must be an int"):
        TruncationCompactor(max_tokens=1.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="must be an int"):
        clamp("x", True)
