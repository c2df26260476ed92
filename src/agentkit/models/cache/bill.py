"""What a simulated request reads, writes and pays. Touches only its arguments, and the price table."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from typing import TYPE_CHECKING

from agentkit.core.contracts.usage import Usage

if TYPE_CHECKING:
    from agentkit.models.catalog.compact import Mode, Quote


@dataclass(frozen=True)
class Bill:
    """Disjoint token counts of one prompt. `write_short` and `write_long`: written at the default and at a longer
    lifetime. `hit`: the position (index of the block) up to which it was read, None for no read. `written`: positions
    at which an entry was stored. `ignored`: marks without effect, each with the reason (`below_minimum`, `over_limit`,
    `implicit_only`). `assumed`: fields of the rules that this rests on without a source.
    """

    read: int
    write_short: int
    write_long: int
    fresh: int
    hit: int | None = None
    written: tuple[int, ...] = ()
    ignored: tuple[tuple[int, str], ...] = ()
    assumed: tuple[str, ...] = ()

    @property
    def write(self) -> int:
        return self.write_short + self.write_long

    @property
    def prompt_tokens(self) -> int:
        return self.read + self.write + self.fresh

    def usage(self, output_tokens: int = 0) -> Usage:
        """The same as a provider would report it, in the normal form."""
        return Usage(
            self.fresh,
            output_tokens,
            cache_read_tokens=self.read,
            cache_write_tokens=self.write,
            cache_write_long_tokens=self.write_long,
        )

    def quote(
        self, model: str | None, *, at: datetime | date | None = None, output_tokens: int = 0, mode: Mode = "standard"
    ) -> Quote:
        """The price of the prompt, and of `output_tokens`; see `catalog.quote`. `known` is False without a price."""
        from agentkit.models.catalog.compact import quote

        return quote(model, self.usage(output_tokens), at=at, mode=mode)
