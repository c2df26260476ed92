"""The codec carries every value there and back, writes strict JSON, and refuses the rest with a path."""

import contextlib
import datetime
import enum
import json
import math
import os
import subprocess
import sys
import uuid
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any, NoReturn
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.core.contracts import codec, plain
from agentkit.core.contracts.errors import CodecError, FormatError, FreezeError
from agentkit.core.contracts.frozen import FrozenDict, FrozenList, deep_freeze
from agentkit.core.contracts.ports import Hit, Lease, MemoryItem
from agentkit.core.contracts.types import (
    Breakpoint,
    CallMark,
    ChatRequest,
    Chunk,
    Delta,
    DocumentBlock,
    ImageBlock,
    LLMResult,
    Message,
    NativeBlock,
    RedactedThinkingBlock,
    Scope,
    StreamEvent,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolRequest,
    ToolSchema,
    Usage,
    mark,
)

ODD_TEXTS = ["", "\ud800", "a\\ud800", "\udc00\ud800", "\ud83d\ude00", "\0", "a\r\nb\u2028c", "$", "<|endoftext|>"]

texts = st.one_of(st.sampled_from(ODD_TEXTS), st.text(st.characters(exclude_categories=()), max_size=12))
zones = st.one_of(
    st.none(),
    st.just(datetime.UTC),
    st.sampled_from([ZoneInfo("UTC"), ZoneInfo("Europe/Berlin"), ZoneInfo("America/St_Johns")]),
    st.timedeltas(datetime.timedelta(hours=-23), datetime.timedelta(hours=23)).map(datetime.timezone),
    st.just(datetime.timezone(datetime.timedelta(hours=1), "CET")),
    st.sampled_from([1, -1]).map(lambda step: datetime.timezone(datetime.timedelta(microseconds=step))),
)
leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(1990, 2010).map(lambda bits: -(2**bits)),
    st.sampled_from([64, 5000, 20_000]).map(lambda bits: 2**bits),  # drawn by exponent: they are too long to print
    st.floats(allow_nan=True),
    st.just(-0.0),
    texts,
    st.binary(max_size=12),
    st.dates(),
    st.datetimes(timezones=zones, allow_imaginary=True),
    st.times(timezones=zones),
    st.uuids(),
    st.decimals(allow_nan=False),
    st.sampled_from([Decimal("NaN"), Decimal("-Infinity"), Decimal("1E+999999"), Decimal("-0.00")]),
)
hashables = st.recursive(
    leaves,
    lambda inner: st.one_of(st.lists(inner, max_size=3).map(tuple), st.frozensets(inner, max_size=3)),
    max_leaves=6,
)
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.sets(hashables, max_size=3),
        st.frozensets(hashables, max_size=3),
        st.dictionaries(st.one_of(st.sampled_from(["$", "$$", "", "v"]), texts), inner, max_size=4),
        st.dictionaries(hashables, inner, max_size=3),
    ),
    max_leaves=14,
)
json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**53), 2**53), st.floats(allow_nan=False, allow_infinity=False))
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
objects = st.dictionaries(texts, values, max_size=3)
argument_texts = st.one_of(
    st.sampled_from(["", "null", "{", "[1]", '{"a": 1e999}', '{"a":  1}', '{"_raw": "x"}', "\ud800", '{"$": "bytes"}']),
    json_values.map(json.dumps),
    texts,
)
calls = st.builds(
    ToolCall,
    st.one_of(st.none(), texts),
    texts,
    st.one_of(st.none(), objects, argument_texts),
    meta=st.one_of(st.just({}), objects),
)
sources = st.one_of(st.binary(max_size=9), texts, st.just("data:image/png;base64,aGk="), st.just("https://x.example/a"))
blocks = st.one_of(
    st.builds(TextBlock, texts, objects),
    st.builds(TextBlock, texts),
    st.builds(ImageBlock, sources, st.none() | texts, st.none() | st.integers(1, 9), st.none(), st.none() | texts),
    st.builds(DocumentBlock, sources, st.none() | texts, st.none() | texts, st.none() | st.integers(1, 9)),
    st.builds(ThinkingBlock, texts, st.none() | texts),
    st.builds(RedactedThinkingBlock, texts),
    st.builds(NativeBlock, texts, values),
)


