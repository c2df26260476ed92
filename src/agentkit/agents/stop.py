"""Stop conditions: when a tool loop ends although the model would go on. Touches only its arguments.

A condition is asked once per answer, before its calls run. Each run has copies of its own, so one that counts starts
anew with every run.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from agentkit.core.contracts.messages import Message
from agentkit.core.contracts.usage import Usage


@dataclass(frozen=True)
class Step:
    """An answer of the model. `number` counts from 1; `usage` is that of the run so far."""

    number: int
    message: Message
    usage: Usage


StopCondition: TypeAlias = Callable[[Step], str | None]
"""Says why the run is to stop, or None to go on."""


@dataclass(frozen=True)
class MaxCost:
    """Stops once the run has cost `usd` or more."""

    usd: float

    def __post_init__(self) -> None:
        if isinstance(self.usd, bool) or not isinstance(self.usd, (int, float)):
            raise TypeError(f"MaxCost.usd must be a number, not {type(self.usd).__name__}")
        if not self.usd >= 0:
            raise ValueError(f"MaxCost.usd must not be negative: {self.usd}")

    def __call__(self, step: Step) -> str | None:
        spent = step.usage.cost_usd
        return f"cost: {spent:.6f} of {self.usd:.6f} USD" if spent >= self.usd else None


@dataclass(frozen=True)
class MaxTokens:
    """Stops once the run has read and written `tokens` or more, what came from the cache included."""

    tokens: int

    def __post_init__(self) -> None:
        if type(self.tokens) is not int:
            raise TypeError(f"MaxTokens.tokens must be an int, not {type(self.tokens).__name__}")

    def __call__(self, step: Step) -> str | None:
        spent = step.usage.prompt_tokens + step.usage.output_tokens
        return f"tokens: {spent:,} of {self.tokens:,}" if spent >= self.tokens else None


@dataclass(frozen=True)
class ToolCalled:
    """Stops when the model calls the tool `name`, which is not run: its arguments are in the last answer."""

    name: str

    def __call__(self, step: Step) -> str | None:
        called = any(call.name == self.name for call in step.message.tool_calls)
        return f"tool called: {self.name}" if called else None


@dataclass(frozen=True)
class TextMatches:
    """Stops when the regular expression `pattern` is found in the text of an answer."""

    pattern: str

    def __post_init__(self) -> None:
        re.compile(self.pattern)

    def __call__(self, step: Step) -> str | None:
        return f"text matches: {self.pattern}" if re.search(self.pattern, step.message.content) else None


def conditions_of(stop: Any) -> tuple[StopCondition, ...]:
    """What `ReActCognition(stop=...)` takes: None, one condition, or several, of which the first that holds counts."""
    if stop is None:
        return ()
    given = (stop,) if callable(stop) or not isinstance(stop, Iterable) else tuple(stop)
    for condition in given:
        if not callable(condition):
            raise TypeError(f"a stop condition is a callable that takes a Step, not a {type(condition).__name__}")
    return given


def copies(conditions: tuple[StopCondition, ...]) -> tuple[StopCondition, ...]:
    """The conditions of one run."""
    return tuple(copy.deepcopy(condition) for condition in conditions)


def first_reason(conditions: Iterable[StopCondition], step: Step) -> str | None:
    """Why to stop. All are asked, so that those that count see every answer."""
    reasons = [condition(step) for condition in conditions]
    return next((reason for reason in reasons if reason is not None), None)
