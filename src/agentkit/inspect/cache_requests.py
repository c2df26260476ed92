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
class _Item:
    """One message: what stands for its content in the key, its tokens, and how many blocks it has."""

    name: str
    tokens: int
    parts: int
    tier: str
    ends: str
    is_gone: bool = False


@dataclass
class Sizes:
    """Tokens of each message of the request at hand, fitted to what the provider reported.

    `unseen`: tokens in front that the record does not hold, and `known` the part of them that the first request found
    in the cache; `tools`: of the tools' schemas. Within a version requests only grow, so that a request costs the work
    of what came in.
    """

    counter: AdditiveCounter
    factor: float = 1.0
    unseen: int = 0
    known: int = 0
    tools: int = 0
    version: int = 0
    was_fitted: bool = False
    items: list[_Item] = field(default_factory=list)
    _names: dict[int, str] = field(default_factory=dict)
    _sum: int = 0
    _edits: int = 0
    _base: list[Block] = field(default_factory=list)
    _ends: list[int] = field(default_factory=list)
    _built: tuple[int, ...] = ()

    @property
    def total(self) -> int:
        """Tokens of the request."""
        return self.unseen + self.tools + self._sum

    @property
    def tokens(self) -> list[int]:
        """Tokens of each message of the request."""
        return [item.tokens for item in self.items]

    def fit(self, sent: Sent, reported: int | None, read: int = 0) -> None:
        """Take in a request of `reported` prompt tokens, of which `read` came from the cache; None leaves the
        estimate."""
        frozen = sent.layout.segment("frozen")
        if not self.items and not self.was_fitted:
            self.tools = round(self.factor * max(frozen.tokens - self._estimate(frozen.messages), 0))
        if sent.version != self.version:
            # Nobody knows the parts of a compacted request: all its messages are sized anew.
            self.version = sent.version
            del self.items[len(frozen.messages) :]
            self._sum = sum(item.tokens for item in self.items)
        before = len(self.items)
        for place, message in enumerate(sent.layout.messages()[before:], before):
            is_system = place < len(frozen.messages) and message.role == "system"
            is_system = is_system and (not self.items or self.items[-1].tier == "system")
            self._add(message, "system" if is_system else "messages")
        if reported is not None:
            is_first = not self.was_fitted
            self._adjust(before, reported)
            self.known = min(read, self.unseen) if is_first else min(self.known, self.unseen)

    def base(self, sent: Sent) -> tuple[list[Block], list[int]]:
        """The blocks of the request without marks, and behind how many of them each message ends. Neither is to be
        changed."""
        built = (self.version, self._edits, self.unseen, self.known, self.tools, len(sent.layout.tools))
        if built != self._built:
            self._built, self._base, self._ends = built, self._front(len(sent.layout.tools)), []
        for item in self.items[len(self._ends) :]:
            if not item.is_gone:
                # All tokens are in the last part, since marks stand at ends of messages.
                self._base += [Block(item.tier, f"{item.name}.{part}", 0) for part in range(item.parts - 1)]
                self._base.append(Block(item.tier, item.name, item.tokens, None, item.ends))
            self._ends.append(len(self._base))
        return self._base, self._ends

    def _front(self, tools: int) -> list[Block]:
        blocks: list[Block] = []
        if self.unseen:
            blocks += [Block("tools", "known", self.known, None, "developer")] if self.known else []
            blocks.append(Block("tools", "unseen", self.unseen - self.known, None, "developer"))
        if tools or self.tools:
            blocks += [Block("tools", f"tool{n}", 0) for n in range(tools - 1)]
            blocks.append(Block("tools", "tools", self.tools))
        return blocks

    def _add(self, message: Message, tier: str) -> None:
        name = self._names.setdefault(id(message), f"m{len(self._names)}")
        tokens = round(self.factor * self._estimate([message]))
        ends = {"system": "developer", "user": "user", "tool": "tool"}.get(message.role, "assistant")
        self.items.append(_Item(name, tokens, max(len(message.ordered), 1), tier, ends))
        self._sum += tokens

    def _adjust(self, before: int, reported: int) -> None:
        """Make the request as large as it was; its messages from `before` on are new."""
        gap = reported - self.total
        if not self.was_fitted:
            self.was_fitted = True
            self.unseen = max(gap, 0)
            gap -= self.unseen
        new = self.items[before:]
        own = sum(item.tokens for item in new)
        self._sum += gap
        if own + gap < 0:
            self._sum += self._shrink(before, -gap)
        elif own:
            self._spread(new, own, own + gap)
        elif gap and self.items:
            # Nothing came in, or nothing that counts: the last message is taken to have grown.
            self._change(self.items[-1], gap)

    def _spread(self, new: Sequence[_Item], own: int, whole: int) -> None:
        """Share `whole` tokens among the new messages by their estimates."""
        left, rest = whole, own
        for item in new:
            weight = item.tokens
            item.tokens = left * weight // rest if rest else 0
            left, rest = left - item.tokens, rest - weight

    def _shrink(self, before: int, excess: int) -> int:
        """The request was smaller than its messages: the newest of those that were sent before are taken to have been
        cut or left out, which the record does not show. Returns what of it the parts in front have to give."""
        for item in reversed(self.items[:before]):
            if excess <= 0:
                return 0
            taken = min(item.tokens, excess)
            if taken:
                self._change(item, -taken)
                excess -= taken
                item.is_gone = not item.tokens
        taken = min(self.unseen, excess)
        self.unseen -= taken
        self.tools = max(self.tools - (excess - taken), 0)
        return excess

    def _change(self, item: _Item, by: int) -> None:
        """What stands there now is not what was sent before."""
        self._edits += 1
        item.tokens += by
        item.name += f"/{self._edits}"

    def _estimate(self, messages: Sequence[Message]) -> int:
        first = second = 0
        for message in messages:
            a, b = self.counter.weigh(message)
            first, second = first + a, second + b
        return self.counter.settle(first, second)


def as_sent(sent: Sent, sizes: Sizes, model: str, rules: CacheRules, ttl: str) -> Prompt:
    """The request as the client sent it. Where it put its marks is not recorded: one at the end stands for them."""
    marks = (Breakpoint(len(sizes.items), ttl),)
    return _prompt(sent, sizes, model, rules, marks if rules.marks else (), ttl)


def head_of(sizes: Sizes, model: str, rules: CacheRules, ttl: str) -> Prompt:
    """What other conversations had left in the cache before this one began: the part of `unseen` that the first request
    read."""
    known = Block("tools", "known", sizes.known, ttl if rules.marks else None, "developer")
    return Prompt(model, (known,), mode=_mode(rules))


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
    base, ends = sizes.base(sent)
    blocks = base.copy()
    if sizes.unseen and rules.marks and not sent.layout.segment("frozen").messages and len(marks) < rules.marks:
        # The plan's first mark stands at the end of what never changes, which here the record does not hold.
        at = 1 if sizes.known else 0
        blocks[at] = replace(blocks[at], mark=ttl)
    for mark in marks:
        at = ends[mark.position - 1] - 1 if 0 < mark.position <= len(ends) else -1
        if at >= 0:
            blocks[at] = replace(blocks[at], mark=mark.ttl)
    return Prompt(model, tuple(blocks), mode=_mode(rules), version=sent.version)


def _mode(rules: CacheRules) -> str:
    return "explicit" if rules.kind == "message ends" else "implicit"
