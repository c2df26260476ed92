"""Carrying out a reduction of a context: the plan, the summary that a model writes or, without one, the rules, and the
new state. Asks a model through a function that is handed in; reads the log for pinned entries that are folded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from agentd.context.compact import Applied, Declined, Plan, apply, failed, is_open, look, plan, plan_overflow
from agentd.context.record import Entry, ToolMsg
from agentd.context.resident import LOG, Context
from agentd.context.rows import decode_entry
from agentd.context.settings import Reduction
from agentd.context.tokens import Conditions, fits
from agentd.context.units import Work
from agentd.records import Records
from agentkit.core.contracts.errors import StoreError
from agentkit.core.contracts.requests import ChatRequest, LLMResult
from agentkit.state.compaction import Conversation, Source, Summariser, Summary, Written, extract, summarising

from .events import Events
from .kill_points import KillPoints
from .tools.base import EndsTurn

Ask = Callable[[ChatRequest], Awaitable[LLMResult]]

NEARBY = 64
"""Entries that are read at once in front of and behind a pinned entry that is folded, until its round is whole."""


@dataclass(frozen=True)
class Situation:
    """What a reduction rests on besides the context. `bodies`: texts of loaded skills by hash; `timeout` in seconds;
    `conversation`: what a summary may be asked for at the end of, None where no cache has it."""

    settings: Reduction
    conditions: Conditions
    summariser: Summariser
    work: Work
    bodies: Mapping[str, str]
    timeout: float
    conversation: Callable[[], Conversation | None] = lambda: None


class Reducer:
    """Reduces contexts of one instance; one reduction of a context at a time."""

    def __init__(self, records: Records, events: Events, kills: KillPoints, *, clock: Callable[[], int]) -> None:
        self._records, self._events, self._kills, self._clock = records, events, kills, clock
        self._busy: set[str] = set()
        self._degraded: dict[str, str] = {}

    async def reduce(
        self,
        held: Context,
        situation: Situation,
        ask: Ask | None,
        *,
        command: bool = False,
        target: int | None = None,
        keep_last: int | None = None,
    ) -> Applied | Declined:
        """Plan and carry out; nothing is written. `ask` None: no model, so a summary is written by the rules.

        Tells events. A plan that fails counts for the breaker, which is part of the context's state.
        """
        if held.id in self._busy:
            return self._declined(held, Declined("in_progress", "another reduction of this context is under way"))
        self._busy.add(held.id)
        try:
            log = await self._log(held)
            settings = situation.settings if keep_last is None else replace(situation.settings, keep_last=keep_last)
            situation = replace(situation, settings=settings)
            made = plan(
                self._scene(held, log, situation), settings, situation.conditions, command=command, target=target
            )
            if isinstance(made, Declined):
                return self._declined(held, made)
            return await self._carry_out(held, log, situation, made, ask)
        finally:
            self._busy.discard(held.id)

    async def make_fit(self, held: Context, situation: Situation) -> Applied | Declined:
        """The emergency, for a request that would not fit. Raises ContextOverflowError when nothing helps."""
        log = await self._log(held)
        scene = self._scene(held, log, situation)
        made = plan_overflow(scene, situation.settings, situation.conditions)
        applied = self._applied(held, log, situation, made, made.delta, {"degraded": True})
        return self._told(held, applied, made)

    def fits(self, held: Context, situation: Situation) -> bool:
        """Whether the next request goes into the window, the answer's reserve included."""
        return fits(self._scene(held, held.entries, situation).size, situation.conditions)

    async def _carry_out(
        self, held: Context, log: list[Entry], situation: Situation, made: Plan, ask: Ask | None
    ) -> Applied | Declined:
        extra: dict[str, Any] = {}
        delta: Summary | None = None
        if made.folds:
            self._events.emit(
                "context.compaction_started",
                held.id,
                None,
                version=made.version,
                reason=made.reason,
                before=made.before,
            )
            self._kills.reach("compact.planned")
            delta, extra = await self._summary(held, log, situation, made, ask)
            self._kills.reach("compact.answered")
        applied = self._applied(held, log, situation, made, delta, extra)
        if isinstance(applied, Declined) and made.folds and applied.reason == "no_progress":
            self._count_failure(held, situation)
        return self._told(held, applied, made)

    async def _summary(
        self, held: Context, log: list[Entry], situation: Situation, made: Plan, ask: Ask | None
    ) -> tuple[Summary, dict[str, Any]]:
        """The summary of what is folded, and how it came about."""
        sources = made.sources(log, known=held.known)
        reason = "no model"
        limit = asyncio.timeout(situation.timeout)
        if ask is not None:
            try:
                async with limit:
                    written = await _written(sources, situation, held, ask)
            except EndsTurn:
                raise
            except (StoreError, OSError) as error:
                # A call is paid for by a commit, and what the store raises there is no fault of the summary.
                if not limit.expired():
                    raise
                reason = f"no answer within {situation.timeout:g} s: {error}"
            except Exception as error:  # whatever a model does, the context can be reduced without it
                reason = f"{type(error).__name__}: {error}"
            else:
                usage = written.usage
                return written.delta, {"usage": {"input": usage.prompt_tokens, "output": usage.output_tokens,
                                                 "calls": written.calls}}  # fmt: skip
        # What a summary says is told by nobody else, so why the model did not write it is part of the event below.
        self._degraded[held.id] = reason
        return extract(sources), {"degraded": True}

    def _count_failure(self, held: Context, situation: Situation) -> None:
        window = situation.conditions.window
        was_open = is_open(held.state, window)
        held.state = failed(held.state, now=self._clock(), window=window)
        if not was_open and is_open(held.state, window):
            self._events.emit("context.breaker", held.id, None, failures=held.state.breaker.failures)

    def _applied(
        self,
        held: Context,
        log: list[Entry],
        situation: Situation,
        made: Plan,
        delta: Summary | None,
        extra: Mapping[str, Any],
    ) -> Applied | Declined:
        """Against the context as it is now: entries may have come while the summary was written."""
        newer = [entry for entry in held.entries if entry.n > made.seen]
        return apply(
            held.state,
            [*log, *(entry for entry in newer if entry.n > (log[-1].n if log else 0))],
            made,
            delta,
            situation.settings,
            situation.conditions,
            now=self._clock(),
            work=situation.work,
            bodies=situation.bodies,
            known=held.known,
            **extra,
        )

    def _told(self, held: Context, applied: Applied | Declined, made: Plan) -> Applied | Declined:
        if isinstance(applied, Declined):
            return self._declined(held, applied)
        self._events.emit(
            "context.reduced",
            held.id,
            None,
            version=applied.state.version,
            tier=made.tier,
            before=applied.before,
            after=applied.after,
            folded=sum(last - first + 1 for first, last in made.folded),
            won={str(step.tier): step.tokens for step in made.steps},
            degraded=self._degraded.pop(held.id, None),
        )
        for name in applied.evicted:
            self._events.emit("skill.evicted", held.id, None, skill=name)
        return applied

    def _declined(self, held: Context, found: Declined) -> Declined:
        if found.reason != "below_trigger":
            self._events.emit("context.declined", held.id, None, reason=found.reason, detail=found.detail)
        return found

    def _scene(self, held: Context, log: list[Entry], situation: Situation) -> Any:
        return look(
            held.state,
            log,
            situation.settings,
            situation.conditions,
            work=situation.work,
            bodies=situation.bodies,
            known=held.known,
        )

    async def _log(self, held: Context) -> list[Entry]:
        """The entries in memory and, for each pinned one that is folded, its round and the request in front of it."""
        have = {entry.n: entry for entry in held.entries}
        shown = held.view
        for n in held.state.pins:
            if not shown.shows(n):
                have.update({entry.n: entry for entry in await self._around(held, n)})
        return [have[n] for n in sorted(have)]

    async def _around(self, held: Context, n: int) -> list[Entry]:
        first, last = n, n
        while True:
            first, last = max(first - NEARBY, 1), min(last + NEARBY, held.state.next - 1)
            lines = await self._records.entries(LOG, held.id, first, last)
            found = [decode_entry(line, where=f"entry of context {held.id!r}") for line in lines]
            opens = any(entry.kind in ("user", "note") for entry in found if entry.n <= n)
            behind = [entry for entry in found if entry.n > n and entry.is_message]
            ends = any(not isinstance(entry.body, ToolMsg) for entry in behind) or last == held.state.next - 1
            if (opens or first == 1) and ends:
                return found


async def _written(sources: list[Source], situation: Situation, held: Context, ask: Ask) -> Written:
    steps = summarising(sources, situation.summariser, old=held.state.summary, conversation=situation.conversation())
    try:
        request = next(steps)
        while True:
            request = steps.send(await ask(request))
    except StopIteration as end:
        written: Written = end.value
        return written
