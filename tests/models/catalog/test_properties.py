"""Laws of the price table over random figures, names, dates and modes."""

from datetime import UTC, date, datetime
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from agentkit.core.contracts.usage import Usage
from agentkit.models.catalog import MODES, Mode, cost, models, quote, rates, resolve_window, window

COUNT = st.integers(min_value=0, max_value=3_000_000)
MODEL = st.sampled_from(models())
MODE: st.SearchStrategy[Mode] = st.sampled_from(MODES)
TIME = (
    st.none() | st.dates(date(2023, 1, 1), date(2028, 1, 1)) | st.datetimes(datetime(2023, 1, 1), datetime(2028, 1, 1))
)
COUNTERS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")


@st.composite
def usages(draw: st.DrawFn) -> Usage:
    write = draw(COUNT)
    return Usage(
        *(draw(COUNT), draw(COUNT), 0.0, draw(COUNT), write),
        cache_write_long_tokens=draw(st.integers(min_value=0, max_value=write)),
    )


@given(model=MODEL, parts=st.lists(usages(), max_size=4), mode=MODE, at=TIME)
def test_sum_of_usages_costs_sum_of_quotes(model: str, parts: list[Usage], mode: Mode, at: date | None) -> None:
    """Where no tier is crossed: a tier sees one request, and a sum is none."""
    prompts = [part.prompt_tokens for part in parts]
    if len({rates(model, at=at, mode=mode, prompt_tokens=size) for size in (*prompts, sum(prompts))}) > 1:
        return
    whole = quote(model, sum(parts, Usage()), at=at, mode=mode)
    assert whole.usd == sum(quote(model, part, at=at, mode=mode).usd for part in parts)


@given(model=MODEL, usage=usages(), counter=st.sampled_from(COUNTERS), more=COUNT, mode=MODE, at=TIME)
def test_more_tokens_never_cost_less(
    model: str, usage: Usage, counter: str, more: int, mode: Mode, at: date | None
) -> None:
    larger = usage + Usage(**{counter: more})
    assert quote(model, larger, at=at, mode=mode).usd >= quote(model, usage, at=at, mode=mode).usd >= 0
    assert cost(model, larger, at=at, mode=mode) >= cost(model, usage, at=at, mode=mode)


@given(model=MODEL, usage=usages(), mode=MODE, region=st.sampled_from([None, "us", "eu", "mars"]), at=TIME)
def test_quote_adds_up(model: str, usage: Usage, mode: Mode, region: str | None, at: date | None) -> None:
    answer = quote(model, usage, at=at, mode=mode, region=region)
    assert answer.usd == sum(line.usd for line in answer.lines)
    assert answer.known == (answer.reason is None)
    assert cost(model, usage, at=at, mode=mode, region=region) == float(round(answer.usd, 6))
    for line in answer.lines:
        assert line.usd == Decimal(line.tokens) * line.rate / 1_000_000
    if answer.known:
        shown = sum(line.tokens for line in answer.lines)
        assert shown == usage.prompt_tokens + usage.output_tokens


@given(name=st.text() | st.builds("{}{}{}".format, st.text(), MODEL, st.text()), usage=usages())
def test_any_name_is_answered(name: str, usage: Usage) -> None:
    answer = quote(name, usage)
    assert answer.known or answer.reason in {"unknown_model"} or (answer.reason or "").startswith("no_rate:")
    assert (rates(name) is None) == (answer.reason == "unknown_model")
    assert cost(name, usage) >= 0.0
    found = window(name)
    assert resolve_window(name).source == ("default" if found is None else "catalogue")


@given(model=MODEL, at=st.datetimes(datetime(2023, 1, 1), datetime(2028, 1, 1)), mode=MODE)
def test_naive_times_are_utc(model: str, at: datetime, mode: Mode) -> None:
    assert rates(model, at=at, mode=mode) == rates(model, at=at.replace(tzinfo=UTC), mode=mode)
