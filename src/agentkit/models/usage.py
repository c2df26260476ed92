"""One reader of what providers report about tokens, for adapters and importers alike. Touches only its arguments.

A *wire* is the form of one provider's usage object; `usage_wires` describes each.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from agentkit.core.contracts.errors import FreezeError
from agentkit.core.contracts.frozen import MAX_WIRE_DEPTH, FrozenDict, deep_freeze
from agentkit.core.contracts.jsontext import json_text
from agentkit.core.contracts.usage import Usage

from .usage_wires import ANTHROPIC, LONG_TTLS, OPENAI_CHAT, OPENAI_RESPONSES, WIRES, Path, Wire, paths


@dataclass(frozen=True)
class UsageReading:
    """What one response's usage says, in the normal form.

    `usage`: disjoint counters, everything that is billed at the response's own model. `raw`: the figures as reported,
    frozen. `cache_known`: whether the cache counters were reported at all; if not, their 0 means nothing. `tier`,
    `speed`, `region`: what else sets the price. `flags`: `impossible:<field>` (counted 0), `ttl_unknown` (writes
    counted as short), `assumed:<field>` (no source settles it), `absent` (no figures at all), `unknown_wire`;
    importers add `unfinished` (the figure of a stream that was never counted to its end).
    `anchor`: the figures of the last prompt alone, against which an estimate may be corrected; None when they cannot
    be trusted. `other_models`: (model, usage) of sub-calls that are billed at another model's rates, not in `usage`.
    """

    usage: Usage
    raw: Any = None
    cache_known: bool = False
    tier: str | None = None
    speed: str | None = None
    region: str | None = None
    flags: tuple[str, ...] = ()
    anchor: Usage | None = field(default=None, kw_only=True)
    other_models: tuple[tuple[str, Usage], ...] = field(default=(), kw_only=True)

    @property
    def is_doubtful(self) -> bool:
        """Whether a figure was impossible or missing, so that sums over it may be wrong."""
        return any(
            flag.startswith("impossible:") or flag in ("absent", "unfinished", "unknown_wire") for flag in self.flags
        )


_MAPPING = (dict, Mapping)
"""For isinstance: nearly every mapping here is a dict, and asking the abstract class alone takes ten times as long."""


def read_usage(raw: Any, wire: str) -> UsageReading:
    """The normal form of a usage object. Never raises: what cannot be is counted 0, kept in `raw` and flagged.

    `raw` is the usage mapping, a response or stream event that holds one, or a sequence of these in the order a stream
    sent them: later figures replace earlier ones, they are never added. `wire` is a key of `WIRES` or `llama.cpp`.
    """
    figures = _figures(raw)
    known = WIRES.get(wire)
    if known is None and wire == "llama.cpp":
        known, figures = _llama_wire(figures), _with_timings(figures)
    if known is None:
        return UsageReading(Usage(), _frozen(figures), flags=("unknown_wire",))
    if not figures:
        return UsageReading(Usage(), _frozen(raw), flags=("absent",))
    if wire == "deepseek" and figures.get("prompt_cache_miss_tokens") is None:
        known = OPENAI_CHAT
    flags: list[str] = []
    usage, cache_known, complete = _count(figures, known, flags)
    anchor: Usage | None = usage
    others: tuple[tuple[str, Usage], ...] = ()
    if known is ANTHROPIC and isinstance(figures.get("iterations"), (list, tuple)):
        usage, anchor, others = _with_iterations(usage, figures["iterations"], flags)
    if not complete or not usage.prompt_tokens or (flags and any(f.startswith("impossible:") for f in flags)):
        anchor = None
    get = figures.get
    return UsageReading(
        usage,
        _frozen(figures),
        cache_known,
        _text(get("service_tier", get("serviceTier"))),
        _text(get("speed")),
        _text(get("inference_geo", get("region"))),
        tuple(dict.fromkeys(flags)) if flags else (),
        anchor=anchor,
        other_models=others,
    )


def _count(figures: Mapping[str, Any], wire: Wire, flags: list[str]) -> tuple[Usage, bool, bool]:
    """The counters, whether the cache ones were reported, and whether input and output were."""
    found: list[int | None] = []
    for path in wire.counts:
        value = figures.get(path[0]) if len(path) == 1 else _at(figures, path) if path else None
        found.append(value if value is None or (type(value) is int and value >= 0) else _odd_count(value, path, flags))
    at_output, at_read, at_write = wire.starts
    has_both = found[0] is not None and found[at_output] is not None
    fresh, output, read, write = found[0] or 0, found[at_output] or 0, found[at_read], found[at_write]
    long, short, reasoning = found[-3:]
    if len(found) > 7:  # some have several paths
        fresh = sum([n or 0 for n in found[:at_output]])
        output = sum([n or 0 for n in found[at_output:at_read]])
        read = next((n for n in found[at_read:at_write] if n is not None), None)
        write = next((n for n in found[at_write:-3] if n is not None), None)
    if wire.ttl_list is not None:
        long, short = _split_by_ttl(figures, wire.ttl_list, flags)
    if write is None and (long or short):
        write = (long or 0) + (short or 0)
    if wire.inclusive:
        fresh -= (read or 0) + (write or 0)
        if fresh < 0:
            # Which of the figures is wrong cannot be known. The cache counters are the larger part of the truth: some
            # clients have passed on an exclusive input figure under an inclusive name.
            flags.append(f"impossible:{'.'.join(wire.input[0])}")
            fresh = 0
    if wire.reasoning_outside:
        output += reasoning or 0
    elif (reasoning or 0) > output:
        flags.append(f"impossible:{'.'.join(wire.reasoning or ())}")
        reasoning = 0
    if write and long is None and short is None and (wire.long or wire.ttl_list):
        flags.append("ttl_unknown")
    elif (long or 0) > (write or 0):
        flags.append(f"impossible:{'.'.join(wire.long or wire.ttl_list or ())}")
        long = 0
    if wire.assumed:
        flags.extend([f"assumed:{'.'.join(p)}" for p in wire.assumed if _at(figures, p)])
    usage = Usage(
        fresh,
        output,
        _cost(figures, wire.cost, flags) if wire.cost is not None else 0.0,
        read or 0,
        write or 0,
        cache_write_long_tokens=long or 0,
        reasoning_tokens=reasoning or 0,
    )
    return usage, read is not None, has_both


def _with_iterations(
    top: Usage, iterations: Iterable[Any], flags: list[str]
) -> tuple[Usage, Usage | None, tuple[tuple[str, Usage], ...]]:
    """What is billed, the last prompt alone, and what other models took.

    The top-level figures are the sum of the `message` entries, so with server-side tools they exceed any one prompt;
    `compaction` and `advisor_message` entries are not in them.
    """
    total, last, others = top, top, list[tuple[str, Usage]]()
    for entry in iterations:
        if not isinstance(entry, _MAPPING):
            flags.append("impossible:iterations")
            continue
        part, _, _ = _count(entry, ANTHROPIC, flags)
        kind, model = entry.get("type"), entry.get("model")
        if kind == "message":
            last = part
        elif kind == "advisor_message" and isinstance(model, str):
            others.append((model, part))
        else:
            total += part
    return total, last, tuple(others)


def _split_by_ttl(figures: Mapping[str, Any], path: Path, flags: list[str]) -> tuple[int | None, int | None]:
    """The written tokens at long and at short lifetime, None where no split is reported."""
    entries = _at(figures, path)
    if not isinstance(entries, (list, tuple)):
        return None, None
    sums = {True: 0, False: 0}
    for entry in entries:
        if isinstance(entry, _MAPPING):
            ttl = entry.get("ttl")
            sums[isinstance(ttl, str) and ttl in LONG_TTLS] += _tokens(entry, ("inputTokens",), flags) or 0
    return sums[True], sums[False]


def _figures(raw: Any) -> Mapping[str, Any]:
    """The usage mapping in `raw`; of a stream the last figure that is not null."""
    if isinstance(raw, _MAPPING):
        return _unwrapped(raw)
    if not isinstance(raw, Sequence) or isinstance(raw, (str, bytes, bytearray)):
        return {}
    merged: dict[str, Any] = {}
    for event in raw:
        if isinstance(event, _MAPPING):
            merged.update({k: v for k, v in _unwrapped(event).items() if v is not None})
    return merged


def _unwrapped(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """The usage of a response or stream event, with what stands beside it and belongs to it; else `raw` itself."""
    if raw.keys().isdisjoint(_WRAPPING):
        return raw
    inner = raw.get("message")
    if raw.get("type") == "message_start" and isinstance(inner, _MAPPING):
        return _unwrapped(inner)
    for key in ("usage", "usageMetadata"):
        if key in raw:
            found = raw[key]
            beside = {k: raw[k] for k in ("timings", "service_tier") if raw.get(k) is not None}
            return {**beside, **found} if isinstance(found, _MAPPING) else beside if "timings" in beside else {}
    kind = raw.get("type")
    if isinstance(raw.get("choices"), (list, tuple)) or (isinstance(kind, str) and kind in _OTHER_EVENTS):
        return {}
    return raw


_WRAPPING = ("usage", "usageMetadata", "message", "choices", "type")
_OTHER_EVENTS = frozenset({"content_block_start", "content_block_delta", "content_block_stop", "message_stop", "ping"})


def _llama_wire(figures: Mapping[str, Any]) -> Wire:
    """llama.cpp answers in the form of the endpoint that was asked."""
    if not figures.keys().isdisjoint(("input_tokens", "output_tokens", "cache_read_input_tokens")):
        return OPENAI_RESPONSES if "input_tokens_details" in figures else replace(ANTHROPIC, long=None, short=None)
    cached = paths("prompt_tokens_details.cached_tokens", "cached_tokens")
    return Wire(input=paths("prompt_tokens"), output=paths("completion_tokens"), read=cached)


def _with_timings(figures: Mapping[str, Any]) -> Mapping[str, Any]:
    """Figures completed from llama.cpp's `timings`: `cache_n` reused, `prompt_n` read anew, `predicted_n` written."""
    timings = figures.get("timings")
    if not isinstance(timings, _MAPPING):
        return figures
    found = {k: _tokens(timings, (k,), []) for k in ("cache_n", "prompt_n", "predicted_n")}
    cached = found["cache_n"]
    if "input_tokens" in figures:
        key = "cache_read_input_tokens"
        return figures if cached is None or figures.get(key) is not None else {**figures, key: cached}
    filled = dict(figures)
    if filled.get("prompt_tokens") is None and found["prompt_n"] is not None:
        filled["prompt_tokens"] = found["prompt_n"] + (cached or 0)
    if filled.get("completion_tokens") is None and found["predicted_n"] is not None:
        filled["completion_tokens"] = found["predicted_n"]
    details = filled.get("prompt_tokens_details")
    reported = isinstance(details, _MAPPING) and details.get("cached_tokens") is not None
    if cached is not None and not reported and filled.get("cached_tokens") is None:
        filled["cached_tokens"] = cached
    return filled


