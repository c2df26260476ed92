"""`memoize`: the same question is asked once. Touches the store of the run, or the one that is handed in.

A key always holds the tenant: either the store is the run's own view, or the scope's key is put in front. Only an
UnscopedStore, which somebody chose on purpose, is shared.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple, overload

from agentkit.core.contracts.calls import Call, ChatCall, ChatNext, ToolInvocation, ToolNext
from agentkit.core.contracts.errors import CodecError, Corrupt, StoreError
from agentkit.core.contracts.hashing import stable_hash
from agentkit.core.contracts.ports import MISSING, Store
from agentkit.core.contracts.requests import ChatRequest, Delta, LLMResult, ToolRequest, assemble_deltas
from agentkit.core.contracts.usage import Usage

MAX_KEY_BYTES = 2_048
"""Longest key that a store takes, scope included."""


def memoize(
    key: Callable[[Call[Any]], Any] | None = None,
    store: Store | None = None,
    ttl: float | None = None,
    when: Callable[[Call[Any]], bool] | None = None,
) -> Memoize:
    """Middleware, for models and tools alike, that answers a repeated request from the store.

    `key(call)`: what two requests must have in common, a str or anything `stable_hash` takes; by default all of the
    request that is sent (for a tool: name and arguments). `store`: in place of the run's own; without either, calls
    pass through. `ttl` in seconds. `when(call)`: whether this call is memoised at all; by default every model call and
    every tool call without side effects.

    One call goes out however many ask at the same time; the others get its stored answer. A hit is one chunk with
    `cached=True` and `Usage()`, sets `call.meta["cache_hit"]` and emits `cache.hit`. A call that raises stores nothing.
    Where the store fails, or cannot hold an answer, the answer is passed on and `cache.failed` is emitted.
    """
    if ttl is not None and (isinstance(ttl, bool) or not isinstance(ttl, (int, float))):
        raise TypeError(f"ttl must be None or a number of seconds, not {type(ttl).__name__}")
    if ttl is not None and not (math.isfinite(ttl) and ttl >= 0):
        raise ValueError(f"ttl must be finite and not negative: {ttl}")
    if store is not None and not isinstance(store, Store):
        raise TypeError(f"store must be a Store, not {type(store).__name__}")
    return Memoize(key, store, ttl, when)


class _Slot(NamedTuple):
    """Where the answer of one call is kept."""

    store: Store
    key: str


class Memoize:
    """What `memoize` returns: chat middleware and tool middleware in one."""

    def __init__(
        self,
        key: Callable[[Call[Any]], Any] | None,
        store: Store | None,
        ttl: float | None,
        when: Callable[[Call[Any]], bool] | None,
    ) -> None:
        self._key, self._store, self._ttl, self._when = key, store, ttl, when

    @overload
    def __call__(self, call: ChatCall, proceed: ChatNext, /) -> AsyncIterator[Delta]: ...
    @overload
    def __call__(self, call: ToolInvocation, proceed: ToolNext, /) -> Awaitable[Any]: ...
    def __call__(self, call: Call[Any], proceed: Any, /) -> AsyncIterator[Delta] | Awaitable[Any]:
        if isinstance(call.request, ChatRequest):
            return self._stream(call, proceed)
        return self._invoke(call, proceed)

    async def _stream(self, call: ChatCall, proceed: ChatNext) -> AsyncIterator[Delta]:
        slot = self._slot(call)
        if slot is None:
            async for delta in proceed(call):
                yield delta
            return
        arrived: asyncio.Queue[Delta | None] = asyncio.Queue()
        asked = False

        async def ask() -> LLMResult:
            nonlocal asked
            asked = True
            deltas = []
            async for delta in proceed(call):
                deltas.append(delta)
                arrived.put_nowait(delta)
            return assemble_deltas(deltas)

        # In a task of its own: when this answer is read slowly, or its reader asks the same again, nobody who waits for
        # the stored one is held up.
        flight = asyncio.create_task(self._answer(call, slot, ask))
        flight.add_done_callback(lambda _: arrived.put_nowait(None))
        try:
            while (piece := await arrived.get()) is not None:
                yield piece
            answer = await flight
        finally:
            await _end(flight)
        if asked:
            return
        if not isinstance(answer, LLMResult):
            raise Corrupt(f"{slot.key!r} holds a {type(answer).__name__}, not the answer of a model")
        self._hit(call, "chat")
        yield _whole(answer)

    async def _invoke(self, call: ToolInvocation, proceed: ToolNext) -> Any:
        slot = self._slot(call)
        if slot is None:
            return await proceed(call)
        asked = False

        async def ask() -> Any:
            nonlocal asked
            asked = True
            return await proceed(call)

        answer = await self._answer(call, slot, ask)
        if not asked:
            self._hit(call, "tool")
        return answer

    async def _answer(self, call: Call[Any], slot: _Slot, ask: Callable[[], Awaitable[Any]]) -> Any:
        """The stored answer, or that of `ask()`, stored if possible."""
        made: Any = MISSING
        failed = False

        async def produce() -> Any:
            nonlocal made, failed
            try:
                made = await ask()
            except BaseException:
                failed = True
                raise
            return made

        try:
            answer = await slot.store.get_or_set(slot.key, produce, self._ttl)
        except (StoreError, CodecError) as error:
            if failed:
                raise
            # An answer that was paid for is not lost because it could not be kept, nor a run because its cache is away.
            call.ctx.emit("cache.failed", error=type(error).__name__)
            return await ask() if made is MISSING else made
        return answer if made is MISSING else made

    def _hit(self, call: Call[Any], kind: str) -> None:
        call.meta["cache_hit"] = True
        name = call.request.model if kind == "chat" else call.request.name
        call.ctx.emit("cache.hit", kind=kind, name=name)

    def _slot(self, call: Call[Any]) -> _Slot | None:
        store = call.ctx.store if self._store is None else self._store
        if store is None or not self._applies(call):
            return None
        kind = "chat" if isinstance(call.request, ChatRequest) else "tool"
        front = f"memoize/{kind}/"
        # A view of this tenant, or one that is shared on purpose (scope None), puts its own prefix in front. Any other
        # store, another tenant's view included, must not be trusted to keep tenants apart.
        if getattr(store, "scope", MISSING) not in (call.ctx.scope, None):
            front = f"{call.ctx.scope.key()}/{front}"
        given = MISSING if self._key is None else self._key(call)
        if given is MISSING:
            return _Slot(store, front + "request/" + request_key(call.request))
        whole = len(getattr(store, "prefix", "")) + len(front) + len("given/")
        if isinstance(given, str) and 0 < _size(given) <= MAX_KEY_BYTES - whole:
            return _Slot(store, front + "given/" + given)
        return _Slot(store, front + "hashed/" + stable_hash(given))

    def _applies(self, call: Call[Any]) -> bool:
        if self._when is not None:
            return bool(self._when(call))
        return not (isinstance(call.request, ToolRequest) and call.request.side_effecting)


def request_key(request: ChatRequest | ToolRequest) -> str:
    """The hash of what a request asks: all that is sent, without meta, cache hint and prefix length.

    Raises TypeError where it holds something that has no content to hash.
    """
    shape: dict[str, Any]
    if isinstance(request, ToolRequest):
        shape = {"name": request.name, "arguments": request.arguments}
    else:
        # The digests of the messages, which are computed once each, stand for their texts.
        sent = hashlib.sha256(b"".join([message.digest for message in request.messages])).digest()
        names = ("model", "response_format", "temperature", "max_tokens", "tool_choice", "options")
        tools = None if request.tools is None else sorted(request.tools, key=lambda tool: tool.name)
        shape = {"messages": sent, "tools": tools, **{name: getattr(request, name) for name in names}}
    try:
        return stable_hash(shape)
    except TypeError as error:
        raise TypeError(f"memoize has no key for this request: {error}; pass key=") from error


def _size(key: str) -> int:
    """Bytes of a key in a store; 0 for one that no store takes."""
    try:
        return len(key.encode("utf-8"))
    except UnicodeEncodeError:
        return 0


def _whole(answer: LLMResult) -> Delta:
    return Delta(
        answer.text,
        answer.tool_calls,
        Usage(),
        answer.finish_reason,
        answer.parsed,
        blocks=answer.blocks,
        model=answer.model,
        cached=True,
        meta=answer.meta,
    )


async def _end(flight: asyncio.Task[Any]) -> None:
    if not flight.done():
        flight.cancel()
        await asyncio.wait([flight])
    if not flight.cancelled():
        flight.exception()  # looked at: whoever left early is not told of it at exit
