"""The published rules of the providers' prompt caches, as data. Reads `cache_rules.json` beside the price table on
first use; looks at no clock.

Every row of that file names its source and the date on which it was checked, and under `assumed` the fields that no
source settles: a result that rests on one says so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

KINDS = ("marked blocks", "message ends", "interval", "common prefix", "full blocks", "units")


@dataclass(frozen=True)
class Ttl:
    """A lifetime. `seconds`: from the last write or reuse, inf where only room sets an end. `write`: what writing costs
    in multiples of the input rate, None where it is free."""

    seconds: float
    write: float | None = None


@dataclass(frozen=True)
class CacheRules:
    """How one provider caches prompts; a model with a figure of its own has a row of its own.

    `models`: globs over the name in lower case. `since`, `until`: ISO dates in UTC between which the row holds, None =
    open. `minimum`: tokens below which nothing is cached. `step`: tokens in which a read grows (1 = to the token).
    `grain`: what a read is rounded down to beside that. `hidden`: tokens of the provider in front of the prompt.
    `spare`: tokens at the end that are always computed. `marks`: how many a request may carry, 0 = it takes none;
    `lookback`: positions that a mark looks back, itself counted; for the kind message ends how many of the latest marks
    a request is looked up at, beside `first_marks` from the front and `earlier_ends` of messages in implicit mode.
    `ttl`: lifetimes by name, the default first. `read`: what a read costs in multiples of the input rate; a price row
    wins over it and over `Ttl.write`. `scope`: what entries are never shared across. `settings`: the tier from which a
    change of each setting invalidates. `usage`: the wire of `read_usage`.
    """

    name: str
    provider: str
    models: tuple[str, ...]
    kind: str
    minimum: int
    step: int
    ttl: Mapping[str, Ttl]
    since: str | None = None
    until: str | None = None
    grain: int = 1
    hidden: int = 0
    spare: int = 0
    marks: int = 0
    lookback: int = 0
    first_marks: int = 0
    earlier_ends: int = 0
    read: float | None = None
    scope: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    usage: str = ""
    assumed: tuple[str, ...] = ()
    source: str = ""
    checked: str = ""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"{self.name}: kind must be one of {', '.join(KINDS)}, not {self.kind!r}")
        if not self.ttl:
            raise ValueError(f"{self.name}: at least one lifetime is needed")

    @property
    def default_ttl(self) -> str:
        """The name of the lifetime that a mark without one asks for."""
        return next(iter(self.ttl))

    @property
    def longest(self) -> float:
        """Seconds of the longest lifetime."""
        return max(ttl.seconds for ttl in self.ttl.values())

    def is_long(self, ttl: str) -> bool:
        """Whether writing at this lifetime is billed as `cache_write_long_tokens`: it is not the default."""
        return ttl != self.default_ttl and self.seconds(ttl) > self.seconds(self.default_ttl)

    def seconds(self, ttl: str) -> float:
        """Seconds of a lifetime; ValueError for one that the row does not have."""
        found = self.ttl.get(ttl)
        if found is None:
            raise ValueError(f"{self.name} knows the lifetimes {', '.join(self.ttl)}, not {ttl!r}")
        return found.seconds


def rules_for(model: str | None, provider: str | None = None, at: datetime | date | None = None) -> CacheRules | None:
    """The rules of a model, None for one that no row names: nothing is guessed.

    `provider`: who serves it, a provider or a row of the file (`bedrock`, `openrouter`, `vllm`, `gemini-object`, ...);
    None means the vendor whose name the model bears. `at` is when (a naive time is UTC), None the date of the file. The
    longest glob that matches wins, of equal ones the last. Raises TypeError for a model that is no text, ValueError for
    an unknown provider.
    """
    if model is None:
        return None
    if not isinstance(model, str):
        raise TypeError(f"model must be a str or None, not {type(model).__name__}")
    day = _day(at)
    if provider is not None and provider not in _providers():
        raise ValueError(f"no cache rules for provider {provider!r}; known are {', '.join(sorted(_providers()))}")
    if provider is not None and provider in _file()["by_vendor"]:
        # Such a provider passes on to the vendor of the model, whose rules then hold; usage comes in its own form.
        found = rules_for(model, None, at)
        return None if found is None else replace(found, usage=provider)
    names = _names(model)
    best: CacheRules | None = None
    length = -1
    for row, only_by_name in _rows():
        if provider != row.name and (only_by_name or provider not in (None, row.provider)):
            continue
        if (row.since or "") > day or (row.until is not None and row.until <= day):
            continue
        for glob in row.models:
            if len(glob) >= length and any(fnmatchcase(name, glob) for name in names):
                best, length = row, len(glob)
    return best


def all_rules() -> tuple[CacheRules, ...]:
    """Every row of the file, rows of single models included."""
    return tuple(row for row, _ in _rows())


def _names(model: str) -> tuple[str, ...]:
    name = model.lower()
    return tuple(dict.fromkeys((name, name.rpartition("/")[2])))


def _day(at: datetime | date | None) -> str:
    if at is None:
        as_of: str = _file()["generated"]
        return as_of
    if isinstance(at, datetime):
        at = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
        return at.date().isoformat()
    if isinstance(at, date):
        return at.isoformat()
    raise TypeError(f"at must be a datetime, a date or None, not {type(at).__name__}")


@cache
def _providers() -> frozenset[str]:
    rows = _rows()
    return frozenset({row.provider for row, _ in rows} | {row.name for row, _ in rows} | set(_file()["by_vendor"]))


@cache
def _rows() -> tuple[tuple[CacheRules, bool], ...]:
    """The rows, each with whether only its own name leads to it."""
    found: list[tuple[CacheRules, bool]] = []
    for row in _file()["rows"]:
        base = {key: value for key, value in row.items() if key not in ("by_model", "only_by_name")}
        is_named = bool(row.get("only_by_name"))
        found += [(_rules({**base, **own}), is_named) for own in ({}, *row.get("by_model", ()))]
    return tuple(found)


def _rules(row: Mapping[str, Any]) -> CacheRules:
    ttl = {
        name: Ttl(math.inf if life["seconds"] is None else life["seconds"], life["write"])
        for name, life in row["ttl"].items()
    }
    lists = {key: tuple(row.get(key, ())) for key in ("models", "scope", "assumed")}
    return CacheRules(**{**row, **lists, "ttl": ttl})


@cache
def _file() -> Any:
    import json
    from pathlib import Path

    folder = Path(__file__).resolve().parent.parent / "catalog"
    return json.loads((folder / "cache_rules.json").read_bytes())
