"""Cost by the delta: after one append the work is the same, whatever the length of the conversation."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from agentkit.core.contracts import messages as message_module
from agentkit.core.contracts import tokens as token_module
from agentkit.core.contracts.types import Message, NativeBlock, ToolCall, Usage
from agentkit.state.context import CharClassTokenCounter, PrefixContext, WorkingContext
from agentkit.state.context import tokens as counter_module

PREFIX = PrefixContext("prompt", [Message("system", "grounding")])


def _grown(length: int, counter: Any = None) -> WorkingContext:
    """A conversation of that many messages, about which everything is known already."""
    ctx = WorkingContext(PREFIX, scratchpad={"plan": ["a"]}, token_counter=counter)
    for i in range(length // 4):
        ctx.append(Message("user", f"q{i}"), Message("assistant", tool_calls=[ToolCall(f"c{i}", "f", {"n": i})]))
        ctx.append(
            Message("tool", [f"r{i}", NativeBlock("p", {"n": i})], tool_call_id=f"c{i}"), Message("assistant", "a")
        )
    for operation in OPERATIONS.values():
        operation(ctx)
    return ctx


def _tokens(ctx: WorkingContext) -> object:
    coroutine = ctx.tokens()
    with pytest.raises(StopIteration) as done:
        coroutine.send(None)
    return done.value.value


def _report(ctx: WorkingContext) -> object:
    return ctx.record_usage(Usage(100), layout=ctx.segments())


OPERATIONS: dict[str, Callable[[WorkingContext], object]] = {
    "tokens": _tokens,
    "count": lambda ctx: ctx.count(),
    "record_usage": _report,
    "freeze": lambda ctx: ctx.freeze(),
    "hash": lambda ctx: hash(ctx.freeze()),
    "segments": lambda ctx: ctx.segments(volatile=[Message("user", "clock")]),
    "breakpoints": lambda ctx: ctx.segments().breakpoints(previous=ctx.segments()),
    "assembled": lambda ctx: ctx.assembled(),
    "fork": lambda ctx: ctx.fork(),
    "fork and count": lambda ctx: _tokens(ctx.fork()),
    "fork and freeze": lambda ctx: hash(ctx.fork().freeze()),
    "fork and diff": lambda ctx: ctx.fork().append(Message("user", "x")).diff(ctx),
    "fork and merge": lambda ctx: ctx.merge(ctx.fork(), mode="delta"),
    "append": lambda ctx: ctx.append(),
}


@contextmanager
def _calls_counted() -> Iterator[list[int]]:
    """How many functions, in Python and in C, are called inside; what C does by itself over pointers is none."""
    counted = [0]

    def count(frame: Any, event: str, argument: Any) -> None:
        if event in ("call", "c_call"):
            counted[0] += 1

    before = sys.getprofile()
    gc.disable()  # its callbacks, of other libraries, would be counted
    sys.setprofile(count)
    try:
        yield counted
    finally:
        sys.setprofile(before)
        gc.enable()


def _work(operation: Callable[[WorkingContext], object], length: int, counter: Any) -> int:
    ctx = _grown(length, counter)
    ctx.append(Message("user", "one more"))
    with _calls_counted() as counted:
        operation(ctx)
    return counted[0]


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("counter", [None, CharClassTokenCounter()], ids=["formula", "char-class"])
def test_w8_work_after_an_append_does_not_grow(name: str, counter: Any) -> None:
    short, long = (_work(OPERATIONS[name], length, counter) for length in (40, 2_000))
    assert long <= short + 10


def test_calls_would_show() -> None:
    """The measure itself: a walk over the messages is seen."""
    short, long = (_work(lambda ctx: [m.digest for m in ctx.messages], length, None) for length in (40, 2_000))
    assert long > short + 1_900


DERIVED = [
    (message_module, "_hash_of"), (message_module, "_digest_of"), (token_module, "_weigh"),
    (counter_module, "_weigh_by_class"),
]  # fmt: skip


def _watched(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> list[Message]:
    """The messages that the function of that name is called with."""
    seen: list[Message] = []
    original = getattr(module, name)

    def watched(message: Message) -> Any:
        seen.append(message)
        return original(message)

    monkeypatch.setattr(module, name, watched)
    return seen


@pytest.mark.parametrize(("module", "name"), DERIVED, ids=[name for _, name in DERIVED])
def test_what_follows_from_a_message_is_computed_once(module: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = _watched(monkeypatch, module, name)
    for ctx in (_grown(40), _grown(40, CharClassTokenCounter())):
        for _ in range(3):
            for operation in OPERATIONS.values():
                operation(ctx)
        copied = ctx.fork()
        copied.messages.reverse()
        _tokens(copied)
        hash(copied.freeze())
        copied.segments()
    assert seen
    assert len({id(message) for message in seen}) == len(seen)


def test_rewrite_costs_no_new_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a compaction everything is added up again, from figures that are known."""
    ctx = _grown(40)
    seen = _watched(monkeypatch, token_module, "_weigh")
    summary = Message("user", "summary")
    ctx.rewrite(20, [summary], version=ctx.version)
    _tokens(ctx)
    assert [message is summary for message in seen] == [True]
