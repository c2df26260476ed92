"""`quota`: what one tenant may use of a model, per minute and in all. Touches the store of the run, or the one that is
handed in, and the clock.

What is allowed follows from an `Account`, a value; the store holds one per tenant and is written by compare-and-set.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from agentkit.core.contracts.calls import ChatCall, ChatMiddleware, ChatNext
from agentkit.core.contracts.checks import require_int
from agentkit.core.contracts.errors import Conflict, Corrupt, MeterExceeded, StoreError
from agentkit.core.contracts.ports import Clock, Ctx, Store
from agentkit.core.contracts.requests import Delta
from agentkit.core.contracts.tokens import estimate_request_tokens
from agentkit.core.contracts.usage import Usage

MINUTE = 60.0
SLOT = 0.1
"""Seconds that share one entry of an account, so that it stays small at any rate: 600 entries a minute."""
ATTEMPTS = 50
"""Writers that may get ahead before a write gives up with Conflict: more mean that a store does not work."""


@dataclass(frozen=True)
class Limits:
    """None: without that limit. `requests` and `tokens` per rolling minute, `max_cost_usd` in all."""

    requests: int | None = None
    tokens: int | None = None
    max_cost_usd: float | None = None

    def __post_init__(self) -> None:
        for name in ("requests", "tokens"):
            value = getattr(self, name)
            if value is not None:
                require_int(value, name)
                if value < 0:
                    raise ValueError(f"{name} must not be negative: {value}")
        usd = self.max_cost_usd
        if usd is not None and (isinstance(usd, bool) or not isinstance(usd, (int, float))):
            raise TypeError(f"max_cost_usd must be None or a number, not {type(usd).__name__}")
        if usd is not None and not 0 <= usd < float("inf"):
            raise ValueError(f"max_cost_usd must be finite and not negative: {usd}")


@dataclass(frozen=True)
class Account:
    """What one tenant has used: `slots` of (time, requests, tokens) of the last minute, oldest first, and USD so far.

    Tokens of a call that is under way are its estimate.
    """

    slots: tuple[tuple[float, int, int], ...] = ()
    usd: float = 0.0

    def at(self, now: float) -> Account:
        """Without what is a minute old."""
        live = tuple(slot for slot in self.slots if now - slot[0] < MINUTE)
        return self if len(live) == len(self.slots) else replace(self, slots=live)

    def refusal(self, limits: Limits, estimate: int, now: float) -> MeterExceeded | None:
        """Why a request of that many estimated tokens may not go out now; None when it may."""
        requests = sum(slot[1] for slot in self.slots)
        tokens = sum(slot[2] for slot in self.slots)
        if limits.max_cost_usd is not None and self.usd >= limits.max_cost_usd:
            return MeterExceeded(f"{self.usd:.6f} of {limits.max_cost_usd:.6f} USD of this tenant are used up")
        if limits.requests is not None and requests + 1 > limits.requests:
            told = f"{requests} of {limits.requests} requests a minute of this tenant are used up"
            return MeterExceeded(told, retry_after=self._room(1, requests + 1 - limits.requests, now))
        if limits.tokens is not None and tokens + estimate > limits.tokens:
            told = f"{tokens} of {limits.tokens} tokens a minute of this tenant are used up, and this request has about"
            return MeterExceeded(
                f"{told} {estimate}", retry_after=self._room(2, tokens + estimate - limits.tokens, now)
            )
        return None

    def _room(self, column: int, excess: int, now: float) -> float | None:
        """Seconds until that much has become a minute old; None where even all of it would not do."""
        for slot in self.slots:
            excess -= int(slot[column])
            if excess <= 0:
                return max(slot[0] + MINUTE - now, 0.0)
        return None

    def plus(self, now: float, requests: int, tokens: int, usd: float = 0.0) -> Account:
        """With that much more; a negative number takes a reservation back from the slot of its time, while it is there.

        Times are rounded up to a slot, so that nothing is forgotten early.
        """
        time = slot_of(now)
        slots = {slot[0]: (slot[1], slot[2]) for slot in self.slots}
        held = slots.get(time)
        if held is not None or requests > 0 or tokens > 0:
            before = held or (0, 0)
            slots[time] = (max(before[0] + requests, 0), max(before[1] + tokens, 0))
        ordered = tuple((t, *slots[t]) for t in sorted(slots) if any(slots[t]))
        return Account(ordered, round(self.usd + usd, 6))

    def to_dict(self) -> dict[str, Any]:
        return {"slots": [list(slot) for slot in self.slots], "usd": self.usd}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Account:
        """KeyError, TypeError or ValueError for anything that `to_dict` did not make."""
        return cls(tuple((float(t), int(n), int(tokens)) for t, n, tokens in data["slots"]), float(data["usd"]))


def slot_of(now: float) -> float:
    return ceil(now / SLOT) * SLOT if now % SLOT else now


def quota(
    requests: int | None = None,
    tokens: int | None = None,
    max_cost_usd: float | None = None,
    *,
    store: Store | None = None,
    clock: Clock = time.time,
    name: str = "default",
) -> ChatMiddleware:
    """Chat middleware that holds each tenant to `requests` and `tokens` in any 60 seconds, to `max_cost_usd` in all.

    A call is refused with MeterExceeded before it runs: when the requests of the last minute are as many as allowed,
    when its estimated tokens and those already spent in that minute are more than allowed, or when the money spent is
    as much as allowed or more. Spent tokens are all that a model read and wrote, what came from its cache included.
    Stand it inside `retry`, so that each attempt counts as a request, and inside `memoize`, whose answers are free.

    Accounts are kept per scope and `name` in `store`, else in the run's own, where several processes share them; a run
    without a store has them in memory. Processes that share them need one clock, `time.time`. Where the store fails
    before a call, the call fails; where it fails after one, the answer is passed on, `quota.failed` is emitted and its
    tokens stay at the estimate.
    """
    if store is not None and not isinstance(store, Store):
        raise TypeError(f"store must be a Store, not {type(store).__name__}")
    if not isinstance(name, str):
        raise TypeError(f"name must be a str, not {type(name).__name__}")
    limits = Limits(requests, tokens, max_cost_usd)
    in_memory: dict[str, Account] = {}

    async def holding_to(call: ChatCall, proceed: ChatNext) -> AsyncIterator[Delta]:
        asked = call.request
        estimate = estimate_request_tokens(asked.messages, asked.tools or (), asked.response_format)
        book = _Book(_kept_in(store, call.ctx), _key(store, call.ctx, name), in_memory)
        began = clock()
        await book.change(lambda account: _admitted(account.at(began), limits, estimate, began))
        usage: Usage | None = None
        cached = False
        try:
            async for delta in proceed(call):
                usage = delta.usage or usage
                cached = cached or delta.cached
                yield delta
        finally:
            spent = Usage() if cached or usage is None else usage
            ended = clock()

            def settled(account: Account) -> Account:
                used = spent.prompt_tokens + spent.output_tokens
                freed = account.plus(began, -1 if cached else 0, -estimate)
                return freed.plus(ended, 0, used, spent.cost_usd).at(ended)

            try:
                await book.change(settled)
            except StoreError as error:
                call.ctx.emit("quota.failed", error=type(error).__name__)

    return holding_to


def _admitted(account: Account, limits: Limits, estimate: int, now: float) -> Account:
    refusal = account.refusal(limits, estimate, now)
    if refusal is not None:
        raise refusal
    return account.plus(now, 1, estimate)


def _kept_in(store: Store | None, ctx: Ctx) -> Store | None:
    return ctx.store if store is None else store


def _key(store: Store | None, ctx: Ctx, name: str) -> str:
    found = _kept_in(store, ctx)
    # Only the run's own view of a store puts this tenant's prefix in front by itself.
    own = getattr(found, "scope", None) == ctx.scope and hasattr(found, "prefix")
    return f"quota/{name}" if own else f"{ctx.scope.key()}/quota/{name}"


class _Book:
    """One tenant's account, in a store or in memory."""

    def __init__(self, store: Store | None, key: str, in_memory: dict[str, Account]) -> None:
        self._store, self._key, self._in_memory = store, key, in_memory

    async def change(self, step: Any) -> None:
        """Apply `step` to the account; what it raises leaves the account as it is."""
        if self._store is None:
            self._in_memory[self._key] = step(self._in_memory.get(self._key, Account()))
            return
        for attempt in range(ATTEMPTS):
            found = await self._store.versioned(self._key)
            before, version = (Account(), 0) if found is None else (self._read(found[0]), found[1])
            try:
                await self._store.compare_and_set(self._key, step(before).to_dict(), expected=version)
            except Conflict:
                if attempt + 1 == ATTEMPTS:
                    raise
            else:
                return

    def _read(self, value: Any) -> Account:
        try:
            return Account.from_dict(value)
        except (KeyError, TypeError, ValueError) as error:
            raise Corrupt(f"{self._key!r} holds no account of a quota: {error!r}", key=self._key) from error
