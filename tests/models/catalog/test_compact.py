"""Prices, rates and windows by the public functions: the figures of the design documents, look-up, dates and modes."""

import subprocess
import sys
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal, localcontext

import pytest

from agentkit.core.contracts.usage import Usage
from agentkit.models.catalog import (
    Mode,
    Quote,
    Window,
    as_of,
    cost,
    models,
    quote,
    rates,
    resolve_window,
    window,
)

M = 1_000_000
SONNET = "claude-sonnet-4-6"
FLASH = "deepseek-v4-flash"


def used(fresh: int = 0, out: int = 0, read: int = 0, write: int = 0, long: int = 0) -> Usage:
    return Usage(fresh, out, 0.0, read, write, cache_write_long_tokens=long)


def usd(model: str, usage: Usage, at: datetime | date | None = None, mode: Mode = "standard", region: str = "") -> str:
    answer = quote(model, usage, at=at, mode=mode, region=region)
    assert answer.known, answer.reason
    return f"{answer.usd.normalize():f}"


@pytest.mark.parametrize(
    ("model", "usage", "expected"),
    [
        (SONNET, used(20_000, 200), "0.063"),
        (SONNET, used(0, 200, read=20_000), "0.009"),
        (SONNET, used(1_000, 500, 2_000, 100), "0.011475"),
        (SONNET, used(write=20_000, long=20_000), "0.12"),
        ("gpt-4o-mini", used(800, 500, 200), "0.000435"),
        ("gpt-5.6-sol", used(272_000, 1_000), "1.108"),
        ("gpt-5.6-sol", used(272_001, 1_000), "2.206008"),
        ("gpt-5.6-sol", used(3_000, 0, 3_000, 4_000), "0.0332"),
        ("grok-4.6", used(199_999, 1_000), "0.405998"),
        ("grok-4.6", used(200_000, 1_000), "0.812"),
    ],
)
def test_prices_of_design(model: str, usage: Usage, expected: str) -> None:
    assert usd(model, usage) == expected
    assert cost(model, usage) == float(expected)


@pytest.mark.parametrize(
    ("model", "usage", "at", "expected"),
    [
        ("claude-sonnet-5-5", used(read=M), date(2026, 10, 1), "0.2"),
        ("claude-sonnet-5-5", used(read=M), date(2026, 10, 8), "0.1"),
        ("gemini-4-argon", used(M), date(2026, 11, 30), "2"),
        ("gemini-4-argon", used(M), date(2026, 12, 1), "4"),
        (FLASH, used(M), datetime(2026, 11, 27, 2, tzinfo=UTC), "0.3"),
        (FLASH, used(M), datetime(2026, 11, 27, 5, tzinfo=UTC), "0.15"),
        (FLASH, used(M), datetime(2026, 11, 28, 2, tzinfo=UTC), "0.15"),
    ],
)
def test_dated_prices_of_design(model: str, usage: Usage, at: datetime | date, expected: str) -> None:
    assert usd(model, usage, at) == expected


def test_thirty_calls_of_design() -> None:
    assert round(cost(SONNET, used(20_000, 200)) * 30, 4) == 1.89
    assert round(cost(SONNET, used(0, 200, read=20_000)) * 30, 4) == 0.27
    first, later = quote(SONNET, used(0, 200, write=20_000)), quote(SONNET, used(0, 200, read=20_000))
    assert first.usd + 29 * later.usd == Decimal("0.339")


def test_batch_of_design() -> None:
    assert usd(SONNET, used(20_000, 200), mode="batch") == "0.0315"


@pytest.mark.parametrize(
    ("model", "read", "write"),
    [
        (SONNET, "0.30", "3.75"),
        ("claude-opus-5-5", "0.20", "5.00"),
        ("gpt-5.6-sol", "0.40", "5.00"),
        ("gpt-5.5", "0.50", None),
        ("claude-fable-5-2", "0.20", "10.00"),
        (FLASH, "0.003", None),
    ],
)
def test_rates_of_design(model: str, read: str, write: str | None) -> None:
    found = rates(model)
    assert found is not None
    assert found.read == Decimal(read)
    assert found.write == (None if write is None else Decimal(write))


