"""Whether an edit of what a provider's cache holds earns back what it costs. Touches only its arguments."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from math import inf
from typing import Protocol

_MILLION = 1_000_000


class PriceRates(Protocol):
    """USD per million tokens, None where the vendor names no rate: `agentkit.models.catalog.Rates` is one."""

    @property
    def input(self) -> Decimal | float: ...

    @property
    def read(self) -> Decimal | float | None: ...

    @property
    def write(self) -> Decimal | float | None: ...


@dataclass(frozen=True)
class Verdict:
    """`cost_now`: USD that the edit costs at once, below 0 where it saves at once. `saved_per_call`: USD by which each
    later call is cheaper, below 0 where it gets dearer. `break_even_calls`: from how many calls on it has paid; inf for
    never."""

    pays: bool
    cost_now: float
    saved_per_call: float
    break_even_calls: float


def pays(
    rates: PriceRates,
    behind: int,
    dropped: int,
    added: int,
    calls: float,
    extra_usd: float = 0.0,
    warm: bool = True,
) -> Verdict:
    """Whether removing `dropped` tokens pays within `calls` further calls.

    `behind`: tokens that stay behind the first edited place and are no longer read from the cache; `added`: tokens put
    in (placeholders, a summary); `extra_usd`: what making them cost. Warm: (w - r)(behind + added) + extra is paid now,
    r (dropped - added) is saved a call, with r and w the rates of a cache read and a write. Cold: everything is written
    anew anyway, so w (dropped - added) is saved at once. A vendor without a write fee writes at the input rate, one
    without a cache reads at it. Raises ValueError for a negative size.
    """
    for name, size in (("behind", behind), ("dropped", dropped), ("added", added), ("calls", calls)):
        if size < 0:
            raise ValueError(f"{name} must not be negative: {size}")
    plain = float(rates.input)
    read = plain if rates.read is None else float(rates.read)
    write = plain if rates.write is None else float(rates.write)
    saved = read * (dropped - added) / _MILLION
    if warm:
        cost = max(write - read, 0.0) * (behind + added) / _MILLION + extra_usd
    else:
        cost = extra_usd - write * (dropped - added) / _MILLION
    even = inf if saved <= 0 and cost >= 0 else 0.0 if cost <= 0 else cost / saved if saved > 0 else inf
    return Verdict(cost < saved * calls, cost, saved, even)
