"""The same conversation is the same bytes in every process, on every wire, whatever the seed of hashes (G4, K2)."""

from __future__ import annotations

import os
import subprocess
import sys

SENT = '''
import asyncio, hashlib, json
from agentkit.agents import Agent, ReActCognition, tool
from agentkit.core.contracts.types import ChatRequest, Message, ThinkingBlock, TextBlock, ToolCall, ToolSchema, mark
from agentkit.core.contracts.types import Breakpoint, ImageBlock
from agentkit.core.testing import FakeLLM, make_test_ctx
from agentkit.models.adapters.anthropic import AnthropicLLM
from agentkit.models.adapters.gemini import GeminiLLM
from agentkit.models.adapters.openai_chat import OpenAIChatLLM
from agentkit.models.adapters.openai_responses import OpenAIResponsesLLM

names = {"w", "x", "y", "z", "aa", "bb"}

@tool(side_effecting=False)
def look(page: int, how: str = "all") -> str:
    """Look."""
    return str(page)

def conversation():
    yield Message("system", "You look things up.")
    yield Message("user", ["Look.", ImageBlock(b"\\x89PNG\\r\\n\\x1a\\n")])
    yield Message("assistant", [ThinkingBlock("hm", "c2ln"), TextBlock("So.")], tool_calls=[
        ToolCall("", "my look", {"names": names, "of": {n: n for n in sorted(names)}}),
        ToolCall("", "my look", {"names": frozenset(names)}),
    ])
    yield Message("tool", "one \\ud800", "my look", "")
    yield mark(Message("user", "earlier </summary>"), "summary", covers=3)
    yield Message("critic", "no")

tools = tuple(ToolSchema(n, n, {"type": "object", "required": sorted(names), "properties": dict.fromkeys(names, {})})
              for n in names)
marks = (Breakpoint(1), Breakpoint(6))
request = ChatRequest(tuple(conversation()), None, tools=tools, temperature=None, cache_hint=marks,
                      options={"cache_key": "k"})
for llm in (AnthropicLLM(None, model="claude-sonnet-4-6"), OpenAIChatLLM(None, model="gpt-5.6-sol"),
            OpenAIResponsesLLM(None, model="gpt-5.6-sol"), GeminiLLM(None, model="gemini-3-pro")):
    print(hashlib.sha256(json.dumps(llm.body(request)).encode()).hexdigest())

fake = FakeLLM("Done.")
agent = Agent("a", "claude-sonnet-4-6", prompt="p", cognition=ReActCognition([look]))
asyncio.run(agent.run("Go.", make_test_ctx(llm=fake)))
print(hashlib.sha256(json.dumps(AnthropicLLM(None).body(fake.requests[0])).encode()).hexdigest())
'''


def test_bytes_do_not_depend_on_the_seed_of_hashes_g4_k2() -> None:
    found = [
        subprocess.run(
            [sys.executable, "-c", SENT],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout.split()
        for seed in ("1", "2")
    ]
    assert len(found[0]) == len(set(found[0])) == 5
    assert found[0] == found[1]