@st.composite
def messages(draw: st.DrawFn) -> Message:
    found = draw(st.lists(calls, max_size=3))
    inside: list[Any] = draw(st.lists(blocks, max_size=4))
    has_marks = draw(st.booleans())
    if found and has_marks:
        places = draw(st.permutations(range(len(found))))
        for index in places[: draw(st.integers(0, len(found)))]:
            inside.insert(draw(st.integers(0, len(inside))), CallMark(index))
    return Message(
        draw(st.sampled_from(["user", "assistant", "tool", "system", "odd", ""])),
        None if inside else draw(texts),
        draw(st.none() | texts),
        draw(st.none() | texts),
        found,
        blocks=inside,
        is_error=draw(st.booleans()),
        meta=draw(st.one_of(st.just({}), objects)),
    )


def is_same(a: Any, b: Any) -> bool:
    """Equal, of the same types at every depth (a frozen container counts as its plain one), NaN and -0.0 too."""
    if isinstance(a, dict) and isinstance(b, dict):
        return len(a) == len(b) and all(is_same(x, y) and is_same(a[x], b[y]) for x, y in zip(a, b, strict=True))
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(is_same, a, b))
    if type(a) is not type(b):
        return False
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(is_same, a, b))
    if isinstance(a, (set, frozenset)):
        return len(a) == len(b) and {codec.encode(x) for x in a} == {codec.encode(x) for x in b}
    if isinstance(a, (float, Decimal)):
        return repr(a) == repr(b)
    if isinstance(a, (datetime.datetime, datetime.time)):
        return repr(a) == repr(b) and a.fold == b.fold
    if isinstance(a, (Message, ToolCall)):
        return a.__getstate__().keys() == b.__getstate__().keys() and all(
            is_same(a.__getstate__()[k], b.__getstate__()[k]) for k in a.__getstate__()
        )
    if isinstance(a, (TextBlock, NativeBlock)):
        return is_same(a.__dict__, b.__dict__)
    return bool(a == b)


def refuse(found: str) -> NoReturn:
    raise AssertionError(f"no strict JSON: {found}")


def check_strict(data: bytes) -> Any:
    """Reads stored text as a reader would that knows JSON's own rules only."""
    plain_data = json.loads(data.decode("utf-8"), parse_constant=refuse)
    json.dumps(plain_data, ensure_ascii=False).encode("utf-8")  # an escaped lone surrogate would end here
    return plain_data


# --- there and back ---


@given(values)
def test_values_come_back_equal(value: Any) -> None:
    data = codec.encode(value)
    assert is_same(codec.decode(data), value)
    assert is_same(codec.from_plain(codec.to_plain(value)), value)
    check_strict(data)


@given(json_values)
def test_plain_json_stays_plain(value: Any) -> None:
    """What JSON can carry is written as any JSON writer would write it, but for the one key that is the tag's."""

    def has_tag(item: Any) -> bool:
        if isinstance(item, dict):
            return "$" in item or any(map(has_tag, item.values()))
        return isinstance(item, list) and any(map(has_tag, item))

    if not has_tag(value):
        assert codec.encode(value) == json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
        assert codec.to_plain(value) == value


@given(messages())
def test_messages_come_back_equal(message: Message) -> None:
    back = codec.decode(codec.encode(message))
    assert is_same(back, message)
    assert hash(back) == hash(message)
    check_strict(codec.encode([message]))


@given(messages())
def test_message_dict_comes_back_equal(message: Message) -> None:
    described = message.to_dict()
    assert is_same(Message.from_dict(described), message)
    assert is_same(Message.from_dict(check_strict(json.dumps(described).encode())), message)


