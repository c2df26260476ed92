"""`Invoker`: the one way in which a run calls a model or a tool. Touches the model and the middleware handed in."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Iterable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, AsyncExitStack, aclosing, nullcontext
from typing import Any

from agentkit.core.contracts.calls import (
    CALL_MARKS,
    Call,
    ChatCall,
    ChatMiddleware,
    ChatNext,
    ToolInvocation,
    ToolMiddleware,
    ToolNext,
    heed,
    metered,
)
from agentkit.core.contracts.ports import LLM, Ctx, ToolBody
from agentkit.core.contracts.requests import ChatRequest, Delta, LLMResult, ToolRequest, assemble_deltas

from .permits import Held, calling, hold, leaf
from .run_context import RunContext


class Invoker:
    """Calls `llm` and tools with middleware around them, the first of a list outermost.

    Every model call is guarded and billed once, outside all middleware, so that no budget is passed over by accident;
    what memoize answers is free. A run that was asked to stop (`ctx.cancel`) raises CancelledError before a call and
    between the pieces of an answer.

    One request to the model, or one tool body, holds one of the run's permits (`Budget.max_concurrency`) as long as it
    runs and calls nothing itself. Whoever stops reading an answer in the middle keeps its permit until it is closed.

    `meta["check"]` of a model call is shown the request as it is sent, behind all middleware, and refuses it by
    raising. `llm` is the model that was handed in.
    """

    def __init__(
        self,
        llm: LLM,
        chat_middleware: Iterable[ChatMiddleware] = (),
        tool_middleware: Iterable[ToolMiddleware] = (),
    ) -> None:
        self.llm = llm
        self._chat: tuple[ChatMiddleware, ...] = (metered, *chat_middleware)
        self._tools: tuple[ToolMiddleware, ...] = tuple(tool_middleware)

    async def stream(
        self, request: ChatRequest, ctx: Ctx, /, *, meta: dict[str, Any] | None = None
    ) -> AsyncGenerator[Delta, None]:
        """The pieces of one answer, as they come."""
        opened: list[AsyncIterator[Delta]] = []
        heed(ctx)
        call = Call(request, ctx, _fresh(meta))
        with _span(ctx, "chat", model=request.model, messages=len(request.messages)):
            async with calling():
                try:
                    async for delta in self._proceed(0, opened)(call):
                        yield delta
                        heed(ctx)
                finally:
                    await _close(opened)

    async def chat(self, request: ChatRequest, ctx: Ctx, /, *, meta: dict[str, Any] | None = None) -> LLMResult:
        """One whole answer: `stream`, collected."""
        async with aclosing(self.stream(request, ctx, meta=meta)) as deltas:
            return assemble_deltas([delta async for delta in deltas])

    async def invoke_tool(
        self, request: ToolRequest, ctx: Ctx, body: ToolBody, /, *, meta: dict[str, Any] | None = None
    ) -> Any:
        """What `body(request, ctx)` returns, or what a middleware puts in its place."""

        def proceed(level: int) -> ToolNext:
            def run(call: ToolInvocation) -> Awaitable[Any]:
                if level == len(self._tools):
                    return _work(body, call)
                return self._tools[level](call, proceed(level + 1))

            return run

        heed(ctx)
        with _span(ctx, "tool", tool=request.name):
            async with calling():
                return await proceed(0)(Call(request, ctx, _fresh(meta)))

    def _proceed(self, level: int, opened: list[AsyncIterator[Delta]]) -> ChatNext:
        def run(call: ChatCall) -> AsyncIterator[Delta]:
            if level == len(self._chat):
                deltas = self._ask(call)
            else:
                deltas = self._chat[level](call, self._proceed(level + 1, opened))
            opened.append(deltas)
            return deltas

        return run

    async def _ask(self, call: ChatCall) -> AsyncIterator[Delta]:
        if (check := call.meta.get("check")) is not None:
            check(call.request)  # as it is sent: behind all middleware, in front of the network
        async with _permit(call.ctx) as held:
            deltas = self.llm.stream(call.request)
            try:
                async for delta in deltas:
                    hold(held)  # what the reader calls in the middle of an answer, it calls from this leaf
                    yield delta
            finally:
                await _close([deltas])


async def _work(body: ToolBody, call: ToolInvocation) -> Any:
    async with _permit(call.ctx):
        return await body(call.request, call.ctx)


def _permit(ctx: Ctx) -> AbstractAsyncContextManager[Held | None]:
    return leaf(ctx.budget.permits) if isinstance(ctx, RunContext) else nullcontext()


def _span(ctx: Ctx, name: str, **attributes: Any) -> AbstractContextManager[None]:
    return ctx.span(name, **attributes) if isinstance(ctx, RunContext) else nullcontext()


def _fresh(meta: dict[str, Any] | None) -> dict[str, Any]:
    """The dict of a call; what an earlier call left in it says nothing about this one."""
    if meta is None:
        return {}
    for mark in CALL_MARKS:
        meta.pop(mark, None)
    return meta


async def _close(opened: list[AsyncIterator[Delta]]) -> None:
    # Outermost first: a middleware that reads the inner stream in a task of its own ends that task when it is closed,
    # and only then can the inner stream be closed as well.
    async with AsyncExitStack() as closing:
        for deltas in reversed(opened):
            aclose = getattr(deltas, "aclose", None)
            if aclose is not None:
                closing.push_async_callback(aclose)
