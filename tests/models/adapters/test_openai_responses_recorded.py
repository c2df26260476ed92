"""Recorded exchanges through the responses adapter: its items are the recorded ones, and what the provider answered
goes back as it did then."""

from __future__ import annotations

from typing import Any

import pytest

from agentkit.core.contracts.requests import ChatRequest
from agentkit.core.contracts.types import ImageBlock, Message
from agentkit.models.adapters.openai_responses import OpenAIResponsesLLM
from tests.models.adapters.recorded import exchanges, replaying, same
from tests.models.adapters.served import answered, asking
from tests.transcripts.samples import one

pytestmark = pytest.mark.anyio

FILES = ("reasoning-tool", "picture-in-result", "no-item-ids", "deepseek-stream")
OWN = {"store", "include"}
"""What we send beside the recorded fields: nothing is kept there, reasoning comes encrypted."""


def of(name: str) -> list[dict[str, Any]]:
    return exchanges(f"exchanges/openai_responses/{name}.jsonl")


def asked(messages: list[Message], recorded: dict[str, Any]) -> ChatRequest:
    tools = one({"messages": [], "tools": recorded["tools"]}, "openai-chat").tools
    options = {key: recorded[key] for key in ("reasoning",) if key in recorded}
    return asking(
        *messages, model=recorded["model"], tools=tuple(tools), tool_choice=recorded["tool_choice"], options=options
    )


def compare(sent: dict[str, Any], recorded: dict[str, Any]) -> None:
    """Standing text goes as a developer's message, all else as it was recorded."""
    assert set(sent) - OWN == set(recorded) - OWN - {"instructions"}
    expected = list(recorded["input"])
    if "instructions" in recorded:
        expected.insert(0, {"role": "developer", "content": recorded["instructions"]})
    same(sent["input"], expected)
    for key in set(recorded) - {"input", "instructions"}:
        same(sent[key], recorded[key])


@pytest.mark.parametrize(("name", "number"), [(name, n) for name in FILES for n in range(len(of(name)))])
async def test_imported_request_is_sent_as_it_was_recorded(name: str, number: int) -> None:
    """I5."""
    records = of(name)[number:]
    recorded, wire = records[0]["request"], replaying(records)
    strict = recorded["tools"][0]["strict"]
    llm = OpenAIResponsesLLM(wire.openai(), strict_tools=strict)
    history = list(one(recorded, "openai-responses").history)
    await answered(llm, asked(history, recorded), stream=recorded["stream"])
    compare(wire.bodies[0], recorded)


@pytest.mark.parametrize("name", FILES)
async def test_recorded_answers_go_back_as_they_did(name: str) -> None:
    """K4, E8: the provider's items in the next request are those of its answer, less what the recording client had
    left out of them."""
    records = of(name)
    wire = replaying(records)
    llm = OpenAIResponsesLLM(wire.openai(), strict_tools=records[0]["request"]["tools"][0]["strict"])
    history = list(one(records[0]["request"], "openai-responses").history)
    for number, exchange in enumerate(records):
        recorded = exchange["request"]
        result = await answered(llm, asked(history, recorded), stream=recorded["stream"])
        sent = wire.bodies[number]["input"][1 if "instructions" in recorded else 0 :]
        assert len(sent) == len(recorded["input"])
        for ours, theirs in zip(sent, recorded["input"], strict=True):
            assert {key: ours.get(key) for key in theirs} == theirs
            assert set(ours) - set(theirs) <= {"id", "status", "type"}
        assert result.usage.prompt_tokens > 0
        assert result.finish_reason == ("tool_calls" if number == 0 else "stop")
        history.append(result.message)
        if result.tool_calls:
            output = records[number + 1]["request"]["input"][-1]["output"]
            blocks = output if isinstance(output, str) else [ImageBlock(output[0]["image_url"], detail="auto")]
            history += [Message("tool", blocks, call.name, call.id) for call in result.tool_calls]
