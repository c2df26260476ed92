"""`inspect_transcript`: a recorded conversation to an `Inspection`. Touches only its arguments, and the price table.

No rule of its own: sizes come from the context's counters, accuracy from its calibration, prices from the catalogue,
problems from the validity check. One pass over the record; what a compaction kept is weighed once more.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

from agentkit.core.contracts.usage import Usage
from agentkit.core.contracts.validity import STRICT, Problem, Rules, check
from agentkit.models.catalog.compact import window
from agentkit.state.context import CharClassTokenCounter, Layout
from agentkit.state.context.tokens import AdditiveCounter
from agentkit.transcripts import Finding as Recorded
from agentkit.transcripts import Transcript

from .cache_view import cache_view
from .pieces import Tally
from .record import is_user_turn, next_layout, prefix_length, sum_weights
from .responses import measured_responses
from .values import Cost, Finding, Folding, Inspection, Response, Sizes

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
    responses, accuracy = measured_responses(transcript, counter, frozen)
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
        cache=cache_view(transcript, responses, accuracy, counter),
        recorded_usd=Decimal(str(transcript.usage.cost_usd)) if transcript.usage.cost_usd else None,
    )


def count_transcript(transcript: Transcript, counter: AdditiveCounter) -> int:
    """Tokens of all messages and tool schemas of a conversation, as `inspect_transcript` counts them."""
    layout = next_layout(transcript, counter)
    return counter.settle(*sum_weights(counter, transcript.history)) + _schemas(layout, counter)


def _schemas(layout: Layout, counter: AdditiveCounter) -> int:
    frozen = layout.segment("frozen")
    return frozen.tokens - counter.settle(*sum_weights(counter, frozen.messages))


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


# -- findings ----------------------------------------------------------------------------------------------------------


def _import_findings(transcript: Transcript) -> list[Finding]:
    """The report of the import, a finding for each kind and action, losses first."""
    found: dict[tuple[str, str, str], list[Recorded]] = {}
    for one in transcript.report:
        found.setdefault((one.level, one.kind, one.action), []).append(one)
    order = {"loss": 0, "repair": 1, "note": 2}
    findings = [
        Finding(
            "import",
            level,
            kind,
            len(hits),
            tuple(hit.place for hit in hits[:PLACES]),
            "; ".join(filter(None, (action, _first_of([hit.reason for hit in hits])))),
        )
        for (level, kind, action), hits in found.items()
    ]
    return sorted(findings, key=lambda finding: order.get(finding.level, 3))


def _first_of(details: list[str]) -> str:
    """The detail that all have in common, or the first as an example."""
    return details[0] if len(set(details)) == 1 else f"first: {details[0]}"


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
        Finding(
            "check",
            "problem",
            code,
            len(hits),
            tuple(where for _, where in hits[:PLACES]),
            _first_of([problem.detail for problem, _ in hits]),
        )
        for code, hits in found.items()
    ]
