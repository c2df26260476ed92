"""`Usage`: the tokens that one or several model calls took, in one normal form. Touches only its arguments."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, fields
from operator import attrgetter

from .checks import require_int


@dataclass(frozen=True)
class Usage:
    """Disjoint token counters of model calls, and their price in USD.

    `input_tokens` is fresh input only: what was read from or written to the prompt cache is in the other two counters.
    `cache_write_long_tokens` is the part of `cache_write_tokens` at the long lifetime (1h, 12h), `reasoning_tokens` the
    part of `output_tokens` that the model thought. Sums are fieldwise; the cost is rounded to 6 decimals.
    Raises TypeError for a counter that is no int, ValueError for a negative figure or a cost that is not finite.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cache_write_long_tokens: int = field(default=0, kw_only=True)
    reasoning_tokens: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        counters = _read_counters(self)
        if set(map(type, counters)) != {int} or min(counters) < 0:  # one look at all, since usages are many
            for name, value in zip(_COUNTERS, counters, strict=True):
                require_int(value, f"Usage.{name}")
                if value < 0:
                    raise ValueError(f"Usage.{name} must not be negative: {value}")
        cost = self.cost_usd
        if type(cost) is float and cost == 0:
            return
        if isinstance(cost, bool) or not isinstance(cost, (int, float)):
            raise TypeError(f"Usage.cost_usd must be a number, not {type(cost).__name__}")
        if not 0 <= cost <= sys.float_info.max:
            raise ValueError("Usage.cost_usd must be finite and not negative")
        object.__setattr__(self, "cost_usd", round(float(cost), 6))

    @property
    def total_tokens(self) -> int:
        """Fresh input and output."""
        return self.input_tokens + self.output_tokens

    @property
    def prompt_tokens(self) -> int:
        """All input that the provider saw: fresh, read from the cache, written to it."""
        return self.input_tokens + self.cache_read_tokens + self.cache_write_tokens

    def __add__(self, other: object) -> Usage:
        if not isinstance(other, Usage):
            return NotImplemented
        return Usage(
            *[getattr(self, f) + getattr(other, f) for f in _POSITIONAL],
            **{f: getattr(self, f) + getattr(other, f) for f in _NAMED},
        )


_POSITIONAL = ("input_tokens", "output_tokens", "cost_usd", "cache_read_tokens", "cache_write_tokens")
_NAMED = ("cache_write_long_tokens", "reasoning_tokens")
_COUNTERS = tuple(f.name for f in fields(Usage) if f.name != "cost_usd")
_read_counters = attrgetter(*_COUNTERS)
