"""What llama.cpp's server said to one prompt on three wires has one normal form. The server itself is asked in
`make test-model`."""

from __future__ import annotations

from typing import Any

import anthropic
import httpx2
import pytest

from agentkit.core.contracts.errors import ContextOverflowError
from agentkit.core.contracts.types import Message
from agentkit.models.adapters.anthropic import AnthropicLLM
from agentkit.models.adapters.openai_chat import OpenAIChatLLM
from agentkit.models.adapters.openai_responses import OpenAIResponsesLLM
from tests.models.adapters.recorded import exchanges, replaying
from tests.models.adapters.served import Wire, answered, asking

pytestmark = pytest.mark.anyio

RECORDED = {(one["wire"], one["kind"]): one for one in exchanges("exchanges/llama_cpp/capital.jsonl")}
WIRES = ("chat", "anthropic", "responses")
REQUEST = asking(Message("system", "Be brief."), Message("user", "What is the capital of France?"), max_tokens=8)
SIZE = 24
"""Tokens of that prompt, all but the last of which were read."""


def adapter(name: str, wire: Wire) -> Any:
    if name == "chat":
        return OpenAIChatLLM(wire.openai(), model="smollm2-135m", provider="llama.cpp")
    if name == "responses":
        return OpenAIResponsesLLM(wire.openai(), model="smollm2-135m", provider="llama.cpp")
    http = httpx2.AsyncClient(transport=wire.transport)
    client = anthropic.AsyncAnthropic(api_key="k", base_url="http://127.0.0.1:9", http_client=http)
    return AnthropicLLM(client, model="smollm2-135m")


@pytest.mark.parametrize("kind", ["whole", "stream"])
@pytest.mark.parametrize("name", WIRES)
async def test_one_prompt_has_one_normal_form(name: str, kind: str) -> None:
    llm = adapter(name, replaying([RECORDED[name, kind]]))
    result = await answered(llm, REQUEST, stream=kind == "stream")
    assert (result.text, result.finish_reason) == ("The capital of France is Paris.", "stop")
    assert (result.usage.input_tokens, result.usage.cache_read_tokens, result.usage.output_tokens) == (1, SIZE - 1, 8)
    assert (result.usage.cache_write_tokens, result.message.content) == (0, result.text)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", WIRES)
async def test_a_refusal_for_length_names_the_window(name: str, stream: bool) -> None:
    refused = RECORDED[name, "too long"]
    with pytest.raises(ContextOverflowError) as error:
        await answered(adapter(name, Wire(refused["response"], status=refused["status"])), REQUEST, stream=stream)
    assert error.value.window == 4_096
