"""The report for a terminal: aligned, at most 100 columns, and harmless whatever stands in a transcript."""

import re
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.inspect import Cost, inspect_transcript, wording
from agentkit.inspect.columns import WIDTH, Style, clip, table, width_of
from agentkit.inspect.text import render_text
from agentkit.transcripts import Transcript
from tests.inspect.samples import UNPRICED, compacted, hostile, session, transcript

PLAIN, ASCII = Style(), Style(unicode=False)
MADE: list[Callable[[], Transcript]] = [session, compacted, hostile]


@pytest.mark.parametrize("style", [PLAIN, ASCII], ids=["unicode", "ascii"])
@pytest.mark.parametrize("made", MADE, ids=lambda made: made.__name__)
def test_lines_fit_and_are_harmless(made: Callable[[], Transcript], style: Style) -> None:
    text = render_text([inspect_transcript(made(), source="folder/session.jsonl")], style)
    for line in text.splitlines():
        assert width_of(line) <= WIDTH, line
        assert line == line.rstrip()
    assert [c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") and c != "\n"] == []
    assert style.unicode or text.isascii()


def test_report_names_everything() -> None:
    text = render_text([inspect_transcript(session(), source="folder/session.jsonl")])
    for heading in ("Context size", "Tokens by role", "Tokens by tool", "Largest parts", "Cost"):
        assert heading in text
    assert "folder/session.jsonl" in text
    assert "1 failed" in text


def test_compactions_and_findings_are_shown() -> None:
    text = render_text([inspect_transcript(compacted())])
    assert "Compactions" in text
    assert "auto" in text
    assert "loss" in render_text([inspect_transcript(hostile())])


def test_no_price_is_no_zero() -> None:
    text = render_text([inspect_transcript(session(model=UNPRICED))])
    assert "$0.00" not in text
    assert "unknown" in text
    assert "no price for this model" in text


def test_several_get_a_line_each() -> None:
    ones = [inspect_transcript(session(), source="a.jsonl", number=n, of=3) for n in (1, 2, 3)]
    text = render_text(ones)
    assert text.startswith("3 conversations\n")
    assert len(text.splitlines()) == 2 + 1 + 3 + 1
    assert "Largest parts" not in text
    assert render_text(ones, whole=True).count("Largest parts") == 3


def test_total_of_some_costs_is_a_bound() -> None:
    known, unknown, nothing = session(), session(model=UNPRICED), transcript([])
    for others, shown in (([], "$0.029"), ([unknown], "at least $0.029"), ([nothing], "at least $0.029")):
        ones = [inspect_transcript(one) for one in (known, *others)]
        assert wording.total_cost(ones) == shown
    assert wording.total_cost([inspect_transcript(unknown)] * 2) == "unknown"


def test_colours_only_when_asked() -> None:
    one = inspect_transcript(hostile())
    assert "\x1b" not in render_text([one])
    coloured = render_text([one], Style(colour=True))
    assert "\x1b[31m" in coloured
    # Only the style's own codes: hostile text brings none along.
    assert set(re.findall("\x1b(...)", coloured)) <= {
        "[1m",
        "[2m",
        "[31",
        "[33",
        "[0m",
    }


def test_wide_characters_stay_aligned() -> None:
    lines = table(("tool", "n"), [["漢字", "1"], ["bash", "22"]], PLAIN)
    assert len({width_of(line) for line in lines}) == 1
    assert width_of(clip("漢字漢字漢字", 7)) <= 7
    assert clip("abc", 3) == "abc"
    assert clip("abcd", 3) == "ab…"


@given(st.lists(st.integers(0, 10**7), min_size=1, max_size=300), st.integers(1, 90))
def test_sparks_fit(values: list[int], width: int) -> None:
    assert len(PLAIN.spark(values, width)) == min(width, len(values))
    assert ASCII.spark(values, width).isascii()


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(1, 40))
def test_bars_fit(part: int, most: int, width: int) -> None:
    part = min(part, most)
    for style in (PLAIN, ASCII):
        bar = style.bar(part, most, width)
        assert len(bar) <= width
        assert bool(bar) == (part > 0)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "unknown"), ("0", "$0.00"), ("0.000012345", "$0.000012"), ("0.0042", "$0.0042"), ("0.5", "$0.50"),
        ("0.996", "$1.00"), ("12.346", "$12.35"), ("1234.5", "$1,234.50"),
    ],
)  # fmt: skip
def test_dollars_keep_small_sums(value: str | None, shown: str) -> None:
    assert wording.usd(None if value is None else Decimal(value)) == shown


def test_partial_cost_says_so() -> None:
    cost = Cost(Decimal("1.5"), 3, 4, ("unknown_model",))
    assert wording.cost(cost) == "at least $1.50"
    assert wording.cost_note(cost) == "1 of 4 responses without a price: no price for this model"
    assert wording.cost(replace(cost, priced=4)) == "$1.50"
    assert wording.cost_note(Cost(None, 0, 1, ("no_rate:cache_write_tokens,cache_read_tokens",))) == (
        "no rate for cache write and cache read"
    )
