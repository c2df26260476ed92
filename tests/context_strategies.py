"""Strategies for what a context holds: plain data at any depth, leaves that are no plain data, and nested scopes."""

from __future__ import annotations

import datetime
from collections import OrderedDict, defaultdict, namedtuple
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from agentkit.core.contracts.types import Message, ToolCall, mark

Point = namedtuple("Point", "x y")


@dataclass
class Plan:
    """A caller's own mutable object that compares by value."""

    steps: list[str] = field(default_factory=list)


class Handle:
    """A caller's own object that compares by identity."""


def atoms() -> st.SearchStrategy[Any]:
    """Values without parts; no NaN, which is unequal to its own copy."""
    return st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=8), st.binary(max_size=4)
    )


def hashables() -> st.SearchStrategy[Any]:
    """What can be a dict key or inside a set."""
    return st.recursive(atoms(), lambda inner: st.tuples(inner) | st.frozensets(inner, max_size=2), max_leaves=3)


def plain_data() -> st.SearchStrategy[Any]:
    """Nested dicts, lists, tuples, sets and frozensets."""
    return st.recursive(
        atoms() | st.sets(hashables(), max_size=3) | st.frozensets(hashables(), max_size=3),
        lambda inner: st.one_of(
            st.lists(inner, max_size=4),
            st.lists(inner, max_size=3).map(tuple),
            st.dictionaries(hashables(), inner, max_size=4),
        ),
        max_leaves=12,
    )


def leaves() -> st.SearchStrategy[Any]:
    """Objects that freezing passes on by identity."""
    return st.sampled_from(
        [Point(1, [2]), defaultdict(list, a=[1]), OrderedDict(a=[1]), Plan(["a"]), Handle(), datetime.date(2026, 1, 2)]
    )


def json_data() -> st.SearchStrategy[Any]:
    """What JSON text can carry."""
    return st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=8,
    )


def nested(depth: int, *, leaf: Any = 1) -> Any:
    """A value of that many containers inside each other, of each kind in turn."""
    for level in range(depth):
        leaf = ([leaf], {"k": leaf}, (leaf,))[level % 3]
    return leaf


def simple_messages() -> st.SearchStrategy[Message]:
    """A small pool of messages, so that equal ones meet; some are equal and yet other objects."""

    def make(role: str, text: str, name: str | None) -> Message:
        return Message(role, text, name)

    calls = st.builds(
        lambda id, n: Message("assistant", "", tool_calls=[ToolCall(id, "f", {"n": n})]),
        st.sampled_from(["a", "b", ""]),
        st.sampled_from([1, True, 1.0, 2]),
    )
    results = st.builds(
        lambda id, text: Message("tool", text, tool_call_id=id), st.sampled_from(["a", "b", ""]), st.sampled_from("xy")
    )
    plain = st.builds(
        make,
        st.sampled_from(["user", "user", "assistant", "system", "developer"]),
        st.sampled_from(["", "q", "a long answer", "\ud800", "你好"]),
        st.sampled_from([None, None, "lookup"]),
    )
    summaries = st.integers(1, 3).map(lambda n: mark(Message("user", f"summary of {n}"), "summary", covers=n))
    return st.one_of(plain, plain, calls, results, summaries)


def message_lists(max_size: int = 12) -> st.SearchStrategy[list[Message]]:
    return st.lists(simple_messages(), max_size=max_size)
