"""Prices of the long tail: the library's figures in our form, without its clock and its network."""

from __future__ import annotations

import sys
import threading
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from genai_prices import Usage as TheirUsage
from genai_prices import calc_price, data_snapshot
from hypothesis import given
from hypothesis import strategies as st

from agentkit.core.contracts.errors import MissingExtraError
from agentkit.core.contracts.usage import Usage
from agentkit.models.catalog import models, quote
from agentkit.models.catalog.genai import GenaiPrices, inclusive

PRICES = GenaiPrices()
USAGE = Usage(1_000, 500, 0.0, 2_000, 100)
NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)

counts = st.integers(0, 400_000)
usages = st.builds(
    lambda fresh, out, read, short, long: Usage(fresh, out, 0.0, read, short + long, cache_write_long_tokens=long),
    counts, counts, counts, counts, counts,
)  # fmt: skip


@pytest.mark.parametrize(
    ("model", "row", "usd"),
    [
        ("claude-sonnet-4-6", "anthropic/claude-sonnet-4-6", "0.011475"),
        ("anthropic/claude-sonnet-4-6", "anthropic/claude-sonnet-4-6", "0.011475"),
        ("openrouter/anthropic/claude-sonnet-4.5", "openrouter/anthropic/claude-sonnet-4.5", "0.011475"),
        ("us.anthropic.claude-sonnet-4-5-20250929-v1:0",
         "aws/regional.anthropic.claude-sonnet-4-5-20250929-v1:0", "0.0126225"),
        ("bedrock/anthropic.claude-sonnet-4-5-20250929-v1:0",
         "aws/regional.anthropic.claude-sonnet-4-5-20250929-v1:0", "0.0126225"),
    ],
)  # fmt: skip
def test_model_is_found_by_its_vendors_name(model: str, row: str, usd: str) -> None:
    found = PRICES.quote(model, USAGE, at=NOON)
    assert (found.known, found.reason, str(found.row and found.row.model), found.usd) == (True, None, row, Decimal(usd))
    assert found.usd == sum(line.usd for line in found.lines)
    assert PRICES.cost(model, USAGE, at=NOON) == float(found.usd.quantize(Decimal("0.000001")))


def test_given_provider_is_the_only_one_asked() -> None:
    azure = GenaiPrices("azure")
    assert azure.quote("gpt-4o", Usage(1_000_000)).usd == Decimal("2.5")
    assert azure.quote("grok-4.6-unheard-of", USAGE).reason == "unknown_model"
    resold = azure.quote("claude-opus-5", USAGE, mode="batch")
    assert (resold.known, resold.reason) == (False, "no_mode:batch")


@pytest.mark.parametrize("model", ["claude-sonnet-4-6", "claude-opus-5", "gpt-5.6-sol", "gpt-4o-mini"])
@given(usage=usages)
def test_agrees_with_our_own_table_where_both_know_it(model: str, usage: Usage) -> None:
    ours, theirs = quote(model, usage, at=NOON), PRICES.quote(model, usage, at=NOON)
    if ours.known and theirs.known:
        assert theirs.usd == ours.usd
        assert {line.counter for line in theirs.lines} == {line.counter for line in ours.lines}


@given(usage=usages, model=st.sampled_from(["claude-opus-5", "gpt-5.6-sol", "grok-4.6", "gemini-3-pro-preview"]))
def test_known_sum_is_the_librarys_own(usage: Usage, model: str) -> None:
    """Its counters are inclusive: what it reckons from ours is what our lines add up to."""
    found = PRICES.quote(model, usage, at=NOON)
    if found.known and found.row is not None:
        theirs = calc_price(
            inclusive(usage), found.row.model.partition("/")[2], provider_id=found.row.provider,
            genai_request_timestamp=NOON,
        )  # fmt: skip
        assert found.usd == theirs.total_price


def test_counters_include_each_other() -> None:
    long = Usage(10, 20, 0.0, 30, 40, cache_write_long_tokens=15, reasoning_tokens=5)
    assert inclusive(long) == TheirUsage(
        input_tokens=80, cache_read_tokens=30, cache_write_tokens=40, cache_write_1h_tokens=15, output_tokens=20,
        output_reasoning_tokens=5,
    )  # fmt: skip


def test_exclusive_figures_are_refused_there() -> None:
    exclusive = TheirUsage(input_tokens=1_000, cache_read_tokens=2_000, cache_write_tokens=100, output_tokens=500)
    with pytest.raises(ValueError, match="exceed"):
        calc_price(exclusive, "claude-sonnet-4-6", genai_request_timestamp=NOON)


