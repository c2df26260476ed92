"""Three turns with any server that speaks OpenAI's chat completions, and what its prompt cache made of them.

    python examples/providers/compatible.py --url http://127.0.0.1:8000/v1 --provider vllm --model Qwen/Qwen3-8B
    DEEPSEEK_API_KEY=... python examples/providers/compatible.py --url https://api.deepseek.com \
        --provider deepseek --model deepseek-v4-flash --key DEEPSEEK_API_KEY
    python examples/providers/compatible.py --fake    # no server needed: a fake provider on loopback answers

Wants `pip install '.[openai]'`.
"""

import argparse
import asyncio
import os
import sys

from openai import AsyncOpenAI

from agentkit.agents import Agent
from agentkit.core.contracts.types import Scope
from agentkit.core.runtime import Invoker, RunContext, Services
from agentkit.models.adapters.openai_chat import DIALECTS, OpenAIChatLLM
from agentkit.models.catalog import rates
from agentkit.models.testing.provider import FakeProvider
from agentkit.state.context import WorkingContext

PRICES = "\n".join(f"Article {n}: {n % 90 + 10} EUR, {n % 7} in stock." for n in range(1000, 1150))
QUESTIONS = ["What does article 1017 cost?", "Is it in stock?", "And article 1018?"]


async def talk(client: AsyncOpenAI, model: str, provider: str) -> None:
    """Asks, and prints the usage of each turn."""
    agent = Agent("shop", model, prompt=f"Answer in one sentence, by this price list.\n{PRICES}", temperature=None)
    llm = OpenAIChatLLM(client, provider=provider)
    ctx = RunContext("example", Scope("acme"), services=Services(Invoker(llm)))
    context = WorkingContext()
    async with client:
        for question in QUESTIONS:
            result = await agent.run(question, ctx, context=context)
            used = result.usage
            cost = f"{used.cost_usd:.6f} USD" if rates(model) else "price unknown"
            cached = f"{used.cache_read_tokens:,} read, {used.cache_write_tokens:,} written"
            print(f"{question} {result.output}")
            print(
                f"  input {used.prompt_tokens:,}: {cached}, "
                f"{used.input_tokens:,} fresh; output {used.output_tokens:,}; {cost}"
            )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--url", help="the server's base URL, up to /v1")
    parser.add_argument("--provider", default="compatible", choices=DIALECTS, help="how the server departs from OpenAI")
    parser.add_argument("--model", default="deepseek-v4-flash", help="as the server names it")
    parser.add_argument(
        "--key", metavar="VARIABLE", help="the environment variable that holds the key, if it wants one"
    )
    parser.add_argument("--fake", action="store_true", help="answer from a fake provider on loopback")
    asked = parser.parse_args()
    if asked.fake:
        with FakeProvider(["37 EUR.", "Yes, 2 pieces.", "38 EUR."]) as fake:
            client = AsyncOpenAI(api_key="none", base_url=fake.openai_url)
            asyncio.run(talk(client, asked.model, asked.provider))
        return 0
    if asked.url is None:
        parser.error("name the server: --url http://127.0.0.1:8000/v1, or see it work without one: --fake")
    if asked.key is not None and not os.environ.get(asked.key):
        parser.error(f"--key: the environment variable {asked.key} is not set")
    key = os.environ[asked.key] if asked.key is not None else "none"  # the client insists on one
    asyncio.run(talk(AsyncOpenAI(api_key=key, base_url=asked.url), asked.model, asked.provider))
    return 0


if __name__ == "__main__":
    sys.exit(main())
