"""The seams of the project: what a store, a model, a counter, a clock and a run have to offer. Nothing but protocols
and the small values that they exchange."""

from __future__ import annotations

import builtins
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, runtime_checkable

from .counting import SyncTokenCounter as SyncTokenCounter
from .counting import TokenCounter as TokenCounter
from .messages import Message
from .requests import ChatRequest, Delta, LLMResult, ToolRequest
from .scope import Scope
from .usage import Usage

Clock: TypeAlias = Callable[[], float]
"""Seconds since an origin of its own: `time.monotonic`, `time.time`, or a FakeClock."""


class _Missing:
    def __repr__(self) -> str:
        return "MISSING"

    def __reduce__(self) -> str:
        return "MISSING"


MISSING: Any = _Missing()
"""`store.get(key, MISSING)` tells a stored None from an absent key."""


class LLM(Protocol):
    """A model. `stream` yields the pieces of one answer, `chat` collects them."""

    def stream(self, request: ChatRequest, /) -> AsyncIterator[Delta]: ...

    async def chat(self, request: ChatRequest, /) -> LLMResult: ...


@runtime_checkable
class Compactor(Protocol):
    """Shortens a list of messages; returns its input where there is nothing to do."""

    async def compact(
        self, messages: Sequence[Message], ctx: Ctx, /, *, counter: TokenCounter | None = None
    ) -> Sequence[Message]: ...


@dataclass(frozen=True)
class Put:
    """Write a value. `expected`: the version that was seen (0 = absent), None for any. `ttl` in seconds."""

    key: str
    value: Any
    expected: int | None = field(default=None, kw_only=True)
    ttl: float | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class Append:
    """Add items to the end of a log. `at`: the length that was seen, None for any."""

    key: str
    items: tuple[Any, ...]
    at: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "items", tuple(self.items))


@dataclass(frozen=True)
class Delete:
    """Remove a value or a log. `expected`: the version that was seen, None for any."""

    key: str
    expected: int | None = field(default=None, kw_only=True)


Batch: TypeAlias = Sequence[Put | Append | Delete]


@dataclass(frozen=True)
class Lease:
    """The right to write under `name`; `fence` is greater than that of every lease granted before. `ttl` in seconds."""

    name: str
    owner: str
    fence: int
    ttl: float


@dataclass(frozen=True)
class Hit:
    """A log item that a search found: its log, its position, a short piece of the text around the match."""

    key: str
    position: int
    excerpt: str


@dataclass(frozen=True)
class StoreCapabilities:
    """What a store can do, fixed for its lifetime. `durable`: it survives the process; `shared`: several processes may
    open it; `max_value`: largest encoded value in bytes, None for no limit of its own."""

    durable: bool = False
    shared: bool = False
    ttl: bool = True
    lease: bool = False
    search: bool = False
    max_value: int | None = None


@runtime_checkable
class Store(Protocol):
    """Values and logs under string keys.

    A key holds a value or a log, never both (StoreError). What is read is never the object that was written. A value's
    version is an int that rises with each write and does not come back after a delete; a log position counts from 0.
    Keys are 1 to 2,048 bytes of UTF-8 (ValueError). Values are what the codec carries (CodecError otherwise).
    """

    @property
    def capabilities(self) -> StoreCapabilities: ...

    async def get(self, key: str, default: Any = None) -> Any: ...

    async def set(self, key: str, value: Any, ttl: float | None = None) -> None: ...

    async def delete(self, key: str) -> bool: ...

    async def get_or_set(
        self, key: str, producer: Callable[[], Any | Awaitable[Any]], ttl: float | None = None
    ) -> Any: ...

    async def append(self, key: str, item: Any) -> int: ...

    async def list(self, key: str, *, start: int = 0, stop: int | None = None) -> builtins.list[Any]: ...

    async def keys(
        self, prefix: str = "", *, after: str | None = None, limit: int | None = None
    ) -> builtins.list[str]: ...

    async def versioned(self, key: str) -> tuple[Any, int] | None: ...

    async def compare_and_set(self, key: str, value: Any, *, expected: int, ttl: float | None = None) -> int: ...

    async def commit(self, batch: Batch, *, fence: Lease | None = None) -> tuple[int, ...]: ...

    async def aclose(self) -> None: ...


@runtime_checkable
class LeasingStore(Store, Protocol):
    """A store that grants leases; `commit(batch, fence=lease)` is refused with Fenced once a newer one exists."""

    async def lease(self, name: str, owner: str, ttl: float) -> Lease | None: ...

    async def renew(self, lease: Lease) -> bool: ...

    async def release(self, lease: Lease) -> bool: ...


@runtime_checkable
class SearchingStore(Store, Protocol):
    """A store that finds text in the items of its logs."""

    async def search(self, key: str, text: str, limit: int = 20) -> Sequence[Hit]: ...


class Cancellation(Protocol):
    """Whether a run was asked to stop."""

    def is_set(self) -> bool: ...


class InvokerPort(Protocol):
    """The one way in which a run calls a model or a tool.

    `meta` is the dict that middleware reads and writes during this one call; pass an own one to look at it afterwards.
    """

    def stream(
        self, request: ChatRequest, ctx: Ctx, /, *, meta: dict[str, Any] | None = None
    ) -> AsyncGenerator[Delta, None]: ...

    async def chat(self, request: ChatRequest, ctx: Ctx, /, *, meta: dict[str, Any] | None = None) -> LLMResult: ...

    async def invoke_tool(
        self, request: ToolRequest, ctx: Ctx, body: ToolBody, /, *, meta: dict[str, Any] | None = None
    ) -> Any: ...


ToolBody: TypeAlias = "Callable[[ToolRequest, Ctx], Awaitable[Any]]"
"""What a tool does once all middleware has let its call pass."""


class Ctx(Protocol):
    """What a tool or a middleware sees of a run: who it is for, where it may store, whom it may call."""

    @property
    def scope(self) -> Scope: ...

    @property
    def correlation_id(self) -> str: ...

    @property
    def store(self) -> Store | None: ...

    @property
    def invoker(self) -> InvokerPort: ...

    @property
    def cancel(self) -> Cancellation | None: ...

    def emit(self, event: str, /, **data: Any) -> None: ...

    def guard(self) -> None:
        """MeterExceeded when a budget of this run is used up: nothing more may be called."""
        ...

    def charge(self, usage: Usage, /) -> None:
        """Bill one call. MeterExceeded when it crossed a limit; it is billed all the same."""
        ...


@dataclass(frozen=True)
class MemoryItem:
    """One remembered thing. `id` None: the source makes one from the text."""

    text: str
    id: str | None = None
    source: str = ""
    meta: Mapping[str, Any] = field(default_factory=dict, compare=False)


class MemorySource(Protocol):
    """Long-term recall: asked per task, written to on request, always for the scope of the run."""

    async def query(self, text: str, ctx: Ctx, /, k: int = 5) -> Sequence[Any]: ...

    async def write(self, items: Sequence[Any], ctx: Ctx, /) -> Any: ...
