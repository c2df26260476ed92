"""`compaction`: a context is shortened before a model call that it would be too long for. Touches the context of the
call; a compactor is handed in.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from agentkit.core.contracts.calls import ChatCall, ChatMiddleware, ChatNext
from agentkit.core.contracts.checks import require_int
from agentkit.core.contracts.counting import TokenCounter
from agentkit.core.contracts.errors import AgentKitError, Conflict, MeterExceeded
from agentkit.core.contracts.messages import Message
from agentkit.core.contracts.offers import canonical_tools
from agentkit.core.contracts.ports import Compactor
from agentkit.core.contracts.requests import Breakpoint, ChatRequest, Delta
from agentkit.core.contracts.tokens import measure

STATE = "compaction"
"""Where a context keeps how often compacting it failed: `context.policies["compaction"]`."""
FAILURES = 3
"""Failures in a row after which a context is left alone, until its tail is a tenth longer than it was then."""
LOWEST_SCALE, HIGHEST_SCALE = 0.5, 4.0
"""How far the counter of a context may be from what the provider reports, as for a Calibration."""


class Layout(Protocol):
    """The next request by segment, as `WorkingContext.segments` gives it."""

    def messages(self) -> list[Message]: ...

    def breakpoints(self, *, ttl: str = "5m", frozen_ttl: str | None = None) -> tuple[Breakpoint, ...]: ...


class Count(Protocol):
    """How large the next request is, as `WorkingContext.count` gives it."""

    @property
    def tokens(self) -> int: ...
    @property
    def source(self) -> str: ...
    @property
    def factor(self) -> float: ...


class Context(Protocol):
    """What `call.meta["context"]` has to offer. A WorkingContext does; core knows of none."""

    @property
    def prefix(self) -> Any: ...
    @property
    def messages(self) -> list[Message]: ...
    @property
    def token_counter(self) -> TokenCounter: ...
    @property
    def version(self) -> int: ...
    @property
    def policies(self) -> dict[str, Any]: ...

    def count(self, calibration: Any = None, *, tools: Any = None) -> Count: ...
    def segments(self, *, tools: Any = (), volatile: Iterable[Message] = ()) -> Layout: ...
    def rewrite(self, head: int, new: Iterable[Message], *, version: int) -> Any: ...


@dataclass(frozen=True)
class Scaled:
    """A counter whose figures are another's times `factor`."""

    counter: TokenCounter
    factor: float

    def measure(self, messages: Sequence[Message], /) -> int:
        return round(self.factor * measure(messages, self.counter))

    async def estimate(self, messages: Sequence[Message], /) -> int:
        return self.measure(messages)


def compaction(compactor: Compactor, *, at: int | None = None) -> ChatMiddleware:
    """Chat middleware that lets `compactor` shorten the context of a call, `call.meta["context"]`, before every model
    call, and sends what is left. A call without a context passes through.

    `at`: tokens of the next request, by the context's own `count()`, from which on the compactor is asked; None: it is
    asked each time and has a threshold of its own. It gets the tail, the run, and the context's counter, brought to the
    scale of what the provider reported for it, so that thresholds are in the provider's tokens.

    The result is applied through `rewrite`, on the version that was planned on, then the request is laid out anew and
    its cache marks set again, by `call.meta["marks"](layout)` where the caller has a plan of its own for them;
    `call.meta["layout"]` is that layout, for `record_usage`. Messages that came meanwhile stay. When somebody else
    rewrote the context in the meantime, that counts and is sent. `call.meta["hooks"]` is told right before and after
    (`before_rewrite`, `after_rewrite`, awaited with context and run).

    A compactor that fails with one of agentkit's errors, or makes the tail no smaller, leaves the context as it is and
    the call goes on; after three such failures in a row it rests until the tail is a tenth longer. The count travels
    with the context. Emits `compaction.done`, `compaction.failed`, `compaction.resting` and `compaction.unaligned` (the
    request does not show the context's tail, so nothing is done), with sizes in messages and estimated tokens.

    Stand it inside `fallback` and `retry`, so that each attempt is looked at, and outside `quota` and `memoize`, which
    then see the request that goes out.
    """
    if not hasattr(compactor, "compact"):
        raise TypeError(f"compactor must have a compact method: {type(compactor).__name__} has none")
    if at is not None:
        require_int(at, "at")
        if at < 0:
            raise ValueError(f"at must not be negative: {at}")

    async def compacting(call: ChatCall, proceed: ChatNext) -> AsyncIterator[Delta]:
        context: Context | None = call.meta.get("context")
        if context is not None:
            call = await _compacted(call, context, compactor, at)
        async for delta in proceed(call):
            yield delta

    return compacting


