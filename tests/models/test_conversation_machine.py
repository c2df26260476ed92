"""Whatever happens to a conversation, every provider takes it.

A machine appends, forks, merges, slices, compacts, interrupts and resumes; after each step the context goes to the fake
provider on each wire, through the adapters and the providers' own clients. The fake provider judges bodies by rules of
its own, so this holds repair, wire forms and adapters against a second opinion.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from random import Random
from typing import Any

import anthropic
import openai
import pytest
from google import genai
from google.genai import types as google
from hypothesis import HealthCheck, assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from agentkit.core.contracts.errors import EmptyRequestError, PermanentError, TransientError
from agentkit.core.contracts.requests import ChatRequest, LLMResult, assemble_deltas
from agentkit.core.contracts.types import (
    ImageBlock,
    Message,
    NativeBlock,
    RedactedThinkingBlock,
    ThinkingBlock,
    ToolCall,
    ToolSchema,
    Usage,
    mark,
)
from agentkit.core.contracts.validity import open_calls
from agentkit.models.adapters.anthropic import AnthropicLLM
from agentkit.models.adapters.gemini import GeminiLLM
from agentkit.models.adapters.openai_chat import OpenAIChatLLM
from agentkit.models.adapters.openai_responses import OpenAIResponsesLLM
from agentkit.models.testing.provider import Answer, AnswerCall, Exchange, FakeProvider, WireFault
from agentkit.state.compaction import (
    ClearResultsCompactor,
    SummarizeCompactor,
    TruncationCompactor,
    WindowCompactor,
)
from agentkit.state.context import LastNTurns, Layout, Not, PrefixContext, RoleFilter, Since, WorkingContext
from agentkit.state.persistence import dehydrate, rehydrate
from tests import strategies as odd

MODELS = (CLAUDE, OLDER, GPT, FOUR_O) = ("claude-opus-4-8", "claude-haiku-4-5", "gpt-5.6-sol", "gpt-4o")
LONGEST = 160
"""Messages of a context: what grows longer is cut, since every step sends all of it several times."""

TOOLS = (
    ToolSchema("look", "Looks around.", {"type": "object", "properties": {"at": {"type": "string"}}}),
    ToolSchema("add", "Adds.", {"type": "object", "properties": {"a": {"type": "number"}}, "required": ["a"]}),
)


class World:
    """The fake provider and the adapters in front of it, for all runs of a machine."""

    def __init__(self, run: Callable[[Awaitable[Any]], Any]) -> None:
        self.answer = Answer("Yes.")
        self.width = len(ADAPTERS)
        self.runs: list[int] = []
        """The steps of each run, for as long as contexts were in use."""
        # Size is no matter here: a hundred pictures are more than the smallest of the windows holds.
        self.provider = FakeProvider(self._said, piece=64, keep=8, windows=dict.fromkeys(MODELS, 10**7))
        self.run = run

    def _said(self, exchange: Exchange) -> Answer:
        return self.answer

    async def open(self, stack: AsyncExitStack) -> None:
        url = stack.enter_context(self.provider).url
        claude = await stack.enter_async_context(anthropic.AsyncAnthropic(api_key="k", base_url=url))
        gpt = await stack.enter_async_context(openai.AsyncOpenAI(api_key="k", base_url=f"{url}/v1"))
        gemini = genai.Client(api_key="k", http_options=google.HttpOptions(base_url=url))
        stack.callback(gemini.close)
        stack.push_async_callback(gemini.aio.aclose)
        self.adapters: dict[str, Any] = {
            "claude": AnthropicLLM(claude, model=CLAUDE),
            "older claude": AnthropicLLM(claude, model=OLDER),
            "chat": OpenAIChatLLM(gpt, model=GPT),
            "chat of gpt-4o": OpenAIChatLLM(gpt, model=FOUR_O),
            "responses": OpenAIResponsesLLM(gpt, model=GPT),
            "stored responses": OpenAIResponsesLLM(gpt, model=GPT, store=True),
            "gemini": GeminiLLM(gemini, model="gemini-2.5-pro"),
            "newer gemini": GeminiLLM(gemini, model="gemini-3-flash-preview"),
        }

    async def ask(self, name: str, request: ChatRequest, *, stream: bool) -> LLMResult:
        """The parsed answer; whoever refuses the request fails the test with the provider's words."""
        adapter = self.adapters[name]
        if not stream:
            result: LLMResult = await adapter.chat(request)
        else:
            async with aclosing(adapter.stream(request)) as deltas:
                result = assemble_deltas([delta async for delta in deltas])
        assert self.provider.last.status == 200
        assert result.usage.prompt_tokens == self.provider.last.prompt.tokens
        return result


