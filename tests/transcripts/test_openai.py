"""OpenAI's two APIs, exchanges with them, and the formats that borrow their shape."""

import json
from typing import Any

from agentkit.core.contracts.types import DocumentBlock, ImageBlock, Message, NativeBlock, ThinkingBlock, Usage, marked
from agentkit.transcripts import loads, to_openai
from tests.transcripts.samples import jsonl, kinds, one

USER = {"role": "user", "content": "hi"}


def called(*ids: str, **fields: Any) -> dict[str, Any]:
    calls = [{"id": id, "type": "function", "function": {"name": "ls", "arguments": "{}"}} for id in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls, **fields}


def answer(id: Any, content: str = "ok", **fields: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": content, **fields}


def response(content: str, prompt: int, cached: int = 0, **fields: Any) -> dict[str, Any]:
    usage = {"prompt_tokens": prompt, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": cached}}
    message = {"role": "assistant", "content": content}
    return {"id": "r", "model": "gpt-4o", "created": 0, "choices": [{"message": message}], "usage": usage, **fields}


def test_old_spellings() -> None:
    """`developer` is system text, `function` a result, `function_call` a call; what they were is in the meta."""
    transcript = one(
        [
            {"role": "developer", "content": "be brief"},
            {"role": "system", "content": "be kind"},
            USER,
            {"role": "assistant", "content": None, "function_call": {"name": "ls", "arguments": '{"a": 1}'}},
            {"role": "function", "name": "ls", "content": "ok"},
            {"role": "developer", "content": "late"},
        ]
    )
    assert [m.role for m in transcript.history] == ["system", "system", "user", "assistant", "tool", "system"]
    assert transcript.history[0].meta["role"] == "developer"
    assert transcript.context.prefix.system_prompt == "be brief"
    assert [m.content for m in transcript.context.prefix.grounding] == ["be kind"]
    assert transcript.history[3].tool_calls[0].arguments == {"a": 1}
    assert transcript.history[4].tool_call_id == transcript.history[3].tool_calls[0].id == "call-1"
    assert kinds(transcript) == ["id generated", "id generated"]


def test_content_parts() -> None:
    pdf = "data:application/pdf;base64,JVBERi0="
    parts = [
        {"type": "text", "text": "look", "cache_control": {"type": "ephemeral"}},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png", "detail": "low"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": pdf}},
        {"type": "file", "file": {"file_id": "file-1"}},
        {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}},
    ]
    transcript = one([{"role": "user", "content": parts}, {"role": "assistant", "content": None, "refusal": "no"}])
    message, refused = transcript.history
    assert message.blocks[1:4] == (
        ImageBlock("https://example.com/a.png", detail="low"),
        DocumentBlock(b"%PDF-", "application/pdf", "a.pdf"),
        DocumentBlock("file-1"),
    )
    assert isinstance(message.blocks[4], NativeBlock)
    assert refused.blocks == (NativeBlock("openai", {"type": "refusal", "refusal": "no"}),)
    assert kinds(transcript) == []
    sent = to_openai(transcript)["messages"][0]["content"]
    assert sent == [{"type": "text", "text": "look"}, *parts[1:]]


def test_reasoning_is_a_part() -> None:
    turn: dict[str, Any] = {
        "role": "assistant",
        "content": "hello",
        "reasoning_content": "hm",
        "annotations": [],
        "audio": None,
    }
    message = one([USER, turn]).history[1]
    assert message.blocks[0] == ThinkingBlock("hm")
    assert message.content == "hello"
    assert message.meta == {"annotations": []}


def test_arguments_of_any_kind() -> None:
    """E5."""
    given = ['{"a": 1}', "", None, "{broken", "[1]", {"b": 2}, 7]
    calls = [{"id": f"c{n}", "function": {"name": "f", "arguments": a}} for n, a in enumerate(given)]
    transcript = one([USER, {"role": "assistant", "tool_calls": calls}, *[answer(f"c{n}") for n in range(7)]])
    found = transcript.history[1].tool_calls
    assert [dict(call.arguments) for call in found] == [
        {"a": 1}, {}, {}, {"_raw": "{broken"}, {"_raw": "[1]"}, {"b": 2}, {"_raw": "7"}
    ]  # fmt: skip
    assert [call.invalid for call in found] == [False, False, False, True, True, False, True]
    assert kinds(transcript) == ["arguments invalid"] * 3


