"""`replay`: a recorded conversation once more through a `WorkingContext`, checkpointed after every turn. *Turn* means
one request and its response here. Touches the checkpointer that is handed in.

What is stored after a turn is all that the next one needs, so a run that was killed goes on behind its last stored turn
and ends with the same context.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Protocol

from agentkit.core.contracts.errors import Corrupt, StoreError
from agentkit.core.contracts.messages import Message
from agentkit.core.contracts.scope import Scope
from agentkit.core.contracts.usage import Usage
from agentkit.state.context import TokenCount, WorkingContext
from agentkit.state.context.tokens import AdditiveCounter
from agentkit.state.persistence import Checkpoint, Checkpointer, dehydrate, rehydrate
from agentkit.transcripts import Response, Transcript

from .record import is_sent, prefix_length
from .responses import price, usage_of
from .values import Cost


@dataclass(frozen=True)
class Turn:
    """One request and its response. `rewritten`: the whole tail, where a compaction came in between; `incoming`: what
    was added in front of the answer; `responses`: what was paid for, abandoned answers included, this one last."""

    rewritten: tuple[Message, ...] | None = None
    incoming: tuple[Message, ...] = ()
    answer: Message | None = None
    responses: tuple[Response, ...] = ()


@dataclass(frozen=True)
class Progress:
    """Where a replay stands behind turn `turn` of `turns`: messages of the tail, tokens of the next request, and what
    was used and paid so far."""

    turn: int
    turns: int
    messages: int
    size: TokenCount
    usage: Usage
    cost: Cost


@dataclass(frozen=True)
class Origin:
    """What a run was started from: the file's name, the SHA-256 of its bytes, and the conversation's number in it."""

    file: str
    sha256: str
    conversation: int = 1


def turns(transcript: Transcript) -> Iterator[Turn]:
    """The turns of a conversation. Applied one after the other to an empty tail they end at `transcript.context`."""
    history, final = transcript.history, transcript.context.messages
    compactions = {compaction.index: compaction for compaction in transcript.compactions}
    by_place, before, trailing = _responses_by_place(transcript)
    sent = is_sent(transcript)
    tail: list[Message] = []
    rewritten: tuple[Message, ...] | None = None
    incoming: list[Message] = []
    for place in range(prefix_length(transcript), len(history)):
        message = history[place]
        if not sent(place):
            continue
        compaction = compactions.get(place)
        if compaction is not None:
            if rewritten is not None or incoming:
                yield Turn(rewritten, tuple(incoming))
            rewritten, incoming = (message, *[history[at] for at in compaction.kept]), []
            tail = list(rewritten)
            continue
        tail.append(message)
        if message.role != "assistant":
            incoming.append(message)
            continue
        found = by_place.get(place)
        paid = (*before.get(place, ()), *((found,) if found is not None else ()))
        yield Turn(rewritten, tuple(incoming), message, paid)
        rewritten, incoming = None, []
    if tail != final:
        yield Turn(tuple(final), responses=trailing)
    elif rewritten is not None or incoming or trailing:
        yield Turn(rewritten, tuple(incoming), responses=trailing)


def _responses_by_place(
    transcript: Transcript,
) -> tuple[dict[int, Response], dict[int, tuple[Response, ...]], tuple[Response, ...]]:
    """Responses by their message; those without one that were made before each; those after the last."""
    by_place: dict[int, Response] = {}
    before: dict[int, tuple[Response, ...]] = {}
    waiting: list[Response] = []
    for response in transcript.responses:
        if response.index is None or response.index in by_place:
            waiting.append(response)
            continue
        by_place[response.index], before[response.index] = response, tuple(waiting)
        waiting = []
    return by_place, before, tuple(waiting)


@dataclass(frozen=True)
class ReplayOptions:
    """How a replay runs: for which tenant, counted by what, going on or not, with a pause in seconds between turns."""

    scope: Scope
    counter: AdditiveCounter
    resume: bool = field(default=False, kw_only=True)
    pause: float = field(default=0.0, kw_only=True)


class Watcher(Protocol):
    """Is told how a replay goes."""

    def start(self, done: int, of: int, /) -> None:
        """How many turns are stored already, of how many."""

    def turn(self, progress: Progress, /) -> None:
        """A turn is stored."""


async def replay(
    transcript: Transcript,
    checkpointer: Checkpointer,
    run_id: str,
    origin: Origin,
    options: ReplayOptions,
    watcher: Watcher | None = None,
) -> Progress:
    """Store the conversation turn by turn under `run_id`, or go on behind the last stored turn. Returns where it ended.

    Raises StoreError for a run that exists when `options.resume` is not set, and for one started from another file.
    """
    counter = options.counter
    plan = list(turns(transcript))
    saved = await checkpointer.resume(run_id, include_terminal=True)
    if saved is None:
        context = WorkingContext(transcript.context.prefix, token_counter=counter, scope=options.scope)
        usage, cost, done = Usage(), Cost(), 0
    else:
        _refuse_other_run(saved, origin, options.resume, len(plan))
        context, usage, done, _ = rehydrate(saved.state, token_counter=counter)
        done -= 1
        cost = _cost_from(saved.metadata["cost"])
    if watcher is not None:
        watcher.start(done, len(plan))
    progress = Progress(done, len(plan), context.size(), context.count(), usage, cost)
    for number, turn in enumerate(plan[done:], done + 1):
        for response in turn.responses:
            usage += usage_of(response.reading) or Usage()
            cost += price(response.reading, response.model, response.time) if response.reading else Cost()
        take_turn(context, turn, transcript)
        status = "done" if number == len(plan) else "running"
        metadata = {**_origin_to(origin), "turns": len(plan), "cost": _cost_to(cost)}
        await checkpointer.snapshot(run_id, dehydrate(context, usage, number), status, metadata)
        progress = Progress(number, len(plan), context.size(), context.count(), usage, cost)
        if watcher is not None:
            watcher.turn(progress)
        if options.pause and number < len(plan):
            await asyncio.sleep(options.pause)
    return progress


def take_turn(context: WorkingContext, turn: Turn, transcript: Transcript) -> None:
    """Apply one turn: rewrite, append, anchor on what the provider reported for the request, append the answer."""
    if turn.rewritten is not None:
        context.rewrite(context.size(), turn.rewritten, version=context.version)
    context.extend(turn.incoming)
    if turn.answer is None:
        return
    response = turn.responses[-1] if turn.responses else None
    if response is not None and response.reading is not None and response.reading.anchor is not None:
        layout = context.segments(tools=transcript.tools)
        context.record_usage(response.reading.anchor, layout=layout, model=response.model)
    context.append(turn.answer)


def _refuse_other_run(saved: Checkpoint, origin: Origin, resume: bool, turn_count: int) -> None:
    meta = saved.metadata
    if "sha256" not in meta:
        raise StoreError(f"run {saved.run_id!r} in this store is no replay; choose another name with --run")
    if not resume:
        at = f"turn {saved.state.get('iteration')} of {meta.get('turns')}"
        raise StoreError(
            f"run {saved.run_id!r} is there already, at {at}; go on with --resume, or choose another name with --run"
        )
    if meta["sha256"] != origin.sha256 or meta.get("conversation") != origin.conversation:
        what = f"conversation {meta.get('conversation')} of {meta.get('file')}"
        if meta.get("file") == origin.file and meta.get("conversation") == origin.conversation:
            what += " as it was then, which has changed since"
        raise StoreError(f"run {saved.run_id!r} was started from {what}; choose another name with --run")
    if meta.get("turns") != turn_count:
        # Another release may cut the same file into other turns: going on would repeat some or leave some out.
        raise StoreError(
            f"run {saved.run_id!r} has {meta.get('turns')} turns and this file now {turn_count}; start anew with --run"
        )


def _origin_to(origin: Origin) -> dict[str, Any]:
    return {"file": origin.file, "sha256": origin.sha256, "conversation": origin.conversation}


def _cost_to(cost: Cost) -> dict[str, Any]:
    usd = None if cost.usd is None else str(cost.usd)
    return {"usd": usd, "priced": cost.priced, "responses": cost.responses, "reasons": list(cost.reasons)}


def _cost_from(saved: Mapping[str, Any]) -> Cost:
    try:
        usd = None if saved["usd"] is None else Decimal(saved["usd"])
        return Cost(usd, saved["priced"], saved["responses"], tuple(saved["reasons"]))
    except (KeyError, TypeError, ArithmeticError) as error:
        raise Corrupt(f"the cost stored with the run cannot be read back: {error}") from error
