"""The rules as data: which row a model gets, and that they agree with the price table."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, date, datetime

import pytest

from agentkit.models import catalog
from agentkit.models.cache import CacheRules, all_rules, rules_for
from agentkit.models.usage_wires import WIRES


@pytest.mark.parametrize(
    ("model", "provider", "row", "minimum"),
    [
        ("claude-sonnet-4-6", None, "anthropic", 1024),
        ("claude-sonnet-4-20250514", None, "anthropic", 1024),
        ("claude-opus-4-1-20250805", None, "anthropic", 1024),
        ("claude-opus-4-6", None, "anthropic", 4096),
        ("claude-haiku-4-5-20251001", None, "anthropic", 4096),
        ("claude-opus-4-7", None, "anthropic", 2048),
        ("claude-opus-5", None, "anthropic", 512),
        ("claude-opus-5-5", None, "anthropic", 1024),
        ("Anthropic/Claude-Sonnet-4.6", None, "anthropic", 1024),
        ("claude-of-tomorrow", None, "anthropic", 1024),
        ("anthropic.claude-opus-4-6-v1:0", "bedrock", "bedrock", 4096),
        ("eu.anthropic.claude-sonnet-4-5-20250929-v1:0", "bedrock", "bedrock", 1024),
        ("amazon.nova-pro-v1:0", "bedrock", "bedrock", 1024),
        ("gpt-5.6-sol", None, "openai-56", 1024),
        ("gpt-6.1-terra", "openai", "openai-56", 1024),
        ("gpt-5.5", None, "openai-55", 1024),
        ("gpt-5", None, "openai", 1024),
        ("gpt-4o-mini", None, "openai", 1024),
        ("o4-mini", None, "openai", 1024),
        ("gemini-2.5-pro", None, "gemini", 2048),
        ("gemini-4-argon", "google", "gemini", 4096),
        ("gemini-4-argon", "gemini-object", "gemini-object", 4096),
        ("deepseek-v4-pro", None, "deepseek", 64),
        ("grok-4.6", None, "xai", 128),
        ("mistral-large-4", None, "mistral", 1024),
        ("openai/gpt-oss-120b", "groq", "groq", 1024),
        ("anything", "llama.cpp", "llama.cpp", 1),
        ("anything", "vllm", "vllm", 16),
    ],
)
def test_row_of_a_model(model: str, provider: str | None, row: str, minimum: int) -> None:
    found = rules_for(model, provider)
    assert found is not None
    assert (found.name, found.minimum) == (row, minimum)


@pytest.mark.parametrize("model", [None, "model-of-nobody", "llama-4", "qwen3"])
def test_unknown_models_have_no_rules(model: str | None) -> None:
    assert rules_for(model) is None


def test_unknown_provider_is_named() -> None:
    with pytest.raises(ValueError, match="'acme'; known are anthropic, bedrock"):
        rules_for("claude-sonnet-4-6", "acme")
    with pytest.raises(TypeError, match="not int"):
        rules_for(5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not str"):
        rules_for("claude-sonnet-4-6", at="2026-10-07")  # type: ignore[arg-type]


def test_a_row_holds_from_its_date_on() -> None:
    reads = {
        at: found.read
        for at in (date(2026, 10, 6), date(2026, 10, 7), datetime(2026, 10, 6, 23, 59, tzinfo=UTC), None)
        if (found := rules_for("claude-sonnet-5-5", at=at)) is not None
    }
    assert list(reads.values()) == [0.1, 0.05, 0.1, 0.05]


def test_openrouter_passes_on_to_the_vendor() -> None:
    found = rules_for("anthropic/claude-opus-4-6", "openrouter")
    assert found is not None
    assert (found.name, found.minimum, found.usage) == ("anthropic", 4096, "openrouter")
    assert rules_for("acme/model-of-nobody", "openrouter") is None


def test_claude_lifetimes_and_marks() -> None:
    found = rules_for("claude-sonnet-4-6")
    assert found is not None
    assert (found.marks, found.lookback, found.default_ttl, found.longest) == (4, 20, "5m", 3600)
    assert found.is_long("1h")
    assert not found.is_long("5m")
    with pytest.raises(ValueError, match="anthropic knows the lifetimes 5m, 1h, not '30m'"):
        found.seconds("30m")


@pytest.mark.parametrize("row", all_rules(), ids=lambda row: f"{row.name}:{row.models[0]}:{row.since}")
def test_every_row_names_its_source(row: CacheRules) -> None:
    assert row.source.startswith("https://")
    assert date.fromisoformat(row.checked) <= catalog.as_of()
    assert row.usage in {*WIRES, "llama.cpp"}
    fields = {"minimum", "step", "lookback", "read", "hidden", "scope", "ttl", "positions", "refresh", "settings"}
    assert {name.partition(".")[0] for name in row.assumed} <= fields


CHANGES = ("2025-06-10", "2026-03-13", "2026-04-30", "2026-08-17", "2026-08-21", "2026-08-23", "2026-09-10")
DAYS = [date.fromisoformat(day) for day in (*CHANGES, "2026-10-07", "2026-10-20", "2026-10-29", "2026-12-01")]
"""On each of these days some price or rule began to hold."""


@pytest.mark.parametrize("model", catalog.models())
def test_rules_and_prices_agree_within_one_percent(model: str) -> None:
    provider = "groq" if model.startswith("groq/") else None
    for day in DAYS:
        found, price = rules_for(model.removeprefix("groq/"), provider, day), catalog.rates(model, at=day)
        assert price is not None
        if found is None:
            assert model.startswith("kimi-"), "a vendor whose rules nobody has written down yet"
            continue
        if price.read is not None and found.read is not None:
            assert float(price.read / price.input) == pytest.approx(found.read, rel=0.01), day
        long = [name for name in found.ttl if found.is_long(name)]
        for rate, name in ((price.write, found.default_ttl), (price.write_long, long[0] if long else None)):
            assert (rate is None) == (name is None or found.ttl[name].write is None)
            if rate is not None and name is not None:
                assert float(rate / price.input) == pytest.approx(found.ttl[name].write, rel=0.01), day


def test_importing_reads_no_file() -> None:
    program = (
        "import sys\n"
        "opened = []\n"
        "sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == 'open' else None)\n"
        "import agentkit.models.cache, agentkit.models.cache.wire\n"
        "assert not [name for name in opened if name.endswith('.json')], opened\n"
        "agentkit.models.cache.rules_for('gpt-5')\n"
        "assert [name for name in opened if name.endswith('cache_rules.json')]\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
