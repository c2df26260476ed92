"""What is new in a list is found by pointers, and what a version shows is always what was saved."""

import copy
import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.core.contracts.frozen import deep_freeze
from agentkit.core.contracts.types import Message, ToolCall, mark
from agentkit.state.persistence.run_log import INDEX_FROM, LogView, NotesView, joined, positions, runs, same

ranges = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 4)).map(lambda r: (r[0], r[0] + r[1])), max_size=6)


@given(ranges)
def test_joined_keeps_the_positions(given_ranges: list[tuple[int, int]]) -> None:
    found = joined(given_ranges)
    assert list(positions(found)) == list(positions(given_ranges))
    assert all(a[1] != b[0] for a, b in pairwise(found))


@given(st.lists(st.integers(0, 20)))
def test_runs_cover_and_nothing_else(wanted: list[int]) -> None:
    assert list(positions(runs(wanted))) == sorted(set(wanted))


CONSTANT = Message("user", "go on")
Edit = Callable[[list[Message], int], list[Message]]
EDITS: list[Edit] = [
    lambda m, n: [*m, Message("user", f"new {n}")],
    lambda m, n: [*m, Message("user", f"a {n}"), Message("assistant", f"b {n}", tool_calls=[ToolCall("c", "f")])],
    lambda m, n: [*m, CONSTANT],
    lambda m, n: [*m, *m[-2:]],
    lambda m, n: [Message("user", f"summary {n}"), *m[n % (len(m) + 1) :]],
    lambda m, n: m[: n % (len(m) + 1)],
    lambda m, n: [mark(x, "pinned", by=n) if i == n % (len(m) or 1) else x for i, x in enumerate(m)],
    lambda m, n: copy.deepcopy(m),
    lambda m, n: m[::-1],
    lambda m, n: [],
]


@given(st.lists(st.tuples(st.integers(0, len(EDITS) - 1), st.integers(0, 50)), max_size=30))
def test_every_version_shows_what_was_saved(edits: list[tuple[int, int]]) -> None:
    view, log, now = LogView(), list[Message](), list[Message]()
    versions = []
    for number, n in edits:
        now = EDITS[number](now, n)
        step = view.plan(tuple(now))
        assert view.length == len(log)
        log += step.fresh
        view.advance(step)
        versions.append((now, step.ranges))
        assert len(step.fresh) <= len(now)
    for saved, shown in versions:
        found = [log[place] for place in positions(shown)]
        assert len(found) == len(saved)
        assert all(map(same, found, saved))


def test_rewrite_appends_only_what_is_new() -> None:
    view = LogView()
    tail = [Message("user", str(n)) for n in range(100)]
    view.advance(view.plan(tuple(tail)))
    summary = Message("user", "what was said")
    step = view.plan((summary, *tail[60:]))
    assert step.fresh == (summary,)
    assert step.ranges == ((100, 101), (60, 100))
    view.advance(step)
    step = view.plan((summary, *tail[60:], tail[3]))
    assert (step.fresh, step.ranges[-1]) == ((tail[3],), (101, 102))


def test_constant_messages_leave_ranges_whole() -> None:
    """An object that is appended again and again neither cuts the log into pieces nor is lost by a rewrite."""
    view, now = LogView(), list[Message]()
    for n in range(50):
        now += [CONSTANT, Message("assistant", str(n))]
        view.advance(view.plan(tuple(now)))
    assert view.ranges == ((0, 100),)
    step = view.plan((Message("user", "summary"), *now[60:]))
    assert (len(step.fresh), step.ranges[-1]) == (1, (61, 100))
    assert len(step.ranges) <= 3


def test_equal_messages_are_found_without_identity() -> None:
    """As after a reload by other means: nothing is written twice, unless meta differs."""
    view = LogView()
    tail = [Message("user", str(n), meta={"id": n}) for n in range(20)]
    view.advance(view.plan(tuple(tail)))
    again = copy.deepcopy(tail)
    assert view.plan(tuple(again)).fresh == ()
    assert view.plan((Message("user", "summary"), *again[10:])).ranges == ((20, 21), (10, 20))
    changed = mark(again[5], "pinned")
    step = view.plan((*again[:5], changed, *again[6:]))
    assert step.fresh == (changed,)
    assert step.fresh[0].meta == changed.meta
    assert step.ranges == ((0, 5), (20, 21), (6, 20))


