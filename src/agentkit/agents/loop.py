"""The decisions of a tool loop: go on, run these calls, or end, and why. Knows neither network nor time: it is told
what came back and when it is, and says what happens next. agentd's turns and the agent drive the same machine.

A *round* is one answer of the model and the results of its calls. What the machine knows follows from what it was told,
so that a machine fed from a record stands where the one that wrote the record stood.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from agentkit.core.contracts.blocks import EMPTY
from agentkit.core.contracts.checks import require_int
from agentkit.core.contracts.jsontext import canonical_json
from agentkit.core.contracts.messages import Message, ToolCall
from agentkit.core.contracts.usage import Usage

OVER_BUDGET = 7
"""Exit code of a loop that a budget ended: agentd's contract tells it apart from other refusals, which have 5."""

REMEMBERED = 8_192
"""Different calls with their results that are kept in mind, the latest seen: a loop comes round sooner than that."""


class EndState(StrEnum):
    """The ways in which a loop ends."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    REFUSED = "refused"
    EXHAUSTED_STEPS = "exhausted_steps"
    EXHAUSTED_TOKENS = "exhausted_tokens"
    DEADLINE = "deadline"
    LOOP_DETECTED = "loop_detected"


FINISHING = (EndState.COMPLETED, EndState.FAILED, EndState.REFUSED, EndState.CANCELLED)
"""What a tool may ask the loop to end as."""


@dataclass(frozen=True)
class LoopLimits:
    """How far a loop may go; None: without that limit.

    `steps`: answers of the model. `tokens`: all that the model read and wrote, what came from its cache included, so
    that luck with the cache moves no limit. `seconds` since the start. `repeats`: rounds that hold a call with the same
    name, arguments and result.
    """

    steps: int | None = 500
    tokens: int | None = 2_000_000
    seconds: float | None = 3600.0
    repeats: int | None = 4

    def __post_init__(self) -> None:
        for name in ("steps", "tokens", "seconds", "repeats"):
            value = getattr(self, name)
            if value is None:
                continue
            if name != "seconds":
                require_int(value, f"LoopLimits.{name}")
            least = 2 if name == "repeats" else 0
            if not value >= least:
                raise ValueError(f"LoopLimits.{name} must be None or at least {least}, not {value}")


@dataclass(frozen=True)
class End:
    """How a loop ended. `output`: what it brought; `exit`: the exit code asked for, None for that of the state."""

    state: EndState
    reason: str = ""
    output: Any = None
    exit: int | None = None


@dataclass(frozen=True)
class Round:
    """Calls to run now, in this order, or `together`. `number` counts from 1."""

    number: int
    calls: tuple[ToolCall, ...]
    together: bool


@dataclass(frozen=True)
class Progress:
    """How far a loop is. `owed`: ids of the calls whose results it waits for; `repeated`: the largest number of rounds
    that held the same call with the same result; `finishing`: the end that was asked for and is still to come."""

    steps: int
    tokens: int
    owed: tuple[str, ...]
    repeated: int
    finishing: End | None


class Loop:
    """One loop, from its first guard to its end.

    In turn: `guard` before each call of the model, `answer` with what it said, then, unless that was the end, `results`
    with a result for each of the round's calls. RuntimeError when told out of turn. `started` and `now` are seconds of
    one clock; `read_only` says of a tool, by its name, that its calls may run side by side.
    """

    def __init__(self, limits: LoopLimits, *, started: float, read_only: Callable[[str], bool]) -> None:
        self.limits, self.started = limits, started
        self._read_only = read_only
        self._steps = self._tokens = 0
        self._owed: tuple[ToolCall, ...] = ()
        self._seen: dict[bytes, int] = {}
        self._finishing: End | None = None

    @property
    def steps(self) -> int:
        """Answers so far."""
        return self._steps

    @property
    def tokens(self) -> int:
        """Tokens read and written so far."""
        return self._tokens

    @property
    def round(self) -> int:
        """Number of the latest round; 0 before the first answer."""
        return self._steps

    @property
    def progress(self) -> Progress:
        """A summary of what the machine knows."""
        ids = tuple(call.id for call in self._owed)
        return Progress(self._steps, self._tokens, ids, max(self._seen.values(), default=0), self._finishing)

    def take_up(self, steps: int, tokens: int = 0, owed: Sequence[ToolCall] = ()) -> Round | None:
        """Stand where a loop stood that was written down by its counters, since a compaction leaves no record of every
        round: the round that is `owed` results, if any. Whether it repeats itself is watched anew."""
        if self._steps or self._owed:
            raise RuntimeError(f"this loop is in round {self._steps} already")
        require_int(steps, "steps")
        require_int(tokens, "tokens")
        self._steps, self._tokens, self._owed = steps, tokens, tuple(owed)
        return self._round() if owed else None

    def guard(
        self, now: float, *, cancelled: bool = False, over_budget: str | None = None, over_window: str | None = None
    ) -> End | None:
        """Whether the next call of the model may be made: None, or why the loop ends. Changes nothing.

        `over_budget` and `over_window`: what the caller found wrong, in words. The first that holds counts, in this
        order: cancelled, deadline, steps, tokens, budget, window.
        """
        limits = self.limits
        if self._finishing is not None and not self._owed:
            return self._finishing
        if cancelled:
            return End(EndState.CANCELLED, "cancelled")
        if limits.seconds is not None and now - self.started >= limits.seconds:
            return End(EndState.DEADLINE, f"{now - self.started:.0f} s of {limits.seconds:g} s")
        if limits.steps is not None and self._steps >= limits.steps:
            return End(EndState.EXHAUSTED_STEPS, f"{self._steps} of {limits.steps} steps")
        if limits.tokens is not None and self._tokens >= limits.tokens:
            return End(EndState.EXHAUSTED_TOKENS, f"{self._tokens:,} of {limits.tokens:,} tokens")
        if over_budget is not None:
            return End(EndState.REFUSED, over_budget, exit=OVER_BUDGET)
        if over_window is not None:
            return End(EndState.FAILED, over_window)
        return None

    def answer(self, message: Message, usage: Usage) -> Round | End:
        """Take the model's answer: the calls to run, or, without any, the end with its text.

        Whoever is not content with that end, a parser say, may ask the model again all the same.
        """
        if self._owed:
            raise RuntimeError(f"round {self._steps} still waits for the results of {_named(self._owed)}")
        self._steps += 1
        self._tokens += usage.prompt_tokens + usage.output_tokens
        calls = message.tool_calls
        if not calls:
            return End(EndState.COMPLETED, output=message.content)
        self._owed = calls
        return self._round()

    def results(self, messages: Sequence[Message]) -> End | None:
        """Take the results of the round: None to go on. An end that a tool asked for comes before a loop detected.

        The last of several results of one call counts. ValueError when a call has none.
        """
        if not self._owed:
            raise RuntimeError(f"no call of round {self._steps} waits for a result")
        by_id = {message.tool_call_id: message for message in messages}
        missing = [call for call in self._owed if call.id not in by_id]
        if missing:
            raise ValueError(f"round {self._steps} is not over: no result of {_named(missing)}")
        found = {_digest(call, by_id[call.id]): call for call in self._owed}
        self._owed = ()
        looping = [call for digest, call in found.items() if self._again(digest)]
        if self._finishing is not None:
            return self._finishing
        if looping:
            reason = f"{looping[0].name} was called with the same arguments and result in {self.limits.repeats} rounds"
            return End(EndState.LOOP_DETECTED, reason)
        return None

    def finish(self, status: str, output: Any = None, reason: str = "", exit: int | None = None) -> None:
        """Ask for the end; it comes once the round has all its results, and before the next call of the model. The
        first to ask counts. Whoever takes up a recorded loop asks again for what its record asks for.

        `status`: completed, failed, refused or cancelled; ValueError for any other.
        """
        if status not in FINISHING:
            raise ValueError(f"a loop finishes as {', '.join(FINISHING)}, not as {status!r}")
        if self._finishing is None:
            self._finishing = End(EndState(status), reason, output, exit)

    def _round(self) -> Round:
        return Round(self._steps, self._owed, all(self._read_only(call.name) for call in self._owed))

    def _again(self, digest: bytes) -> bool:
        """Note one more round that held this; whether it is one too many."""
        count = self._seen.pop(digest, 0) + 1
        self._seen[digest] = count
        if len(self._seen) > REMEMBERED:
            del self._seen[next(iter(self._seen))]
        return self.limits.repeats is not None and count >= self.limits.repeats


def _digest(call: ToolCall, result: Message) -> bytes:
    """What makes two calls with their results the same; ids do not."""
    said = replace(result, name=None, tool_call_id=None, meta=EMPTY)
    text = canonical_json([call.name, canonical_json(call.arguments), said.digest.hex()])
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:16]


def _named(calls: Sequence[ToolCall]) -> str:
    return ", ".join(f"{call.name} ({call.id})" for call in calls)
