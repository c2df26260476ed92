"""How much of each request the prompt cache gives back, and what that costs: the library beside others.

Every recorded session is replayed request by request through a fake provider on loopback that reports cached tokens by
the provider's published rules, with plan, memory keys and the time changing from one request to the next, and two
compactions in between. The library's Agent puts what changes behind everything that a cache could keep. The others get
the same texts where their users put them, into instructions that are made anew for each request, and are otherwise left
at their defaults, or, where that is said, with their own means for caching turned on. They run in `.venv-peers`, which
`make peers` makes.

`python benchmarks/cache.py` prints the figures, `--write` also puts them into docs/performance.md. Parts of names
replay those sessions only. It needs no key and asks no other host.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple

import anthropic
import openai
from conversations import SECONDS, Conversation, conversations
from harness import finish
from peers.common import KEY
from peers.environment import Peer, require_peers

from agentkit.agents import Agent, ReActCognition, RequestBuilder
from agentkit.core.contracts.messages import mark
from agentkit.core.contracts.types import Message, Scope
from agentkit.core.runtime import Invoker, RunContext, Services
from agentkit.models.adapters.anthropic import AnthropicLLM
from agentkit.models.adapters.openai_chat import OpenAIChatLLM
from agentkit.models.adapters.openai_responses import OpenAIResponsesLLM
from agentkit.models.cache import CacheRules, Prompt, PromptCache, rules_for
from agentkit.models.testing.provider import Exchange, FakeProvider
from agentkit.state.context import CharClassTokenCounter, WorkingContext

BOUND = 0.98
"""Of what the rules let any client read, at least this share has to be read."""
FOREVER = 100_000


@dataclass(frozen=True)
class Market:
    """A model, its wire, and the libraries to compare with, `+` for one with its caching turned on."""

    model: str
    wire: str
    peers: tuple[str, ...]

    @property
    def rules(self) -> CacheRules:
        found = rules_for(self.model)
        assert found is not None
        return found


MARKETS = (
    Market("claude-sonnet-4-6", "anthropic", ("pydantic_ai", "pydantic_ai +", "langchain", "langchain +")),
    Market("gpt-5.6-sol", "openai_responses", ("pydantic_ai", "pydantic_ai +", "langchain", "openai_agents")),
    Market("gpt-5.4", "openai_chat", ("pydantic_ai", "langchain", "openai_agents")),
)
"""One of each kind: marked blocks, message ends with explicit marks, and an interval without marks."""


# -- a replay ----------------------------------------------------------------------------------------------------------


class Provider:
    """A fake provider that gives one conversation's answers, SECONDS apart by a clock of its own."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation, self._now, self._given = conversation, 0.0, 0
        self.fake = FakeProvider(self._answer, clock=lambda: self._now)

    def _answer(self, exchange: Exchange) -> Mapping[str, Any]:
        self._now += SECONDS
        self._given += 1
        return self._conversation.steps[self._given - 1].answer

    def exchanges(self) -> list[Exchange]:
        """What was asked. RuntimeError unless that is one request for each answer, none of them refused."""
        made = list(self.fake.requests)
        refused = next((one for one in made if one.status != 200), None)
        if refused is not None:
            raise RuntimeError(f"{self._conversation.name}: refused with {refused.status}: {refused.error}")
        if len(made) != len(self._conversation.steps):
            raise RuntimeError(f"{self._conversation.name}: {len(made)} requests, not {len(self._conversation.steps)}")
        return made


class Recorded:
    """A tool that gives the recorded results, in order."""

    side_effecting = requires_approval = False

    def __init__(self, tool: Mapping[str, Any], results: deque[str]) -> None:
        self.name, self.description = tool["name"], tool["description"]
        self.parameters: Mapping[str, Any] = tool["parameters"]
        self._results = results

    def check(self, arguments: Mapping[str, Any], /) -> None:
        """Any arguments are right: what they came to is known."""

    async def run(self, arguments: Mapping[str, Any], ctx: Any, /) -> str:
        return self._results.popleft()


@dataclass
class Shortener:
    """The compactor of a replay: its summary in place of everything but the last turn, where the script has one."""

    conversation: Conversation
    number: Callable[[], int]
    done: set[int] = field(default_factory=set)

    async def compact(self, messages: Sequence[Message], ctx: Any, /, *, counter: Any = None) -> Sequence[Message]:
        number = self.number()
        summary = self.conversation.steps[number].summary
        if summary is None or number in self.done:
            return messages
        self.done.add(number)
        last = "assistant" if messages[-1].role == "tool" else "user"
        at = max(place for place, message in enumerate(messages) if message.role == last)
        return [mark(Message("user", summary), "summary", covers=at), *messages[at:]]


