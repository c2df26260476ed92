"""Requests and results: frozen values, changed through `replace`, and streams that add up to a result."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.core.contracts.frozen import FrozenDict, FrozenList
from agentkit.core.contracts.offers import canonical_tools
from agentkit.core.contracts.requests import StreamEvent
from agentkit.core.contracts.types import (
    Breakpoint,
    CallMark,
    ChatRequest,
    Chunk,
    Delta,
    ImageBlock,
    LLMResult,
    Message,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolRequest,
    ToolSchema,
    Usage,
    assemble_deltas,
)
from tests.context_strategies import json_data

CALL = ToolCall("c", "f", {"a": 1})
MESSAGE = Message("user", "a")
TOOL = ToolSchema("f", "does f", {"type": "object", "properties": {"b": {}, "a": {"enum": [2, 1]}}})


def _all_values() -> list[Any]:
    return [
        ChatRequest((MESSAGE,), "m", (TOOL,), {"type": "json"}, cache_hint=(Breakpoint(1),), options={"seed": 1}),
        TOOL,
        ToolRequest(CALL, True),
        LLMResult("a", (CALL,), Usage(1), "stop", "m", {"x": 1}, blocks=(TextBlock("a"),), meta={"id": "r"}),
        Delta("a", (CALL,), Usage(1), "stop", {"x": 1}, {"x": None}),
        StreamEvent("step", data={"n": 1}),
        Chunk("a", "source", 0.5, {"k": [1]}),
        Breakpoint(3, "1h"),
    ]


@pytest.mark.parametrize("value", _all_values(), ids=lambda value: type(value).__name__)
def test_values_are_frozen_and_copy_equal(value: Any) -> None:
    with pytest.raises(FrozenInstanceError):
        setattr(value, fields(value)[0].name, None)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(value, protocol)) == value
    assert copy.deepcopy(value) == value
    assert replace(value) == value


# -- ChatRequest -------------------------------------------------------------------------------------------------------


def test_request_fields_are_positional_in_the_order_of_the_contract() -> None:
    request = ChatRequest([MESSAGE], "m", [TOOL], {"a": 1}, 0.5, 10, True)  # type: ignore[arg-type]
    assert (request.messages, request.model, request.tools) == ((MESSAGE,), "m", (TOOL,))
    assert (request.response_format, request.temperature, request.max_tokens) == ({"a": 1}, 0.5, 10)
    assert request.cache_hint is True
    assert [f.name for f in fields(ChatRequest) if f.kw_only] == ["prefix", "tool_choice", "options"]
    plain = ChatRequest((), "m")
    assert (plain.tools, plain.response_format, plain.temperature, plain.max_tokens) == (None, None, 0.0, None)
    assert (plain.cache_hint, plain.prefix, plain.tool_choice, plain.options) == (None, None, None, {})


def test_request_aliases_nothing() -> None:
    found, tools, options = [MESSAGE], [TOOL], {"thinking": {"budget": 1}}
    form: dict[str, Any] = {"schema": {"a": [1]}}
    request = ChatRequest(tuple(found), "m", tuple(tools), form, options=options, tool_choice={"name": ["f"]})
    found.clear()
    tools.clear()
    form["schema"]["a"].append(2)
    options["thinking"]["budget"] = 2
    assert (request.messages, request.tools) == ((MESSAGE,), (TOOL,))
    assert request.response_format == {"schema": {"a": [1]}}
    assert request.options == {"thinking": {"budget": 1}}
    for frozen in (request.response_format["schema"], request.options["thinking"], request.tool_choice):
        assert type(frozen) is FrozenDict


def test_breakpoints_become_a_tuple() -> None:
    marks = [Breakpoint(1), Breakpoint(2, "1h")]
    assert ChatRequest((), "m", cache_hint=marks).cache_hint == tuple(marks)
    assert ChatRequest((), "m", cache_hint={"a": [1]}).cache_hint == {"a": [1]}
    assert type(ChatRequest((), "m", response_format=[1]).response_format) is FrozenList


def test_response_format_may_be_the_callers_own_type() -> None:
    class Answer:
        pass

    assert ChatRequest((), "m", response_format=Answer).response_format is Answer


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"messages": [{"role": "user"}]}, TypeError, r"ChatRequest.messages\[0\] must be a Message, not dict"),
        ({"messages": [MESSAGE, "a"]}, TypeError, r"ChatRequest.messages\[1\] must be a Message, not str"),
        ({"options": [1]}, TypeError, "ChatRequest.options must be a mapping, not list"),
        ({"max_tokens": 1.5}, TypeError, "ChatRequest.max_tokens must be an int or None, not float"),
        ({"max_tokens": -1}, ValueError, "ChatRequest.max_tokens must not be negative: -1"),
        ({"prefix": True}, TypeError, "ChatRequest.prefix must be an int or None, not bool"),
        ({"prefix": -1}, ValueError, "ChatRequest.prefix must not be negative: -1"),
    ],
    ids=["dict", "text", "options", "max_tokens type", "max_tokens", "prefix type", "prefix"],
)
def test_wrong_request_is_refused(change: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        ChatRequest(**({"messages": (), "model": "m"} | change))


@pytest.mark.parametrize(
    ("roles", "prefix", "length"),
    [
        ([], None, 0), (["user"], None, 0), (["system"], None, 1), (["system", "system", "user", "system"], None, 2),
        (["system", "developer", "user"], None, 1), (["system", "user"], 0, 0), (["system", "user", "user"], 2, 2),
    ],
    ids=str,
)  # fmt: skip
def test_prefix_is_the_leading_system_run_unless_told(roles: list[str], prefix: int | None, length: int) -> None:
    request = ChatRequest(tuple(Message(role, "x") for role in roles), "m", prefix=prefix)
    assert request.prefix_length == length


# -- tools -------------------------------------------------------------------------------------------------------------


@given(st.permutations(["b", "a", "c", "ä", "A"]), st.randoms())
def test_k2_tools_render_alike_in_any_order(names: list[str], random: Any) -> None:
    def shuffled(schema: dict[str, Any]) -> dict[str, Any]:
        keys = list(schema)
        random.shuffle(keys)
        return {key: shuffled(schema[key]) if isinstance(schema[key], dict) else schema[key] for key in keys}

    parameters = {"type": "object", "properties": {"b": {}, "a": {"enum": [2, 1]}}, "required": ["b", "a"]}
    one = canonical_tools([ToolSchema(name, "d", shuffled(parameters)) for name in names])
    assert one == canonical_tools([ToolSchema(name, "d", parameters) for name in sorted(names)])
    assert '"enum": [2, 1]' in one[0]
    assert '"required": ["b", "a"]' in one[0]


def test_tools_may_be_wire_dicts() -> None:
    openai = {"type": "function", "function": {"name": "b", "parameters": {}}}
    anthropic = {"name": "a", "input_schema": {}}
    assert canonical_tools([openai, anthropic]) == canonical_tools([anthropic, openai])
    assert canonical_tools([openai, anthropic])[0].startswith('{"input_schema"')
    wrong: Any = ["f"]
    with pytest.raises(TypeError, match="a tool must be a ToolSchema or a mapping, not str"):
        canonical_tools(wrong)


def test_tool_schema_is_hashable_and_frozen() -> None:
    parameters: dict[str, Any] = {"a": [1]}
    tool = ToolSchema("f", "d", parameters)
    parameters["a"].append(2)
    assert tool.parameters == {"a": [1]}
    assert hash(tool) == hash(ToolSchema("f", "d", {"a": [2]}))
    assert tool != ToolSchema("f", "d", {"a": [2]})
    with pytest.raises(TypeError, match=r"ToolSchema\.name must be a str, not NoneType"):
        ToolSchema(None)  # type: ignore[arg-type]


def test_tool_request_names_its_call() -> None:
    request = ToolRequest(CALL)
    assert (request.name, request.arguments, request.side_effecting) == ("f", {"a": 1}, False)


@pytest.mark.parametrize(
    ("given", "error"), [((True,), TypeError), (("1",), TypeError), ((-1,), ValueError), ((0, 5), TypeError)], ids=str
)
def test_breakpoint_has_a_position_and_a_lifetime(given: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        Breakpoint(*given)
    assert Breakpoint(0) == Breakpoint(0, "5m")


def test_event_kinds_are_closed() -> None:
    kinds = ("message_delta", "tool_call", "tool_result", "step", "interrupt", "final")
    assert kinds == StreamEvent.KINDS
    assert [StreamEvent(kind).kind for kind in kinds] == list(kinds)
    with pytest.raises(ValueError, match="unknown event kind 'done'; known are message_delta, "):
        StreamEvent("done")


# -- streams -----------------------------------------------------------------------------------------------------------


def deltas() -> st.SearchStrategy[Delta]:
    return st.builds(
        Delta,
        st.text(max_size=4),
        st.sampled_from([(), (), (CALL,), (CALL, ToolCall("d", "g"))]),
        st.sampled_from([None, None, Usage(), Usage(1)]),
        st.sampled_from([None, None, "stop", "length"]),
        st.none() | json_data(),
        st.none() | json_data(),
        model=st.sampled_from([None, "m"]),
        cached=st.booleans(),
        meta=st.sampled_from([{}, {"id": "r"}]),
    )


@given(st.lists(deltas(), max_size=6))
def test_stream_adds_up(found: list[Delta]) -> None:
    result = assemble_deltas(iter(found))

    def last(name: str, nothing: Any) -> Any:
        return next((getattr(d, name) for d in reversed(found) if getattr(d, name) not in (None, ())), nothing)

    assert result.text == "".join(delta.text for delta in found)
    assert result.tool_calls == last("tool_calls", ())
    assert result.usage == last("usage", Usage())
    assert result.finish_reason == last("finish_reason", None)
    assert result.model == last("model", None)
    parsed = [d.parsed for d in found if d.parsed is not None]
    assert result.parsed == (parsed[-1] if parsed else None)
    assert result.cached == any(d.cached for d in found)
    assert result.partial is False
    assert result.message.content == result.text


def test_empty_stream_is_an_empty_result() -> None:
    assert assemble_deltas([]) == LLMResult()


def test_partial_value_never_survives_a_stream() -> None:
    result = assemble_deltas([Delta(partial={"a": 1}), Delta(partial={"a": 2})])
    assert result.parsed is None
    assert result.partial is False


def test_falsy_parsed_value_is_a_value() -> None:
    assert assemble_deltas([Delta(parsed={"a": 1}), Delta(parsed=0), Delta()]).parsed == 0


def test_streamed_blocks_keep_their_order_and_agree_with_the_text() -> None:
    blocks = (ThinkingBlock("t", "s"), TextBlock("ab"), CallMark(0), ImageBlock(b"x"))
    result = assemble_deltas([Delta("a"), Delta("b", blocks=blocks, tool_calls=(CALL,))])
    assert result.blocks == blocks
    assert result.message.ordered == (ThinkingBlock("t", "s"), TextBlock("ab"), CALL, ImageBlock(b"x"))
    mended = assemble_deltas([Delta("abc", blocks=blocks, tool_calls=(CALL,))])
    assert mended.message.content == "abc"
    assert mended.message.ordered == (ThinkingBlock("t", "s"), ImageBlock(b"x"), TextBlock("abc"), CALL)


def test_result_becomes_the_assistant_message() -> None:
    plain = LLMResult("a", (CALL,), meta={"anthropic": {"id": "m"}})
    assert plain.message == Message("assistant", "a", tool_calls=(CALL,))
    assert plain.message.meta == {"anthropic": {"id": "m"}}
    rich = LLMResult("a", blocks=(ThinkingBlock("t", "s"), TextBlock("a")))
    assert rich.message == Message("assistant", [ThinkingBlock("t", "s"), "a"])
    assert LLMResult().message == Message("assistant", "")
