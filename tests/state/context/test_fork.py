"""fork: an independent copy, and no write on one side that shows on the other."""

from __future__ import annotations

import copy
import pickle
import threading
from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.core.contracts.errors import MergeError
from agentkit.core.contracts.types import Message, Scope, Usage
from agentkit.state.context import CharClassTokenCounter, LastNTurns, MutationJournal, PrefixContext, WorkingContext
from tests.context_strategies import Plan, message_lists, plain_data

PREFIX = PrefixContext("prompt")


def _full() -> WorkingContext:
    journal = MutationJournal([{"id": 1}])
    journal.record({"id": 2})
    notes = {"plan": {"steps": ["a"]}, "own": Plan(["a"]), "table": defaultdict(list, a=[1])}
    counter = CharClassTokenCounter()
    ctx = WorkingContext(PREFIX, [Message("user", "a")], notes, journal, counter, 10, True, scope=Scope(1))
    ctx.rewrite(0, [], version=0)
    ctx.record_usage(Usage(100), layout=ctx.segments())
    return ctx


def test_fork_inherits_all_but_the_lock() -> None:
    parent = _full()
    child = parent.fork()
    assert child.prefix is parent.prefix
    assert child.token_counter is parent.token_counter
    assert (child.limit, child.shared, child.scope, child.version) == (10, True, Scope(1), 1)
    assert child.messages == parent.messages
    assert child.scratchpad == parent.scratchpad
    assert child.count() == parent.count()
    assert child.count().source == "provider"
    assert child.lock is not parent.lock


def test_journal_is_seeded_with_committed_entries() -> None:
    parent = _full()
    child = parent.fork()
    assert child.journal.view() == parent.journal.view()
    assert parent.journal.has_uncommitted()
    assert not child.journal.has_uncommitted()
    child.journal.record({"id": 3})
    assert child.journal.diff() == [{"id": 3}]
    assert parent.journal.size() == 2


def test_anchor_goes_its_own_way() -> None:
    parent = _full()
    child = parent.fork()
    child.clear_messages()
    assert child.count().source == "estimate"
    assert parent.count().source == "provider"
    parent.append(Message("user", "b"))
    assert parent.fork().count() == parent.count()


@given(message_lists(), st.dictionaries(st.text(max_size=2), plain_data(), max_size=3))
def test_no_write_crosses(messages: list[Message], notes: dict[str, Any]) -> None:
    parent = WorkingContext(PREFIX, messages, {**notes, "plan": {"steps": [["a"]]}})
    child = parent.fork()
    kept = pickle.dumps(parent)
    child.append(Message("user", "child")).note("new", 1)
    child.get("plan")["steps"][0].append("b")
    child.journal.record(1)
    child.messages[:1] = [Message("user", "edited")]
    assert parent == pickle.loads(kept)
    grandchild = child.fork()
    kept = pickle.dumps(child)
    parent.append(Message("user", "parent")).get("plan")["steps"].clear()
    parent.clear_messages()
    grandchild.get("plan")["steps"].clear()
    assert child == pickle.loads(kept)


def test_scratchpad_is_thawed_at_every_depth() -> None:
    snap = WorkingContext().note("plan", {"steps": [{"done": {"x"}}]}).freeze()
    child = WorkingContext(scratchpad=dict(snap.scratchpad)).fork()
    child.get("plan")["steps"][0]["done"].add("y")
    child.get("plan")["steps"].append("b")
    assert dict(snap.scratchpad) == {"plan": {"steps": [{"done": {"x"}}]}}


def test_objects_are_copied_deeply() -> None:
    parent = _full()
    child = parent.fork()
    child.get("own").steps.append("b")
    child.get("table")["a"].append(2)
    assert parent.get("own") == Plan(["a"])
    assert parent.get("table") == {"a": [1]}


def test_object_that_cannot_be_copied_is_an_error_at_fork() -> None:
    ctx = WorkingContext().note("lock", threading.Lock())
    with pytest.raises(TypeError, match="pickle"):
        ctx.fork()


def test_cycle_in_the_scratchpad_is_forked_in_shape() -> None:
    loop: list[Any] = []
    loop.append((loop, {"back": loop}))
    child = WorkingContext().note("loop", loop).fork()
    copied = child.get("loop")
    assert copied is not loop
    assert copied[0][0] is copied
    assert copied[0][1]["back"] is copied


def test_context_noted_in_itself_is_forked() -> None:
    ctx = WorkingContext(messages=[Message("user", "a")])
    ctx.note("me", ctx)
    child = ctx.fork()
    assert child.get("me") is not ctx
    assert child.get("me").messages == ctx.messages


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickle_and_deepcopy_keep_all_but_lock_and_fork_point(protocol: int) -> None:
    parent = _full()
    child = parent.fork().append(Message("assistant", "b"))
    for copied in (pickle.loads(pickle.dumps(child, protocol)), copy.deepcopy(child)):
        assert copied == child
        assert copied.version == child.version
        assert copied.count() == child.count()
        assert copied.lock is not child.lock
        assert hash(copied.freeze()) == hash(child.freeze())
        with pytest.raises(MergeError):
            parent.merge(copied, mode="delta")
    parent.merge(child, mode="delta")


def test_copy_of_the_parent_is_no_parent() -> None:
    parent = WorkingContext()
    child = parent.fork().append(Message("user", "a"))
    with pytest.raises(MergeError):
        copy.deepcopy(parent).merge(child, mode="delta")
    assert parent.merge(child, mode="delta").size() == 1


def test_what_policies_keep_goes_along_and_apart() -> None:
    """It is copied into forks and slices, pickled, and no part of equality, snapshots or merges."""
    ctx = WorkingContext(messages=[Message("user", "a")])
    plain = ctx.fork()
    ctx.policies["breaker"] = {"m": {"failures": 1}}
    for copied in (ctx.fork(), ctx.slice(LastNTurns(1)), pickle.loads(pickle.dumps(ctx)), copy.deepcopy(ctx)):
        assert copied.policies == {"breaker": {"m": {"failures": 1}}}
        copied.policies["breaker"]["m"]["failures"] = 2
    assert ctx.policies == {"breaker": {"m": {"failures": 1}}}
    assert ctx == plain
    assert ctx.freeze() == plain.freeze()
    assert plain.merge(ctx, mode="union").policies == {}
