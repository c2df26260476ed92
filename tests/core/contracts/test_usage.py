"""Usage: disjoint counters that add up, whatever the order."""

from __future__ import annotations

import copy
import pickle
import sys
from dataclasses import FrozenInstanceError, fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.core.contracts.types import Usage

COUNTERS = (
    "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "cache_write_long_tokens",
    "reasoning_tokens",
)  # fmt: skip


def usages() -> st.SearchStrategy[Usage]:
    counts = st.integers(0, 10**9)
    cost = st.floats(0, 1e6) | st.sampled_from([0.0000004, 0.0000005, 1e-7, 0.1, 0.2, 0.3])
    return st.builds(
        Usage, counts, counts, cost, counts, counts, cache_write_long_tokens=counts, reasoning_tokens=counts
    )


def test_fields_are_positional_in_the_order_of_the_contract() -> None:
    usage = Usage(1, 2, 0.5, 4, 5)
    assert (usage.input_tokens, usage.output_tokens, usage.cost_usd) == (1, 2, 0.5)
    assert (usage.cache_read_tokens, usage.cache_write_tokens) == (4, 5)
    assert [f.name for f in fields(Usage) if f.kw_only] == ["cache_write_long_tokens", "reasoning_tokens"]
    assert Usage() == Usage(0, 0, 0.0, 0, 0, cache_write_long_tokens=0, reasoning_tokens=0)
    with pytest.raises(FrozenInstanceError):
        usage.input_tokens = 2  # type: ignore[misc]


def test_totals_name_what_they_add() -> None:
    usage = Usage(100, 20, 0.0, 1_000, 50, cache_write_long_tokens=30, reasoning_tokens=10)
    assert usage.total_tokens == 120
    assert usage.prompt_tokens == 1_150


@given(usages(), usages())
def test_sum_is_fieldwise_and_commutative(a: Usage, b: Usage) -> None:
    for name in COUNTERS:
        assert getattr(a + b, name) == getattr(a, name) + getattr(b, name)
    assert (a + b).cost_usd == round(a.cost_usd + b.cost_usd, 6)
    assert a + b == b + a
    assert (a + b).prompt_tokens == a.prompt_tokens + b.prompt_tokens


@given(usages())
def test_empty_usage_is_the_identity(usage: Usage) -> None:
    assert usage + Usage() == usage == Usage() + usage
    assert sum([usage], Usage()) == usage


@given(usages(), usages(), usages())
def test_sum_is_associative_but_for_rounding(a: Usage, b: Usage, c: Usage) -> None:
    left, right = (a + b) + c, a + (b + c)
    assert abs(left.cost_usd - right.cost_usd) <= 5e-6
    assert all(getattr(left, name) == getattr(right, name) for name in COUNTERS)


@given(st.floats(0, 1e9))
def test_cost_is_rounded_at_construction(cost: float) -> None:
    assert Usage(cost_usd=cost).cost_usd == round(cost, 6)
    assert Usage(cost_usd=Usage(cost_usd=cost).cost_usd) == Usage(cost_usd=cost)
    assert type(Usage(cost_usd=1).cost_usd) is float


@pytest.mark.parametrize("name", COUNTERS)
@pytest.mark.parametrize("wrong", [True, 1.0, "1", None], ids=repr)
def test_counters_are_ints(name: str, wrong: Any) -> None:
    with pytest.raises(TypeError, match=rf"^Usage\.{name} must be an int, not {type(wrong).__name__}$"):
        Usage(**{name: wrong})


@pytest.mark.parametrize("name", COUNTERS)
def test_counters_are_not_negative(name: str) -> None:
    with pytest.raises(ValueError, match=rf"^Usage\.{name} must not be negative: -1$"):
        Usage(**{name: -1})


@pytest.mark.parametrize("cost", [-0.1, -1, float("nan"), float("inf"), -float("inf"), 10**400, -(10**400)], ids=str)
def test_cost_is_finite_and_not_negative(cost: float) -> None:
    with pytest.raises(ValueError, match="cost_usd must be finite and not negative"):
        Usage(cost_usd=cost)


@pytest.mark.parametrize("cost", ["1", None, True, 1j], ids=repr)
def test_cost_is_a_number(cost: Any) -> None:
    with pytest.raises(TypeError, match=r"Usage\.cost_usd must be a number"):
        Usage(cost_usd=cost)


def test_cost_may_be_as_large_as_a_float() -> None:
    assert Usage(cost_usd=sys.float_info.max).cost_usd == sys.float_info.max


def test_only_usages_add_up() -> None:
    number: Any = 1
    with pytest.raises(TypeError):
        Usage() + number
    with pytest.raises(TypeError):
        number + Usage()


@given(usages(), st.sampled_from(range(pickle.HIGHEST_PROTOCOL + 1)))
def test_copies_are_equal(usage: Usage, protocol: int) -> None:
    for copied in (pickle.loads(pickle.dumps(usage, protocol)), copy.deepcopy(usage)):
        assert copied == usage
        assert hash(copied) == hash(usage)
