"""The maintainers' script, on prices in the form that genai-prices has: rows, tiers, modes and exceptions."""

import json
from datetime import date
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

from agentkit.models.catalog.compact import row_prices
from scripts import update_prices
from scripts.update_prices import Difference, Exceptions, apply, figures, moments, render, rows_of


def price(**units: Any) -> SimpleNamespace:
    """A price by unit: a text, or (base, tier from, tier) as texts."""
    return SimpleNamespace(**{f"{unit}_mtok": amount(value) for unit, value in units.items()})


def amount(value: str | tuple[str, int, str]) -> Any:
    if isinstance(value, str):
        return Decimal(value)
    base, start, tier = value
    return SimpleNamespace(base=Decimal(base), tiers=[SimpleNamespace(start=start, price=Decimal(tier))])


def since(day: str | None) -> Any:
    return None if day is None else SimpleNamespace(start_date=date.fromisoformat(day))


def model(*dated: tuple[str | None, Any], offers: tuple[tuple[str, str, str | None, Any], ...] = ()) -> Any:
    return SimpleNamespace(
        prices=[SimpleNamespace(constraint=since(day), prices=prices) for day, prices in dated],
        price_variants=[
            SimpleNamespace(when={key: value}, constraint=since(day), prices=prices)
            for key, value, day, prices in offers
        ],
    )


def test_tier_holds_every_figure() -> None:
    assert figures(price(input=("2", 200_000, "4"), output=("10.0", 200_000, "15"), cache_write_1h="4")) == {
        "in": "2",
        "out": "10",
        "write_long": "4",
        "over": {"tokens": 200_000, "in": "4", "out": "15", "write_long": "4"},
    }


def test_rows_follow_dates() -> None:
    """A change of a fee alone makes no row."""
    old, new = price(input="2", output="4"), price(input="1", output="2")
    rows = rows_of(model((None, old), ("2026-01-05", old), ("2026-03-01", new)), set(), None)
    assert [(row["from"], row["until"], row["in"]) for row in rows] == [
        (None, "2026-03-01", "2"),
        ("2026-03-01", None, "1"),
    ]


def test_fees_are_noted() -> None:
    fees: set[str] = set()
    info = model(
        (None, SimpleNamespace(input_mtok=Decimal(1), output_mtok=Decimal(2), web_searches_kcount=Decimal(10)))
    )
    rows_of(info, fees, None)
    assert fees == {"web_search"}


def test_modes_are_factors_where_they_can_be() -> None:
    """What an offer leaves out costs as usual, so half of everything else is no factor."""
    base = price(input="2", output="8", cache_read="0.5")
    half = ("processing", "batch", "2026-10-14", price(input="1", output="4", cache_read="0.25"))
    rows = rows_of(model((None, base), offers=(half,)), set(), None)
    assert rows[0]["batch"] == "0.5"
    assert rows[0]["modes_since"] == {"batch": "2026-10-14"}
    some = ("processing", "batch", "2026-10-14", price(input="1", output="4"))
    assert rows_of(model((None, base), offers=(some,)), set(), None)[0]["batch"] == {
        "in": "1",
        "out": "4",
        "read": "0.5",
    }
    assert "modes_since" not in rows_of(model((None, base), offers=(half,)), set(), "")[0]


def test_a_third_is_no_factor() -> None:
    """Rounded, it would be off in every sum: 0.15 at 0.25 is five thirds."""
    fast = ("service_tier", "fast", None, price(input="0.25", output="1"))
    row = rows_of(model((None, price(input="0.15", output="0.6")), offers=(fast,)), set(), None)[0]
    assert row["fast"] == {"in": "0.25", "out": "1"}


def test_factor_holds_for_older_rows_figures_do_not() -> None:
    dated = (None, price(input="4", output="8")), ("2026-08-21", price(input="2", output="6"))
    factor = ("service_tier", "flex", "2026-10-12", price(input="1", output="3"))
    fixed = ("speed", "fast", "2026-10-12", price(input="5", output="16"))
    rows = rows_of(model(*dated, offers=(factor, fixed)), set(), None)
    assert [row.get("flex") for row in rows] == ["0.5", "0.5"]
    assert [row.get("fast") for row in rows] == [None, {"in": "5", "out": "16"}]


