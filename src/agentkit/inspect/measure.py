"""`inspect_transcript`: a recorded conversation to an `Inspection`. Touches only its arguments, and the price table.

No rule of its own: sizes come from the context's counters, accuracy from its calibration, prices from the catalogue,
problems from the validity check. One pass over the record; what a compaction kept is weighed once more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import get_args

from agentkit.core.contracts.messages import Message, marked
from agentkit.core.contracts.usage import Usage
from agentkit.core.contracts.validity import STRICT, Problem, Rules, check
from agentkit.models.catalog.compact import Mode, quote, window
from agentkit.models.usage import UsageReading
from agentkit.state.context import CharClassTokenCounter, Layout, WorkingContext
from agentkit.state.context.anchor import Calibration, Observation
from agentkit.state.context.tokens import AdditiveCounter
from agentkit.transcripts import Response as Recorded
from agentkit.transcripts import Transcript

from .pieces import Tally, Weight
from .values import Accuracy, Cost, Finding, Folding, Inspection, Response, Sizes

PLACES = 5
"""Places of one kind of finding that a report names."""


def inspect_transcript(
    transcript: Transcript, *, source: str = "", number: int = 1, of: int = 1, counter: AdditiveCounter | None = None
) -> Inspection:
    """What there is to say about one conversation. `source` names its file, `number` of `of` its place there.

    `counter` counts everything in the report; by default the one that agents use.
    """
    counter = counter or CharClassTokenCounter()
    tally = Tally(counter)
    for place, message in enumerate(transcript.history):
        tally.add(place, message)
    layout = next_layout(transcript, counter)
    frozen, summary, tail = (layout.segment(kind).tokens for kind in ("frozen", "summary", "tail"))
    schemas = _schemas(layout, counter)
    responses, accuracy = _responses(transcript, counter, frozen)
    usage, cost = _spent(transcript, responses)
    models = tuple(dict.fromkeys(response.model for response in responses if response.model))
    times = [response.time for response in responses if response.time]
    tools = tally.tools()
    return Inspection(
        source=source,
        format=transcript.format,
        number=number,
        of=of,
        title=transcript.label or transcript.id or None,
        counter=counter.key,
        models=models,
        began=min(times, default=None),
        ended=max(times, default=None),
        messages=len(transcript.history),
        user_turns=sum(map(is_user_turn, transcript.history)),
        calls=sum(tool.calls for tool in tools),
        errors=sum(message.is_error for message in transcript.history),
        tokens=tally.tokens() + schemas,
        tool_schema_tokens=schemas,
        next_request=Sizes(frozen, summary, tail),
        window=window(models[-1]) if models else None,
        roles=tally.roles(),
        kinds=tally.kinds(),
        tools=tools,
        largest=tally.largest(),
        responses=responses,
        accuracy=accuracy,
        foldings=tuple(Folding(c.index, c.trigger, c.tokens_before, c.tokens_after) for c in transcript.compactions),
        findings=(*_import_findings(transcript), *_check_findings(transcript)),
        usage=usage,
        cost=cost,
        recorded_usd=Decimal(str(transcript.usage.cost_usd)) if transcript.usage.cost_usd else None,
    )


def count_transcript(transcript: Transcript, counter: AdditiveCounter) -> int:
    """Tokens of all messages and tool schemas of a conversation, as `inspect_transcript` counts them."""
    layout = next_layout(transcript, counter)
    return counter.settle(*_sum(counter, transcript.history)) + _schemas(layout, counter)


def _schemas(layout: Layout, counter: AdditiveCounter) -> int:
    frozen = layout.segment("frozen")
    return frozen.tokens - counter.settle(*_sum(counter, frozen.messages))


def next_layout(transcript: Transcript, counter: AdditiveCounter) -> Layout:
    """The request that the agent would send next, sized by `counter`."""
    context = transcript.context
    return WorkingContext(context.prefix, context.messages, token_counter=counter).segments(tools=transcript.tools)


def is_user_turn(message: Message) -> bool:
    """Whether somebody said this, rather than the client on their behalf."""
    return message.role == "user" and not message.meta.get("injected") and marked(message, "summary") is None


def prefix_length(transcript: Transcript) -> int:
    """How many messages of the history are the context's prefix: the leading system text, but for what the tail has.

    Not by comparison, since a prefix holds the plain text of what was recorded in blocks.
    """
    in_tail = {id(message) for message in transcript.context.messages}
    length = 0
    for message in transcript.history:
        if message.role != "system" or id(message) in in_tail:
            break
        length += 1
    return length


def is_sent(transcript: Transcript) -> Callable[[int], bool]:
    """Whether the message at a place of the history was for the model at all: a client's own error messages are not.

    The context tells, which holds all that came after the last compaction and was for the model; where it holds other
    messages than the history it tells nothing, and all count as sent.
    """
    sent = {id(message) for message in transcript.context.messages}
    if not sent <= {id(message) for message in transcript.history}:
        return lambda place: True
    after = max((compaction.index for compaction in transcript.compactions), default=-1)
    start = prefix_length(transcript)
    return lambda place: place < start or place <= after or id(transcript.history[place]) in sent


def _sum(counter: AdditiveCounter, messages: Iterable[Message]) -> Weight:
    first = second = 0
    for message in messages:
        a, b = counter.weigh(message)
        first += a
        second += b
    return first, second


# -- usage and price ---------------------------------------------------------------------------------------------------


def usage_of(reading: UsageReading | None) -> Usage | None:
    """What one response took, parts that another model did included; None where nothing was recorded."""
    return None if reading is None else sum((part for _, part in reading.other_models), reading.usage)


def _spent(transcript: Transcript, responses: Iterable[Response]) -> tuple[Usage | None, Cost]:
    """Usage and cost over all responses; where a file has only totals, those, which have no price: a long prompt moves
    the request that had it to a higher tier, and a sum tells no request from another."""
    usage, cost, measured = Usage(), Cost(), False
    for response in responses:
        if response.usage is not None:
            usage, cost, measured = usage + response.usage, cost + response.cost, True
    if measured:
        return usage, cost
    totals = transcript.usage if transcript.usage != Usage() else None
    return totals, Cost(reasons=("totals_only" if totals is not None else "no_usage",))


def price(reading: UsageReading, model: str | None, time: str | None) -> Cost:
    """The cost of one response, parts that another model did included."""
    named = (reading.speed, reading.tier)
    mode: Mode = "standard"
    for special in get_args(Mode):
        if special in named:
            mode = special
    parts: list[tuple[str | None, Usage]] = [(model, reading.usage), *reading.other_models]
    quotes = [quote(name, usage, at=_moment(time), mode=mode, region=reading.region) for name, usage in parts]
    known = [q.usd for q in quotes if q.known or q.lines]
    return Cost(
        sum(known, Decimal(0)) if known else None,
        priced=int(all(q.known for q in quotes)),
        responses=1,
        reasons=tuple(dict.fromkeys(q.reason for q in quotes if q.reason)),
    )


def _moment(time: str | None) -> datetime | None:
    try:
        return datetime.fromisoformat(time) if time else None
    except ValueError:
        return None


# -- responses ---------------------------------------------------------------------------------------------------------


def _responses(transcript: Transcript, counter: AdditiveCounter, frozen: int) -> tuple[tuple[Response, ...], Accuracy]:
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
            summary, tail = (0, 0), _sum(counter, [history[at] for at in folding.kept])
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


# -- findings ----------------------------------------------------------------------------------------------------------


def _import_findings(transcript: Transcript) -> list[Finding]:
    """The report of the import, findings that differ in their place alone as one, losses first."""
    found: dict[tuple[str, str, str, str], list[str]] = {}
    for one in transcript.report:
        found.setdefault((one.level, one.kind, one.action, one.reason), []).append(one.place)
    order = {"loss": 0, "repair": 1, "note": 2}
    findings = [
        Finding("import", level, kind, len(places), tuple(places[:PLACES]), "; ".join(filter(None, (action, reason))))
        for (level, kind, action, reason), places in found.items()
    ]
    return sorted(findings, key=lambda finding: order.get(finding.level, 3))


def problems(transcript: Transcript, rules: Rules = STRICT) -> list[tuple[Problem, str]]:
    """What the validity check finds in the next request, each with its place: the message's in the record where it
    stands there too."""
    view = transcript.context.assembled()
    places = {id(message): place for place, message in enumerate(transcript.history)}
    start = prefix_length(transcript)
    found = []
    for problem in check(view, rules, prefix=len(transcript.context.prefix.rendered)):
        at = problem.index
        place = at if at < start else places.get(id(view[at])) if at < len(view) else None
        found.append((problem, f"message {place}" if place is not None else f"message {at} of the next request"))
    return found


def _check_findings(transcript: Transcript) -> list[Finding]:
    """The problems by code, the first few places of each."""
    found: dict[str, list[tuple[Problem, str]]] = {}
    for problem, where in problems(transcript):
        found.setdefault(problem.code, []).append((problem, where))
    return [
        Finding("check", "problem", code, len(hits), tuple(where for _, where in hits[:PLACES]), hits[0][0].detail)
        for code, hits in found.items()
    ]