def _at(figures: Mapping[str, Any], path: Path) -> Any:
    value: Any = figures
    for key in path:
        if value is None or not isinstance(value, _MAPPING):
            return None
        value = value.get(key)
    return value


def _tokens(figures: Mapping[str, Any], path: Path, flags: list[str]) -> int | None:
    """The count at `path`; None when absent or null, 0 and a flag when it is no count of tokens."""
    value = _at(figures, path)
    return value if value is None or (type(value) is int and value >= 0) else _odd_count(value, path, flags)


def _odd_count(value: Any, path: Path, flags: list[str]) -> int:
    """A count that is no plain one: some clients write JSON numbers with a fraction of 0; all else cannot be."""
    if type(value) is float and value >= 0 and math.isfinite(value) and value == int(value):
        return int(value)
    flags.append(f"impossible:{'.'.join(path)}")
    return 0


def _cost(figures: Mapping[str, Any], path: Path, flags: list[str]) -> float:
    value = _at(figures, path)
    if value is None:
        return 0.0
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e15:
        return float(value)
    flags.append(f"impossible:{'.'.join(path)}")
    return 0.0


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _frozen(value: Any) -> Any:
    if type(value) is FrozenDict:
        return value
    try:
        return deep_freeze(value, max_depth=MAX_WIRE_DEPTH)
    except FreezeError:
        return json_text(value)