ADAPTERS = {"anthropic": AnthropicLLM, "openai_responses": OpenAIResponsesLLM, "openai_chat": OpenAIChatLLM}


def client_of(wire: str, url: str) -> Any:
    """The provider's own client, as the adapter of the wire takes it."""
    if wire == "anthropic":
        return anthropic.AsyncAnthropic(api_key=KEY, base_url=url)
    return openai.AsyncOpenAI(api_key=KEY, base_url=f"{url}/v1")


async def through_agentkit(conversation: Conversation, market: Market, fake: FakeProvider) -> None:
    """Every request of the conversation, made by the library's own agent."""

    def number() -> int:
        return len(fake.requests)

    results = deque(conversation.results)
    tools = [Recorded(tool, results) for tool in conversation.tools]
    agent = Agent(
        "replay",
        market.model,
        request_builder=RequestBuilder(conversation.system, compactor=Shortener(conversation, number)),
        cognition=ReActCognition(tools, max_iterations=FOREVER),
        volatile=lambda wc, ctx: conversation.steps[number()].closing,
    )
    context = WorkingContext(token_counter=CharClassTokenCounter())
    async with client_of(market.wire, fake.url) as client:
        services = Services(Invoker(ADAPTERS[market.wire](client)))
        for task in [step.task for step in conversation.steps if step.task is not None]:
            await agent.run(task, RunContext("replay", Scope("acme"), services=services), context=context)


# -- what it costs -----------------------------------------------------------------------------------------------------


@dataclass
class Tally:
    """What some requests amount to: tokens of the prompts, of these read from the cache, readable at best, and USD."""

    prompt: int = 0
    read: int = 0
    best: int = 0
    usd: Decimal = Decimal(0)

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.prompt + other.prompt, self.read + other.read, self.best + other.best, self.usd + other.usd)


def tally(exchanges: Sequence[Exchange], market: Market, *, partly: bool = False) -> Tally:
    """The sums over a replay. `partly`: providers that keep any prefix also read the equal head of a block that is not
    equal as a whole; the rules here go by blocks, so it is added, for those who put what changes into one long text."""
    cache = PromptCache(market.rules)
    found, before = Tally(), None
    for exchange in exchanges:
        bill = exchange.bill
        best = cache.ceiling(exchange.prompt, at=exchange.at)
        cache.send(exchange.prompt, at=exchange.at)
        if partly and before is not None and market.rules.kind == "interval":
            read = max(bill.read, _equal_head(before, exchange.prompt, market.rules))
            bill = type(bill)(read, 0, 0, bill.prompt_tokens - read)
        quote = bill.quote(market.model, output_tokens=exchange.spent.output if exchange.spent else 0)
        assert quote.known, quote.reason
        found += Tally(bill.prompt_tokens, bill.read, best, quote.usd)
        before = exchange.prompt
    return found


