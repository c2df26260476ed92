"""Content blocks: what wire dicts become, what stays verbatim, and what counts as equal."""

from __future__ import annotations

import base64
import copy
import pickle
from dataclasses import FrozenInstanceError, fields
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.core.contracts.blocks import BLOCK_TYPES
from agentkit.core.contracts.errors import FreezeError
from agentkit.core.contracts.frozen import FrozenDict
from agentkit.core.contracts.jsontext import json_text
from agentkit.core.contracts.types import (
    Block,
    CallMark,
    DocumentBlock,
    ImageBlock,
    NativeBlock,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    as_block,
)
from tests.context_strategies import json_data, nested
from tests.strategies import blocks

PNG = b"\x89PNG\r\n\x1a\n"
PNG64 = base64.b64encode(PNG).decode()
CACHE = {"cache_control": {"type": "ephemeral"}}


def _source(**fields: Any) -> dict[str, Any]:
    return {"type": "image", "source": fields}


WIRE: dict[str, tuple[dict[str, Any], Block]] = {
    "text": ({"type": "text", "text": "a"}, TextBlock("a")),
    "untyped text": ({"text": "a"}, TextBlock("a")),
    "input text": ({"type": "input_text", "text": "a"}, TextBlock("a")),
    "output text": (
        {"type": "output_text", "text": "a", "annotations": [{"url": "u"}]},
        TextBlock("a", {"annotations": [{"url": "u"}]}),
    ),
    "citations": ({"type": "text", "text": "a", "citations": []}, TextBlock("a", {"citations": []})),
    "cache mark": ({"type": "text", "text": "a", **CACHE}, TextBlock("a", CACHE)),
    "thinking": ({"type": "thinking", "thinking": "t", "signature": "s"}, ThinkingBlock("t", "s")),
    "unsigned thinking": ({"type": "thinking", "thinking": "t"}, ThinkingBlock("t")),
    "redacted thinking": ({"type": "redacted_thinking", "data": "d"}, RedactedThinkingBlock("d")),
    "image": (_source(type="base64", media_type="image/png", data=PNG64), ImageBlock(PNG, "image/png")),
    "image with a mark": (_source(type="url", url="https://h/i") | CACHE, ImageBlock("https://h/i")),
    "image URL": (
        {"type": "image_url", "image_url": {"url": "https://h/i", "detail": "low"}},
        ImageBlock("https://h/i", detail="low"),
    ),
    "image as data URI": (
        {"type": "input_image", "image_url": f"data:image/png;base64,{PNG64}", "detail": "auto"},
        ImageBlock(PNG, "image/png", detail="auto"),
    ),
    "document": (
        {
            "type": "document",
            "title": "T",
            "source": {"type": "base64", "media_type": "application/pdf", "data": PNG64},
        },
        DocumentBlock(PNG, "application/pdf", title="T"),
    ),
    "document by URL": (
        {"type": "document", "source": {"type": "url", "url": "https://h/d"}},
        DocumentBlock("https://h/d"),
    ),
}
VERBATIM: dict[str, tuple[str, dict[str, Any]]] = {
    "server call": ("anthropic", {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"q": 1}}),
    "server result": ("anthropic", {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}),
    "tool result": ("anthropic", {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "image"}]}),
    "unknown kind": ("unknown", {"type": "invented_in_2027", "x": {"b": 1, "a": 2}}),
    "reasoning": ("openai", {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "e"}),
    "audio": ("openai", {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}),
    "refusal": ("openai", {"type": "refusal", "refusal": "no"}),
    "image by file id": ("openai", {"type": "input_image", "file_id": "file-1"}),
    "file": ("openai", {"type": "input_file", "file_id": "file-1"}),
    "image URL with more": ("openai", {"type": "image_url", "image_url": {"url": "u", "x": 1}}),
    "no type": ("unknown", {"functionCall": {"name": "f"}}),
    "empty": ("unknown", {}),
    "text and more, no type": ("unknown", {"text": "a", "thought": True}),
    "odd type": ("unknown", {"type": ["text"], "text": "a"}),
    "odd type, mapping": ("unknown", {"type": {}, "text": "a"}),
    "blank type": ("unknown", {"type": "", "text": "a"}),
    "text that is none": ("anthropic", {"type": "text", "text": None}),
    "thinking with more": ("anthropic", {"type": "thinking", "thinking": "t", "signature": "s", "x": 1}),
    "thinking without text": ("anthropic", {"type": "thinking", "signature": "s"}),
    "signature of another type": ("anthropic", {"type": "thinking", "thinking": "t", "signature": 1}),
    "redacted without data": ("anthropic", {"type": "redacted_thinking"}),
    "base64 that is none": ("anthropic", _source(type="base64", media_type="image/png", data="*")),
    "base64 spelled otherwise": ("anthropic", _source(type="base64", media_type="image/png", data=PNG64 + "\n")),
    "image by file": ("anthropic", _source(type="file", file_id="f")),
    "image without source": ("anthropic", {"type": "image"}),
    "document with context": (
        "anthropic",
        {"type": "document", "source": {"type": "url", "url": "u"}, "context": "c"},
    ),
}


