"""Recorded conversations through the chat adapter: its body is the recorded body, and what the provider answered goes
back as it did then."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentkit.core.contracts.requests import ChatRequest
from agentkit.core.contracts.types import Message
from agentkit.models.adapters.openai_chat import OpenAIChatLLM
from agentkit.transcripts import to_openai
from tests.models.adapters.recorded import DATA, exchanges, replaying, same
from tests.models.adapters.served import Wire, asking, is_continued
from tests.transcripts.samples import one

pytestmark = pytest.mark.anyio

ROUND = exchanges("transcripts/openai-chat/roundtrip-stable.exchanges.jsonl")


def asked(messages: list[Message], recorded: dict[str, Any]) -> ChatRequest:
    """The request with the tools and options of a recorded one."""
    tools = one({"messages": [], "tools": recorded["tools"]}, "openai-chat").tools
    return asking(*messages, model=recorded["model"], tools=tuple(tools), tool_choice=recorded["tool_choice"])


@pytest.mark.parametrize("number", range(len(ROUND)))
async def test_imported_request_is_sent_as_it_was_recorded(number: int) -> None:
    """I5: a recorded body, read and sent again."""
    recorded = ROUND[number]["request"]
    wire = replaying(ROUND[number:])
    llm = OpenAIChatLLM(wire.openai(), strict_tools=True)
    await llm.chat(asked(list(one({"messages": recorded["messages"]}, "openai-chat").history), recorded))
    same(wire.bodies[0], recorded)


async def test_recorded_answers_go_back_as_they_did() -> None:
    """K4: message by message, from the first request to the last."""
    wire = replaying(ROUND)
    llm = OpenAIChatLLM(wire.openai(), strict_tools=True)
    history = [Message("user", ROUND[0]["request"]["messages"][0]["content"])]
    for number, exchange in enumerate(ROUND):
        result = await llm.chat(asked(history, exchange["request"]))
        same(wire.bodies[number], exchange["request"])
        usage = exchange["response"]["usage"]
        assert (result.usage.prompt_tokens, result.usage.output_tokens) == (
            usage["prompt_tokens"],
            usage["completion_tokens"],
        )
        history.append(result.message)
        history += [Message("tool", "sunny in Paris", call.name, call.id) for call in result.tool_calls]
    assert history[-1].content == "The weather in Paris is sunny."


def sent_form(message: dict[str, Any]) -> dict[str, Any]:
    """A recorded message less what the API does not take or takes for absent: `name` of a result, fields of null."""
    kept = {key: value for key, value in message.items() if key == "content" or value is not None}
    if message["role"] in ("tool", "assistant"):
        kept.pop("name", None)
    if kept.get("tool_calls") and not kept["content"]:
        kept["content"] = None
    return kept


def recordings() -> list[tuple[str, list[dict[str, Any]]]]:
    found = []
    for name in ("gpt4o-airline-two", "gpt4o-airline-mixed"):
        runs = json.loads((DATA / f"transcripts/tau-bench/{name}.json").read_bytes())
        found += [(f"{name}-{run['task_id']}-{run['trial']}", run["traj"]) for run in runs]
    found.append(("fncall", json.loads((DATA / "transcripts/openai-chat/fncall-messages.json").read_bytes())))
    return found


@pytest.mark.parametrize(("name", "recorded"), recordings(), ids=[name for name, _ in recordings()])
def test_long_recordings_are_sent_as_they_were(name: str, recorded: list[dict[str, Any]]) -> None:
    """Message by message, but for those that had to be repaired: ids that came twice, results without text."""
    history = one(recorded, "openai-chat").history
    llm, request = OpenAIChatLLM(Wire({}).openai(), model="gpt-4o"), asking(*history)
    sent = llm.body(request)["messages"]
    repaired = {change.code for change in llm._views.of(request).changes}
    assert repaired <= {"id", "empty"}
    assert len(sent) == len(recorded)
    differing = [at for at, (ours, theirs) in enumerate(zip(sent, recorded, strict=True)) if ours != sent_form(theirs)]
    assert (differing == []) == (repaired == set())
    for at in differing:
        ours, theirs = sent[at], sent_form(recorded[at])
        assert ours["role"] == theirs["role"]
        assert ours["content"] == theirs["content"] or (ours["content"], theirs["content"]) == ("[no output]", "")


def test_langgraph_thread_is_sent_as_the_exporter_writes_it() -> None:
    """One rendering: what is exported and what is sent are the same."""
    thread = one((DATA / "transcripts/langchain/thread-small.json").read_bytes())
    llm = OpenAIChatLLM(Wire({}).openai(), model="gpt-4o")
    history = thread.context.assembled()
    same(llm.body(asking(*history))["messages"], to_openai(thread, model="gpt-4o")["messages"])
    for end in range(1, len(history)):
        if history[end].role == "assistant" and history[end - 1].role in ("user", "tool"):
            part = llm.body(asking(*history[:end]))["messages"]
            assert is_continued(part, llm.body(asking(*history))["messages"])
