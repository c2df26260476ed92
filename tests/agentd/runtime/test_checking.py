"""What a model is told of JSON that does not fit its schema."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentd.runtime.checking import Checker, UnusableSchema

ITEM = {"anyOf": [{"type": "string"}, {"type": "object", "properties": {"title": {"type": "string"}},
                                       "required": ["title"], "additionalProperties": False}]}  # fmt: skip
SCHEMA = {
    "type": "object",
    "properties": {
        "goal": {"type": "string", "minLength": 1},
        "items": {"type": "array", "items": ITEM, "maxItems": 2},
        "risk": {"enum": ["low", "high"]},
        "limit": {"type": "integer", "minimum": 1},
    },
    "required": ["goal"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({}, "the arguments: missing goal"),
        ({"goal": 7}, "goal: must be string, not integer 7"),
        ({"goal": "x", "gaol": 1}, "the arguments: unknown gaol; it takes goal, items, risk, limit"),
        ({"goal": "x", "items": [{"name": "y"}]}, "items[0]: missing title; items[0]: unknown name; it takes title"),
        ({"goal": "x", "items": [7]}, "items[0]: it has none of the forms allowed here: 7"),
        ({"goal": "x", "risk": "medium"}, 'risk: must be one of "low", "high", not "medium"'),
        ({"goal": "x", "limit": 0}, "limit: must be at least 1, not 0"),
        ({"goal": "x", "items": ["a", "b", "c"]}, "items: must have at most 2 items, not 3"),
        ([], "the arguments: must be object, not array []"),
    ],
)
def test_fault_names_place_and_remedy(value: Any, told: str) -> None:
    assert Checker(SCHEMA).fault(value, of="the arguments") == told


def test_long_values_and_many_faults_are_cut() -> None:
    told = Checker({"type": "array", "items": {"type": "integer"}}).fault(["x" * 10_000] * 50)
    assert told is not None
    assert len(told) < 1_500
    assert told.endswith("and 45 more faults")


@pytest.mark.parametrize("place", ["http://localhost:9/schema.json", "file:///etc/hostname"])
def test_reference_to_elsewhere_is_not_followed(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """Neither a network nor a file is reached for a schema."""
    opened: list[object] = []
    monkeypatch.setattr("urllib.request.urlopen", lambda *given, **named: opened.append(given))
    told = Checker({"$ref": place}, what="the input schema of x").fault(1)
    assert opened == []
    assert told is not None
    assert told.startswith("the input schema of x cannot be used")


def test_schema_that_is_none_is_refused_by_place() -> None:
    with pytest.raises(UnusableSchema, match=r"the input schema of x is no JSON Schema: at properties.a.type"):
        Checker({"properties": {"a": {"type": "text"}}}, what="the input schema of x")


OTHER = st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=5)
CLOSE = st.dictionaries(st.sampled_from(["goal", "items", "risk", "limit", "x"]), st.integers() | st.text())


@given(OTHER | CLOSE)
def test_any_value_gets_a_verdict(value: Any) -> None:
    checker = Checker(SCHEMA)
    fits = isinstance(value, dict) and isinstance(value.get("goal"), str) and value["goal"] != "" and "x" not in value
    if not fits:
        assert checker.fault(value) is not None
