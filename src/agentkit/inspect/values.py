"""What a report says, as values: `Inspection` is one conversation, computed by `measure`. Touches only its arguments.

Tokens are prompt tokens by the report's counter unless a name says `reported`. Places are indices into the record
(`Transcript.history`), from 0. A sum in USD is never 0 for want of a price: see `Cost`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal

from agentkit.core.contracts.usage import Usage

from .cache_values import CacheView
from .cost import Cost as Cost


@dataclass(frozen=True)
class Share:
    """How much of a conversation belongs to one role or kind of content."""

    name: str
    count: int
    tokens: int


@dataclass(frozen=True)
class ToolShare:
    """What one tool took: its calls' arguments and its results."""

    name: str
    calls: int = 0
    results: int = 0
    errors: int = 0
    argument_tokens: int = 0
    result_tokens: int = 0

    @property
    def tokens(self) -> int:
        return self.argument_tokens + self.result_tokens


@dataclass(frozen=True)
class Part:
    """One piece of content. `chars` is its whole length, of which `excerpt` shows the beginning on one line."""

    place: int
    role: str
    kind: str
    tool: str | None
    tokens: int
    chars: int
    excerpt: str


@dataclass(frozen=True)
class Sizes:
    """Estimated tokens of a request by segment."""

    frozen: int = 0
    summary: int = 0
    tail: int = 0

    @property
    def total(self) -> int:
        return self.frozen + self.summary + self.tail


@dataclass(frozen=True)
class Response:
    """One answer of a model. `place`: the message that it became, None for one that was left out of the record (a
    branch that was abandoned). `estimate`: the request in front of it, as far as the file holds it; `reported`: the
    prompt tokens that the provider reported, None where nothing usable was recorded. `compacted`: the first one behind
    a compaction. `time` as the file has it."""

    number: int
    place: int | None = None
    estimate: Sizes | None = None
    model: str | None = None
    time: str | None = None
    usage: Usage | None = None
    reported: int | None = None
    cost: Cost = field(default_factory=Cost)
    compacted: bool = False


@dataclass(frozen=True)
class Folding:
    """A recorded compaction in front of the message at `place`; None for what the file does not say."""

    place: int
    trigger: str | None = None
    tokens_before: int | None = None
    tokens_after: int | None = None


@dataclass(frozen=True)
class Finding:
    """What an importer or the validity check has to say. `source`: import or check; `level`: note, repair, loss, or
    problem; `count` of the same kind, `places` of the first of them."""

    source: str
    level: str
    kind: str
    count: int
    places: tuple[str, ...] = ()
    detail: str = ""


@dataclass(frozen=True)
class Accuracy:
    """Estimate against report, over the `pairs` of successive requests of one layout: `estimated` and `reported` tokens
    by which they grew. `factor` is what `Calibration` learned from them. `unseen`: tokens that the first report had
    beyond the (calibrated) estimate, such as a system prompt and tools that are not in the file; None without one."""

    pairs: int = 0
    estimated: int = 0
    reported: int = 0
    factor: float = 1.0
    unseen: int | None = None

    @property
    def error(self) -> float | None:
        """How far the estimate of the growth is off: -0.1 is a tenth too low."""
        return self.estimated / self.reported - 1 if self.reported > 0 else None


@dataclass(frozen=True)
class Inspection:
    """One conversation, measured. `tokens`: the whole record, prefix and tools included; `next_request`: the context
    that the agent would send next; `usage`: the sum over `responses`."""

    source: str
    format: str
    number: int = 1
    of: int = 1
    title: str | None = None
    counter: str = ""
    models: tuple[str, ...] = ()
    began: str | None = None
    ended: str | None = None
    messages: int = 0
    user_turns: int = 0
    calls: int = 0
    errors: int = 0
    tokens: int = 0
    tool_schema_tokens: int = 0
    next_request: Sizes = field(default_factory=Sizes)
    window: int | None = None
    roles: tuple[Share, ...] = ()
    kinds: tuple[Share, ...] = ()
    tools: tuple[ToolShare, ...] = ()
    largest: tuple[Part, ...] = ()
    responses: tuple[Response, ...] = ()
    usage: Usage | None = None
    cost: Cost = field(default_factory=Cost)
    recorded_usd: Decimal | None = None
    accuracy: Accuracy = field(default_factory=Accuracy)
    foldings: tuple[Folding, ...] = ()
    findings: tuple[Finding, ...] = ()
    cache: CacheView | None = None
