"""merge: what each mode takes over, and that a refused merge changes nothing."""

from __future__ import annotations

import pickle
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.core.contracts.errors import AgentKitError, FreezeError, MergeError, ScopeError
from agentkit.core.contracts.types import Message, Scope, ToolCall
from agentkit.state.context import LastNTurns, MutationJournal, PrefixContext, WorkingContext
from tests.context_strategies import Handle, Plan, message_lists, union_of

USER, ANSWER = Message("user", "q"), Message("assistant", "a")


def _call(id: str, n: object = 1) -> Message:
    return Message("assistant", tool_calls=[ToolCall(id, "f", {"n": n})])


def _result(id: str, text: str = "ok") -> Message:
    return Message("tool", text, tool_call_id=id)


def _merged(mine: list[Message], theirs: list[Message]) -> list[Message]:
    return WorkingContext(messages=mine).merge(WorkingContext(messages=theirs), mode="union").messages


# -- concat and union --------------------------------------------------------------------------------------------------


@given(message_lists(), message_lists())
def test_concat_appends_verbatim(mine: list[Message], theirs: list[Message]) -> None:
    ctx, other = WorkingContext(messages=mine), WorkingContext(messages=theirs)
    assert ctx.merge(other) is ctx
    assert all(a is b for a, b in zip(ctx.messages, mine + theirs, strict=True))
    assert other.messages == theirs


@given(message_lists(), message_lists())
def test_union_appends_what_is_new(mine: list[Message], theirs: list[Message]) -> None:
    found = _merged(mine, theirs)
    expected = mine + union_of(mine, theirs)
    assert len(found) == len(expected)
    assert all(a is b for a, b in zip(found, expected, strict=True))
    assert all(message in found for message in theirs)
    if not any(message.tool_calls for message in theirs):
        assert len(set(found[len(mine) :]) | set(mine)) == len(set(mine)) + len(found) - len(mine)
        assert _merged(found, theirs) == found


def test_union_removes_what_siblings_share() -> None:
    hit = Message("tool", "cert expired 2026-08-01", name="lookup")
    a, b = WorkingContext().append(hit), WorkingContext().append(hit)
    assert WorkingContext().merge(a, mode="union").merge(b, mode="union").messages == [hit]
    assert WorkingContext().merge(a).merge(b).messages == [hit, hit]


def test_p11_calls_of_one_id_keep_their_own_results() -> None:
    shared = [USER, _call("c", 1), _result("c")]
    found = _merged(shared, [USER, _call("c", 2), _result("c")])
    assert found == [*shared, _call("c", 2), _result("c")]
    assert _merged(shared, shared) == shared


