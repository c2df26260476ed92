"""Functions as tools: what the model is told of them, and what becomes of their values."""

from __future__ import annotations

import datetime
import json
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Annotated, Any

import pytest

from agentkit.agents import FunctionTool, Tool, ToolResult, tool
from agentkit.agents.tools import Toolbox, as_result
from agentkit.core.contracts.frozen import deep_freeze
from agentkit.core.contracts.messages import marked
from agentkit.core.contracts.types import ImageBlock, TextBlock, ToolCall
from agentkit.core.testing import make_test_ctx

CALL = ToolCall("c1", "t")


@dataclass
class Place:
    city: str
    country: str = "DE"


@tool(side_effecting=False)
async def weather(where: Place, days: Annotated[int, "How many days."] = 1) -> str:
    """The weather somewhere.

    Indented text stays in shape:
        so.
    """
    return f"{where.city}/{where.country} {days}"


def test_tool_is_described_by_its_function() -> None:
    assert isinstance(weather, Tool)
    assert weather.name == "weather"
    assert weather.description == "The weather somewhere.\n\nIndented text stays in shape:\n    so."
    assert (weather.side_effecting, weather.requires_approval) == (False, False)
    assert weather.parameters == {
        "type": "object",
        "properties": {
            "where": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "country": {"type": "string", "default": "DE"}},
                "required": ["city"],
                "additionalProperties": False,
            },
            "days": {"type": "integer", "description": "How many days.", "default": 1},
        },
        "required": ["where"],
        "additionalProperties": False,
    }
    assert repr(weather) == "FunctionTool('weather', side_effecting=False)"


@pytest.mark.anyio
@pytest.mark.parametrize("wrap", [dict, MappingProxyType, lambda given: deep_freeze(dict(given))])
async def test_any_mapping_is_taken_as_arguments(wrap: Any) -> None:
    given = wrap({"where": {"city": "Bonn"}, "days": 2})
    weather.check(given)
    assert await weather.run(given, make_test_ctx()) == "Bonn/DE 2"
    assert await weather(Place("Bonn"), 3) == "Bonn/DE 3"  # called directly, it is the function


@pytest.mark.anyio
async def test_plain_function_runs_in_a_thread() -> None:
    @tool(side_effecting=False)
    def here(lists: list[int]) -> str:
        lists.append(1)  # what it is given is its own
        return threading.current_thread().name

    arguments = {"lists": [0]}
    assert await here.run(arguments, make_test_ctx()) != threading.current_thread().name
    assert arguments == {"lists": [0]}


def test_side_effects_have_to_be_declared() -> None:
    misuses: list[Callable[[], Any]] = [lambda: tool(print), lambda: tool(), lambda: tool(requires_approval=True)]
    for misuse in misuses:
        with pytest.raises(TypeError, match="say whether the tool has side effects"):
            misuse()
    with pytest.raises(TypeError, match="side_effecting must be a bool, not str"):
        tool(side_effecting="yes")(lambda: 1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not of a int"):
        tool(side_effecting=True)(5)  # type: ignore[arg-type]


def test_hints_that_cannot_be_told_are_refused() -> None:
    def untyped(a):  # type: ignore[no-untyped-def]
        return a

    def star(*a: int) -> None: ...
    def position(a: int, /) -> None: ...
    def odd(a: bytes) -> None: ...
    def unknown(a: Nowhere) -> None: ...  # type: ignore[name-defined] # noqa: F821

    for function, told in (
        (untyped, "untyped: the parameter 'a' has no type hint"),
        (star, r"star: \*a: .*named parameters only"),
        (position, "position: .*named parameters only"),
        (odd, "odd: parameter 'a': bytes has no form in JSON; use str, int"),
        (unknown, "unknown: a type hint cannot be resolved: name 'Nowhere' is not defined"),
    ):
        with pytest.raises(TypeError, match=told):
            tool(side_effecting=False)(function)


def test_hints_of_the_place_where_it_is_made_are_found() -> None:
    @dataclass
    class Local:
        x: int

    @tool(side_effecting=False, name="other")
    def use(it: Local) -> int:
        return it.x

    assert use.name == "other"
    assert use.parameters["properties"]["it"]["required"] == ["x"]


def test_hints_of_run_and_result_need_not_be_found() -> None:
    """They are often imported for type checkers only."""

    @tool(side_effecting=False)
    def use(a: int, ctx: OnlyForCheckers) -> OnlyForCheckers:  # type: ignore[name-defined] # noqa: F821
        return ctx

    assert list(use.parameters["properties"]) == ["a"]


def test_callable_objects_and_methods_are_functions_too() -> None:
    class Adder:
        """Adds."""

        def __call__(self, a: int) -> int:
            return a

        def method(self, b: str) -> str:
            """Says."""
            return b

    made = FunctionTool(Adder(), side_effecting=False, name="adder")
    assert (made.description, list(made.parameters["properties"])) == ("Adds.", ["a"])
    place = FunctionTool(Place, side_effecting=False)
    assert (place.name, list(place.parameters["properties"])) == ("Place", ["city", "country"])
    said = FunctionTool(Adder().method, side_effecting=False)
    assert (said.name, said.description, list(said.parameters["properties"])) == ("method", "Says.", ["b"])


def test_schemas_are_sorted_by_name_and_the_same_objects() -> None:
    """K2."""

    def named(name: str) -> FunctionTool:
        return FunctionTool(lambda: None, side_effecting=False, name=name)

    box, other = Toolbox([named("b"), named("a")]), Toolbox([named("a"), named("b")])
    assert [schema.name for schema in box.schemas] == ["a", "b"]
    assert box.schemas == other.schemas
    assert box.schemas is box.schemas


class Colour(Enum):
    RED = "red"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is", "as it is"),
        (None, ""),
        (5, "5"),
        (True, "true"),
        ({"a": [1, None]}, '{"a": [1, null]}'),
        (Place("Köln"), '{"city": "Köln", "country": "DE"}'),
        ([Place("A", "B")], '[{"city": "A", "country": "B"}]'),
        (Colour.RED, '"red"'),
        ({"s": {2, 1}}, '{"s": [1, 2]}'),
        (datetime.date(2026, 11, 30), '"2026-11-30"'),
        (uuid.UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        (Decimal("1.10"), '"1.10"'),
        (PurePosixPath("/tmp"), '"/tmp"'),
        (MappingProxyType({"a": 1}), '{"a": 1}'),
        (ToolResult("x"), "x"),
    ],
)
def test_values_become_texts(value: Any, text: str) -> None:
    made = as_result(CALL, value)
    assert (made.content, made.role, made.name, made.tool_call_id, made.is_error) == (text, "tool", "t", "c1", False)


def test_pictures_stay_pictures() -> None:
    picture = ImageBlock(b"png", "image/png")
    assert as_result(CALL, picture).blocks == (picture,)
    assert as_result(CALL, ["before", picture]).blocks == (TextBlock("before"), picture)
    assert as_result(CALL, ToolResult({"n": 1}, (picture,))).blocks == (TextBlock(json.dumps({"n": 1})), picture)


def test_results_say_that_they_failed_or_are_interim() -> None:
    assert as_result(CALL, ToolResult("no", is_error=True)).is_error
    assert marked(as_result(CALL, ToolResult("wait", pending=True)), "pending") is not None


def test_value_without_a_form_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="a object has no form in JSON; return a text, plain data or a ToolResult"):
        as_result(CALL, {"a": object()})
