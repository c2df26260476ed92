"""Three turns with Claude over Anthropic's Messages API, and what its prompt cache made of them.

    ANTHROPIC_API_KEY=... python examples/providers/anthropic_chat.py
    python examples/providers/anthropic_chat.py --fake    # no key needed: a fake provider on loopback answers

Wants `pip install '.[anthropic]'`.
"""

import argparse
import asyncio
import os
import sys

from anthropic import AsyncAnthropic

from agentkit.agents import Agent
from agentkit.core.contracts.types import Scope
from agentkit.core.runtime import Invoker, RunContext, Services
from agentkit.models.adapters.anthropic import AnthropicLLM
from agentkit.models.testing.provider import FakeProvider
from agentkit.state.context import WorkingContext

PRICES = "\n".join(f"Article {n}: {n % 90 + 10} EUR, {n % 7} in stock." for n in range(1000, 1150))
QUESTIONS = ["What does article 1017 cost?", "Is it in stock?", "And article 1018?"]


async def talk(client: AsyncAnthropic, model: str) -> None:
    """Asks, and prints the usage of each turn."""
    agent = Agent("shop", model, prompt=f"Answer in one sentence, by this price list.\n{PRICES}", temperature=None)
    ctx = RunContext("example", Scope("acme"), services=Services(Invoker(AnthropicLLM(client))))
    context = WorkingContext()
    async with client:
        for question in QUESTIONS:
            result = await agent.run(question, ctx, context=context)
            used = result.usage
            cached = f"{used.cache_read_tokens:,} read, {used.cache_write_tokens:,} written"
            print(f"{question} {result.output}")
            print(
                f"  input {used.prompt_tokens:,}: {cached}, "
                f"{used.input_tokens:,} fresh; output {used.output_tokens:,}; {used.cost_usd:.6f} USD"
            )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", default="claude-sonnet-4-6")
    parser.add_argument("--fake", action="store_true", help="answer from a fake provider on loopback")
    asked = parser.parse_args()
    if asked.fake:
        with FakeProvider(["37 EUR.", "Yes, 2 pieces.", "38 EUR."]) as provider:
            asyncio.run(talk(AsyncAnthropic(api_key="none", base_url=provider.url), asked.model))
    elif os.environ.get("ANTHROPIC_API_KEY"):
        asyncio.run(talk(AsyncAnthropic(), asked.model))
    else:
        print("set ANTHROPIC_API_KEY, or see it work without a key: --fake", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
