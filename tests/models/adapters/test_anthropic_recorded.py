"""Recorded exchanges through the adapter for Anthropic: its requests are the recorded ones, what the provider answered
goes back as it did then, and a stream adds up to what the client library makes of it."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import anthropic
import httpx2
import pytest

from agentkit.core.contracts.jsontext import canonical_json
from agentkit.core.contracts.requests import ChatRequest
from agentkit.core.contracts.types import Message, NativeBlock, RedactedThinkingBlock, ThinkingBlock
from agentkit.core.contracts.validity import NO_OUTPUT
from agentkit.models.adapters.anthropic import AnthropicLLM
from agentkit.models.wire import anthropic as wire
from tests.models.adapters.recorded import exchanges, replaying, same
from tests.models.adapters.served import Wire, answered
from tests.transcripts.samples import one, sample

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore:The model:DeprecationWarning"),  # of the models that were asked then
]

FILES = (
    "code-container",
    "code-stream",
    "compaction",
    "mcp-stream",
    "paused-search-stream",
    "redacted-thinking",
    "redacted-thinking-stream",
    "thinking-tool",
)
OPTIONS = ("container", "context_management", "mcp_servers", "metadata", "thinking")


def of(name: str) -> list[dict[str, Any]]:
    return exchanges(f"exchanges/anthropic/{name}.jsonl")


RECORDED = {name: of(name) for name in FILES}
EACH = [(name, number) for name in FILES for number in range(len(RECORDED[name]))]
STREAMS = [(name, number) for name, number in EACH if RECORDED[name][number]["request"].get("stream")]


def client(recorded: Wire) -> anthropic.AsyncAnthropic:
    http = httpx2.AsyncClient(transport=recorded.transport)
    return anthropic.AsyncAnthropic(api_key="k", base_url="http://127.0.0.1:9", http_client=http)


def llm_on(recorded: Wire) -> AnthropicLLM:
    return AnthropicLLM(client(recorded))


def asked(messages: list[Message], recorded: dict[str, Any]) -> ChatRequest:
    tools = [tool for tool in recorded.get("tools", ()) if "input_schema" in tool]
    native = [tool for tool in recorded.get("tools", ()) if "input_schema" not in tool]
    options = {key: recorded[key] for key in OPTIONS if key in recorded}
    return ChatRequest(
        tuple(messages),
        recorded["model"],
        tools=tuple(one({"system": "", "messages": [], "tools": tools}, "anthropic-messages").tools) if tools else None,
        temperature=None,
        max_tokens=recorded["max_tokens"],
        tool_choice=recorded.get("tool_choice") if recorded.get("tools") else None,
        options={**options, "tools": native} if native else options,
    )


def spelled(value: Any) -> Any:
    """Texts as lists of blocks, and a result that did not fail without saying so: other spellings of the same."""
    if isinstance(value, str):
        return [{"type": "text", "text": value}]
    return [
        {
            key: item
            for key, item in block.items()
            if not (key == "is_error" and block["type"] == "tool_result" and not item)
        }
        for block in value
    ]


def turns(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"role": message["role"], "content": spelled(message["content"])} for message in messages]


def uncalled(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without who called a tool, which the recording client had left out."""
    return [
        {**m, "content": [{k: v for k, v in b.items() if k != "caller"} for b in spelled(m["content"])]}
        for m in messages
    ]


def compare(sent: dict[str, Any], recorded: dict[str, Any]) -> None:
    assert set(sent) == set(recorded)
    same(sent["messages"], turns(recorded["messages"]))
    for key in set(recorded) - {"messages"}:
        same(sent[key], spelled(recorded[key]) if key == "system" else recorded[key])


@pytest.mark.parametrize(("name", "number"), EACH)
async def test_imported_request_is_sent_as_it_was_recorded(name: str, number: int) -> None:
    """I5."""
    records = RECORDED[name][number:]
    recorded, replayed = records[0]["request"], replaying(records)
    history = list(one(recorded, "anthropic-messages").history)
    result = await answered(llm_on(replayed), asked(history, recorded), stream=bool(recorded.get("stream")))
    compare(replayed.bodies[0], recorded)
    assert result.usage.prompt_tokens > 0
    assert result.meta["anthropic"]["id"].startswith("msg_")
    assert "dropped" not in result.meta


@pytest.mark.parametrize("name", [name for name in FILES if len(RECORDED[name]) > 1])
async def test_a_recorded_answer_goes_back_as_it_did(name: str) -> None:
    """K4, E8: with what the provider answered the next request is the recorded one."""
    records = RECORDED[name]
    replayed = replaying(records)
    llm = llm_on(replayed)
    history = list(one(records[0]["request"], "anthropic-messages").history)
    known = len(records[0]["request"]["messages"])
    for number, exchange in enumerate(records):
        recorded = exchange["request"]
        if number:
            later = {**recorded, "messages": recorded["messages"][known + 1 :]}
            history += (
                [m for m in one(later, "anthropic-messages").history if m.role != "system"] if later["messages"] else []
            )
            known = len(recorded["messages"])
        result = await answered(llm, asked(history, recorded), stream=bool(recorded.get("stream")))
        sent = replayed.bodies[number]
        compare(
            {**sent, "messages": uncalled(sent["messages"])}, {**recorded, "messages": uncalled(recorded["messages"])}
        )
        history.append(result.message)


