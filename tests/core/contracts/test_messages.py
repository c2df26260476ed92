"""Messages: one spelling for one content, equality, order of content, marks, digests, and copies."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from dataclasses import FrozenInstanceError, fields, replace
from enum import Enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.core.contracts.frozen import FrozenDict
from agentkit.core.contracts.messages import MARKS, require_messages, same_objects
from agentkit.core.contracts.types import (
    Block,
    CallMark,
    ImageBlock,
    Message,
    NativeBlock,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    mark,
    marked,
    unmark,
)
from tests.context_strategies import json_data, message_lists
from tests.strategies import blocks, calls, messages, texts

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)
CALL = ToolCall("c", "f", {"a": 1})
OTHER = ToolCall("d", "g")
IMAGE = ImageBlock(b"png", "image/png")


class Role(str, Enum):  # noqa: UP042 - the older form, which prints as Role.USER
    USER = "user"


# -- construction ------------------------------------------------------------------------------------------------------


def test_fields_are_positional_in_the_order_of_the_contract() -> None:
    message = Message("tool", "text", "name", "id", (CALL,))
    assert (message.role, message.content, message.name) == ("tool", "text", "name")
    assert (message.tool_call_id, message.tool_calls) == ("id", (CALL,))
    assert [f.name for f in fields(Message) if f.kw_only] == ["blocks", "is_error", "meta"]
    bare = Message("user")
    assert (bare.content, bare.name, bare.tool_call_id, bare.tool_calls, bare.blocks) == ("", None, None, (), ())
    assert (bare.is_error, bare.meta) == (False, {})


def test_messages_cannot_be_written_to() -> None:
    message = Message("user", "a", meta={"x": {"y": [1]}})
    with pytest.raises(FrozenInstanceError):
        message.content = "b"  # type: ignore[misc]
    with pytest.raises(TypeError, match="cannot be mutated"):
        message.meta["x"]["y"].append(2)


def test_given_collections_are_not_aliased() -> None:
    made: list[Any] = [CALL]
    content: list[Any] = ["a", IMAGE]
    meta: dict[str, Any] = {"x": [1]}
    message = Message("assistant", content, tool_calls=made, meta=meta)
    made.append(OTHER)
    content.append("b")
    meta["x"].append(2)
    assert message.tool_calls == (CALL,)
    assert message.blocks == (TextBlock("a"), IMAGE)
    assert message.meta == {"x": [1]}


@pytest.mark.parametrize(
    "role", ["system", "developer", "user", "assistant", "tool", "function", "critic", "", "\ud800"]
)
def test_role_is_any_text(role: str) -> None:
    assert Message(role, "a").role == role


@pytest.mark.parametrize("text", ["", "\x00", "\ud800", "\udfff\ud800", "<|endoftext|>", "\r\n\u2028", "x" * 1_000_000])
def test_u1_text_is_any_text(text: str) -> None:
    message = Message("user", text, name=text, tool_call_id=text)
    assert message.content == message.name == message.tool_call_id == text
    assert len(message.digest) == 32


WRONG: dict[str, dict[str, Any]] = {
    "Message.role must be a str, not NoneType": {"role": None},
    "Message.role must be a str, not int": {"role": 1},
    "Message.content must be a str or a sequence of blocks, not int": {"content": 1},
    "Message.content must be a str or a sequence of blocks, not bytes": {"content": b"a"},
    "Message.content must be a str or a sequence of blocks, not dict": {"content": {"type": "text"}},
    "Message.name must be a str or None, not int": {"name": 1},
    "Message.tool_call_id must be a str or None, not list": {"tool_call_id": []},
    "Message.is_error must be a bool, not int": {"is_error": 1},
    "Message.is_error must be a bool, not NoneType": {"is_error": None},
    "Message.meta must be a mapping, not list": {"meta": []},
    "Message.blocks must be a sequence of blocks, not str": {"blocks": "a"},
    "Message.blocks must be a sequence of blocks, not dict": {"blocks": {"type": "text"}},
    "a content block must be a mapping, not int": {"content": [1]},
    "a content block must be a mapping, not NoneType": {"content": [None]},
}


@pytest.mark.parametrize("text", WRONG)
def test_wrong_types_are_named(text: str) -> None:
    with pytest.raises(TypeError) as refused:
        Message(**({"role": "user"} | WRONG[text]))
    assert str(refused.value) == text


def test_subclasses_of_str_become_str() -> None:
    message = Message(Role.USER, Role.USER, Role.USER, Role.USER)
    assert message == Message("user", "user", "user", "user")
    assert {type(v) for v in (message.role, message.content, message.name, message.tool_call_id)} == {str}
    assert Message("user", [Role.USER]).content == "user"


def test_g1_all_that_may_be_absent_may_be_none() -> None:
    assert Message("assistant", None, None, None, None, blocks=None) == Message("assistant")


# -- blocks ------------------------------------------------------------------------------------------------------------


@given(texts())
def test_spellings_of_a_text_agree(text: str) -> None:
    plain = Message("user", text)
    spellings = [
        Message("user", [text]),
        Message("user", (TextBlock(text),)),
        Message("user", [{"type": "text", "text": text}]),
        Message("user", blocks=[TextBlock(text)]),
        Message("user", text, blocks=[TextBlock(text)]),
        Message("user", None, blocks=[text]),
    ]
    for spelled in spellings:
        assert spelled == plain
        assert spelled.blocks == ()
        assert hash(spelled) == hash(plain)
        assert spelled.digest == plain.digest
    for empty in (Message("user", None), Message("user", []), Message("user", blocks=[])):
        assert empty == Message("user", "")


def test_content_is_the_texts_joined_with_nothing_between() -> None:
    message = Message("assistant", ["a", ThinkingBlock("hidden"), IMAGE, TextBlock("b", {"citations": []}), "c"])
    assert message.content == "abc"
    assert len(message.blocks) == 5
    assert Message("user", ["a", "b"]).blocks == (TextBlock("a"), TextBlock("b"))
    assert Message("user", ["a", "b"]) != Message("user", "ab")


def test_block_with_extra_is_no_plain_text() -> None:
    cited = Message("assistant", [TextBlock("a", {"citations": [1]})])
    assert cited.content == "a"
    assert cited.blocks
    assert cited != Message("assistant", "a")


@pytest.mark.parametrize("content", ["", "b", "ab"])
def test_text_that_differs_from_the_blocks_is_refused(content: str) -> None:
    with pytest.raises(ValueError, match="with_text"):
        Message("user", content, blocks=["a", IMAGE])
    with pytest.raises(ValueError, match="with_text"):
        replace(Message("user", ["a", IMAGE]), content=content)
    assert replace(Message("user", ["a", IMAGE]), name="n").blocks == (TextBlock("a"), IMAGE)


def test_blocks_are_given_once() -> None:
    with pytest.raises(ValueError, match="not as both"):
        Message("user", ["a"], blocks=["a"])


def test_tool_use_becomes_a_call_with_its_mark() -> None:
    wire = {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}}
    message = Message("assistant", ["a", wire, "b", ThinkingBlock("t")], tool_calls=[OTHER])
    assert message.tool_calls == (OTHER, CALL)
    assert message.blocks == (TextBlock("a"), CallMark(1), TextBlock("b"), ThinkingBlock("t"))
    assert message.ordered == (TextBlock("a"), CALL, TextBlock("b"), ThinkingBlock("t"), OTHER)
    assert Message("assistant", ["a", CALL, "b"], tool_calls=[]).tool_calls == (CALL,)


def test_calls_that_follow_the_text_need_no_mark() -> None:
    expected = Message("assistant", "a", tool_calls=[CALL, OTHER])
    for spelled in (
        Message("assistant", ["a", CALL, OTHER]),
        Message("assistant", blocks=["a", CallMark(0), CallMark(1)], tool_calls=[CALL, OTHER]),
        Message("assistant", blocks=["a", CallMark(0)], tool_calls=[CALL, OTHER]),
    ):
        assert spelled == expected
        assert spelled.blocks == ()
        assert spelled.ordered == (TextBlock("a"), CALL, OTHER)
    swapped = Message("assistant", blocks=["a", CallMark(1), CallMark(0)], tool_calls=[CALL, OTHER])
    assert swapped.ordered == (TextBlock("a"), OTHER, CALL)
    assert swapped != expected


@pytest.mark.parametrize("marks", [[0, 0], [1], [-1], [0, 1]], ids=str)
def test_each_mark_names_one_call(marks: list[int]) -> None:
    with pytest.raises(ValueError, match="each CallMark must name one of the 1 tool calls"):
        Message("assistant", blocks=["a", *map(CallMark, marks), "b"], tool_calls=[CALL])


@given(messages())
def test_ordered_content_is_complete(message: Message) -> None:
    calls_in_order = [part for part in message.ordered if isinstance(part, ToolCall)]
    assert len(calls_in_order) == len(message.tool_calls)
    assert all(call in message.tool_calls for call in calls_in_order)
    others: list[Block] = [part for part in message.ordered if not isinstance(part, ToolCall)]
    expected = [b for b in message.blocks if not isinstance(b, CallMark)]
    assert others == (expected or ([TextBlock(message.content)] if message.content and not message.blocks else []))
    assert "".join(b.text for b in others if isinstance(b, TextBlock)) == message.content
    assert Message(message.role, message.ordered).ordered == message.ordered


@given(messages(), texts())
def test_with_text_changes_the_text_alone(message: Message, text: str) -> None:
    changed = message.with_text(text)
    assert changed.content == text
    for name in ("role", "name", "tool_call_id", "tool_calls", "is_error", "meta"):
        assert getattr(changed, name) == getattr(message, name)

    def others(m: Message) -> list[Any]:
        return [part for part in m.ordered if not isinstance(part, TextBlock)]

    assert others(changed) == others(message)
    assert [isinstance(part, TextBlock) for part in changed.ordered].count(True) == bool(text)
    assert changed.with_text(message.content).content == message.content


def test_with_text_takes_the_place_of_the_first_text() -> None:
    message = Message("assistant", [ThinkingBlock("t"), "a", CALL, "b", IMAGE])
    assert message.with_text("x").ordered == (ThinkingBlock("t"), TextBlock("x"), CALL, IMAGE)
    assert Message("user", [IMAGE]).with_text("x").ordered == (IMAGE, TextBlock("x"))
    assert Message("assistant", tool_calls=[CALL]).with_text("x").ordered == (TextBlock("x"), CALL)
    assert Message("assistant", [CALL, IMAGE]).with_text("x").ordered == (TextBlock("x"), CALL, IMAGE)
    with pytest.raises(TypeError, match="text must be a str, not NoneType"):
        message.with_text(None)  # type: ignore[arg-type]


# -- equality ----------------------------------------------------------------------------------------------------------


def _compared(m: Message) -> Any:
    return m.role, m.content, m.name, m.tool_call_id, m.tool_calls, m.blocks, m.is_error


@given(st.lists(messages(), min_size=2, max_size=8))
def test_equal_messages_hash_equal(found: list[Message]) -> None:
    for left in found:
        for right in found:
            assert (left == right) == (_compared(left) == _compared(right))
            assert (left != right) == (_compared(left) != _compared(right))
            if left == right:
                assert hash(left) == hash(right)


@given(messages(), st.dictionaries(st.text(max_size=3), json_data(), max_size=3))
def test_meta_is_outside_equality_hash_and_digest(message: Message, meta: dict[str, Any]) -> None:
    other = replace(message, meta=meta)
    assert other == message
    assert hash(other) == hash(message)
    assert other.digest == message.digest
    assert other.meta == meta


@pytest.mark.parametrize(
    "change",
    [
        {"role": "assistant"}, {"content": "b"}, {"name": "n"}, {"tool_call_id": "i"}, {"tool_calls": (CALL,)},
        {"blocks": (TextBlock("a"), IMAGE)}, {"is_error": True},
    ],
    ids=lambda change: next(iter(change)),
)  # fmt: skip
def test_every_other_field_counts(change: dict[str, Any]) -> None:
    message = Message("user", "a")
    other = replace(message, **change)
    assert other != message
    assert other.digest != message.digest


def test_hash_leaves_out_blocks_arguments_and_error() -> None:
    for a, b in (
        (Message("user", ["a", IMAGE]), Message("user", "a")),
        (
            Message("assistant", tool_calls=[ToolCall("c", "f", {"n": 1})]),
            Message("assistant", tool_calls=[ToolCall("c", "f")]),
        ),
        (Message("tool", "a", is_error=True), Message("tool", "a")),
    ):
        assert a != b
        assert hash(a) == hash(b)


def test_messages_equal_messages_only() -> None:
    class Special(Message):
        pass

    assert (Message("user", "a") == ("user", "a")) is False
    assert Message("user", "a") != Special("user", "a")


@given(messages(), st.sampled_from(PROTOCOLS))
def test_copies_are_equal_with_meta(message: Message, protocol: int) -> None:
    hash(message), message.digest, message.ordered  # known now, and not carried along
    nan = any("nan" in call.arguments for call in message.tool_calls)
    for copied in (pickle.loads(pickle.dumps(message, protocol)), copy.deepcopy(message), copy.copy(message)):
        assert set(vars(copied)) == {f.name for f in fields(Message)}
        assert nan or copied == message
        assert hash(copied) == hash(message)
        assert copied.digest == message.digest
        assert copied.meta == message.meta
        assert type(copied.meta) is FrozenDict


@given(messages())
def test_plain_data_gives_the_message_back(message: Message) -> None:
    back = Message.from_dict(message.to_dict())
    assert back.digest == message.digest
    assert back.meta == message.meta
    if not any("nan" in call.arguments for call in message.tool_calls):
        assert back == message
        assert hash(back) == hash(message)


def test_unknown_keys_of_plain_data_land_in_meta() -> None:
    back = Message.from_dict({"role": "user", "content": "a", "invented": {"x": [1]}, "meta": {"y": 1}})
    assert back == Message("user", "a")
    assert back.meta["y"] == 1
    assert "invented" in str(back.meta)


def test_repr_shows_fields_only() -> None:
    message = Message("user", "a")
    before = repr(message)
    hash(message), message.digest, message.ordered  # derived values leave no trace
    assert repr(message) == before
    assert "'a'" in before


# -- marks -------------------------------------------------------------------------------------------------------------


def test_marks_live_in_meta() -> None:
    message = Message("user", "a", meta={"anthropic": {"id": "m"}})
    summary = mark(message, "summary", covers=3)
    assert summary == message
    assert summary.meta == {"anthropic": {"id": "m"}, "agentkit": {"summary": {"covers": 3}}}
    assert marked(summary, "summary") == {"covers": 3}
    assert marked(summary, "pinned") is None
    assert marked(mark(summary, "pinned"), "pinned") == {}
    assert marked(mark(summary, "pinned"), "summary") == {"covers": 3}
    assert marked(mark(summary, "summary", covers=4), "summary") == {"covers": 4}
    assert message.meta == {"anthropic": {"id": "m"}}


def test_unmark_takes_one_mark_off() -> None:
    message = Message("tool", "a", meta={"x": 1})
    both = mark(mark(message, "late"), "pending")
    assert marked(unmark(both, "late"), "pending") == {}
    assert marked(unmark(both, "late"), "late") is None
    assert unmark(unmark(both, "late"), "pending").meta == message.meta
    assert unmark(message, "late") is message


def test_kinds_of_marks_are_closed() -> None:
    assert {"summary", "pinned", "pending", "synthetic", "late"} == MARKS
    with pytest.raises(ValueError, match="unknown mark 'pin'; known are late, pending, pinned, summary, synthetic"):
        mark(Message("user"), "pin")


@pytest.mark.parametrize("odd", ["text", None, [1], {"summary": True}, {"summary": None}], ids=str)
def test_g1_odd_meta_is_no_mark(odd: Any) -> None:
    message = Message("user", meta={"agentkit": odd})
    assert marked(message, "summary") is None
    assert marked(mark(message, "summary", covers=1), "summary") == {"covers": 1}


def test_mark_may_note_any_key() -> None:
    assert marked(mark(Message("user"), "pinned", message="m", kind="k"), "pinned") == {"message": "m", "kind": "k"}


# -- digests -----------------------------------------------------------------------------------------------------------


@given(messages(), messages())
def test_digest_tells_apart_what_is_sent(left: Message, right: Message) -> None:
    if left.digest == right.digest:
        assert hash(left) == hash(right)
    if left != right and not any(isinstance(b, (TextBlock, NativeBlock)) for m in (left, right) for b in m.blocks):
        assert left.digest != right.digest or any("nan" in c.arguments for c in left.tool_calls)


def test_digest_sees_what_python_takes_for_equal() -> None:
    for one, other in ((1, True), (1, 1.0), (0.0, -0.0), (0, False)):
        a, b = (Message("assistant", tool_calls=[ToolCall("c", "f", {"n": n})]) for n in (one, other))
        assert a == b
        assert a.digest != b.digest
    spaced = Message("assistant", tool_calls=[ToolCall("c", "f", '{"a":1}')])
    assert spaced == Message("assistant", tool_calls=[CALL])
    assert spaced.digest != Message("assistant", tool_calls=[CALL]).digest


def test_k3_cache_mark_in_content_is_not_sent() -> None:
    cache = {"cache_control": {"type": "ephemeral"}}
    for with_mark, without in (
        (TextBlock("a", cache), TextBlock("a")),
        (TextBlock("a", {"citations": [1], **cache}), TextBlock("a", {"citations": [1]})),
        (NativeBlock("p", {"type": "x", **cache}), NativeBlock("p", {"type": "x"})),
    ):
        assert Message("user", [with_mark]).digest == Message("user", [without]).digest
        assert Message("user", [IMAGE, with_mark]).digest == Message("user", [IMAGE, without]).digest


DIGESTS = """
from agentkit.core.contracts.types import *
call = ToolCall("c", "f", {"s": {"b", "a", "c"}, "f": float("nan"), "o": object(), "d": {"z": 1, "y": 2}})
native = NativeBlock("p", {"k": frozenset("xyz"), 1: None})
message = Message("assistant", ["a\\ud800", ImageBlock(b"x"), call, native], name="n", is_error=True)
print(message.digest.hex(), stable_hash({"s": {"b", "a", "c"}, 1: ("x", None)}))
"""


def test_g4_digests_are_equal_in_every_process() -> None:
    found = set()
    for seed in ("0", "1", "4711"):
        run = subprocess.run(
            [sys.executable, "-c", DIGESTS], capture_output=True, text=True, env={"PYTHONHASHSEED": seed}, timeout=60
        )
        assert run.returncode == 0, run.stderr
        found.add(run.stdout)
    assert len(found) == 1


# -- lists of messages -------------------------------------------------------------------------------------------------


@given(message_lists(), st.data())
def test_same_objects_compares_identity(found: list[Message], data: st.DataObject) -> None:
    assert same_objects(found, list(found))
    assert same_objects(tuple(found), tuple(found))
    if not found:
        return
    at = data.draw(st.integers(0, len(found) - 1))
    replaced = [*found[:at], copy.copy(found[at]), *found[at + 1 :]]
    assert replaced == found
    assert not same_objects(found, replaced)
    assert not same_objects(found, found[:-1])


def test_same_objects_survives_values_that_cannot_be_compared() -> None:
    class Array:
        def __eq__(self, other: object) -> Any:
            raise ValueError("no truth value")

        __hash__ = None  # type: ignore[assignment]

    one, other = (Message("assistant", tool_calls=[ToolCall("c", "f", {"a": Array()})]) for _ in range(2))
    assert same_objects([one], [one])
    assert not same_objects([one], [other])


def test_require_messages_names_the_place() -> None:
    found = [Message("user", "a")]
    assert require_messages(iter(found), "x") == found
    with pytest.raises(TypeError, match=r"^x\[1\] must be a Message, not dict; Message.from_dict reads a mapping$"):
        require_messages([*found, {"role": "user"}], "x")


@given(calls(), blocks())
def test_e4_any_block_in_any_role(call: ToolCall, block: Block) -> None:
    for role in ("system", "user", "assistant", "tool", "critic"):
        message = Message(role, [block, call, "text"])
        assert message.ordered == (block, call, TextBlock("text"))
