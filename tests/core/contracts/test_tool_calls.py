"""Tool calls: what arguments become, what a provider is sent, and when two calls are equal."""

from __future__ import annotations

import copy
import json
import pickle
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, replace
from enum import Enum
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.core.contracts.errors import FreezeError
from agentkit.core.contracts.frozen import FrozenDict
from agentkit.core.contracts.jsontext import canonical_json, json_text, wire_json
from agentkit.core.contracts.types import Message, ToolCall, as_call
from tests.context_strategies import ODD, Handle, HostileDict, json_data, nested, plain_data
from tests.strategies import calls

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)


class Name(str, Enum):  # noqa: UP042 - the older form, which prints as Name.SEARCH
    SEARCH = "search"


def _nested_text(depth: int) -> str:
    return '{"k": ' * depth + "1" + "}" * depth


EMPTY = ["", " \t\r\n", "null", " null\n"]
INVALID = {
    "broken": '{"a": ',
    "list": "[1]",
    "text": '"a"',
    "number": "1",
    "true": "true",
    "NaN": '{"a": NaN}',
    "infinity": '{"a": -Infinity}',
    "overflowing number": '{"a": 1e999}',
    "nested beyond the limit": _nested_text(401),
    "nested beyond the parser": _nested_text(100_000),
    "number of 5,000 digits": '{"a": ' + "9" * 5_000 + "}",
    "trailing text": "{} {}",
    "single quotes": "{'a': 1}",
    "control character": '{"a": "\n"}',
    "byte order mark": "\ufeff{}",
    "other blank": "\u00a0{}",
}
VALID = {
    "plain": '{"a": 1}',
    "odd spacing": ' {\n"a":1 , "b":[ ] }\t',
    "escapes": '{"\\u0061": "\\ud83d\\ude00"}',
    "half a pair": '{"a": "\\ud800"}',
    "half a pair, raw": '{"a": "\ud800"}',
    "repeated key": '{"a": 1, "a": 2}',
    "large numbers": '{"a": 123456789012345678901234567890, "b": 1e300, "c": -0.0}',
    "deepest": _nested_text(400),
    "control token": '{"a": "<|endoftext|>"}',
}


@pytest.mark.parametrize("text", EMPTY)
def test_blank_arguments_are_no_arguments(text: str) -> None:
    call = ToolCall("c", "f", text)
    assert call.arguments == {}
    assert call.raw == text
    assert not call.invalid
    assert call.wire_arguments == "{}"
    assert call == ToolCall("c", "f")


@pytest.mark.parametrize("text", INVALID.values(), ids=INVALID)
def test_e5_text_that_is_no_object_is_kept(text: str) -> None:
    call = ToolCall("c", "f", text)
    assert call.raw == text
    assert call.arguments == {"_raw": text}
    assert call.invalid
    assert json.loads(call.wire_arguments) == {"_raw": text}


@pytest.mark.parametrize("text", VALID.values(), ids=VALID)
def test_e5_text_of_an_object_is_sent_byte_for_byte(text: str) -> None:
    call = ToolCall("c", "f", text)
    assert call.arguments == json.loads(text)
    assert call.raw == call.wire_arguments == text
    assert not call.invalid


@given(st.text() | json_data().map(json.dumps) | json_data().map(json_text))
def test_e5_any_text_gives_a_valid_object_and_stays(text: str) -> None:
    call = ToolCall("c", "f", text)
    assert call.raw == text
    assert isinstance(json.loads(call.wire_arguments), dict)
    assert call.invalid == (call.arguments == {"_raw": text})


def test_object_named_raw_is_no_invalid_text() -> None:
    assert not ToolCall("c", "f", '{"_raw": "x"}').invalid
    assert not ToolCall("c", "f", {"_raw": "x"}).invalid


@pytest.mark.parametrize(
    "given",
    [{"a": [1]}, OrderedDict(a=[1]), MappingProxyType({"a": [1]}), FrozenDict({"a": [1]})],
    ids=lambda value: type(value).__name__,
)
def test_any_mapping_is_taken(given: Mapping[str, Any]) -> None:
    call = ToolCall("c", "f", given)
    assert call.arguments == {"a": [1]}
    assert type(call.arguments) is FrozenDict
    assert call.raw is None