@pytest.mark.parametrize(("name", "number"), STREAMS)
async def test_a_stream_adds_up_to_what_the_client_library_makes_of_it(name: str, number: int) -> None:
    """The library's own reader of streams is the oracle; it knows the blocks of beta features too."""
    exchange = RECORDED[name][number]
    recorded = exchange["request"]
    history = list(one(recorded, "anthropic-messages").history)
    result = await answered(llm_on(replaying([exchange])), asked(history, recorded), stream=True)
    ours = [wire.render_turn(result.message)["content"]][0]
    call = client(replaying([exchange])).beta.messages.stream(max_tokens=9, messages=[], model="m")
    async with call as stream:
        theirs = (await stream.get_final_message()).model_dump(mode="json", exclude_unset=True)
    wanted = []
    for block in theirs["content"]:
        block = {key: value for key, value in block.items() if key != "parsed_output"}
        if block["type"] == "text" and not block.get("citations"):
            block.pop("citations", None)
        wanted.append(block)
    assert [{k: v for k, v in block.items() if v is not None} for block in json.loads(json.dumps(ours))] == [
        {k: v for k, v in block.items() if v is not None} for block in wanted
    ]
    assert result.meta["anthropic"]["stop_reason"] == theirs["stop_reason"]
    assert result.usage.output_tokens == theirs["usage"]["output_tokens"]
    assert result.usage.input_tokens == theirs["usage"]["input_tokens"]


async def test_a_paused_turn_is_carried_on_in_the_provider_s_own_words() -> None:
    """The call that a pause left open has its result at the head of the next answer."""
    first, second = RECORDED["paused-search-stream"]
    replayed = replaying([first, second])
    llm = llm_on(replayed)
    history = list(one(first["request"], "anthropic-messages").history)
    paused = await answered(llm, asked(history, first["request"]), stream=True)
    assert paused.finish_reason == "pause_turn"
    rest = await answered(llm, asked([*history, paused.message], second["request"]), stream=True)
    assert rest.finish_reason == "stop"
    assert isinstance(rest.blocks[0], NativeBlock)
    body = llm.body(asked([*history, paused.message, rest.message, Message("user", "thanks")], second["request"]))
    content = body["messages"][1]["content"]
    at = next(n for n, block in enumerate(content) if block.get("id") == rest.blocks[0].payload["tool_use_id"])
    assert content[at + 1]["tool_use_id"] == content[at]["id"]
    assert body["messages"][1]["content"][: at + 1] == replayed.bodies[1]["messages"][1]["content"]


async def test_kinds_of_blocks_that_came() -> None:
    redacted = RECORDED["redacted-thinking"][0]
    result = await answered(
        llm_on(replaying([redacted])), asked(list(one(redacted["request"]).history), redacted["request"]), stream=False
    )
    assert isinstance(result.blocks[0], RedactedThinkingBlock)
    mcp = RECORDED["mcp-stream"][0]
    result = await answered(
        llm_on(replaying([mcp])), asked(list(one(mcp["request"]).history), mcp["request"]), stream=True
    )
    assert isinstance(result.blocks[0], ThinkingBlock)
    natives = [block.payload["type"] for block in result.blocks if isinstance(block, NativeBlock)]
    assert natives[:2] == ["mcp_tool_use", "mcp_tool_result"]


def test_a_sample_request_is_rendered_as_it_was_sent() -> None:
    """I5: the sample of a request body goes out as it came in."""
    recorded = json.loads(sample("anthropic-messages/mcp-tools.json"))
    history = list(one(recorded, "anthropic-messages").history)
    body = AnthropicLLM(None).body(asked(history, recorded))
    same(body["messages"], turns(recorded["messages"]))


@pytest.mark.parametrize("name", ["claude-code/small-edit-session.jsonl", "claude-code/worktree-long.jsonl"])
def test_a_recorded_session_is_the_same_bytes_at_every_turn(name: str) -> None:
    """K4: what was sent up to an answer is what the next request begins with, for every answer of a real session."""
    messages = [m for t in [one(sample(name))] for m in t.context.assembled()]
    llm = AnthropicLLM(None, model="claude-sonnet-4-6")
    before: list[str] = []
    ends = [
        n for n in range(1, len(messages)) if messages[n].role == "assistant" and messages[n - 1].role != "assistant"
    ]
    for end in ends:
        body = llm.body(ChatRequest(tuple(messages[:end])))
        now = [message["role"] + json.dumps(block) for message in body["messages"] for block in message["content"]]
        assert now[: len(before)] == before
        before = now
    assert len(before) > 20


def settled(block: dict[str, Any]) -> str:
    """A block in the one spelling that is sent of it: a result of one text is that text, an empty one is said to be."""
    content = block.get("content")
    if block["type"] == "tool_result":
        if isinstance(content, list) and len(content) == 1 and content[0].keys() == {"type", "text"}:
            content = content[0]["text"]
        block = {**block, "content": content or NO_OUTPUT}
    return canonical_json(block)


@pytest.mark.parametrize("name", ["claude-code/small-edit-session.jsonl", "claude-code/worktree-long.jsonl"])
def test_every_block_of_a_recorded_session_is_sent_as_it_was(name: str) -> None:
    """I5: what the client had sent and received is what is sent, block by block."""
    records = [json.loads(line) for line in sample(name).decode().splitlines() if line.strip()]
    spoken = [r for r in records if r.get("type") in ("user", "assistant") and not r.get("isSidechain")]
    recorded = [settled(b) for r in spoken if not r.get("isMeta") for b in spelled(r["message"]["content"])]
    body = AnthropicLLM(None, model="claude-haiku-4-5").body(ChatRequest(tuple(one(sample(name)).context.assembled())))
    sent = [settled(block) for turn in body["messages"] for block in spelled(turn["content"])]
    assert Counter(recorded) - Counter(sent) == Counter()
    assert len(sent) - len(recorded) <= 2  # a meta message of the client, a fixed user text in front