ADAPTERS = (
    "claude",
    "older claude",
    "chat",
    "chat of gpt-4o",
    "responses",
    "stored responses",
    "gemini",
    "newer gemini",
)

_WORDS = st.sampled_from(["go on", "résumé 你好 🙂", "x" * 400, "a\x00b", "half \ud83d", " padded ", "{}", "</x>"])
ARGUMENTS = ("{}", '{"at": "here"}', '{"a": 1.5, "b": [null]}', "", "{broken", "[1]", '{"q": "\\ud800"}')
SEEDS = st.integers(0, 2**16 - 1)
"""What a step decides by itself, drawn as one number: a thousand steps of many draws are more than hypothesis holds."""


def answer_of(seed: int) -> Answer:
    rng = Random(seed)
    calls = [
        AnswerCall(rng.choice(("look", "add", "unknown-tool")), rng.choice(ARGUMENTS))
        for _ in range(rng.choice((0, 1, 2, 4)))
    ]
    text = rng.choice(("", "So it is.", "One moment ", "x" * 300))
    return Answer(text, tuple(calls), rng.choice((None, "Hm.", "Let me think.\n")), redacted=rng.random() < 0.3)


def _forged(message: Message) -> bool:
    """Whether a message has what only its provider could have signed; what is signed by nobody is refused by right."""
    return any(
        isinstance(block, (ThinkingBlock, RedactedThinkingBlock))
        or (isinstance(block, NativeBlock) and block.provider in ("anthropic", "openai", "gemini"))
        for block in message.blocks
    )


