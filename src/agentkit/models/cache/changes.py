"""What differs between two requests, in the order of the cache's key. Touches only its arguments."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from .causes import span
from .prompts import TIERS, Prompt
from .rules import CacheRules


@dataclass(frozen=True)
class Change:
    reason: str
    tier: str
    index: int | None
    detail: str
    order: tuple[int, int]


def common_blocks(a: Prompt, b: Prompt) -> int:
    """How many leading blocks two requests share."""
    count = 0
    for one, other in zip(a.blocks, b.blocks, strict=False):
        if one.digest != other.digest or one.tier != other.tier:
            break
        count += 1
    return count


def changes(previous: Prompt, next: Prompt, rules: CacheRules) -> Iterator[Change]:
    """What differs, the first of each tier."""
    if previous.model != next.model:
        yield Change("model_changed", TIERS[0], None, f"{previous.model} before, {next.model} now", (-2, 0))
    if previous.scope != next.scope:
        yield Change("scope_changed", TIERS[0], None, "workspace, region or cache key", (-1, 0))
    for name, tier in rules.settings.items():
        before, now = previous.settings.get(name), next.settings.get(name)
        if before != now:
            detail = f"{name}: {before!r} before, {now!r} now"
            yield Change("settings_changed", tier, None, detail, (TIERS.index(tier), -1))
    for number, tier in enumerate(TIERS):
        change = _block_change(previous, next, tier)
        if change is not None:
            reason = f"{tier}_changed"
            if tier == "messages" and _is_compacted(previous, next):
                reason = "compacted"
            yield Change(reason, tier, *change, (number, 0))


def _block_change(previous: Prompt, next: Prompt, tier: str) -> tuple[int, str] | None:
    """The first block of a tier that is no longer what it was. Blocks that come in behind the last are no change, but
    in front of a later tier they are."""
    old = [(at, block) for at, block in enumerate(previous.blocks) if block.tier == tier]
    new = [(at, block) for at, block in enumerate(next.blocks) if block.tier == tier]
    for (at, one), (now, other) in zip(old, new, strict=False):
        if one.digest != other.digest:
            return (at if at == now else min(at, now)), _difference(one.text, other.text)
    if len(new) < len(old):
        return (new[-1][0] + 1 if new else old[0][0]), f"{len(old) - len(new)} blocks fewer"
    later = any(TIERS.index(block.tier) > TIERS.index(tier) for block in previous.blocks)
    if len(new) > len(old) and later:
        return new[len(old)][0], f"{len(new) - len(old)} blocks more"
    return None


def _difference(a: str, b: str) -> str:
    """What stands in the place of what, cut to a line."""
    if not a or not b:
        return ""
    head, end_a, end_b = span(a, b)
    before = _WORD_END.search(a[max(head - 24, 0) : head])
    head -= len(before[0]) if before else 0
    return f"{_short(_to_word_end(a, head, end_a))} became {_short(_to_word_end(b, head, end_b))}"


_WORD = r"[\w:.+/-]*"
_WORD_END, _WORD_START = re.compile(_WORD + r"\Z"), re.compile(_WORD)


def _to_word_end(text: str, start: int, end: int) -> str:
    rest = _WORD_START.match(text[end : end + 24])
    return text[start : end + (len(rest[0].rstrip(".:")) if rest else 0)]


def _short(text: str) -> str:
    line = " ".join(text.split())
    return repr(line if len(line) <= 40 else line[:39] + "…")


def _is_compacted(previous: Prompt, next: Prompt) -> bool:
    if previous.version is not None and next.version is not None and previous.version != next.version:
        return True
    known = {block.digest for block in previous.blocks if block.kind == "summary"}
    return any(block.kind == "summary" and block.digest not in known for block in next.blocks)
