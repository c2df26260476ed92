"""The requests of a transcript rebuilt as prompts of a provider's cache: as they were sent, and as the library's layout
and breakpoint plan would send them. Touches only its arguments.

A transcript holds messages, not requests: a client's own system prompt and reminders are often missing. What a provider
reported beyond the messages at hand is one more block in front, and the growth from one report to the next is the size
of the messages that came in between, so that every request has exactly its reported size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from agentkit.core.contracts.messages import Message
from agentkit.core.contracts.offers import Breakpoint
from agentkit.models.cache import Block, CacheRules, Prompt
from agentkit.state.context import Layout, WorkingContext
from agentkit.state.context.tokens import AdditiveCounter
from agentkit.transcripts import Transcript

from .replay import take_turn, turns

LEAST = {"marked blocks": 512, "message ends": 1_024}
"""Tokens in front of a mark from which on the plan sets it, whatever the model: a mark below a provider's minimum
costs nothing."""


class Sent(NamedTuple):
    """The request in front of one answer. `version` counts the compactions before it."""

    layout: Layout
    version: int
    answer: Message


def sent_requests(transcript: Transcript, counter: AdditiveCounter) -> Iterator[Sent]:
    """The requests of a conversation that the record holds the answer of, in order."""
    context = WorkingContext(transcript.context.prefix, token_counter=counter)
    version = 0
    for turn in turns(transcript):
        answer, version = turn.answer, version + (turn.rewritten is not None)
        if answer is None:
            take_turn(context, turn, transcript)
            continue
        if turn.rewritten is not None:
            context.rewrite(context.size(), turn.rewritten, version=context.version)
        context.extend(turn.incoming)
        yield Sent(context.segments(tools=transcript.tools), version, answer)
        context.append(answer)


@dataclass
class Sizes:
    """Tokens of each message, fitted to what the provider reported; `names` stand for their content in the key.

    `unseen`: tokens in front that the record does not hold, and `known` the part of them that the first request found
    in the cache; `tools`: of the tools' schemas.
    """

    counter: AdditiveCounter
    factor: float = 1.0
    unseen: int = 0
    known: int = 0
    tools: int = 0
    tokens: dict[int, int] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)
    edits: int = 0
    version: int = 0
    was_fitted: bool = False
    _blocks: dict[int, tuple[int, str, tuple[Block, ...]]] = field(default_factory=dict)

    def blocks(self, message: Message, tier: str) -> tuple[Block, ...]:
        """The blocks of a message; all its tokens are in the last, since marks stand at ends of messages."""
        key = id(message)
        if key in self.gone:
            return ()
        tokens, name = self.tokens[key], self.names[key]
        known = self._blocks.get(key)
        if known is None or known[:2] != (tokens, name):
            ends = {"system": "developer", "user": "user", "tool": "tool"}.get(message.role, "assistant")
            parts = [Block(tier, f"{name}.{part}", 0) for part in range(max(len(message.ordered), 1) - 1)]
            known = self._blocks[key] = tokens, name, (*parts, Block(tier, name, tokens, None, ends))
        return known[2]

    def fit(self, sent: Sent, reported: int | None, read: int = 0) -> None:
        """Take in a request of `reported` prompt tokens, of which `read` came from the cache; None leaves the
        estimate."""
        messages = sent.layout.messages()
        if not self.tokens and not self.was_fitted:
            frozen = sent.layout.segment("frozen")
            self.tools = round(self.factor * max(frozen.tokens - self._estimate(frozen.messages), 0))
        if sent.version != self.version:
            # Nobody knows the parts of a compacted request: all its messages are sized anew.
            self.version = sent.version
            frozen_ids = {id(message) for message in sent.layout.segment("frozen").messages}
            self.tokens = {key: value for key, value in self.tokens.items() if key in frozen_ids}
        new = list({id(message): message for message in messages if id(message) not in self.tokens}.values())
        for message in new:
            self.tokens[id(message)] = round(self.factor * self._estimate([message]))
            self.names.setdefault(id(message), f"m{len(self.names)}")
        if reported is not None:
            is_first = not self.was_fitted
            self._adjust(messages, new, reported)
            self.known = min(read, self.unseen) if is_first else min(self.known, self.unseen)

    def total(self, messages: Sequence[Message]) -> int:
        return self.unseen + self.tools + sum(self.tokens[id(message)] for message in messages)

    def _adjust(self, messages: Sequence[Message], new: Sequence[Message], reported: int) -> None:
        gap = reported - self.total(messages)
        if not self.was_fitted:
            self.was_fitted = True
            self.unseen = max(gap, 0)
            gap -= self.unseen
        own = sum(self.tokens[id(message)] for message in new)
        if own + gap >= 0:
            self._spread(new or messages[-1:], own, own + gap)
        else:
            self._shrink(messages[: len(messages) - len(new)], -gap)

    def _spread(self, new: Sequence[Message], own: int, whole: int) -> None:
        """Share `whole` tokens among the new messages by their estimates."""
        left, rest = whole, own
        if not own and new:
            # Nothing came in, or nothing that counts: the last message is taken to have grown.
            message = new[-1]
            self.tokens[id(message)] = self.tokens[id(message)] + whole
            self._rename(message)
            return
        for message in new:
            weight = self.tokens[id(message)]
            given = left * weight // rest if rest else 0
            self.tokens[id(message)], left, rest = given, left - given, rest - weight

    def _shrink(self, old: Sequence[Message], excess: int) -> None:
        """The request was smaller than its messages: the newest of those that were sent before are taken to have been
        cut or left out, which the record does not show."""
        for message in reversed(old):
            if excess <= 0:
                break
            taken = min(self.tokens[id(message)], excess)
            if taken:
                self.tokens[id(message)] -= taken
                self._rename(message)
                excess -= taken
                if not self.tokens[id(message)]:
                    self.gone.add(id(message))
        taken = min(self.unseen, excess)
        self.unseen -= taken
        self.tools = max(self.tools - (excess - taken), 0)

    def _rename(self, message: Message) -> None:
        """What stands there now is not what was sent before."""
        self.edits += 1
        self.names[id(message)] += f"/{self.edits}"

    def _estimate(self, messages: Sequence[Message]) -> int:
        first = second = 0
        for message in messages:
            a, b = self.counter.weigh(message)
            first, second = first + a, second + b
        return self.counter.settle(first, second)


def as_sent(sent: Sent, sizes: Sizes, model: str, rules: CacheRules) -> Prompt:
    """The request as the client sent it. Where it put its marks is not recorded: one at the end stands for them."""
    marks = (Breakpoint(len(sent.layout.messages()), rules.default_ttl),)
    return _prompt(sent, sizes, model, rules, marks if rules.marks else (), rules.default_ttl)


def head_of(sizes: Sizes, model: str, rules: CacheRules, ttl: str) -> Prompt:
    """What other conversations had left in the cache before this one began: the part of `unseen` that the first request
    read."""
    return Prompt(model, (_known(sizes, ttl if rules.marks else None),), mode=_mode(rules))


@dataclass
class Planner:
    """The library's plan over the requests of one conversation, at one lifetime."""

    rules: CacheRules
    ttl: str
    previous: Sent | None = None
    earlier: set[int] = field(default_factory=set)

    def prompt(self, sent: Sent, sizes: Sizes, model: str) -> Prompt:
        """The request with the marks of the plan."""
        if not self.rules.marks:
            return _prompt(sent, sizes, model, self.rules, (), self.ttl)
        previous = self.previous.layout if self.previous is not None else None
        plan = sent.layout.breakpoints(
            previous=previous,
            max_marks=self.rules.marks,
            min_tokens=max(LEAST[self.rules.kind] - sizes.unseen, 0),
            ttl=self.ttl,
        )
        if self.rules.kind == "message ends":
            # Marks of earlier requests stay in place: they are places to look the request up at, free of charge.
            if self.previous is not None and self.previous.version != sent.version:
                self.earlier = set()
            self.earlier |= {mark.position for mark in plan}
            plan = tuple(Breakpoint(position, self.ttl) for position in sorted(self.earlier))
        self.previous = sent
        return _prompt(sent, sizes, model, self.rules, plan, self.ttl)