class Conversations(RuleBasedStateMachine):
    """A handful of contexts that fork from each other; the first of them is `main`."""

    world: World
    contexts: Any = Bundle("contexts")

    def __init__(self) -> None:
        super().__init__()
        self.main = WorkingContext(
            PrefixContext("You are careful.", (Message("system", "Known: x.", name="grounding"),))
        )
        self.touched = self.main
        self.sent: dict[int, Layout] = {}
        self.turns = 0

    @initialize(
        target=contexts,
        oddities=st.lists(odd.messages().filter(lambda one: not _forged(one)), min_size=12, max_size=12),
    )
    def begin(self, oddities: list[Message]) -> WorkingContext:
        self.oddities = oddities
        self.main.append(Message("user", "Let us begin."))
        return self.main

    def teardown(self) -> None:
        self.world.runs.append(self.turns)

    # What is said

    @rule(context=contexts, text=_WORDS)
    def say(self, context: WorkingContext, text: str) -> None:
        self._touch(context).append(Message("user", text))

    @rule(context=contexts)
    def show(self, context: WorkingContext) -> None:
        picture = ImageBlock(b"\x89PNG", "image/png")
        self._touch(context).append(Message("user", [picture]))

    @rule(context=contexts, seed=SEEDS)
    def receive_oddities(self, context: WorkingContext, seed: int) -> None:
        """Whatever an import may hold."""
        rng = Random(seed)
        self._touch(context).append(*rng.sample(self.oddities, rng.randint(1, 3)))

    @rule(context=contexts, name=st.sampled_from(ADAPTERS), seed=SEEDS)
    def ask(self, context: WorkingContext, name: str, seed: int) -> None:
        self._touch(context)
        answer = self.world.answer = answer_of(seed)
        result = self._asked(name, seed % 2 == 0)
        self.world.answer = Answer("Yes.")
        if result is not None:
            assert len(result.tool_calls) == len(answer.calls)
            context.append(result.message)

    @rule(context=contexts, seed=SEEDS)
    def run_tools(self, context: WorkingContext, seed: int) -> None:
        """Results of some of the open calls, in any order."""
        rng, owed = Random(seed), self._owed(context)
        for call in rng.sample(owed, len(owed)):
            if rng.random() < 0.75:
                self._touch(context).append(self._result(call, rng.randint(0, 5)))

    def _result(self, call: ToolCall, kind: int) -> Message:
        made = Message("tool", f"Result of {call.name}.", tool_call_id=call.id)
        if kind == 0:
            return replace(made, content="", is_error=True)
        if kind == 1:
            return Message("tool", [ImageBlock(b"\x89PNG", "image/png")], tool_call_id=call.id)
        if kind == 2:
            return mark(made, "pending")
        return replace(made, content="x" * 3_000) if kind == 3 else made

    def _owed(self, context: WorkingContext) -> list[ToolCall]:
        return list({id(call): call for call in open_calls(context.messages)}.values())[:6]

    # What goes wrong

    @rule(context=contexts, name=st.sampled_from(ADAPTERS), events=st.integers(0, 4))
    def cut_stream(self, context: WorkingContext, name: str, events: int) -> None:
        """Of an answer that was cut nothing is kept, as the adapters say; the question stands."""
        self._touch(context)
        self.world.provider.fail(WireFault(cut_after=events))
        self.world.answer = Answer("A long answer " * 20, (AnswerCall("look", {"at": "here"}),), thinking="Hm.")
        try:
            self._asked(name, True)
        except TransientError:
            pass
        else:
            self.world.provider.mend()
        self.world.answer = Answer("Yes.")

    @rule(context=contexts, name=st.sampled_from(ADAPTERS))
    def cancel_stream(self, context: WorkingContext, name: str) -> None:
        """The caller leaves after the first piece, and keeps what it saw."""
        self.world.answer = Answer("A long answer " * 20)
        request = self._request(self._touch(context), name)

        async def first() -> str:
            async with aclosing(self.world.adapters[name].stream(request)) as deltas:
                async for delta in deltas:
                    return str(delta.text)
            return ""

        try:
            text = self.world.run(first())
        except (EmptyRequestError, PermanentError) as error:
            self._excused(context, error)
        else:
            context.append(Message("assistant", text))
        self.world.answer = Answer("Yes.")

    @rule(context=contexts, text=_WORDS)
    def interrupt_tools(self, context: WorkingContext, text: str) -> None:
        """The person speaks while calls are open; a result of one of them comes late."""
        owed = self._owed(context)
        self._touch(context).append(Message("user", text))
        if owed:
            context.append(Message("tool", "too late", tool_call_id=owed[0].id))

    # What becomes of contexts

    @rule(target=contexts, context=contexts)
    def fork(self, context: WorkingContext) -> WorkingContext:
        return self._touch(context.fork())

    @rule(
        target=contexts,
        context=contexts,
        scope=st.sampled_from(
            [
                LastNTurns(2),
                LastNTurns(0),
                Since(3),
                Not(RoleFilter(frozenset({"tool"}))),
                RoleFilter(frozenset({"user", "tool"})),
            ]
        ),
    )
    def narrow(self, context: WorkingContext, scope: Any) -> WorkingContext:
        return self._touch(context.slice(scope))

    @rule(one=contexts, other=contexts, mode=st.sampled_from(["concat", "union", "delta"]))
    def merge(self, one: WorkingContext, other: WorkingContext, mode: str) -> None:
        assume(len(one.messages) + len(other.messages) <= LONGEST)
        try:
            self._touch(one).merge(other, mode)
        except ValueError:
            assert mode == "delta"  # not every two contexts have a shared head

    @rule(context=contexts, which=st.integers(0, 4))
    def compact(self, context: WorkingContext, which: int) -> None:
        compactor: Any = (
            TruncationCompactor(400, keep_recent=2),
            WindowCompactor(turns=2, slack=1),
            ClearResultsCompactor(300, keep_rounds=1, min_gain=100),
            SummarizeCompactor(self._summarise, 400, keep_recent=2, summary_tokens=200),
            SummarizeCompactor(self._summarise, 200, keep_recent=1, summary_tokens=100, fallback=True),
        )[which]
        self.world.answer = Answer('{"facts": [{"text": "It rained.", "n": 1}]}' if which == 3 else "no JSON at all")
        self._shorten(context, compactor)
        self.world.answer = Answer("Yes.")

    async def _summarise(self, request: ChatRequest) -> LLMResult:
        return await self.world.ask("claude", replace(request, model=CLAUDE), stream=False)

    def _shorten(self, context: WorkingContext, compactor: Any) -> None:
        version, seen = context.version, list(context.messages)
        shorter = self.world.run(compactor.compact(seen))
        if shorter is not seen:
            self._touch(context).rewrite(len(seen), shorter, version=version)

    @rule(context=contexts, head=st.integers(0, 12))
    def rewrite(self, context: WorkingContext, head: int) -> None:
        """A caller's own compaction, which cuts anywhere."""
        summary = mark(Message("user", "What happened so far: nothing."), "summary", covers=head)
        self._touch(context).rewrite(min(head, len(context.messages)), [summary], version=context.version)

    @rule(target=contexts, context=contexts)
    def resume(self, context: WorkingContext) -> WorkingContext:
        saved = dehydrate(context, Usage(), self.turns)
        again, *_ = rehydrate(saved)
        assert again.messages == context.messages
        return self._touch(again)

    # What holds after each step

    @invariant()
    def every_provider_takes_it(self) -> None:
        context = self.touched
        if len(context.messages) > LONGEST:
            self._shorten(context, TruncationCompactor(2_000, keep_recent=4))
            if len(context.messages) > LONGEST:
                context.rewrite(len(context.messages) - 40, [], version=context.version)
        self.turns += 1
        for at in range(self.world.width):
            self._asked(ADAPTERS[(self.turns * 3 + at) % len(ADAPTERS)], stream=(self.turns // 8 + at) % 2 == 0)

    def _touch(self, context: WorkingContext) -> WorkingContext:
        self.touched = context
        return context

    def _asked(self, name: str, stream: bool) -> LLMResult | None:
        request = self._request(self.touched, name)
        try:
            result: LLMResult = self.world.run(self.world.ask(name, request, stream=stream))
        except (EmptyRequestError, PermanentError) as error:
            self._excused(self.touched, error)
            return None
        return result

    def _excused(self, context: WorkingContext, error: Exception) -> None:
        """What an adapter may refuse by itself: nothing to answer, and the start of an answer."""
        if isinstance(error, EmptyRequestError):
            return
        assert "takes no start of its answer" in str(error), error

    def _request(self, context: WorkingContext, name: str) -> ChatRequest:
        closing = [Message("user", f"It is {self.turns} o'clock.")] if self.turns % 3 == 0 else []
        layout = context.segments(tools=TOOLS, volatile=closing)
        previous = self.sent.get(id(context))
        self.sent[id(context)] = layout
        return ChatRequest(
            tuple(layout.messages()),
            tools=TOOLS,
            cache_hint=layout.breakpoints(previous=previous, frozen_ttl="1h" if "claude" in name else None),
            prefix=len(layout.segment("frozen").messages),
            options={"cache_key": "scope", "seed": 7},
            max_tokens=2_000,
        )


@pytest.fixture
def world() -> Iterator[World]:
    """One event loop that runs all the while, as that of a program does: what a cut stream leaves is closed in it."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def run(work: Awaitable[Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(_awaited(work), loop).result()

    try:
        made, stack = World(run), AsyncExitStack()
        run(made.open(stack))
        yield made
        run(stack.aclose())
        run(loop.shutdown_asyncgens())
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _awaited(work: Awaitable[Any]) -> Any:
    return await work


def _run(world: World, examples: int, steps: int) -> None:
    made = type("Conversations", (Conversations,), {"world": world})
    how = settings(
        max_examples=examples, stateful_step_count=steps, deadline=None, suppress_health_check=list(HealthCheck)
    )
    run_state_machine_as_test(made, settings=how)


def test_every_provider_takes_every_conversation(world: World) -> None:
    """After each step three of the adapters are asked, in turn."""
    world.width = 3
    _run(world, 2, 40)


@pytest.mark.soak
def test_every_provider_takes_a_conversation_of_a_thousand_steps(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """All adapters are asked after each step. A run of hypothesis ends after some hundreds of steps, by the size of
    what it has drawn, unless it is given more room."""
    for module in ("hypothesis.stateful", "hypothesis.internal.conjecture.engine"):
        monkeypatch.setattr(f"{module}.BUFFER_SIZE", 2**20)
    _run(world, 4, 1_000)
    assert sorted(world.runs)[-2] >= 1_000  # beside the simplest run, which does one thing over and over
