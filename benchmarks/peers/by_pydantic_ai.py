"""Conversations through pydantic-ai: an Agent with dynamic instructions, its tools and a processor of the history."""

from __future__ import annotations

from typing import Any

import anthropic
import openai
from peers.common import KEY, Script
from pydantic_ai import Agent, Tool, UsageLimits
from pydantic_ai.capabilities import Caching, ProcessHistory
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolReturnPart, UserPromptPart
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider


def model_of(name: str, wire: str, url: str, hooks: dict[str, Any] | None = None) -> Any:
    """A model behind the fake provider."""
    if wire == "anthropic":
        client = anthropic.DefaultAsyncHttpxClient(event_hooks=hooks or {})
        provider = AnthropicProvider(
            anthropic_client=anthropic.AsyncAnthropic(api_key=KEY, base_url=url, http_client=client)
        )
        return AnthropicModel(name, provider=provider)
    http = openai.DefaultAsyncHttpxClient(event_hooks=hooks or {})
    given = OpenAIProvider(openai_client=openai.AsyncOpenAI(api_key=KEY, base_url=f"{url}/v1", http_client=http))
    return (OpenAIResponsesModel if wire == "openai_responses" else OpenAIChatModel)(name, provider=given)


async def replay(script: Script, name: str, wire: str, url: str, caching: bool = False) -> None:
    """Every request of the conversation. `caching`: with the library's capability of that name."""
    cut: set[str] = set()

    async def shortened(messages: list[ModelMessage]) -> list[ModelMessage]:
        summary = script.summary
        if summary is None or summary in cut:
            return messages
        cut.add(summary)
        has_results = any(isinstance(part, ToolReturnPart) for part in messages[-1].parts)
        kept = messages[-2:] if has_results else messages[-1:]
        return [ModelRequest(parts=[UserPromptPart(content=summary)]), *kept]

    async def run(**arguments: Any) -> str:
        return script.results.popleft()

    tools = [Tool.from_schema(run, tool["name"], tool["description"], tool["parameters"]) for tool in script.tools]
    agent = Agent(
        model_of(name, wire, url, {"response": [script.answered]}),
        instructions=script.system,
        tools=tools,
        capabilities=[ProcessHistory(shortened), *([Caching()] if caching else [])],
    )
    agent.instructions(lambda: script.instructions.removeprefix(script.system).lstrip())
    messages: list[ModelMessage] = []
    for task in script.tasks:
        done = await agent.run(task, message_history=messages, usage_limits=UsageLimits(request_limit=None))
        messages = done.all_messages()
