"""`explain`: what broke the cached prefix from one request to the next, why, and what it cost. Touches only its
arguments, and the price table.

What a request could have read at best is what the one before it left behind. A change makes the part behind it
unreadable, so the loss is counted from there, and not from what the changed request shares with it: by that measure
every change would be free.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from agentkit.core.contracts.usage import Usage

from . import placing
from .causes import CAUSE_ADVICE, cause_of
from .changes import Change, changes, common_blocks
from .diagnostics import Diagnosis
from .prompts import TIERS, Prompt
from .rules import CacheRules
from .simulator import PromptCache

if TYPE_CHECKING:
    from agentkit.models.usage import UsageReading

REASONS = (
    "none",
    "unreported",
    "model_changed",
    "scope_changed",
    "settings_changed",
    "tools_changed",
    "system_changed",
    "compacted",
    "messages_changed",
    "below_minimum",
    "no_mark",
    "not_a_boundary",
    "beyond_lookback",
    "expired",
    "not_yet_readable",
    "unexplained",
)
"""In the order of the tests."""

ADVICE = {
    "none": "what was sent before was read again",
    "unreported": "the provider reports no cache figures here: switch them on, or compare what is billed",
    "model_changed": "each model has a cache of its own: keep a conversation on one model",
    "scope_changed": "another workspace, region or cache key: keep the cache key of a conversation the same",
    "settings_changed": "this setting is part of the key: choose it once for a conversation",
    "tools_changed": "tools stand in front of everything: send the same set, in the same order, every time",
    "system_changed": "the system text stands in front of the conversation: keep what changes out of it",
    "compacted": "a compaction rewrites what follows the frozen part once: make it rare and thorough",
    "messages_changed": "an earlier message is no longer what was sent: append instead of changing",
    "below_minimum": "the prompt is shorter than what the provider caches: nothing to gain, nothing to do",
    "no_mark": "nothing asks the provider to keep this: put a mark at the end of what stays the same",
    "not_a_boundary": "the provider looks only where a message ends: add text as a message of its own",
    "beyond_lookback": "too many new blocks behind the last mark: put a second mark at the end of the previous request",
    "expired": "the pause was longer than the lifetime: ask for a longer one where that pays",
    "not_yet_readable": "sent before the first answer had begun: wait for its first token, then send the others",
    "unexplained": "the provider dropped it or sent the request elsewhere: nothing in the request is to blame",
}


@dataclass(frozen=True)
class CacheReport:
    """What became of the cached prefix of one request.

    `reason`: one of REASONS; `tier` and `index`: the block (or the setting's tier) at which it happened; `detail`: what
    is different, in words; `cause`: one of CAUSES for a changed block; `also`: further differences, in the order of the
    key, as (reason, detail). `expected_read`: tokens that the request before had left to be read, or that both share;
    `actual_read`: as reported, or as simulated, None where it was not reported. `lost_tokens`: what could have been
    read and was not; `lost_usd`: what these tokens cost more than a read, None without a price. `provider_reason`: the
    provider's own word, beside ours and never in place of it, and `provider_missed` the tokens that it names.
    `assumed`: what of the rules no source settles.
    """

    reason: str
    tier: str | None = None
    index: int | None = None
    detail: str = ""
    cause: str | None = None
    also: tuple[tuple[str, str], ...] = ()
    expected_read: int = 0
    actual_read: int | None = None
    lost_tokens: int | None = 0
    lost_usd: Decimal | None = None
    provider_reason: str | None = None
    provider_missed: int | None = None
    assumed: tuple[str, ...] = ()

    @property
    def advice(self) -> str:
        """One line on what to do about it."""
        return ADVICE[self.reason] if self.cause is None else CAUSE_ADVICE[self.cause]


def explain(
    previous: Prompt | None,
    next: Prompt,
    *,
    rules: CacheRules,
    at: float | None = None,
    usage: Usage | UsageReading | None = None,
    previous_at: float | None = None,
    previous_usage: Usage | None = None,
    first_byte: float | None = None,
    diagnosis: Diagnosis | None = None,
    day: date | datetime | None = None,
) -> CacheReport:
    """Why `next` read what it did of what `previous` had left in the cache.

    `usage`: what was reported for `next` (a reading that says the cache counters were missing gives `unreported`); None
    simulates it. `previous_usage`: what was reported for `previous`, which is exact where block sizes are estimates.
    `at`, `previous_at`, `first_byte`: when `next` and `previous` were sent and when the answer to `previous` began, in
    seconds of one origin (since 1970, if a bare number is to be told to be a time); without them nothing has expired.
    `diagnosis`: what the provider says itself (`read_diagnosis`). `day`: the date of the prices, by default that of
    their table. The same arguments give the same report.
    """
    reading = usage if usage is None or isinstance(usage, Usage) else usage.usage
    known = usage is None or isinstance(usage, Usage) or usage.cache_known
    before = 0.0 if previous_at is None else previous_at
    now = before if at is None or previous_at is None else at
    if previous is None:
        read = reading.cache_read_tokens if reading is not None and known else None if reading else 0
        return _beside(CacheReport("none" if known else "unreported", actual_read=read), diagnosis)
    seen = _Seen(previous, next, rules, before, now, first_byte)
    report = _beside(_weighed(seen, reading, previous_usage, day), diagnosis)
    if not known:
        return replace(report, reason="unreported", actual_read=None, lost_tokens=None, lost_usd=None)
    slack = rules.step if rules.kind not in ("marked blocks", "message ends") else 0
    if previous_usage is None and reading is not None:
        slack += round(reading.prompt_tokens * 0.01)  # sizes are estimates then
    if (report.actual_read or 0) >= report.expected_read - slack - rules.spare:
        return replace(report, lost_tokens=0, lost_usd=None if report.lost_usd is None else Decimal(0))
    return _reasoned(seen, report, slack, at)


def _beside(report: CacheReport, diagnosis: Diagnosis | None) -> CacheReport:
    """The report with the provider's word beside it."""
    if diagnosis is None:
        return report
    return replace(report, provider_reason=diagnosis.said, provider_missed=diagnosis.missed_tokens)


def _weighed(
    seen: _Seen, reading: Usage | None, previous_usage: Usage | None, day: date | datetime | None
) -> CacheReport:
    """The report with its figures, and no reason yet."""
    rules, next = seen.rules, seen.next
    whole = next.tokens if reading is None else reading.prompt_tokens
    scale = whole / next.tokens if next.tokens else 1.0
    seen.left = round(seen.stored * scale) if previous_usage is None else _stored(previous_usage, rules)
    if not seen.left:
        seen.last_stored = None
    seen.left = min(seen.left, whole)
    # What both share behind the stored part was never asked to be kept: part of what could have been read.
    shared = round(next.sums[seen.common - 1] * scale) if seen.common > seen.stored_blocks else 0
    reachable = max(seen.left, placing.readable(rules, shared, whole))
    read = seen.simulated if reading is None else reading.cache_read_tokens
    lost = max(reachable - read, 0)
    return CacheReport(
        "none",
        expected_read=max(reachable, shared),
        actual_read=read,
        lost_tokens=lost,
        lost_usd=_lost_usd(next.model, seen.bill.usage() if reading is None else reading, lost, day),
        assumed=rules.assumed,
    )


def _reasoned(seen: _Seen, report: CacheReport, slack: int, at: float | None) -> CacheReport:
    """The report with the reason why less was read than could have been."""
    differences = sorted(changes(seen.previous, seen.next, seen.rules), key=lambda change: change.order)
    if not differences or not seen.blames(differences[0]):
        reason, detail = seen.by_the_rules(
            has_stored_part=seen.left > 0 and (report.actual_read or 0) >= seen.left - slack
        )
        return replace(report, reason=reason, index=seen.last_stored, detail=detail, also=_told(differences))
    first = differences[0]
    cause = None
    if first.index is not None and first.reason != "compacted":
        cause = cause_of(seen.previous.blocks, seen.next.blocks, first.index, at=at)
    return replace(
        report,
        reason=first.reason,
        tier=first.tier,
        index=first.index,
        detail=first.detail,
        cause=cause,
        also=_told(differences[1:]),
    )


class _Seen:
    """Two requests in a row through an empty cache."""

    def __init__(
        self, previous: Prompt, next: Prompt, rules: CacheRules, before: float, now: float, first_byte: float | None
    ) -> None:
        self.previous, self.next, self.rules = previous, next, rules
        self.before, self.now, self.first_byte = before, now, first_byte
        cache = PromptCache(rules)
        bill = cache.send(previous, at=before, first_byte=first_byte)
        self.last_stored: int | None = bill.written[-1] if bill.written else None
        self.is_marked = rules.kind in ("marked blocks", "message ends")
        if not self.is_marked and previous.tokens >= rules.minimum:
            self.last_stored = len(previous.blocks) - 1
        self.stored = 0 if self.last_stored is None else previous.sums[self.last_stored]
        self.bill = cache.send(next, at=now)
        self.simulated = self.bill.read
        self.left = self.stored
        self.common = common_blocks(previous, next)

    @property
    def stored_blocks(self) -> int:
        return 0 if self.last_stored is None else self.last_stored + 1

    def blames(self, change: Change) -> bool:
        """Whether this change made unreadable what was stored. Where nothing was stored, it is to blame if what both
        share is too short to be stored; another model or scope always is."""
        if change.order[0] < 0:
            return True
        if self.last_stored is not None and change.index is not None:
            return change.index <= self.last_stored
        if self.last_stored is not None:
            return TIERS.index(change.tier) <= TIERS.index(self.previous.blocks[self.last_stored].tier)
        shared = self.next.sums[self.common - 1] if self.common else 0
        return shared < self.rules.minimum

    def by_the_rules(self, *, has_stored_part: bool) -> tuple[str, str]:
        """The reason where nothing differs in what was stored. `has_stored_part`: all of that was read."""
        if has_stored_part:
            return "no_mark", "nothing asked for what follows the stored part to be kept"
        if self.last_stored is None or self.stored < self.rules.minimum:
            shared = self.next.sums[self.common - 1] if self.common else 0
            if shared < self.rules.minimum:
                return "below_minimum", f"{shared:,} tokens of at least {self.rules.minimum:,}"
            return "no_mark", "the request before asked for nothing to be kept"
        in_time = PromptCache(self.rules)
        in_time.send(self.previous, at=0.0)
        reads = in_time.send(self.next, at=0.0).read
        if reads < self.stored and self.is_marked:
            return self._missed(self.last_stored)
        if self.simulated < reads:
            if self.first_byte is not None and self.now < self.first_byte:
                return "not_yet_readable", f"{self.first_byte - self.now:,.1f} s before the answer began"
            return "expired", f"{self.now - self.before:,.0f} s after the request before"
        return "unexplained", ""

    def _missed(self, position: int) -> tuple[str, str]:
        """Why the rules do not look where the entry is, or what is asked for ends in front of it."""
        block = self.next.blocks[position]
        if self.rules.kind == "message ends":
            if block.mark is None and block.ends is None:
                return "not_a_boundary", "the message that ended here goes on now"
            if self.next.mode == "explicit" and block.mark is None:
                return "no_mark", "explicit mode looks up explicit marks alone"
            return "beyond_lookback", f"more than {self.rules.earlier_ends} later ends of messages"
        marks = [at for at, each in enumerate(self.next.blocks) if each.mark is not None]
        if not marks or marks[-1] < position:
            return "no_mark", "no mark at or behind the place where the last request was stored"
        behind = min(at for at in marks if at >= position)
        return "beyond_lookback", f"{behind - position:,} blocks behind the entry, {self.rules.lookback} are looked at"


def _stored(usage: Usage, rules: CacheRules) -> int:
    """What a reported request left in the cache: where marks decide what it read and wrote, else all of it."""
    if rules.kind in ("marked blocks", "message ends"):
        return usage.cache_read_tokens + usage.cache_write_tokens
    return placing.readable(rules, usage.prompt_tokens, usage.prompt_tokens)


def _told(changes: list[Change]) -> tuple[tuple[str, str], ...]:
    return tuple((change.reason, change.detail) for change in changes)


def _lost_usd(model: str, usage: Usage, lost: int, day: date | datetime | None) -> Decimal | None:
    """What the lost tokens cost beyond a read: they were written, as far as anything was, the rest came in fresh."""
    from agentkit.models.catalog.compact import rates

    found = rates(model, at=day, prompt_tokens=usage.prompt_tokens)
    if found is None or found.read is None:
        return None
    long = usage.cache_write_long_tokens
    paid = Decimal(0)
    for tokens, rate in (
        (long, found.write_long or found.write),
        (usage.cache_write_tokens - long, found.write),
        (usage.input_tokens, found.input),
    ):
        taken = min(tokens, lost)
        paid += taken * ((found.input if rate is None else rate) - found.read)
        lost -= taken
    return paid / 1_000_000
