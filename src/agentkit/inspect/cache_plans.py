"""The requests of a conversation sent in other ways: by the library's layout and breakpoint plan, without a cache, and
as well as the rules allow. Touches only its arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from agentkit.core.contracts.usage import Usage
from agentkit.models.cache import CacheRules, Prompt, PromptCache
from agentkit.models.cache.placing import readable
from agentkit.models.usage import UsageReading

from .cache_requests import Planner, Sent, Sizes, head_of
from .cache_values import CacheRequest

SHORTEST_LIFE = 300
"""Seconds that an entry lives at least, with any provider."""


@dataclass
class _Lane:
    """One way to send the requests of a model: its plan and the cache that it meets."""

    planner: Planner
    cache: PromptCache


@dataclass
class Plans:
    """All ways of one conversation. `wanted`: the variants that can differ; `clock`: seconds since the first request,
    which the caller moves on; an unknown pause is none."""

    wanted: frozenset[str]
    clock: float = 0.0
    lanes: dict[tuple[str, str], _Lane] = field(default_factory=dict)

    def send(
        self, sent: Sent, sizes: Sizes, model: str, rules: CacheRules, row: CacheRequest, output: int
    ) -> dict[str, Usage]:
        """What each way to send this request is billed. Every one is sent, whether it can be compared or not: the next
        ones read what it left. What the provider dropped for no reason in the record is dropped everywhere, but for
        `library_kept`."""
        found: dict[str, Usage] = {}
        long = next((name for name in rules.ttl if rules.is_long(name)), None)
        lifetimes = (("library", rules.default_ttl), ("library_long", long), ("library_kept", rules.default_ttl))
        for name, ttl in lifetimes:
            if ttl is None or name not in self.wanted:
                continue
            lane = self._lane(name, model, rules, ttl, sizes)
            prompt = lane.planner.prompt(sent, sizes, model)
            if row.reason == "unexplained" and name != "library_kept":
                lane.cache.evict(prompt, keep=row.read or 0)
            # What was still there when the rest was gone would have been there for any client.
            kept = row.read or 0 if row.reason in ("unexplained", "expired") else 0
            if name == "library":
                found["uncached"] = Usage(prompt.tokens, output)
                ceiling = max(lane.cache.ceiling(prompt, at=self.clock), min(kept, prompt.tokens))
                found["best"] = _best(rules, prompt, ceiling, output)
            found[name] = _with_read(lane.cache.send(prompt, at=self.clock).usage(output), kept)
        return found

    def _lane(self, name: str, model: str, rules: CacheRules, ttl: str, sizes: Sizes) -> _Lane:
        lane = self.lanes.get((name, model))
        if lane is None:
            is_first_model = all(known == model for _, known in self.lanes)
            cache = PromptCache(rules, ceilings=name == "library")
            lane = self.lanes[name, model] = _Lane(Planner(rules, ttl), cache)
            if sizes.known and is_first_model:
                lane.cache.send(head_of(sizes, model, rules, ttl), at=self.clock)
        return lane


def _best(rules: CacheRules, prompt: Prompt, ceiling: int, output: int) -> Usage:
    """All that can be read is read, and the rest is kept where keeping is billed."""
    rest = prompt.tokens - ceiling
    write = rest if rules.marks and readable(rules, prompt.tokens, prompt.tokens) else 0
    return Usage(rest - write, output, cache_read_tokens=ceiling, cache_write_tokens=write)


def wanted_variants(readings: Sequence[UsageReading | None], times: Sequence[float | None]) -> frozenset[str]:
    """The variants that can differ from the plain plan at all: without a pause none lives longer, and without a read
    that was too small nothing was dropped."""
    wanted = {"library"}
    known = [time for time in times if time is not None]
    if any(later - earlier >= SHORTEST_LIFE for earlier, later in pairwise(known)):
        wanted.add("library_long")
    for one, other in pairwise(reading for reading in readings if reading is not None):
        if other.usage.cache_read_tokens < one.usage.cache_read_tokens + one.usage.cache_write_tokens:
            wanted.add("library_kept")
        if not one.usage.cache_write_tokens and other.usage.cache_read_tokens < one.usage.prompt_tokens:
            wanted.add("library_kept")
    return frozenset(wanted)


def _with_read(usage: Usage, kept: int) -> Usage:
    """What the provider had kept of a dropped prompt it would have read for any client: the record has no block that
    ends there, so it is taken off by hand."""
    more = max(min(kept, usage.prompt_tokens) - usage.cache_read_tokens, 0)
    written = min(more, usage.cache_write_tokens)
    return replace(
        usage,
        input_tokens=usage.input_tokens - (more - written),
        cache_read_tokens=usage.cache_read_tokens + more,
        cache_write_tokens=usage.cache_write_tokens - written,
        cache_write_long_tokens=min(usage.cache_write_long_tokens, usage.cache_write_tokens - written),
    )
