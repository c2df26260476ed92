"""A model for tests of the daemon: what it answers follows from the request alone, so that every life gets the same."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from typing import Any

from agentkit.core.contracts.errors import PermanentError
from agentkit.core.contracts.messages import Message, ToolCall
from agentkit.core.contracts.requests import ChatRequest, Delta, LLMResult
from agentkit.core.contracts.tokens import estimate_message_tokens
from agentkit.core.contracts.usage import Usage
from agentkit.core.contracts.validity import check

TASK = re.compile(r"task (\S+) <<([^<>\n]*)>>")
ROUND = re.compile(r"round (\d+)")


class ObedientLLM:
    """Does what the newest task orders (see `task`), round by round, then answers `done: <name>`. It tells by the text
    of its own last answer how far it is, since older rounds may have been folded. Refuses what a provider would."""

    def __init__(self, *, delay: float = 0.0, answer: Callable[[ChatRequest], LLMResult] | None = None) -> None:
        self.requests: list[ChatRequest] = []
        self.delay, self.answer = delay, answer

    async def chat(self, request: ChatRequest, /) -> LLMResult:
        self.requests.append(request)
        if self.delay:
            await asyncio.sleep(self.delay)
        if found := check(request.messages, prefix=request.prefix_length):
            raise PermanentError(f"400: invalid request: {found}")
        if self.answer is not None:
            return self.answer(request)
        if request.response_format is not None:
            raise PermanentError("this model writes no summaries")
        usage = Usage(estimate_message_tokens(request.messages), 20)
        name, rounds, done = order_of(request.messages)
        if done < len(rounds):
            calls = tuple(
                ToolCall(f"call-{done}-{at}", call["tool"].replace(".", "_"), call.get("args", {}))
                for at, call in enumerate(rounds[done])
            )
            return LLMResult(f"round {done}", calls, usage, "tool_calls", request.model)
        return LLMResult(f"done: {name}", (), usage, "stop", request.model)

    async def stream(self, request: ChatRequest, /) -> AsyncIterator[Delta]:
        result = await self.chat(request)
        yield Delta(result.text, result.tool_calls, result.usage, result.finish_reason)


def order_of(messages: tuple[Message, ...]) -> tuple[str, list[list[dict[str, Any]]], int]:
    """The newest task: its name, its rounds, and how many of them were done."""
    at = next((n for n in range(len(messages) - 1, -1, -1) if TASK.search(messages[n].content)), None)
    if at is None:
        return "nothing", [], 0
    name, rounds = TASK.findall(messages[at].content)[-1]
    last = next((m for m in reversed(messages[at:]) if m.tool_calls), None)
    found = ROUND.search(last.content) if last is not None else None
    return name, json.loads(rounds), int(found[1]) + 1 if found else 0


def task(name: str, *rounds: list[dict[str, object]]) -> str:
    """A message that orders these rounds, each a list of `{"tool": ..., "args": ...}`."""
    return f"task {name} <<{json.dumps(list(rounds))}>>"