@pytest.mark.parametrize(("model", "base"), [("gpt-5.5", "5.00"), (FLASH, "0.15")])
def test_input_rates_without_write_fee(model: str, base: str) -> None:
    found = rates(model)
    assert found is not None
    assert found.input == Decimal(base)


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("claude-sonnet-4-6", "claude-sonnet-4-6"),
        ("Claude-Sonnet-4-6", "claude-sonnet-4-6"),
        ("anthropic/claude-sonnet-4-6", "claude-sonnet-4-6"),
        ("claude-sonnet-4-6-20260217", "claude-sonnet-4-6"),
        ("claude-sonnet-4-6-2026-02-17", "claude-sonnet-4-6"),
        ("anthropic/claude-sonnet-4-6-20260217", "claude-sonnet-4-6"),
        ("claude-sonnet-4.6", "claude-sonnet-4-6"),
        ("anthropic/claude-sonnet-4.6", "claude-sonnet-4-6"),
        # What the sample transcripts were recorded with.
        ("claude-sonnet-4-20250514", "claude-sonnet-4-0"),
        ("claude-sonnet-4-0", "claude-sonnet-4-0"),
        ("claude-sonnet-4-5-20250929", "claude-sonnet-4-5"),
        ("claude-3-5-sonnet-20241022", "claude-3-5-sonnet"),
        ("kimi-k2.5", "kimi-k2.5"),
        ("gpt-4o", "gpt-4o"),
        ("gpt-4o-2024-08-06", "gpt-4o"),
        # A snapshot with a price of its own is not found under its family.
        ("gpt-4o-2024-05-13", "gpt-4o-2024-05-13"),
        ("gpt-5.6", "gpt-5.6-sol"),
        ("openai/gpt-5.6-sol", "gpt-5.6-sol"),
        ("groq/openai/gpt-oss-120b", "groq/openai/gpt-oss-120b"),
    ],
)
def test_lookup_finds(name: str, model: str) -> None:
    row = quote(name, used(1)).row
    assert row is not None
    assert row.model == model


@pytest.mark.parametrize(
    "name",
    [
        None,
        "",
        "/",
        "claude",
        "claude-sonnet-4-6-latest",
        "claude-sonnet-4-6-2026",
        "claude-sonnet-4-6-20261399x",
        "claude-sonnet-4-6-99999999",
        "claude-sonnet-4-6\n",
        "openrouter/anthropic/claude-sonnet-4-6",
        "gpt-oss-120b",
        "openai/gpt-oss-120b",
        "gpt-7",
        "\ud800",
    ],
)
def test_lookup_never_guesses(name: str | None) -> None:
    assert cost(name, used(M, M, M)) == 0.0
    assert rates(name) is None
    assert window(name) is None
    assert quote(name, used(M, M, M)) == Quote(Decimal(0), known=False, reason="unknown_model")


def test_quote_shows_its_lines() -> None:
    answer = quote("claude-haiku-4-5", used(10, 20, 30, 50, 40))
    assert [(line.counter, line.tokens, str(line.rate)) for line in answer.lines] == [
        ("input_tokens", 10, "1"),
        ("output_tokens", 20, "5"),
        ("cache_read_tokens", 30, "0.1"),
        ("cache_write_tokens", 10, "1.25"),
        ("cache_write_long_tokens", 40, "2"),
    ]
    assert answer.usd == sum(line.usd for line in answer.lines)
    assert answer.row is not None
    assert (answer.row.provider, answer.row.since, answer.row.until) == ("anthropic", None, None)
    assert answer.row.source.startswith("https://")
    assert answer.assumed == ()
    assert answer.excluded == ("web_search",)


def test_missing_rates_are_named() -> None:
    answer = quote("gpt-4o", used(M, 0, 0, 20, 10))
    assert (answer.known, answer.usd) == (False, Decimal("2.5"))
    assert answer.reason == "no_rate:cache_write_tokens,cache_write_long_tokens"
    assert cost("gpt-4o", used(M, 0, 0, 20, 10)) == 2.5