@pytest.mark.parametrize(("wire", "block"), WIRE.values(), ids=WIRE)
def test_known_wire_dicts_become_blocks(wire: dict[str, Any], block: Block) -> None:
    before = copy.deepcopy(wire)
    assert as_block(wire) == block
    assert as_block(MappingProxyType(wire)) == block
    assert wire == before


@pytest.mark.parametrize(("provider", "wire"), VERBATIM.values(), ids=VERBATIM)
def test_e4_what_has_no_block_of_its_own_stays_verbatim(provider: str, wire: dict[str, Any]) -> None:
    block = as_block(wire)
    assert block == NativeBlock(provider, wire)
    assert isinstance(block, NativeBlock)
    assert json_text(block.payload) == json_text(wire)  # key order included


@given(
    st.dictionaries(
        st.sampled_from(["type", "text", "source", "thinking", "signature", "data", "image_url", "title", "url", "x"]),
        st.sampled_from(["text", "image", "thinking", "document", "image_url", "redacted_thinking", "base64", "url"])
        | json_data(),
    )
)
def test_g1_no_wire_dict_raises(wire: dict[str, Any]) -> None:
    block = as_block(wire)
    assert isinstance(block, BLOCK_TYPES)
    if isinstance(block, NativeBlock):
        assert block.payload == wire


@pytest.mark.parametrize("wrong", ["text", None, 1, ["text"]], ids=str)
def test_no_mapping_is_no_block(wrong: Any) -> None:
    with pytest.raises(TypeError, match="a content block must be a mapping"):
        as_block(wrong)


@pytest.mark.parametrize(
    ("kind", "owner"),
    [("text", "anthropic"), ("image", "anthropic"), ("tool_result", "anthropic"), ("unknown_kind", "unknown")],
)
def test_g1_wire_dict_beyond_the_limit_is_kept_as_text(kind: str, owner: str) -> None:
    wire = {"type": kind, "text": "a", "more": nested(400)}
    assert as_block(wire) == NativeBlock(owner, json_text(wire))
    allowed = {"type": kind, "more": nested(399)}
    assert as_block(allowed) == NativeBlock(owner, allowed)


def test_cycle_in_a_payload_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(FreezeError):
        NativeBlock("p", loop)


DATA_URIS: dict[str, tuple[str, bytes | str, str | None]] = {
    "base64": (f"data:image/png;base64,{PNG64}", PNG, "image/png"),
    "no type": (f"data:;base64,{PNG64}", PNG, None),
    "percent-encoded": ("data:image/svg+xml,%3Csvg%2F%3E", b"<svg/>", "image/svg+xml"),
    "parameters": (f"data:image/png;name=a;base64,{PNG64}", PNG, "image/png;name=a"),
    "broken base64": ("data:image/png;base64,*", "data:image/png;base64,*", None),
    "no comma": ("data:image/png", "data:image/png", None),
    "surrogate": ("data:text/plain,\ud800", "data:text/plain,\ud800", None),
    "reference": ("https://h/data:image/png;base64,AAAA", "https://h/data:image/png;base64,AAAA", None),
}


@pytest.mark.parametrize(("uri", "source", "media_type"), DATA_URIS.values(), ids=DATA_URIS)
@pytest.mark.parametrize("kind", [ImageBlock, DocumentBlock])
def test_data_uri_is_decoded(
    kind: type[ImageBlock | DocumentBlock], uri: str, source: bytes | str, media_type: str | None
) -> None:
    block = kind(uri)
    assert (block.source, block.media_type) == (source, media_type)
    assert kind(uri, "given/type").media_type == "given/type"
    assert kind(source, media_type) == block