@given(st.one_of(blocks, calls))
def test_parts_come_back_equal(part: Any) -> None:
    assert is_same(codec.decode(codec.encode({"at": [part]})), {"at": [part]})


OTHERS = [
    Usage(),
    Usage(1, 2, 0.25, 3, 4, cache_write_long_tokens=4, reasoning_tokens=1),
    Scope(),
    Scope("acme", 7),
    Breakpoint(3, "1h"),
    ToolSchema("read", "reads", {"type": "object", "properties": {"$": {"type": "string"}}}),
    ToolRequest(ToolCall("1", "read", {"path": "a"}), True),
    ChatRequest(
        (Message("user", "hi"),),
        "m",
        (ToolSchema("t"),),
        {"type": "json"},
        0,
        5,
        [Breakpoint(1)],
        prefix=1,
        tool_choice="auto",
        options={"seed": 1, "stop": ["\ud800"]},
    ),
    ChatRequest((), temperature=-0.0),
    LLMResult("hi", (ToolCall("1", "t"),), Usage(1), "stop", "m", {"a": (1,)}, cached=True, meta={"x": b"y"}),
    LLMResult(blocks=(ThinkingBlock("t", "s"), TextBlock("x")), partial=True),
    Delta("h", usage=Usage(2), parsed=[1]),
    StreamEvent("final", "done", {"n": 1}),
    Chunk("text", "src", 0.5, {"page": 2}),
    MemoryItem("t", "id", "s", {"k": [1]}),
    Lease("n", "o", 4, 15.0),
    Hit("k", 2, "..."),
]


@pytest.mark.parametrize("value", OTHERS, ids=[f"{type(v).__name__}-{n}" for n, v in enumerate(OTHERS)])
def test_library_values_come_back_equal(value: Any) -> None:
    back = codec.decode(codec.encode([value]))[0]
    assert back == value
    assert type(back) is type(value)
    assert repr(back) == repr(value)
    check_strict(codec.encode(value))


@given(json_values)
def test_digest_survives_storage(payload: Any) -> None:
    message = Message("assistant", [NativeBlock("p", payload), ToolCall("1", "t", {"a": payload}), "x"])
    assert codec.decode(codec.encode(message)).digest == message.digest


def test_marks_survive() -> None:
    message = mark(Message("user", "x"), "summary", covers=3)
    assert codec.decode(codec.encode(message)).meta == {"agentkit": {"summary": {"covers": 3}}}


def test_message_parts_come_back_frozen() -> None:
    message = Message("assistant", tool_calls=[ToolCall("1", "t", {"a": [{"b": {1}}]})], meta={"x": {"y": [1]}})
    back = codec.decode(codec.encode(message))
    assert type(back.tool_calls) is tuple
    arguments = back.tool_calls[0].arguments
    assert [type(arguments), type(arguments["a"]), type(arguments["a"][0]), type(arguments["a"][0]["b"])] == [
        FrozenDict,
        FrozenList,
        FrozenDict,
        frozenset,
    ]
    assert type(back.meta["x"]["y"]) is FrozenList


def test_frozen_containers_come_back_plain() -> None:
    value = deep_freeze({"a": [1, {"b": 2}]})
    back = codec.decode(codec.encode(value))
    assert back == value
    assert (type(back), type(back["a"]), type(back["a"][1])) == (dict, list, dict)


def test_what_is_read_aliases_nothing() -> None:
    value = {"a": [1]}
    described = codec.to_plain(value)
    described["a"].append(2)
    codec.from_plain(described)["a"].append(3)
    assert (value, described) == ({"a": [1]}, {"a": [1, 2]})


def test_role_of_a_subclass_comes_back_equal() -> None:
    class Role(enum.StrEnum):
        USER = "user"

    message = Message(Role.USER, "x", Role.USER)
    back = codec.decode(codec.encode(message))
    assert back == message
    assert type(back.role) is type(back.name) is str


