"""`cache_view`: what the provider's prompt cache did over a recorded conversation, what broke it and what that cost,
and what other ways to send the same requests would have cost. Touches its arguments, the price table and the rules.

No rule of its own: reasons come from `explain`, other ways from the simulator and the layout's breakpoint plan, savings
from `pays`, prices from the catalogue.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal

from agentkit.core.contracts.usage import Usage
from agentkit.models.cache import CacheReport, CacheRules, Prompt, explain, read_diagnosis, rules_for
from agentkit.models.cache.placing import readable
from agentkit.models.catalog.compact import quote, rates
from agentkit.models.usage import UsageReading
from agentkit.state.context.tokens import AdditiveCounter
from agentkit.transcripts import Transcript

from .cache_plans import Plans, wanted_variants
from .cache_requests import Sent, Sizes, as_sent, sent_requests
from .cache_savings import Candidates
from .cache_times import Pause, Pauses, request_times
from .cache_values import BreakKind, CacheRequest, CacheView, Scenario
from .responses import mode_of, moment
from .values import Accuracy, Cost, Response

SCENARIOS = ("recorded", "uncached", "library", "library_long", "library_kept", "best")


def cache_view(
    transcript: Transcript, responses: Sequence[Response], accuracy: Accuracy, counter: AdditiveCounter
) -> CacheView:
    """The view over `responses`, which are those of the report, in order."""
    if not responses:
        return CacheView(note="no responses in the record")
    readings = [one.reading for one in transcript.responses] or [None] * len(responses)
    is_reported = any(reading is not None for reading in readings)
    times = request_times(transcript, responses)
    sizes, candidates = Sizes(counter, accuracy.factor), Candidates(counter, len(responses))
    run = _Run(counter, sizes, candidates, is_reported, Plans(wanted_variants(readings, times)))
    sent = _Lockstep(transcript, counter)
    rows = [
        run.request(one, reading, None if one.place is None else sent.at(one.place), at)
        for one, reading, at in zip(responses, readings, times, strict=True)
    ]
    return CacheView(
        rules=", ".join(dict.fromkeys(rules.name for rules in run.rules.values() if rules is not None)) or None,
        basis="reported" if is_reported else "estimated",
        requests=tuple(rows),
        breaks=_breaks(rows),
        scenarios=run.scenarios(),
        savings=run.candidates.best(),
        compared=run.compared,
        note=_note(run, rows),
        assumed=tuple(sorted(run.assumed)),
        lost=sum(row.lost or 0 for row in rows if row.is_break),
        lost_cost=_lost_cost(rows),
    )


class _Lockstep:
    """The rebuilt requests beside the responses, one at a time: none is kept."""

    def __init__(self, transcript: Transcript, counter: AdditiveCounter) -> None:
        self._places = {id(message): place for place, message in enumerate(transcript.history)}
        self._requests: Iterator[Sent] = sent_requests(transcript, counter)
        self._next: Sent | None = next(self._requests, None)

    def at(self, place: int) -> Sent | None:
        """The request in front of the message at `place`; places come in rising order."""
        while self._next is not None and self._places.get(id(self._next.answer), -1) < place:
            self._next = next(self._requests, None)
        if self._next is None or self._places.get(id(self._next.answer)) != place:
            return None
        found, self._next = self._next, next(self._requests, None)
        return found


@dataclass
class _Run:
    """One pass over the responses of a conversation."""

    counter: AdditiveCounter
    sizes: Sizes
    candidates: Candidates
    is_reported: bool
    plans: Plans
    rules: dict[str, CacheRules | None] = field(default_factory=dict)
    compared: int = 0
    has_cache_figures: bool = True
    assumed: set[str] = field(default_factory=set)
    sums: dict[str, tuple[Usage, Cost]] = field(default_factory=dict)
    last: tuple[Sent, UsageReading, str] | None = None
    pauses: Pauses = field(default_factory=Pauses)
    has_long: bool = False
    """Whether the client asked for the longer lifetime."""

    def request(
        self, response: Response, reading: UsageReading | None, sent: Sent | None, at: float | None
    ) -> CacheRequest:
        """One response: how its request fared, and how it would have."""
        row = _recorded(response, reading)
        rules = self._rules(response)
        before = self._prompt_before(rules, reading) if sent is not None else None
        if sent is not None:
            self.sizes.fit(sent, response.reported, row.read or 0)
        if sent is None or rules is None or response.model is None:
            return row
        pause = self.pauses.before(at, rules.seconds(self._ttl(rules)))
        if reading is not None:
            row = self._explained(row, before, sent, reading, pause, rules, response)
            self.last = sent, reading, response.model
            self.has_long |= reading.usage.cache_write_long_tokens > 0
        if pause is None and self.pauses.has_begun:
            self.assumed.add("times")
        self.plans.clock += 0.0 if pause is None else pause.most
        self.pauses.add(at, was_whole=row.reason == "none")
        output = reading.usage.output_tokens if reading is not None else self._estimated_output(sent)
        planned = self.plans.send(sent, self.sizes, response.model, rules, row, output)
        if reading is not None:
            planned["recorded"] = reading.usage
        # A response of several prompts, of several models, or one whose figures are in doubt, says nothing about this
        # request alone.
        whole = response.reported if self.is_reported else self.sizes.total
        is_single = reading is None or (reading.usage.prompt_tokens == whole and not reading.other_models)
        if whole is None or not is_single:
            return row
        self.compared += 1
        self.has_cache_figures &= reading is None or reading.cache_known
        self.assumed |= set(rules.assumed)
        costs = {name: self._cost(usage, response, reading) for name, usage in planned.items()}
        for name, cost in costs.items():
            usage, so_far = self.sums.get(name, (Usage(), Cost()))
            self.sums[name] = usage + planned[name], so_far + cost
        price = rates(response.model, at=moment(response.time), prompt_tokens=whole)
        self.candidates.look(response.number, sent, self.sizes, price, warm=row.reason != "expired")
        told = tuple(costs[name].usd if name in costs and costs[name].is_known else None for name in SCENARIOS)
        return replace(row, planned=planned["library"], costs=told)

    def scenarios(self) -> tuple[Scenario, ...]:
        """The sums, in the order of SCENARIOS; variants of the library's only where they would have been cheaper."""
        found = [
            Scenario(name, *self.sums[name], has_cache_figures=name != "recorded" or self.has_cache_figures)
            for name in SCENARIOS
            if name in self.sums
        ]
        plain = self.sums["library"][1].usd if "library" in self.sums else None
        return tuple(
            one
            for one in found
            if not one.name.startswith("library_")
            or (plain is not None and one.cost.usd is not None and one.cost.usd < plain)
        )

    def _rules(self, response: Response) -> CacheRules | None:
        if response.model is None:
            return None
        if response.model not in self.rules:
            self.rules[response.model] = rules_for(response.model, at=moment(response.time))
        return self.rules[response.model]

    def _ttl(self, rules: CacheRules) -> str:
        """The lifetime that the client asked for, as far as its usage has told by now."""
        long = next((name for name in rules.ttl if rules.is_long(name)), rules.default_ttl)
        return long if self.has_long else rules.default_ttl

    def _prompt_before(self, rules: CacheRules | None, reading: UsageReading | None) -> Prompt | None:
        """The request before as it was sent, where something of it may be lost now; None where all of it was read."""
        if self.last is None or rules is None or reading is None:
            return None
        sent, before, model = self.last
        whole = before.usage.prompt_tokens
        left = before.usage.cache_read_tokens + before.usage.cache_write_tokens
        left = left if rules.marks else readable(rules, whole, whole) - rules.step
        is_told = before.cache_known and reading.cache_known
        if is_told and left > 0 and reading.usage.cache_read_tokens >= left:
            return None
        found = self.rules.get(model)
        return None if found is None else as_sent(sent, self.sizes, model, found, self._ttl(found))

    def _explained(
        self,
        row: CacheRequest,
        before: Prompt | None,
        sent: Sent,
        reading: UsageReading,
        pause: Pause | None,
        rules: CacheRules,
        response: Response,
    ) -> CacheRequest:
        if before is None or self.last is None:
            return replace(
                row, reason="none" if reading.cache_known else "unreported", lost=0 if reading.cache_known else None
            )
        _, earlier, _ = self.last
        report = explain(
            before,
            as_sent(sent, self.sizes, response.model or "", rules, self._ttl(rules)),
            rules=rules,
            at=None if pause is None else pause.least,
            usage=reading,
            previous_at=0.0,
            previous_usage=earlier.usage if earlier.cache_known else None,
            diagnosis=read_diagnosis(sent.answer.meta),
            day=moment(response.time),
        )
        return _told(row, report, pause)

    def _estimated_output(self, sent: Sent) -> int:
        return round(self.sizes.factor * self.counter.settle(*self.counter.weigh(sent.answer)))

    def _cost(self, usage: Usage, response: Response, reading: UsageReading | None) -> Cost:
        mode = mode_of(reading) if reading is not None else "standard"
        region = reading.region if reading is not None else None
        found = quote(response.model, usage, at=moment(response.time), mode=mode, region=region)
        known = found.usd if found.known or found.lines else None
        return Cost(known, int(found.known), 1, (found.reason,) if found.reason else ())


