"""Writes the price table of agentkit.models.catalog again and compares it with other tables. For maintainers.

Needs agentkit and, installed for this run only, `pip install genai-prices==0.2.3 model-prices==0.0.5`. `--litellm FILE`
adds litellm's table, read out of its wheel (`pip download --no-deps litellm`) or from its JSON file: importing the
package would ask the network. Without it, windows stay where they would grow. Reads and writes files only, and looks
at the clock for the date of the table.

genai-prices is the origin of every figure. Where another table, or a vendor, says otherwise, an entry of
`price_exceptions.json` has to name the winner and the vendor's page; until then nothing is written and the exit
status is 1. Start dates are not compared: the tables date a change by when they heard of it.
"""

from __future__ import annotations

import argparse
import fnmatch
import importlib
import json
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar

from agentkit.models.catalog import compact

FOLDER = Path(__file__).resolve().parent.parent / "src" / "agentkit" / "models" / "catalog"
LITELLM_MEMBER = "litellm/model_prices_and_context_window_backup.json"
FIELDS = {"in": "input", "out": "output", "read": "cache_read", "write": "cache_write", "write_long": "cache_write_1h"}
MODES = {
    "batch": ("processing", "batch"),
    "flex": ("service_tier", "flex"),
    "priority": ("service_tier", "priority"),
    "fast": ("service_tier", "fast"),
}
ORDER = ("from", "until", *FIELDS, "over", "peak", *MODES, "modes_since", "regions", "assumed", "source", "checked")
SPEED = ("speed", "fast")
# What a usage of text tokens cannot show, by the unit that genai-prices has for it.
FEES = {
    "web_searches_kcount": "web_search",
    "storage_searches_kcount": "file_search",
    "input_audio_mtok": "audio",
}


@dataclass(frozen=True)
class Vendor:
    """Where a vendor's models are found in each table; `page` is the source of its rows."""

    name: str
    page: str
    genai: str
    model_prices: str | None
    litellm: str


VENDORS = {
    "anthropic": Vendor(
        "anthropic", "https://platform.claude.com/docs/en/about-claude/pricing", "anthropic", "anthropic", ""
    ),
    "openai": Vendor("openai", "https://developers.openai.com/api/docs/pricing", "openai", "openai", ""),
    "google": Vendor("google", "https://ai.google.dev/gemini-api/docs/pricing", "google", "google", "gemini/"),
    "deepseek": Vendor(
        "deepseek", "https://api-docs.deepseek.com/quick_start/pricing", "deepseek", "deepseek", "deepseek/"
    ),
    "xai": Vendor("xai", "https://docs.x.ai/developers/pricing", "x-ai", "xai", "xai/"),
    "mistral": Vendor("mistral", "https://mistral.ai/pricing/api", "mistral", "mistral", "mistral/"),
    "groq": Vendor("groq", "https://console.groq.com/docs/models", "groq", None, "groq/"),
    "moonshotai": Vendor(
        "moonshotai", "https://platform.kimi.ai/docs/pricing/chat.md", "moonshotai", "moonshotai", "moonshot/"
    ),
}


@dataclass(frozen=True)
class Pick:
    """One model of the table: its id here, its id in genai-prices and in the others, and its further names."""

    vendor: str
    id: str
    genai: str = ""
    other: str = ""
    aliases: tuple[str, ...] = ()


def dotted(*ids: str) -> Iterator[Pick]:
    """Claude models, which people also write with a dot in the version."""
    for name in ids:
        head, _, tail = name.rpartition("-")
        yield Pick("anthropic", name, aliases=(f"{head}.{tail}",))


def plain(vendor: str, *ids: str) -> Iterator[Pick]:
    for name in ids:
        yield Pick(vendor, name)


