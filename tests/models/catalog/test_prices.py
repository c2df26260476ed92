"""The data itself: form of every row, agreement with the cache rules of the design, and reasons for every exception."""

import json
import re
from datetime import date
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from agentkit.models import catalog
from agentkit.models.catalog import models, rates

FOLDER = Path(catalog.__file__).parent
TABLE: dict[str, Any] = json.loads((FOLDER / "prices.json").read_text(encoding="utf-8"))
EXCEPTIONS: list[dict[str, Any]] = json.loads((FOLDER / "price_exceptions.json").read_text(encoding="utf-8"))
ROWS = [(model, row) for model, facts in TABLE["models"].items() for row in facts["rows"]]
RATES = ("in", "out", "read", "write", "write_long")
MODES = ("batch", "flex", "priority", "fast")
ROW_KEYS = {*RATES, *MODES, "from", "until", "over", "peak", "modes_since", "regions", "assumed", "source", "checked"}
PAGE = re.compile(r"https://[a-z0-9.-]+/\S+")
NAME = re.compile(r"[a-z0-9][a-z0-9./-]*")


def is_amount(text: Any) -> bool:
    """A positive number as text; nobody's price list has more than seven decimals."""
    return isinstance(text, str) and re.fullmatch(r"[0-9]+(\.[0-9]{1,7})?", text) is not None and Decimal(text) > 0


def is_day(text: str) -> bool:
    return date.fromisoformat(text).isoformat() == text


def test_table_has_its_date_and_origin() -> None:
    assert set(TABLE) == {"generated", "source", "models"}
    assert is_day(TABLE["generated"])
    assert re.match(r"genai-prices [0-9.]+, compared with model-prices [0-9.]+", TABLE["source"])


@pytest.mark.parametrize("model", TABLE["models"])
def test_model_is_well_formed(model: str) -> None:
    facts = TABLE["models"][model]
    assert set(facts) == {"provider", "aliases", "window", "excluded", "rows"}
    assert all(NAME.fullmatch(name) for name in (model, *facts["aliases"]))
    assert isinstance(facts["window"], int)
    assert facts["window"] >= 100_000
    assert facts["excluded"] == sorted(set(facts["excluded"]))
    rows = facts["rows"]
    assert (rows[0]["from"], rows[-1]["until"]) == (None, None)
    assert [row["until"] for row in rows[:-1]] == [row["from"] for row in rows[1:]]
    starts = [row["from"] for row in rows[1:]]
    assert starts == sorted(set(starts))
    assert all(is_day(start) for start in starts)


def test_names_lead_to_one_model() -> None:
    names = [name for model, facts in TABLE["models"].items() for name in (model, *facts["aliases"])]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(("model", "row"), ROWS)
def test_row_is_well_formed(model: str, row: dict[str, Any]) -> None:
    assert set(row) <= ROW_KEYS
    assert PAGE.fullmatch(row["source"])
    assert is_day(row["checked"])
    assert row["checked"] <= TABLE["generated"]
    figures = {name for name in RATES if name in row}
    assert {"in", "out"} <= figures
    offers = [row, *(row[mode] for mode in MODES if isinstance(row.get(mode), dict))]
    for offer in offers:
        assert {name for name in RATES if name in offer} == figures
        assert all(is_amount(offer[name]) for name in figures)
        over = offer.get("over")
        if over is not None:
            assert set(over) == {"tokens", *figures}
            assert isinstance(over["tokens"], int)
            assert all(Decimal(over[name]) >= Decimal(offer[name]) for name in figures)
    assert all(isinstance(row[mode], dict) or is_amount(row[mode]) for mode in MODES if mode in row)
    assert set(row.get("modes_since", {})) <= {mode for mode in MODES if mode in row}
    assert all(is_day(day) for day in row.get("modes_since", {}).values())
    assert all(is_amount(factor) for factor in row.get("regions", {}).values())
    assert set(row.get("assumed", ())) <= set(row)


