"""A request as a provider's prompt cache sees it: a row of blocks in the order of the key. Touches only its
arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Any

from agentkit.core.contracts.checks import require_int

TIERS = ("tools", "system", "messages")
"""Parts of a request in the order in which they go into the key."""
_PLACES = {tier: place for place, tier in enumerate(TIERS)}


@dataclass(frozen=True)
class Block:
    """One position of the cache: a tool, a system block or a content block.

    `tier`: tools, system or messages. `digest`: of the bytes sent, marks taken out. `tokens`: its size. `mark`: the
    name of the lifetime asked for here (`5m`, `1h`, `30m`, `12h`), None without a mark. `ends`: the role of the message
    that ends here. For `explain` only, and no part of the key: `text`, the bytes that `digest` stands for, and `kind`:
    text, thinking, call, result, tool, summary, grounding, media or nothing.
    """

    tier: str
    digest: str
    tokens: int
    mark: str | None = None
    ends: str | None = None
    text: str = field(default="", kw_only=True, repr=False, compare=False)
    kind: str = field(default="", kw_only=True, compare=False)

    def __post_init__(self) -> None:
        if self.tier not in _PLACES:
            raise ValueError(f"Block.tier must be one of {', '.join(TIERS)}, not {self.tier!r}")
        if type(self.tokens) is not int:
            require_int(self.tokens, "Block.tokens")
        if self.tokens < 0:
            raise ValueError(f"Block.tokens must not be negative: {self.tokens}")


@dataclass(frozen=True)
class Prompt:
    """One request. `scope`: what its entries are never shared across (organisation, workspace, cache key), as one text.

    `settings`: those that a provider's rules name, in plain values; one left out equals its default. `mode`: implicit
    or explicit, for providers that tell the two apart. `version`: the version of the context it was made from, where
    that is known; `explain` tells a compaction by it. Raises ValueError for blocks that are out of order.
    """

    model: str
    blocks: tuple[Block, ...]
    scope: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    mode: str = "implicit"
    version: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "blocks", tuple(self.blocks))
        if self.mode not in ("implicit", "explicit"):
            raise ValueError(f"Prompt.mode must be implicit or explicit, not {self.mode!r}")
        order = [_PLACES[block.tier] for block in self.blocks]
        if order != sorted(order):
            at = next(n for n in range(1, len(order)) if order[n] < order[n - 1])
            raise ValueError(f"block {at} ({self.blocks[at].tier}) stands behind one of {self.blocks[at - 1].tier}")

    @cached_property
    def sums(self) -> tuple[int, ...]:
        """Tokens up to and including each block."""
        return tuple(accumulate([block.tokens for block in self.blocks]))

    @property
    def tokens(self) -> int:
        """Tokens of the whole request."""
        return self.sums[-1] if self.blocks else 0
