"""Conversations through the OpenAI Agents SDK: an Agent with dynamic instructions, its tools and a filter of the
input."""

from __future__ import annotations

from typing import Any

import openai
from agents import Agent, FunctionTool, ModelSettings, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner
from agents.run import RunConfig
from agents.run_config import ModelInputData
from peers.common import KEY, Script

FOREVER = 100_000
"""Requests that one run may take."""


def model_of(name: str, wire: str, url: str, hooks: dict[str, Any] | None = None) -> Any:
    """A model behind the fake provider."""
    http = openai.DefaultAsyncHttpxClient(event_hooks=hooks or {})
    client = openai.AsyncOpenAI(api_key=KEY, base_url=f"{url}/v1", http_client=http)
    kind = OpenAIResponsesModel if wire == "openai_responses" else OpenAIChatCompletionsModel
    return kind(model=name, openai_client=client)


async def replay(script: Script, name: str, wire: str, url: str, caching: bool = False) -> None:
    """Every request of the conversation. `caching`: this library has nothing to turn on."""
    head: list[Any] = []
    start = 0

    def shortened(data: Any) -> ModelInputData:
        nonlocal start
        items, summary = list(data.model_data.input), script.summary
        if summary is not None and not (head and head[0]["content"] == summary):
            start = _last_turn(items)
            head[:] = [{"role": "user", "content": summary}]
        return ModelInputData(input=[*head, *items[start:]], instructions=data.model_data.instructions)

    async def run(context: Any, arguments: str) -> str:
        return script.results.popleft()

    tools = [
        FunctionTool(
            name=tool["name"],
            description=tool["description"],
            params_json_schema=tool["parameters"],
            on_invoke_tool=run,
            strict_json_schema=False,
        )
        for tool in script.tools
    ]
    agent = Agent(
        name="replay",
        instructions=lambda context, agent: script.instructions,
        model=model_of(name, wire, url, {"response": [script.answered]}),
        model_settings=ModelSettings(),
        tools=tools,
    )
    config = RunConfig(tracing_disabled=True, call_model_input_filter=shortened)
    items: list[Any] = []
    for task in script.tasks:
        given = [*items, {"role": "user", "content": task}]
        done = await Runner.run(agent, given, max_turns=FOREVER, run_config=config)
        items = done.to_input_list()


def _last_turn(items: list[Any]) -> int:
    """Where the last turn begins: the user's text, or the answer whose calls the last results belong to."""
    at = len(items) - 1
    while at > 0 and items[at].get("type") == "function_call_output":
        at -= 1
    if at == len(items) - 1:
        return at
    while at > 0 and items[at - 1].get("type") in ("function_call", "reasoning", "message"):
        at -= 1
    return at
