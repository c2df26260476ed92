"""What an agent takes around its model, and what importing it takes, beside other libraries.

The model answers at once and in the same process, so that what is measured is the library alone: a single call, and a
loop of ten rounds with a tool that does nothing. The others run in `.venv-peers`, which `make peers` makes; all are
measured in turn.

`python benchmarks/agent.py` prints the figures, `--write` also puts them into docs/performance.md.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path

from harness import Table, finish
from peers.environment import PYTHON, Peer, environment, require_peers
from peers.overhead import DONE, TASK, TOOL, timed

from agentkit.agents import Agent, ReActCognition, tool
from agentkit.core.contracts.requests import ChatRequest, Delta, LLMResult, assemble_deltas
from agentkit.core.contracts.types import Scope, ToolCall
from agentkit.core.runtime import Invoker, RunContext, Services

PEERS = ("pydantic_ai", "langchain", "openai_agents")
ROUNDS = 7
"""How often everybody is measured, in turn; the fastest counts."""
KINDS = {"a single call": (0, 100), "a loop of 10 rounds": (10, 20)}
"""Rounds of tool calls in a run, and runs of one measurement."""
IMPORTS = {
    "pydantic_ai": "from pydantic_ai import Agent; from pydantic_ai.models.openai import OpenAIResponsesModel",
    "langchain": "from langchain.agents import create_agent; from langchain_openai import ChatOpenAI",
    "openai_agents": "from agents import Agent, Runner",
}
OURS = (
    "from agentkit.agents import Agent, ReActCognition; from agentkit.core.runtime import Invoker, RunContext; "
    "from agentkit.models.adapters.openai_responses import OpenAIResponsesLLM"
)
CLIENT = "; from openai import AsyncOpenAI"
"""The provider's own client, which the others import by themselves and the library's user hands in."""


class InProcess:
    """A model that calls the tool so many times, and then is done."""

    def __init__(self, rounds: int) -> None:
        self._rounds = rounds

    async def stream(self, request: ChatRequest, /) -> AsyncIterator[Delta]:
        done = sum(message.role == "assistant" for message in request.messages)
        if done < self._rounds:
            yield Delta(tool_calls=(ToolCall(f"c{done}", TOOL, {"number": done}),), finish_reason="tool_calls")
        else:
            yield Delta(DONE, finish_reason="stop")

    async def chat(self, request: ChatRequest, /) -> LLMResult:
        return assemble_deltas([delta async for delta in self.stream(request)])


@tool(side_effecting=False)
async def noop(number: int) -> str:
    """Does nothing."""
    return "ok"


class Ours:
    """The library's own agent, run as the others are."""

    def __init__(self) -> None:
        self._agent = Agent("a", prompt="Be brief.", cognition=ReActCognition([noop], max_iterations=1_000))
        self._services = {rounds: Services(Invoker(InProcess(rounds))) for rounds, _ in KINDS.values()}
        self._numbers = count()

    async def run(self, rounds: int) -> None:
        ctx = RunContext(f"run-{next(self._numbers)}", Scope("acme"), services=self._services[rounds])
        result = await self._agent.run(TASK, ctx)
        assert result.output == DONE


def overhead() -> Table:
    table = Table("An agent around a model that answers at once")
    ours = Ours()
    with ExitStack() as stack:
        peers = [stack.enter_context(Peer("peers.overhead", name)) for name in PEERS]
        for kind, (rounds, runs) in KINDS.items():
            best = [float("inf")] * (1 + len(peers))
            for _ in range(ROUNDS):
                taken = [asyncio.run(timed(ours.run, rounds, runs))]
                taken += [float(peer.do({"rounds": rounds, "runs": runs})) for peer in peers]
                best = [min(pair) for pair in zip(best, taken, strict=True)]
            for peer, seconds in zip(peers, best[1:], strict=True):
                table.add(kind, peer.name, best[0] / seconds, at_most=1)
    return table


def imports() -> Table:
    table = Table("Import of an agent with a model of OpenAI, processor time of a fresh process")
    codes = {"agentkit": OURS, "agentkit and the client": OURS + CLIENT, **IMPORTS}
    best = dict.fromkeys(codes, float("inf"))
    for _ in range(5):
        for name, code in codes.items():
            best[name] = min(best[name], _seconds(code, is_peer=name in IMPORTS))
    for name in IMPORTS:
        for own in ("agentkit", "agentkit and the client"):
            table.add(own, name.replace("_", "-"), best[own] / best[name], at_most=1)
    return table


def _seconds(code: str, *, is_peer: bool) -> float:
    """Processor seconds that an import takes in a process that has just begun."""
    program = f"import time; start = time.process_time(); {code}; print(time.process_time() - start)"
    own = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parent.parent / "src")}
    python, names = (str(PYTHON), environment()) if is_peer else (sys.executable, own)
    return float(subprocess.run([python, "-c", program], check=True, capture_output=True, text=True, env=names).stdout)


if __name__ == "__main__":
    require_peers()
    finish("agent", [overhead(), imports()])
