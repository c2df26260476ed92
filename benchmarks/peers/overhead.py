"""`python -m peers.overhead LIBRARY`: what other libraries take around a model that answers at once, in this process.

Reads jobs from standard input, one JSON object a line: `rounds` of tool calls in each run, and `runs`. Answers each
with the seconds of one run.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from time import perf_counter
from typing import Any, TypeAlias

from peers.replay import PACKAGES

Run: TypeAlias = Callable[[int], Awaitable[Any]]
"""Runs an agent once, with so many rounds of calls of a tool that does nothing."""
TASK, DONE, TOOL = "Do it.", "Done.", "noop"


def pydantic_ai() -> Run:
    from pydantic_ai import Agent, UsageLimits
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel

    def model(rounds: int) -> Any:
        async def answer(messages: list[Any], info: Any) -> Any:
            done = sum(message.kind == "response" for message in messages)
            if done >= rounds:
                return ModelResponse(parts=[TextPart(DONE)])
            return ModelResponse(parts=[ToolCallPart(TOOL, {"number": done}, tool_call_id=f"c{done}")])

        return FunctionModel(answer)

    async def noop(number: int) -> str:
        """Does nothing."""
        return "ok"

    agent = Agent(instructions="Be brief.", tools=[noop])
    limits = UsageLimits(request_limit=None)
    return lambda rounds: agent.run(TASK, model=model(rounds), usage_limits=limits)


def langchain() -> Run:
    from langchain.agents import create_agent
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage
    from langchain_core.outputs import ChatGeneration, ChatResult
    from langchain_core.tools import tool

    class Model(BaseChatModel):  # type: ignore[misc]
        rounds: int = 0

        @property
        def _llm_type(self) -> str:
            return "in process"

        def bind_tools(self, tools: Any, **options: Any) -> Any:
            return self

        def _generate(self, messages: list[Any], stop: Any = None, run_manager: Any = None, **options: Any) -> Any:
            done = sum(message.type == "ai" for message in messages)
            calls = [{"name": TOOL, "args": {"number": done}, "id": f"c{done}"}] if done < self.rounds else []
            message = AIMessage("" if calls else DONE, tool_calls=calls)
            return ChatResult(generations=[ChatGeneration(message=message)])

        async def _agenerate(self, messages: list[Any], *rest: Any, **options: Any) -> Any:
            return self._generate(messages)

    async def noop(number: int) -> str:
        """Does nothing."""
        return "ok"

    agents: dict[int, Any] = {}

    def run(rounds: int) -> Awaitable[Any]:
        if rounds not in agents:
            agents[rounds] = create_agent(Model(rounds=rounds), [tool(noop)], system_prompt="Be brief.")
        given = {"messages": [{"role": "user", "content": TASK}]}
        ran: Awaitable[Any] = agents[rounds].ainvoke(given, {"recursion_limit": 1_000})
        return ran

    return run


def openai_agents() -> Run:
    from agents import Agent, Model, ModelResponse, RunConfig, Runner, Usage, function_tool
    from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

    class InProcess(Model):  # type: ignore[misc]
        def __init__(self, rounds: int) -> None:
            self.rounds = rounds

        async def get_response(self, system_instructions: Any, input: Any, *rest: Any, **options: Any) -> Any:
            items = input if isinstance(input, list) else []
            done = sum(item.get("type") == "function_call" for item in items)
            if done < self.rounds:
                output: Any = ResponseFunctionToolCall(
                    type="function_call", name=TOOL, arguments=f'{{"number": {done}}}', call_id=f"c{done}"
                )
            else:
                text = ResponseOutputText(type="output_text", text=DONE, annotations=[])
                output = ResponseOutputMessage(
                    id="m", type="message", role="assistant", status="completed", content=[text]
                )
            return ModelResponse(output=[output], usage=Usage(), response_id=None)

        def stream_response(self, *given: Any, **options: Any) -> Any:
            raise NotImplementedError

    async def noop(number: int) -> str:
        """Does nothing."""
        return "ok"

    config = RunConfig(tracing_disabled=True)
    tools = [function_tool(noop)]
    agents: dict[int, Any] = {}

    def run(rounds: int) -> Awaitable[Any]:
        if rounds not in agents:
            agents[rounds] = Agent(name="a", instructions="Be brief.", model=InProcess(rounds), tools=tools)
        ran: Awaitable[Any] = Runner.run(agents[rounds], TASK, max_turns=1_000, run_config=config)
        return ran

    return run


async def timed(run: Run, rounds: int, runs: int) -> float:
    """Seconds of one run: the fastest of `runs`."""
    fastest = float("inf")
    for _ in range(runs):
        start = perf_counter()
        await run(rounds)
        fastest = min(fastest, perf_counter() - start)
    return fastest


def main(library: str) -> None:
    run: Run = {"pydantic_ai": pydantic_ai, "langchain": langchain, "openai_agents": openai_agents}[library]()
    print(f"{PACKAGES[library]} {version(PACKAGES[library])}", flush=True)
    with asyncio.Runner() as runner:
        for line in sys.stdin:
            job = json.loads(line)
            print(runner.run(timed(run, job["rounds"], job["runs"])), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
