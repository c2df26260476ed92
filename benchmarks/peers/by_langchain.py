"""Conversations through LangChain: `create_agent` with a dynamic prompt, its tools and a hook that shortens."""

from __future__ import annotations

from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import after_model, before_model, dynamic_prompt
from langchain_anthropic import ChatAnthropic
from langchain_anthropic.middleware import AnthropicPromptCachingMiddleware
from langchain_core.messages import HumanMessage, RemoveMessage
from langchain_core.tools import StructuredTool
from langchain_openai import ChatOpenAI
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from peers.common import KEY, Script

FOREVER = 100_000
"""Steps of a graph that one run may take."""


def model_of(name: str, wire: str, url: str) -> Any:
    """A model behind the fake provider."""
    if wire == "anthropic":
        return ChatAnthropic(model=name, api_key=KEY, base_url=url)
    return ChatOpenAI(model=name, api_key=KEY, base_url=f"{url}/v1")


async def replay(script: Script, name: str, wire: str, url: str, caching: bool = False) -> None:
    """Every request of the conversation. `caching`: with the library's middleware for Anthropic's cache."""

    async def shorten(state: Any, runtime: Any) -> dict[str, Any] | None:
        summary, messages = script.summary, state["messages"]
        if summary is None:
            return None
        last = "ai" if messages[-1].type == "tool" else "human"
        at = max(number for number, message in enumerate(messages) if message.type == last)
        return {"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES), HumanMessage(summary), *messages[at:]]}

    async def count(state: Any, runtime: Any) -> None:
        await script.answered()

    async def run(**arguments: Any) -> str:
        return script.results.popleft()

    async def prompt(request: Any) -> str:
        return script.instructions

    tools = [
        StructuredTool(
            name=tool["name"], description=tool["description"], args_schema=tool["parameters"], coroutine=run
        )
        for tool in script.tools
    ]
    middleware: list[Any] = [before_model(shorten), dynamic_prompt(prompt), after_model(count)]
    if caching:
        middleware.append(AnthropicPromptCachingMiddleware())
    agent = create_agent(model_of(name, wire, url), tools, middleware=middleware)
    messages: list[Any] = []
    for task in script.tasks:
        given = {"messages": [*messages, HumanMessage(task)]}
        messages = (await agent.ainvoke(given, {"recursion_limit": FOREVER}))["messages"]
