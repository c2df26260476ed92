"""`PromptCache`: what a provider would read, write and bill for a sequence of requests, by its published rules. Touches
only its arguments; times are handed in.

Two memories: `_entries` holds what can be read (by the key of everything up to a position), `_seen` every prefix that
was ever sent, for `ceiling`. Keys chain the digests of the blocks, so two prompts share a key at a position exactly
when they share model, scope, settings and all blocks up to it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

from . import placing
from .bill import Bill
from .prompts import TIERS, Block, Prompt
from .rules import CacheRules

_SWEEP = 4_096
"""Entries from which on those that have expired are looked for and dropped."""


@dataclass
class _Entry:
    """Readable from `readable` to before `expires`; each use puts `expires` to `ttl` seconds behind it."""

    readable: float
    expires: float
    ttl: float

    def is_live(self, at: float) -> bool:
        return self.readable <= at < self.expires


class PromptCache:
    """The cache of one provider; `rules` as `rules_for` gives them. Not for use by several threads at once.

    Requests are sent in the order of their times, which are seconds of any origin. Without `ceilings` nothing is kept
    for `ceiling`, which then raises ValueError; kinds without marks always keep it, since they read by it.
    """

    def __init__(self, rules: CacheRules, *, ceilings: bool = True) -> None:
        self.rules = rules
        self._has_seen = ceilings or rules.kind not in ("marked blocks", "message ends")
        self._entries: dict[bytes, _Entry] = {}
        self._seen: dict[bytes, _Entry] = {}
        self._sweep_at = _SWEEP
        self._last: tuple[Any, tuple[Block, ...], list[bytes]] = None, (), []

    def send(self, prompt: Prompt, *, at: float, first_byte: float | None = None, reply: Sequence[Block] = ()) -> Bill:
        """Send a request at `at`, and say what it reads, writes and pays in full.

        What it writes is readable from `first_byte` on (default: `at`). `reply`: the answer as the blocks it will be in
        the next request, for the providers that keep it too (kinds common prefix, full blocks, units).
        Raises ValueError, which names the block, for a request that the provider would refuse.
        """
        plan = placing.plan(self.rules, prompt)
        keys = self._keys(prompt)
        readable = at if first_byte is None else first_byte
        if self.rules.kind in ("marked blocks", "message ends"):
            bill = self._send_marked(prompt, plan, keys, at, readable)
        elif self.rules.kind == "units":
            bill = self._send_units(prompt, keys, at, readable, reply)
        else:
            bill = self._send_prefix(prompt, keys, at)
        self._remember(prompt, keys, at, readable, reply)
        return bill

    def ceiling(self, prompt: Prompt, *, at: float) -> int:
        """Tokens of the longest prefix equal to an earlier prompt of the same scope that the rules' minimum, step and
        longest lifetime let a request read, wherever marks stand. To be asked before the request itself is sent."""
        if not self._has_seen:
            raise ValueError("this cache was made without ceilings: PromptCache(rules, ceilings=True) keeps them")
        shared = self._shared(self._keys(prompt), at)
        return placing.readable(self.rules, prompt.sums[shared - 1] if shared else 0, prompt.tokens)

    def evict(self, prompt: Prompt, *, keep: int = 0) -> None:
        """Drop whatever is kept of this prompt behind its first `keep` tokens, as a provider does that needs the room
        or sends a request elsewhere."""
        for key, tokens in zip(self._keys(prompt), prompt.sums, strict=True):
            if tokens > keep:
                self._entries.pop(key, None)
                self._seen.pop(key, None)

    def key(self, prompt: Prompt, position: int) -> str:
        """What an entry at the end of block `position` is found by, as hexadecimal digits."""
        return self._keys(prompt)[position].hex()

    # -- kinds ---------------------------------------------------------------------------------------------------------

    def _send_marked(self, prompt: Prompt, plan: placing.Plan, keys: list[bytes], at: float, readable: float) -> Bill:
        """Kinds marked blocks and message ends: reads and writes at marked positions only."""
        sums = prompt.sums
        hit = next((p for p in plan.looked_up if sums[p] >= self.rules.minimum and self._is_live(keys[p], at)), None)
        read = 0 if hit is None else sums[hit]
        if hit is not None:
            self._refresh(keys[: hit + 1], at)
        written = [(p, ttl) for p, ttl in plan.writes if sums[p] > read and sums[p] >= self.rules.minimum]
        for position, ttl in written:
            seconds = self.rules.seconds(ttl)
            known = self._entries.get(keys[position])
            starts = readable if known is None or known.expires <= at else min(readable, known.readable)
            self._entries[keys[position]] = _Entry(starts, at + seconds, seconds)
        long = max((sums[p] for p, ttl in written if self.rules.is_long(ttl)), default=read)
        last = max((sums[p] for p, _ in written), default=long)
        return Bill(
            read,
            write_short=max(last - long, 0),
            write_long=long - read,
            fresh=prompt.tokens - max(last, long),
            hit=hit,
            written=tuple(p for p, _ in written),
            ignored=(
                *plan.ignored,
                *((p, "below_minimum") for p, _ in plan.writes if sums[p] < self.rules.minimum),
            ),
            assumed=self.rules.assumed,
        )

    def _send_prefix(self, prompt: Prompt, keys: list[bytes], at: float) -> Bill:
        """Kinds interval, common prefix and full blocks: whatever an earlier request shares is read, free of marks."""
        shared = self._shared(keys, at)
        return self._read_only(prompt, shared, prompt.sums[shared - 1] if shared else 0)

    def _send_units(
        self, prompt: Prompt, keys: list[bytes], at: float, readable: float, reply: Sequence[Block]
    ) -> Bill:
        """Kind units: what was stored at the end of an input, of an output or of a prefix seen twice is read."""
        shared = self._shared(keys, at)
        stored = next((n for n in range(len(keys), 0, -1) if self._is_live(keys[n - 1], at)), 0)
        self._refresh(keys[:stored], at)
        ends = [keys[-1]] if keys else []
        ends += [keys[shared - 1]] if shared else []
        ends += self._reply_keys(prompt, keys, reply)[-1:]
        life = self.rules.longest
        for key in ends:
            if not self._is_live(key, at):
                self._entries[key] = _Entry(readable, at + life, life)
        return self._read_only(prompt, stored, prompt.sums[stored - 1] if stored else 0)

    def _read_only(self, prompt: Prompt, blocks: int, tokens: int) -> Bill:
        read = placing.readable(self.rules, tokens, prompt.tokens)
        hit = blocks - 1 if read else None
        return Bill(read, 0, 0, prompt.tokens - read, hit=hit, assumed=self.rules.assumed)

    # -- memory --------------------------------------------------------------------------------------------------------

    def _keys(self, prompt: Prompt) -> list[bytes]:
        """The key at the end of each block; those of the blocks that the last request began with are taken over."""
        tiers = [self._settings(prompt, tier) for tier in TIERS]
        chain = blake2b(f"{prompt.model}\0{prompt.scope}".encode("utf-8", "surrogatepass"), digest_size=16).digest()
        opening = (chain, tiers)
        head, blocks, known = self._last
        start, keys, tier = 0, list[bytes](), ""
        if head == opening:
            start = _equal_head(blocks, prompt.blocks)
            keys = known[:start]
            if start:
                chain, tier = keys[-1], blocks[start - 1].tier
        for block in prompt.blocks[start:]:
            if block.tier != tier:
                passed = TIERS.index(tier) + 1 if tier else 0
                settings = "".join(tiers[passed : TIERS.index(block.tier) + 1])
                chain, tier = blake2b(chain + settings.encode(), digest_size=16).digest(), block.tier
            chain = blake2b(chain + block.digest.encode("utf-8", "surrogatepass"), digest_size=16).digest()
            keys.append(chain)
        self._last = opening, prompt.blocks, keys
        return keys

    def _settings(self, prompt: Prompt, tier: str) -> str:
        named = sorted(name for name, hits in self.rules.settings.items() if hits == tier and name in prompt.settings)
        return json.dumps([[name, prompt.settings[name]] for name in named], sort_keys=True, default=str)

    def _reply_keys(self, prompt: Prompt, keys: list[bytes], reply: Sequence[Block]) -> list[bytes]:
        if not reply:
            return []
        return self._keys(replace(prompt, blocks=(*prompt.blocks, *reply)))[len(keys) :]

    def _shared(self, keys: list[bytes], at: float) -> int:
        """How many leading blocks an earlier request had too, within the longest lifetime. A request touches all its
        prefixes at once, so a shorter one never expires before a longer one and halving finds the end."""
        low, high = 0, len(keys)
        while low < high:
            middle = (low + high + 1) // 2
            entry = self._seen.get(keys[middle - 1])
            if entry is not None and entry.is_live(at):
                low = middle
            else:
                high = middle - 1
        return low

    def _remember(self, prompt: Prompt, keys: list[bytes], at: float, readable: float, reply: Sequence[Block]) -> None:
        if not self._has_seen:
            self._sweep(at)
            return
        life = self.rules.longest
        for key in (*keys, *self._reply_keys(prompt, keys, reply)):
            known = self._seen.get(key)
            if known is None or known.expires <= at:
                self._seen[key] = _Entry(readable, at + life, life)
            else:
                known.readable = min(known.readable, readable)
                known.expires = max(known.expires, at + life)
        self._sweep(at)

    def _sweep(self, at: float) -> None:
        if len(self._seen) + len(self._entries) > self._sweep_at:
            for kept in (self._seen, self._entries):
                for key in [key for key, entry in kept.items() if entry.expires <= at]:
                    del kept[key]
            self._sweep_at = max(2 * (len(self._seen) + len(self._entries)), _SWEEP)

    def _is_live(self, key: bytes, at: float) -> bool:
        entry = self._entries.get(key)
        return entry is not None and entry.is_live(at)

    def _refresh(self, keys: list[bytes], at: float) -> None:
        """A hit starts the lifetime anew, of every live entry on its path (which of them no source settles)."""
        for entry in filter(None, map(self._entries.get, keys)):
            if entry.is_live(at):
                entry.expires = max(entry.expires, at + entry.ttl)


def _equal_head(old: tuple[Block, ...], new: tuple[Block, ...]) -> int:
    """How many leading blocks go into the key alike."""
    count = 0
    for a, b in zip(old, new, strict=False):
        if a is not b and (a.digest != b.digest or a.tier != b.tier):
            break
        count += 1
    return count
