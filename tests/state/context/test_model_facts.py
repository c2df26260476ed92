"""What is known of a model's tokens: by name, with nothing guessed from a likeness."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.core.contracts.types import ToolSchema
from agentkit.models.catalog import models
from agentkit.state.context import Calibration
from agentkit.state.context.model_facts import bare_name, encoding_of, first_factor, image_rule, tool_overhead

TOOL = ToolSchema("read")


@pytest.mark.parametrize(
    ("model", "encoding"),
    [
        ("gpt-4o", "o200k_base"),
        ("openai/gpt-4o-mini-2024-07-18", "o200k_base"),
        ("chatgpt-4o-latest", "o200k_base"),
        ("gpt-4.1-nano", "o200k_base"),
        ("gpt-5", "o200k_base"),
        ("gpt-5.3-codex", "o200k_base"),
        ("GPT-5.6-sol", "o200k_base"),
        ("o1", "o200k_base"),
        ("o3-mini", "o200k_base"),
        ("o4-mini", "o200k_base"),
        ("gpt-4", "cl100k_base"),
        ("gpt-4-turbo-2024-04-09", "cl100k_base"),
        ("gpt-3.5-turbo", "cl100k_base"),
        ("groq/openai/gpt-oss-120b", "o200k_harmony"),
        ("qwen3.5-72b", "qwen3.5"),
        ("gpt-5.7", None),
        ("gpt-50", None),
        ("gpt-6", None),
        ("gpt-6.1-mini", None),
        ("o5", None),
        ("o20", None),
        ("qwen3-72b", None),
        ("claude-sonnet-4-6", None),
        ("gemini-3-pro", None),
        ("", None),
        (None, None),
    ],
)
def test_vocabulary_is_known_or_not(model: str | None, encoding: str | None) -> None:
    assert encoding_of(model) == encoding


@pytest.mark.parametrize(
    ("model", "factor"),
    [
        ("claude-sonnet-4-6", 1.25),
        ("claude-3-7-sonnet-latest", 1.25),
        ("anthropic/claude-sonnet-4.5", 1.25),
        ("us.anthropic.claude-opus-4-6-v1:0", 1.25),
        ("claude-opus-4-7", 1.5),
        ("claude-opus-4.8", 1.5),
        ("claude-sonnet-5-5", 1.5),
        ("claude-haiku-5-5", 1.5),
        ("claude-fable-5-2", 1.5),
        ("claude-mythos-preview", 1.5),
        ("claude-opus-4-70", 1.25),
        ("gpt-5.6-sol", 1.0),
        (None, 1.0),
    ],
)
def test_first_factor_by_tokenizer(model: str | None, factor: float) -> None:
    assert first_factor(model) == factor
    assert Calibration.seed(model).factor == factor
    assert Calibration.seed(model, "char-class:claude-1568").factor == factor
    assert Calibration.seed(model, "exact:o200k_base").factor == 1.0


@pytest.mark.parametrize(
    ("model", "free", "demanded"),
    [
        ("claude-sonnet-4-6", 497, 589),
        ("claude-opus-4-6", 497, 589),
        ("claude-sonnet-5", 354, 474),
        ("claude-sonnet-5-20260801", 354, 474),
        ("claude-opus-5", 286, 406),
        ("claude-opus-4-8", 290, 410),
        ("claude-opus-4-7", 675, 804),
        ("claude-haiku-4-5-20251001", 496, 588),
        ("claude-opus-5-5", 0, 0),
        ("claude-opus-4-1", 0, 0),
        ("gpt-5.6-sol", 0, 0),
        (None, 0, 0),
    ],
)
def test_overhead_of_tools(model: str | None, free: int, demanded: int) -> None:
    assert tool_overhead(model) == tool_overhead(model, (), "any") == 0
    assert tool_overhead(model, [TOOL]) == tool_overhead(model, [TOOL], "auto") == free
    choices: list[Any] = ["any", "required", {"type": "tool", "name": "read"}, {"type": "function"}]
    assert {tool_overhead(model, [TOOL], choice) for choice in choices} == {demanded}
    assert tool_overhead(model, [TOOL], {"type": "auto"}) == free
    assert Calibration.seed(model, tools=[TOOL]).overhead == free
    assert Calibration.seed(model, tools=[TOOL], overhead=7).overhead == 7


def test_tools_of_the_providers_own() -> None:
    bash, editor = {"type": "bash_20250124", "name": "bash"}, {"type": "text_editor_20250728", "name": "edit"}
    assert tool_overhead("claude-sonnet-4-6", [bash, editor, TOOL]) == 497 + 325 + 700
    assert tool_overhead("gpt-5.6-sol", [bash]) == 0


@given(st.text(max_size=40))
def test_any_name_is_looked_up(model: str) -> None:
    assert first_factor(model) in (1.0, 1.25, 1.5)
    assert bare_name(bare_name(model)) == bare_name(model)
    encoding_of(model), image_rule(model), tool_overhead(model, [TOOL])


def test_every_claude_and_gpt_of_the_price_table_has_an_image_rule() -> None:
    for model in models():
        if bare_name(model).startswith(("claude", "gpt-4o", "gpt-4.1", "gpt-5", "gpt-6")):
            assert image_rule(model) is not None, model
