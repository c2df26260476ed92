"""Snapshots and diffs: values that later writes to the live context never reach."""

from __future__ import annotations

import copy
import pickle
from collections import Counter
from dataclasses import FrozenInstanceError
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.core.contracts.errors import FreezeError
from agentkit.core.contracts.frozen import FrozenDict, deep_freeze
from agentkit.core.contracts.types import Message, ToolCall
from agentkit.state.context import ContextDiff, FrozenContext, PrefixContext, WorkingContext
from agentkit.state.context.head import hash_messages
from tests.context_strategies import Handle, Plan, message_lists, nested, plain_data

PREFIX = PrefixContext("prompt")
Notes = dict[str, Any]


def notes() -> st.SearchStrategy[Notes]:
    return st.dictionaries(st.text(max_size=3), plain_data(), max_size=4)


def _context(messages: list[Message], scratchpad: Notes, entries: list[Any]) -> WorkingContext:
    ctx = WorkingContext(PREFIX, messages, scratchpad)
    ctx.journal.apply(entries)
    return ctx


# -- freeze ------------------------------------------------------------------------------------------------------------


@given(message_lists(), notes(), st.lists(st.integers(), max_size=3))
def test_snapshot_holds_what_the_context_holds(messages: list[Message], scratchpad: Notes, entries: list[Any]) -> None:
    ctx = _context(messages, scratchpad, entries)
    snap = ctx.freeze()
    assert snap.prefix is ctx.prefix
    assert snap.messages == tuple(messages)
    assert [key for key, _ in snap.scratchpad] == sorted(scratchpad)
    assert dict(snap.scratchpad) == scratchpad
    assert snap.journal_entries == tuple(entries)
    assert snap == FrozenContext(PREFIX, messages, scratchpad, entries)
    assert snap == FrozenContext(PREFIX, messages, list(scratchpad.items())[::-1], entries)


@given(
    message_lists(), notes(), st.lists(st.integers(), max_size=3), st.sampled_from(range(pickle.HIGHEST_PROTOCOL + 1))
)
def test_snapshots_repeat_and_survive_copies(
    messages: list[Message], scratchpad: Notes, entries: list[Any], protocol: int
) -> None:
    ctx = _context(messages, scratchpad, entries)
    snap = ctx.freeze()
    again = (ctx.freeze(), FrozenContext(PREFIX, messages, scratchpad, entries))
    for copied in (*again, pickle.loads(pickle.dumps(snap, protocol)), copy.deepcopy(snap)):
        assert copied == snap
        assert hash(copied) == hash(snap)
        assert type(copied) is FrozenContext


@given(message_lists(), notes())
def test_later_writes_never_show(messages: list[Message], scratchpad: Notes) -> None:
    ctx = WorkingContext(PREFIX, messages, {**scratchpad, "plan": {"steps": ["a"]}})
    snap = ctx.freeze()
    kept, kept_hash = pickle.dumps(snap), hash(snap)
    ctx.scratchpad["plan"]["steps"].append("b")
    ctx.append(Message("user", "later")).note("later", 1)
    ctx.journal.record(1)
    ctx.messages[:1] = []
    assert snap == pickle.loads(kept)
    assert hash(snap) == kept_hash
    assert dict(snap.scratchpad)["plan"] == {"steps": ["a"]}


@given(message_lists(), notes())
def test_context_can_be_made_again(messages: list[Message], scratchpad: Notes) -> None:
    ctx = WorkingContext(PREFIX, messages, scratchpad)
    snap = ctx.freeze()
    again = WorkingContext(snap.prefix, list(snap.messages), dict(snap.scratchpad))
    assert again == ctx
    again.note("new", 1)
    again.append(Message("user", "x"))
    assert snap == ctx.freeze()


def test_top_level_is_writable_and_nested_values_are_frozen() -> None:
    snap = WorkingContext().note("plan", {"steps": ["a"]}).freeze()
    again = WorkingContext(snap.prefix, list(snap.messages), dict(snap.scratchpad))
    with pytest.raises(TypeError, match="cannot be mutated"):
        again.get("plan")["steps"].append("b")
    again.note("plan", {**again.get("plan"), "steps": [*again.get("plan")["steps"], "b"]})
    assert again.get("plan") == {"steps": ["a", "b"]}
    assert dict(snap.scratchpad) == {"plan": {"steps": ["a"]}}


