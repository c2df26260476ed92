"""JSON that is made shorter is still JSON of the same shape."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.core.contracts.jsontext import json_text
from agentkit.state.compaction import clamp_json
from agentkit.state.compaction.shorten import shortened

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=200),
    lambda inner: st.lists(inner, max_size=30) | st.dictionaries(st.text(max_size=8), inner, max_size=30),
    max_leaves=60,
)


@given(_JSON, st.integers(0, 400))
def test_e10_clamped_json_keeps_its_shape(value: Any, room: int) -> None:
    short = clamp_json(value, room)
    if len(json_text(value)) <= room:
        assert short is value
        return
    assert json.loads(json.dumps(short)) == short
    if isinstance(value, (dict, list)):
        assert type(short) is type(value)
    if isinstance(value, dict):
        assert set(short) - {"..."} <= set(value)


@pytest.mark.parametrize(
    "value",
    [["x" * 100] * 1_000, {"a": "x" * 90_000, "b": 1}, {str(i): i for i in range(20_000)}, [[["y" * 50_000]]] * 3,
     {"rows": [{"id": i, "text": "word " * 30} for i in range(500)]}, 12345678901234567890],
)  # fmt: skip
def test_large_json_gets_near_the_size(value: Any) -> None:
    assert len(json_text(clamp_json(value, 2_000))) < 4_500


def test_small_entries_stay_whole() -> None:
    short = clamp_json({"status": "ok", "log": "x" * 9_000, "code": 0}, 500)
    assert (short["status"], short["code"]) == ("ok", 0)
    assert "characters left out" in short["log"]


def test_missing_entries_are_counted() -> None:
    short = clamp_json(list(range(10_000)), 400)
    assert (short[0], short[-1]) == (0, 9_999)
    assert any("of 10,000 entries left out" in str(item) for item in short)


def test_deep_nesting_ends() -> None:
    value: Any = "x" * 1_000
    for _ in range(300):
        value = [value]
    assert len(json_text(clamp_json(value, 300))) < 1_500


def test_sizes_are_checked() -> None:
    with pytest.raises(TypeError):
        clamp_json([], 1.0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="negative"):
        clamp_json([], -1)


@given(st.text(max_size=30), st.integers(1, 30))
def test_shortened_once_is_shortened_for_good(text: str, limit: int) -> None:
    short = shortened(text, limit)
    assert len(short) <= limit
    assert shortened(short, limit) == short
