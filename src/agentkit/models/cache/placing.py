"""Where a request is looked up and where it writes, and how much of a shared prefix can be read. Touches only its
arguments.

Kinds without marks write and read everything; for them the plan is empty.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .prompts import Block, Prompt
from .rules import CacheRules


@dataclass(frozen=True)
class Plan:
    """`looked_up`: positions in the order of the search; `writes`: (position, lifetime) in the order of the request;
    `ignored`: marks without effect, each with the reason."""

    looked_up: tuple[int, ...] = ()
    writes: tuple[tuple[int, str], ...] = ()
    ignored: tuple[tuple[int, str], ...] = ()


def plan(rules: CacheRules, prompt: Prompt) -> Plan:
    """The plan of a request. Raises ValueError, which names the block, where the provider would refuse it."""
    marks = [(at, block.mark) for at, block in enumerate(prompt.blocks) if block.mark is not None]
    if rules.kind == "marked blocks":
        _refuse(rules, marks)
        return Plan(tuple(_lookback(rules, [at for at, _ in marks])), tuple(marks))
    if rules.kind == "message ends":
        for at, ttl in marks:
            _known(rules, at, ttl)
        return _message_ends(rules, prompt, marks)
    return Plan(ignored=tuple((at, "no_marks_here") for at, _ in marks))


def _refuse(rules: CacheRules, marks: list[tuple[int, str]]) -> None:
    if len(marks) > rules.marks:
        raise ValueError(
            f"block {marks[rules.marks][0]} carries mark number {rules.marks + 1}; {rules.name} takes {rules.marks}"
        )
    shortest = float("inf")
    for at, ttl in marks:
        seconds = _known(rules, at, ttl)
        if seconds > shortest:
            raise ValueError(f"the mark of block {at} asks for {ttl}, longer than a mark in front of it")
        shortest = seconds


def _known(rules: CacheRules, at: int, ttl: str) -> float:
    try:
        return rules.seconds(ttl)
    except ValueError as error:
        raise ValueError(f"block {at}: {error}") from None


def _lookback(rules: CacheRules, marks: list[int]) -> Iterator[int]:
    """From each mark backwards, the latest mark first; a position once."""
    reached = None
    for mark in reversed(marks):
        stop = max(mark - rules.lookback, -1)
        start = mark if reached is None else min(mark, reached)
        yield from range(start, stop, -1)
        reached = stop if reached is None else min(reached, stop)


def _message_ends(rules: CacheRules, prompt: Prompt, marks: list[tuple[int, str]]) -> Plan:
    """Implicit mode marks the end of the latest eligible message by itself; explicit mode knows only explicit marks."""
    ends = eligible_ends(prompt.blocks)
    explicit = [at for at, _ in marks]
    writes = dict(marks[-rules.marks :])
    looked_up = {*explicit[: rules.first_marks], *explicit[-rules.lookback :]}
    if prompt.mode == "implicit" and ends:
        writes = dict(marks[-(rules.marks - 1) :])
        writes.setdefault(ends[-1], rules.default_ttl)
        looked_up |= {*ends[-1 - rules.earlier_ends :], *_leading_end(prompt.blocks)}
    ignored = tuple((at, "over_limit") for at in explicit if at not in writes and at not in looked_up)
    return Plan(tuple(sorted(looked_up, reverse=True)), tuple(sorted(writes.items())), ignored)


def eligible_ends(blocks: tuple[Block, ...]) -> list[int]:
    """Ends at which the kind message ends can write: of user messages, of the last tool output of a run of them, of the
    last message of the leading developer group."""
    ends = [(at, block.ends) for at, block in enumerate(blocks) if block.ends is not None]
    found = _leading_end(blocks)
    for number, (at, role) in enumerate(ends):
        is_last_result = role == "tool" and (number + 1 == len(ends) or ends[number + 1][1] != "tool")
        if role == "user" or is_last_result:
            found.append(at)
    return found


def _leading_end(blocks: tuple[Block, ...]) -> list[int]:
    """The end of the leading developer group, as a list of one or none."""
    last = None
    for at, block in enumerate(blocks):
        if block.ends is None:
            continue
        if block.ends not in ("developer", "system"):
            break
        last = at
    return [] if last is None else [last]


def readable(rules: CacheRules, shared: int, whole: int) -> int:
    """Tokens that a request of `whole` tokens can read of a prefix of `shared` that was sent before."""
    shared = min(shared, whole - rules.spare)
    if shared < rules.minimum:
        return 0
    if rules.kind == "interval":
        shared = _floor(shared + rules.hidden, rules.step) - rules.hidden
        return max(_floor(shared, rules.grain), 0)
    if rules.kind in ("marked blocks", "message ends"):
        return shared
    return _floor(shared, rules.step)


def _floor(value: int, step: int) -> int:
    return value - value % step