def test_impossible_figures_pass_no_price(monkeypatch: pytest.MonkeyPatch) -> None:
    """Should our reading of a usage ever be exclusive, it raises rather than price it."""
    from agentkit.models.catalog import genai

    monkeypatch.setattr(genai, "inclusive", lambda usage: TheirUsage(input_tokens=1, cache_read_tokens=2))
    with pytest.raises(ValueError, match="exceed"):
        PRICES.quote("claude-sonnet-4-6", USAGE, at=NOON)


@pytest.mark.parametrize("model", [None, "", "my-own-model", "openrouter/nobody/nothing", "nowhere/gpt-4o"])
def test_unknown_model_is_never_guessed(model: str | None) -> None:
    found = PRICES.quote(model, USAGE)
    assert (found.known, found.reason, found.usd, found.lines, found.row) == (
        False, "unknown_model", Decimal(0), (), None,
    )  # fmt: skip
    assert PRICES.cost(model, USAGE) == 0.0


def test_counter_without_a_rate_is_named() -> None:
    found = PRICES.quote("together/meta-llama/Llama-3.3-70B-Instruct-Turbo", USAGE)
    assert (found.known, found.reason) == (False, "no_rate:cache_read_tokens,cache_write_tokens")
    assert found.usd == sum(line.usd for line in found.lines) == Decimal("0.00132")


def test_modes() -> None:
    one = Usage(1_000_000, 0)
    assert PRICES.quote("claude-opus-5", one, mode="batch").usd == Decimal("2.5")
    assert PRICES.quote("claude-opus-5", one, mode="fast").usd == Decimal(10)
    tiers = {mode: PRICES.quote("gpt-5.6-sol", Usage(100_000), mode=mode).usd for mode in ("flex", "priority", "fast")}
    assert tiers == {"flex": Decimal("0.2"), "priority": Decimal("0.8"), "fast": Decimal("0.8")}
    assert PRICES.quote("claude-opus-5", one, mode="flex").reason == "no_mode:flex"
    bad: Any = "turbo"
    with pytest.raises(ValueError, match="mode must be one of"):
        PRICES.quote("claude-opus-5", one, mode=bad)


def test_dates_and_times() -> None:
    million = Usage(100_000)
    assert PRICES.quote("gpt-5.6-sol", million, at=date(2026, 8, 20)).usd == Decimal("0.5")
    later = PRICES.quote("gpt-5.6-sol", million, at=date(2026, 8, 21))
    assert (later.usd, later.row and later.row.since) == (Decimal("0.4"), "2026-08-21")
    assert PRICES.quote("deepseek-v4-flash", million).assumed == ("peak",)
    assert PRICES.quote("deepseek-v4-flash", million, at=NOON).assumed == ()
    wrong: Any = "today"
    with pytest.raises(TypeError, match="at must be a datetime, a date or None"):
        PRICES.quote("gpt-5.6-sol", million, at=wrong)


def test_same_answer_whatever_the_clock_says() -> None:
    assert PRICES.quote("deepseek-v4-flash", USAGE) == PRICES.quote("deepseek-v4-flash", USAGE)
    assert PRICES.quote("gpt-5.6-sol", Usage(1_000)).usd == quote("gpt-5.6-sol", Usage(1_000)).usd


def test_region_and_other_fees_are_named() -> None:
    found = PRICES.quote("claude-opus-5", Usage(1), region="us")
    assert found.assumed == ("region",)
    assert found.excluded == ("web_searches_kcount",)
    assert PRICES.quote("claude-opus-5", Usage(1), region="global").assumed == ()


def test_nothing_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    """No updater runs, and prices that somebody's updater fetched are not used."""
    before = threading.active_count()
    monkeypatch.setattr(data_snapshot, "_custom_snapshot", data_snapshot.DataSnapshot([], from_auto_update=True))
    assert GenaiPrices().quote("claude-opus-5", Usage(1_000_000)).usd == Decimal(5)
    assert threading.active_count() == before


def test_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    with pytest.raises(MissingExtraError, match=r"arc-agentkit\[prices\]"):
        GenaiPrices()


def test_mistakes_are_named() -> None:
    bad: Any = 3
    with pytest.raises(TypeError, match="provider must be a str or None"):
        GenaiPrices(bad)
    with pytest.raises(ValueError, match="knows no provider 'nowhere'"):
        GenaiPrices("nowhere")
    with pytest.raises(TypeError, match="model must be a str or None"):
        PRICES.quote(bad, USAGE)


@pytest.mark.parametrize("model", models())
def test_models_of_the_table_never_raise(model: str) -> None:
    found = PRICES.quote(model, USAGE)
    assert found.known or found.reason