async def _compacted(call: ChatCall, context: Context, compactor: Compactor, at: int | None) -> ChatCall:
    count = context.count(call.meta.get("calibration"), tools=call.request.tools or ())
    if at is not None and count.tokens < at:
        return call
    shown = _shown(call.request, context)
    if not shown:
        if context.messages:
            call.ctx.emit("compaction.unaligned", messages=len(call.request.messages), tail=len(context.messages))
        return call
    if _rests(context):
        call.ctx.emit("compaction.resting", messages=len(context.messages), tokens=count.tokens)
        return call
    tail, version = tuple(context.messages[:shown]), context.version
    counter = _in_providers_tokens(context, call.request, count)
    try:
        left = await compactor.compact(tail, call.ctx, counter=counter)
    except MeterExceeded:
        raise
    except AgentKitError as error:
        _note_failure(context)
        call.ctx.emit("compaction.failed", error=type(error).__name__, messages=shown, tokens=count.tokens)
        return call
    if left is tail or not left or (len(left) == shown and all(map(_same, left, tail))):
        return call
    if measure(left, counter) >= measure(tail, counter):
        _note_failure(context)
        call.ctx.emit("compaction.failed", error="no_progress", messages=shown, tokens=count.tokens)
        return call
    hooks = call.meta.get("hooks")
    if hooks is not None:
        await hooks.before_rewrite(context, call.ctx)
    try:
        context.rewrite(shown, left, version=version)
    except Conflict:
        call.ctx.emit("compaction.failed", error="Conflict", messages=shown, tokens=count.tokens)
    else:
        context.policies.pop(STATE, None)
        call.ctx.emit(
            "compaction.done",
            messages=shown,
            left=len(left),
            tokens=count.tokens,
            tokens_left=context.count(call.meta.get("calibration"), tools=call.request.tools or ()).tokens,
        )
        if hooks is not None:
            await hooks.after_rewrite(context, call.ctx)
    return _laid_out_anew(call, context, shown)


def _shown(request: ChatRequest, context: Context) -> int:
    """How many messages of the context's tail the request shows behind its prefix, from the first on."""
    prefix, sent = list(context.prefix.as_messages()), request.messages
    if list(sent[: len(prefix)]) != prefix:
        return 0
    behind = sent[len(prefix) :]
    shown = 0
    for mine, theirs in zip(context.messages, behind, strict=False):
        if mine is not theirs:
            break
        shown += 1
    return shown


def _in_providers_tokens(context: Context, request: ChatRequest, count: Count) -> TokenCounter:
    """The context's counter, so scaled that the tail has what the count leaves for it beside prefix and tools."""
    counter, factor = context.token_counter, count.factor
    in_tail = measure(context.messages, counter)
    if count.source == "provider" and in_tail:
        standing = measure([*context.prefix.as_messages(), *_as_message(request)], counter)
        factor = (count.tokens - standing) / in_tail
    factor = min(max(factor, LOWEST_SCALE), HIGHEST_SCALE)
    return counter if factor == 1 else Scaled(counter, factor)


def _as_message(request: ChatRequest) -> list[Message]:
    return [Message("system", "".join(canonical_tools(request.tools)))] if request.tools else []


def _laid_out_anew(call: ChatCall, context: Context, shown: int) -> ChatCall:
    request = call.request
    volatile = request.messages[len(context.prefix.as_messages()) + shown :]
    layout = context.segments(tools=request.tools or (), volatile=volatile)
    hint, marks = request.cache_hint, call.meta.get("marks")
    if marks is not None:
        hint = marks(layout)
    elif isinstance(hint, tuple) and hint and all(isinstance(mark, Breakpoint) for mark in hint):
        hint = layout.breakpoints(ttl=hint[-1].ttl, frozen_ttl=hint[0].ttl)
    call.meta["layout"] = layout
    return replace(call, request=replace(request, messages=tuple(layout.messages()), cache_hint=hint))


def _rests(context: Context) -> bool:
    kept = context.policies.get(STATE)
    if not isinstance(kept, Mapping) or kept.get("failures", 0) < FAILURES:
        return False
    return bool(len(context.messages) < kept.get("until", 0))


def _note_failure(context: Context) -> None:
    kept = context.policies.get(STATE)
    failures = 1 + (kept.get("failures", 0) if isinstance(kept, Mapping) else 0)
    until = len(context.messages) + max(len(context.messages) // 10, 1) if failures >= FAILURES else 0
    context.policies[STATE] = {"failures": failures, "until": until}


def _same(left: Message, right: Message) -> bool:
    return left is right