def test_hash_takes_keys_and_never_values() -> None:
    messages = [Message("user", "a")]
    one = FrozenContext(PREFIX, messages, {"k": {"unhashable": [1]}}, [{"entry": 1}])
    other_value = FrozenContext(PREFIX, messages, {"k": 2}, ())
    other_key = FrozenContext(PREFIX, messages, {"l": {"unhashable": [1]}}, [{"entry": 1}])
    assert hash(one) == hash(other_value)
    assert one != other_value
    assert hash(one) != hash(other_key)
    assert hash(one) != hash(FrozenContext(PrefixContext("x"), messages, {"k": 1}))
    assert hash(one) != hash(FrozenContext(PREFIX, messages * 2, {"k": 1}))


@given(message_lists())
def test_hash_of_a_grown_list_is_that_of_the_whole(messages: list[Message]) -> None:
    ctx = WorkingContext()
    for message in messages:
        ctx.append(message)
        snap = ctx.freeze()
        assert hash(snap) == hash(FrozenContext(ctx.prefix, ctx.messages))
    assert hash_messages(messages) == hash_messages(tuple(messages))


def test_keys_sort_without_comparing_values() -> None:
    snap = FrozenContext(scratchpad={"b": Handle(), "a": {"x": 1}, "ab": 1j})
    assert [key for key, _ in snap.scratchpad] == ["a", "ab", "b"]


def test_objects_and_entries_pass_by_identity() -> None:
    plan, entry = Plan(["a"]), {"kind": ["x"]}
    ctx = WorkingContext().note("plan", plan).note("nested", [plan])
    ctx.journal.record(entry)
    snap = ctx.freeze()
    assert dict(snap.scratchpad)["plan"] is plan
    assert dict(snap.scratchpad)["nested"][0] is plan
    assert snap.journal_entries[0] is entry


def test_snapshot_cannot_be_written_to() -> None:
    snap = WorkingContext().note("a", [1]).freeze()
    with pytest.raises(FrozenInstanceError):
        snap.messages = ()  # type: ignore[misc]
    assert {type(part) for part in (snap.messages, snap.scratchpad, snap.journal_entries)} == {tuple}


def test_empty_context_freezes() -> None:
    snap = WorkingContext().freeze()
    assert snap == FrozenContext()
    assert hash(snap) == hash(FrozenContext())


# -- diff --------------------------------------------------------------------------------------------------------------


def _without(source: list[Message], taken: list[Message]) -> list[Message]:
    """What is left of `source` when each of `taken` takes one equal message away, the first there is."""
    left = Counter(taken)
    rest = []
    for message in source:
        if left[message]:
            left[message] -= 1
        else:
            rest.append(message)
    return rest


@given(message_lists(), message_lists(), message_lists(), notes(), notes(), st.booleans())
def test_diff_is_self_minus_other(
    head: list[Message], mine: list[Message], theirs: list[Message], a: Notes, b: Notes, same_prefix: bool
) -> None:
    left, right = head + mine, head + theirs
    one = WorkingContext(PREFIX, left, a)
    other = WorkingContext(PrefixContext("prompt" if same_prefix else "x"), right, b)
    for found in (one.diff(other), pickle.loads(pickle.dumps(one)).diff(other)):
        assert found.messages_added == tuple(_without(left, right))
        assert found.messages_removed == tuple(_without(right, left))
        changed = {key: value for key, value in a.items() if key not in b or value != b[key]}
        assert found.scratchpad_changes == {**changed, **{key: None for key in b if key not in a}}
        assert found.prefix_changed is (not same_prefix)
        assert found == ContextDiff(
            found.messages_added, found.messages_removed, found.scratchpad_changes, not same_prefix
        )


@given(message_lists(), notes())
def test_nothing_differs_from_itself(messages: list[Message], scratchpad: Notes) -> None:
    ctx = WorkingContext(PREFIX, messages, scratchpad)
    for other in (ctx, ctx.fork(), pickle.loads(pickle.dumps(ctx))):
        assert ctx.diff(other) == ContextDiff()