P11: dict[str, tuple[list[Message], list[Message], list[Message]]] = {
    "a result of a known call": ([_call("a"), _result("a")], [_call("a"), _result("a")], []),
    "a result of a new call": ([_result("a")], [_call("a"), _result("a")], [_call("a"), _result("a")]),
    "a second equal result": (
        [], [_call("a"), _result("a"), _result("a")], [_call("a"), _result("a")],
    ),
    "two results that differ": (
        [], [_call("a"), _result("a", "1"), _result("a", "2")], [_call("a"), _result("a", "1"), _result("a", "2")],
    ),
    "one result per new call": (
        [], [_call("a", 1), _result("a"), _call("a", 2), _result("a")],
        [_call("a", 1), _result("a"), _call("a", 2), _result("a")],
    ),
    "two calls without ids in one turn": (
        [],
        [Message("assistant", tool_calls=[ToolCall("", "f"), ToolCall("", "g")]), _result(""), _result("")],
        [Message("assistant", tool_calls=[ToolCall("", "f"), ToolCall("", "g")]), _result(""), _result("")],
    ),
    "result without an id": (
        [Message("tool", "ok")],
        [Message("assistant", tool_calls=[ToolCall("", "f")]), Message("tool", "ok")],
        [Message("assistant", tool_calls=[ToolCall("", "f")]), Message("tool", "ok")],
    ),
    "known call behind a new one of its id": (
        [_call("a", 1), _result("a")], [_call("a", 2), _call("a", 1), _result("a")], [_call("a", 2)],
    ),
    "user text between": (
        [_result("a")], [_call("a"), USER, _result("a")], [_call("a"), USER, _result("a")],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("mine", "theirs", "appended"), P11.values(), ids=P11)
def test_p11_results_come_along_with_new_calls(
    mine: list[Message], theirs: list[Message], appended: list[Message]
) -> None:
    assert _merged(mine, theirs) == mine + appended


def test_values_that_python_takes_for_equal_merge_as_one() -> None:
    """Equality of arguments is Python's."""
    assert _merged([_call("a", 1)], [_call("a", True)]) == [_call("a", 1)]


@pytest.mark.parametrize("mode", ["concat", "union"])
def test_scratchpad_and_journal_are_taken_over(mode: str) -> None:
    entry = {"author": "b"}
    ctx = WorkingContext(scratchpad={"a": 1, "b": 1}, journal=MutationJournal([{"author": "a"}]))
    other = WorkingContext(scratchpad={"b": [2], "c": {"d": [3]}}, journal=MutationJournal([entry]))
    ctx.merge(other, mode=mode)
    assert ctx.scratchpad == {"a": 1, "b": [2], "c": {"d": [3]}}
    assert ctx.journal.view() == ({"author": "a"}, {"author": "b"})
    assert ctx.journal.view()[1] is entry
    assert ctx.journal.diff() == [entry]
    ctx.get("c")["d"].append(4)
    assert other.get("c") == {"d": [3]}


def test_notes_arrive_thawed() -> None:
    snap = WorkingContext().note("plan", {"steps": ["a"]}).freeze()
    ctx = WorkingContext().merge(WorkingContext(scratchpad=dict(snap.scratchpad)))
    ctx.get("plan")["steps"].append("b")
    assert dict(snap.scratchpad) == {"plan": {"steps": ["a"]}}


@pytest.mark.parametrize(("mode", "tail"), [("concat", 3), ("union", 2)])
def test_fork_then_merge_repeats_shared_history(mode: str, tail: int) -> None:
    """The tail in concat, the journal in both."""
    parent = WorkingContext().append(USER)
    parent.journal.record(1)
    child = parent.fork().append(ANSWER)
    child.journal.record(2)
    parent.merge(child, mode=mode)
    assert parent.size() == tail
    assert parent.journal.view() == (1, 1, 2)


@pytest.mark.parametrize(("mode", "size"), [("concat", 4), ("union", 2)])
def test_merging_into_itself_ends(mode: str, size: int) -> None:
    ctx = WorkingContext(messages=[USER, ANSWER], journal=MutationJournal([1]), scratchpad={"a": [1]})
    ctx.merge(ctx, mode=mode)
    assert ctx.size() == size
    assert ctx.journal.size() == 2
    assert ctx.scratchpad == {"a": [1]}


def test_prefix_of_self_stays() -> None:
    mine, theirs = PrefixContext("mine"), PrefixContext("theirs")
    ctx = WorkingContext(mine).merge(WorkingContext(theirs))
    assert ctx.prefix is mine


class Counted(Message):
    """Counts how often messages are compared."""

    comparisons = 0

    def __eq__(self, other: object) -> bool:
        Counted.comparisons += 1
        return super().__eq__(other)

    __hash__ = Message.__hash__


@pytest.mark.parametrize("size", [100, 1_000])
def test_union_is_linear(size: int) -> None:
    def made(word: str) -> list[Message]:
        return [Counted("user", f"{word} {i}") for i in range(size)]

    Counted.comparisons = 0
    found = _merged(made("a"), made("a") + made("b"))
    assert len(found) == 2 * size
    assert Counted.comparisons <= 4 * size


# -- delta -------------------------------------------------------------------------------------------------------------


@given(message_lists(), message_lists(), message_lists(), message_lists())
def test_delta_repeats_no_shared_message(
    shared: list[Message], mine: list[Message], theirs: list[Message], later: list[Message]
) -> None:
    parent = WorkingContext(messages=shared)
    child = parent.fork().extend(theirs)
    parent.extend(mine)
    parent.merge(child, mode="delta")
    assert parent.messages == shared + mine + theirs
    parent.merge(child, mode="delta")
    assert parent.size() == len(shared + mine + theirs)
    child.extend(later)
    parent.merge(child, mode="delta")
    assert parent.messages == shared + mine + theirs + later
    assert child.messages == shared + theirs + later


def test_delta_ships_journal_entries_once() -> None:
    parent = WorkingContext(journal=MutationJournal([0]))
    child = parent.fork()
    child.journal.record(1)
    child.journal.mark_committed()  # the child's own reader is somebody else
    parent.merge(child, mode="delta").merge(child, mode="delta")
    child.journal.record(2)
    parent.merge(child, mode="delta")
    assert parent.journal.view() == (0, 1, 2)
    assert parent.journal.diff() == [1, 2]


def test_delta_ships_changed_notes_alone() -> None:
    parent = WorkingContext(scratchpad={"kept": 1, "changed": [1], "deleted": 1, "both": 1})
    child = parent.fork()
    parent.note("kept", 2).note("both", 2).note("mine", 1)
    child.get("changed").append(2)
    child.note("both", 3).note("new", {"a": [1]})
    del child.scratchpad["deleted"]
    parent.merge(child, mode="delta")
    assert parent.scratchpad == {"kept": 2, "changed": [1, 2], "both": 3, "mine": 1, "new": {"a": [1]}}
    parent.get("new")["a"].append(2)
    assert child.get("new") == {"a": [1]}
    parent.note("new", 5)
    assert parent.merge(child, mode="delta").get("new") == 5


def test_delta_sees_objects_that_were_changed_in_place() -> None:
    parent = WorkingContext(scratchpad={"plan": Plan(["a"]), "same": Plan(["x"]), "nested": [Plan(["n"])]})
    child = parent.fork()
    parent.get("same").steps.append("y")
    child.get("plan").steps.append("b")
    child.get("nested")[0].steps.append("m")
    parent.merge(child, mode="delta")
    assert parent.scratchpad == {"plan": Plan(["a", "b"]), "same": Plan(["x", "y"]), "nested": [Plan(["n", "m"])]}


def test_delta_leaves_objects_alone_that_compare_by_identity() -> None:
    handle = Handle()
    parent = WorkingContext(scratchpad={"handle": handle})
    child = parent.fork().append(USER)
    parent.merge(child, mode="delta")
    assert parent.get("handle") is handle
    child.note("handle", Handle())
    assert parent.merge(child, mode="delta").get("handle") is not handle


def test_delta_of_a_slice() -> None:
    parent = WorkingContext(messages=[USER, ANSWER, Message("user", "q2"), Message("assistant", "a2")])
    child = parent.slice(LastNTurns(1)).append(Message("assistant", "found"))
    child.note("k", 1).journal.record(1)
    parent.merge(child, mode="delta")
    assert [m.content for m in parent.messages] == ["q", "a", "q2", "a2", "found"]
    assert parent.get("k") == 1
    assert parent.journal.view() == (1,)


def test_delta_after_the_parent_was_compacted() -> None:
    """Only the child's own head has to stand."""
    parent = WorkingContext(messages=[USER, ANSWER])
    child = parent.fork().append(Message("assistant", "found"))
    parent.rewrite(2, [Message("user", "summary")], version=0)
    parent.merge(child, mode="delta")
    assert [m.content for m in parent.messages] == ["summary", "found"]


def test_delta_ships_what_a_grandchild_shipped() -> None:
    parent = WorkingContext(messages=[USER])
    child = parent.fork()
    grandchild = child.fork().append(ANSWER)
    child.merge(grandchild, mode="delta")
    assert parent.merge(child, mode="delta").messages == [USER, ANSWER]
    with pytest.raises(MergeError):
        parent.merge(grandchild, mode="delta")


def _stranger(parent: WorkingContext) -> WorkingContext:
    return WorkingContext(messages=parent.messages)


def _cleared(parent: WorkingContext) -> WorkingContext:
    return parent.fork().append(ANSWER).clear_messages()


def _rewritten(parent: WorkingContext) -> WorkingContext:
    return parent.fork().append(ANSWER).rewrite(1, [Message("user", "summary")], version=0)


def _edited(parent: WorkingContext) -> WorkingContext:
    child = parent.fork()
    child.messages[0] = Message("user", "edited")
    return child


def _shortened(parent: WorkingContext) -> WorkingContext:
    child = parent.fork()
    child.messages.pop()
    return child


@pytest.mark.parametrize(
    "make",
    [_stranger, _cleared, _rewritten, _edited, _shortened, lambda p: p, lambda p: p.fork().fork(), WorkingContext.fork],
    ids=["stranger", "cleared", "rewritten", "edited", "shortened", "itself", "grandchild", "sound"],
)
def test_delta_needs_a_shared_head(make: Any) -> None:
    parent = WorkingContext(messages=[USER])
    child = make(parent)
    child.note("k", 1)
    kept = pickle.dumps(parent)
    if child is not parent and make is WorkingContext.fork:
        assert parent.merge(child, mode="delta").get("k") == 1
        return
    with pytest.raises(MergeError) as refused:
        parent.merge(child, mode="delta")
    assert isinstance(refused.value, AgentKitError)
    assert isinstance(refused.value, ValueError)
    assert parent == pickle.loads(kept)


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["concat", "union", "delta"])
@pytest.mark.parametrize(
    ("mine", "theirs", "allowed"),
    [
        (None, None, True), (Scope(1), None, True), (None, Scope(1), True), (Scope(1), Scope(1), True),
        (Scope(1), Scope(2), False), (Scope(1), Scope("1"), False), (Scope(1), Scope(1, 0), False),
    ],
    ids=str,
)  # fmt: skip
def test_t1_contexts_of_two_tenants_never_merge(
    mine: Scope | None, theirs: Scope | None, allowed: bool, mode: str
) -> None:
    parent = WorkingContext(messages=[USER])
    child = parent.fork().append(ANSWER).note("secret", "s")
    parent.scope, child.scope = mine, theirs
    kept = pickle.dumps(parent)
    if allowed:
        assert parent.merge(child, mode=mode).get("secret") == "s"
        assert parent.scope == mine
        return
    with pytest.raises(ScopeError) as refused:
        parent.merge(child, mode=mode)
    assert isinstance(refused.value, PermissionError)
    assert "secret" not in str(refused.value)
    assert parent == pickle.loads(kept)


