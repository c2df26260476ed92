"""Segments: ordered from never-changing to ever-changing, with digests that say where a cache breaks."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import FrozenInstanceError, replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.core.contracts.tokens import estimate_message_tokens
from agentkit.core.contracts.types import ImageBlock, Message, NativeBlock, ToolCall, ToolSchema, mark
from agentkit.state.context import (
    CharClassTokenCounter,
    Difference,
    Layout,
    PrefixContext,
    WorkingContext,
    first_difference,
)
from agentkit.state.context.layout import KINDS
from tests.context_strategies import message_lists
from tests.strategies import messages

PREFIX = PrefixContext("prompt", [Message("system", "grounding")], "schema")
CLOCK = [Message("user", "it is 12:00")]


def _summary(number: int = 1) -> Message:
    return mark(Message("user", f"summary {number}"), "summary", covers=number)


def _tools(*names: str) -> list[ToolSchema]:
    return [
        ToolSchema(name, f"does {name}", {"type": "object", "properties": {"q": {"enum": [2, 1]}}}) for name in names
    ]


def _digests(layout: Layout) -> dict[str, str]:
    return {segment.kind: segment.digest for segment in layout.segments}


def _changed(before: Layout, after: Layout) -> list[str]:
    old, new = _digests(before), _digests(after)
    return [kind for kind in KINDS if old[kind] != new[kind]]


# -- segments ----------------------------------------------------------------------------------------------------------


@given(message_lists(), message_lists(3))
def test_layout_is_what_is_sent(tail: list[Message], volatile: list[Message]) -> None:
    ctx = WorkingContext(PREFIX, tail)
    layout = ctx.segments(volatile=iter(volatile))
    assert [s.kind for s in layout.segments] == list(KINDS) == ["frozen", "summary", "tail", "volatile"]
    assert layout.messages() == ctx.assembled() + volatile
    assert layout.segment("frozen").messages == tuple(PREFIX.as_messages())
    assert layout.segment("volatile").messages == tuple(volatile)
    summary = layout.segment("summary").messages
    assert all("summary" in m.meta.get("agentkit", {}) for m in summary)
    rest = layout.segment("tail").messages
    assert not rest or "summary" not in rest[0].meta.get("agentkit", {})
    assert ctx.messages == tail
    assert ctx.size() == len(tail)


def test_empty_context_has_four_empty_segments() -> None:
    layout = WorkingContext().segments()
    assert [(s.kind, s.messages, s.tokens) for s in layout.segments] == [(kind, (), 0) for kind in KINDS]
    assert layout.tokens == 0
    assert layout.messages() == []


def test_summary_is_the_leading_run_of_the_tail() -> None:
    tail = [_summary(1), _summary(2), Message("user", "a"), _summary(3)]
    layout = WorkingContext(messages=tail).segments()
    assert layout.segment("summary").messages == tuple(tail[:2])
    assert layout.segment("tail").messages == tuple(tail[2:])


@given(message_lists(), st.booleans())
def test_n5_tokens_are_those_of_the_contexts_counter(tail: list[Message], by_class: bool) -> None:
    counter: Any = CharClassTokenCounter() if by_class else None
    ctx = WorkingContext(PREFIX, tail, token_counter=counter)
    layout = ctx.segments(volatile=CLOCK)
    for segment in layout.segments:
        alone = WorkingContext(messages=segment.messages, token_counter=counter).count().tokens
        assert abs(segment.tokens - alone) <= 1
    assert layout.tokens == sum(segment.tokens for segment in layout.segments)
    assert abs(layout.tokens - ctx.count().tokens - layout.segment("volatile").tokens) <= 2


def test_n5_tools_count_by_the_same_counter() -> None:
    dense = [ToolSchema("f", "", {"properties": {f"a{i}": {"type": "string"} for i in range(50)}})]
    plain, classed = WorkingContext(), WorkingContext(token_counter=CharClassTokenCounter())
    text = plain.segments(tools=dense).tools[0]
    assert plain.segments(tools=dense).segment("frozen").tokens == len(text) // 4
    as_text = CharClassTokenCounter().measure([Message("user", text)]) - 4
    assert classed.segments(tools=dense).segment("frozen").tokens == as_text > 1.2 * len(text) // 4
    assert classed.segments().segment("frozen").tokens == 0
    assert classed.segments(tools=_tools("g")).segment("frozen").tokens < as_text


def test_counter_without_measure_is_replaced_by_the_formula() -> None:
    class Remote:
        async def estimate(self, messages: Any, /) -> int:
            raise AssertionError("segments never waits")

    ctx = WorkingContext(PREFIX, [Message("user", "a" * 40)], token_counter=Remote())
    assert ctx.segments().segment("tail").tokens == 14
    assert ctx.segments().segment("frozen").tokens == estimate_message_tokens(PREFIX.as_messages())


def test_volatile_and_tools_are_checked() -> None:
    wrong: Any = [{"role": "user"}]
    with pytest.raises(TypeError, match=r"volatile\[0\] must be a Message, not dict"):
        WorkingContext().segments(volatile=wrong)
    wrong = ["f"]
    with pytest.raises(TypeError, match="a tool must be a ToolSchema or a mapping, not str"):
        WorkingContext().segments(tools=wrong)


def test_layout_is_a_value() -> None:
    ctx = WorkingContext(PREFIX, [Message("user", "a")])
    layout = ctx.segments(tools=_tools("f"), volatile=CLOCK)
    assert layout == ctx.segments(tools=_tools("f"), volatile=CLOCK)
    ctx.append(Message("user", "b"))
    assert len(layout.segment("tail").messages) == 1
    with pytest.raises(FrozenInstanceError):
        layout.tools = ()  # type: ignore[misc]


# -- digests -----------------------------------------------------------------------------------------------------------


@given(message_lists(6), messages())
def test_k4_append_changes_the_tail_alone(tail: list[Message], new: Message) -> None:
    ctx = WorkingContext(PREFIX, [_summary(), Message("user", "first"), *tail])
    before = ctx.segments(volatile=CLOCK)
    ctx.append(new)
    assert _changed(before, ctx.segments(volatile=CLOCK)) == ["tail"]


@given(message_lists(3), message_lists(3))
def test_k5_clock_changes_the_volatile_segment_alone(one: list[Message], other: list[Message]) -> None:
    ctx = WorkingContext(PREFIX, [Message("user", "a")])
    changed = _changed(ctx.segments(volatile=one), ctx.segments(volatile=other))
    assert changed == ([] if [m.digest for m in one] == [m.digest for m in other] else ["volatile"])


def test_compaction_changes_summary_and_tail_alone() -> None:
    ctx = WorkingContext(PREFIX, [Message("user", "a"), Message("assistant", "b"), Message("user", "c")])
    before = ctx.segments(tools=_tools("f"), volatile=CLOCK)
    ctx.rewrite(2, [_summary(2)], version=0)
    assert _changed(before, ctx.segments(tools=_tools("f"), volatile=CLOCK)) == ["summary", "tail"]


def test_every_message_of_a_segment_counts_for_its_digest() -> None:
    tail = [Message("user", str(i)) for i in range(5)]
    found = {WorkingContext(messages=tail).segments().segment("tail").digest}
    for at in range(5):
        for other in (
            tail[:at] + tail[at + 1 :],
            [*tail[:at], Message("user", "x"), *tail[at + 1 :]],
            [*tail[:at], tail[at], *tail[at:]],
            [*tail[:at], replace(tail[at], is_error=True), *tail[at + 1 :]],
        ):
            found.add(WorkingContext(messages=other).segments().segment("tail").digest)
    assert len(found) == 1 + 5 * 4


@given(message_lists())
def test_meta_is_outside_the_digest(tail: list[Message]) -> None:
    noted = [replace(m, meta={**m.meta, "importer": {"id": i}}) for i, m in enumerate(tail)]
    assert _digests(WorkingContext(PREFIX, tail).segments()) == _digests(WorkingContext(PREFIX, noted).segments())


def test_digest_sees_a_message_replaced_by_an_equal_one() -> None:
    """`1 == True`, and yet other bytes are sent."""
    ctx = WorkingContext(messages=[Message("assistant", tool_calls=[ToolCall("c", "f", {"n": 1})])])
    before = ctx.segments().segment("tail").digest
    ctx.messages[0] = Message("assistant", tool_calls=[ToolCall("c", "f", {"n": True})])
    assert ctx.segments().segment("tail").digest != before


@given(st.permutations(_tools("b", "a", "c")), st.permutations(_tools("b", "a", "c")))
def test_k2_tool_order_is_nothing(one: list[ToolSchema], other: list[ToolSchema]) -> None:
    ctx = WorkingContext(PREFIX)
    assert ctx.segments(tools=one) == ctx.segments(tools=other)


def test_tools_belong_to_the_frozen_segment() -> None:
    ctx = WorkingContext(PREFIX, [Message("user", "a")])
    before = ctx.segments(tools=_tools("a"), volatile=CLOCK)
    for tools in ([], _tools("a", "b"), _tools("b"), [replace(_tools("a")[0], description="other")]):
        assert _changed(before, ctx.segments(tools=tools, volatile=CLOCK)) == ["frozen"]
    flipped = [ToolSchema("a", "does a", {"type": "object", "properties": {"q": {"enum": [1, 2]}}})]
    assert _changed(before, ctx.segments(tools=flipped, volatile=CLOCK)) == ["frozen"]


@pytest.mark.parametrize("seed", range(3))
def test_k5_frozen_digest_stands_for_200_turns(seed: int) -> None:
    """Plan, memory keys, clock and tool order change at each turn, and five compactions fold the history."""
    ctx = WorkingContext(PREFIX)
    random = Random(seed)
    digests: set[str] = set()
    fold_at = set(random.sample(range(1, 200), 5))
    folded = 0
    for turn in range(200):
        ctx.append(
            Message("user", f"q{turn}"), Message("assistant", tool_calls=[ToolCall(f"c{turn}", "a", {"n": turn})])
        )
        ctx.append(Message("tool", "ok", tool_call_id=f"c{turn}")).note("plan", {"step": turn})
        tools = _tools("a", "b", "c")
        random.shuffle(tools)
        if turn in fold_at:
            folded += 1
            ctx.rewrite(random.randrange(ctx.size() + 1), [_summary(turn)], version=ctx.version)
        volatile = [Message("user", f"step {turn}, memory {random.random()}, {turn // 60}:{turn % 60:02}")]
        layout = ctx.segments(tools=tools, volatile=volatile)
        digests.add(layout.segment("frozen").digest)
        assert layout.messages()[: len(PREFIX.as_messages())] == PREFIX.as_messages()
    assert folded == ctx.version == 5
    assert len(digests) == 1


DIGESTS = """
from agentkit.core.contracts.types import *
from agentkit.state.context import *
first = Message("assistant", ["a\\\\ud800", ImageBlock(b"x"), ToolCall("c", "f", {"s": {"b", "a", "c"}})])
tail = [mark(Message("user", "s"), "summary", covers=1), first, Message("user", "b")]
tools = [ToolSchema("f", "d", {"required": ["b", "a"], "x": {"z": 1, "y": 2}}), {"name": "e", "b": 1, "a": 2}]
ctx = WorkingContext(PrefixContext("prompt", [Message("system", "g")], "s"), tail)
print([s.digest for s in ctx.segments(tools=tools, volatile=tail).segments])
"""


def test_g4_digests_are_equal_in_every_process() -> None:
    runs = [
        subprocess.run(
            [sys.executable, "-c", DIGESTS], capture_output=True, text=True, env={"PYTHONHASHSEED": seed}, timeout=60
        )
        for seed in ("0", "1", "4711")
    ]
    assert {run.returncode for run in runs} == {0}, runs[0].stderr
    assert len({run.stdout for run in runs}) == 1


# -- first_difference --------------------------------------------------------------------------------------------------


def _layout(tail: list[Message], prefix: PrefixContext = PREFIX, tools: Any = (), volatile: Any = ()) -> Layout:
    return WorkingContext(prefix, tail).segments(tools=tools, volatile=volatile)


A, B, C, D = (Message("user", text) for text in "abcd")
S = _summary()
TABLE: dict[str, tuple[Layout, Layout, Difference | None]] = {
    "same": (_layout([A]), _layout([A]), None),
    "appended": (_layout([A]), _layout([A, B]), None),
    "from nothing": (_layout([]), _layout([A]), None),
    "other clock": (_layout([A], volatile=[B]), _layout([A, C], volatile=[D]), None),
    "tool added": (
        _layout([A], tools=_tools("f")), _layout([A], tools=_tools("f", "g")), Difference("frozen", 0, "tools"),
    ),
    "tools in front of a changed prefix": (
        _layout([A], tools=_tools("f")), _layout([A], PrefixContext("x")), Difference("frozen", 0, "tools"),
    ),
    "prompt": (
        _layout([A]), _layout([A], PrefixContext("x", PREFIX.grounding, "schema")), Difference("frozen", 0, "prefix"),
    ),
    "schema": (
        _layout([A]), _layout([A], PrefixContext("prompt", PREFIX.grounding, "x")), Difference("frozen", 2, "prefix"),
    ),
    "grounding grew": (
        _layout([A], PrefixContext("prompt")), _layout([A], PrefixContext("prompt", [B])),
        Difference("frozen", 1, "prefix"),
    ),
    "prefix shrank": (_layout([A]), _layout([A], PrefixContext("prompt")), Difference("frozen", 1, "prefix")),
    "first summary": (_layout([A, B]), _layout([S, B]), Difference("summary", 3, "summary")),
    "other summary": (_layout([S, B]), _layout([_summary(2), B]), Difference("summary", 3, "summary")),
    "summary gone": (_layout([S, B]), _layout([B]), Difference("summary", 3, "summary")),
    "edited": (_layout([A, B, C]), _layout([A, D, C]), Difference("tail", 4, "edited")),
    "edited behind a summary": (_layout([S, A, B]), _layout([S, A, C]), Difference("tail", 5, "edited")),
    "inserted": (_layout([A, B]), _layout([A, D, B]), Difference("tail", 4, "edited")),
    "removed": (_layout([A, B, C]), _layout([A, C]), Difference("tail", 4, "removed")),
    "removed at the front": (_layout([A, B, C]), _layout([B, C, D]), Difference("tail", 3, "removed")),
    "removed at the end": (_layout([A, B]), _layout([A]), Difference("tail", 4, "removed")),
    "cleared": (_layout([A, B]), _layout([]), Difference("tail", 3, "removed")),
}  # fmt: skip


@pytest.mark.parametrize(("old", "new", "expected"), TABLE.values(), ids=TABLE)
def test_k6_first_difference_names_place_and_reason(old: Layout, new: Layout, expected: Difference | None) -> None:
    assert first_difference(old, new) == expected


@given(message_lists(6), message_lists(6), st.booleans())
def test_no_difference_exactly_when_the_old_request_goes_on(
    old: list[Message], new: list[Message], continues: bool
) -> None:
    one = _layout(old, volatile=CLOCK)
    other = _layout(old + new if continues else new)
    sent = [m.digest for m in one.messages()[: -len(CLOCK)]]
    now = [m.digest for m in other.messages()]
    found = first_difference(one, other)
    if found is None:
        assert now[: len(sent)] == sent
    else:
        common = next((i for i, (a, b) in enumerate(zip(sent, now, strict=False)) if a != b), min(len(sent), len(now)))
        # A message that is new among the summaries moves nothing in front of it.
        assert found.index == common or (found.reason == "summary" and found.index <= common)
        assert found.segment == {"prefix": "frozen", "tools": "frozen", "summary": "summary"}.get(found.reason, "tail")


def test_difference_ignores_meta_and_identity() -> None:
    tail = [Message("user", ["a", ImageBlock(b"x")]), Message("assistant", [NativeBlock("p", {"k": 1})])]
    again = [replace(m, meta={"importer": 1}) for m in tail]
    assert first_difference(_layout(tail), _layout(again)) is None
