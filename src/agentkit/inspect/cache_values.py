"""What a report says of the provider's prompt cache, as values; `cache_view` computes them. Touches only its arguments.

Tokens are the provider's own where it reported them. What is not known is None, never 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal

from agentkit.core.contracts.usage import Usage
from agentkit.core.contracts.worth import Verdict

from .cost import Cost


@dataclass(frozen=True)
class CacheRequest:
    """One request, by the number of its response. `read`, `write`, `fresh`: as reported, None where nothing was.

    `reason`: why it read less than the request before had left, as `explain` names it; `none` where it did not; None
    where that cannot be told. `cause`, `detail`, `advice` go with it. `lost`: tokens that could have been read, and
    `lost_usd` what they cost beyond a read. `planned`: what the library's layout would have been billed for the same
    request, None for one that cannot be rebuilt; `costs` of the request by scenario.
    """

    number: int
    read: int | None = None
    write: int | None = None
    fresh: int | None = None
    reason: str | None = None
    cause: str | None = None
    detail: str = ""
    advice: str = ""
    lost: int | None = None
    lost_usd: Decimal | None = None
    planned: Usage | None = None
    costs: tuple[Decimal | None, ...] = ()

    @property
    def is_break(self) -> bool:
        """Whether something that was in the cache was not read."""
        return self.reason not in (None, "none", "unreported", "below_minimum") and bool(self.lost)

    @property
    def is_known(self) -> bool:
        """Whether anything can be said of it: figures of its own, or what the layout would have been billed."""
        return self.fresh is not None or self.planned is not None


@dataclass(frozen=True)
class Scenario:
    """The compared requests together, one way to send them; `usage` and `cost` over these requests.

    `name`: `recorded`; `uncached`; `library` (its layout and breakpoint plan, where the provider drops what it dropped
    without a reason in the record); `library_long` (the same at the longer lifetime) and `library_kept` (had it dropped
    nothing), where these would have been cheaper; `best` (all is read that the rules allow).
    """

    name: str
    usage: Usage
    cost: Cost
    has_cache_figures: bool = True
    """Whether the provider said what of the recorded requests came from its cache."""

    @property
    def read_share(self) -> float | None:
        """The part of the input that was read from the cache, None where nobody knows."""
        if not self.usage.prompt_tokens or not self.has_cache_figures:
            return None
        return self.usage.cache_read_tokens / self.usage.prompt_tokens


@dataclass(frozen=True)
class BreakKind:
    """Breaks of one reason: how many, and what they cost. `usd` is None where one of them has no price."""

    reason: str
    count: int
    lost: int
    usd: Decimal | None
    advice: str


@dataclass(frozen=True)
class Saving:
    """What shortening the context once would have brought, at the best moment in hindsight. `name`: mask or compact;
    `number`: the request in front of which; `dropped`, `added` and `behind` tokens and `calls` as `pays` takes them;
    `net_usd` over the calls that came; `later`: from how many further calls on it would pay now, None where nothing
    could be dropped; not `warm`: the cache had expired just then, so that nothing was lost by it."""

    name: str
    number: int
    dropped: int
    added: int
    behind: int
    calls: int
    verdict: Verdict
    net_usd: float
    later: float | None = None
    warm: bool = True


@dataclass(frozen=True)
class CacheView:
    """The prompt cache over one conversation. `rules`: whose, None where no rules are known, and `note` says why there
    is less than there could be. `basis`: reported or estimated sizes. `compared` of the requests could be rebuilt and
    are in the `scenarios`. `assumed`: what the figures rest on without a source."""

    rules: str | None = None
    basis: str = "reported"
    requests: tuple[CacheRequest, ...] = ()
    breaks: tuple[BreakKind, ...] = ()
    scenarios: tuple[Scenario, ...] = ()
    savings: tuple[Saving, ...] = ()
    compared: int = 0
    note: str = ""
    assumed: tuple[str, ...] = ()
    lost: int = 0
    lost_cost: Cost = field(default_factory=Cost)

    def scenario(self, name: str) -> Scenario | None:
        return next((one for one in self.scenarios if one.name == name), None)
