"""What an operator decides about reduction, with the defaults; sizes in tokens. The configuration document is mapped
onto this."""

from __future__ import annotations

from dataclasses import dataclass

RULE_SHARE = 0.1
"""Part of the window that constraints may take in a rendered summary."""
PIN_SHARE = 0.1
"""Part of the window that all pinned entries together may take."""


@dataclass(frozen=True)
class Reduction:
    """When to reduce and what to spare. Where a size has a share beside it, the smaller of the two holds: the size, or
    that part of the window. Raises ValueError for thresholds that contradict each other."""

    compact_at: float = 0.7
    compact_to: float = 0.45
    keep_last: int = 12
    part_max: int = 16_000
    part_share: float = 0.2
    min_gain: float = 0.1
    horizon_turns: int = 12
    keep_user_tokens: int = 2_000
    keep_user_share: float = 0.05
    mask_keep_rounds: int = 6
    mask_min_gain: int = 8_000
    mask_share: float = 0.1
    mask_exempt: frozenset[str] = frozenset({"skills.load", "ask_human"})
    summary_tokens: int = 4_096
    reference_prefix: str = "@skill:"

    def __post_init__(self) -> None:
        if not 0 < self.compact_at <= 1:
            raise ValueError(f"compact_at must be above 0 and at most 1, not {self.compact_at}")
        if not 0 < self.compact_to < self.compact_at:
            raise ValueError(f"compact_to must be above 0 and below compact_at, not {self.compact_to}")
        if not 0 <= self.min_gain < 1:
            raise ValueError(f"min_gain must be at least 0 and below 1, not {self.min_gain}")
        for name in ("keep_last", "part_max", "horizon_turns", "keep_user_tokens", "mask_keep_rounds", "mask_min_gain",
                     "summary_tokens"):  # fmt: skip
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative: {getattr(self, name)}")
        object.__setattr__(self, "mask_exempt", frozenset(self.mask_exempt))

    def trigger(self, window: int) -> float:
        """The size of a request above which the context is reduced."""
        return self.compact_at * window

    def goal(self, window: int) -> int:
        """The size that a reduction aims at. Far below the trigger, so that the next one is not due at once."""
        return int(self.compact_to * window)

    def part_limit(self, window: int) -> int:
        return min(self.part_max, int(self.part_share * window))

    def user_room(self, window: int) -> int:
        return min(self.keep_user_tokens, int(self.keep_user_share * window))

    def mask_gain(self, window: int) -> int:
        return min(self.mask_min_gain, int(self.mask_share * window))

    def summary_room(self, window: int) -> int:
        """Tokens of a rendered summary; no more than a tenth of a small window."""
        return min(self.summary_tokens, window // 10)
