"""Scopes: what each keeps, and combinators that mean the same at any depth."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, fields
from typing import Any

import pytest
from hypothesis import given

from agentkit.core.contracts.errors import AgentKitError, PositionalScopeError
from agentkit.core.contracts.types import Message, mark, marked
from agentkit.state.context import (
    AllOf,
    AnyOf,
    ContextScope,
    LastNTurns,
    Not,
    PositionalScope,
    RoleFilter,
    Since,
    Tagged,
    WorkingContext,
    surviving_indices,
)
from tests.context_strategies import FirstAndFar, Odd, message_lists, scopes

PAIRS = [Message("system", "House rules.")]
for number in range(3):
    PAIRS += [Message("user", f"q{number}"), Message("assistant", f"a{number}")]
SYSTEM = RoleFilter({"system"})  # type: ignore[arg-type]


def _texts(scope: Any, messages: list[Message] = PAIRS) -> list[str]:
    return [m.content for m in WorkingContext(messages=messages).slice(scope).messages]


TABLE: dict[str, tuple[Any, list[str]]] = {
    "last turn": (LastNTurns(1), ["House rules.", "q2", "a2"]),
    "last two turns": (LastNTurns(2), ["House rules.", "q1", "a1", "q2", "a2"]),
    "window without system": (AllOf((LastNTurns(2), Not(SYSTEM))), ["q1", "a1", "q2", "a2"]),
    "more turns than there are": (LastNTurns(9), [m.content for m in PAIRS]),
    "no turn": (LastNTurns(0), ["House rules."]),
    "fewer than no turn": (LastNTurns(-3), ["House rules."]),
    "outside the window": (Not(LastNTurns(2)), ["q0", "a0"]),
    "window and role": (AllOf((LastNTurns(2), RoleFilter(frozenset({"user"})))), ["q1", "q2"]),
    "window or role": (
        AnyOf((LastNTurns(1), RoleFilter(frozenset({"user"})))),
        ["House rules.", "q0", "q1", "q2", "a2"],
    ),
    "role": (RoleFilter(frozenset({"user"})), ["q0", "q1", "q2"]),
    "no role": (RoleFilter(frozenset()), []),
    "since": (Since(5), ["q2", "a2"]),
    "since before the start": (Since(-3), [m.content for m in PAIRS]),
    "since behind the end": (Since(99), []),
    "all of nothing": (AllOf(()), [m.content for m in PAIRS]),
    "any of nothing": (AnyOf(()), []),
    "own plain scope": (Odd(), ["q0", "q1", "q2"]),
    "own positional scope": (FirstAndFar(), ["House rules."]),
    "own scopes combined": (AllOf((Not(Odd()), Not(FirstAndFar()))), ["a0", "a1", "a2"]),
    "index is that of the whole list": (AllOf((LastNTurns(1), Since(6))), ["a2"]),
}


@pytest.mark.parametrize(("scope", "expected"), TABLE.values(), ids=TABLE)
def test_scope_keeps(scope: Any, expected: list[str]) -> None:
    assert _texts(scope) == expected
    assert [PAIRS[i].content for i in sorted(surviving_indices(scope, PAIRS))] == expected


def test_tagged_goes_by_name() -> None:
    found = [Message("user", "a", "x"), Message("user", "b"), Message("tool", "c", "x"), Message("user", "d", "X")]
    assert _texts(Tagged("x"), found) == ["a", "c"]
    assert _texts(Tagged(""), found) == []


def test_turns_begin_at_user_messages() -> None:
    found = [Message("assistant", "a"), Message("user", "b"), Message("user", "c"), Message("tool", "d")]
    assert _texts(LastNTurns(1), found) == ["c", "d"]
    assert _texts(LastNTurns(2), found) == ["b", "c", "d"]
    assert _texts(LastNTurns(3), found) == ["a", "b", "c", "d"]
    assert _texts(LastNTurns(1), [Message("assistant", "a"), Message("developer", "b")]) == ["a", "b"]


def test_summary_is_kept_like_a_system_message() -> None:
    summary = mark(Message("user", "s"), "summary", covers=9)
    found = [summary, *PAIRS[1:]]
    assert _texts(LastNTurns(1), found) == ["s", "q2", "a2"]
    assert _texts(LastNTurns(0), found) == ["s"]
    assert _texts(LastNTurns(3), found) == ["s", "q0", "a0", "q1", "a1", "q2", "a2"]


# -- against a brute-force oracle --------------------------------------------------------------------------------------


def _oracle(scope: Any, messages: list[Message]) -> list[bool]:
    """Message by message, from the sentences of the contract."""
    match scope:
        case LastNTurns(n):
            standing = [m.role == "system" or marked(m, "summary") is not None for m in messages]
            starts = [i for i, m in enumerate(messages) if m.role == "user" and not standing[i]]
            if n <= 0:
                first = len(messages)
            else:
                first = 0 if len(starts) < n else starts[-n]
            return [keep or i >= first for i, keep in enumerate(standing)]
        case RoleFilter(roles):
            return [m.role in roles for m in messages]
        case Tagged(tag):
            return [m.name == tag for m in messages]
        case Since(start):
            return [i >= start for i in range(len(messages))]
        case AllOf(scopes):
            return [all(column) for column in zip(*[_oracle(s, messages) for s in scopes], strict=True)] or [
                True for _ in messages
            ]
        case AnyOf(scopes):
            return [any(column) for column in zip(*[_oracle(s, messages) for s in scopes], strict=True)] or [
                False for _ in messages
            ]
        case Not(inner):
            return [not keep for keep in _oracle(inner, messages)]
        case Odd():
            return [i % 2 == 1 for i in range(len(messages))]
        case FirstAndFar():
            return [i == 0 for i in range(len(messages))]
    raise AssertionError(scope)


@given(scopes(), message_lists())
def test_nested_scopes_follow_the_oracle(scope: Any, messages: list[Message]) -> None:
    expected = [m for m, keep in zip(messages, _oracle(scope, messages), strict=True) if keep]
    ctx = WorkingContext(messages=messages)
    sliced = ctx.slice(scope)
    assert len(sliced.messages) == len(expected) <= len(messages)
    assert all(a is b for a, b in zip(sliced.messages, expected, strict=True))
    assert all(a is b for a, b in zip(ctx.messages, messages, strict=True))


@given(scopes(), scopes(), message_lists())
def test_combinators_obey_the_laws_of_sets(a: Any, b: Any, messages: list[Message]) -> None:
    def kept(scope: Any) -> set[int]:
        return surviving_indices(scope, messages)

    everything = set(range(len(messages)))
    assert kept(AllOf((a, b))) == kept(AllOf((b, a))) == kept(a) & kept(b)
    assert kept(AnyOf((a, b))) == kept(a) | kept(b)
    assert kept(Not(a)) == everything - kept(a)
    assert kept(Not(AllOf((a, b)))) == kept(AnyOf((Not(a), Not(b))))
    assert kept(AllOf((a, AllOf((a, b))))) == kept(AllOf((a, b)))


def _is_positional(scope: Any) -> bool:
    if isinstance(scope, Not):
        return _is_positional(scope.scope)
    if isinstance(scope, (AllOf, AnyOf)):
        return any(map(_is_positional, scope.scopes))
    return isinstance(scope, (LastNTurns, FirstAndFar))


@given(scopes(), message_lists())
def test_matches_answers_or_refuses(scope: Any, messages: list[Message]) -> None:
    expected = _oracle(scope, messages)
    for index, message in enumerate(messages):
        if isinstance(scope, FirstAndFar):
            continue
        if _is_positional(scope):
            with pytest.raises(PositionalScopeError):
                scope.matches(message, index)
        else:
            assert scope.matches(message, index) == expected[index]


@pytest.mark.parametrize(
    "scope",
    [LastNTurns(1), AllOf((SYSTEM, LastNTurns(1))), AnyOf((Not(Not(LastNTurns(1))),)), Not(FirstAndFar())],
    ids=["bare", "in AllOf", "three deep", "own"],
)
def test_refusal_is_a_typed_error_that_says_what_to_do(scope: Any) -> None:
    with pytest.raises(PositionalScopeError, match=r"ctx\.slice\(scope\) or surviving_indices") as refused:
        scope.matches(PAIRS[0], 0)
    assert isinstance(refused.value, AgentKitError)
    assert isinstance(refused.value, TypeError)


def test_empty_combinator_with_a_positional_scope_refuses_all_the_same() -> None:
    """Which child decides is no reason to guess about another."""
    with pytest.raises(PositionalScopeError):
        AllOf((RoleFilter(frozenset()), LastNTurns(1))).matches(PAIRS[0], 0)
    with pytest.raises(PositionalScopeError):
        AnyOf((Not(RoleFilter(frozenset())), LastNTurns(1))).matches(PAIRS[0], 0)


# -- values ------------------------------------------------------------------------------------------------------------


@given(scopes())
def test_scopes_are_values(scope: Any) -> None:
    for field in fields(scope):
        with pytest.raises(FrozenInstanceError):
            setattr(scope, field.name, None)
    for copied in (pickle.loads(pickle.dumps(scope)), copy.deepcopy(scope)):
        assert copied == scope
        assert hash(copied) == hash(scope)


def test_iterables_are_taken() -> None:
    several: Any = [SYSTEM, Since(1)]
    assert AllOf(several) == AllOf(tuple(several)) == AllOf(iter(several))
    assert AnyOf(several).scopes == tuple(several)
    roles: Any = ["user", "user", "system"]
    assert RoleFilter(roles).roles == frozenset({"user", "system"})
    assert RoleFilter(iter(roles)) == RoleFilter(roles)


def test_protocols_tell_the_kinds_apart() -> None:
    for scope in (
        RoleFilter(frozenset()),
        Tagged("x"),
        Since(0),
        AllOf(()),
        AnyOf(()),
        Not(SYSTEM),
        LastNTurns(1),
        Odd(),
    ):
        assert isinstance(scope, ContextScope)
    for positional in (LastNTurns(1), AllOf(()), AnyOf(()), Not(SYSTEM), FirstAndFar()):
        assert isinstance(positional, PositionalScope)
    for plain in (RoleFilter(frozenset()), Tagged("x"), Since(0), Odd()):
        assert not isinstance(plain, PositionalScope)


WRONG: dict[str, tuple[Any, Any]] = {
    "LastNTurns.n must be an int, not str": (LastNTurns, "1"),
    "LastNTurns.n must be an int, not bool": (LastNTurns, True),
    "LastNTurns.n must be an int, not float": (LastNTurns, 1.0),
    "Since.checkpoint_index must be an int, not NoneType": (Since, None),
    "Tagged.tag must be a str, not NoneType": (Tagged, None),
    "RoleFilter takes a set of roles, not one str: RoleFilter({'user'})": (RoleFilter, "user"),
    "AllOf takes a sequence of scopes, not LastNTurns": (AllOf, LastNTurns(1)),
    "AnyOf takes a sequence of scopes, not str": (AnyOf, "ab"),
    "str is no scope: it needs matches(message, index) or _surviving_indices(messages)": (Not, "user"),
    "NoneType is no scope: it needs matches(message, index) or _surviving_indices(messages)": (AllOf, [None]),
    "int is no scope: it needs matches(message, index) or _surviving_indices(messages)": (AnyOf, [SYSTEM, 1]),
}


@pytest.mark.parametrize("text", WRONG)
def test_wrong_arguments_are_named_at_once(text: str) -> None:
    kind, given_value = WRONG[text]
    with pytest.raises(TypeError) as refused:
        kind(given_value)
    assert str(refused.value) == text


@pytest.mark.parametrize("wrong", [None, "user", len, LastNTurns], ids=["None", "text", "function", "class"])
def test_no_scope_is_no_slice(wrong: Any) -> None:
    with pytest.raises(TypeError, match="is no scope"):
        surviving_indices(wrong, PAIRS)
    with pytest.raises(TypeError, match="is no scope"):
        WorkingContext(messages=PAIRS).slice(wrong)


def test_scopes_may_judge_any_sequence() -> None:
    assert surviving_indices(LastNTurns(1), tuple(PAIRS)) == {0, 5, 6}
    assert surviving_indices(LastNTurns(1), ()) == set()
