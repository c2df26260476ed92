"""`RunContext`: how one run is wired (what an agent knows is a WorkingContext). Touches the services it is given."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from agentkit.core.contracts.errors import MeterExceeded
from agentkit.core.contracts.ports import Cancellation, InvokerPort, Store
from agentkit.core.contracts.scope import Scope
from agentkit.core.contracts.usage import Usage

from .budget import Budget
from .scoped import UnscopedStore, scoped
from .services import Meter, NullInvoker, RunEvent, Services

AUTONOMY = ("auto", "gated", "manual")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class RunContext:
    """The wiring of one request: who asks, for which tenant, what may be spent and used. Satisfies `Ctx`.

    `scope` has no default: a forgotten tenant would mean everybody. `autonomy` says which tools wait for a human:
    `auto` those that require approval, `gated` all that have side effects, `manual` all. `path`: where in the request
    this is, empty at its top; it tells apart the runs of agents that share a correlation id.
    """

    correlation_id: str
    scope: Scope
    budget: Budget = field(default_factory=Budget)
    services: Services = field(default_factory=Services)
    meters: tuple[Meter, ...] = ()
    depth: int = 0
    cancel: Cancellation | None = None
    autonomy: str = "auto"
    path: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.correlation_id, str):
            raise TypeError(f"correlation_id must be a str, not {type(self.correlation_id).__name__}")
        if not self.correlation_id:
            raise ValueError("correlation_id must not be empty")
        for name, kind in (("scope", Scope), ("budget", Budget), ("services", Services)):
            if not isinstance(getattr(self, name), kind):
                raise TypeError(f"{name} must be a {kind.__name__}, not {type(getattr(self, name)).__name__}")
        if self.autonomy not in AUTONOMY:
            raise ValueError(f"unknown autonomy {self.autonomy!r}; known are {', '.join(AUTONOMY)}")
        object.__setattr__(self, "meters", tuple(self.meters))
        if self.services.store is not None and not isinstance(self.services.store, UnscopedStore):
            scoped(self.services.store, self.scope)  # another tenant's store is refused here, not at the first read

    @cached_property
    def store(self) -> Store | None:
        """This tenant's part of the store, or the shared part where Services holds an UnscopedStore."""
        store = self.services.store
        if store is None or isinstance(store, UnscopedStore):
            return store
        return scoped(store, self.scope)

    @property
    def invoker(self) -> InvokerPort:
        return self.services.invoker

    def child(self, name: str | None = None) -> RunContext:
        """The context of an agent that this one calls: a level deeper, all else shared. MeterExceeded when too deep.

        `name` tells apart several agents that are called from one place; by default it is the depth.
        """
        limit = self.budget.max_depth
        if limit is not None and self.depth + 1 > limit:
            raise MeterExceeded(f"depth {self.depth + 1} is beyond the allowed {limit}")
        return replace(self.at(str(self.depth + 1) if name is None else name), depth=self.depth + 1)

    def at(self, place: str) -> RunContext:
        """The same run a step further along its path: inside one call of a tool, say."""
        return replace(self, path=f"{self.path}/{place}")

    def emit(self, event: str, /, **data: Any) -> None:
        """Tell the observer. Whatever it raises is logged and never reaches the run."""
        try:
            self.services.observer(RunEvent(event, self.correlation_id, self.scope, self.depth, data))
        except Exception:
            logger.warning("an observer failed on %s", event, exc_info=True)

    @contextmanager
    def span(self, name: str, /, **attributes: Any) -> Iterator[None]:
        """Time what happens inside. A failing tracer is logged and never reaches the run."""
        tracing = ExitStack()
        try:
            tracing.enter_context(self.services.trace.span(name, **attributes))
        except Exception:
            logger.warning("a tracer failed to open %s", name, exc_info=True)
        try:
            yield
        except BaseException as error:
            _end(tracing, name, error)
            raise
        _end(tracing, name, None)

    def guard(self) -> None:
        """MeterExceeded when the budget or a meter is used up."""
        self.budget.guard()
        for meter in self.meters:
            meter.guard(self.scope)

    def charge(self, usage: Usage, /) -> None:
        """Bill one call to the budget and to every meter, then raise MeterExceeded if one of them had to."""
        crossed: MeterExceeded | None = None
        for meter in self.meters:
            try:
                meter.charge(self.scope, usage)
            except MeterExceeded as error:
                crossed = error
        self.budget.charge(usage)
        if crossed is not None:
            raise crossed


def _end(tracing: ExitStack, name: str, error: BaseException | None) -> None:
    try:
        if error is None:
            tracing.close()
        else:
            tracing.__exit__(type(error), error, error.__traceback__)
    except Exception:
        logger.warning("a tracer failed to close %s", name, exc_info=True)


@dataclass(frozen=True)
class NullCtx:
    """A `Ctx` for work outside any run: nothing is stored, billed or observed, and its invoker says what is missing."""

    scope: Scope = field(default_factory=Scope)
    correlation_id: str = "none"
    store: Store | None = field(default=None, init=False)
    invoker: InvokerPort = field(default_factory=NullInvoker, init=False, compare=False)
    cancel: Cancellation | None = field(default=None, init=False)

    def emit(self, event: str, /, **data: Any) -> None:
        """Nobody listens."""

    def guard(self) -> None:
        """Nothing is limited."""

    def charge(self, usage: Usage, /) -> None:
        """Nothing is billed."""
