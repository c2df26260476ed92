"""slice: a narrowed, independent context."""

from __future__ import annotations

from typing import Any

from hypothesis import given

from agentkit.core.contracts.types import Message, Scope, ToolCall, Usage
from agentkit.state.context import (
    AnyOf,
    CharClassTokenCounter,
    LastNTurns,
    MutationJournal,
    Not,
    PrefixContext,
    RoleFilter,
    WorkingContext,
)
from tests.context_strategies import message_lists, scopes

EVERYTHING = Not(AnyOf(()))


def _full() -> WorkingContext:
    journal = MutationJournal([1])
    journal.record(2)
    return WorkingContext(
        PrefixContext("prompt"),
        [Message("system", "rules"), Message("user", "q"), Message("assistant", "a")],
        {"plan": {"steps": ["a"]}},
        journal,
        CharClassTokenCounter(),
        10,
        True,
        scope=Scope(1),
    )


def test_slice_keeps_all_but_messages_and_shared() -> None:
    ctx = _full()
    sliced = ctx.slice(RoleFilter(frozenset({"user"})))
    assert sliced.messages == [Message("user", "q")]
    assert sliced.prefix is ctx.prefix
    assert sliced.token_counter is ctx.token_counter
    assert (sliced.limit, sliced.scope, sliced.scratchpad) == (10, Scope(1), ctx.scratchpad)
    assert sliced.journal == ctx.journal
    assert sliced.journal.committed_index == 1
    assert sliced.shared is False
    assert ctx.slice(EVERYTHING, shared=True).shared is True
    assert sliced.lock is not ctx.lock


def test_slice_is_independent() -> None:
    ctx = _full()
    sliced = ctx.slice(EVERYTHING)
    sliced.append(Message("user", "new")).get("plan")["steps"].append("b")
    sliced.journal.record(3)
    sliced.journal.mark_committed()
    assert ctx == _full()
    ctx.clear_messages()
    assert sliced.size() == 4


def test_slice_begins_without_a_report() -> None:
    """What a provider reported was about other messages."""
    ctx = _full()
    ctx.record_usage(Usage(100), layout=ctx.segments())
    assert ctx.count().source == "provider"
    assert ctx.slice(EVERYTHING).count().source == "estimate"
    assert ctx.slice(EVERYTHING).version == 0


def test_slice_may_orphan_a_result() -> None:
    call = Message("assistant", tool_calls=[ToolCall("c", "f")])
    result = Message("tool", "r", tool_call_id="c")
    sliced = WorkingContext(messages=[call, result]).slice(RoleFilter(frozenset({"tool"})))
    assert sliced.messages == [result]


@given(scopes(), message_lists())
def test_slice_never_grows_and_slicing_again_is_possible(scope: Any, messages: list[Message]) -> None:
    ctx = WorkingContext(messages=messages)
    once = ctx.slice(scope)
    assert once.size() <= ctx.size()
    assert once.slice(scope).size() <= once.size()
    assert ctx.messages == messages


def test_scratchpad_of_a_slice_is_thawed() -> None:
    snap = _full().freeze()
    sliced = WorkingContext(scratchpad=dict(snap.scratchpad)).slice(LastNTurns(1))
    sliced.get("plan")["steps"].append("b")
    assert dict(snap.scratchpad) == {"plan": {"steps": ["a"]}}
