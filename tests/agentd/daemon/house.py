"""One store in memory and the lives of a daemon on it, in this process: what most tests of the daemon need."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

from agentd.config import Settings, load
from agentd.context.record import AssistantMsg, Entry, NoteMsg, ToolMsg, UserMsg
from agentd.context.rows import decode_entry
from agentd.runtime.daemon import Daemon
from agentd.runtime.tools.base import Answer, Invocation, Tool
from agentkit.core.contracts.errors import PermanentError
from agentkit.core.contracts.messages import ToolCall
from agentkit.core.contracts.ports import LLM, Store
from agentkit.core.contracts.requests import ChatRequest, Delta, LLMResult
from agentkit.core.contracts.tokens import estimate_message_tokens
from agentkit.core.contracts.usage import Usage
from agentkit.core.contracts.validity import check
from agentkit.core.testing import FakeClock
from agentkit.state.stores import InMemoryStore

START = 1_800_000_000.0
"""When the clock of tests begins: 08:00 UTC on a Friday, so a minute, an hour and no day begin there."""
Said: TypeAlias = str | Sequence[tuple[str, dict[str, Any]]] | LLMResult | BaseException
"""What a model says: a text, calls as (tool, arguments), a whole result, or a fault."""


class StrictLLM:
    """A model that refuses what a provider would refuse, and says what `answer` makes of a request; or, given turns,
    one after the other, the last one again and again. Calls get ids of their own. `usage` is what it reports of each
    request, None: what it is estimated at."""

    def __init__(self, *turns: Said, answer: Callable[[ChatRequest], Said | Awaitable[Said]] | None = None) -> None:
        self.requests: list[ChatRequest] = []
        self.usage: Usage | None = Usage(100, 10)
        self.reported: list[Usage] = []
        self._turns, self._answer, self._calls = list(turns), answer, 0

    async def chat(self, request: ChatRequest, /) -> LLMResult:
        self.requests.append(request)
        if found := check(request.messages, prefix=request.prefix_length):
            raise PermanentError(f"400: invalid request: {found}")
        said = self._said(request)
        if isinstance(said, Awaitable):
            said = await said
        if isinstance(said, BaseException):
            raise said
        if isinstance(said, LLMResult):
            return said
        usage = self.usage or Usage(estimate_message_tokens(request.messages), 10)
        self.reported.append(usage)
        if isinstance(said, str):
            return LLMResult(said, (), usage, "stop", request.model)
        return LLMResult("", self._made(said), usage, "tool_calls", request.model)

    async def stream(self, request: ChatRequest, /) -> AsyncIterator[Delta]:
        result = await self.chat(request)
        yield Delta(result.text, result.tool_calls, result.usage, result.finish_reason)

    def _said(self, request: ChatRequest) -> Said | Awaitable[Said]:
        if self._answer is not None:
            return self._answer(request)
        return self._turns.pop(0) if len(self._turns) > 1 else self._turns[0]

    def _made(self, calls: Sequence[tuple[str, dict[str, Any]]]) -> tuple[ToolCall, ...]:
        made = []
        for name, arguments in calls:
            self._calls += 1
            made.append(ToolCall(f"call-{self._calls}", name.replace(".", "_"), arguments))
        return tuple(made)


class Time(FakeClock):
    """A clock that is moved by hand, and a sleep that goes by it."""

    def __init__(self, now: float = START) -> None:
        super().__init__(now)
        self._sleeping: list[tuple[float, asyncio.Event]] = []

    async def sleep(self, seconds: float) -> None:
        awake = asyncio.Event()
        self._sleeping.append((self.now + seconds, awake))
        await awake.wait()

    def advance(self, seconds: float) -> None:
        super().advance(seconds)
        for until, awake in self._sleeping:
            if until <= self.now:
                awake.set()
        self._sleeping = [one for one in self._sleeping if not one[1].is_set()]


async def forever() -> Any:
    """What does not end of itself."""
    await asyncio.Event().wait()


class Hands:
    """Tools that note what they are called with: `post` changes something outside, `look` does not, `put` may be
    repeated. `do` is run by each call, by its tool's name."""

    def __init__(self) -> None:
        self.calls: list[Invocation] = []
        self.do: dict[str, Callable[[Invocation], Awaitable[Any]]] = {}
        self.begun = asyncio.Event()
        """Set by each call; a test clears it."""

    def names(self) -> list[str]:
        return [call.tool for call in self.calls]

    def tools(self) -> list[Tool]:
        schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
        return [
            Tool("post", "changes something", schema, self._run),
            Tool("look", "changes nothing", schema, self._run, read_only=True),
            Tool("put", "may be repeated", schema, self._run, idempotent=True),
        ]

    async def _run(self, asked: Invocation) -> Answer:
        self.calls.append(asked)
        self.begun.set()
        do = self.do.get(asked.tool)
        return Answer({"tool": asked.tool, "saw": asked.arguments} if do is None else await do(asked))


def settings_of(**given: Any) -> Settings:
    """Settings with these keys, `__` between levels; everything else as it is, but no preflight."""
    flags = {"intelligence.endpoints": "['fake:none']", "intelligence.model": "none", "agent.name": "house",
             "agent.preflight": "never", "store.kind": "memory"}  # fmt: skip
    flags |= {key.replace("__", "."): str(value) for key, value in given.items()}
    return load([], environ={}, flags=flags.items())


class House:
    """The store, and what all lives on it have in common. `given`: settings, as `settings_of` takes them."""

    def __init__(self, *, store: Store | None = None, clock: Time | None = None, **given: Any) -> None:
        self.store = store or InMemoryStore()
        self.clock = clock or Time()
        self.given = given
        self.hands = Hands()

    @asynccontextmanager
    async def life(self, model: LLM, *, tools: Iterable[Tool] = (), **how: Any) -> AsyncIterator[Daemon]:
        """One life, drained at the end."""
        settings = settings_of(**{**self.given, **how.pop("given", {})})
        how = {"clock": self.clock, "store": self.store, **how}
        made = [*self.hands.tools(), *tools]
        async with await Daemon.open(settings, model=model, tools=made, environ={}, **how) as agent:
            yield agent

    @staticmethod
    async def end(agent: Daemon) -> None:
        """End a life where it is: nothing in hand gets to its end."""
        await agent.actors.stop()


async def log_of(agent: Daemon, context: str) -> list[Entry]:
    """The whole log, as it is stored."""
    return [decode_entry(line) for line in await agent.services.records.entries("log", context)]


async def users(agent: Daemon, context: str) -> list[UserMsg]:
    return [entry.body for entry in await log_of(agent, context) if isinstance(entry.body, UserMsg)]


async def answers(agent: Daemon, context: str) -> list[str]:
    return [e.body.text for e in await log_of(agent, context) if isinstance(e.body, AssistantMsg) and e.body.text]


async def results(agent: Daemon, context: str) -> list[ToolMsg]:
    return [entry.body for entry in await log_of(agent, context) if isinstance(entry.body, ToolMsg)]


async def notes(agent: Daemon, context: str) -> list[str]:
    return [entry.body.text for entry in await log_of(agent, context) if isinstance(entry.body, NoteMsg)]


async def until(holds: Callable[[], bool]) -> None:
    """Let the others go on until this holds."""
    for _ in range(10_000):
        if holds():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came to that")


async def settled() -> None:
    """Let the others go on until they wait for something from outside; nothing of a store in memory does."""
    for _ in range(200):
        await asyncio.sleep(0)


def texts(request: ChatRequest) -> str:
    """Everything a request says."""
    return "\n".join(message.content for message in request.messages)
