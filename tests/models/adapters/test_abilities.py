"""What the catalogue says that models refuse."""

import json
from datetime import date
from pathlib import Path

import pytest

from agentkit.models.catalog import abilities as module
from agentkit.models.catalog.abilities import Abilities, abilities_of

FILE = Path(module.__file__).with_name("abilities.json")


def test_every_row_has_a_source_a_date_and_known_fields_only() -> None:
    known = set(Abilities.__dataclass_fields__) - {"sources"} | {"models", "source", "checked"}
    for row in json.loads(FILE.read_text(encoding="utf-8"))["rows"]:
        assert set(row) <= known
        assert row["source"].startswith("https://")
        assert date.fromisoformat(row["checked"]) >= date(2026, 11, 1)
        assert row["models"]


@pytest.mark.parametrize(
    ("model", "refused"),
    [
        ("claude-opus-4-7", ("temperature", "top_p")),
        ("anthropic/claude-opus-4.8", ("temperature", "top_p")),
        ("us.anthropic.claude-sonnet-5-5-v1:0", ("temperature", "top_p")),
        ("claude-sonnet-4-6", ()),
        ("claude-sonnet-4-5-20250929", ()),
        ("o3-mini", ("temperature", "top_p")),
        ("gpt-5.6-sol", ("temperature", "top_p")),
        ("gpt-5-chat-latest", ()),
        ("gpt-5.1", ()),
        ("gpt-4o", ()),
        ("nobody-knows-1", ()),
    ],
)
def test_temperature_is_refused_by_some_models(model: str, refused: tuple[str, ...]) -> None:
    assert abilities_of(model).refused({"temperature": 0.0, "top_p": 0.9, "seed": 1}) == refused


def test_thinking_excludes_temperature_on_older_models() -> None:
    older = abilities_of("claude-sonnet-4-5")
    values = {"temperature": 0.0, "top_p": 0.99, "thinking": {"type": "enabled", "budget_tokens": 1024}}
    assert older.refused(values) == ("temperature",)
    assert older.refused({**values, "thinking": {"type": "disabled"}}) == ()


def test_a_form_of_thinking_or_effort_that_the_model_does_not_know_is_refused() -> None:
    assert abilities_of("claude-opus-4-7").refused({"thinking": {"type": "enabled", "budget_tokens": 9}}) == (
        "thinking",
    )
    assert abilities_of("claude-sonnet-4-5").refused({"thinking": {"type": "adaptive"}}) == ("thinking",)
    assert abilities_of("claude-sonnet-4-6").refused({"effort": "xhigh"}) == ("effort",)
    assert abilities_of("claude-opus-4-7").refused({"effort": "xhigh"}) == ()
    assert abilities_of("gpt-5.1").refused({"temperature": 0.0, "reasoning": {"effort": "high"}}) == ("temperature",)
    assert abilities_of("gpt-5.1").refused({"temperature": 0.0, "effort": "none"}) == ()


def test_the_longest_pattern_decides_and_says_where_it_stands() -> None:
    sonnet = abilities_of("claude-sonnet-5-5")
    assert (sonnet.prefill, sonnet.forced_tools, sonnet.late_system, sonnet.max_output) == (False, False, None, 128_000)
    assert sonnet.sources[0].url.endswith("sonnet-5-5/migration-guide")
    assert abilities_of("claude-opus-5").late_system is True
    assert abilities_of(None) == abilities_of("nobody-knows-1") == Abilities()