def test_large_text_is_carried_whole() -> None:
    text = "ä\0\r\n" * 300_000 + "\ud800"
    assert codec.decode(codec.encode({"t": text})) == {"t": text}


# --- what is written ---

WRITTEN = {
    '{"$":"tuple","v":[1,[2]]}': (1, [2]),
    '{"$":"set","v":["a","b"]}': {"b", "a"},
    '{"$":"frozenset","v":[1,{"$":"tuple","v":[]}]}': frozenset({1, ()}),
    '{"$":"dict","v":[1,"one",null,"none"]}': {1: "one", None: "none"},
    '{"a":{"$":"$","$$":1,"x":2,"$$$":3}}': {"a": {"$": 1, "x": 2, "$$": 3}},
    '{"$":"bytes","v":"aGk="}': b"hi",
    '{"$":"str","v":"a\\\\\\\\\\\\ud800"}': "a\\\ud800",
    '[{"$":"float","v":"-inf"},-0.0,1e+16]': [-math.inf, -0.0, 1e16],
    '{"$":"int","v":"0x' + "f" * 600 + '"}': 16**600 - 1,
    '{"$":"date","v":"2026-02-03"}': datetime.date(2026, 2, 3),
    '{"$":"datetime","v":"2026-02-03T04:05:06+00:00"}': datetime.datetime(2026, 2, 3, 4, 5, 6, tzinfo=datetime.UTC),
    '{"$":"datetime","v":"2026-10-25T02:30:00","zone":"Europe/Berlin","fold":1}': datetime.datetime(
        2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1
    ),
    '{"$":"time","v":"04:05:06.000007"}': datetime.time(4, 5, 6, 7),
    '{"$":"uuid","v":"00000000-0000-0000-0000-000000000001"}': uuid.UUID(int=1),
    '{"$":"decimal","v":"1.50"}': Decimal("1.50"),
    '{"$":"message","role":"user","content":"hi"}': Message("user", "hi"),
    '{"$":"message","role":"assistant","blocks":[{"type":"thinking","text":"t","signature":"s"},{"type":"call",'
    '"index":0},{"type":"text","text":"x","extra":{"a":1}},{"type":"image","data":"aGk=","media_type":"image/png"}],'
    '"tool_calls":[{"id":"1","name":"t","arguments":{"a":1}}],"is_error":true,"meta":{"m":[1]}}': Message(
        "assistant",
        blocks=[
            ThinkingBlock("t", "s"),
            CallMark(0),
            TextBlock("x", {"a": 1}),
            ImageBlock(b"hi", "image/png"),
        ],
        tool_calls=[ToolCall("1", "t", {"a": 1})],
        is_error=True,
        meta={"m": [1]},
    ),
    '{"$":"message","role":"assistant","tool_calls":[{"id":"1","name":"t","arguments":"{\\"a\\":1}"}]}': Message(
        "assistant", tool_calls=[ToolCall("1", "t", '{"a":1}')]
    ),
    '{"$":"usage","v":{"input_tokens":3}}': Usage(3),
    '{"$":"scope","v":{"org_id":"acme"}}': Scope("acme"),
}


@pytest.mark.parametrize("text", WRITTEN)
def test_stored_form_is_fixed(text: str) -> None:
    """Stores outlive a release: these texts are read for ever, and written until a reader of the new form is out."""
    assert codec.encode(WRITTEN[text]) == text.encode()
    assert is_same(codec.decode(text), WRITTEN[text])


def test_defaults_are_left_out() -> None:
    assert Message("user").to_dict() == {"role": "user"}
    assert Message("assistant", tool_calls=[ToolCall("1", "t")]).to_dict() == {
        "role": "assistant",
        "tool_calls": [{"id": "1", "name": "t"}],
    }


