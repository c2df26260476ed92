"""A model for tests of the daemon: what it answers follows from the request alone, so that every life gets the same."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable

from agentkit.core.contracts.errors import PermanentError
from agentkit.core.contracts.messages import Message, ToolCall
from agentkit.core.contracts.requests import ChatRequest, Delta, LLMResult
from agentkit.core.contracts.tokens import estimate_message_tokens
from agentkit.core.contracts.usage import Usage
from agentkit.core.contracts.validity import check

ORDER = re.compile(r"\[\[(.*?)\]\]", re.DOTALL)


class ObedientLLM:
    """Does what the newest user message asks for in double brackets: a list of rounds, each a list of calls
    `{"tool": ..., "args": ...}`; then answers `done: <first line>`. Refuses what a provider would refuse."""

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
        usage = Usage(estimate_message_tokens(request.messages), 20)
        asked, done = order_of(request.messages)
        rounds = json.loads(asked) if asked else []
        if done < len(rounds):
            calls = tuple(
                ToolCall(f"call-{done}-{at}", call["tool"].replace(".", "_"), call.get("args", {}))
                for at, call in enumerate(rounds[done])
            )
            return LLMResult("", calls, usage, "tool_calls", request.model)
        return LLMResult(f"done: {first_line(request.messages)}", (), usage, "stop", request.model)

    async def stream(self, request: ChatRequest, /) -> AsyncIterator[Delta]:
        result = await self.chat(request)
        yield Delta(result.text, result.tool_calls, result.usage, result.finish_reason)


def order_of(messages: tuple[Message, ...]) -> tuple[str | None, int]:
    """The orders in the newest user message that has any text of a person, and how many rounds follow it."""
    at = newest(messages)
    found = ORDER.search(messages[at].content) if at is not None else None
    rounds = sum(1 for message in messages[(at or 0) :] if message.tool_calls)
    return (found[1] if found else None), rounds


def newest(messages: tuple[Message, ...]) -> int | None:
    """The place of the newest message that says `task`: what tests send begins with it."""
    return next(
        (at for at in range(len(messages) - 1, -1, -1) if messages[at].role == "user" and "task " in messages[at].content),
        None,
    )


def first_line(messages: tuple[Message, ...]) -> str:
    at = newest(messages)
    if at is None:
        return "nothing"
    lines = [line for line in messages[at].content.splitlines() if line.startswith("task ")]
    return lines[-1].split("[[")[0].strip() if lines else "nothing"


def task(name: str, *rounds: list[dict[str, object]]) -> str:
    """A message that orders these rounds."""
    return f"task {name} [[{json.dumps(list(rounds))}]]"
