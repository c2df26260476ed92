"""Real content for long runs: what users, tools and models said in the recorded conversations of this repository."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from agentd.runtime.tools.base import Answer, Invocation, Tool
from agentkit.core.contracts.errors import PermanentError
from agentkit.core.contracts.messages import Message, ToolCall
from agentkit.core.contracts.requests import ChatRequest, Delta, LLMResult
from agentkit.core.contracts.tokens import estimate_message_tokens
from agentkit.core.contracts.usage import Usage
from agentkit.core.contracts.validity import check
from agentkit.transcripts import load

ROOT = Path(__file__).resolve().parents[3]
EVERY = 5
"""Turns from one planted fact to the next."""
ASKED = re.compile(r"Turn (\d+)\.\n")
"""The first line of a request. Texts of one role in a row are joined, so it need not begin a line."""


@dataclass(frozen=True)
class Samples:
    """Texts by who said them, in the order of the recordings."""

    asked: tuple[str, ...]
    answered: tuple[str, ...]
    found: tuple[str, ...]


@cache
def samples() -> Samples:
    files = [
        ROOT / "examples/transcripts/worktree-long.jsonl",
        *sorted((ROOT / "tests/data/transcripts/tau-bench").glob("*.json")),
    ]
    said: dict[str, list[str]] = {"user": [], "assistant": [], "tool": []}
    for file in files:
        for transcript in load(file):
            for message in transcript.history:
                if message.role in said and message.content.strip():
                    said[message.role].append(message.content)
    return Samples(tuple(said["user"]), tuple(said["assistant"]), tuple(said["tool"]))


# What is said in which turn, from 1 on


def fact(turn: int) -> tuple[str, str] | None:
    """Who tells a fact in this turn, and the word that it is known by: an identifier, a path, a number in turn."""
    if turn % EVERY:
        return None
    made = (
        ("user", f"TCK-{turn:05d}-Q"),
        ("tool", f"/srv/export/{turn:05d}/part-{turn}.parquet"),
        ("assistant", f"{700_000 + 37 * turn}"),
        ("json", f"{90_000_000 + 41 * turn}"),
    )
    return made[turn // EVERY % len(made)]


def request(turn: int) -> str:
    text = samples().asked[turn % len(samples().asked)]
    told = fact(turn)
    extra = f"\nThe ticket {told[1]} is about this." if told is not None and told[0] == "user" else ""
    return f"Turn {turn}.\n{text}{extra}"


def answer(turn: int) -> str:
    text = samples().answered[turn % len(samples().answered)]
    told = fact(turn)
    return f"{text}\nI counted {told[1]} rows." if told is not None and told[0] == "assistant" else text


def result(turn: int, part: int) -> object:
    text = samples().found[(3 * turn + part) % len(samples().found)]
    told = fact(turn)
    if part == 0 and told is not None and told[0] == "tool":
        return f"{text}\nwritten to {told[1]}"
    if part == 0 and told is not None and told[0] == "json":
        return {"output": text, "checksum": int(told[1])}
    return text


def rounds(turn: int) -> int:
    """Rounds with calls before the answer; at least one where a result tells a fact."""
    return max(turn % 4, fact(turn) is not None)


def lookup() -> Tool:
    """A read-only tool with results of the recordings."""

    async def run(asked: Invocation) -> Answer:
        return Answer(result(asked.arguments["turn"], asked.arguments["part"]))

    whole = {"type": "integer"}
    schema = {"type": "object", "properties": {"turn": whole, "part": whole}, "required": ["turn", "part"]}
    return Tool("lookup", "Looks something up.", schema, run, read_only=True)


class SampleLLM:
    """Answers the newest request as `answer` says, after its rounds. Refuses what a provider would, and to write
    summaries. `last`: the newest request of a turn."""

    def __init__(self) -> None:
        self.last: ChatRequest | None = None

    async def chat(self, request: ChatRequest, /) -> LLMResult:
        if found := check(request.messages, prefix=request.prefix_length):
            raise PermanentError(f"400: invalid request: {found}")
        if request.response_format is not None:
            raise PermanentError("this model writes no summaries")
        self.last = request
        usage = Usage(estimate_message_tokens(request.messages), 20)
        turn, done = _place(request.messages)
        if done == rounds(turn):
            return LLMResult(answer(turn), (), usage, "stop", request.model)
        calls = (ToolCall(f"call-{turn}-{done}", "lookup", {"turn": turn, "part": done}),)
        return LLMResult("", calls, usage, "tool_calls", request.model)

    async def stream(self, request: ChatRequest, /) -> AsyncIterator[Delta]:
        made = await self.chat(request)
        yield Delta(made.text, made.tool_calls, made.usage, made.finish_reason)


def _place(messages: tuple[Message, ...]) -> tuple[int, int]:
    """The turn in hand, and how many of its rounds are done: its calls say which, since older ones may be folded."""
    at = max(n for n, message in enumerate(messages) if message.role == "user" and ASKED.search(message.content))
    turn = int(ASKED.findall(messages[at].content)[-1])
    parts = [call.arguments["part"] for message in messages[at:] for call in message.tool_calls]
    return turn, max(parts, default=-1) + 1