def test_sets_are_written_in_one_order() -> None:
    """The same bytes in every process, whatever its hash seed (G4)."""
    script = (
        "from agentkit.core.contracts import codec\n"
        "print(codec.encode({'a', 'b', 'c', 'd', 1, None, ('x', 'y'), frozenset('pqrs')}).decode())"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(found) == 1


# --- what is refused ---

Point = namedtuple("Point", "x y")


class Colour(enum.IntEnum):
    RED = 1


class Text(str):
    __slots__ = ()


class OddZone(datetime.tzinfo):
    def utcoffset(self, moment: datetime.datetime | None) -> datetime.timedelta:
        return datetime.timedelta(0)

    def dst(self, moment: datetime.datetime | None) -> None:
        return None

    def tzname(self, moment: datetime.datetime | None) -> str:
        return "odd"


class SpecialMessage(Message):
    pass


REFUSED = [
    object(),
    Point(1, 2),
    OrderedDict(a=1),
    Colour.RED,
    Text("x"),
    SpecialMessage("user"),
    bytearray(b"x"),
    1j,
    datetime.timedelta(1),
    datetime.datetime(2026, 1, 1, tzinfo=OddZone()),
    len,
    Message,
    ValueError("x"),
    iter(()),
]


@pytest.mark.parametrize("value", REFUSED, ids=[f"{type(v).__name__}-{n}" for n, v in enumerate(REFUSED)])
def test_other_types_are_refused(value: Any) -> None:
    for wrapped in (value, [value], {"k": value}, {1: value}, (value,), Message("user", meta={"k": value})):
        with pytest.raises(CodecError):
            codec.encode(wrapped)
        with pytest.raises(CodecError):
            codec.to_plain(wrapped)


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"a": [1, {"b": object()}]}, "dict['a'][1]['b']:"),
        ([(0, {1: object()})], "list[0][1][1]:"),
        ({object(): 1}, "dict[<object>]:"),
        (Message("user", meta={"x": [object()]}), "Message.meta['x'][0]:"),
        ([Message("a", tool_calls=[ToolCall("1", "t", {"p": 1j})])], "list[0].tool_calls[0].arguments['p']:"),
        (Message("user", [TextBlock("x"), NativeBlock("p", {"q": 1j})]), "Message.blocks[1].payload['q']:"),
        (LLMResult(parsed={"a": object()}), "LLMResult['parsed']['a']:"),
        ({"k" * 99: object()}, "dict['" + "k" * 39 + "]:"),
    ],
)
def test_refusal_names_the_path(value: Any, path: str) -> None:
    with pytest.raises(CodecError) as caught:
        codec.encode(value)
    assert str(caught.value).startswith(path)


def test_cycles_are_refused() -> None:
    value: dict[str, Any] = {"list": []}
    value["list"].append(value)
    with pytest.raises(FreezeError, match="contains itself") as caught:
        codec.encode(value)
    assert caught.value.cycle


def nested(depth: int, wrap: Callable[[Any], Any]) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = wrap(value)
    return value


def deeper(frames: int, work: Callable[[], Any]) -> Any:
    return work() if frames == 0 else deeper(frames - 1, work)


@pytest.mark.parametrize("frames", [0, 600])
@pytest.mark.parametrize(
    "wrap", [lambda v: [v], lambda v: {"k": v}, lambda v: {"$": v}, lambda v: FrozenList([v])], ids=range(4)
)
def test_wire_depth_is_carried(wrap: Callable[[Any], Any], frames: int) -> None:
    """As deep as a provider's data may be, from inside a deep program too."""
    value = nested(400, wrap)
    assert deeper(frames, lambda: codec.decode(codec.encode(value))) == value
    message = Message("assistant", tool_calls=[ToolCall("1", "t", {"k": nested(390, wrap)})])
    assert deeper(frames, lambda: codec.decode(codec.encode([message]))) == [message]
    assert deeper(frames, lambda: Message.from_dict(message.to_dict())) == message