def test_arguments_are_frozen_and_alias_nothing() -> None:
    inner: list[Any] = [1]
    given = {"a": inner}
    call = ToolCall("c", "f", given)
    inner.append(2)
    given["b"] = [3]
    assert call.arguments == {"a": [1]}
    with pytest.raises(TypeError, match="cannot be mutated"):
        call.arguments["a"].append(2)
    with pytest.raises(TypeError, match="cannot be mutated"):
        call.arguments["b"] = 1  # type: ignore[index]
    with pytest.raises(FrozenInstanceError):
        call.id = "d"  # type: ignore[misc]


@pytest.mark.parametrize("odd", [[1], 7, b"{}", True, Handle()], ids=lambda value: type(value).__name__)
def test_g1_arguments_of_another_type_are_kept_as_text(odd: Any) -> None:
    call = ToolCall("c", "f", odd)
    assert call.invalid
    assert call.arguments == {"_raw": json_text(odd)}
    assert isinstance(json.loads(call.wire_arguments), dict)


def test_e5_mapping_beyond_the_limit_is_kept_as_text() -> None:
    value = {"k": nested(400)}
    call = ToolCall("c", "f", value)
    assert call.invalid
    assert call.arguments == {"_raw": json_text(value)}
    assert ToolCall("c", "f", {"k": nested(399)}).arguments == {"k": nested(399)}


def test_cycle_in_arguments_is_refused() -> None:
    loop: dict[str, Any] = {}
    loop["self"] = loop
    with pytest.raises(FreezeError):
        ToolCall("c", "f", loop)


def test_missing_id_and_name_are_blank() -> None:
    call = ToolCall(None, None, None)
    assert (call.id, call.name, call.arguments) == ("", "", {})
    assert call == ToolCall("", "")


@pytest.mark.parametrize("field", ["id", "name"])
@pytest.mark.parametrize("wrong", [1, b"a", ["a"], {}], ids=lambda value: type(value).__name__)
def test_id_and_name_are_text(field: str, wrong: Any) -> None:
    given: dict[str, Any] = {"id": "c", "name": "f"}
    with pytest.raises(TypeError, match=rf"ToolCall\.{field} must be a str, not {type(wrong).__name__}"):
        ToolCall(**(given | {field: wrong}))


def test_subclasses_of_str_become_str() -> None:
    call = ToolCall(Name.SEARCH, Name.SEARCH)
    assert call.name == "search"
    assert type(call.id) is type(call.name) is str


@given(plain_data(), plain_data())
def test_equality_is_id_name_arguments(left: Any, right: Any) -> None:
    a, b = ToolCall("c", "f", {"v": left}), ToolCall("c", "f", {"v": right}, meta={"x": 1})
    assert (a == b) == (left == right)
    assert hash(a) == hash(b)
    assert a != ToolCall("d", "f", {"v": left})
    assert a != ToolCall("c", "g", {"v": left})
    assert (a == object()) is False


def test_p11_same_id_with_other_arguments_collides_and_differs() -> None:
    a, b = ToolCall("c", "f", {"n": 1}), ToolCall("c", "f", {"n": 2})
    assert hash(a) == hash(b)
    assert a != b
    assert len({a, b}) == 2


@given(calls(), st.sampled_from(PROTOCOLS))
def test_copies_are_equal(call: ToolCall, protocol: int) -> None:
    hash(call), call.wire_arguments
    for copied in (pickle.loads(pickle.dumps(call, protocol)), copy.deepcopy(call), copy.copy(call)):
        assert copied.wire_arguments == call.wire_arguments
        assert (copied.id, copied.name, copied.raw, copied.invalid) == (call.id, call.name, call.raw, call.invalid)
        assert type(copied.arguments) is FrozenDict
        if "nan" not in call.arguments:
            assert copied == call
            assert hash(copied) == hash(call)


@given(calls())
def test_replace_keeps_the_text_it_was_given(call: ToolCall) -> None:
    other = replace(call, id="other")
    assert (other.raw, other.invalid, other.wire_arguments) == (call.raw, call.invalid, call.wire_arguments)
    assert replace(other, arguments={"fresh": 1}).raw is None


def test_replaced_arguments_are_sent_as_they_are_now() -> None:
    """`1 == True`, and yet a provider reads them as two things."""
    call = ToolCall("c", "f", '{"n":1}')
    assert replace(call, arguments={"n": True}).wire_arguments == '{"n": true}'
    assert replace(call, arguments={"n": 1.0}).wire_arguments == '{"n": 1.0}'
    assert replace(call, arguments={"n": 1}).wire_arguments == '{"n":1}'


