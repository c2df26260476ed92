"""Where the cache marks of a request to Anthropic stand. Touches only its arguments.

A mark keeps everything up to and including its block, in the order tools, system, messages. Sources: the provider's
page on prompt caching, November 2026.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from agentkit.core.contracts.offers import Breakpoint
from agentkit.core.contracts.validity import Repaired
from agentkit.models.wire.anthropic import takes_mark

MAX_MARKS = 4
EPHEMERAL: dict[str, str] = {"type": "ephemeral"}
"""A mark of the short lifetime, five minutes."""
LONG: dict[str, str] = {"type": "ephemeral", "ttl": "1h"}


class Spot(NamedTuple):
    """A block of a body: 0 tools, 1 system, 2 messages; the message; the block."""

    tier: int
    message: int
    block: int


def put_marks(
    body: dict[str, Any],
    plan: Sequence[Breakpoint],
    view: Repaired,
    lead: int,
    places: Sequence[tuple[int, int]],
) -> None:
    """Puts each mark of the plan on the last block before its position that takes one.

    `lead`: how many messages of the view are the `system`; `places`: where the blocks of the others start. `body` gets
    new lists and dicts where a mark stands; those it had stay as they are. Of more marks than the provider takes, the
    first and the last ones are kept. A lifetime of up to five minutes is `5m`, any longer one `1h`, and none is longer
    than that of the mark in front. Two positions that share a block share its mark, and the longer lifetime.
    """
    if len(plan) > MAX_MARKS:
        plan = [plan[0], *plan[1 - MAX_MARKS :]]
    sizes = [len(message.ordered) for message in view.messages[:lead]]
    spots: dict[Spot, bool] = {}
    may_be_long = True
    for mark in plan:
        spot = _spot(body, view, lead, sizes, places, mark.position)
        may_be_long = may_be_long and _is_long(mark.ttl)
        if spot is not None:
            spots.setdefault(spot, may_be_long)
    for spot, is_long in spots.items():
        _mark(body, spot, LONG if is_long else EPHEMERAL)


def with_mark(blocks: Sequence[dict[str, Any]], at: int, mark: dict[str, str]) -> list[dict[str, Any]]:
    """A copy of the list with a mark on one block."""
    return [*blocks[:at], {**blocks[at], "cache_control": mark}, *blocks[at + 1 :]]


def _is_long(ttl: str) -> bool:
    """Whether a lifetime such as `5m` or `1h` is longer than five minutes; ValueError for any other form."""
    match = re.fullmatch(r"([0-9]+)([smhd])", ttl)
    if match is None:
        raise ValueError(f"Breakpoint.ttl must be a number and a unit, such as '5m' or '1h', not {ttl!r}")
    return int(match[1]) * {"s": 1, "m": 60, "h": 3_600, "d": 86_400}[match[2]] > 300


def _mark(body: dict[str, Any], spot: Spot, mark: dict[str, str]) -> None:
    if spot.tier < 2:
        tier = ("tools", "system")[spot.tier]
        body[tier] = with_mark(body[tier], spot.block, mark)
        return
    messages = body["messages"]
    turn = messages[spot.message]
    messages[spot.message] = {**turn, "content": with_mark(turn["content"], spot.block, mark)}


def _spot(
    body: dict[str, Any],
    view: Repaired,
    lead: int,
    sizes: Sequence[int],
    places: Sequence[tuple[int, int]],
    position: int,
) -> Spot | None:
    """The last block in front of a position that takes a mark; None where there is no such block."""
    message, items = view.places[position]
    before = 0
    if message >= lead:
        at, first = places[message - lead] if places else (0, 0)
        # A result is one block, of however many items.
        before = first + (min(items, 1) if view.messages[message].role == "tool" else items)
        for number in range(at, -1, -1):
            content = body["messages"][number]["content"]
            for block in range((before if number == at else len(content)) - 1, -1, -1):
                if takes_mark(content[block]):
                    return Spot(2, number, block)
        before = sum(sizes)
    else:
        before = sum(sizes[:message]) + items
    for block in range(before - 1, -1, -1):  # there is a system text where anything stands in front
        if takes_mark(body["system"][block]):
            return Spot(1, 0, block)
    tools = body.get("tools")
    return Spot(0, 0, len(tools) - 1) if tools else None