# The current and the last generation of each vendor, and every model of the sample transcripts. A model sold by several
# vendors under one name stands under a name that only one of them has, or its price would be a guess.
PICKS = (
    *dotted("claude-opus-5-5", "claude-sonnet-5-5", "claude-haiku-5-5", "claude-fable-5-2", "claude-fable-5-1"),
    *dotted("claude-mythos-5-2", "claude-opus-4-8", "claude-opus-4-7", "claude-opus-4-6", "claude-opus-4-5"),
    *dotted("claude-opus-4-1", "claude-sonnet-4-6", "claude-sonnet-4-5", "claude-haiku-4-5"),
    *plain("anthropic", "claude-opus-5", "claude-sonnet-5", "claude-fable-5"),
    # The same models under the name of their limited release, at the same prices: the comparison holds them to it.
    Pick("anthropic", "claude-mythos-5-1", genai="claude-fable-5-1", aliases=("claude-mythos-5.1",)),
    Pick("anthropic", "claude-mythos-5", genai="claude-fable-5"),
    Pick("anthropic", "claude-opus-4-0", aliases=("claude-opus-4",)),
    Pick("anthropic", "claude-sonnet-4-0", aliases=("claude-sonnet-4",)),
    Pick(
        "anthropic",
        "claude-3-7-sonnet",
        genai="claude-3-7-sonnet-latest",
        other="claude-3-7-sonnet-20250219",
        aliases=("claude-3-7-sonnet-latest", "claude-3.7-sonnet"),
    ),
    Pick(
        "anthropic",
        "claude-3-5-sonnet",
        other="claude-3-5-sonnet-20241022",
        aliases=("claude-3-5-sonnet-latest", "claude-3.5-sonnet"),
    ),
    Pick(
        "anthropic",
        "claude-3-5-haiku",
        genai="claude-3-5-haiku-latest",
        other="claude-3-5-haiku-20241022",
        aliases=("claude-3-5-haiku-latest", "claude-3.5-haiku"),
    ),
    *plain("openai", "gpt-6.1-sol", "gpt-6.1-terra", "gpt-6-astra", "gpt-6-sol", "gpt-6-luna"),
    Pick("openai", "gpt-5.6-sol", aliases=("gpt-5.6",)),
    *plain("openai", "gpt-5.6-terra", "gpt-5.6-luna", "gpt-5.5", "gpt-5.5-pro", "gpt-5.4", "gpt-5.4-mini"),
    *plain("openai", "gpt-5.4-nano", "gpt-5.4-pro", "gpt-5.3-codex", "gpt-5.1-codex-mini", "gpt-5-mini", "gpt-5-nano"),
    Pick("openai", "gpt-5.2", aliases=("gpt-5.2-codex",)),
    Pick("openai", "gpt-5.1", aliases=("gpt-5.1-codex", "gpt-5.1-codex-max")),
    Pick("openai", "gpt-5", aliases=("gpt-5-codex",)),
    # The first snapshot of gpt-4o costs twice the later ones, so it may not be found by taking its date off.
    *plain("openai", "gpt-4.1", "gpt-4.1-mini", "gpt-4.1-nano", "gpt-4o", "gpt-4o-2024-05-13"),
    *plain("openai", "gpt-4o-mini", "o1", "o3", "o3-mini", "o4-mini"),
    *plain("google", "gemini-4-argon", "gemini-3.8-flash", "gemini-3.7-flash", "gemini-3.6-flash"),
    *plain("google", "gemini-3.5-flash", "gemini-3.5-flash-lite", "gemini-3.1-pro-preview"),
    *plain("google", "gemini-3.1-flash-lite", "gemini-3-flash-preview", "gemini-2.5-pro", "gemini-2.5-flash"),
    *plain("google", "gemini-2.5-flash-lite"),
    Pick("deepseek", "deepseek-flash", aliases=("deepseek-v4.1-flash",)),
    *plain("deepseek", "deepseek-v4-flash", "deepseek-v4-pro"),
    *plain("xai", "grok-4.7", "grok-4.6", "grok-4.5", "grok-4.3"),
    Pick(
        "xai",
        "grok-4.20",
        other="grok-4.20-0309-reasoning",
        aliases=("grok-4.20-0309-reasoning", "grok-4.20-0309-non-reasoning"),
    ),
    Pick("mistral", "mistral-large-4", aliases=("mistral-large-4-0",)),
    Pick("mistral", "mistral-medium-3-5", other="mistral-medium-2604", aliases=("mistral-medium-2604",)),
    *plain("mistral", "mistral-large-2512", "mistral-medium-latest", "mistral-small-2603", "mistral-small-latest"),
    *plain("mistral", "codestral-2508", "ministral-14b-2512", "ministral-8b-2512", "ministral-3b-2512"),
    Pick("groq", "groq/openai/gpt-oss-120b", genai="openai/gpt-oss-120b", other="openai/gpt-oss-120b"),
    Pick("groq", "groq/openai/gpt-oss-20b", genai="openai/gpt-oss-20b", other="openai/gpt-oss-20b"),
    *plain("moonshotai", "kimi-k3.1-pro", "kimi-k3", "kimi-k2.6", "kimi-k2.5"),
)