SHAPES: dict[str, dict[str, Any]] = {
    "plain": {"id": "c", "name": "f", "arguments": {"a": 1}},
    "plain, text": {"id": "c", "name": "f", "arguments": '{"a": 1}'},
    "OpenAI": {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}},
    "Anthropic": {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}},
    "LangChain": {"name": "f", "args": {"a": 1}, "id": "c", "type": "tool_call"},
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_wire_shapes_become_calls(shape: dict[str, Any]) -> None:
    expected = ToolCall("c", "f", {"a": 1})
    assert as_call(shape) == expected
    assert as_call(MappingProxyType(shape)) == expected
    assert Message("assistant", tool_calls=[shape]).tool_calls == (expected,)
    assert not as_call(shape).meta


@pytest.mark.parametrize("shape", [{}, {"id": None}, {"function": {}}, {"type": "tool_use"}, {"function": None}])
def test_missing_parts_of_a_shape_are_blank(shape: dict[str, Any]) -> None:
    assert as_call(shape) == ToolCall("", "", {})


def test_unknown_keys_of_a_shape_are_kept() -> None:
    call = as_call({"id": "c", "name": "f", "input": {}, "index": 0, "caller": {"type": "direct"}})
    assert call.meta == {"index": 0, "caller": {"type": "direct"}}


def test_g1_shape_with_a_bottomless_key_is_kept_as_text() -> None:
    call = as_call({"id": "c", "name": "f", "input": {}, "caller": nested(500)})
    assert call.meta == {"_raw": json_text({"caller": nested(500)})}


@pytest.mark.parametrize("wrong", ["f", b"f", 1, None, ["f"], ("c", "f")], ids=lambda value: type(value).__name__)
def test_no_mapping_is_no_call(wrong: Any) -> None:
    with pytest.raises(TypeError, match="a tool call must be a ToolCall or a mapping"):
        Message("assistant", tool_calls=[wrong])


@pytest.mark.parametrize("wrong", ["f", b"f", {"id": "c"}], ids=lambda value: type(value).__name__)
def test_one_call_is_no_sequence_of_calls(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"Message\.tool_calls must be a sequence of calls"):
        Message("assistant", tool_calls=wrong)


@pytest.mark.parametrize("name", ODD)  # by name: pytest itself fails on a hostile one
def test_g1_json_text_never_raises(name: str) -> None:
    value = ODD[name]
    assert isinstance(json_text(value), str)
    for text in (wire_json(value), canonical_json(value), wire_json({"k": [value]})):
        json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"), parse_int=str)


def test_json_text_has_no_depth_limit() -> None:
    value: Any = []
    for _ in range(3_000):
        value = [value]
    assert json_text(value) == wire_json(value) == canonical_json(value) == "[" * 3_001 + "]" * 3_001


@given(json_data() | plain_data())
def test_json_text_is_pythons_own_where_there_is_one(value: Any) -> None:
    try:
        expected = json.dumps(value, ensure_ascii=False, default=str)
    except TypeError:
        return
    assert json_text(value) == expected


@given(st.dictionaries(st.text(), json_data(), max_size=5), st.randoms())
def test_k2_canonical_json_forgets_key_order_alone(value: dict[str, Any], random: Any) -> None:
    keys = list(value)
    random.shuffle(keys)
    shuffled = {key: value[key] for key in keys}
    assert canonical_json(shuffled) == canonical_json(value)
    assert json.loads(canonical_json(value)) == value
    assert canonical_json([[1, 2]]) != canonical_json([[2, 1]])


def test_g4_wire_json_names_no_address() -> None:
    assert wire_json({"a": Handle()}) == wire_json({"a": Handle()})
    assert wire_json(HostileDict(a=1)) == wire_json(HostileDict(a=1))
    assert wire_json({"s": {"b", "a", "c"}}) == '{"s": ["a", "b", "c"]}'


def test_huge_numbers_stay_apart() -> None:
    assert wire_json({"n": 10**20_000}) != wire_json({"n": 10**20_000 + 1})
    assert int(json.loads(wire_json({"n": -(10**20_000)}))["n"], 16) == -(10**20_000)
