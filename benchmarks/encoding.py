"""What it takes to make the body of a long request once more after a short append, by adapter: the wire form of a
message is made once. The client's own JSON, which nobody can spare it, is shown beside it.

`python benchmarks/encoding.py` prints the figures, `--write` also puts them into docs/performance.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from harness import Table, best, best_after, finish

from agentkit.core.contracts.requests import ChatRequest
from agentkit.core.contracts.types import Breakpoint, Message, ToolCall, ToolSchema
from agentkit.models.adapters.anthropic import AnthropicLLM
from agentkit.models.adapters.gemini import GeminiLLM
from agentkit.models.adapters.openai_chat import OpenAIChatLLM
from agentkit.models.adapters.openai_responses import OpenAIResponsesLLM

MESSAGES = 1_000
AT_LEAST = 5
"""Times as fast as making the body anew."""
TOOLS = tuple(
    ToolSchema(name, f"Does what {name} says.", {"type": "object", "properties": {"path": {"type": "string"}}})
    for name in ("list_files", "read_file", "run_tests", "write_file")
)
ADAPTERS: dict[str, tuple[str, Callable[[], Any]]] = {
    "anthropic messages": ("claude-sonnet-4-6", lambda: AnthropicLLM(None)),
    "openai chat": ("gpt-5.6-sol", lambda: OpenAIChatLLM(None)),
    "openai responses": ("gpt-5.6-sol", lambda: OpenAIResponsesLLM(None)),
    "gemini": ("gemini-3.8-flash", lambda: GeminiLLM(None)),
}
"""By wire: a model of it, and a new adapter, which makes bodies without a client."""


def conversation(messages: int = MESSAGES) -> list[Message]:
    """New messages, of which nothing has been derived: questions, calls, results, answers."""
    made = [Message("system", "You are a careful engineer.")]
    for number in range(messages // 4):
        call = ToolCall(f"call_{number}", "read_file", {"path": f"src/module_{number}.py", "limit": 200})
        made += [
            Message("user", f"What does module {number} do, and who calls it?"),
            Message("assistant", "I read it first.", tool_calls=(call,)),
            Message("tool", "def main() -> int:\n    return 0\n" * 8, name="read_file", tool_call_id=call.id),
            Message("assistant", f"Module {number} defines main, which returns 0."),
        ]
    return made


def request_of(messages: list[Message], model: str) -> ChatRequest:
    """A request as an agent makes it: marks behind the prefix, at the end of the request before, and at its own end."""
    end = len(messages)
    marks = (Breakpoint(1), Breakpoint(end - 1), Breakpoint(end))
    return ChatRequest(tuple(messages), model, TOOLS, cache_hint=marks, prefix=1, options={"cache_key": "tenant"})


def encoding() -> Table:
    table = Table(f"The body of a request of {MESSAGES:,} messages, made once more after an answer and a question")
    for wire, (model, adapter) in ADAPTERS.items():
        anew, again, dumped = _seconds(model, adapter)
        table.faster(f"{wire}: the body again", "a new adapter with new messages", anew / again, at_least=AT_LEAST)
        table.show(f"{wire}: JSON of that body, as the client writes it", "making the body again", dumped / again)
    return table


def _seconds(model: str, adapter: Callable[[], Any]) -> tuple[float, float, float]:
    """Of making the body anew, of making it again after what came in, and of its JSON; measured in turn."""
    llm, question = adapter(), Message("user", "And now?")
    messages = [*conversation(), question]
    body = llm.body(request_of(messages, model))
    state: dict[str, Any] = {}

    def start() -> None:
        state["llm"], state["request"] = adapter(), request_of([*conversation(), question], model)

    def grow() -> None:
        messages.extend([Message("assistant", "Nothing more."), Message("user", "And now?")])
        state["llm"], state["request"] = llm, request_of(messages, model)

    def build() -> None:
        state["llm"].body(state["request"])

    def dump() -> None:
        json.dumps(body, ensure_ascii=False, separators=(",", ":"))

    seconds = [float("inf")] * 3
    for _ in range(5):
        measured = best_after(start, build, rounds=4), best_after(grow, build, rounds=10), best(dump, rounds=3)
        seconds = [min(pair) for pair in zip(seconds, measured, strict=True)]
    return seconds[0], seconds[1], seconds[2]


if __name__ == "__main__":
    finish("encoding", [encoding()])
