"""What a model call costs and how much a model takes. *Compact* means a compact price table here, not the folding of
a transcript.

Reads `prices.json` beside this file on first use; opens no connection and looks at no clock.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    # These, json and pathlib load on first use: a program that never asks for a price does not pay for them.
    from decimal import Context, Decimal

    from agentkit.core.contracts.usage import Usage

Mode: TypeAlias = Literal["standard", "batch", "flex", "priority", "fast"]
MODES = ("standard", "batch", "flex", "priority", "fast")
FIGURES = ("in", "out", "read", "write", "write_long")
"""The rates of a row in `prices.json`."""
DEFAULT_WINDOW = 128_000
"""Tokens assumed for a model that nobody knows: what most models of the last generations take at least."""


@dataclass(frozen=True)
class Row:
    """The row of the price table that a figure comes from.

    Valid from `since` on, before `until` (ISO dates in UTC; None = open). `source` is a vendor's page, `checked` the
    date on which the figures were last compared.
    """

    model: str
    provider: str
    since: str | None
    until: str | None
    source: str
    checked: str


@dataclass(frozen=True)
class Rates:
    """USD per million tokens; None where the vendor names no rate.

    `write` is the short lifetime (5m, 30m), `write_long` the long one (1h, 12h). `assumed` names fields of the table
    that no source settles.
    """

    input: Decimal
    output: Decimal
    read: Decimal | None
    write: Decimal | None
    write_long: Decimal | None
    row: Row
    assumed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Line:
    """`tokens` of one `Usage` counter at `rate` USD per million; `cache_write_tokens` stands for its short part."""

    counter: str
    tokens: int
    rate: Decimal
    usd: Decimal


@dataclass(frozen=True)
class Quote:
    """The exact price of one request. `known` False: `usd` holds what could be priced, and `reason` says what not.

    Reasons: `unknown_model`; `no_mode:<mode>` where the vendor sells the model without it; `no_rate:<counter>`, several
    joined by commas. `assumed` names what `usd` rests on without a source: a rate (`write_long`), `peak` (the time of
    day or a holiday), `region` (a surcharge), or a mode used before the date it was first seen. `excluded` names fees
    of the model that are not for tokens, or not for text.
    """

    usd: Decimal
    known: bool
    reason: str | None = None
    lines: tuple[Line, ...] = ()
    row: Row | None = None
    assumed: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()


@dataclass(frozen=True)
class Window:
    """Tokens that a prompt may have, and who said so: `declared`, `learned`, `catalogue` or `default`."""

    tokens: int
    source: str


def cost(
    model: str | None,
    usage: Usage,
    *,
    at: datetime | date | None = None,
    mode: Mode = "standard",
    region: str | None = None,
) -> float:
    """USD of one request, rounded to 6 decimals; 0.0 for an unknown model or None. Arguments as for `quote`.

    Not for sums (add the `usd` of quotes) and not for reports: 0.0 is also what an unknown model costs.
    """
    from decimal import Decimal

    usd = quote(model, usage, at=at, mode=mode, region=region).usd
    return float(usd.quantize(Decimal("0.000001"), context=_exact()))


def quote(
    model: str | None,
    usage: Usage,
    *,
    at: datetime | date | None = None,
    mode: Mode = "standard",
    region: str | None = None,
) -> Quote:
    """The exact price of one request, never a guess; see `Quote`.

    `usage` is that of a single request: a long prompt moves all its lines to the higher tier. `at` is when it was
    made (a naive time is UTC); None means the date of the table, so that equal calls give equal answers for ever.
    `mode` is how it was sold, `region` where the provider says it ran (`us`, `eu`; `global` is no region).
    Raises ValueError for a mode that does not exist, TypeError for a model that is no text.
    """
    from decimal import Decimal, localcontext

    found = _rates(model, at, mode, region, usage.prompt_tokens)
    if isinstance(found, str):
        return Quote(Decimal(0), known=False, reason=found)
    long = min(usage.cache_write_long_tokens, usage.cache_write_tokens)
    counts = (
        ("input_tokens", "in", usage.input_tokens, found.input),
        ("output_tokens", "out", usage.output_tokens, found.output),
        ("cache_read_tokens", "read", usage.cache_read_tokens, found.read),
        ("cache_write_tokens", "write", usage.cache_write_tokens - long, found.write),
        ("cache_write_long_tokens", "write_long", long, found.write_long),
    )
    with localcontext(_exact()):
        lines = tuple(
            Line(counter, tokens, rate, tokens * rate / 1_000_000)
            for counter, _, tokens, rate in counts
            if tokens and rate is not None
        )
        usd = sum((line.usd for line in lines), Decimal(0))
    missing = ",".join(counter for counter, _, tokens, rate in counts if tokens and rate is None)
    idle = {field for _, field, tokens, _ in counts if not tokens}
    return Quote(
        usd,
        known=not missing,
        reason=f"no_rate:{missing}" if missing else None,
        lines=lines,
        row=found.row,
        assumed=tuple(name for name in found.assumed if name not in idle),
        excluded=tuple(_table()["models"][found.row.model]["excluded"]),
    )


def rates(
    model: str | None,
    *,
    at: datetime | date | None = None,
    mode: Mode = "standard",
    region: str | None = None,
    prompt_tokens: int = 0,
) -> Rates | None:
    """What a request with a prompt of `prompt_tokens` pays; None where `quote` would know no rate at all."""
    found = _rates(model, at, mode, region, prompt_tokens)
    return None if isinstance(found, str) else found


def window(model: str | None) -> int | None:
    """Tokens that a prompt may have, or None where the table has no figure.

    Vendors that count the answer into the window advertise more: the room for an answer of full length is taken off.
    """
    entry = _entry(model)
    return None if entry is None else entry[1]["window"]


def resolve_window(
    model: str | None,
    *,
    declared: int | None = None,
    learned: int | None = None,
    default: int = DEFAULT_WINDOW,
) -> Window:
    """The first of: what the user declared, what a provider's refusal taught, the table, `default`.

    A table that overruled the user would be wrong for every local server and every proxy.
    Raises TypeError for a size that is no int, ValueError for one below 1.
    """
    sizes = (
        ("declared", declared),
        ("learned", learned),
        ("catalogue", window(model)),
        ("default", default),
    )
    for source, tokens in sizes:
        if tokens is not None and type(tokens) is not int:
            raise TypeError(f"resolve_window: {source} must be an int, not {type(tokens).__name__}")
        if tokens is not None and tokens < 1:
            raise ValueError(f"resolve_window: {source} must be at least 1: {tokens}")
    return next(Window(tokens, source) for source, tokens in sizes if tokens is not None)


def models() -> tuple[str, ...]:
    """The ids of the table, sorted; aliases are left out."""
    return tuple(sorted(_table()["models"]))


def as_of() -> date:
    """The date of the table, which is what `at=None` means."""
    return date.fromisoformat(_table()["generated"])


def _rates(
    model: str | None, at: datetime | date | None, mode: str, region: str | None, prompt_tokens: int
) -> Rates | str:
    """The rates, or the reason why there are none."""
    from decimal import Decimal, localcontext

    if mode not in MODES:
        raise ValueError(f"mode must be one of {', '.join(MODES)}, not {mode!r}")
    entry = _entry(model)
    if entry is None:
        return "unknown_model"
    name, facts = entry
    day, hour, weekday = _moment(at)
    # Rows are in order and leave no gap, so the last one that has begun is valid.
    row = next(row for row in reversed(facts["rows"]) if row["from"] is None or row["from"] <= day)
    figures = row_prices(row, mode, prompt_tokens)
    if figures is None:
        return f"no_mode:{mode}"
    assumed = {*row.get("assumed", ())} - {"peak"}
    if day < row.get("modes_since", {}).get(mode, ""):
        assumed.add(mode)
    with localcontext(_exact()):
        factor = Decimal(_peak(row, hour, weekday, assumed)) * Decimal(_surcharge(row, region, assumed))
        prices = {name: figure * factor for name, figure in figures.items()}
    return Rates(
        prices["in"],
        prices["out"],
        prices.get("read"),
        prices.get("write"),
        prices.get("write_long"),
        row=Row(name, facts["provider"], row["from"], row["until"], row["source"], row["checked"]),
        assumed=tuple(sorted(assumed)),
    )


def row_prices(row: dict[str, Any], mode: str, prompt_tokens: int) -> dict[str, Decimal] | None:
    """The figures of one row of `prices.json` in a mode, before peak hours and regions; None without that mode.

    A mode is a factor on everything (a text), or figures of its own (a mapping, with a tier of its own or none).
    """
    from decimal import Decimal, localcontext

    offer = "1" if mode == "standard" else row.get(mode)
    if offer is None:
        return None
    factor, figures = (Decimal(offer), row) if isinstance(offer, str) else (Decimal(1), offer)
    over = figures.get("over")
    if over and prompt_tokens > over["tokens"]:
        figures = over
    with localcontext(_exact()):
        return {name: Decimal(figures[name]) * factor for name in FIGURES if name in figures}


def _peak(row: dict[str, Any], hour: float | None, weekday: int, assumed: set[str]) -> str:
    """The factor of the time of day. Without a time it is off-peak, which is most of the day, and `assumed`."""
    peak = row.get("peak")
    if peak is None:
        return "1"
    if hour is None:
        assumed.add("peak")
        return "1"
    first, last = peak["days"].split("-")
    if not int(first) <= weekday <= int(last) or not any(start <= hour < end for start, end in peak["utc"]):
        return "1"
    if "peak" in row.get("assumed", ()):
        assumed.add("peak")
    factor: str = peak["x"]
    return factor


def _surcharge(row: dict[str, Any], region: str | None, assumed: set[str]) -> str:
    """The factor of the place. One without a price is charged as usual, and `assumed`."""
    if region is None or region.lower() in _NOWHERE:
        return "1"
    factor: str | None = row.get("regions", {}).get(region.lower())
    if factor is None:
        assumed.add("region")
    return factor or "1"


_NOWHERE = frozenset({"", "global", "not_available"})
"""What providers report where the place of the work sets no price."""


def _moment(at: datetime | date | None) -> tuple[str, float | None, int]:
    """ISO date, hour of the day (None without a time) and ISO weekday, in UTC."""
    if at is None:
        at = as_of()
    if isinstance(at, datetime):
        at = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
        return at.date().isoformat(), at.hour + at.minute / 60, at.isoweekday()
    if isinstance(at, date):
        return at.isoformat(), None, at.isoweekday()
    raise TypeError(f"at must be a datetime, a date or None, not {type(at).__name__}")


_DATE = re.compile(r"-20[0-9]{2}(?:[01][0-9][0-3][0-9]|-[01][0-9]-[0-3][0-9])\Z")


def _entry(model: str | None) -> tuple[str, dict[str, Any]] | None:
    """Id and entry by the name in lower case: as it is, without one `vendor/`, without a date, without both."""
    if model is None:
        return None
    if not isinstance(model, str):
        raise TypeError(f"model must be a str or None, not {type(model).__name__}")
    return _named(model)


@lru_cache(256)
def _named(model: str) -> tuple[str, dict[str, Any]] | None:
    table = _table()
    name = model.lower()
    bare = name.partition("/")[2] or name
    for candidate in (name, bare, _DATE.sub("", name), _DATE.sub("", bare)):
        found = table["names"].get(candidate)
        if found is not None:
            return found, table["models"][found]
    return None


@cache
def _table() -> dict[str, Any]:
    """`prices.json`, and under `names` the id that every id and alias leads to."""
    import json
    from pathlib import Path

    table: dict[str, Any] = json.loads(Path(__file__).with_name("prices.json").read_bytes())
    table["names"] = {name: model for model, facts in table["models"].items() for name in (model, *facts["aliases"])}
    return table


@cache
def _exact() -> Context:
    """Precision for any count, whatever the caller's thread has set. It is only copied or passed, so it is shared."""
    from decimal import Context

    return Context(prec=100)
