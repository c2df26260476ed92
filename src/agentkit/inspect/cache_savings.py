"""When shortening the context once would have paid, in hindsight. Touches only its arguments.

What a mask or a compaction would drop, and what stays behind it, is measured at moments along the conversation; `pays`
says whether the calls that then came made up for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from agentkit.core.contracts.messages import Message
from agentkit.core.contracts.worth import Verdict, pays
from agentkit.models.catalog.compact import Rates
from agentkit.state.compaction import clear_result
from agentkit.state.compaction.shorten import clearable
from agentkit.state.context.tokens import AdditiveCounter

from .cache_requests import Sent, Sizes
from .cache_values import Saving

MOMENTS = 16
"""Moments along a conversation that are looked at."""
KEEP_ROUNDS = 6
"""The last rounds stay as they are: the default of `ClearResultsCompactor`."""
SUMMARY = 1_500
"""Tokens of a summary: what a compaction puts in."""


@dataclass(frozen=True)
class _Candidate:
    name: str
    number: int
    order: int
    version: int
    dropped: int
    added: int
    behind: int
    extra_usd: float
    rates: Rates
    warm: bool


@dataclass
class Candidates:
    """Moments at which something could have been dropped; `of` requests are expected."""

    counter: AdditiveCounter
    of: int
    found: list[_Candidate] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)

    def look(self, number: int, sent: Sent, sizes: Sizes, rates: Rates | None, *, warm: bool = True) -> None:
        """Take in the next request. Not `warm`: the cache had expired, so that all of it was written anew anyway."""
        order = len(self.versions)
        self.versions.append(sent.version)
        step = max(self.of // MOMENTS, 1)
        if rates is None or rates.read is None or (warm and order % step and number != self.of):
            return
        messages = sent.layout.messages()
        whole, tokens = sizes.total, sizes.tokens
        for name, dropped, added, behind in (
            _mask(messages, tokens, sizes.factor, self.counter),
            _compact(sent, tokens),
        ):
            if dropped <= added:
                continue
            read = float(rates.read if warm else rates.input)  # what the model that writes the summary reads
            extra = (read * whole + float(rates.output) * SUMMARY) / 1e6 if name == "compact" else 0.0
            self.found.append(_Candidate(name, number, order, sent.version, dropped, added, behind, extra, rates, warm))

    def best(self) -> tuple[Saving, ...]:
        """Of each kind the moment that would have saved the most, or lost the least."""
        savings: dict[str, Saving] = {}
        for one in self.found:
            # The calls that came on this context, up to a compaction that the client made itself.
            later = self.versions[one.order + 1 :]
            calls = next((n for n, version in enumerate(later) if version != one.version), len(later))
            verdict = self._pays(one, calls)
            net = verdict.saved_per_call * calls - verdict.cost_now
            if one.name not in savings or net > savings[one.name].net_usd:
                savings[one.name] = Saving(
                    one.name, one.number, one.dropped, one.added, one.behind, calls, verdict, net, warm=one.warm
                )
        return tuple(self._with_later(saving) for saving in savings.values())

    def _with_later(self, saving: Saving) -> Saving:
        last = max((one for one in self.found if one.name == saving.name), key=lambda one: one.order)
        if last.order != len(self.versions) - 1:
            return saving
        return replace(saving, later=self._pays(last, 0).break_even_calls)

    def _pays(self, one: _Candidate, calls: int) -> Verdict:
        return pays(one.rates, one.behind, one.dropped, one.added, calls, extra_usd=one.extra_usd, warm=one.warm)


def _mask(
    messages: Sequence[Message], tokens: Sequence[int], factor: float, counter: AdditiveCounter
) -> tuple[str, int, int, int]:
    """Old tool results give way to a notice each."""
    cleared = {index for _, index in clearable(messages, keep_rounds=KEEP_ROUNDS, exempt=frozenset(), counter=counter)}
    if not cleared:
        return "mask", 0, 0, 0
    notices = [counter.weigh(clear_result(messages[at], counter=counter)) for at in cleared]
    added = round(factor * counter.settle(sum(a for a, _ in notices), sum(b for _, b in notices)))
    first = min(cleared)
    behind = sum(tokens[at] for at in range(first, len(tokens)) if at not in cleared)
    return "mask", sum(tokens[at] for at in cleared), added, behind


def _compact(sent: Sent, tokens: Sequence[int]) -> tuple[str, int, int, int]:
    """All but the last rounds gives way to a summary."""
    frozen = len(sent.layout.segment("frozen").messages)
    starts = [at for at, message in enumerate(sent.layout.messages()) if message.role == "assistant" and at > frozen]
    if len(starts) <= KEEP_ROUNDS:
        return "compact", 0, 0, 0
    border = starts[-KEEP_ROUNDS]
    return "compact", sum(tokens[frozen:border]), SUMMARY, sum(tokens[border:])