def test_flat_offer_has_no_tier() -> None:
    base = price(input=("5", 272_000, "10"), output=("30", 272_000, "45"))
    fast = ("service_tier", "fast", None, price(input="12", output="75"))
    row = rows_of(model((None, base), offers=(fast,)), set(), None)[0]
    assert row_prices(row, "fast", 300_000) == {"in": Decimal(12), "out": Decimal(75)}
    assert row_prices(row, "standard", 300_000) == {"in": Decimal(10), "out": Decimal(45)}
    assert row_prices(row, "flex", 0) is None


def test_exception_splits_rows() -> None:
    facts = {"window": 1, "excluded": ["web_search"], "rows": [{"from": None, "until": None, "in": "2", "read": "0.1"}]}
    apply({"until": "2026-10-07", "set": {"read": "0.2", "assumed": ["read"]}}, facts)
    apply({"set": {"window": 7, "excluded": ["audio"], "write_long": {"times": "2.5", "of": "in"}}}, facts)
    assert facts == {
        "window": 7,
        "excluded": ["audio", "web_search"],
        "rows": [
            {"from": None, "until": "2026-10-07", "in": "2", "read": "0.2", "assumed": ["read"], "write_long": "5"},
            {"from": "2026-10-07", "until": None, "in": "2", "read": "0.1", "write_long": "5"},
        ],
    }
    apply({"from": "2026-10-07", "set": {"read": None}}, facts)
    assert ["read" in row for row in facts["rows"]] == [True, False]  # type: ignore[attr-defined]


def test_exception_settles_only_what_it_names() -> None:
    exceptions = Exceptions(
        [{"models": ["grok-*"], "fields": ["over.tokens"], "against": ["litellm"], "from": "2026-01-01"}]
    )
    difference = Difference("grok-4.6", "over.tokens", "2026-11-30", Decimal(1), "litellm", Decimal(2))
    assert exceptions.settles(difference)
    for other in (
        {"model": "gpt-4o"},
        {"field": "over.in"},
        {"day": "2025-12-31"},
        {"table": "model-prices"},
    ):
        assert not exceptions.settles(Difference(**{**vars(difference), **other}))


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"from": None, "until": None}, [("2026-11-30T12", False)]),
        ({"from": None, "until": "2026-03-13"}, [("2026-03-12T12", False)]),
        ({"from": "2026-12-01", "until": None}, []),
        (
            {"from": None, "until": None, "peak": {"utc": [[1, 4]], "days": "1-5", "x": "2"}},
            [("2026-11-30T12", False), ("2026-11-26T02", True), ("2026-11-21T02", False)],
        ),
    ],
)
def test_times_of_comparison(row: dict[str, Any], expected: list[tuple[str, bool]]) -> None:
    found = [(moment.isoformat()[:13], peak) for moment, peak in moments(row, date(2026, 11, 30))]
    assert found == expected


def test_table_is_written_one_row_a_line() -> None:
    row = {
        "from": None,
        "until": None,
        "in": "1",
        "out": "2",
        "source": "https://vendor.example/",
        "checked": "2026-11-30",
    }
    facts = {"provider": "vendor", "aliases": [], "window": 5, "excluded": [], "rows": [row, row]}
    text = render("2026-11-30", "somewhere", {"b": facts, "a": facts})
    assert list(json.loads(text)["models"]) == ["a", "b"]
    assert json.loads(text)["models"]["a"] == facts
    assert sum('"in": "1"' in line for line in text.splitlines()) == 4


def test_table_is_what_the_script_would_write() -> None:
    """An edit by hand would be lost with the next refresh: it belongs into the exceptions."""
    text = (update_prices.FOLDER / "prices.json").read_text(encoding="utf-8")
    table = json.loads(text)
    assert render(table["generated"], table["source"], table["models"]) == text
    assert set(table["models"]) == {pick.id for pick in update_prices.PICKS}
