"""The responses of a transcript: the request in front of each, what it took, what it cost, and how far the estimate is
off. Touches only its arguments, and the price table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import get_args

from agentkit.core.contracts.messages import marked
from agentkit.core.contracts.usage import Usage
from agentkit.models.catalog.compact import Mode, quote
from agentkit.models.usage import UsageReading
from agentkit.state.context import Calibration, Observation
from agentkit.state.context.tokens import AdditiveCounter
from agentkit.transcripts import Response as Recorded
from agentkit.transcripts import Transcript

from .pieces import Weight
from .record import is_sent, prefix_length, sum_weights
from .values import Accuracy, Cost, Response, Sizes


def measured_responses(
    transcript: Transcript, counter: AdditiveCounter, frozen: int
) -> tuple[tuple[Response, ...], Accuracy]:
    recorded = transcript.responses or [
        Recorded(place) for place, message in enumerate(transcript.history) if message.role == "assistant"
    ]
    requests = _Requests(transcript, counter, frozen)
    measured = _Measured(counter.key)
    found: list[Response] = []
    for number, response in enumerate(recorded, 1):
        reading, place = response.reading, response.index
        one = Response(number, place, model=response.model, time=response.time)
        if reading is not None:
            prompt = _prompt_of(reading)
            cost = price(reading, response.model, response.time)
            one = replace(one, usage=usage_of(reading), reported=prompt, cost=cost)
        if place is not None:
            sizes, spans = requests.before(place)
            one = replace(one, estimate=sizes, compacted=spans > requests.seen)
            requests.seen = spans
            if one.reported is not None and reading is not None and reading.anchor is not None:
                measured.add(sizes.total, one.reported, response.model, spans)
        found.append(one)
    return tuple(found), measured.result()


def _prompt_of(reading: UsageReading) -> int | None:
    """The prompt tokens of the (last) request, as far as they can be trusted: with a response that broke off, the
    output is in doubt and the prompt is not."""
    if reading.anchor is not None:
        return reading.anchor.prompt_tokens
    return reading.usage.prompt_tokens if reading.flags == ("unfinished",) else None


class _Requests:
    """The size of the request in front of any message of the history, in one pass over it."""

    def __init__(self, transcript: Transcript, counter: AdditiveCounter, frozen: int) -> None:
        self.seen = 0
        self._frozen, self._start = frozen, prefix_length(transcript)
        self._sizes = list(_sizes(transcript, counter, frozen, self._start))

    def before(self, place: int) -> tuple[Sizes, int]:
        """Its size, and how many compactions came before."""
        at = place - self._start
        return self._sizes[at] if 0 <= at < len(self._sizes) else (Sizes(self._frozen), 0)


def _sizes(transcript: Transcript, counter: AdditiveCounter, frozen: int, start: int) -> Iterator[tuple[Sizes, int]]:
    history, sent = transcript.history, is_sent(transcript)
    foldings = {compaction.index: compaction for compaction in transcript.compactions}
    summary: Weight = (0, 0)
    tail: Weight = (0, 0)
    spans = 0
    for place in range(start, len(history)):
        yield Sizes(frozen, counter.settle(*summary), counter.settle(*tail)), spans
        folding, message = foldings.get(place), history[place]
        weight = counter.weigh(message) if sent(place) else (0, 0)
        if folding is not None:
            spans += 1
            summary, tail = (0, 0), sum_weights(counter, [history[at] for at in folding.kept])
            if marked(message, "summary") is not None:
                summary = weight
                continue
        tail = (tail[0] + weight[0], tail[1] + weight[1])


class _Measured:
    """Collects what successive reports say about the estimate."""

    def __init__(self, counter: str) -> None:
        self._counter = counter
        self._calibration: Calibration | None = None
        self._first: tuple[int, int] | None = None
        self._last: tuple[int, int, str | None, int] | None = None
        self._sums = Accuracy()

    def add(self, estimated: int, reported: int, model: str | None, spans: int) -> None:
        """One request: what was estimated, what the provider said, and what has to be the same to compare it with the
        one before."""
        calibration = self._calibration or Calibration.seed(model, self._counter)
        if self._first is None:
            self._first = estimated, reported
        if self._last is not None and self._last[2:] == (model, spans):
            seen = Observation(estimated - self._last[0], reported - self._last[1])
            calibration = calibration.learn(seen)
            sums = self._sums
            self._sums = Accuracy(sums.pairs + 1, sums.estimated + seen.estimated, sums.reported + seen.reported)
        self._calibration, self._last = calibration, (estimated, reported, model, spans)

    def result(self) -> Accuracy:
        if self._first is None or self._calibration is None:
            return Accuracy()
        factor = self._calibration.factor
        unseen = max(self._first[1] - round(factor * self._first[0]), 0)
        return replace(self._sums, factor=factor, unseen=unseen)


def usage_of(reading: UsageReading | None) -> Usage | None:
    """What one response took, parts that another model did included; None where nothing was recorded."""
    return None if reading is None else sum((part for _, part in reading.other_models), reading.usage)


def price(reading: UsageReading, model: str | None, time: str | None) -> Cost:
    """The cost of one response, parts that another model did included."""
    mode = mode_of(reading)
    parts: list[tuple[str | None, Usage]] = [(model, reading.usage), *reading.other_models]
    quotes = [quote(name, usage, at=moment(time), mode=mode, region=reading.region) for name, usage in parts]
    known = [q.usd for q in quotes if q.known or q.lines]
    return Cost(
        sum(known, Decimal(0)) if known else None,
        priced=int(all(q.known for q in quotes)),
        responses=1,
        reasons=tuple(dict.fromkeys(q.reason for q in quotes if q.reason)),
    )


def mode_of(reading: UsageReading) -> Mode:
    """How the response was sold, as far as its usage says."""
    named = (reading.speed, reading.tier)
    mode: Mode = "standard"
    for special in get_args(Mode):
        if special in named:
            mode = special
    return mode


def moment(time: str | None) -> datetime | None:
    try:
        return datetime.fromisoformat(time) if time else None
    except ValueError:
        return None
