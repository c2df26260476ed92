"""`make_test_ctx`: a real RunContext for a test, wired in one call. Touches only its arguments."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from agentkit.core.contracts.calls import ChatMiddleware, ToolMiddleware
from agentkit.core.contracts.ports import LLM, Cancellation, InvokerPort, Store
from agentkit.core.contracts.scope import Scope
from agentkit.core.runtime import Budget, Invoker, Meter, Observer, RunContext, Services, Tracer


def make_test_ctx(
    *,
    llm: LLM | None = None,
    invoker: InvokerPort | None = None,
    scope: Scope | None = None,
    budget: Budget | None = None,
    store: Store | None = None,
    vector: Any = None,
    checkpointer: Any = None,
    observer: Observer | None = None,
    trace: Tracer | None = None,
    cancel: Cancellation | None = None,
    chat_middleware: Iterable[ChatMiddleware] = (),
    tool_middleware: Iterable[ToolMiddleware] = (),
    meters: Iterable[Meter] = (),
    correlation_id: str = "test-run",
    autonomy: str = "auto",
) -> RunContext:
    """A RunContext as in production; None leaves a no-op default in place.

    `llm` is wrapped in an Invoker with the given middleware; an `invoker` has its own, and both are a TypeError.
    Without a `scope` the tenant is `Scope("test")`.
    """
    chat, tools = tuple(chat_middleware), tuple(tool_middleware)
    if invoker is not None and (llm is not None or chat or tools):
        raise TypeError("give either an invoker, or an llm with its middleware")
    if llm is None and (chat or tools) and invoker is None:
        raise TypeError("middleware needs an llm that it stands around")
    if llm is not None:
        invoker = Invoker(llm, chat, tools)
    wired = {
        "invoker": invoker, "store": store, "vector": vector, "checkpointer": checkpointer,
        "observer": observer, "trace": trace,
    }  # fmt: skip
    services: Any = {name: service for name, service in wired.items() if service is not None}
    return RunContext(
        correlation_id,
        Scope("test") if scope is None else scope,
        Budget() if budget is None else budget,
        Services(**services),
        tuple(meters),
        cancel=cancel,
        autonomy=autonomy,
    )