def _recorded(response: Response, reading: UsageReading | None) -> CacheRequest:
    """The figures as the other tables have them; a cache figure that was not reported is unknown, not 0."""
    usage = response.usage
    if usage is None or reading is None:
        return CacheRequest(response.number)
    if not reading.cache_known:
        return CacheRequest(response.number, fresh=usage.input_tokens, reason="unreported")
    return CacheRequest(response.number, usage.cache_read_tokens, usage.cache_write_tokens, usage.input_tokens)


def _told(row: CacheRequest, report: CacheReport, pause: Pause | None) -> CacheRequest:
    detail = report.detail
    if report.reason == "unexplained":
        detail = f"read up to {report.actual_read or 0:,} tokens; the record shows no change behind that"
        detail += "" if pause is not None else ", nor how long the pause was"
    elif report.reason == "expired" and pause is not None and pause.least < pause.most:
        detail = f"at least {detail}"
    if report.provider_reason is not None:
        told = "" if report.provider_missed is None else f", {report.provider_missed:,} tokens missed"
        detail = f"{detail}; " if detail else ""
        detail += f"the provider says {report.provider_reason}{told}"
    return replace(
        row,
        reason=report.reason,
        cause=report.cause,
        detail=detail,
        advice=report.advice,
        lost=report.lost_tokens,
        lost_usd=report.lost_usd,
    )


