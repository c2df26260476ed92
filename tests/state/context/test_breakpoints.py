"""Breakpoints: every rule, on random layouts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.core.contracts.types import Breakpoint, Message, ToolSchema, Usage, mark
from agentkit.state.context import Layout, PrefixContext, WorkingContext, first_difference
from agentkit.state.context.layout import ttl_seconds
from tests.context_strategies import simple_messages

TTLS = ["30s", "5m", "30m", "1h", "12h", "1d"]
TAIL = [Message("user", "a" * 40) for _ in range(6)]
SUMMARY = mark(Message("user", "s" * 40), "summary", covers=9)


@st.composite
def requests(draw: st.DrawFn) -> tuple[Layout, Layout | None]:
    """A request and the one before it, which it mostly continues."""
    grounding = draw(st.lists(simple_messages(), max_size=2))
    prefix = draw(st.sampled_from([PrefixContext(), PrefixContext("prompt", grounding)]))
    summaries = draw(st.lists(st.just(SUMMARY), max_size=2))
    plain = simple_messages().filter(lambda m: not m.meta)
    tail = draw(st.lists(plain, max_size=6))
    volatile = draw(st.lists(plain, max_size=2))
    tools = draw(st.sampled_from([[], [ToolSchema("f", "d" * 100)]]))
    ctx = WorkingContext(prefix, [*summaries, *tail])
    layout = ctx.segments(tools=tools, volatile=volatile)
    kind = draw(st.sampled_from(["none", "head", "head", "head", "edited", "other"]))
    if kind == "none":
        return layout, None
    before = [*summaries, *tail[: draw(st.integers(0, len(tail)))]]
    if kind == "edited" and before:
        before[-1] = Message("user", "was otherwise")
    if kind == "other":
        prefix = PrefixContext("other prompt")
    return layout, WorkingContext(prefix, before).segments(tools=tools, volatile=volatile[:1])


def _ends(layout: Layout, previous: Layout | None) -> dict[str, tuple[int, int]]:
    """Position and tokens in front of each place that may be marked, in order of the contract."""
    frozen, summary, tail, _ = layout.segments
    found: dict[str, tuple[int, int]] = {}
    if frozen.messages:
        found["frozen"] = len(frozen.messages), frozen.tokens
    at, tokens = len(frozen.messages) + len(summary.messages), frozen.tokens + summary.tokens
    if summary.messages:
        found["summary"] = at, tokens
    if previous is not None and first_difference(previous, layout) is None and previous.segment("tail").messages:
        sent = previous.segment("tail")
        found["previous"] = at + len(sent.messages), tokens + sent.tokens
    if tail.messages:
        found["tail"] = at + len(tail.messages), tokens + tail.tokens
    return found


@given(requests(), st.integers(1, 5), st.integers(0, 120), st.sampled_from(TTLS), st.none() | st.sampled_from(TTLS))
def test_every_rule_holds(
    request: tuple[Layout, Layout | None], max_marks: int, min_tokens: int, ttl: str, frozen_ttl: str | None
) -> None:
    layout, previous = request
    marks = layout.breakpoints(
        previous=previous, max_marks=max_marks, min_tokens=min_tokens, ttl=ttl, frozen_ttl=frozen_ttl
    )
    positions = [one.position for one in marks]
    ends = {name: place for name, place in _ends(layout, previous).items() if place[1] >= min_tokens}
    assert type(marks) is tuple
    assert len(marks) <= max_marks
    assert positions == sorted(set(positions))
    assert set(positions) <= {position for position, _ in ends.values()}
    assert all(
        0 < position <= len(layout.messages()) - len(layout.segment("volatile").messages) for position in positions
    )
    lifetimes = [ttl_seconds(one.ttl) for one in marks]
    assert lifetimes == sorted(lifetimes, reverse=True)
    for gone in ("nothing", "previous", "summary", "frozen"):
        ends.pop(gone, None)
        if len({position for position, _ in ends.values()}) <= max_marks:
            break
    assert set(positions) == {position for position, _ in ends.values()}
    if "frozen" in ends:
        assert marks[0] == Breakpoint(ends["frozen"][0], frozen_ttl or ttl)


@given(requests(), st.lists(simple_messages().filter(lambda m: not m.meta), min_size=1, max_size=3), st.integers(0, 60))
def test_k3_unchanged_head_gets_the_same_marks_next_turn(
    request: tuple[Layout, Layout | None], new: list[Message], min_tokens: int
) -> None:
    layout, _ = request
    now = layout.breakpoints(min_tokens=min_tokens)
    tail = [*layout.segment("summary").messages, *layout.segment("tail").messages, *new]
    frozen = layout.segment("frozen")
    ctx = WorkingContext(PrefixContext(grounding=frozen.messages), tail)
    tools = [ToolSchema("f", "d" * 100)] if layout.tools else []
    later = ctx.segments(tools=tools, volatile=new)
    assert first_difference(layout, later) is None
    assert set(now) <= set(later.breakpoints(previous=layout, min_tokens=min_tokens))


def _request(tail: int = 4, summary: bool = True) -> Layout:
    messages = [*([SUMMARY] if summary else []), *TAIL[:tail]]
    return WorkingContext(PrefixContext("p" * 40), messages).segments(volatile=[Message("user", "clock")])


def test_marks_are_four_and_leave_in_order() -> None:
    layout, previous = _request(4), _request(2)
    found = {n: [m.position for m in layout.breakpoints(previous=previous, max_marks=n)] for n in (5, 4, 3, 2, 1)}
    assert found == {5: [1, 2, 4, 6], 4: [1, 2, 4, 6], 3: [1, 2, 6], 2: [1, 6], 1: [6]}


def test_default_is_four_marks_of_five_minutes() -> None:
    assert _request().breakpoints() == (Breakpoint(1), Breakpoint(2), Breakpoint(6))
    assert {mark.ttl for mark in _request().breakpoints()} == {"5m"}


def test_empty_segments_give_no_marks() -> None:
    assert WorkingContext().segments().breakpoints() == ()
    assert WorkingContext().segments(volatile=TAIL).breakpoints() == ()
    assert [m.position for m in WorkingContext(messages=TAIL).segments().breakpoints()] == [6]
    assert [m.position for m in WorkingContext(PrefixContext("p")).segments().breakpoints()] == [1]
    assert [m.position for m in _request(summary=False).breakpoints()] == [1, 5]


def test_equal_places_collapse() -> None:
    layout = _request(4)
    assert [m.position for m in layout.breakpoints(previous=_request(4))] == [1, 2, 6]
    assert [m.position for m in layout.breakpoints(previous=_request(0))] == [1, 2, 6]


def test_previous_request_counts_while_it_is_a_head() -> None:
    layout = _request(4)
    assert [m.position for m in layout.breakpoints(previous=_request(3))] == [1, 2, 5, 6]
    for other in (_request(3, summary=False), WorkingContext(messages=TAIL[:2]).segments()):
        assert layout.breakpoints(previous=other) == layout.breakpoints()


def test_place_needs_its_tokens_in_front() -> None:
    layout = _request(4)  # 14 tokens each
    for least, positions in ((0, [1, 2, 6]), (14, [1, 2, 6]), (15, [2, 6]), (28, [2, 6]), (29, [6]), (85, [])):
        assert [m.position for m in layout.breakpoints(min_tokens=least)] == positions


def test_tools_count_as_tokens_in_front() -> None:
    ctx = WorkingContext(PrefixContext("p"))
    assert ctx.segments().breakpoints(min_tokens=100) == ()
    assert ctx.segments(tools=[ToolSchema("f", "d" * 400)]).breakpoints(min_tokens=100) == (Breakpoint(1),)


def test_k3_longer_lifetime_never_follows_a_shorter_one() -> None:
    layout = _request(4)

    def lifetimes(**options: Any) -> list[str]:
        return [m.ttl for m in layout.breakpoints(**options)]

    assert lifetimes(ttl="5m", frozen_ttl="1h") == ["1h", "5m", "5m"]
    assert lifetimes(ttl="1h", frozen_ttl="5m") == ["5m", "5m", "5m"]
    assert lifetimes(ttl="1h") == ["1h", "1h", "1h"]
    assert lifetimes(ttl="30m", frozen_ttl="12h", max_marks=1) == ["30m"]
    assert lifetimes(ttl="60m", frozen_ttl="1h") == ["1h", "60m", "60m"]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"max_marks": 0}, ValueError), ({"max_marks": -1}, ValueError), ({"max_marks": 1.5}, TypeError),
        ({"max_marks": True}, TypeError), ({"min_tokens": -1}, ValueError), ({"min_tokens": "1"}, TypeError),
        ({"ttl": "forever"}, ValueError), ({"ttl": ""}, ValueError), ({"ttl": 300}, ValueError),
        ({"frozen_ttl": "1 h"}, ValueError), ({"ttl": "-5m"}, ValueError), ({"ttl": "１h"}, ValueError),
    ],
    ids=str,
)  # fmt: skip
def test_wrong_options_are_refused(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        _request().breakpoints(**options)


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30), ("5m", 300), ("1h", 3_600), ("12h", 43_200), ("2d", 172_800), ("0m", 0)]
)
def test_lifetimes_are_read(text: str, seconds: int) -> None:
    assert ttl_seconds(text) == seconds


def test_last_recorded_layout_is_kept_with_the_context() -> None:
    ctx = WorkingContext(PrefixContext("prompt"), TAIL[:1])
    first = ctx.segments()
    assert WorkingContext().sent is None
    ctx.record_usage(Usage(), layout=first)  # a hit of our own cache says nothing of tokens, and still was sent
    ctx.append(*TAIL[1:3])
    assert ctx.sent is first
    assert ctx.fork().sent is first
    assert [place.position for place in ctx.segments().breakpoints(previous=ctx.sent)] == [1, 2, 4]