def test_pairing_by_id_and_by_order() -> None:
    """P7, P9: as the rules say: by id to the next call of that id, by order where ids are missing or empty."""
    empty = called("", "")
    transcript = one([USER, empty, answer("", "first"), answer(None, "second"), USER])
    assert [m.tool_call_id for m in transcript.history if m.role == "tool"] == ["call-1", "call-2"]
    repeated = one([USER, called("a"), answer("a", "1"), called("a"), answer("a", "2"), answer("a", "3")])
    assert kinds(repeated) == ["id repeated", "second result"]
    orphan = one([USER, answer("z"), called("b")])
    assert kinds(orphan) == ["result without call", "call unanswered"]
    assert [m.role for m in orphan.history] == ["user", "tool", "assistant"]
    together = one([USER, called("a", "a"), answer("a", "1"), answer("a", "2")])
    assert kinds(together) == ["id repeated"]
    named = one([USER, called(""), {**answer("z", "odd"), "name": "ls"}])
    assert named.history[2].tool_call_id == "call-1"
    assert named.history[2].meta["tool_call_id"] == "z"


def test_results_take_the_name_of_their_call() -> None:
    assert one([USER, called("a"), answer("a")]).history[2].name == "ls"


def test_prompted_dialect_stays_text() -> None:
    spelled = {"role": "assistant", "content": "<function=run>\n<parameter=command>ls</parameter>\n</function>"}
    transcript = one([USER, spelled, {"role": "user", "content": "EXECUTION RESULT: ok"}])
    assert transcript.history[1].content == spelled["content"]
    assert kinds(transcript) == ["calls as text"]


def test_request_is_kept_in_meta() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    tools = [{"type": "function", "function": {"name": "f", "description": "d", "parameters": schema, "strict": True}}]
    body = {"model": "gpt-4o", "messages": [USER], "tools": tools, "temperature": 0.5, "stream": False}
    transcript = one(body)
    assert transcript.request == {k: v for k, v in body.items() if k != "messages"}
    assert [(t.name, t.description, t.parameters) for t in transcript.tools] == [("f", "d", schema)]
    assert to_openai(transcript) == body


def test_litellm_log() -> None:
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 7,
        "cache_read_input_tokens": 60,
        "cache_creation_input_tokens": 30,
    }
    log = {
        "messages": [USER],
        "tools": None,
        "kwargs": {"temperature": 0},
        "response": response("hello", 1, usage=usage),
    }
    transcript = one(log)
    assert [m.content for m in transcript.history] == ["hi", "hello"]
    assert transcript.usage == Usage(10, 7, cache_read_tokens=60, cache_write_tokens=30)
    assert transcript.responses[0].time == "1970-01-01T00:00:00Z"
    assert transcript.history[1].meta["model"] == "gpt-4o"
    assert transcript.request == {"temperature": 0}


def test_line_of_a_data_set_is_no_request() -> None:
    """What a data set says of a conversation is kept, but is no option of an API."""
    transcript = one({"messages": [USER], "source": "web", "id": 7})
    assert transcript.request == {"source": "web", "id": 7}
    assert to_openai(transcript) == {"messages": [USER]}


def exchange(messages: list[Any], answered: Any) -> dict[str, Any]:
    return {"request": {"model": "gpt-4o", "messages": messages}, "response": answered}


def test_exchanges_are_gathered() -> None:
    turn = {"role": "assistant", "content": "hello"}
    more = {"role": "user", "content": "more"}
    other = {"role": "user", "content": "something else"}
    first, second = loads(
        jsonl(
            exchange([USER], response("hello", 10)),
            exchange([other], response("fine", 3)),
            exchange([USER, turn, more], response("cut off", 20, 8)),
            exchange([USER, turn, more], response("again", 20, 16)),
        )
    )
    assert [m.content for m in first.history] == ["hi", "hello", "more", "again"]
    assert [(r.index, r.usage.prompt_tokens if r.usage else None) for r in first.responses] == [
        (1, 10),
        (None, 20),
        (3, 20),
    ]
    assert "response not continued" in kinds(first)
    assert [m.content for m in second.history] == ["something else", "fine"]