def test_long_writes_are_part_of_writes() -> None:
    """A reading may say more long than written; nothing may be paid twice or less than nothing."""
    assert usd(SONNET, used(write=M, long=3 * M)) == "6"


@pytest.mark.parametrize(
    ("model", "mode", "expected"),
    [
        ("gpt-5.6-sol", "batch", "2"),
        ("gpt-5.6-sol", "flex", "2"),
        ("gpt-5.6-sol", "priority", "8"),
        ("gpt-5.6-sol", "fast", "8"),
        ("claude-opus-5-5", "fast", "8"),
        ("grok-4.7", "batch", "1.6"),
    ],
)
def test_modes_scale(model: str, mode: Mode, expected: str) -> None:
    low, high = used(100_000), used(100_000, read=10)
    assert Decimal(usd(model, low, mode=mode)) * 10 == Decimal(expected)
    assert usd(model, high, mode=mode) > usd(model, low, mode=mode)


def test_mode_with_figures_of_its_own() -> None:
    """Batches of gpt-4o cost half, its cached input does not; fast gpt-5.5 costs the same at any length."""
    assert usd("gpt-4o", used(M, read=M), mode="batch") == "2.5"
    assert usd("gpt-5.5", used(272_001), mode="fast") == "3.4000125"


def test_mode_that_is_not_sold() -> None:
    assert quote(SONNET, used(M), mode="flex") == Quote(Decimal(0), known=False, reason="no_mode:flex")
    assert rates(SONNET, mode="flex") is None
    assert quote("claude-opus-4-8", used(M), mode="fast", at=date(2026, 11, 29)).known
    assert quote("claude-opus-4-8", used(M), mode="fast", at=date(2026, 11, 30)).reason == "no_mode:fast"


def test_mode_before_it_was_seen_is_assumed() -> None:
    early, late = date(2026, 9, 1), date(2026, 11, 1)
    assert quote("gpt-5.6-sol", used(M), mode="flex", at=early).assumed == ("flex",)
    assert quote("gpt-5.6-sol", used(M), mode="flex", at=late).assumed == ()
    assert quote("gpt-5.6-sol", used(M), mode="batch", at=early).assumed == ()


@pytest.mark.parametrize("mode", ["", "Batch", "turbo", None])
def test_unknown_mode_is_refused(mode: Mode) -> None:
    with pytest.raises(ValueError, match="mode must be one of"):
        quote("nobody-knows", used(1), mode=mode)


def test_regions() -> None:
    assert usd(SONNET, used(M), region="us") == "3.3"
    assert usd(SONNET, used(M), region="US", mode="batch") == "1.65"
    assert usd("gpt-5.6-sol", used(100_000), region="eu") == "0.44"
    for nowhere in (None, "", "global", "not_available"):
        answer = quote(SONNET, used(M), region=nowhere)
        assert answer.usd == 3
        assert answer.assumed == ()
    elsewhere = quote("claude-sonnet-4-5", used(M), region="us")
    assert elsewhere.known
    assert elsewhere.usd == 3
    assert elsewhere.assumed == ("region",)


def test_tier_moves_the_whole_request() -> None:
    """Input that was read or written counts towards the tier, and output, reads and writes move with it."""
    below = quote("gpt-5.6-sol", used(1, M, 200_000, 71_999))
    above = quote("gpt-5.6-sol", used(1, M, 200_000, 72_000))
    assert [str(line.rate) for line in below.lines] == ["4", "20", "0.4", "5"]
    assert [str(line.rate) for line in above.lines] == ["8", "30", "0.8", "10"]
    found = rates("gpt-5.6-sol", prompt_tokens=272_001)
    assert found is not None
    assert found.write_long == 20


def test_assumed_rate_only_where_used() -> None:
    assert quote("gpt-5.6-sol", used(M, M, M, M)).assumed == ()
    assert quote("gpt-5.6-sol", used(write=M, long=M)).assumed == ("write_long",)