Row = dict[str, Any]


@dataclass
class Exceptions:
    """`price_exceptions.json`: who is right where tables disagree. Remembers which entries were needed."""

    entries: list[dict[str, Any]]
    used: set[int] = field(default_factory=set)

    def changes(self, model: str) -> Iterator[dict[str, Any]]:
        """Entries that change a row of `model`."""
        for number, entry in enumerate(self.entries):
            if "set" in entry and _matches(model, entry["models"]):
                self.used.add(number)
                yield entry

    def settles(self, difference: Difference) -> bool:
        for number, entry in enumerate(self.entries):
            if (
                _matches(difference.model, entry["models"])
                and _matches(difference.field, entry["fields"])
                and difference.table in entry.get("against", difference.table)
                and (entry.get("from") or "") <= difference.day < (entry.get("until") or "9999")
            ):
                self.used.add(number)
                return True
        return False


@dataclass(frozen=True)
class Difference:
    """A figure on which another table disagrees. `field` is `read`, `over.read`, `batch.read`, `batch.over.read` ..."""

    model: str
    field: str
    day: str
    ours: Decimal | None
    table: str
    theirs: Decimal | None


def _matches(name: str, patterns: list[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def main() -> int:
    """Writes the table, or prints every open disagreement and leaves it as it is."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--litellm", type=Path, help="litellm's wheel or JSON file")
    parser.add_argument("--date", type=date.fromisoformat, default=datetime.now(UTC).date(), help="of the table")
    options = parser.parse_args()
    today = options.date.isoformat()
    exceptions = Exceptions(json.loads((FOLDER / "price_exceptions.json").read_text(encoding="utf-8")))
    others = [ModelPrices()] + ([LiteLLM(options.litellm)] if options.litellm else [])
    old = {} if options.litellm else json.loads((FOLDER / "prices.json").read_bytes())["models"]
    models = {pick.id: entry(pick, exceptions, others, today, old.get(pick.id)) for pick in PICKS}
    notes: set[str] = set()
    differences = [
        difference
        for pick in PICKS
        for other in others
        for difference in compare(pick, models[pick.id], other, options.date, notes)
        if not exceptions.settles(difference)
    ]
    for number, item in enumerate(exceptions.entries):
        if number not in exceptions.used:
            print(f"settles nothing: {item['models']} {item['fields']}")
    print(*sorted(notes), sep="\n")
    alone = sorted(pick.id for pick in PICKS if not any(other.knows(pick) for other in others))
    print(f"no second table has: {', '.join(alone) or 'none'}")
    for each in differences:
        print(f"{each.model} {each.field} on {each.day}: {each.ours}, but {each.table} has {each.theirs}")
    if differences:
        print(f"{len(differences)} open disagreements: name the winner and its page in price_exceptions.json")
        return 1
    source = f"{_version('genai-prices')}, compared with {' and '.join(other.version for other in others)}"
    (FOLDER / "prices.json").write_text(render(today, source, models), encoding="utf-8")
    return 0


def entry(
    pick: Pick, exceptions: Exceptions, others: list[Any], today: str, old: dict[str, Any] | None
) -> dict[str, Any]:
    """One model of the table: the rows of genai-prices, changed by the exceptions. `old` bounds the window."""
    vendor = VENDORS[pick.vendor]
    info = _genai(vendor.genai, pick.genai or pick.id)
    fees: set[str] = set()
    rows = [
        {**row, "source": vendor.page, "checked": today} for row in rows_of(info, fees, others[0].batch_since(pick))
    ]
    # The smallest figure: some tables hold what a prompt may have, some count the room for the answer in.
    windows = [info.context_window, *(other.window(pick) for other in others), old and old["window"]]
    facts: dict[str, Any] = {
        "provider": vendor.name,
        "aliases": sorted(pick.aliases),
        "window": min((size for size in windows if size), default=None),
        "excluded": sorted(fees),
        "rows": rows,
    }
    for change in exceptions.changes(pick.id):
        apply(change, facts)
    if any("TimeOfDate" in type(each.constraint).__name__ for each in _prices(info)) and not any(
        "peak" in row for row in facts["rows"]
    ):
        raise SystemExit(f"{pick.id} has prices by the hour: say when in price_exceptions.json")
    return facts


def _genai(provider: str, model: str) -> Any:
    snapshot = importlib.import_module("genai_prices.data_snapshot").get_snapshot()
    for each in snapshot.providers:
        if each.id == provider:
            return next(info for info in each.models if info.id == model)
    raise SystemExit(f"genai-prices has no provider {provider}")


def _prices(info: Any) -> list[Any]:
    """Conditional prices, also of a model with only one price."""
    if isinstance(info.prices, list):
        return info.prices
    return [importlib.import_module("genai_prices.types").ConditionalPrice(prices=info.prices)]


def rows_of(info: Any, fees: set[str], batch_since: str | None) -> list[Row]:
    """Dated rows of a model in genai-prices, oldest first. Prices by the hour are left to the exceptions."""
    begun: dict[str | None, Any] = {
        start: each.prices for each in _prices(info) if (start := _start(each.constraint)) != "hours"
    }
    starts = sorted(begun, key=lambda start: start or "")
    rows: list[Row] = []
    for start in starts:
        fees.update(FEES[unit] for unit in begun[start].__dict__ if unit in FEES)
        found = figures(begun[start])
        # A change of a fee alone is none here.
        if rows and rows[-1] == {"from": rows[-1]["from"], "until": None, **found}:
            continue
        if rows:
            rows[-1]["until"] = start
        rows.append({"from": start, "until": None, **found})
    for mode, when in MODES.items():
        offers: list[tuple[str | None, Any]] = [
            (_start(variant.constraint), variant.prices)
            for variant in info.price_variants or ()
            if variant.when in ({when[0]: when[1]}, {SPEED[0]: SPEED[1]} if mode == "fast" else None)
        ]
        if offers:
            add_mode(rows, mode, offers, batch_since if mode == "batch" else None)
    return rows


def _start(constraint: Any) -> str | None:
    if constraint is None:
        return None
    return constraint.start_date.isoformat() if hasattr(constraint, "start_date") else "hours"


def figures(price: Any) -> Row:
    """`in`, `out` ... and `over` of one price of genai-prices, as texts."""
    found: dict[str, Any] = {name: getattr(price, f"{unit}_mtok", None) for name, unit in FIELDS.items()}
    found = {name: value for name, value in found.items() if value is not None}
    starts = {tier.start for value in found.values() for tier in getattr(value, "tiers", ())}
    row: Row = {name: _text(getattr(value, "base", value)) for name, value in found.items()}
    if len(starts) > 1:
        raise SystemExit(f"more than one tier: {starts}")
    for start in starts:
        row["over"] = {"tokens": start} | {
            name: _text(value.tiers[0].price if getattr(value, "tiers", None) else value)
            for name, value in found.items()
        }
    return row


def _text(value: Decimal) -> str:
    return f"{value.normalize():f}"


def add_mode(rows: list[Row], mode: str, offers: list[tuple[str | None, Any]], known_since: str | None) -> None:
    """Puts the offer of a mode into every row that it fits: a factor where it is one, else figures of its own.

    An offer is dated by when somebody looked. A factor is taken for older rows too, with that date in `modes_since`;
    figures of their own say nothing about older prices.
    """
    seen = min(start or "" for start, _ in offers)
    factor: str | None = None
    for row in reversed(rows):
        probe = max(row["from"] or "", seen)
        if row["until"] is None or probe < row["until"]:
            # As genai-prices resolves them: the first offer that has begun, over the standard price.
            own = next(prices for start, prices in offers if (start or "") <= probe)
            offer = merged(row, figures(own))
            factor = as_factor(row, offer)
            row[mode] = factor if factor is not None else offer
        elif factor is not None:
            row[mode] = factor
        since = min(seen, known_since) if known_since is not None else seen
        if mode in row and (row["from"] or "") < since:
            row.setdefault("modes_since", {})[mode] = since


def merged(row: Row, offer: Row) -> Row:
    """What the offer leaves out costs as usual, in the tier too."""
    whole = {name: offer.get(name, row[name]) for name in FIELDS if name in row}
    if "over" in offer:
        over = row.get("over", {}) | offer["over"]
        whole["over"] = over
    elif "over" in row and any(name not in offer for name in FIELDS if name in row):
        # An offer with the same price at every length has no tier; one that names only some prices keeps the others'.
        whole["over"] = row["over"] | {name: offer[name] for name in FIELDS if name in offer}
    return whole


def as_factor(row: Row, offer: Row) -> str | None:
    """The one factor that leads from the row's figures to the offer's, if there is one."""
    if ("over" in row) != ("over" in offer):
        return None
    pairs = [(row[name], offer[name]) for name in FIELDS if name in row]
    if "over" in row:
        pairs += [(row["over"][name], offer["over"][name]) for name in FIELDS if name in row]
    factors = {Fraction(b) / Fraction(a) for a, b in pairs}
    factor = factors.pop()
    # A third has no end in decimals, and a rounded factor would be wrong in every sum.
    as_decimal = Decimal(factor.numerator) / Decimal(factor.denominator)
    return _text(as_decimal) if not factors and Fraction(as_decimal) == factor else None


def apply(change: dict[str, Any], facts: dict[str, Any]) -> None:
    """Sets figures of a model between two dates; rows are split where the change begins or ends."""
    values = dict(change["set"])
    facts["window"] = values.pop("window", facts["window"])
    facts["excluded"] = sorted({*facts["excluded"], *values.pop("excluded", ())})
    start, until = change.get("from"), change.get("until")
    for day in (start, until):
        for number, row in enumerate(facts["rows"]):
            if day is not None and (row["from"] or "") < day < (row["until"] or "9999"):
                facts["rows"][number : number + 1] = [{**row, "until": day}, {**row, "from": day}]
    for row in facts["rows"]:
        if (row["from"] or "") < (start or "") or (row["until"] or "9999") > (until or "9999"):
            continue
        for name, value in values.items():
            set_value(row, name, value)


def set_value(row: Row, name: str, value: Any) -> None:
    """None takes a field away; `{"times": x, "of": field}` makes a figure of another one, in the tier too."""
    if value is None:
        row.pop(name, None)
    elif name == "assumed":
        row[name] = sorted({*row.get(name, ()), *value})
    elif name == "modes_since":
        row[name] = row.get(name, {}) | value
    elif isinstance(value, dict) and "times" in value:
        if any(isinstance(row.get(mode), dict) for mode in MODES):
            raise SystemExit(f"{name} would be missing in a mode with figures of its own")
        for part in (row, *([row["over"]] if "over" in row else [])):
            part[name] = _text(Decimal(part[value["of"]]) * Decimal(value["times"]))
    else:
        row[name] = value


class ModelPrices:
    """The table of the package model-prices, by its own rules; it knows batch and fast, in history too."""

    name = "model-prices"
    modes = ("standard", "batch", "fast")

    def __init__(self) -> None:
        self.package = importlib.import_module("model_prices")
        self.version = _version(self.name)

    def _place(self, pick: Pick) -> tuple[str, str] | None:
        lab = VENDORS[pick.vendor].model_prices
        return self.package.resolve(pick.other or pick.id, provider=lab, strict=True) if lab else None

    def knows(self, pick: Pick) -> bool:
        return self._place(pick) is not None

    def window(self, pick: Pick) -> None:
        return None

    def batch_since(self, pick: Pick) -> str | None:
        """Since when a batch costs less; empty if for as long as the model has been sold, None if not known."""
        place = self._place(pick)
        timelines = self.package._data()["prices"][place[0]][place[1]] if place else {}
        starts = [each["start"][:10] for each in timelines.get("batch", []) if each["rates"] and each["start"]]
        if not starts:
            return None
        sold = timelines["standard"][0]["rates"]["valid_from"][:10]
        return "" if min(starts) <= sold else min(starts)

    def prices(self, pick: Pick, mode: str, moment: datetime) -> Row | None:
        place = self._place(pick)
        found = place and self.package.rates(
            place[1], provider=place[0], at=moment, mode=None if mode == "standard" else mode
        )
        if not found:
            return None
        multiple = found.cache_write_1h_multiple
        row = self._figures(found, multiple)
        for tier in found.tiers:
            over = row | self._figures(tier, multiple)
            # Some tiers of this table change nothing.
            if over != row:
                row["over"] = {"tokens": Decimal(tier.above)} | over
        return row

    def _figures(self, found: Any, long: float | None) -> Row:
        row = {
            name: _round(value) for name, unit in FIELDS.items() if (value := getattr(found, unit, None)) is not None
        }
        if long is not None and "write" in row:
            row["write_long"] = row["in"] * Decimal(str(long))
        return row


class LiteLLM:
    """litellm's JSON table: current prices only. It leaves much out, so what it lacks is no disagreement."""

    name = "litellm"
    modes = ("standard", "batch", "flex", "priority", "fast")
    keys: ClassVar = {
        "in": "input_cost_per_token",
        "out": "output_cost_per_token",
        "read": "cache_read_input_token_cost",
        "write": "cache_creation_input_token_cost",
    }

    def __init__(self, path: Path) -> None:
        data = zipfile.ZipFile(path).read(LITELLM_MEMBER) if path.suffix == ".whl" else path.read_bytes()
        self.models: dict[str, Any] = json.loads(data, parse_float=Decimal)
        self.version = path.name.removesuffix(".whl").split("-cp")[0].replace("-", " ")

    def _facts(self, pick: Pick) -> dict[str, Any] | None:
        for name in (pick.other, pick.id):
            found: dict[str, Any] | None = (
                self.models.get(VENDORS[pick.vendor].litellm + name.removeprefix("groq/")) if name else None
            )
            if found:
                return found
        return None

    def knows(self, pick: Pick) -> bool:
        return self._facts(pick) is not None

    def window(self, pick: Pick) -> int | None:
        return (self._facts(pick) or {}).get("max_input_tokens")

    def prices(self, pick: Pick, mode: str, moment: datetime) -> Row | None:
        facts = self._facts(pick)
        # Where prices change by the hour, its plain figures are those of the peak.
        if facts is None or "off_peak_pricing" in facts:
            return None
        if mode == "fast":
            factor = facts.get("provider_specific_entry", {}).get("fast")
            row = self.prices(pick, "standard", moment) if factor else None
            return row and {name: value * factor for name, value in row.items() if name != "over"}
        suffix = {"standard": "", "batch": "_batches"}.get(mode, f"_{mode}")
        row = self._figures(facts, suffix)
        for size in ("100k", "200k", "272k"):
            over = self._figures(facts, f"_above_{size}_tokens{suffix}")
            if over:
                row["over"] = {"tokens": Decimal(size[:-1]) * 1000} | over
        return row or None

    def _figures(self, facts: dict[str, Any], suffix: str) -> Row:
        keys = {name: key + suffix for name, key in self.keys.items()}
        for hours in ("1hr", "12hr"):
            if f"{self.keys['write']}_above_{hours}{suffix}" in facts:
                keys["write_long"] = f"{self.keys['write']}_above_{hours}{suffix}"
        # Zero is its way to say that nothing is charged on top of the input.
        return {name: _round(facts[key] * 1_000_000) for name, key in keys.items() if facts.get(key)}


def _round(value: float | Decimal) -> Decimal:
    """Without the noise of binary fractions."""
    return round(Decimal(str(value)), 9).normalize()


def compare(
    pick: Pick, facts: dict[str, Any], other: ModelPrices | LiteLLM, today: date, notes: set[str]
) -> Iterator[Difference]:
    """Every figure of every row on which the other table disagrees, in every mode that both have.

    A mode that only the other table has goes into `notes`: nothing wrong is charged for it.
    """
    for row in facts["rows"]:
        for moment, peak in moments(row, today):
            if isinstance(other, LiteLLM) and moment.date() != today:
                continue
            for mode in other.modes:
                theirs = other.prices(pick, mode, moment)
                if theirs is None:
                    continue
                ours = exact(row, mode, peak)
                if not ours:
                    notes.add(f"{pick.id}: {other.name} also has {mode}")
                    continue
                prefix = "" if mode == "standard" else f"{mode}."
                names = FIELDS if isinstance(other, ModelPrices) else [name for name in FIELDS if name in theirs]
                for name in names:
                    yield from _differ(pick, prefix + name, moment, ours.get(name), other, theirs.get(name))
                if "over" in theirs or ("over" in ours and isinstance(other, ModelPrices)):
                    for name in ("tokens", *names):
                        a, b = ours.get("over", {}).get(name), theirs.get("over", {}).get(name)
                        if b is not None or isinstance(other, ModelPrices):
                            yield from _differ(pick, f"{prefix}over.{name}", moment, a, other, b)


def _differ(
    pick: Pick, name: str, moment: datetime, ours: Decimal | None, other: Any, theirs: Decimal | None
) -> Iterator[Difference]:
    if ours != theirs:
        yield Difference(pick.id, name, moment.date().isoformat(), ours, other.name, theirs)


def exact(row: Row, mode: str, peak: bool) -> Row:
    """The row's own figures in a mode, as numbers."""
    found: Row = dict(compact.row_prices(row, mode, 0) or {})
    offer = row if isinstance(row.get(mode, ""), str) else row[mode]
    if found and "over" in offer:
        tokens = offer["over"]["tokens"]
        found["over"] = {"tokens": Decimal(tokens)} | (compact.row_prices(row, mode, tokens + 1) or {})
    factor = Decimal(row["peak"]["x"]) if peak else Decimal(1)
    return {name: value if name == "over" else value * factor for name, value in found.items()}


def moments(row: Row, today: date) -> Iterator[tuple[datetime, bool]]:
    """Times at the end of a row to ask other tables about: noon, which is no peak, and a peak hour if there is one."""
    last = today if row["until"] is None else min(today, date.fromisoformat(row["until"]) - timedelta(days=1))
    if last.isoformat() < (row["from"] or ""):
        return
    day = datetime(last.year, last.month, last.day, 12, tzinfo=UTC)
    yield day, False
    if "peak" in row:
        # A working day without a holiday is not to be had by rule; Tuesday to Thursday come close.
        while day.isoweekday() not in (2, 3, 4):
            day -= timedelta(days=1)
        yield day.replace(hour=row["peak"]["utc"][0][0] + 1), True
        saturday = day - timedelta(days=day.isoweekday() + 1)
        if saturday.date().isoformat() >= (row["from"] or ""):
            yield saturday.replace(hour=row["peak"]["utc"][0][0] + 1), row["peak"]["days"].endswith(("6", "7"))


def render(today: str, source: str, models: dict[str, Any]) -> str:
    """JSON with one line per row, so that a change of price is one line of a diff."""
    blocks = []
    for name in sorted(models):
        facts = dict(models[name])
        rows = ",\n".join(
            f"        {json.dumps({key: row[key] for key in ORDER if key in row})}" for row in facts.pop("rows")
        )
        head = json.dumps(facts)[1:-1]
        blocks.append(f'    {json.dumps(name)}: {{\n      {head},\n      "rows": [\n{rows}\n      ]\n    }}')
    body = ",\n".join(blocks)
    return f'{{\n  "generated": "{today}",\n  "source": {json.dumps(source)},\n  "models": {{\n{body}\n  }}\n}}\n'


def _version(package: str) -> str:
    return f"{package} {importlib.import_module('importlib.metadata').version(package)}"


if __name__ == "__main__":
    sys.exit(main())
