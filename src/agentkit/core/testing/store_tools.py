"""What the parts of the store suite share: values, keys, and a store that is opened and closed around a test."""

from __future__ import annotations

import datetime
import math
import unittest
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from decimal import Decimal
from typing import Any, NoReturn, TypeAlias, TypeVar

from agentkit.core.contracts.errors import StoreError
from agentkit.core.contracts.ports import (
    Clock,
    LeasingStore,
    SearchingStore,
    Store,
)
from agentkit.core.contracts.types import Chunk, Message, NativeBlock, Scope, TextBlock, ToolCall, Usage, mark

from .doubles import FakeClock

E = TypeVar("E", bound=BaseException)
OpenStore: TypeAlias = Callable[[Clock], Store]
START = 1_700_000_000.0

VALUES: tuple[Any, ...] = (
    None,
    True,
    0,
    -(2**70),
    1.5,
    -0.0,
    math.inf,
    "",
    "half a pair \ud800, a \0, \r\n, \u2028, <|endoftext|>, 你好, 🙂",
    b"",
    b"\x00\xff raw",
    [],
    {},
    [1, [2, {"a": None}]],
    (1, ("two", [3])),
    {1, "a", (2,)},
    frozenset({b"x"}),
    {"$": "an own key", "b": {"$": 1}},
    {1: "int", "1": "str", (1,): "tuple", None: "none", 1.5: "float", b"x": "bytes"},
    datetime.date(2026, 2, 28),
    datetime.datetime(2026, 2, 28, 23, 59, 59, 999_999, tzinfo=datetime.timezone(datetime.timedelta(hours=-3.5))),
    datetime.time(1, 2, 3),
    uuid.UUID(int=7),
    Decimal("1.10"),
    Usage(1, 2, 0.5),
    Scope("acme", 1),
    Chunk("text", "source", 0.5, {"page": 1}),
    mark(Message("user", "hi\ud800", meta={"id": "m1"}), "pinned"),
    Message("assistant", [TextBlock("a"), NativeBlock("p", {"x": [1]})], tool_calls=[ToolCall("1", "t", '{"a": 1}')]),
)
"""A value of each kind that every store carries."""

ODD_KEYS = (
    "a", "A", "a ", " a", "a/b", "a//b", "../a", "a%", "a_", "a*", "a[b]", "a\\b", "a\0b", "a\nb", "a'b", 'a"b',
    "%", "_", "ab", "é", "e\u0301", "ß", "ss", "\uffff", "\U00010000", "\U0010ffff",
    "a" * 2_048, "ü" * 1_024, "🙂" * 512,
)  # fmt: skip
"""All different, all legal."""


@contextmanager
def raising(kind: type[E]) -> Iterator[list[E]]:
    """The block must raise `kind`; the list then holds what it raised."""
    caught: list[E] = []
    try:
        yield caught
    except kind as error:
        caught.append(error)
    else:
        raise AssertionError(f"expected a {kind.__name__}")


@asynccontextmanager
async def opened(open_store: OpenStore, clock: Clock | None = None) -> AsyncIterator[Store]:
    store = open_store(clock or FakeClock(START))
    try:
        yield store
    finally:
        await store.aclose()


def skip_without(store: Store, ability: str) -> None:
    if not getattr(store.capabilities, ability):
        raise unittest.SkipTest(f"the store declares that it cannot do this: {ability}")


async def everything(store: Store) -> dict[str, Any]:
    """All keys with what they hold: a value and its version, or a log."""
    found: dict[str, Any] = {}
    for key in await store.keys():
        try:
            found[key] = await store.versioned(key)
        except StoreError:
            found[key] = await store.list(key)
    return found


def refuse() -> NoReturn:
    raise AssertionError("this producer must not be called")


def leases(store: Store) -> LeasingStore:
    skip_without(store, "lease")
    assert isinstance(store, LeasingStore)
    return store


def finder(store: Store) -> SearchingStore:
    skip_without(store, "search")
    assert isinstance(store, SearchingStore)
    return store