@pytest.mark.parametrize("mode", ["append", "", "CONCAT", None, 1], ids=repr)
def test_unknown_mode_is_named(mode: Any) -> None:
    with pytest.raises(ValueError, match=r"unknown merge mode .*; known are concat, union, delta"):
        WorkingContext().merge(WorkingContext().append(USER), mode=mode)


class Uncopyable:
    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        raise RuntimeError("no copy")


@pytest.mark.parametrize("mode", ["concat", "union", "delta"])
def test_failing_merge_changes_nothing(mode: str) -> None:
    parent = WorkingContext(messages=[USER], scratchpad={"a": 1, "b": 2}, journal=MutationJournal([1]))
    child = parent.fork().append(ANSWER).note("a", 2)
    del child.scratchpad["b"]
    child.journal.record(2)
    child.note("bad", Uncopyable())
    kept = {f.name: pickle.dumps(getattr(parent, f.name)) for f in fields(parent)}
    with pytest.raises(RuntimeError, match="no copy"):
        parent.merge(child, mode=mode)
    assert {f.name: pickle.dumps(getattr(parent, f.name)) for f in fields(parent)} == kept
    del child.scratchpad["bad"]
    parent.merge(child, mode="delta")
    assert (parent.messages, parent.scratchpad, parent.journal.view()) == ([USER, ANSWER], {"a": 2}, (1, 2))


def test_failing_delta_keeps_the_fork_point() -> None:
    parent = WorkingContext()
    loop: list[Any] = []
    loop.append(loop)
    child = parent.fork().append(USER).note("loop", loop)
    with pytest.raises(FreezeError):
        parent.merge(child, mode="delta")
    del child.scratchpad["loop"]
    assert parent.merge(child, mode="delta").messages == [USER]


@given(message_lists(), st.sampled_from(["concat", "union", "delta"]))
def test_merge_leaves_the_other_as_it_is(messages: list[Message], mode: str) -> None:
    parent = WorkingContext()
    child = parent.fork().extend(messages).note("k", {"a": [1]})
    kept = pickle.dumps(child)
    parent.merge(child, mode=mode)
    parent.append(USER).get("k")["a"].append(2)
    assert child == pickle.loads(kept)
