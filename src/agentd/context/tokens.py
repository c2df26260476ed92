"""How large a request is, and whether it fits. Touches only its arguments; the estimate is the library's.

A provider's last figure is the truth about what was sent; only what came after it is estimated. It belongs to one
version of the context: after a reduction everything is estimated anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from agentkit.core.contracts.counting import SyncTokenCounter
from agentkit.core.contracts.errors import ContextOverflowError
from agentkit.core.contracts.jsontext import json_text
from agentkit.core.contracts.messages import Message, marked
from agentkit.models.catalog import Window, resolve_window
from agentkit.state.compaction import PriceRates
from agentkit.state.context import CharClassTokenCounter, PrefixContext
from agentkit.state.context.anchor import Anchor as ReportedAnchor
from agentkit.state.context.anchor import Calibration, anchored, unanchored

from .messages import Shown
from .record import Anchor, ContextState


@dataclass(frozen=True)
class Fixed:
    """What a request has besides the context's own messages, in estimated tokens. `output`: the reserve for the answer,
    which shares the window."""

    tools: int = 0
    prompt: int = 0
    volatile: int = 0
    output: int = 4_096

    @property
    def total(self) -> int:
        return self.tools + self.prompt + self.volatile


@dataclass(frozen=True)
class Conditions:
    """What a decision about size rests on. `rates`: prices, None when unknown; `warm`: the provider's cache still holds
    the last request; `read_only`: tools whose repeated call changes nothing."""

    window: int
    fixed: Fixed = field(default_factory=Fixed)
    counter: SyncTokenCounter = field(default_factory=CharClassTokenCounter)
    calibration: Calibration = field(default_factory=Calibration)
    rates: PriceRates | None = None
    warm: bool = True
    read_only: frozenset[str] = frozenset()


@dataclass(frozen=True)
class RequestSize:
    """A request in tokens. `segments`: plain estimates by part; `source`: provider (anchored) or estimate."""

    tokens: int
    upper: int
    source: str
    factor: float
    segments: dict[str, int] = field(hash=False)

    @property
    def decisive(self) -> int:
        """What decides whether the request fits: the upper bound once there is an anchor. Before, the bound would be so
        wide that a context just under its trigger would count as overflowing, and the best figure decides."""
        return self.upper if self.source == "provider" else self.tokens


def request_size(
    shown: Sequence[Shown], conditions: Conditions, *, anchor: Anchor | None = None, version: int = 0
) -> RequestSize:
    """The size of the request that these messages make. An anchor of another version counts for nothing."""
    measure = conditions.counter.measure
    behind = [s.message for s in shown if s.n is None]
    summary = behind[:1] if behind and marked(behind[0], "summary") is not None else []
    segments = {
        "summary": measure(summary),
        "skills": measure(behind[len(summary) :]),
        "tail": measure([s.message for s in shown if s.n is not None]),
    }
    holds = anchor is not None and anchor.version == version and anchor.input_tokens > 0
    since = [s.message for s in shown if holds and anchor and s.n is not None and s.n > anchor.entry]
    return size_of(segments, conditions, anchor=anchor if holds else None, since=measure(since))


def size_of(segments: Mapping[str, int], conditions: Conditions, *, anchor: Anchor | None, since: int) -> RequestSize:
    """The size of a request whose `summary`, `skills` and `tail` have these estimated tokens. `anchor`: one that holds,
    None without; `since`: tokens of the tail behind it."""
    fixed = conditions.fixed
    found = {"tools": fixed.tools, "prompt": fixed.prompt, **segments, "volatile": fixed.volatile}
    if anchor is None:
        count = unanchored(sum(found.values()), conditions.calibration)
    else:
        reported = ReportedAnchor(anchor.input_tokens, anchor.volatile, anchor.version, PrefixContext(), [])
        exact = bool(getattr(conditions.counter, "exact", False))
        count = anchored(reported, since + fixed.volatile, conditions.calibration, exact=exact)
    return RequestSize(count.tokens, count.upper, count.source, count.factor, found)


def fits(size: RequestSize, conditions: Conditions) -> bool:
    """Whether the request and the answer's reserve go into the window together."""
    return size.decisive + conditions.fixed.output <= conditions.window


def require_fit(size: RequestSize, conditions: Conditions) -> None:
    """Raises ContextOverflowError with the sizes by segment for a request that does not fit: it is never sent."""
    if fits(size, conditions):
        return
    told = ", ".join(f"{name} {tokens:,}" for name, tokens in size.segments.items() if tokens)
    raise ContextOverflowError(
        f"the request has about {size.decisive:,} tokens ({told}), the answer is given {conditions.fixed.output:,}, "
        f"and the window has {conditions.window:,}",
        window=conditions.window,
        sizes={**size.segments, "output": conditions.fixed.output},
    )


def model_window(model: str | None, *, configured: int | None = None, learned: int | None = None) -> Window:
    """The window of a model and who said so: configured, learned from a refusal, the catalogue, a default."""
    return resolve_window(model, declared=configured, learned=learned)


def context_estimate(state: ContextState, shown: Sequence[Shown], conditions: Conditions) -> int:
    """`est_tokens` of a state: summary, visible entries and plan, one by one."""
    found = sum(conditions.counter.measure([s.message]) for s in shown)
    if state.plan is not None:
        found += conditions.counter.measure([Message("user", json_text(state.plan))])
    return found


def with_usage(state: ContextState, input_tokens: int, *, entry: int, volatile: int = 0) -> ContextState:
    """The state after a provider reported the prompt tokens of a request whose last entry was `entry`. Figures of 0 say
    nothing: an answer from a cache of ours."""
    if input_tokens <= 0:
        return state
    return msgspec.structs.replace(state, anchor=Anchor(state.version, entry, input_tokens, volatile))