def _equal_head(before: Prompt, prompt: Prompt, rules: CacheRules) -> int:
    """Tokens that two prompts begin with alike, in the steps of the rules."""
    tokens = 0
    for old, new in zip(before.blocks, prompt.blocks, strict=False):
        if old.digest != new.digest:
            pairs = enumerate(zip(old.text, new.text, strict=False))
            alike = next((at for at, (a, b) in pairs if a != b), min(len(old.text), len(new.text)))
            return _stepped(tokens + new.tokens * alike // max(len(new.text), 1), rules)
        tokens += new.tokens
    return _stepped(tokens, rules)


def _stepped(tokens: int, rules: CacheRules) -> int:
    return 0 if tokens < rules.minimum else tokens - tokens % rules.step


# -- tables ------------------------------------------------------------------------------------------------------------


class Row(NamedTuple):
    """Some sessions: requests, the smallest share of the best among them, and tallies, the library's own first."""

    name: str
    requests: int
    least: float
    tallies: Sequence[Tally]

    def shares(self) -> Iterator[tuple[str, str, str, str]]:
        """For each library: share read, that of the best, USD, and agentkit's USD as a share of it. The best of others
        is that of the library's layout, as a share of the prompt: what they might have read."""
        ours = self.tallies[0]
        for number, tally in enumerate(self.tallies):
            share = tally.read / tally.prompt
            best = share * ours.prompt / ours.best if number else self.least
            yield f"{share:.1%}", f"{best:.1%}", f"{tally.usd:.4f}", f"{ours.usd / tally.usd:.2f}"


@dataclass
class Bills:
    """Shares and costs by one model's rules. `failed`: rows in which too little was read."""

    title: str
    peers: tuple[str, ...]
    rows: list[Row] = field(default_factory=list)

    @property
    def failed(self) -> int:
        return sum(row.least < BOUND for row in self.rows)

    def add(self, row: Row) -> None:
        self.rows.append(row)
        print(f"{'ok  ' if row.least >= BOUND else 'LOW '} {row.name}  ({row.requests} requests)")
        for who, cells in zip(("agentkit", *self.peers), row.shares(), strict=True):
            print("       " + "".join(f"{cell:>9}" for cell in cells) + f"  {who}", flush=True)

    def markdown(self) -> str:
        """What it comes to in all, by library; then each session, with agentkit's cost as a share of the others'."""
        lines = ["| library, all sessions | read | of the best | USD | agentkit / it |", "|---" * 5 + "|"]
        for who, cells in zip(("agentkit", *self.peers), self.rows[-1].shares(), strict=True):
            lines.append(f"| {who} | {' | '.join(cells)} |")
        heads = [
            "session",
            "requests",
            "read",
            f"of the best (bound {BOUND:.0%})",
            "USD",
            *[f"/ {who}" for who in self.peers],
        ]
        lines += ["", f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
        for row in self.rows[:-1]:
            ours, *others = row.shares()
            over = "" if row.least >= BOUND else " **low**"
            told = (row.name, str(row.requests), ours[0], ours[1] + over, ours[2], *[other[3] for other in others])
            lines.append(f"| {' | '.join(told)} |")
        return "\n".join(lines)


def compared(market: Market, sessions: Sequence[Conversation], peers: Mapping[str, Peer]) -> Bills:
    """All sessions by the rules of one model."""
    kind = f"{market.rules.kind}, {market.wire.replace('_', ' ')}"
    table = Bills(
        f"Cached share and cost of every session, {market.model} ({kind})",
        tuple(peers[name.split()[0]].name + (", caching on" if "+" in name else "") for name in market.peers),
    )
    print(f"\n{table.title}\n         read  of best      USD  agentkit / it", flush=True)
    everything = [Tally() for _ in range(len(market.peers) + 1)]
    requests, lowest = 0, 1.0
    for file in dict.fromkeys(session.name.split(" ")[0] for session in sessions):
        sums, least, count = [Tally() for _ in everything], 1.0, 0
        for session in [one for one in sessions if one.name.split(" ")[0] == file]:
            tallies = [replayed(session, market, None)]
            tallies += [replayed(session, market, peers[name.split()[0]], "+" in name) for name in market.peers]
            least = min(least, tallies[0].read / tallies[0].best)
            sums = [a + b for a, b in zip(sums, tallies, strict=True)]
            count += len(session.steps)
        table.add(Row(file, count, least, sums))
        everything = [a + b for a, b in zip(everything, sums, strict=True)]
        requests, lowest = requests + count, min(lowest, least)
    table.add(Row(f"all (bound {BOUND:.0%})", requests, lowest, everything))
    return table


def replayed(session: Conversation, market: Market, peer: Peer | None, caching: bool = False) -> Tally:
    """One session through the library, or through a peer, its own means for `caching` turned on or not."""
    provider = Provider(session)
    with provider.fake as fake:
        if peer is None:
            asyncio.run(through_agentkit(session, market, fake))
        else:
            where = {"model": market.model, "wire": market.wire, "url": fake.url, "caching": caching}
            peer.do({**where, "conversation": session.plain()})
        return tally(provider.exchanges(), market, partly=peer is not None)


def main() -> None:
    require_peers()
    wanted = [part for part in sys.argv[1:] if part != "--write"]
    sessions = [one for one in conversations() if not wanted or any(part in one.name for part in wanted)]
    if not sessions or (wanted and "--write" in sys.argv):
        sys.exit(f"only all sessions are written, and the parts {wanted} name {len(sessions)} of them")
    with ExitStack() as stack:
        names = dict.fromkeys(name.split()[0] for market in MARKETS for name in market.peers)
        peers = {name: stack.enter_context(Peer("peers.replay", name)) for name in names}
        tables = [compared(market, sessions, peers) for market in MARKETS]
    finish("cache", tables)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