@pytest.mark.parametrize("wrap", [lambda v: (v,), lambda v: {1: v}, lambda v: frozenset({v})], ids=range(3))
def test_tagged_depth_is_carried(wrap: Callable[[Any], Any]) -> None:
    value = nested(200, wrap)
    assert codec.decode(codec.encode(value)) == value


def test_too_deep_is_refused() -> None:
    for wrap in (lambda v: [v], lambda v: (v,), lambda v: {"k": v}):
        with pytest.raises(FreezeError, match="nested beyond 800") as caught:
            codec.encode(nested(801, wrap))
        assert not caught.value.cycle
    assert codec.decode(codec.encode(nested(799, lambda v: [v]))) == nested(799, lambda v: [v])
    with pytest.raises(FormatError):
        codec.decode("[" * 20_000 + "]" * 20_000)


# --- reading what the codec has not written ---


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "{",
        "nul",
        "[1] x",
        '{"$":"nothing-known","v":1}',
        '{"$":1}',
        '{"$":[]}',
        '{"$":"bytes"}',
        '{"$":"bytes","v":"%%"}',
        '{"$":"bytes","v":1}',
        '{"$":"dict","v":[1]}',
        '{"$":"dict","v":[[],1]}',
        '{"$":"set","v":[[1]]}',
        '{"$":"int","v":"x"}',
        '{"$":"decimal","v":"x"}',
        '{"$":"uuid","v":"x"}',
        '{"$":"datetime","v":"yesterday"}',
        '{"$":"datetime","v":"2026-01-01T00:00:00","zone":"Nowhere/At_All"}',
        '{"$":"message"}',
        '{"$":"message","role":1}',
        '{"$":"message","role":"user","content":5}',
        '{"$":"message","role":"user","tool_calls":[{"id":"1"}]}',
        '{"$":"message","role":"user","tool_calls":[{"id":"1","name":"t","arguments":[1]}]}',
        '{"$":"message","role":"user","meta":[1]}',
        '{"$":"message","role":"user","blocks":[{"type":"call","index":3}]}',
        '{"$":"call","id":"1"}',
        '{"$":"block","type":"text"}',
        '{"$":"block","type":"nothing-known"}',
        '{"$":"usage","v":{"input_tokens":-1}}',
        '{"$":"usage","v":3}',
    ],
)
def test_damaged_text_is_a_format_error(text: str) -> None:
    with pytest.raises(FormatError):
        codec.decode(text)


def test_damaged_bytes_are_a_format_error() -> None:
    with pytest.raises(FormatError):
        codec.decode(b'"\xff"')


@given(st.one_of(st.text(), st.binary(), st.builds(lambda m, at: codec.encode(m)[:at], messages(), st.integers(0, 99))))
def test_reading_raises_nothing_else(data: str | bytes) -> None:
    with contextlib.suppress(FormatError):
        codec.decode(data)


@given(st.dictionaries(st.sampled_from(["$", "v", "role", "content", "tool_calls", "blocks", "meta", "id"]), values))
def test_from_dict_raises_plain_errors(data: dict[str, Any]) -> None:
    with contextlib.suppress(TypeError, ValueError):
        Message.from_dict(data)


def test_white_space_around_is_read() -> None:
    assert codec.decode(b' {"a": 1}\n') == {"a": 1}


def test_newer_fields_are_no_error() -> None:
    """A newer release may have written more: a message keeps it in meta, other values leave it out."""
    message = codec.decode('{"$":"message","role":"user","content":"x","mood":"good","meta":{"a":1}}')
    assert message == Message("user", "x")
    assert message.meta == {"a": 1, "mood": "good"}
    assert codec.decode('{"$":"usage","v":{"input_tokens":1,"dreams":2}}') == Usage(1)
    assert codec.decode('{"$":"chunk","v":{"text":"t","dreams":2}}').meta == {"dreams": 2}


def test_unknown_keys_land_in_meta() -> None:
    message = Message.from_dict({"role": "user", "content": "x", "a": 1, "b": [2], "$": 4, "meta": {"a": 3}})
    assert message.meta == {"a": 3, "a_": 1, "b": [2], "$": 4}
    assert Message.from_dict(message.to_dict()).meta == message.meta


