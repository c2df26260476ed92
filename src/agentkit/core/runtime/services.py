"""`Services`: what a run may use beside its own arguments. Holds what it is given, opens nothing."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol, TypeAlias

from agentkit.core.contracts.ports import Ctx, InvokerPort, Store, ToolBody
from agentkit.core.contracts.requests import ChatRequest, Delta, LLMResult, ToolRequest
from agentkit.core.contracts.scope import Scope
from agentkit.core.contracts.usage import Usage


@dataclass(frozen=True)
class RunEvent:
    """Something that happened in a run, as observers are told of it; `data` holds lengths, names and ids, no texts."""

    name: str
    correlation_id: str
    scope: Scope
    depth: int
    data: Mapping[str, Any]


Observer: TypeAlias = Callable[[RunEvent], None]
"""Is told what happens; what it raises is logged and goes no further."""


class Tracer(Protocol):
    """Times a stretch of work; what it raises is logged and goes no further."""

    def span(self, name: str, /, **attributes: Any) -> AbstractContextManager[Any]: ...


class Meter(Protocol):
    """Keeps its own account of calls, per tenant. Raises MeterExceeded where a limit of its own is reached."""

    def guard(self, scope: Scope, /) -> None: ...

    def charge(self, scope: Scope, usage: Usage, /) -> None: ...


class NullTracer:
    """Times nothing."""

    def span(self, name: str, /, **attributes: Any) -> AbstractContextManager[Any]:
        return nullcontext()


class NullInvoker:
    """Stands where no invoker was wired, and says so."""

    def stream(
        self, request: ChatRequest, ctx: Ctx, /, *, meta: dict[str, Any] | None = None
    ) -> AsyncGenerator[Delta, None]:
        self._refuse("model")

    async def chat(self, request: ChatRequest, ctx: Ctx, /, *, meta: dict[str, Any] | None = None) -> LLMResult:
        self._refuse("model")

    async def invoke_tool(
        self, request: ToolRequest, ctx: Ctx, body: ToolBody, /, *, meta: dict[str, Any] | None = None
    ) -> Any:
        self._refuse("tool")

    def _refuse(self, what: str) -> NoReturn:
        raise RuntimeError(f"this run has no invoker to call a {what} with: pass Services(invoker=Invoker(llm))")


def ignore(event: RunEvent) -> None:
    """The observer of a run that nobody watches."""


@dataclass(frozen=True)
class Services:
    """What a run is wired with, for all tenants alike; each has a default that does nothing.

    `store` is the raw store: the run sees its own tenant's part of it, unless it is an UnscopedStore. `checkpointer`
    and `vector` are handed on to whoever asks the run for them.
    """

    invoker: InvokerPort = field(default_factory=NullInvoker)
    store: Store | None = None
    checkpointer: Any = None
    vector: Any = None
    trace: Tracer = field(default_factory=NullTracer)
    observer: Observer = ignore
