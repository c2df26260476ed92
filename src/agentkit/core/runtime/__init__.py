"""The wiring of one run: tenant, budget, services, and the way to models and tools."""

from __future__ import annotations

from .budget import Budget
from .invoker import Invoker
from .run_context import NullCtx, RunContext
from .scoped import ScopedStore, UnscopedStore, scoped
from .services import Meter, NullInvoker, NullTracer, Observer, RunEvent, Services, Tracer

__all__ = [
    "Budget",
    "Invoker",
    "Meter",
    "NullCtx",
    "NullInvoker",
    "NullTracer",
    "Observer",
    "RunContext",
    "RunEvent",
    "ScopedStore",
    "Services",
    "Tracer",
    "UnscopedStore",
    "scoped",
]