def test_from_dict_reads_provider_shapes() -> None:
    openai = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "1", "type": "function", "function": {"name": "t", "arguments": '{"a": 1}'}}],
        "refusal": None,
    }
    assert Message.from_dict(openai) == Message("assistant", tool_calls=[ToolCall("1", "t", {"a": 1})])
    anthropic = {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "t", "signature": "s"},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}},
            {"type": "tool_use", "id": "1", "name": "t", "input": {}},
        ],
    }
    assert Message.from_dict(anthropic) == Message(
        "assistant", [ThinkingBlock("t", "s"), ImageBlock(b"hi", "image/png"), ToolCall("1", "t")]
    )
    wire = {"role": "user", "blocks": [{"type": "image_url", "image_url": {"url": "https://x.example"}}]}
    assert Message.from_dict(wire) == Message("user", blocks=[ImageBlock("https://x.example")])


def test_from_dict_leaves_lookalike_tags() -> None:
    arguments = {"$": "mystery", "x": {"$": "bytes", "v": "%"}, "y": {"$": 3}}
    message = Message.from_dict({"role": "a", "tool_calls": [{"id": "1", "name": "t", "arguments": arguments}]})
    assert message.tool_calls[0].arguments == arguments


def test_from_dict_leaves_its_argument_alone() -> None:
    data = {"role": "user", "blocks": [{"type": "text", "text": "x", "extra": {}}], "meta": {"a": []}, "z": {}}
    before = json.dumps(data)
    message = Message.from_dict(data)
    assert json.dumps(data) == before
    data["meta"]["a"].append(1)  # type: ignore[index]
    assert message.meta["a"] == []


@pytest.mark.parametrize("data", [None, 1, "role", [("role", "user")]])
def test_from_dict_takes_mappings_only(data: Any) -> None:
    with pytest.raises(TypeError):
        Message.from_dict(data)


# --- classes of others ---


class Money:
    def __init__(self, amount: Decimal, unit: str) -> None:
        self.amount, self.unit = amount, unit

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Money) and (self.amount, self.unit) == (other.amount, other.unit)

    def __hash__(self) -> int:
        return hash(self.unit)


@pytest.fixture
def money() -> Any:
    codec.register(Money, "test-money", lambda m: [m.amount, m.unit], lambda found: Money(*found))
    yield
    del plain.WRITERS[Money], plain.READERS["test-money"]


@pytest.mark.usefixtures("money")
def test_registered_class_comes_back() -> None:
    value = {"price": Money(Decimal("1.50"), "\ud800"), Money(Decimal(1), "EUR"): (1,)}
    assert codec.decode(codec.encode(value)) == value
    message = Message("user", meta={"price": Money(Decimal(2), "EUR")})
    assert Message.from_dict(message.to_dict()).meta == message.meta
    with pytest.raises(CodecError, match=r"Money\[0\]"):
        codec.encode(Money(object(), "EUR"))  # type: ignore[arg-type]


@pytest.mark.usefixtures("money")
def test_taken_tags_are_refused() -> None:
    for cls, tag in ((OddZone, "test-money"), (OddZone, "message"), (OddZone, "$"), (OddZone, "")):
        with pytest.raises(ValueError, match="tag"):
            codec.register(cls, tag, str, str)
    for known in (Money, dict, int, Message):
        with pytest.raises(ValueError, match="known to the codec"):
            codec.register(known, "test-other", str, str)
    assert "test-other" not in plain.READERS


def test_replaced_messages_come_back_equal() -> None:
    """A copy with other arguments has lost the provider's text; with the same ones it keeps it."""
    call = ToolCall("1", "t", '{"a": [1, 2]}')
    for changed in (replace(call, id="2"), replace(call, arguments={"a": 2})):
        assert is_same(codec.decode(codec.encode(changed)), changed)
