"""What a prompt cache saves, shown on one real conversation: replayed three times against a provider on loopback that
bills by Anthropic's published rules. No key, no other host.

First the clock and the plan of the agent stand in the system prompt, as in many programs; then the same with cache
marks; then as this library lays a request out. The conversation, with its system prompt, is the same each time.
"""

import asyncio
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import anthropic

from agentkit.core.contracts.requests import ChatRequest
from agentkit.core.contracts.types import Breakpoint, Message, ToolSchema
from agentkit.models.adapters.anthropic import AnthropicLLM
from agentkit.models.catalog import as_of
from agentkit.models.testing.provider import Exchange, FakeProvider
from agentkit.state.context import Layout, PrefixContext, WorkingContext
from agentkit.transcripts import load

SAMPLE = (
    Path(__file__).resolve().parent.parent / "tests" / "data" / "transcripts" / "tau-bench" / "gpt4o-airline-two.json"
)
MODEL = "claude-sonnet-4-6"
SECONDS = 20
"""From one request to the next."""
KINDS = {"user": "answers the user", "tool": "answers tool results"}


class Asked(NamedTuple):
    """What a layout makes a request of: the context, what changes with every request, and the request before."""

    context: WorkingContext
    closing: str
    tools: tuple[ToolSchema, ...]
    before: Layout | None


def naive(asked: Asked) -> ChatRequest:
    """Everything that the agent is to know in its system prompt, made anew for each request."""
    system = f"{asked.context.prefix.system_prompt}\n\n{asked.closing}"
    return ChatRequest((Message("system", system), *asked.context.messages), MODEL, asked.tools)


def marked(asked: Asked) -> ChatRequest:
    """The same, with cache marks behind the system prompt and at the end."""
    request = naive(asked)
    marks = (Breakpoint(1), Breakpoint(len(request.messages)))
    return ChatRequest(request.messages, MODEL, asked.tools, cache_hint=marks)


def laid_out(asked: Asked) -> ChatRequest:
    """What changes stands behind what does not, and the marks where the next request finds them."""
    layout = layout_of(asked)
    marks = layout.breakpoints(previous=asked.before, min_tokens=512)
    return ChatRequest(tuple(layout.messages()), MODEL, asked.tools, cache_hint=marks, prefix=1)


def layout_of(asked: Asked) -> Layout:
    return asked.context.segments(tools=asked.tools, volatile=[Message("user", asked.closing)])


LAYOUTS: dict[str, Callable[[Asked], ChatRequest]] = {
    "clock and plan in the system prompt": naive,
    "the same, with cache marks": marked,
    "laid out by agentkit": laid_out,
}


def closing(number: int) -> str:
    """Plan, memory and clock at a request."""
    seconds = 9 * 3_600 + SECONDS * number
    now = f"{seconds // 3_600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"Plan: step {number + 1} of the booking. Memory: {number // 3 + 1} notes. Now: 2026-11-30 {now}Z"


async def replay(history: tuple[Message, ...], lay_out: Callable[[Asked], ChatRequest]) -> list[Exchange]:
    """Asks for every answer of the recorded conversation once more. Returns what was sent and billed."""
    answers = [message for message in history if message.role == "assistant"]
    names = sorted({call.name for message in answers for call in message.tool_calls})
    tools = tuple(ToolSchema(name, f"{name.replace('_', ' ').capitalize()}.", {"type": "object"}) for name in names)
    context, before, number = WorkingContext(PrefixContext(history[0].content)), None, 0
    said = [
        {"text": m.content, "calls": [{"name": c.name, "arguments": c.arguments} for c in m.tool_calls]}
        for m in answers
    ]
    with FakeProvider(said, clock=lambda: float(SECONDS * number)) as provider:
        async with anthropic.AsyncAnthropic(api_key="none", base_url=provider.url) as client:
            llm = AnthropicLLM(client)
            for message in history[1:]:
                if message.role == "assistant":
                    asked = Asked(context, closing(number), tools, before)
                    await llm.chat(lay_out(asked))
                    before, number = layout_of(asked), number + 1
                context.append(message)
        return list(provider.requests)


def bill(name: str, kinds: list[str], exchanges: list[Exchange]) -> Decimal:
    """Prints what the requests cost, by kind and in all; returns the sum in USD."""
    print(f"\n{name}")
    total = Decimal(0)
    for kind in ("the first request", *KINDS.values(), "all"):
        chosen = [one for one, own in zip(exchanges, kinds, strict=True) if kind in (own, "all")]
        bills: list[Any] = [one.bill for one in chosen]
        sums = [sum(getattr(one, field) for one in bills) for field in ("read", "write", "fresh")]
        outputs = [one.spent.output if one.spent else 0 for one in chosen]
        usd = sum((b.quote(MODEL, output_tokens=o).usd for b, o in zip(bills, outputs, strict=True)), Decimal(0))
        figures = "".join(f"{figure:>12,}" for figure in (len(chosen), *sums, sum(outputs)))
        print(f"  {kind:<22}{figures}{usd:>12.4f}")
        total = usd
    return total


def main() -> int:
    """Prints the three bills."""
    transcript = load(SAMPLE)[1]
    history = transcript.history
    lasts = [history[at - 1].role for at, message in enumerate(history) if message.role == "assistant"]
    kinds = ["the first request", *[KINDS[role] for role in lasts[1:]]]
    print(f"A recorded conversation of {len(kinds)} requests to {MODEL} at the prices of {as_of()}.")
    print(
        f"  {'':<22}" + "".join(f"{head:>12}" for head in ("requests", "read", "written", "in full", "output", "USD"))
    )
    sums = {name: bill(name, kinds, asyncio.run(replay(history, layout))) for name, layout in LAYOUTS.items()}
    first, *_, last = sums.values()
    print(f"\nThe library's layout costs {last / first:.0%} of the first bill.")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