def test_diff_leaves_the_journal_out() -> None:
    one, other = WorkingContext(), WorkingContext()
    one.journal.record(1)
    assert one.diff(other) == ContextDiff()


def test_diff_is_frozen_and_aliases_nothing() -> None:
    ctx = WorkingContext().note("plan", {"steps": ["a"]})
    found = ctx.diff(WorkingContext())
    ctx.get("plan")["steps"].append("b")
    assert found.scratchpad_changes == {"plan": {"steps": ["a"]}}
    assert type(found.scratchpad_changes) is FrozenDict
    changes: Any = found.scratchpad_changes
    with pytest.raises(TypeError, match="cannot be mutated"):
        changes["plan"] = "tampered"
    with pytest.raises(TypeError, match="cannot be mutated"):
        changes["plan"]["steps"].append("c")


def test_diff_built_by_hand_is_frozen_too() -> None:
    changes: Notes = {"a": [1]}
    messages: Any = [Message("user", "a")]
    found = ContextDiff(messages, messages, changes)
    changes["a"].append(2)
    assert found.messages_added == (Message("user", "a"),)
    assert found.scratchpad_changes == {"a": [1]}
    with pytest.raises(TypeError, match="unhashable"):
        hash(found)


def test_missing_key_is_present_with_none() -> None:
    one, other = WorkingContext().note("a", None), WorkingContext().note("b", 1)
    assert one.diff(other).scratchpad_changes == {"a": None, "b": None}
    assert WorkingContext().note("b", None).diff(other).scratchpad_changes == {"b": None}


def test_diff_takes_contexts_only() -> None:
    with pytest.raises(TypeError, match="other must be a WorkingContext, not FrozenContext"):
        WorkingContext().diff(FrozenContext())  # type: ignore[arg-type]


# -- limits ------------------------------------------------------------------------------------------------------------


def _loop() -> Any:
    loop: list[Any] = []
    loop.append((loop,))
    return loop


@pytest.mark.parametrize("value", [nested(101), _loop(), {"k": [_loop()]}], ids=["deep", "cycle", "nested cycle"])
def test_cycle_or_depth_fails_where_a_value_is_needed(value: Any) -> None:
    """Live use goes on; freeze, diff and the delta merge refuse, and nothing has changed then."""
    parent = WorkingContext()
    ctx = parent.fork().note("odd", value).append(Message("user", "a"))
    assert ctx.get("odd") is value
    child = ctx.fork()
    assert child.get("odd") is not value
    ctx.slice(_Everything())
    for refuse in (ctx.freeze, lambda: ctx.diff(WorkingContext()), lambda: parent.merge(ctx, mode="delta")):
        with pytest.raises(FreezeError):
            refuse()
    assert (parent.messages, parent.scratchpad) == ([], {})
    parent.merge(ctx)
    assert parent.size() == 1


def test_limit_is_the_same_everywhere() -> None:
    parent = WorkingContext()
    ctx = parent.fork().note("deep", nested(100))
    assert dict(ctx.freeze().scratchpad)["deep"] == nested(100)
    assert ctx.diff(parent).scratchpad_changes == {"deep": nested(100)}
    assert parent.merge(ctx, mode="delta").get("deep") == nested(100)
    assert ContextDiff(scratchpad_changes={"deep": deep_freeze(nested(100))}).scratchpad_changes["deep"] == nested(100)


class _Everything:
    def matches(self, message: Message, index: int) -> bool:
        return True


def test_equal_cycles_cannot_be_compared() -> None:
    one, other = WorkingContext().note("a", _loop()), WorkingContext().note("a", _loop())
    with pytest.raises(FreezeError):
        one.diff(other)


def test_values_that_cannot_be_compared_differ() -> None:
    class Array:
        def __eq__(self, other: object) -> Any:
            raise ValueError("no truth value")

        __hash__ = None  # type: ignore[assignment]

    one, other = WorkingContext().note("a", Array()), WorkingContext().note("a", Array())
    assert set(one.diff(other).scratchpad_changes) == {"a"}


def test_hash_of_calls_with_unhashable_arguments() -> None:
    ctx = WorkingContext().append(Message("assistant", tool_calls=[ToolCall("c", "f", {"a": {"b": [1]}})]))
    assert len({ctx.freeze(), ctx.freeze()}) == 1
