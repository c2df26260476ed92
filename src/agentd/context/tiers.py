"""The cheap tiers of a reduction, each a function that yields what it could win: shorten, point to the newer result,
mask. Touches only its arguments; nothing leaves the log, and calls stay."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from agentkit.core.contracts.jsontext import canonical_json
from agentkit.core.contracts.messages import Message

from .messages import Known, Shown, entry_message
from .record import Entry, Mark, ToolMsg
from .settings import Reduction
from .tokens import Conditions
from .units import Unit


@dataclass(frozen=True)
class Gain:
    """What one entry yields: `tokens`, by plain estimate, when it is shown as `mark` says."""

    n: int
    mark: Mark
    tokens: int


@dataclass(frozen=True)
class Tail:
    """The entries of a view as the tiers look at them. `marks`: how they are shown already; `spared`: pins."""

    shown: Sequence[Shown]
    log: Mapping[int, Entry]
    units: Sequence[Unit]
    marks: Mapping[int, Mark]
    spared: Collection[int]
    known: Known


def clampable(tail: Tail, settings: Reduction, conditions: Conditions) -> list[Gain]:
    """Tier 1: parts over the limit show head, tail and size; largest gain first."""
    return clamped_to(settings.part_limit(conditions.window), tail, conditions)


def clamped_to(limit: int, tail: Tail, conditions: Conditions) -> list[Gain]:
    """What shortening every part over `limit` tokens yields; largest gain first."""
    found = []
    for n, message, size in _entries(tail, conditions):
        if size <= limit or n in tail.spared or _how(tail, n) in ("masked", "superseded"):
            continue
        chars = max(limit * _characters(message) // size, 80)
        held = tail.marks.get(n)
        if held is None or chars < held.value:
            found.append(_gain(tail, n, Mark("clamped", chars), size, conditions))
    return _largest_first(found)


def superseded(tail: Tail, settings: Reduction, conditions: Conditions) -> list[Gain]:
    """Tier 2: older results of the same read-only call, of which a newer one succeeded and is shown in full."""
    calls = {call.id: call for one in tail.shown for call in one.message.tool_calls}
    newest: dict[tuple[str, str], int] = {}
    older: list[tuple[int, int, int]] = []
    for n, _, size in reversed(list(_entries(tail, conditions))):
        body = tail.log[n].body
        if not isinstance(body, ToolMsg) or (call := calls.get(body.id)) is None:
            continue
        if call.name not in conditions.read_only:
            continue
        key = call.name, canonical_json(call.arguments)
        if key in newest:
            if n not in tail.spared and not body.state and _how(tail, n) not in ("masked", "superseded"):
                older.append((n, newest[key], size))
        elif not body.is_error and not body.state and _how(tail, n) is None:
            newest[key] = n
    return _largest_first(_gain(tail, n, Mark("superseded", newer), size, conditions) for n, newer, size in older)


def maskable(tail: Tail, settings: Reduction, conditions: Conditions) -> list[Gain]:
    """Tier 3: results of rounds older than the last `mask_keep_rounds`; never those of the current round, errors,
    results that are not final, exempt tools and pins."""
    rounds = [unit for unit in tail.units if unit.is_round]
    keep = max(settings.mask_keep_rounds, 1)
    old = {n for unit in rounds[:-keep] for n in unit.numbers}
    found = []
    for n, _, size in _entries(tail, conditions):
        body = tail.log[n].body
        if n not in old or n in tail.spared or not isinstance(body, ToolMsg) or body.is_error or body.state:
            continue
        if body.name in settings.mask_exempt or _how(tail, n) in ("masked", "superseded"):
            continue
        found.append(_gain(tail, n, Mark("masked", size), size, conditions))
    return _largest_first(found)


def _entries(tail: Tail, conditions: Conditions) -> Iterator[tuple[int, Message, int]]:
    for one in tail.shown:
        if one.n is not None and tail.log[one.n].is_message:
            yield one.n, one.message, conditions.counter.measure([one.message])


def _gain(tail: Tail, n: int, mark: Mark, size: int, conditions: Conditions) -> Gain:
    short = entry_message(tail.log[n], mark, tail.known)
    return Gain(n, mark, size - conditions.counter.measure([short]))


def _largest_first(found: Iterable[Gain]) -> list[Gain]:
    return sorted((gain for gain in found if gain.tokens > 0), key=lambda gain: (-gain.tokens, gain.n))


def _how(tail: Tail, n: int) -> str | None:
    held = tail.marks.get(n)
    return None if held is None else held.how


def _characters(message: Message) -> int:
    return len(message.content) + sum(len(call.wire_arguments) for call in message.tool_calls)
