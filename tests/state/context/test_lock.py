"""The lock: one per loop, never taken twice by one task, and free after whatever happened inside."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from agentkit.core.contracts.types import Message
from agentkit.state.context import WorkingContext


def _contend(ctx: WorkingContext, lock: Any = None) -> None:
    """Makes two tasks wait for one lock, which ties an `asyncio.Lock` to the loop."""

    async def hold(taken: Any) -> None:
        async with taken:
            await asyncio.sleep(0)

    async def main() -> None:
        taken = ctx.lock if lock is None else lock
        await asyncio.gather(*(hold(taken) for _ in range(3)))

    asyncio.run(main())


def test_lock_is_the_same_object_within_a_loop() -> None:
    for shared in (True, False):
        ctx = WorkingContext(shared=shared)

        async def main(ctx: WorkingContext = ctx) -> None:
            first = ctx.lock
            await asyncio.sleep(0)
            assert ctx.lock is first
            assert isinstance(first, asyncio.Lock)
            async with first:
                assert ctx.lock is first
            assert await asyncio.create_task(_lock_of(ctx)) is first

        asyncio.run(main())


async def _lock_of(ctx: WorkingContext) -> asyncio.Lock:
    return ctx.lock


def test_sibling_has_a_lock_of_its_own() -> None:
    async def main() -> None:
        ctx = WorkingContext()
        assert ctx.fork().lock is not ctx.lock

    asyncio.run(main())


def test_lock_contended_in_one_loop_works_in_the_next() -> None:
    ctx = WorkingContext()
    for _ in range(3):
        _contend(ctx)


def test_lock_taken_outside_a_loop_works_in_the_first() -> None:
    ctx = WorkingContext()
    early = ctx.lock
    assert ctx.lock is early

    async def main() -> None:
        assert ctx.lock is early

    asyncio.run(main())
    _contend(ctx)


def test_lock_that_was_contended_behind_our_back_is_replaced() -> None:
    """Taken outside of any loop and used in one without asking the context again."""
    ctx = WorkingContext()
    _contend(ctx, ctx.lock)
    _contend(ctx)


def test_lock_left_held_by_a_loop_that_ended_is_free_in_the_next() -> None:
    ctx = WorkingContext()
    loop = asyncio.new_event_loop()
    loop.run_until_complete(ctx.lock.acquire())
    loop.close()
    _contend(ctx)


def test_two_loops_at_once_have_a_lock_each() -> None:
    """Turn by turn, neither loses the lock that its tasks already wait for."""
    ctx = WorkingContext()
    turn = threading.Barrier(2, timeout=60)
    found: dict[str, list[asyncio.Lock]] = {"a": [], "b": []}

    def run(name: str) -> None:
        async def main() -> None:
            for _ in range(3):
                found[name].append(ctx.lock)
                turn.wait()

        asyncio.run(main())

    threads = [threading.Thread(target=run, args=(name,)) for name in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [len({id(lock) for lock in locks}) for locks in found.values()] == [1, 1]
    assert found["a"][0] is not found["b"][0]


# -- apply_locked ------------------------------------------------------------------------------------------------------


async def _settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_apply_locked_keeps_sequences_whole() -> None:
    async def main() -> list[str]:
        board = WorkingContext(shared=True)

        async def worker(name: str) -> None:
            async def pair(ctx: WorkingContext) -> None:
                ctx.append(Message("assistant", f"{name}1"))
                await asyncio.sleep(0)
                ctx.append(Message("assistant", f"{name}2"))

            assert await board.apply_locked(pair) is board

        await asyncio.gather(*(worker(name) for name in "abc"))
        return [m.content for m in board.messages]

    assert asyncio.run(main()) == ["a1", "a2", "b1", "b2", "c1", "c2"]


class Later:
    """Awaitable, and no coroutine."""

    def __init__(self, ctx: WorkingContext) -> None:
        self.ctx = ctx

    def __await__(self) -> Any:
        yield from asyncio.sleep(0).__await__()
        assert self.ctx.lock.locked()
        self.ctx.note("done", True)


@pytest.mark.parametrize(
    "fn",
    [lambda ctx: ctx.note("done", True), Later, lambda ctx: asyncio.ensure_future(Later(ctx))],
    ids=["plain", "awaitable", "future"],
)
def test_apply_locked_awaits_an_awaitable_result(fn: Callable[[WorkingContext], Awaitable[Any] | Any]) -> None:
    async def main() -> None:
        ctx = WorkingContext()
        assert await ctx.apply_locked(fn) is ctx
        assert ctx.get("done") is True
        assert not ctx.lock.locked()

    asyncio.run(main())


def _raise(ctx: WorkingContext) -> None:
    ctx.append(Message("user", "kept"))
    raise KeyError("inside")


async def _raise_later(ctx: WorkingContext) -> None:
    await asyncio.sleep(0)
    _raise(ctx)


@pytest.mark.parametrize("fn", [_raise, _raise_later], ids=["plain", "coroutine"])
def test_apply_locked_releases_when_it_raises(fn: Callable[[WorkingContext], Any]) -> None:
    async def main() -> None:
        ctx = WorkingContext()
        with pytest.raises(KeyError, match="inside"):
            await ctx.apply_locked(fn)
        assert not ctx.lock.locked()
        assert ctx.messages == [Message("user", "kept")]

    asyncio.run(main())


def test_w9_cancellation_inside_frees_the_lock() -> None:
    async def main() -> None:
        ctx = WorkingContext()
        entered = asyncio.Event()

        async def stuck(ctx: WorkingContext) -> None:
            ctx.append(Message("assistant", "first"))
            entered.set()
            await asyncio.Event().wait()
            ctx.append(Message("assistant", "second"))

        task = asyncio.create_task(ctx.apply_locked(stuck))
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not ctx.lock.locked()
        assert ctx.messages == [Message("assistant", "first")]
        await ctx.apply_locked(lambda ctx: ctx.append(Message("user", "next")))
        assert ctx.size() == 2

    asyncio.run(main())


def test_w9_cancelled_waiter_takes_nothing_and_blocks_nobody() -> None:
    async def main() -> None:
        ctx = WorkingContext()
        async with ctx.lock:
            waiters = [
                asyncio.create_task(ctx.apply_locked(lambda ctx: ctx.note("n", ctx.get("n", 0) + 1))) for _ in range(3)
            ]
            await _settled()
            waiters[0].cancel()
            waiters[1].cancel()
            await _settled()
        found = await asyncio.gather(*waiters, return_exceptions=True)
        assert [isinstance(one, asyncio.CancelledError) for one in found] == [True, True, False]
        assert ctx.get("n") == 1
        assert not ctx.lock.locked()

    asyncio.run(main())


def test_taking_it_again_raises_instead_of_hanging() -> None:
    async def main() -> None:
        ctx = WorkingContext()
        async with ctx.lock:
            for again in (ctx.lock.acquire(), ctx.apply_locked(lambda ctx: None)):
                with pytest.raises(RuntimeError, match="this task already holds the context's lock"):
                    await again
            assert ctx.lock.locked()
        assert not ctx.lock.locked()

        async def inner(ctx: WorkingContext) -> None:
            await ctx.apply_locked(lambda ctx: None)

        with pytest.raises(RuntimeError, match="already holds"):
            await ctx.apply_locked(inner)
        assert not ctx.lock.locked()
        await ctx.apply_locked(lambda ctx: None)

    asyncio.run(main())


def test_another_task_may_wait_while_it_is_held() -> None:
    async def main() -> None:
        ctx = WorkingContext()
        async with ctx.lock:
            waiter = asyncio.create_task(ctx.apply_locked(lambda ctx: ctx.note("later", 1)))
            await _settled()
            assert not waiter.done()
            ctx.note("earlier", 1)  # mutators never lock
        await waiter
        assert list(ctx.scratchpad) == ["earlier", "later"]

    asyncio.run(main())


def test_release_without_holding_is_an_error() -> None:
    async def main() -> None:
        with pytest.raises(RuntimeError):
            WorkingContext().lock.release()

    asyncio.run(main())


def test_task_may_take_it_one_time_after_another() -> None:
    async def main() -> None:
        ctx = WorkingContext()
        for _ in range(3):
            async with ctx.lock:
                assert ctx.lock.locked()
        await ctx.lock.acquire()
        ctx.lock.release()
        assert not ctx.lock.locked()

    asyncio.run(main())
