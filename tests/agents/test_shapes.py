"""Type hints as JSON Schema, and what a model sent as values of them."""

from __future__ import annotations

import datetime
import typing
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Any, Literal, NewType, NotRequired, Optional, TypedDict

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.agents.readers import read_as
from agentkit.agents.shapes import shape_of


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Named(TypedDict):
    name: str
    age: NotRequired[int]


@dataclass
class Point:
    x: int
    y: float = 0.5
    tags: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.x < 0:
            raise ValueError("x must not be negative")


@dataclass
class Loop:
    next: Optional[Loop] = None  # noqa: UP045 - the spelling that people use


class Inner(pydantic.BaseModel):
    n: int


class Model(pydantic.BaseModel):
    inner: Inner
    name: str = "x"


Id = NewType("Id", int)

SCHEMAS: list[tuple[Any, dict[str, Any]]] = [
    (str, {"type": "string"}),
    (bool, {"type": "boolean"}),
    (Any, {}),
    (Id, {"type": "integer"}),
    (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
    (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
    (Literal["a", 1], {"enum": ["a", 1]}),
    (Colour, {"type": "string", "enum": ["red", "blue"]}),
    (list[int], {"type": "array", "items": {"type": "integer"}}),
    (list, {"type": "array", "items": {}}),
    (Sequence[str], {"type": "array", "items": {"type": "string"}}),
    (set[int], {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}),
    (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
    (tuple[int, str], {
        "type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "minItems": 2, "maxItems": 2,
    }),
    (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
    (Annotated[int, "how many"], {"type": "integer", "description": "how many"}),
    (datetime.date, {"type": "string", "format": "date"}),
    (Named, {
        "type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
        "required": ["name"], "additionalProperties": False,
    }),
    (Point, {
        "type": "object",
        "properties": {
            "x": {"type": "integer"}, "y": {"type": "number", "default": 0.5},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["x"], "additionalProperties": False,
    }),
]  # fmt: skip


@pytest.mark.parametrize(("hint", "schema"), SCHEMAS, ids=[str(hint) for hint, _ in SCHEMAS])
def test_schema_of_a_hint(hint: Any, schema: dict[str, Any]) -> None:
    assert shape_of(hint).schema == schema


@pytest.mark.parametrize(
    ("hint", "value", "made"),
    [
        (float, 1, 1.0),
        (int, 3.0, 3),
        (Colour, "blue", Colour.BLUE),
        (set[str], ["a", "a"], {"a"}),
        (frozenset[int], [1], frozenset({1})),
        (tuple[int, str], [1, "a"], (1, "a")),
        (tuple[int, ...], [], ()),
        (Mapping[str, Colour], {"a": "red"}, {"a": Colour.RED}),
        (datetime.datetime, "2026-11-30T10:00:00", datetime.datetime(2026, 11, 30, 10)),
        (uuid.UUID, "12345678-1234-5678-1234-567812345678", uuid.UUID("12345678-1234-5678-1234-567812345678")),
        (Point, {"x": 1}, Point(1)),
        (list[Point] | None, [{"x": 1, "y": 2, "tags": ["a"]}], [Point(1, 2.0, ["a"])]),
        (Named, {"name": "n"}, {"name": "n"}),
        (Model, {"inner": {"n": 1}}, Model(inner=Inner(n=1))),
        (Literal[1, True], True, True),
        (Any, {"a": [1]}, {"a": [1]}),
    ],
)
def test_values_are_read_as_the_hint(hint: Any, value: Any, made: Any) -> None:
    found = read_as(shape_of(hint), value)
    assert found == made
    assert type(found) is type(made)


@pytest.mark.parametrize(
    ("hint", "value", "told"),
    [
        (str, None, "expected a string, got null"),
        (int, True, "expected an integer, got true"),
        (int, 1.5, "expected an integer, got 1.5"),
        (bool, 1, "expected a boolean, got 1"),
        (Literal["a", "b"], "c", "expected one of 'a', 'b', got \"c\""),
        (int | None, "x", 'expected integer or null, got "x"'),
        (list[int], [1, "b", None], '[1]: expected an integer, got "b"; [2]: expected an integer, got null'),
        (list[int], "12", 'expected an array, got "12"'),
        (tuple[int, str], [1], "expected an array of 2, got [1]"),
        (set[Any], [[1]], "expected an array of texts, numbers and the like, got [[1]]"),
        (dict[str, int], {"a": "b"}, "['a']: expected an integer, got \"b\""),
        (datetime.date, "soon", 'expected a date text, got "soon"'),
        (Point, {"z": 1}, "unknown: z (known: x, y, tags); missing: x"),
        (Point, {"x": -1}, "x must not be negative"),
        (Point | None, {"x": "1"}, 'x: expected an integer, got "1"'),
        (list[Named], [{"name": 1}], "[0].name: expected a string, got 1"),
        (
            Model,
            {"inner": {"n": "x"}},
            "inner.n: Input should be a valid integer, unable to parse string as an integer",
        ),
        (str, ["x" * 99], f'expected a string, got ["{"x" * 58}...'),
    ],
)
def test_what_is_wrong_is_said_with_its_place(hint: Any, value: Any, told: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        read_as(shape_of(hint), value)
    assert str(caught.value) == told


@pytest.mark.parametrize(
    ("hint", "named"),
    [
        (bytes, "bytes has no form in JSON"),
        (Callable[[], int], "has no form in JSON"),
        (dict[int, str], "needs str keys, not int"),
        (Loop, r"Loop contains itself"),
        (complex, "complex"),
        (typing.TypeVar("T"), "has no form"),
        (Literal[b"x"], "a choice is made of"),
        (list[object], ""),
    ],
)
def test_hints_without_a_form_are_refused(hint: Any, named: str) -> None:
    if not named:
        assert shape_of(hint).schema == {"type": "array", "items": {}}
        return
    with pytest.raises(TypeError, match=named) as caught:
        shape_of(hint, "parameter 'p'")
    assert "parameter 'p'" in str(caught.value)


def test_models_are_closed_and_stand_alone() -> None:
    schema = shape_of(list[Model]).schema
    assert "$" not in str(schema)
    assert schema["items"]["properties"]["inner"]["additionalProperties"] is False


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@given(JSON, st.sampled_from([hint for hint, _ in SCHEMAS] + [Model]))
def test_any_data_is_read_or_refused_in_words(value: Any, hint: Any) -> None:
    told = None
    try:
        read_as(shape_of(hint), value)
    except ValueError as error:
        told = str(error)
    assert told != ""