def test_changed_meta_of_equal_messages_is_new() -> None:
    view = LogView()
    tail = tuple(Message("user", str(n)) for n in range(20))
    view.advance(view.plan(tail))
    step = view.plan((*tail[:7], mark(tail[7], "pinned"), *tail[8:]))
    assert len(step.fresh) == 1
    assert step.fresh[0].meta == {"agentkit": {"pinned": {}}}


def test_items_need_not_be_messages() -> None:
    view = LogView()
    items: tuple[Any, ...] = ({"n": 1}, "text", (1, 2), Message("user", "x"))
    view.advance(view.plan(items))
    assert view.plan(copy.deepcopy(items)).fresh == ()
    assert view.plan(({"n": True}, *items[1:])).fresh == ({"n": True},)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (1, True),
        (1, 1.0),
        (0.0, -0.0),
        ("1", 1),
        ([1], (1,)),
        ({1}, {True}),
        ({(1,)}, {(True,)}),
        ({1: "x"}, {True: "x"}),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({"a": [1]}, {"a": [True]}),
        (Decimal("1.0"), Decimal("1.00")),
        (datetime(2026, 1, 1, 12, tzinfo=UTC), datetime(2026, 1, 1, 13, tzinfo=timezone(timedelta(hours=1)))),
        (Message("user", "x"), Message("user", "x", meta={"id": 1})),
        (ToolCall("c", "f", '{"a":1}'), ToolCall("c", "f", '{"a": 1}')),
        (b"x", "x"),
        (None, 0),
    ],
)
def test_what_is_stored_differently_differs(a: Any, b: Any) -> None:
    assert not same(a, b)
    assert not same([a], [b])


def test_what_is_stored_alike_is_the_same() -> None:
    value: dict[str, Any] = {
        "a": [1, 2.5, math.nan, None, True, b"x", ("t",), {3, 4}, frozenset({"z"})],
        "m": Message("user", "x"),
    }
    assert same(value, copy.deepcopy(value))
    assert same(value, deep_freeze({**value, "a": [*value["a"][:7], frozenset({3, 4}), frozenset({"z"})]})) is False
    assert same({"a": [1, {"b": ()}]}, deep_freeze({"a": [1, {"b": ()}]}))
    own = object()
    assert not same(own, own)  # it may have changed inside


keys = st.sampled_from("abcdef")


@given(st.lists(st.lists(st.tuples(keys, st.none() | st.integers(0, 3) | st.booleans()), max_size=4), max_size=60))
def test_scratchpad_can_be_read_back(changes: list[list[tuple[str, Any]]]) -> None:
    """Each change writes only what changed; reading goes from the last index on."""
    view, parts, notes = NotesView(), list[dict[str, Any]](), dict[str, Any]()
    for edits in changes:
        for key, value in edits:
            notes.pop(key, None) if value is None else notes.update({key: value})
        step = view.plan(deep_freeze(dict(notes)), len(parts))
        if step is not None:
            parts += step.items
            view.advance(step)
        assert read_notes(parts, view.start, view.stop) == notes
        assert list(read_notes(parts, view.start, view.stop)) == list(notes)


def read_notes(parts: list[dict[str, Any]], start: int, stop: int) -> dict[str, Any]:
    places: dict[str, int] = {}
    for place in range(start, stop):
        part = parts[place]
        if "index" in part:
            places = dict(part["index"])
        else:
            for key in part["drop"]:
                del places[key]
            places |= dict.fromkeys(part["set"], place)
    return {key: parts[place]["set"][key] for key, place in places.items()}


def test_unchanged_scratchpad_writes_nothing() -> None:
    view = NotesView()
    notes = {"big": ["x" * 100] * 1000, "n": 1}
    step = view.plan(deep_freeze(notes), 0)
    assert step is not None
    view.advance(step)
    assert view.plan(deep_freeze(copy.deepcopy(notes)), 1) is None
    step = view.plan(deep_freeze({**notes, "n": True}), 1)
    assert step is not None
    assert step.items == ({"set": {"n": True}, "drop": []},)


def test_reading_does_not_grow_with_changes() -> None:
    view, length = NotesView(), 0
    for n in range(1000):
        step = view.plan(deep_freeze({"n": n, "kept": "x"}), length)
        assert step is not None
        length += len(step.items)
        view.advance(step)
        assert view.stop - view.start <= INDEX_FROM + 2