def _prompt(sent: Sent, sizes: Sizes, model: str, rules: CacheRules, marks: Sequence[Breakpoint], ttl: str) -> Prompt:
    messages, frozen = sent.layout.messages(), len(sent.layout.segment("frozen").messages)
    blocks: list[Block] = []
    if sizes.unseen:
        # The plan's first mark stands at the end of what never changes, which here the record does not hold.
        is_marked = bool(rules.marks) and not frozen and len(marks) < rules.marks
        blocks += [_known(sizes, None)] if sizes.known else []
        blocks.append(Block("tools", "unseen", sizes.unseen - sizes.known, ttl if is_marked else None, "developer"))
    if sent.layout.tools or sizes.tools:
        blocks += [Block("tools", f"tool{n}", 0) for n in range(len(sent.layout.tools) - 1)]
        blocks.append(Block("tools", "tools", sizes.tools))
    starts: list[int] = []
    tier = "system"
    for number, message in enumerate(messages):
        tier = "messages" if number >= frozen or message.role != "system" else tier
        blocks += sizes.blocks(message, tier)
        starts.append(len(blocks))
    for mark in marks:
        at = starts[mark.position - 1] - 1 if 0 < mark.position <= len(starts) else -1
        if at >= 0:
            blocks[at] = replace(blocks[at], mark=mark.ttl)
    return Prompt(model, tuple(blocks), mode=_mode(rules), version=sent.version)


def _known(sizes: Sizes, ttl: str | None) -> Block:
    return Block("tools", "known", sizes.known, ttl, "developer")


def _mode(rules: CacheRules) -> str:
    return "explicit" if rules.kind == "message ends" else "implicit"