def test_recorded_event_stream_is_put_together() -> None:
    chunks = [
        {"id": "r", "model": "gpt-4o", "choices": [{"index": 0, "delta": {"role": "assistant", "content": "he"}}]},
        {"choices": [{"index": 0, "delta": {"content": "llo"}}]},
        {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "ls"}}]}}]},
        {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "function": {"arguments": '{"a":'}}]}}]},
        {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "function": {"arguments": "1}"}}]}}]},
        {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 3}},
    ]
    stream = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
    transcript = one(exchange([USER], stream))
    assert transcript.history[1] == Message(
        "assistant", "hello", tool_calls=[{"id": "c", "name": "ls", "args": {"a": 1}}]
    )
    assert transcript.usage == Usage(9, 3)
    unreadable = one(exchange([USER], "<html>bad gateway</html>"))
    assert kinds(unreadable) == ["response unreadable", "options kept"]


def test_lines_of_bodies_are_conversations() -> None:
    first, second = loads(jsonl({"messages": [USER]}, {"messages": [USER, {"role": "assistant", "content": "yes"}]}))
    assert (len(first.history), len(second.history)) == (1, 2)


ITEMS: list[dict[str, Any]] = [
    {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"},
    {"type": "message", "role": "assistant", "id": "msg_1", "content": [{"type": "output_text", "text": "let me see"}]},
    {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "ls", "arguments": '{"path": "."}'},
    {"type": "function_call", "id": "fc_2", "call_id": "c2", "name": "ls", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c2", "output": "second"},
    {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "first"}]},
    {"type": "web_search_call", "id": "ws_1", "status": "completed"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]},
]


def test_items_are_gathered_into_turns() -> None:
    """E9: reasoning is a part of the turn it led to, its empty summary with it; a call is named by `call_id`."""
    transcript = one({"model": "gpt-5", "instructions": "be brief", "input": ITEMS, "store": False})
    assert [m.role for m in transcript.history] == ["system", "user", "assistant", "tool", "tool", "assistant"]
    assert transcript.context.prefix.system_prompt == "be brief"
    turn = transcript.history[2]
    assert turn.blocks[0] == NativeBlock("openai", ITEMS[1])
    assert turn.content == "let me see"
    assert [(c.id, c.meta["id"]) for c in turn.tool_calls] == [("c1", "fc_1"), ("c2", "fc_2")]
    assert [(m.tool_call_id, m.content) for m in transcript.history[3:5]] == [("c2", "second"), ("c1", "first")]
    assert isinstance(transcript.history[5].blocks[0], NativeBlock)
    assert transcript.request == {"model": "gpt-5", "store": False}
    assert kinds(transcript) == ["options kept"]


def test_response_object_and_usage() -> None:
    usage = {"input_tokens": 100, "input_tokens_details": {"cached_tokens": 90}, "output_tokens": 8}
    body = {
        "object": "response",
        "id": "resp_1",
        "model": "gpt-5",
        "created_at": 60,
        "output": ITEMS[1:4],
        "usage": usage,
    }
    transcript = one(body)
    assert transcript.usage == Usage(10, 8, cache_read_tokens=90)
    assert (transcript.responses[0].index, transcript.responses[0].time) == (0, "1970-01-01T00:01:00Z")
    assert transcript.history[0].tool_calls[0].id == "c1"


def test_continued_response_has_only_its_end() -> None:
    transcript = one({"model": "gpt-5", "input": "go on", "previous_response_id": "resp_0"})
    assert [m.content for m in transcript.history] == ["go on"]
    assert "beginning elsewhere" in kinds(transcript)


def test_compaction_item_starts_the_context() -> None:
    item = {"type": "compaction", "encrypted_content": "gAAA"}
    transcript = one({"model": "gpt-5", "input": [ITEMS[0], item, {"role": "user", "content": "next"}]})
    assert len(transcript.history) == 3
    assert [m.role for m in transcript.context.messages] == ["assistant", "user"]
    assert transcript.compactions[0].index == 1


