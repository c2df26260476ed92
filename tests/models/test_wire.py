"""Rendering views as two providers take them; whole requests are in tests/transcripts/test_export.py."""

from typing import Any

import pytest

from agentkit.core.contracts.types import (
    ImageBlock,
    Message,
    NativeBlock,
    RedactedThinkingBlock,
    TextBlock,
    ToolCall,
    ToolSchema,
)
from agentkit.models.wire import anthropic, openai_chat
from agentkit.models.wire.media import data_uri, media_type_of


def test_results_and_text_after_them_are_one_user_message() -> None:
    """P3: results ahead of any other text, as one message where the provider wants that."""
    view = [
        Message("user", "hi"),
        Message("assistant", "", tool_calls=[ToolCall("a", "f"), ToolCall("b", "f")]),
        Message("tool", "1", "f", "a"),
        Message("tool", "2", "f", "b", is_error=True),
        Message("user", "and?"),
    ]
    assert anthropic.render_messages(view)[2] == {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "a", "content": "1"},
            {"type": "tool_result", "tool_use_id": "b", "content": "2", "is_error": True},
            {"type": "text", "text": "and?"},
        ],
    }
    assert [m["role"] for m in openai_chat.render_messages(view)] == ["user", "assistant", "tool", "tool", "user"]


def test_calls_stay_at_their_place() -> None:
    """E8: the order of blocks in a turn."""
    turn = Message("assistant", [RedactedThinkingBlock("x"), ToolCall("a", "f"), TextBlock("then"), ToolCall("b", "f")])
    (wire,) = anthropic.render_messages([turn])
    assert [block["type"] for block in wire["content"]] == ["redacted_thinking", "tool_use", "text", "tool_use"]


def test_turn_that_only_calls_has_null_content() -> None:
    (wire,) = openai_chat.render_messages([Message("assistant", "", tool_calls=[ToolCall("a", "f", '{"b":  1}')])])
    assert wire["content"] is None
    assert wire["tool_calls"][0]["function"]["arguments"] == '{"b":  1}'


def test_tools_are_sorted_by_name() -> None:
    """K2."""
    tools = [ToolSchema("b", "2"), ToolSchema("a", "1")]
    assert [tool["name"] for tool in anthropic.render_tools(tools)] == ["a", "b"]
    assert [tool["function"]["name"] for tool in openai_chat.render_tools(tools)] == ["a", "b"]
    assert anthropic.render_tools(tools) == anthropic.render_tools(tools[::-1])


def test_citations_go_back() -> None:
    cited = TextBlock("x", {"citations": [{"type": "page_location"}], "logprobs": 1})
    (wire,) = anthropic.render_messages([Message("assistant", [cited, TextBlock("y")])])
    assert wire["content"][0] == {"type": "text", "text": "x", "citations": [{"type": "page_location"}]}


@pytest.mark.parametrize("wire", [anthropic, openai_chat], ids=["anthropic", "openai_chat"])
def test_unrepaired_blocks_are_refused(wire: Any) -> None:
    """A programming error, said at once: the view was not repaired."""
    with pytest.raises(ValueError, match="repair the view first"):
        wire.render_messages([Message("user", [TextBlock("x"), NativeBlock("unknown", [1])])])


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"\x89PNG\r\n", "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a", "image/gif"),
        (b"RIFF\0\0\0\0WEBPVP8", "image/webp"),
        (b"%PDF-1.7", "application/pdf"),
        (b"?", "image/x"),
    ],
)
def test_media_types_are_told_by_the_data(data: bytes, kind: str) -> None:
    assert media_type_of(data, "image/x") == kind
    assert data_uri(data, None, "image/x").startswith(f"data:{kind};base64,")


def test_picture_in_a_result() -> None:
    result = Message("tool", [TextBlock("see"), ImageBlock(b"\x89PNG")], "f", "a")
    (wire,) = anthropic.render_messages([result])
    assert [part["type"] for part in wire["content"][0]["content"]] == ["text", "image"]
