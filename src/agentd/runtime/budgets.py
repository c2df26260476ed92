"""What may be spent, and what was: stretches of time, limits and counters, as values. Touches only its arguments.

Money is counted in millionths of a US dollar, so that sums are exact.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from agentd.config import Settings
from agentd.config.thinking import Allowance, Window
from agentkit.core.contracts.errors import Corrupt

MICRO: Final = 1_000_000
_LENGTHS: Final = {"second": 1_000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000, "week": 604_800_000}
_MONDAY: Final = 4 * 86_400_000
"""The first Monday of the epoch, which began on a Thursday."""

LIFETIME: Final = "lifetime"
"""The meter of all that the instance ever spent."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Stretches of time one after the other, aligned to UTC, weeks from Monday; `later`: ms that they begin later."""

    per: str
    later: int = 0

    @property
    def length(self) -> int:
        return _LENGTHS[self.per]

    @property
    def name(self) -> str:
        return f"{self.per}+{self.later}ms" if self.later else self.per

    def start(self, now: int) -> int:
        """When the stretch began that `now` lies in; ms since the epoch, as everywhere."""
        offset = self.later + (_MONDAY if self.per == "week" else 0)
        return (now - offset) // self.length * self.length + offset


class Amount(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tokens, model calls and millionths of a dollar."""

    tokens: int = 0
    requests: int = 0
    usd: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.tokens + other.tokens, self.requests + other.requests, self.usd + other.usd)

    def __sub__(self, other: Amount) -> Amount:
        return Amount(self.tokens - other.tokens, self.requests - other.requests, self.usd - other.usd)


def micro(usd: float) -> int:
    """Dollars in millionths, rounded up."""
    return math.ceil(round(usd * MICRO, 3))


@dataclass(frozen=True, slots=True)
class Limit:
    """What one meter may come to, None for no limit of that kind. `stretch`: None where it never begins anew; `key`:
    where the operator set it."""

    meter: str
    key: str
    stretch: Stretch | None = None
    tokens: int | None = None
    requests: int | None = None
    usd: int | None = None

    def first(self, now: int) -> int:
        """When the stretch of `now` began; 0 where there are none."""
        return 0 if self.stretch is None else self.stretch.start(now)

    def shortage(self, amount: Amount) -> str | None:
        """The figure by which `amount` is over this limit, in words."""
        if self.tokens is not None and amount.tokens > self.tokens:
            return f"{amount.tokens:,} of {self.tokens:,} tokens"
        if self.requests is not None and amount.requests > self.requests:
            return f"{amount.requests:,} of {self.requests:,} requests"
        if self.usd is not None and amount.usd > self.usd:
            return f"{amount.usd / MICRO:,.4f} of {self.usd / MICRO:,.4f} USD"
        return None

    def used_up(self, amount: Amount) -> str | None:
        """The figure that leaves room for nothing more, in words."""
        if self.tokens is not None and amount.tokens >= self.tokens:
            return f"{amount.tokens:,} of {self.tokens:,} tokens"
        if self.requests is not None and amount.requests >= self.requests:
            return f"{amount.requests:,} of {self.requests:,} requests"
        if self.usd is not None and amount.usd >= self.usd:
            return f"{amount.usd / MICRO:,.4f} of {self.usd / MICRO:,.4f} USD"
        return None

    @property
    def is_free(self) -> bool:
        """Whether it limits nothing, and is there to be counted in."""
        return self.tokens is None and self.requests is None and self.usd is None

    @property
    def within(self) -> str:
        """The time that the limit is for, in words."""
        return "in all" if self.stretch is None else f"in each {self.stretch.per}"


class Counter(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was spent in the stretch that began at `start`, and what is set aside for calls under way. `kinds`: what
    was spent by kind of call, where that is kept."""

    start: int = 0
    spent: Amount = Amount()
    reserved: Amount = Amount()
    kinds: dict[str, Amount] = {}

    @property
    def total(self) -> Amount:
        return self.spent + self.reserved

    def at(self, stretch: Stretch | None, now: int) -> Counter:
        """The counter for the stretch that `now` lies in: this one, or a fresh one.

        A clock that is set back opens no stretch again: a counter of a later one counts. Not where it is more than a
        whole stretch ahead; the clock was wrong then, and what was spent counts now.
        """
        if stretch is None:
            return self
        start = stretch.start(now)
        if self.start < start:
            return Counter(start)
        if self.start - start > stretch.length:
            return msgspec.structs.replace(self, start=start)
        return self

    def reserve(self, amount: Amount) -> Counter:
        return msgspec.structs.replace(self, reserved=self.reserved + amount)

    def settle(self, reserved: Amount, spent: Amount, kind: str | None) -> Counter:
        """Take back what was set aside and count what it came to."""
        kinds = self.kinds
        if kind is not None:
            kinds = {**kinds, kind: kinds.get(kind, Amount()) + spent}
        return Counter(self.start, self.spent + spent, self.reserved - reserved, kinds)

    def taken_over(self, kind: str | None) -> Counter:
        """As a next life finds it: what was set aside counts as spent, since nobody knows what became of it."""
        if self.reserved == Amount():
            return self
        return self.settle(self.reserved, self.reserved, kind)

    def to_bytes(self) -> bytes:
        return msgspec.json.encode(self)


def counter_of(data: bytes, name: str) -> Counter:
    """The counter of a row. Raises Corrupt naming it."""
    try:
        return msgspec.json.decode(data, type=Counter)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Corrupt(f"the budget counter {name!r} cannot be read: {error}", key=name) from error


# Limits, from the settings


def shared_limits(settings: Settings) -> tuple[Limit, ...]:
    """The limits that hold for all calls together, narrowest first."""
    budget = settings.intelligence.budget
    windows = [
        _limit(window, stretch_of(window).name, f"intelligence.budget.windows[{at}]", stretch_of(window))
        for at, window in enumerate(budget.windows)
    ]
    windows.sort(key=lambda limit: limit.stretch.length if limit.stretch is not None else 0)
    lifetime = Limit(LIFETIME, "intelligence.budget.lifetime_tokens", tokens=budget.lifetime_tokens)
    return (*windows, lifetime)


def conversation_limit(settings: Settings, context: str) -> Limit | None:
    """What one conversation may spend; the root agent's own context is none."""
    given = settings.agent.conversation_budget
    return None if given is None else _limit(given, f"context.{_digest(context)}", "agent.conversation_budget")


def quota_limit(quota: Window, principal: str) -> Limit:
    """What one principal may spend."""
    stretch = stretch_of(quota)
    return _limit(quota, f"principal.{_digest(principal)}.{stretch.name}", "the sender's quota", stretch)


def quotas_of(settings: Settings) -> Callable[[str], Window | None]:
    """The quota of a principal by its id, which is that of its rule."""
    found = {rule.id: rule.quota for rule in settings.a2a.principals}
    return found.get


def stretch_of(window: Window) -> Stretch:
    later = 0 if window.reset is None else round(window.reset.total_seconds() * 1000)
    return Stretch(window.per, later)


def _limit(given: Allowance, meter: str, key: str, stretch: Stretch | None = None) -> Limit:
    usd = None if given.usd is None else int(round(given.usd * MICRO, 3))
    return Limit(meter, key, stretch, given.tokens, given.requests, usd)


def _digest(id: str) -> str:
    """An id of any length and any characters as part of a row's."""
    return hashlib.sha256(id.encode("utf-8", "surrogatepass")).hexdigest()[:32]
