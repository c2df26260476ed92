"""The estimate: one formula, the same at every call site, and nothing that makes it raise or hang."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import Callable
from time import process_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.core.contracts import tokens
from agentkit.core.contracts.jsontext import json_text
from agentkit.core.contracts.tokens import (
    Weight,
    estimate_message_tokens,
    estimate_request_tokens,
    native_text,
    schema_chars,
    weight,
)
from agentkit.core.contracts.types import (
    CallMark,
    DocumentBlock,
    ImageBlock,
    Message,
    NativeBlock,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolSchema,
)
from agentkit.state.compaction.base import _approx_tokens
from agentkit.state.context import ApproxTokenCounter, WorkingContext
from agentkit.state.context import tokens as counters
from tests.context_strategies import ODD, json_data, message_lists
from tests.strategies import transcripts

TRANSCRIPT = [
    Message("user", "check the cert"),
    Message("assistant", "", tool_calls=(ToolCall("c1", "openssl", {"host": "example.com", "port": 443}),)),
    Message("tool", "notAfter=2026-08-01", name="openssl", tool_call_id="c1"),
]
FIRST = [
    Message("system", "You are a careful research assistant."),
    Message("user", "What changed in the pricing table?"),
]


# -- the formula -------------------------------------------------------------------------------------------------------

PRINTED: dict[str, tuple[list[Message], int]] = {
    "first example": (FIRST, 25),
    "transcript": (TRANSCRIPT, 37),
    "its call alone": (TRANSCRIPT[1:2], 19),
    "two short messages": ([Message("user", "ab")] * 2, 9),
    "nothing": ([], 0),
    "500 empty messages": ([Message("user", "")] * 500, 2_000),
    "absent content": ([Message("assistant", None)], 4),
    "a name": ([Message("user", "", name="abcd")], 5),
    "an id": ([Message("tool", "", tool_call_id="abcd")], 5),
    "a bare call": ([Message("assistant", tool_calls=[ToolCall("", "")])], 8),  # {} is two characters
    "not ASCII-escaped": ([Message("assistant", tool_calls=[ToolCall("", "", {"k": "éééé"})])], 11),
    "role is free": ([Message("x" * 400, "")], 4),
}


@pytest.mark.parametrize(("messages", "expected"), PRINTED.values(), ids=PRINTED)
def test_n1_printed_values(messages: list[Message], expected: int) -> None:
    assert estimate_message_tokens(messages) == expected


def test_printed_characters() -> None:
    assert sum(weight(m).chars for m in FIRST) == 71
    assert sum(weight(m).chars for m in TRANSCRIPT) == 87
    assert weight(TRANSCRIPT[1]) == Weight(45, 2, 0)


def _oracle(messages: list[Message]) -> int:
    """The formula, written from the contract."""
    chars = units = flat = 0
    for m in messages:
        units += 1 + len(m.tool_calls)
        chars += len(m.content) + len(m.name or "") + len(m.tool_call_id or "")
        for call in m.tool_calls:
            try:
                text = json.dumps(call.arguments, ensure_ascii=False, default=str)
            except (TypeError, ValueError):
                text = json_text(call.arguments)
            chars += len(call.id) + len(call.name) + len(text)
        for block in m.blocks:
            match block:
                case ThinkingBlock():
                    chars += len(block.text)
                case RedactedThinkingBlock():
                    chars += int(len(block.data) * 0.75)
                case ImageBlock():
                    longest = None if None in (block.width, block.height) else max(block.width or 0, block.height or 0)
                    small = block.detail == "low" or (longest is not None and longest <= 512)
                    flat += 350 if small else 1_400 if longest is not None and longest <= 1_024 else 1_600
                case DocumentBlock():
                    flat += 8_000 if block.pages is None else 2_000 * block.pages
                case NativeBlock():
                    text = json_text(block.payload)
                    for string in re.findall(r'"((?:[^"\\]|\\.)*)"', text):
                        if len(string) >= 1_024 and re.fullmatch(r"[A-Za-z0-9+/_-]+={0,2}", string):
                            flat += 1_600
                            chars -= len(string)
                    chars += len(text)
    return chars // 4 + 4 * units + flat


@given(transcripts() | message_lists())
def test_estimate_is_the_formula(messages: list[Message]) -> None:
    assert estimate_message_tokens(messages) == _oracle(messages)


@given(message_lists(), message_lists())
def test_parts_add_up_to_the_whole(one: list[Message], other: list[Message]) -> None:
    both = estimate_message_tokens(one + other)
    assert 0 <= both - estimate_message_tokens(one) - estimate_message_tokens(other) <= 1


BLOCKS: dict[str, tuple[Any, int]] = {
    "text": (TextBlock("a" * 40, {"citations": ["b" * 400]}), 10),
    "thinking": (ThinkingBlock("a" * 40, "s" * 4_000), 10),
    "redacted thinking": (RedactedThinkingBlock("a" * 40), 7),
    "call mark": (CallMark(0), 0),
    "image, unknown size": (ImageBlock(b"x" * 10_000_000), 1_600),
    "image, one edge known": (ImageBlock(b"x", width=100), 1_600),
    "image, small": (ImageBlock(b"x", width=512, height=1), 350),
    "image, low detail": (ImageBlock("https://h/i", detail="low"), 350),
    "image, low detail wins": (ImageBlock(b"x", width=4_000, height=4_000, detail="low"), 350),
    "image, medium": (ImageBlock(b"x", width=513, height=1), 1_400),
    "image, medium, upper end": (ImageBlock(b"x", width=10, height=1_024, detail="high"), 1_400),
    "image, large": (ImageBlock(b"x", width=1_025, height=1), 1_600),
    "document": (DocumentBlock(b"x" * 10_000_000), 8_000),
    "document of 3 pages": (DocumentBlock(b"x", pages=3), 6_000),
    "native": (NativeBlock("p", {"type": "x", "n": [1, 2]}), 6),  # 26 characters
    "native audio": (NativeBlock("p", {"data": "QUJD" * 100_000}), 1_603),
    "native, two images": (NativeBlock("p", [{"data": "A" * 1_024}, {"data": "B" * 5_000 + "=="}]), 3_207),
    "native, just too short": (NativeBlock("p", "A" * 1_023), 256),
    "native, just long enough": (NativeBlock("p", "A" * 1_024), 1_600),
    "native, wrapped": (NativeBlock("p", ("A" * 76 + "\n") * 20), 1_600),
    "native, data URI": (NativeBlock("p", {"url": "data:image/png;base64," + "A" * 2_000}), 1_602),
    "native, nested": (NativeBlock("p", {"a": [{"b": {"c": "A" * 2_000}}]}), 1_606),
    "native, words": (NativeBlock("p", "word " * 1_000), 1_250),
}


@pytest.mark.parametrize(("block", "expected"), BLOCKS.values(), ids=BLOCKS)
def test_n2_blocks_count_by_kind(block: Any, expected: int) -> None:
    calls = [ToolCall("", "")] if isinstance(block, CallMark) else []
    bare = estimate_message_tokens([Message("user", tool_calls=calls)])
    assert estimate_message_tokens([Message("user", [block], tool_calls=calls)]) - bare == expected


@given(st.binary(max_size=100), st.binary(max_size=100_000))
def test_n2_image_counts_without_its_bytes(one: bytes, other: bytes) -> None:
    for kind in (ImageBlock, DocumentBlock):
        assert weight(Message("user", ["a", kind(one)])) == weight(Message("user", ["a", kind(other)]))


@given(st.binary(min_size=768, max_size=3_000), st.sampled_from(["", "\n", "\r\n"]))
def test_n2_encoded_data_in_a_payload_counts_flat(data: bytes, end: str) -> None:
    encoded = end.join(re.findall(".{1,76}", base64.b64encode(data).decode())) + end
    text, found = native_text({"source": {"data": encoded}, "note": "kept"})
    assert found == 1
    assert text == '{"source": {"data": ""}, "note": "kept"}'


def test_meta_and_signature_are_free() -> None:
    plain = Message("assistant", ["a", ThinkingBlock("t")], tool_calls=[ToolCall("c", "f")])
    calls = [ToolCall("c", "f", meta={"x": "m" * 1_000})]
    heavy = Message("assistant", ["a", ThinkingBlock("t", "s" * 1_000)], tool_calls=calls, meta={"x": "m" * 1_000})
    assert weight(heavy) == weight(plain)


# -- one estimator -----------------------------------------------------------------------------------------------------


def test_n5_one_function_at_all_call_sites() -> None:
    assert counters.estimate_message_tokens is _approx_tokens is tokens.estimate_message_tokens
    assert counters.estimate_request_tokens is tokens.estimate_request_tokens


@given(transcripts())
def test_n5_call_sites_agree(messages: list[Message]) -> None:
    expected = estimate_message_tokens(messages)
    assert ApproxTokenCounter().measure(messages) == expected
    assert asyncio.run(ApproxTokenCounter().estimate(messages)) == expected
    assert asyncio.run(WorkingContext(messages=messages).tokens()) == expected
    assert WorkingContext(messages=messages).count().tokens == expected
    assert estimate_request_tokens(messages) == expected


def test_request_adds_the_json_of_schemas() -> None:
    tool = ToolSchema("search", "finds", {"type": "object"})
    text = '{"description": "finds", "name": "search", "parameters": {"type": "object"}}'
    assert schema_chars([tool]) == len(text)
    assert schema_chars([tool], {"type": "json"}) == len(text) + len('{"type": "json"}')
    assert schema_chars([{"name": "f", "b": 1}]) == len('{"b": 1, "name": "f"}')
    assert estimate_request_tokens(FIRST, [tool]) == (71 + len(text)) // 4 + 8
    assert estimate_request_tokens([], [], None) == 0


def test_n5_layout_and_request_count_tools_alike() -> None:
    tools = [ToolSchema("search", "finds", {"type": "object", "properties": {"q": {"type": "string"}}})] * 3
    layout = WorkingContext(messages=TRANSCRIPT).segments(tools=tools)
    assert 0 <= estimate_request_tokens(TRANSCRIPT, tools) - layout.tokens <= 1


# -- robustness --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in ODD if name != "cycle"])
def test_g1_no_argument_makes_it_raise(name: str) -> None:
    arguments = {"k": ODD[name]}
    messages = [
        Message("assistant", tool_calls=[ToolCall("c", "f", arguments)]),
        Message("user", [NativeBlock("p", arguments)]),
    ]
    assert estimate_message_tokens(messages) > 0
    assert len(messages[0].digest) == 32


def test_g1_leaf_that_holds_itself_is_counted() -> None:
    class Box(dict[str, Any]):
        """A subclass is a leaf, so freezing does not look inside."""

    box = Box()
    box["self"] = [box]
    assert estimate_message_tokens([Message("assistant", tool_calls=[ToolCall("c", "f", {"box": box})])]) > 0


@given(st.dictionaries(st.text(), json_data()))
def test_counts_what_is_sent(arguments: dict[str, Any]) -> None:
    call = ToolCall("c", "f", arguments)
    assert weight(Message("assistant", tool_calls=[call])).chars == 2 + len(call.wire_arguments)


def growth(work: Callable[[int], object]) -> float:
    """How many times longer eight times the input takes; 8 when linear, 64 when quadratic."""

    def cost(size: int) -> float:
        best = float("inf")
        for _ in range(3):
            start = process_time()
            work(size)
            best = min(best, process_time() - start)
        return best

    return cost(160_000) / max(cost(20_000), 1e-4)


HOSTILE: dict[str, str] = {
    "letters": "a",
    "words": "word ",
    "line ends": "\n",
    "line ends and marks": "\n!",
    "quotes": '"',
    "backslashes": "\\",
    "base64, never closed": "A!",
    "equals signs": "=",
    "data URIs": "data:",
    "quoted base64": '"AAAA',
    "nested quotes": '\\"',
    "surrogates": "\ud800",
    "emoji": "🙂",
    "NUL": "\x00",
}


@pytest.mark.parametrize("piece", HOSTILE.values(), ids=HOSTILE)
def test_n8_counting_is_linear(piece: str) -> None:
    """The end differs from the rest, so that a match that has to close gives up at the last character."""

    def work(size: int) -> None:
        text = piece * (size // len(piece))
        estimate_message_tokens([Message("user", [NativeBlock("p", {"a": text + "!", "b": text})])])

    assert growth(work) < 30


def test_n8_one_message_of_a_megabyte() -> None:
    assert estimate_message_tokens([Message("user", "x" * 1_000_000)]) == 250_004


def test_weight_is_computed_once() -> None:
    message = Message("user", "a")
    assert weight(message) is weight(message)
