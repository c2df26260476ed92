"""Recorded exchanges through the Gemini adapter: what the provider answered goes back as it did then."""

from __future__ import annotations

from typing import Any

import pytest

from agentkit.core.contracts.requests import LLMResult
from agentkit.core.contracts.types import Message, ToolSchema
from agentkit.models.adapters.gemini import GeminiLLM
from tests.models.adapters.recorded import exchanges, replaying, same
from tests.models.adapters.served import answered, asking

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("name", ["signed-tool", "signed-tool-stream", "held-back"])
async def test_recorded_answers_go_back_as_they_did(name: str) -> None:
    """K4, E8: every request of a conversation is the recorded one, signatures included."""
    records = exchanges(f"exchanges/gemini/{name}.jsonl")
    wire = replaying(records)
    llm = GeminiLLM(wire.gemini(), model="gemini-3-flash-preview")
    first = records[0]["request"]
    history = [Message("system", part["text"]) for part in first.get("systemInstruction", {}).get("parts", [])]
    history.append(Message("user", first["contents"][0]["parts"][0]["text"]))
    result = LLMResult()
    for number, exchange in enumerate(records):
        recorded: dict[str, Any] = exchange["request"]
        settings = recorded["generationConfig"]
        declared = [d for tool in recorded.get("tools", ()) for d in tool["functionDeclarations"]]
        options: dict[str, Any] = {key: settings[key] for key in ("responseModalities",) if key in settings}
        options |= {key: recorded[key] for key in ("safetySettings",) if key in recorded}
        request = asking(
            *history,
            tools=tuple(ToolSchema(d["name"], d["description"], d["parametersJsonSchema"]) for d in declared),
            response_format=settings.get("responseJsonSchema"),
            options=options,
        )
        result = await answered(llm, request, stream="stream" in exchange["url"])
        same(wire.bodies[number], recorded)
        assert result.usage.prompt_tokens > 0
        history.append(result.message)
        for call in result.tool_calls:
            answer = records[number + 1]["request"]["contents"][-1]["parts"][0]["functionResponse"]["response"]
            history.append(Message("tool", answer["output"], call.name, call.id))
    assert result.finish_reason == ("content_filter" if name == "held-back" else "stop")
    if name == "signed-tool":
        assert result.parsed == {"city": "Mexico City", "country": "Mexico"}
