"""The table of prices at which an edit pays."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest

import agentkit.models.cache
import agentkit.state.compaction
from agentkit.core.contracts.worth import pays
from agentkit.models.catalog import rates


@dataclass
class Flat:
    input: float
    read: float | None = None
    write: float | None = None


TABLE = [
    ("claude-sonnet-4-6", 0.2087, 0.01185, 17.6),
    ("claude-opus-5-5", 0.2904, 0.00790, 36.8),
    ("gpt-5.6-sol", 0.2783, 0.0158, 17.6),
    ("gpt-5.5", 0.2722, 0.01975, 13.8),
    ("claude-fable-5-2", 0.5929, 0.0079, 75.1),
    ("deepseek-v4-flash", 0.0089, 0.0001185, 75.1),
]


@pytest.mark.parametrize(("model", "now", "saved", "calls"), TABLE, ids=[row[0] for row in TABLE])
def test_k7_table(model: str, now: float, saved: float, calls: float) -> None:
    found = rates(model)
    assert found is not None
    verdict = pays(found, behind=60_000, dropped=40_000, added=500, calls=12)
    assert round(verdict.cost_now, 4) == now
    assert verdict.saved_per_call == pytest.approx(saved)
    assert round(verdict.break_even_calls, 1) == calls
    assert not verdict.pays
    assert not pays(found, 60_000, 40_000, 500, math.floor(verdict.break_even_calls)).pays
    assert pays(found, 60_000, 40_000, 500, math.ceil(verdict.break_even_calls)).pays


def test_cold_cache_has_nothing_to_lose() -> None:
    price = Flat(3.0, 0.3, 3.75)
    assert pays(price, 60_000, 501, 500, 1, warm=False).pays
    assert not pays(price, 60_000, 500, 500, 1, warm=False).pays
    # D > R + X / w
    assert pays(price, 0, 1_001, 0, 0, extra_usd=0.00375, warm=False).pays
    assert not pays(price, 0, 1_000, 0, 0, extra_usd=0.00375, warm=False).pays


def test_more_put_in_than_taken_out_never_pays() -> None:
    for warm in (True, False):
        verdict = pays(Flat(3.0, 0.3, 3.75), 10, 10, 20, 10_000, warm=warm)
        assert (verdict.pays, verdict.break_even_calls) == (False, math.inf)


def test_without_a_cache_any_cut_pays() -> None:
    assert pays(Flat(3.0), 60_000, 2, 1, 1).pays


def test_making_the_summary_counts() -> None:
    price = Flat(3.0, 0.3, 3.75)
    cheap, dear = pays(price, 0, 40_000, 500, 1), pays(price, 0, 40_000, 500, 1, extra_usd=1.0)
    assert dear.cost_now == pytest.approx(cheap.cost_now + 1.0)
    assert (cheap.pays, dear.pays) == (True, False)


@pytest.mark.parametrize("field", ["behind", "dropped", "added", "calls"])
def test_negative_sizes_are_refused(field: str) -> None:
    sizes = {"behind": 1, "dropped": 1, "added": 1, "calls": 1, field: -1}
    with pytest.raises(ValueError, match=field):
        pays(Flat(3.0), sizes["behind"], sizes["dropped"], sizes["added"], sizes["calls"])


def test_one_function_under_three_names() -> None:
    assert pays is agentkit.models.cache.pays is agentkit.state.compaction.pays
