"""`GenaiPrices`: prices of the long tail (Bedrock, Azure, OpenRouter and some forty other vendors) by the library
genai-prices, behind the same `quote` as the table of this package.

Reads the data that the installed library carries, on first use. Opens no connection: the library's updater is never
started, and what somebody else's updater fetched is not looked at, so that equal calls give equal answers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

from agentkit.core.contracts.errors import MissingExtraError
from agentkit.core.contracts.usage import Usage

from .compact import MODES, Line, Mode, Quote, Row, as_of

if TYPE_CHECKING:
    from decimal import Decimal

_CONTEXTS: dict[str, tuple[dict[str, str], ...]] = {
    "batch": ({"processing": "batch"},),
    "flex": ({"service_tier": "flex"},),
    "priority": ({"service_tier": "priority"},),
    "fast": ({"speed": "fast"}, {"service_tier": "fast"}),
}
"""How the library names our modes."""

_BEDROCK = re.compile(r"(?:[a-z-]+\.)?(?:ai21|amazon|anthropic|cohere|deepseek|meta|mistral|openai|qwen)\.")
"""Bedrock's own ids: a vendor's name and a dot, perhaps behind the one of a region."""

_NO_REGION = frozenset({"", "global", "not_available"})


class GenaiPrices:
    """Prices of the installed genai-prices. `provider`: the vendor that sells the models, by the library's name (`aws`,
    `azure`, `openrouter` ...); None takes it from the model's name: `vendor/model`, a Bedrock id, or the model's maker.

    Its counters include each other: input is fresh + read + write, writes include those at the long lifetime. Figures
    that exclude each other are a ValueError there. Raises MissingExtraError where the library is not installed.
    """

    def __init__(self, provider: str | None = None) -> None:
        if provider is not None and not isinstance(provider, str):
            raise TypeError(f"provider must be a str or None, not {type(provider).__name__}")
        try:
            from genai_prices import data, data_snapshot
        except ImportError as error:
            raise MissingExtraError("prices", "genai-prices", "a price outside the table") from error
        self._provider = provider
        self._snapshot = data_snapshot.DataSnapshot(providers=data.providers, from_auto_update=False)
        if provider is not None and data_snapshot.find_provider_by_id(data.providers, provider) is None:
            raise ValueError(f"genai-prices knows no provider {provider!r}")

    def quote(
        self,
        model: str | None,
        usage: Usage,
        *,
        at: datetime | date | None = None,
        mode: Mode = "standard",
        region: str | None = None,
    ) -> Quote:
        """The price of one request; arguments and result as those of `catalog.quote`.

        `at=None` is the date of this package's table, and a date without a time is noon UTC. `assumed` also names
        `region` wherever one is given, since the library has none apart from ids of their own, `peak` where the price
        depends on a time that was not given, and counters whose rate in that mode is not stated and is the usual one.
        """
        from decimal import Decimal

        if mode not in MODES:
            raise ValueError(f"mode must be one of {', '.join(MODES)}, not {mode!r}")
        if model is not None and not isinstance(model, str):
            raise TypeError(f"model must be a str or None, not {type(model).__name__}")
        found = None if model is None else self._find(model)
        if found is None:
            return Quote(Decimal(0), known=False, reason="unknown_model")
        provider, info = found
        when, has_time = _moment(at)
        offer = _offer(provider, info, mode, when)
        if offer is None:
            return Quote(Decimal(0), known=False, reason=f"no_mode:{mode}")
        context, stated = offer
        figures = inclusive(usage)
        # Their reckoning looks at the figures as a whole, and raises ValueError where they cannot be.
        prices = info.calc_price(
            figures, provider, genai_request_timestamp=when, price_context=context or None
        ).model_price
        lines, missing = _lines(prices, usage)
        assumed = {line.counter for line in lines if stated is not None and _FIELDS[line.counter] not in stated}
        if region is not None and region.lower() not in _NO_REGION:
            assumed.add("region")
        if not has_time and _depends_on_time(info):
            assumed.add("peak")
        return Quote(
            sum((line.usd for line in lines), Decimal(0)),
            known=not missing,
            reason=f"no_rate:{','.join(missing)}" if missing else None,
            lines=lines,
            row=_row(provider, info, when),
            assumed=tuple(sorted(assumed)),
            excluded=tuple(sorted(name for name, value in vars(prices).items() if value and name not in _TOKENS)),
        )

    def cost(
        self,
        model: str | None,
        usage: Usage,
        *,
        at: datetime | date | None = None,
        mode: Mode = "standard",
        region: str | None = None,
    ) -> float:
        """USD of one request, rounded to 6 decimals, as `catalog.cost` gives it: 0.0 for an unknown model too."""
        from decimal import Decimal

        return float(self.quote(model, usage, at=at, mode=mode, region=region).usd.quantize(Decimal("0.000001")))

    def _find(self, model: str) -> tuple[Any, Any] | None:
        for provider, name in self._readings(model):
            try:
                return self._snapshot.find_provider_model(name, None, provider, None)
            except LookupError:
                continue
        return None

    def _readings(self, model: str) -> Iterator[tuple[str | None, str]]:
        """(vendor, model) that a name may mean, in the order in which they are looked up."""
        if self._provider is not None:
            yield self._provider, model
            return
        vendor, slash, rest = model.partition("/")
        if slash and vendor and rest:
            yield vendor, rest
        elif _BEDROCK.match(model.lower()):
            yield "aws", model
        yield None, model


def inclusive(usage: Usage) -> Any:
    """The figures of `usage` in the library's form, each including those that are part of it."""
    from genai_prices import Usage as TheirUsage

    return TheirUsage(
        input_tokens=usage.prompt_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        cache_write_1h_tokens=min(usage.cache_write_long_tokens, usage.cache_write_tokens),
        output_tokens=usage.output_tokens,
        output_reasoning_tokens=min(usage.reasoning_tokens, usage.output_tokens),
    )


