"""The prefix: frozen, compared by value, always rendered in one order."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.core.contracts.types import Message, ToolCall
from agentkit.state.context import PrefixContext, WorkingContext
from tests.context_strategies import message_lists
from tests.strategies import messages, texts

CALL = Message("assistant", tool_calls=[ToolCall("c", "f", {"a": {"b": [1]}})])


def prefixes() -> st.SearchStrategy[PrefixContext]:
    return st.builds(PrefixContext, texts(), st.lists(messages(), max_size=3), st.none() | texts())


@pytest.mark.parametrize("name", ["system_prompt", "grounding", "schema_block"])
def test_assignment_is_refused(name: str) -> None:
    with pytest.raises(FrozenInstanceError):
        setattr(PrefixContext("a"), name, "b")


def test_render_order_is_fixed() -> None:
    grounding = [Message("system", "g1"), Message("user", "g2"), CALL]
    found = PrefixContext("prompt", grounding, "schema").as_messages()
    assert found == [Message("system", "prompt"), *grounding, Message("system", "schema", name="schema")]


def test_empty_prompt_is_left_out_and_empty_schema_is_not() -> None:
    assert PrefixContext().as_messages() == []
    assert PrefixContext("", (), "").as_messages() == [Message("system", "", name="schema")]
    assert PrefixContext(" ").as_messages() == [Message("system", " ")]
    assert [bool(p) for p in (PrefixContext(), PrefixContext("a"), PrefixContext(schema_block=""))] == [
        False,
        True,
        True,
    ]


@given(prefixes())
def test_rendering_gives_a_fresh_list_of_the_same_messages(prefix: PrefixContext) -> None:
    one, other = prefix.as_messages(), prefix.as_messages()
    assert one is not other
    assert all(a is b for a, b in zip(one, other, strict=True))
    one.clear()
    assert prefix.as_messages() == other


@given(prefixes(), message_lists())
def test_assembled_is_prefix_and_tail_and_nothing_else(prefix: PrefixContext, tail: list[Message]) -> None:
    ctx = WorkingContext(prefix, tail)
    found = ctx.assembled()
    assert found == prefix.as_messages() + tail
    found.clear()
    assert ctx.assembled() == prefix.as_messages() + tail
    assert ctx.messages == tail


def test_equal_inputs_are_equal_and_hash_equal() -> None:
    def make(argument: int = 1) -> PrefixContext:
        call = Message("assistant", tool_calls=[ToolCall("c", "f", {"a": {"b": [argument]}})])
        return PrefixContext("prompt", [Message("system", "g"), call], "schema")

    assert make() == make()
    assert hash(make()) == hash(make())
    assert make() != make(2)
    assert len({make(), make(), make(2)}) == 2


@given(prefixes(), prefixes())
def test_equality_is_by_value(one: PrefixContext, other: PrefixContext) -> None:
    by_fields = all(getattr(one, f.name) == getattr(other, f.name) for f in fields(PrefixContext))
    assert (one == other) == by_fields
    if one == other:
        assert hash(one) == hash(other)
    assert replace(one) == one


@given(prefixes(), st.sampled_from(range(pickle.HIGHEST_PROTOCOL + 1)))
def test_copies_are_equal(prefix: PrefixContext, protocol: int) -> None:
    prefix.as_messages()
    for copied in (pickle.loads(pickle.dumps(prefix, protocol)), copy.deepcopy(prefix)):
        assert set(vars(copied)) == {"system_prompt", "grounding", "schema_block"}
        if not any("nan" in call.arguments for m in prefix.grounding for call in m.tool_calls):
            assert copied == prefix
            assert hash(copied) == hash(prefix)


def test_grounding_is_copied() -> None:
    given_list = [Message("system", "g")]
    prefix = PrefixContext("a", given_list)
    given_list.append(Message("system", "h"))
    assert prefix.grounding == (Message("system", "g"),)
    assert PrefixContext("a", iter(prefix.grounding)) == prefix


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"system_prompt": None}, "PrefixContext.system_prompt must be a str, not NoneType"),
        ({"schema_block": {}}, "PrefixContext.schema_block must be a str or None, not dict"),
        ({"grounding": "g"}, "PrefixContext.grounding must be a sequence of Messages, not str"),
        ({"grounding": Message("system", "g")}, "PrefixContext.grounding must be a sequence of Messages, not Message"),
        ({"grounding": [{"role": "system"}]}, r"PrefixContext.grounding\[0\] must be a Message, not dict"),
    ],
    ids=["prompt", "schema", "text", "one message", "dict"],
)
def test_wrong_types_are_named(change: dict[str, Any], text: str) -> None:
    with pytest.raises(TypeError, match=text):
        PrefixContext(**change)
