"""What subagents share: the tokens of the turns that they work for, and the room that there is for them. Touches only
its arguments and a clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from agentd.config.thinking import SubagentLimits

from .tools.base import ToolError


@dataclass
class Share:
    """One turn in hand. `own`: tokens that it has used itself so far; `below`: those of subagents of its whose work has
    ended; `above`: the turn that it works for."""

    limit: int
    own: Callable[[], int]
    above: str | None = None
    below: int = 0


class Shares:
    """The turns in hand, as a tree: what a subagent uses, all above it have used."""

    def __init__(self) -> None:
        self._turns: dict[str, Share] = {}

    def begin(self, turn: str, share: Share) -> None:
        """A turn begins, or begins again: it counts once."""
        self._turns[turn] = share

    def end(self, turn: str) -> int | None:
        """A turn has ended: what it used stays with the one above. How much; None for one that never began."""
        share = self._turns.get(turn)
        if share is None:
            return None
        used = self.used(turn)
        del self._turns[turn]
        if share.above in self._turns:
            self._turns[share.above].below += used
        return used

    def above(self, turn: str) -> str | None:
        """The turn that one works for."""
        share = self._turns.get(turn)
        return None if share is None else share.above

    def used(self, turn: str) -> int:
        """Tokens of a turn and of all below it, those at work included."""
        share = self._turns.get(turn)
        if share is None:
            return 0
        at_work = [id for id, one in self._turns.items() if one.above == turn]
        return share.own() + share.below + sum(map(self.used, at_work))

    def left(self, turn: str) -> int:
        """Tokens that a turn, and all above it, still have. One that is not in hand has no limit of its own here."""
        found = [share.limit - self.used(id) for id, share in self._line(turn)]
        return min(found, default=0)

    def exhausted(self, turn: str) -> str | None:
        """Why a turn has to end: it has used its tokens up together with its subagents, or one above it has."""
        for id, share in self._line(turn):
            if (used := self.used(id)) >= share.limit:
                whose = "with subagents" if id == turn else "by the work that this is part of"
                return f"{used:,} of {share.limit:,} tokens, {whose}"
        return None

    def _line(self, turn: str | None) -> list[tuple[str, Share]]:
        found: list[tuple[str, Share]] = []
        while turn is not None and (share := self._turns.get(turn)) is not None:
            found.append((turn, share))
            turn = share.above
        return found


class Room:
    """How many subagents there may be (`limits.subagents`). `clock` in ms."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._starts: deque[int] = deque()
        self._starting: list[tuple[str, str]] = []

    @contextmanager
    def taken(
        self, context: str, top: str, depth: int, working: Collection[tuple[str, str]], limits: SubagentLimits
    ) -> Iterator[None]:
        """Take the place of one more while it is started, in a conversation that works for `top`. `depth`: its own;
        `working`: conversation and top of those at work. ToolError where there is no room."""
        all_ = [*working, *self._starting]
        if depth > limits.depth:
            raise ToolError(
                f"subagents go {limits.depth} deep (limits.subagents.depth), and this is one of the deepest"
            )
        if (here := sum(1 for of, _ in all_ if of == context)) >= limits.breadth:
            raise ToolError(f"{here} subagents are at work here (limits.subagents.breadth); wait for one to end")
        if (total := sum(1 for _, of in all_ if of == top)) >= limits.total:
            raise ToolError(f"{total} subagents are at work in all (limits.subagents.total); wait for one to end")
        now, rate = self._clock(), limits.rate
        while self._starts and self._starts[0] <= now - rate.per.total_seconds() * 1000:
            self._starts.popleft()
        if len(self._starts) >= rate.count:
            raise ToolError(
                f"{rate.count} subagents were started just now (limits.subagents.rate); try again in a moment"
            )
        self._starts.append(now)
        self._starting.append((context, top))
        try:
            yield
        finally:
            self._starting.remove((context, top))
