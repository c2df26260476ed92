"""stable_hash: equal for equal content, different for the rest, the same in every process."""

from __future__ import annotations

import datetime as dt
import itertools
import re
import subprocess
import sys
import uuid
from collections import OrderedDict, UserDict, UserList, deque
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum, Flag, IntEnum
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.core.contracts.frozen import deep_freeze
from agentkit.core.contracts.types import Message, Scope, ToolCall, Usage, stable_hash
from tests.context_strategies import Handle, Point, nested, plain_data


class Colour(Enum):
    RED = 1
    BLUE = 2


class Level(IntEnum):
    RED = 1


class Right(Flag):
    READ = 1
    WRITE = 2


@dataclass(frozen=True)
class Pair:
    x: Any
    y: Any = None


@dataclass(frozen=True)
class Other:
    x: Any
    y: Any = None


DISTINCT: list[Any] = [
    None, True, False, 0, 1, -1, 10**5_000, 1.0, 0.0, -0.0, 0.1, float("inf"), float("nan"), "", "1", "1.0", "None",
    "\ud800", "\x00", b"", b"1", [], [[]], [None], [1], ["1"], [1, 2], [2, 1], [[1], 2], {}, {"a": 1}, {"a": "1"},
    {1: "a"}, {"1": "a"}, {True: "a"}, {"a": {"b": 1}}, {"a": None}, set(), {1}, {"1"}, {1, 2}, Colour.RED, Colour.BLUE,
    Level.RED, Right(0), Right.READ, Right.READ | Right.WRITE, Decimal(1), Decimal("1.1"), uuid.UUID(int=1),
    dt.date(2026, 1, 2), dt.datetime(2026, 1, 2), dt.datetime(2026, 1, 2, tzinfo=dt.UTC), dt.time(1, 2), Pair(1),
    Pair(1, 2), Pair(2, 1), Other(1), Pair([1, None]), Scope(1), Scope("1"), Usage(), ToolCall("c", "f"),
    ToolCall("c", "f", {"n": 1}), ToolCall("c", "f", {"n": True}), Message("user", "a"),
    Message("user", "a", meta={"x": 1}), [{"a": [1]}, {"b": [2]}], [{"a": [1], "b": [2]}], [["a", 1]],
]  # fmt: skip


def test_different_values_have_different_hashes() -> None:
    hashes = [stable_hash(value) for value in DISTINCT]
    twins = [
        (DISTINCT[a], DISTINCT[b]) for a, b in itertools.combinations(range(len(DISTINCT)), 2) if hashes[a] == hashes[b]
    ]
    assert twins == []
    assert all(re.fullmatch("[0-9a-f]{64}", found) for found in hashes)


def _shuffled(value: Any, random: Any) -> Any:
    """The same content, mappings and sets built in another order, tuples as lists."""
    if isinstance(value, dict):
        items = [(k, _shuffled(v, random)) for k, v in value.items()]
        random.shuffle(items)
        return dict(items)
    if isinstance(value, (list, tuple)):
        return [_shuffled(v, random) for v in value]
    if isinstance(value, (set, frozenset)):
        members = list(value)
        random.shuffle(members)
        return set(members)
    return value


@given(plain_data(), st.randoms())
def test_k2_order_of_mappings_and_sets_is_no_content(value: Any, random: Any) -> None:
    assert stable_hash(_shuffled(value, random)) == stable_hash(value)
    assert stable_hash(deep_freeze(value)) == stable_hash(value)


@given(plain_data(), plain_data())
def test_equal_hashes_mean_equal_values(left: Any, right: Any) -> None:
    if stable_hash(left) == stable_hash(right):
        assert repr(_sorted(left)) == repr(_sorted(right))


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return "map", sorted(((repr(_sorted(k)), repr(_sorted(v))) for k, v in value.items()))
    if isinstance(value, (set, frozenset)):
        return "set", sorted(repr(_sorted(v)) for v in value)
    return [_sorted(v) for v in value] if isinstance(value, (list, tuple)) else value


@pytest.mark.parametrize(
    "same",
    [
        [[1, 2], (1, 2), deque([1, 2]), UserList([1, 2]), Point(1, 2), range(1, 3)],
        [{"a": 1}, OrderedDict(a=1), MappingProxyType({"a": 1}), UserDict(a=1)],
        [{1, 2}, frozenset({1, 2}), {1: None, 2: None}.keys()],
        [b"ab", bytearray(b"ab"), memoryview(b"ab")],
    ],
    ids=["sequences", "mappings", "sets", "bytes"],
)
def test_kinds_of_one_content_hash_equal(same: list[Any]) -> None:
    assert len({stable_hash(value) for value in same}) == 1


def _generator() -> Iterator[int]:
    yield 1


@pytest.mark.parametrize(
    "value",
    [object(), Handle(), len, Handle, _generator(), 1j, Pair, ..., re.compile("a"), dt.timedelta(1)],
    ids=[
        "object",
        "own object",
        "function",
        "class",
        "generator",
        "complex",
        "dataclass type",
        "...",
        "pattern",
        "delta",
    ],
)
def test_what_has_no_content_is_refused(value: Any) -> None:
    for held in (value, [value], {"a": value}, Pair(value)):
        with pytest.raises(
            TypeError, match=f"cannot hash a {type(value).__name__} by content; pass plain data instead"
        ):
            stable_hash(held)


def test_cycle_is_refused() -> None:
    loop: list[Any] = []
    loop.append({"k": loop})
    with pytest.raises(ValueError, match="contains itself"):
        stable_hash(loop)


@pytest.mark.parametrize("depth", [100, 400, 20_000])
def test_g1_any_depth_is_hashed(depth: int) -> None:
    assert stable_hash(nested(depth)) != stable_hash(nested(depth - 1))


def test_shared_values_cost_once_each() -> None:
    """Sixty levels that each hold the level below twice are 2 ** 60 places and sixty values."""
    value: Any = ["x"]
    for _ in range(60):
        value = [value, value]
    assert stable_hash(value) == stable_hash(list(value))


def test_shared_values_hash_as_their_copies() -> None:
    shared = {"a": [1]}
    assert stable_hash([shared, shared]) == stable_hash([{"a": [1]}, {"a": [1]}])
    assert stable_hash([[], []]) == stable_hash([[]] * 2)


PRINT_ONE = """
import datetime, uuid, decimal, enum
from agentkit.core.contracts.types import *
C = enum.Enum("C", "A B")
value = {"s": {"a", "b", "c", 1, None}, "m": {"x": 1, 2: (3, [4])}, "e": C.A, "d": datetime.datetime(2026, 1, 2),
         "u": uuid.UUID(int=5), "n": decimal.Decimal("1.50"), "t": ToolCall("c", "f", {"b": 1, "a": {2, 3}})}
print(stable_hash(value))
"""


def test_g4_hash_is_the_same_in_every_process() -> None:
    runs = [
        subprocess.run(
            [sys.executable, "-c", PRINT_ONE], capture_output=True, text=True, env={"PYTHONHASHSEED": seed}, timeout=60
        )
        for seed in ("0", "1", "4711")
    ]
    assert {run.returncode for run in runs} == {0}, runs[0].stderr
    assert len({run.stdout for run in runs}) == 1