_FIELDS = {
    "input_tokens": "input_mtok",
    "output_tokens": "output_mtok",
    "reasoning_tokens": "output_reasoning_mtok",
    "cache_read_tokens": "cache_read_mtok",
    "cache_write_tokens": "cache_write_mtok",
    "cache_write_long_tokens": "cache_write_1h_mtok",
}
_TOKENS = frozenset(_FIELDS.values())


def _lines(prices: Any, usage: Usage) -> tuple[tuple[Line, ...], tuple[str, ...]]:
    """What is priced, and the counters that have tokens and no rate."""
    from genai_prices.types import calc_unit_price

    long = min(usage.cache_write_long_tokens, usage.cache_write_tokens)
    # Two models of the library have a rate for reasoning; everywhere else it is output like any other.
    thought = min(usage.reasoning_tokens, usage.output_tokens) if prices.output_reasoning_mtok is not None else 0
    counts = {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens - thought,
        "reasoning_tokens": thought,
        "cache_read_tokens": usage.cache_read_tokens,
        "cache_write_tokens": usage.cache_write_tokens - long,
        "cache_write_long_tokens": long,
    }
    lines: list[Line] = []
    missing: list[str] = []
    for counter, tokens in counts.items():
        if not tokens:
            continue
        price = getattr(prices, _FIELDS[counter])
        if price is None:
            missing.append(counter)
            continue
        rate: Decimal = calc_unit_price(price, 1_000_000, usage.prompt_tokens, 1_000_000)
        lines.append(Line(counter, tokens, rate, tokens * rate / 1_000_000))
    return tuple(lines), tuple(missing)


def _offer(provider: Any, info: Any, mode: str, when: datetime) -> tuple[dict[str, str], frozenset[str] | None] | None:
    """How to ask the library for a mode, and the prices that it states for it (None: those of the standard one); None
    where the model is not sold so."""
    if mode == "standard":
        return {}, None
    # A vendor that sells another's model at that one's usual price is not known to have its modes.
    if not any(info is model for model in provider.models):
        return None
    for context in _CONTEXTS[mode]:
        for variant in info.price_variants or ():
            if variant.when == context and (variant.constraint is None or variant.constraint.active(when)):
                return context, frozenset(name for name, value in vars(variant.prices).items() if value is not None)
    return None


def _depends_on_time(info: Any) -> bool:
    from genai_prices.types import TimeOfDateConstraint

    rows = info.prices if isinstance(info.prices, list) else []
    return any(isinstance(row.constraint, TimeOfDateConstraint) for row in rows)


def _row(provider: Any, info: Any, when: datetime) -> Row:
    from genai_prices import __version__
    from genai_prices.types import StartDateConstraint

    rows = info.prices if isinstance(info.prices, list) else []
    starts = sorted(r.constraint.start_date for r in rows if isinstance(r.constraint, StartDateConstraint))
    since = [start.isoformat() for start in starts if start <= when.date()]
    until = [start.isoformat() for start in starts if start > when.date()]
    source = next(iter(provider.pricing_urls or ()), "https://github.com/pydantic/genai-prices")
    return Row(
        f"{provider.id}/{info.id}",
        provider.id,
        since[-1] if since else None,
        until[0] if until else None,
        source,
        f"genai-prices {__version__}",
    )


def _moment(at: datetime | date | None) -> tuple[datetime, bool]:
    """When, in UTC, and whether a time was given."""
    if isinstance(at, datetime):
        return (at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)), True
    if at is None or isinstance(at, date):
        day = as_of() if at is None else at
        return datetime(day.year, day.month, day.day, 12, tzinfo=UTC), False
    raise TypeError(f"at must be a datetime, a date or None, not {type(at).__name__}")