def test_exchanges_with_items() -> None:
    def asked(items: list[Any], output: list[Any], fresh: int) -> dict[str, Any]:
        usage = {"input_tokens": fresh, "output_tokens": 1}
        return {"request": {"model": "gpt-5", "input": items}, "response": {"output": output, "usage": usage}}

    transcript = one(jsonl(asked(ITEMS[:1], ITEMS[1:5], 10), asked(ITEMS[:7], ITEMS[7:], 50)))
    assert [m.role for m in transcript.history] == ["user", "assistant", "tool", "tool", "assistant"]
    assert [(r.index, r.usage.input_tokens if r.usage else None) for r in transcript.responses] == [(1, 10), (4, 50)]


def rollout(kind: str, **payload: Any) -> dict[str, Any]:
    return {"timestamp": "2026-01-01T00:00:00Z", "type": kind, "payload": payload}


def wrote(role: str, text: str) -> dict[str, Any]:
    part = {"type": "output_text" if role == "assistant" else "input_text", "text": text}
    return rollout("response_item", type="message", role=role, content=[part])


def counted(total: int, fresh: int, cached: int) -> dict[str, Any]:
    last = {"input_tokens": fresh, "cached_input_tokens": cached, "output_tokens": 10, "reasoning_output_tokens": 4}
    return rollout("event_msg", type="token_count", info={"total_token_usage": {"n": total}, "last_token_usage": last})


CODEX = [
    rollout("session_meta", id="s-1", cwd="/repo", base_instructions={"text": "You are Codex."}),
    rollout("turn_context", model="gpt-5-codex", cwd="/repo"),
    wrote("developer", "rules"),
    wrote("user", "<environment_context>x"),
    wrote("user", "fix it"),
    rollout("event_msg", type="user_message", message="fix it"),
    rollout("response_item", type="reasoning", summary=[], encrypted_content="gAAA"),
    rollout("response_item", type="local_shell_call", call_id="c1", status="completed", action={"command": ["ls"]}),
    counted(1, 100, 60),
    counted(1, 100, 60),
    rollout("response_item", type="function_call_output", call_id="c1", output={"content": "a.py", "success": True}),
    rollout("response_item", type="custom_tool_call", call_id="c2", name="apply_patch", input="*** Begin Patch"),
    rollout("response_item", type="custom_tool_call_output", call_id="c2", output="done"),
    wrote("assistant", "fixed"),
    counted(2, 200, 150),
]  # fmt: skip


def test_codex_rollout() -> None:
    transcript = one(jsonl(*CODEX))
    assert [m.role for m in transcript.history] == [
        "system", "system", "user", "user", "assistant", "tool", "assistant", "tool", "assistant"
    ]  # fmt: skip
    assert transcript.id == "s-1"
    assert transcript.context.prefix.system_prompt == "You are Codex."
    assert transcript.history[2].meta["injected"] is True
    assert transcript.history[4].tool_calls[0].arguments == {"command": ["ls"]}
    assert transcript.history[4].meta["model"] == "gpt-5-codex"
    assert transcript.history[6].tool_calls[0].arguments == {"input": "*** Begin Patch"}
    # An event that repeats its totals is no further response.
    assert [(r.index, r.usage) for r in transcript.responses] == [
        (4, Usage(40, 10, cache_read_tokens=60, reasoning_tokens=4)),
        (8, Usage(50, 10, cache_read_tokens=150, reasoning_tokens=4)),
    ]
    assert [record["type"] for record in transcript.meta["records"]] == ["turn_context"]
    assert transcript.label == "fix it"


def test_codex_compaction() -> None:
    """The latest replacement starts the context; the history goes on."""
    kept = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "fix it"}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "summary of it all"}]},
    ]
    after = rollout("response_item", type="message", role="user", content="next")
    transcript = one(jsonl(*CODEX, rollout("compacted", message="summary of it all", replacement_history=kept), after))
    assert [m.content for m in transcript.context.messages] == ["fix it", "summary of it all", "next"]
    assert [m.content for m in transcript.history[-2:]] == ["summary of it all", "next"]
    assert marked(transcript.history[-2], "summary") is not None
    assert transcript.compactions[0].index == len(transcript.history) - 2
    older = one(jsonl(*CODEX, rollout("compacted", message="summary"), after))
    assert [m.content for m in older.context.messages] == ["summary", "next"]