@pytest.mark.parametrize("peak", [row["peak"] for _, row in ROWS if "peak" in row])
def test_peak_is_well_formed(peak: dict[str, Any]) -> None:
    assert set(peak) == {"utc", "days", "x"}
    assert re.fullmatch("[1-7]-[1-7]", peak["days"])
    assert all(0 <= start < end <= 24 for start, end in peak["utc"])
    assert is_amount(peak["x"])


@pytest.mark.parametrize("entry", EXCEPTIONS, ids=range(len(EXCEPTIONS)))
def test_exception_names_winner_and_page(entry: dict[str, Any]) -> None:
    wanted = {"models", "fields", "winner", "source", "checked", "why"}
    assert wanted <= set(entry) <= wanted | {"against", "from", "until", "set"}
    assert entry["winner"] in {"genai-prices", "model-prices", "litellm", "vendor"}
    # The origin of every figure can only win as it is; another winner has to say its figure.
    assert ("set" in entry) == (entry["winner"] != "genai-prices")
    assert PAGE.fullmatch(entry["source"])
    assert is_day(entry["checked"])
    assert entry["why"].endswith(".")


# caching.md, sections 1 and 1.1: multiples of the input rate for reads, writes and long writes; the longest prefix
# wins, as the longest glob does there.
CACHE_RULES: dict[str, tuple[str, str | None, str | None]] = {
    "claude-": ("0.1", "1.25", "2"),
    "claude-opus-5-5": ("0.05", "1.25", "2"),
    "claude-sonnet-5-5": ("0.05", "1.25", "2"),
    "claude-fable-5-": ("0.025", "1.25", "2"),
    "claude-mythos-5-": ("0.025", "1.25", "2"),
    "gpt-6-": ("0.1", "1.25", "2.5"),
    "gpt-6.1-": ("0.05", "1.25", "2.5"),
    "gpt-5.6-": ("0.1", "1.25", "2.5"),
    "gpt-5": ("0.1", None, None),
    "gpt-4.1": ("0.25", None, None),
    "o3": ("0.25", None, None),
    "o4-mini": ("0.25", None, None),
    "gpt-4o": ("0.5", None, None),
    "o1": ("0.5", None, None),
    "o3-mini": ("0.5", None, None),
    "gemini-": ("0.1", None, None),
    "gemini-4-argon": ("0.05", None, None),
    "deepseek-": ("0.02", None, None),
    "deepseek-v4-pro": ("0.033", None, None),
    "grok-4.7": ("0.25", None, None),
    "grok-4.6": ("0.25", None, None),
    "grok-4.5": ("0.15", None, None),
    "grok-4.3": ("0.16", None, None),
    "grok-4.20": ("0.16", None, None),
    "mistral-": ("0.1", None, None),
    "ministral-": ("0.1", None, None),
    "codestral-": ("0.1", None, None),
    "groq/": ("0.5", None, None),
}
# Sold without a price for cached input.
UNCACHED = {"gpt-5.4-pro", "gpt-5.5-pro", "gpt-4o-2024-05-13"}


@pytest.mark.parametrize("model", [name for name in models() if not name.startswith("kimi-")])
def test_rates_agree_with_cache_rules(model: str) -> None:
    rule = CACHE_RULES[max((prefix for prefix in CACHE_RULES if model.startswith(prefix)), key=len)]
    for size in (0, 1_000_000):
        found = rates(model, prompt_tokens=size)
        assert found is not None
        for rate, multiple in zip((found.read, found.write, found.write_long), rule, strict=True):
            if multiple is None or model in UNCACHED:
                assert rate is None
            else:
                assert rate is not None
                ratio = Fraction(rate) / Fraction(found.input)
                assert abs(Fraction(multiple) - ratio) <= ratio / 100


def test_cache_rules_are_all_used() -> None:
    assert [prefix for prefix in CACHE_RULES if not any(name.startswith(prefix) for name in models())] == []
