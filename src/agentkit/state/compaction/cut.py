"""Where a transcript may be cut, what has to stay, and what goes first. Touches only its arguments."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise

from agentkit.core.contracts.counting import TokenCounter
from agentkit.core.contracts.messages import Message, marked
from agentkit.core.contracts.tokens import measure
from agentkit.core.contracts.validity import answered, open_calls

from .base import Declined, Plan


def cut_points(messages: Sequence[Message]) -> tuple[int, ...]:
    """Positions at which the part behind may stand alone, ascending: it begins with a user message, and no call in
    front has its result behind. 0 is not among them."""
    tied = _tied(messages)
    return tuple(i for i in range(1, len(messages)) if _is_request(messages[i]) and not tied[i])


def round_points(messages: Sequence[Message]) -> tuple[int, ...]:
    """Positions at which a new round begins, ascending: an assistant message that opens a turn, with no call in front
    whose result is behind."""
    tied = _tied(messages)
    return tuple(
        i
        for i in range(1, len(messages))
        if messages[i].role == "assistant" and messages[i - 1].role != "assistant" and not tied[i]
    )


def obligations(messages: Sequence[Message]) -> frozenset[int]:
    """Indices that stay whatever goes: system text, summaries, the rounds of pinned messages and of open calls.

    A kept round brings its request along where it would otherwise come first.
    """
    owed = {id(call) for call in open_calls(messages)}
    rounds = _rounds(messages)
    kept: set[int] = set()
    for i, message in enumerate(messages):
        if message.role in ("system", "developer") or marked(message, "summary") is not None:
            kept.add(i)
        elif marked(message, "pinned") is not None or any(id(call) in owed for call in message.tool_calls):
            kept.update(rounds[i])
    return frozenset(kept)


def plan_cut(
    messages: Sequence[Message], *, goal: int, keep_recent: int, counter: TokenCounter | None = None
) -> Plan | Declined:
    """What to fold so that at most `goal` estimated tokens are kept, oldest first.

    Whole exchanges go first, while at least `keep_recent` messages stay; then the oldest rounds of the work in hand,
    down to its request and its last round. Obligations always stay. A plan may miss the goal when nothing more can go.
    """
    before = measure(messages, counter)
    if not messages:
        return Declined("nothing_to_fold", "the transcript is empty", before)
    owed = obligations(messages)
    sizes = [measure([message], counter) for message in messages]
    running = list(accumulate(sizes, initial=0))
    held = list(accumulate((sizes[i] if i in owed else 0 for i in range(len(messages))), initial=0))

    def left(position: int) -> int:
        """Tokens kept when everything in front of `position` goes but for the obligations."""
        return running[-1] - running[position] + held[position]

    points = [p for p in cut_points(messages) if p <= len(messages) - keep_recent]
    at = next((p for p in points if left(p) <= goal), points[-1] if points else 0)
    folded = [i for i in range(at) if i not in owed]
    if left(at) > goal:
        folded += _rounds_in_hand(messages, at, owed, left(at) - goal, running, keep_recent)
    gone = without_openers(messages, set(folded))
    if not gone:
        return _why_nothing(messages, owed, before)
    kept = tuple(i for i in range(len(messages)) if i not in gone)
    return Plan(tuple(sorted(gone)), kept, before, measure([messages[i] for i in kept], counter))


def _rounds_in_hand(
    messages: Sequence[Message], start: int, owed: frozenset[int], excess: int, running: list[int], keep_recent: int
) -> list[int]:
    """The oldest rounds behind the newest request, until `excess` tokens are gone; the last round always stays."""
    rounds = [p for p in round_points(messages) if p > start]
    requests = [i for i in range(start, len(messages)) if _is_request(messages[i])]
    rounds = [p for p in rounds if not requests or p > requests[-1]]
    gone: list[int] = []
    for begin, end in pairwise(rounds):
        if excess <= 0 or end > len(messages) - keep_recent:
            break
        gone += [i for i in range(begin, end) if i not in owed]
        excess -= running[end] - running[begin]
    return gone


def without_openers(messages: Sequence[Message], gone: set[int]) -> set[int]:
    """`gone` without the request in front of the first kept round, when that round would otherwise come first."""
    for i, message in enumerate(messages):
        if i in gone or message.role in ("system", "developer") or marked(message, "summary") is not None:
            continue
        opener = max((j for j in range(i) if j in gone and _is_request(messages[j])), default=None)
        return gone if message.role == "user" or opener is None else gone - {opener}
    return gone


def _why_nothing(messages: Sequence[Message], owed: frozenset[int], before: int) -> Declined:
    if len(owed) == len(messages):
        return Declined("open_obligation", "every message is pinned, a summary, system text or owed an answer", before)
    if not cut_points(messages) and len(round_points(messages)) < 2:
        return Declined("no_safe_cut", "no place behind the first request leaves a valid transcript", before)
    return Declined("nothing_to_fold", "what may go is already gone or too recent", before)


def _is_request(message: Message) -> bool:
    return message.role == "user" and marked(message, "summary") is None


def _tied(messages: Sequence[Message]) -> list[bool]:
    """For each position, whether a call in front of it has its result behind it."""
    opened = [0] * (len(messages) + 1)
    for call, result in answered(messages):
        opened[call + 1] += 1
        opened[result + 1] -= 1
    return [depth > 0 for depth in accumulate(opened)]


def _rounds(messages: Sequence[Message]) -> list[range]:
    """For each index, the stretch that stays or goes with it: a round, or what stands in front of the first one."""
    bounds = sorted({0, *cut_points(messages), *round_points(messages)})
    spans = [range(a, b) for a, b in zip(bounds, [*bounds[1:], len(messages)], strict=True)]
    return [spans[bisect_right(bounds, i) - 1] for i in range(len(messages))]
