"""Request bodies of providers: what is rendered, what is left out, and that nothing but a view is ever written."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.core.contracts.errors import EmptyRequestError
from agentkit.core.contracts.types import (
    Block,
    DocumentBlock,
    ImageBlock,
    Message,
    NativeBlock,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolSchema,
)
from agentkit.core.contracts.validity import STAND_IN
from agentkit.state.context import PrefixContext, WorkingContext
from agentkit.transcripts import Transcript, dumps, loads, to_anthropic, to_openai
from tests.transcripts.samples import one

USER = Message("user", "hi")
CALL = Message("assistant", "look", tool_calls=[ToolCall("a", "ls", {"path": "."})])
RESULT = Message("tool", "a.py", "ls", "a")
TOOLS = [ToolSchema("b", "second", {"type": "object"}), ToolSchema("a", "first", {"type": "object"})]


def test_context_as_anthropic_body() -> None:
    context = WorkingContext(PrefixContext("be brief", [Message("system", "facts")]), [USER, CALL, RESULT, USER])
    assert to_anthropic(context, model="claude-sonnet-4-5", max_tokens=10, tools=TOOLS) == {
        "model": "claude-sonnet-4-5",
        "max_tokens": 10,
        "system": [{"type": "text", "text": "be brief"}, {"type": "text", "text": "facts"}],
        "messages": [
            {"role": "user", "content": "hi"},
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "look"},
                    {"type": "tool_use", "id": "a", "name": "ls", "input": {"path": "."}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "a", "content": "a.py"},
                    {"type": "text", "text": "hi"},
                ],
            },
        ],
        "tools": [
            {"name": "a", "description": "first", "input_schema": {"type": "object"}},
            {"name": "b", "description": "second", "input_schema": {"type": "object"}},
        ],
    }


def test_context_as_openai_body() -> None:
    context = WorkingContext(PrefixContext("be brief", [Message("system", "facts")]), [USER, CALL, RESULT, USER])
    call = {"id": "a", "type": "function", "function": {"name": "ls", "arguments": '{"path": "."}'}}
    assert to_openai(context, model="gpt-4o", tools=TOOLS[:1]) == {
        "model": "gpt-4o",
        "messages": [
            {"role": "system", "content": "be brief"},
            {"role": "system", "content": "facts"},
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "look", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "a", "content": "a.py"},
            {"role": "user", "content": "hi"},
        ],
        "tools": [
            {"type": "function", "function": {"name": "b", "description": "second", "parameters": {"type": "object"}}}
        ],
    }


@pytest.mark.parametrize("export", [to_anthropic, to_openai])
def test_only_a_view_is_written(export: Any) -> None:
    """P4, G2: an open call is answered in the body, and stays open in the record."""
    history = [USER, CALL]
    body = export(history)
    assert STAND_IN in json.dumps(body["messages"][2], ensure_ascii=False)
    assert history == [USER, CALL]


@pytest.mark.parametrize("export", [to_anthropic, to_openai])
def test_nothing_but_system_text_is_refused(export: Any) -> None:
    with pytest.raises(EmptyRequestError):
        export(WorkingContext(PrefixContext("be brief")))
    with pytest.raises(EmptyRequestError):
        export([])


@pytest.mark.parametrize("export", [to_anthropic, to_openai])
def test_bodies_are_plain_strict_json(export: Any) -> None:
    """U1, G5: no frozen parts, no NaN, no half surrogate pairs, whatever the record holds."""
    call = ToolCall("a", "f", {"x": float("nan"), "y": "\ud800", "z": [1, {"k": None}]})
    body = export([Message("user", "half \ud83d"), Message("assistant", "", tool_calls=[call]), RESULT])
    assert type(body["messages"]) is list
    text = json.dumps(body, ensure_ascii=False, allow_nan=False)
    assert "\ufffd" in text
    assert text.encode()


def test_cache_marks_are_left_out() -> None:
    """K3: only the plan of whoever sends sets them."""
    marked = TextBlock("hi", {"cache_control": {"type": "ephemeral"}})
    assert to_anthropic([Message("user", [marked])])["messages"] == [{"role": "user", "content": "hi"}]
    assert "cache_control" not in json.dumps(to_openai([Message("user", [marked, ImageBlock("https://x.y/a.png")])]))


def test_pictures_and_files() -> None:
    parts: list[Block] = [
        ImageBlock(b"\x89PNG", None),
        ImageBlock("https://x.y/a.jpg"),
        ImageBlock("file-1"),
        DocumentBlock(b"%PDF-", title="a.pdf"),
    ]
    content = to_anthropic([Message("user", parts)])["messages"][0]["content"]
    assert [part["source"] for part in content] == [
        {"type": "base64", "media_type": "image/png", "data": "iVBORw=="},
        {"type": "url", "url": "https://x.y/a.jpg"},
        {"type": "file", "file_id": "file-1"},
        {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="},
    ]
    content = to_openai([Message("user", [*parts, DocumentBlock("https://x.y/b.pdf")])])["messages"][0]["content"]
    assert content[0] == {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}}
    assert content[3]["file"] == {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0="}
    assert content[4] == {"type": "text", "text": "https://x.y/b.pdf"}


def test_thinking_goes_back_to_its_provider_only() -> None:
    turn = Message("assistant", [ThinkingBlock("hm", "sig"), TextBlock("hello")])
    history = [USER, turn, USER]
    assert to_anthropic(history)["messages"][1]["content"][0] == {
        "type": "thinking", "thinking": "hm", "signature": "sig"
    }  # fmt: skip
    assert to_openai(history)["messages"][1] == {"role": "assistant", "content": "hello"}


def test_model_of_the_last_response_is_taken() -> None:
    line = {"sessionId": "s", "uuid": "a", "parentUuid": None, "type": "assistant"}
    message = {"id": "m", "role": "assistant", "model": "claude-sonnet-4-5", "content": [{"type": "text", "text": "x"}]}
    transcript = one({**line, "message": message})
    assert to_anthropic(transcript)["model"] == "claude-sonnet-4-5"
    assert "model" not in to_openai(transcript)


def test_system_text_at_the_head_of_the_tail_stays_there() -> None:
    """E6: it never joins the prompt in front."""
    context = WorkingContext(PrefixContext("be brief"), [Message("system", "now formal"), USER])
    body = to_anthropic(context)
    assert body["system"] == [{"type": "text", "text": "be brief"}]
    assert "now formal" in json.dumps(body["messages"][0])


def test_native_form_is_recognised_and_loss_free() -> None:
    image = Message("user", [ImageBlock(b"\x00\xff", "image/png"), NativeBlock("x", {"b": [1, None]})])
    odd = Message("assistant", "half \ud800", tool_calls=[ToolCall("a", "f", "{broken")], meta={"n": 1})
    history = (Message("system", "s"), image, odd)
    context = WorkingContext(PrefixContext("s"), [history[1], Message("user", "not in the history")])
    transcript = Transcript(
        "claude-code", "id", "label", context, history, tools=tuple(TOOLS), meta={"k": [1, {"a": ()}]}
    )
    assert loads(dumps(transcript)) == (transcript,)
    assert loads(dumps([transcript, transcript])) == (transcript, transcript)
    (again,) = loads(dumps(transcript))
    assert again.context.messages[0] is again.history[1]


def test_native_form_cut_off_keeps_its_messages() -> None:
    (transcript,) = loads(json.dumps([{"role": "system", "content": "s"}, {"role": "user", "content": "hi"}]))
    text = dumps(transcript)
    cut = text[: text.rindex('{"agentkit":"end"') + 20]
    (again,) = loads(cut)
    assert (again.format, again.history, again.context) == ("openai-chat", transcript.history, transcript.context)
    assert [f.kind for f in again.report] == ["record cut off", "record cut off"]
    (without,) = loads(text.replace('"role":"user"', '"role":7'))
    assert [m.role for m in without.history] == ["system"]
    assert without.report.has_losses


TEXTS = st.text(alphabet="ab \n\ud800é", max_size=6)
BLOCKS = st.one_of(
    TEXTS.map(TextBlock),
    st.builds(ImageBlock, st.sampled_from([b"\x89PNG", "https://x.y/a", "file-1"])),
    st.builds(DocumentBlock, st.sampled_from([b"%PDF-", "https://x.y/a", "file-1"]), title=st.none() | TEXTS),
    st.builds(ThinkingBlock, TEXTS, st.sampled_from([None, "sig"])),
    st.sampled_from(
        [
            NativeBlock("anthropic", {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}),
            NativeBlock("openai", {"type": "refusal", "refusal": "no"}),
            NativeBlock("unknown", {"what": 1}),
        ]
    ),
)
CALLS = st.builds(
    ToolCall,
    st.sampled_from(["a", "b", "", "odd id!", "x" * 70]),
    st.sampled_from(["ls", "", "odd name!"]),
    st.sampled_from([{}, {"n": 1.5}, "{broken", '{"k": "v"}']),
)
MESSAGES = st.builds(
    lambda role, blocks, calls, id, error: Message(
        role,
        blocks,
        tool_call_id=id if role == "tool" else None,
        tool_calls=calls if role == "assistant" else (),
        is_error=error and role == "tool",
    ),
    st.sampled_from(["user", "assistant", "assistant", "tool", "tool", "system", "unknown"]),
    st.lists(BLOCKS, max_size=3),
    st.lists(CALLS, max_size=2),
    st.sampled_from(["a", "b", "", None]),
    st.booleans(),
)


@pytest.mark.parametrize(("export", "format"), [(to_anthropic, "anthropic-messages"), (to_openai, "openai-chat")])
@given(history=st.lists(MESSAGES, max_size=8), prefix=st.sampled_from(["", "be brief"]))
def test_export_imported_again_exports_the_same(export: Any, format: str, history: list[Message], prefix: str) -> None:
    """The round-trip law, over random conversations."""
    try:
        first = json.dumps(export(WorkingContext(PrefixContext(prefix), history)), ensure_ascii=False).encode()
    except EmptyRequestError:
        return
    (again,) = loads(first, format=format)
    assert not again.report.has_losses
    assert json.dumps(export(again), ensure_ascii=False).encode() == first
