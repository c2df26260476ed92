"""Anthropic messages: results inside user messages, provider-run calls, compactions on the server, exchanges."""

import json
from typing import Any

from agentkit.core.contracts.types import ImageBlock, NativeBlock, RedactedThinkingBlock, ThinkingBlock, Usage, marked
from agentkit.transcripts import to_anthropic, to_openai
from tests.transcripts.samples import jsonl, kinds, one

USER = {"role": "user", "content": "hi"}


def use(id: str, name: str = "ls", **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": given}


def outcome(id: str, content: Any = "ok", **fields: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id, "content": content, **fields}


def body(*messages: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"model": "claude-sonnet-4-5", "max_tokens": 100, "system": "be brief", "messages": [*messages], **fields}


def test_results_become_messages() -> None:
    """Each result is a tool message, in its place; text after them is a user message."""
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0="}}
    parts = [outcome("a"), outcome("b", [{"type": "text", "text": "see"}, image]), {"type": "text", "text": "and?"}]
    turn = {"role": "assistant", "content": [{"type": "text", "text": "well"}, use("a", path="."), use("b")]}
    transcript = one(body(USER, turn, {"role": "user", "content": parts}))
    assert [m.role for m in transcript.history] == ["system", "user", "assistant", "tool", "tool", "user"]
    assert [c.arguments for c in transcript.history[2].tool_calls] == [{"path": "."}, {}]
    assert transcript.history[4].blocks[1] == ImageBlock(b"\x89PNG\r", "image/png")
    assert transcript.history[5].content == "and?"
    sent = to_anthropic(transcript)
    assert [m["role"] for m in sent["messages"]] == ["user", "assistant", "user"]
    assert [part["type"] for part in sent["messages"][2]["content"]] == ["tool_result", "tool_result", "text"]
    assert sent["messages"][2]["content"][1]["content"] == [{"type": "text", "text": "see"}, image]


def test_system_blocks_are_the_prefix() -> None:
    blocks = [{"type": "text", "text": "one"}, {"type": "text", "text": "two", "cache_control": {"type": "ephemeral"}}]
    transcript = one(body(USER, system=blocks))
    assert transcript.context.prefix.system_prompt == "one"
    assert [m.content for m in transcript.context.prefix.grounding] == ["two"]
    assert transcript.history[1].meta == {"cache_control": {"type": "ephemeral"}}
    assert to_anthropic(transcript)["system"] == [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]


def test_request_is_rebuilt_without_its_marks() -> None:
    tools = [
        {"name": "ls", "description": "d", "input_schema": {"type": "object"}, "cache_control": {"type": "ephemeral"}}
    ]
    thinking = {"type": "enabled", "budget_tokens": 1000}
    transcript = one(body(USER, tools=tools, thinking=thinking, temperature=1))
    assert [tool.name for tool in transcript.tools] == ["ls"]
    sent = to_anthropic(transcript)
    assert sent["tools"] == [{"name": "ls", "description": "d", "input_schema": {"type": "object"}}]
    assert (sent["thinking"], sent["temperature"], sent["max_tokens"]) == (thinking, 1, 100)
    assert "thinking" not in to_openai(transcript)
    assert to_openai(transcript, model="gpt-4o")["tools"][0]["function"]["parameters"] == {"type": "object"}


def test_thinking_stays_in_front_of_its_calls() -> None:
    """E8: verbatim, in place, also between calls."""
    content = [
        {"type": "thinking", "thinking": "first", "signature": "s1"},
        use("a"),
        {"type": "redacted_thinking", "data": "xyz"},
        use("b"),
    ]
    transcript = one(
        body(USER, {"role": "assistant", "content": content}, {"role": "user", "content": [outcome("a"), outcome("b")]})
    )
    turn = transcript.history[2]
    assert turn.blocks[0] == ThinkingBlock("first", "s1")
    assert turn.blocks[2] == RedactedThinkingBlock("xyz")
    assert to_anthropic(transcript)["messages"][1]["content"] == content


def test_paused_turn_is_no_orphan() -> None:
    """The last provider-run call has no result yet, and goes back as it is."""
    search = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
    transcript = one(body(USER, {"role": "assistant", "content": [{"type": "text", "text": "hm"}, search]}))
    assert transcript.history[2].blocks[1] == NativeBlock("anthropic", search)
    assert not transcript.history[2].tool_calls
    assert kinds(transcript) == ["options kept"]
    assert to_anthropic(transcript)["messages"][1]["content"][1] == search


def test_compaction_block_starts_the_context() -> None:
    """Messages before it are ignored by the server; they stay in the history."""
    turn = {
        "role": "assistant",
        "content": [{"type": "compaction", "content": "so far"}, {"type": "text", "text": "on"}],
    }
    transcript = one(body(USER, {"role": "assistant", "content": "x"}, USER, turn, {"role": "user", "content": "next"}))
    assert len(transcript.history) == 6
    assert [m.content for m in transcript.context.messages] == ["so far", "on", "next"]
    assert marked(transcript.context.messages[0], "summary") == {"covers": 3}
    assert transcript.compactions[0].index == 4
    assert [m["role"] for m in to_openai(transcript)["messages"]] == ["system", "user", "assistant", "user"]


def test_response_by_itself() -> None:
    """I4: with server tools the top-level figures are a sum; the last iteration alone is an anchor."""
    usage = {
        "input_tokens": 23_000,
        "output_tokens": 1_000,
        "iterations": [
            {"type": "compaction", "input_tokens": 180_000, "output_tokens": 3_500},
            {"type": "message", "input_tokens": 23_000, "output_tokens": 1_000},
        ],
    }
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "usage": usage}
    transcript = one({**message, "content": [{"type": "text", "text": "hello"}], "stop_reason": "end_turn"})
    assert transcript.usage == Usage(203_000, 4_500)
    assert transcript.history[0].meta["stop_reason"] == "end_turn"
    assert transcript.responses[0].id == "msg_1"


