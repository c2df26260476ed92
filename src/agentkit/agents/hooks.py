"""`Hooks`: callbacks around what an agent does. They watch; nothing they raise or return changes a run."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass, fields
from inspect import isawaitable
from typing import Any, TypeAlias

from agentkit.core.contracts.messages import Message
from agentkit.core.contracts.ports import Ctx
from agentkit.core.contracts.requests import ChatRequest, LLMResult, ToolRequest
from agentkit.state.context import WorkingContext

logger = logging.getLogger(__name__)

Nothing: TypeAlias = "Awaitable[None] | None"


@dataclass(frozen=True)
class Compaction:
    """What a compaction did to a context. Tokens are the context's own count before and after."""

    context: WorkingContext
    tokens_before: int
    tokens_after: int
    messages_before: int
    messages_after: int


@dataclass(frozen=True)
class Hooks:
    """Callbacks before and after a call of the model, a call of a tool, a compaction; sync or async, each may be None.

    They are awaited, in the order of events, so a slow one slows the run. What one raises is logged, told to the
    observer as `hook.failed`, and goes no further; only a cancellation does.
    """

    before_model: Callable[[ChatRequest, Ctx], Nothing] | None = None
    after_model: Callable[[ChatRequest, LLMResult, Ctx], Nothing] | None = None
    before_tool: Callable[[ToolRequest, Ctx], Nothing] | None = None
    after_tool: Callable[[ToolRequest, Message, Ctx], Nothing] | None = None
    before_compaction: Callable[[WorkingContext, Ctx], Nothing] | None = None
    after_compaction: Callable[[Compaction, Ctx], Nothing] | None = None

    def __post_init__(self) -> None:
        for item in fields(self):
            given = getattr(self, item.name)
            if given is not None and not callable(given):
                raise TypeError(f"Hooks.{item.name} must be callable or None, not {type(given).__name__}")

    async def call(self, name: str, ctx: Ctx, /, *args: Any) -> None:
        """Run the callback of that name, if there is one, with `args` and the run."""
        callback = getattr(self, name)
        if callback is None:
            return
        try:
            found = callback(*args, ctx)
            if isawaitable(found):
                await found
        except Exception as error:
            logger.warning("the hook %s failed", name, exc_info=True)
            ctx.emit("hook.failed", hook=name, error=type(error).__name__)


watching: ContextVar[Hooks | None] = ContextVar("agentkit_hooks", default=None)
"""The hooks of the agent that has a request built right now: a request builder may be anybody's, and serve several."""


class CompactionWatch:
    """Tells the hooks of one compaction; what `call.meta["hooks"]` is for the middleware `compaction`."""

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks
        self._before = (0, 0)

    async def before_rewrite(self, context: WorkingContext, ctx: Ctx, /) -> None:
        """The context is about to be shortened, and still whole."""
        self._before = context.count().tokens, context.size()
        await self._hooks.call("before_compaction", ctx, context)

    async def after_rewrite(self, context: WorkingContext, ctx: Ctx, /) -> None:
        """It is shortened."""
        tokens, messages = self._before
        told = Compaction(context, tokens, context.count().tokens, messages, context.size())
        await self._hooks.call("after_compaction", ctx, told)