def _breaks(rows: Sequence[CacheRequest]) -> tuple[BreakKind, ...]:
    """The breaks by reason, the dearest first."""
    kinds: dict[str, list[CacheRequest]] = {}
    for row in rows:
        if row.is_break and row.reason is not None:
            kinds.setdefault(row.reason, []).append(row)
    found = []
    for reason, several in kinds.items():
        known = [row.lost_usd for row in several if row.lost_usd is not None]
        usd = sum(known, Decimal(0)) if len(known) == len(several) else None
        found.append(BreakKind(reason, len(several), sum(row.lost or 0 for row in several), usd, several[0].advice))
    return tuple(sorted(found, key=lambda kind: -kind.lost))


def _lost_cost(rows: Sequence[CacheRequest]) -> Cost:
    total = Cost()
    for row in rows:
        if row.is_break:
            priced = row.lost_usd is not None
            total += Cost(row.lost_usd, int(priced), 1, () if priced else ("unknown_model",))
    return total


def _note(run: _Run, rows: Sequence[CacheRequest]) -> str:
    """Why there is less than there could be."""
    said = []
    nameless = [model for model, rules in run.rules.items() if rules is None]
    if nameless:
        said.append(f"no cache rules are known for {', '.join(nameless)}")
    if not run.rules:
        said.append("the record names no model")
    if run.compared < len(rows) and any(run.rules.values()):
        said.append(f"{run.compared:,} of {len(rows):,} requests can be rebuilt and compared")
    return "; ".join(said)
