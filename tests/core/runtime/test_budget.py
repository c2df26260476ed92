"""A budget is exact, refuses what it cannot afford, and bills the call that crosses a limit."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from agentkit.core.contracts.errors import MeterExceeded
from agentkit.core.contracts.types import Usage
from agentkit.core.runtime import Budget

CENT = Usage(10, 5, 0.01)


def test_crossing_call_is_billed() -> None:
    budget = Budget(max_cost_usd=0.015)
    budget.charge(CENT)
    budget.guard()
    with pytest.raises(MeterExceeded, match=r"0\.020000 USD were spent, 0\.015000 were allowed"):
        budget.charge(CENT)
    assert budget.spent == Usage(20, 10, 0.02)
    with pytest.raises(MeterExceeded):
        budget.guard()


def test_very_first_call_can_cross() -> None:
    budget = Budget(max_cost_usd=0.001)
    budget.guard()
    with pytest.raises(MeterExceeded):
        budget.charge(CENT)
    assert budget.calls == 1


def test_calls_are_limited() -> None:
    budget = Budget(max_calls=2)
    for _ in range(2):
        budget.guard()
        budget.charge(Usage())
    with pytest.raises(MeterExceeded, match="2 of 2 calls"):
        budget.guard()
    with pytest.raises(MeterExceeded):
        budget.charge(Usage())
    assert budget.calls == 3


def test_totals_are_exact_across_threads() -> None:
    budget = Budget()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: budget.charge(CENT), range(4000)))
    assert (budget.calls, budget.spent) == (4000, Usage(40_000, 20_000, 40.0))


def test_no_limits_by_default() -> None:
    budget = Budget()
    budget.charge(Usage(cost_usd=1e6))
    budget.guard()


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("max_cost_usd", "1", TypeError),
        ("max_cost_usd", True, TypeError),
        ("max_cost_usd", float("nan"), ValueError),
        ("max_cost_usd", float("inf"), ValueError),
        ("max_cost_usd", -1, ValueError),
        ("max_calls", 1.5, TypeError),
        ("max_calls", -1, ValueError),
        ("max_depth", True, TypeError),
    ],
)
def test_bad_limits_are_named(name: str, value: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=name):
        Budget(**{name: value})


def test_only_usage_is_charged() -> None:
    budget: Any = Budget()
    with pytest.raises(TypeError, match="int"):
        budget.charge(5)
    assert budget.calls == 0