def test_exchanges_with_streams() -> None:
    events: list[dict[str, Any]] = [
        {
            "type": "message_start",
            "message": {"id": "m", "role": "assistant", "model": "claude", "usage": {"input_tokens": 9}},
        },
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hel"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "lo"}},
        {"type": "content_block_start", "index": 1, "content_block": use("a")},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": '{"path":'}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": ' "."}'}},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 7}},
    ]
    stream = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
    transcript = one(jsonl({"request": body(USER), "response": stream}))
    turn = transcript.history[2]
    assert (turn.content, dict(turn.tool_calls[0].arguments)) == ("hello", {"path": "."})
    assert transcript.usage == Usage(9, 7)
    assert transcript.responses[0].index == 2


def test_exchanges_are_gathered() -> None:
    def asked(messages: list[Any], content: list[Any], fresh: int) -> dict[str, Any]:
        answer = {"type": "message", "role": "assistant", "content": content, "usage": {"input_tokens": fresh}}
        return {"request": body(*messages), "response": answer}

    turn = {"role": "assistant", "content": [use("a")]}
    results = {"role": "user", "content": [outcome("a"), {"type": "text", "text": "go on"}]}
    transcript = one(
        jsonl(
            asked([USER], [use("a")], 10),
            asked([USER, turn, results], [{"type": "text", "text": "done"}], 20),
        )
    )
    assert [m.role for m in transcript.history] == ["system", "user", "assistant", "tool", "user", "assistant"]
    assert [(r.index, r.usage.input_tokens if r.usage else None) for r in transcript.responses] == [(2, 10), (5, 20)]


def test_system_entry_in_messages_stays_there() -> None:
    transcript = one(
        body(USER, {"role": "assistant", "content": "x"}, {"role": "system", "content": "now formal"}, USER)
    )
    assert [m.role for m in transcript.context.messages] == ["user", "assistant", "system", "user"]
    sent = to_anthropic(transcript)
    assert sent["system"] == [{"type": "text", "text": "be brief"}]
    assert "now formal" in json.dumps(sent["messages"][2])
