"""`Cost`: a sum in USD that never passes for 0 what has no price. Touches only its arguments."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal


@dataclass(frozen=True)
class Cost:
    """USD of one or several responses. `priced` of `responses` have a price for all their tokens; `usd` is the sum of
    what could be priced, None when nothing could. `reasons` say why not, as `catalog.Quote` names them."""

    usd: Decimal | None = None
    priced: int = 0
    responses: int = 0
    reasons: tuple[str, ...] = ()

    @property
    def is_known(self) -> bool:
        """Whether `usd` is the whole cost."""
        return self.responses > 0 and self.priced == self.responses

    def __add__(self, other: Cost) -> Cost:
        known = [usd for usd in (self.usd, other.usd) if usd is not None]
        return Cost(
            sum(known, Decimal(0)) if known else None,
            self.priced + other.priced,
            self.responses + other.responses,
            tuple(dict.fromkeys((*self.reasons, *other.reasons))),
        )
