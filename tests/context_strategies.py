"""What a context can hold, for property tests: plain data at any depth, objects that are none, messages that meet
their equals, nested scopes."""

from __future__ import annotations

import datetime
from collections import OrderedDict, defaultdict, namedtuple
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from agentkit.core.contracts.types import Message, ToolCall, mark
from agentkit.state.context import AllOf, AnyOf, LastNTurns, Not, RoleFilter, Since, Tagged

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


class Hostile:
    """Raises whatever it is asked."""

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise RuntimeError("no class")

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class HostileDict(dict[Any, Any]):
    def items(self) -> Any:
        raise RuntimeError("no items")

    __iter__ = keys = items


class HostileList(list[Any]):
    def __iter__(self) -> Any:
        raise RuntimeError("no items")


class Endless:
    def __str__(self) -> str:
        return f"{self}"


def _loop() -> list[Any]:
    loop: list[Any] = [1]
    loop.append({"self": loop})
    return loop


ODD: dict[str, Any] = {
    "hostile": Hostile(),
    "hostile dict": HostileDict(a=1),
    "hostile list": HostileList([1]),
    "endless": Endless(),
    "object": Handle(),
    "class": Handle,
    "function": len,
    "odd keys": {(1, 2): 1, None: 2, 3.5: 3, True: 4, b"x": 5, "s": 6, Handle(): 7},
    "mixed keys": {1: "a", "1": "b"},
    "sets": {"s": {1, "a", None}, "f": frozenset([(1, 2)])},
    "not finite": [float("nan"), float("inf"), -float("inf")],
    "surrogates": ["\ud800", {"\udfff": 1}],
    "bytes": [b"\xff", bytearray(b"a"), memoryview(b"b")],
    "huge number": 10**20_000,
    "cycle": _loop(),
    "complex": 1j,
    "nested hostile": {"a": [Hostile(), {"b": HostileDict(a=1)}]},
}


# -- scopes ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Odd:
    """A caller's own plain scope."""

    def matches(self, message: Message, index: int) -> bool:
        return index % 2 == 1


@dataclass(frozen=True)
class FirstAndFar:
    """A caller's own positional scope, which also names places that are not there."""

    def _surviving_indices(self, messages: Sequence[Message]) -> set[int]:
        return {0, -1, len(messages), 10**9}


def simple_scopes() -> st.SearchStrategy[Any]:
    return st.one_of(
        st.builds(LastNTurns, st.integers(-1, 4)),
        st.builds(RoleFilter, st.frozensets(st.sampled_from(["user", "assistant", "system"]))),
        st.builds(Tagged, st.sampled_from(["lookup", ""])),
        st.builds(Since, st.integers(-2, 12)),
        st.sampled_from([Odd(), FirstAndFar()]),
    )


def scopes(depth: int = 3) -> st.SearchStrategy[Any]:
    """Combinators nested up to `depth` deep."""
    if not depth:
        return simple_scopes()
    inner = scopes(depth - 1)
    several = st.lists(inner, max_size=3)
    return st.one_of(inner, st.builds(AllOf, several), st.builds(AnyOf, several), st.builds(Not, inner))


def union_of(mine: list[Message], theirs: list[Message]) -> list[Message]:
    """What a union appends to `mine`: new messages, and for each newly appended call one result, be it new or not."""
    new: list[Message] = []
    owed: list[str] = []
    for message in theirs:
        fresh = message not in mine and message not in new
        ids = [call.id for call in message.tool_calls]
        owed = owed + ids if fresh else [id for id in owed if id not in ids]
        answer = message.tool_call_id or ""
        along = message.role == "tool" and answer in owed
        if along:
            owed.remove(answer)
        if fresh or along:
            new.append(message)
    return new