@pytest.mark.parametrize("wrong", [None, 1, ["a"], memoryview(b"a")], ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("kind", [ImageBlock, DocumentBlock])
def test_source_is_bytes_or_text(kind: Any, wrong: Any) -> None:
    with pytest.raises(TypeError, match=rf"{kind.__name__}\.source must be bytes or str"):
        kind(wrong)
    assert kind(bytearray(b"a")) == kind(b"a")


WRONG: dict[str, tuple[Any, dict[str, Any]]] = {
    "TextBlock.text must be a str, not NoneType": (TextBlock, {"text": None}),
    "TextBlock.extra must be a mapping, not list": (TextBlock, {"text": "a", "extra": [1]}),
    "ThinkingBlock.text must be a str, not bytes": (ThinkingBlock, {"text": b""}),
    "ThinkingBlock.signature must be a str or None, not int": (ThinkingBlock, {"text": "", "signature": 1}),
    "RedactedThinkingBlock.data must be a str, not NoneType": (RedactedThinkingBlock, {"data": None}),
    "NativeBlock.provider must be a str, not NoneType": (NativeBlock, {"provider": None, "payload": {}}),
    "CallMark.index must be an int, not str": (CallMark, {"index": "0"}),
    "CallMark.index must be an int, not bool": (CallMark, {"index": True}),
    "ImageBlock.media_type must be a str or None, not int": (ImageBlock, {"source": b"", "media_type": 1}),
    "ImageBlock.width must be an int or None, not float": (ImageBlock, {"source": b"", "width": 1.5}),
    "ImageBlock.height must be an int or None, not str": (ImageBlock, {"source": b"", "height": "1"}),
    "ImageBlock.detail must be a str or None, not int": (ImageBlock, {"source": b"", "detail": 1}),
    "DocumentBlock.pages must be an int or None, not bool": (DocumentBlock, {"source": b"", "pages": True}),
    "DocumentBlock.title must be a str or None, not int": (DocumentBlock, {"source": b"", "title": 1}),
}


@pytest.mark.parametrize("text", WRONG)
def test_wrong_types_are_named(text: str) -> None:
    kind, given = WRONG[text]
    with pytest.raises(TypeError) as refused:
        kind(**given)
    assert str(refused.value) == text


@pytest.mark.parametrize(("kind", "size"), [(ImageBlock, "width"), (ImageBlock, "height"), (DocumentBlock, "pages")])
def test_n2_negative_sizes_are_refused(kind: Any, size: str) -> None:
    with pytest.raises(ValueError, match=rf"{kind.__name__}\.{size} must not be negative: -1"):
        kind(b"", **{size: -1})
    assert getattr(kind(b"", **{size: 0}), size) == 0


@given(blocks(), blocks(), st.sampled_from(range(pickle.HIGHEST_PROTOCOL + 1)))
def test_blocks_are_values(left: Block, right: Block, protocol: int) -> None:
    def compared(block: Block) -> Any:
        return type(block), [getattr(block, f.name) for f in fields(block)]

    assert (left == right) == (compared(left) == compared(right))
    if left == right:
        assert hash(left) == hash(right)
    for copied in (pickle.loads(pickle.dumps(left, protocol)), copy.deepcopy(left)):
        assert copied == left
        assert hash(copied) == hash(left)


def test_blocks_cannot_be_written_to() -> None:
    extra: dict[str, Any] = {"citations": []}
    payload: dict[str, Any] = {"type": "x", "content": []}
    text, native = TextBlock("a", extra), NativeBlock("p", payload)
    extra["citations"].append(1)
    payload["content"].append(1)
    assert text.extra == {"citations": []}
    assert native.payload == {"type": "x", "content": []}
    assert type(text.extra) is FrozenDict
    with pytest.raises(FrozenInstanceError):
        text.text = "b"  # type: ignore[misc]
    with pytest.raises(TypeError, match="cannot be mutated"):
        native.payload["content"].append(1)


def test_thinking_stays_verbatim() -> None:
    for text in ("", " \n trailing ", "\ud800", "a" * 100_000):
        assert ThinkingBlock(text, text).text == ThinkingBlock(text, text).signature == text
        assert RedactedThinkingBlock(text).data == text