def test_peak_hours() -> None:
    def at(hour: int, minute: int = 0, day: int = 27) -> str:
        return usd(FLASH, used(M), datetime(2026, 11, day, hour, minute, tzinfo=UTC))

    assert [at(0, 59), at(1), at(3, 59), at(4), at(6), at(9, 59), at(10)] == [
        *["0.15", "0.3", "0.3", "0.15", "0.3", "0.3", "0.15"]
    ]
    assert at(2, day=29) == "0.15"
    beijing = timezone(timedelta(hours=8))
    assert usd(FLASH, used(M), datetime(2026, 11, 27, 10, tzinfo=beijing)) == "0.3"
    assert usd(FLASH, used(M), datetime(2026, 11, 27, 2)) == "0.3"
    # Peak hours on every day of the week, in the first week only.
    assert usd(FLASH, used(M), datetime(2026, 8, 22, 2)) == "0.44"
    assert usd(FLASH, used(M), datetime(2026, 8, 29, 2)) == "0.22"


def test_peak_is_assumed_where_it_may_be_wrong() -> None:
    """A holiday is not modelled, and without a time of day nobody can know."""
    assert quote(FLASH, used(M), at=datetime(2026, 11, 27, 2)).assumed == ("peak",)
    assert quote(FLASH, used(M), at=datetime(2026, 11, 27, 5)).assumed == ()
    assert quote(FLASH, used(M), at=date(2026, 11, 27)).assumed == ("peak",)
    assert quote(FLASH, used(M)).assumed == ("peak",)


def test_no_time_means_date_of_table() -> None:
    assert as_of() == date(2026, 11, 30)
    for model in models():
        assert quote(model, used(M, M)) == quote(model, used(M, M), at=as_of())


def test_date_is_taken_in_utc() -> None:
    late = datetime(2026, 11, 30, 20, tzinfo=timezone(timedelta(hours=-5)))
    assert usd("gemini-4-argon", used(M), late) == "4"


def test_arguments_of_wrong_type() -> None:
    with pytest.raises(TypeError, match="model must be a str or None, not int"):
        cost(3, used(1))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="at must be a datetime, a date or None, not str"):
        cost(SONNET, used(1), at="2026-11-30")  # type: ignore[arg-type]


def test_callers_precision_changes_nothing() -> None:
    usage = used(123_456_789, 987_654_321, 555_555_555)
    exact, rounded = quote(SONNET, usage, region="us", mode="batch").usd, cost(SONNET, usage)
    assert rounded == 15351.851848
    with localcontext(prec=3):
        assert quote(SONNET, usage, region="us", mode="batch").usd == exact
        assert cost(SONNET, usage) == rounded


def test_windows() -> None:
    assert window(SONNET) == M
    assert window("claude-sonnet-4-20250514") == 200_000
    assert window("gpt-4o-2024-08-06") == 128_000
    # Prompt and answer share 400,000 and 1,050,000 here; a prompt alone may have less.
    assert window("gpt-5") == 272_000
    assert window("gpt-5.6-sol") == 922_000


def test_window_resolution_order() -> None:
    assert resolve_window(SONNET, declared=8_192, learned=150_000) == Window(8_192, "declared")
    assert resolve_window(SONNET, learned=150_000) == Window(150_000, "learned")
    assert resolve_window(SONNET) == Window(M, "catalogue")
    assert resolve_window("local-model") == Window(128_000, "default")
    assert resolve_window(None, default=4_096) == Window(4_096, "default")


@pytest.mark.parametrize(("size", "error"), [(0, ValueError), (-1, ValueError), (1.5, TypeError), (True, TypeError)])
def test_window_of_no_size_is_refused(size: int, error: type[Exception]) -> None:
    with pytest.raises(error, match="resolve_window: declared must be"):
        resolve_window(SONNET, declared=size)
    with pytest.raises(error, match="resolve_window: default must be"):
        resolve_window(SONNET, default=size)


def test_import_reads_nothing() -> None:
    """Neither the table nor what reads it is loaded before the first question."""
    code = (
        "import sys; from agentkit.models.catalog import compact; "
        "assert not {'json', 'decimal', 'pydantic'} & set(sys.modules); "
        "assert compact._table.cache_info().currsize == 0; compact.window('gpt-4o'); "
        "assert compact._table.cache_info().currsize == 1"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
