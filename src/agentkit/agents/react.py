"""`ReActCognition`: model and tools in turn until the model is done. Decides nothing that `loop` decides; calls the
run's invoker, writes the working context, and keeps checkpoints where it has a checkpointer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Any

from agentkit.core.contracts.messages import Message
from agentkit.core.contracts.ports import Ctx
from agentkit.core.contracts.requests import LLMResult, StreamEvent
from agentkit.state.context import WorkingContext

from .approval import Decision, autonomy_of, decide, gated, needs_approval
from .asking import Asking
from .loop import End, EndState, Loop, LoopLimits, Round
from .plan import UNREADABLE, Plan, reflection
from .records import CheckpointerSource, Progress, RunRecord, checkpointer_for, restore_budget, run_id_of
from .results import AgentResult, Suspended
from .rounds import Rounds
from .stop import Step, conditions_of, copies, first_reason
from .tools import Tool, Toolbox

PARALLEL = ("all", "read_only")


class ReActCognition:
    """Lets the model call `tools` until an answer calls none, a `stop` condition holds, or `max_iterations` answers
    came, which makes the result partial.

    `parallel`: `all` runs the calls of an answer together, `read_only` only where none has side effects. `checkpointer`
    makes a run survive its process and lets calls wait for approval: a Checkpointer, a function of the run
    (`store_checkpointer`), or None for that of the run's services. Raises ValueError for two tools of one name.
    """

    def __init__(
        self,
        tools: Iterable[Tool],
        max_iterations: int = 8,
        stop: Any = None,
        checkpointer: CheckpointerSource | None = None,
        parallel: str = "all",
    ) -> None:
        if type(max_iterations) is not int:
            raise TypeError(f"max_iterations must be an int, not {type(max_iterations).__name__}")
        if max_iterations < 1:
            raise ValueError(f"max_iterations must be at least 1: {max_iterations}")
        if parallel not in PARALLEL:
            raise ValueError(f"parallel must be one of {', '.join(PARALLEL)}, not {parallel!r}")
        if checkpointer is not None and not hasattr(checkpointer, "snapshot") and not callable(checkpointer):
            raise TypeError(f"checkpointer must be a Checkpointer or make one, not {type(checkpointer).__name__}")
        self.tools, self.stop = Toolbox(tools), conditions_of(stop)
        self.max_iterations, self.checkpointer, self.parallel = max_iterations, checkpointer, parallel

    async def stream(self, plan: Plan, task: str, ctx: Ctx, wc: WorkingContext) -> AsyncGenerator[StreamEvent, None]:
        checkpointer = checkpointer_for(self.checkpointer, ctx)
        if checkpointer is None:
            self._require_no_approval(ctx)
        record = None if checkpointer is None else RunRecord(checkpointer, run_id_of(ctx), ctx)
        if record is not None:
            await record.require_new()
        run = ToolRun(self, plan, ctx, wc, Progress(), record)
        async with aclosing(run.go(task)) as events:
            async for event in events:
                yield event

    async def resume(
        self, plan: Plan, run_id: str, decisions: Mapping[str, Any], ctx: Ctx, wc: WorkingContext
    ) -> AsyncGenerator[StreamEvent, None]:
        checkpointer = checkpointer_for(self.checkpointer, ctx)
        if checkpointer is None:
            raise RuntimeError(f"there is no checkpointer to find the run {run_id!r} with")
        record = RunRecord(checkpointer, run_id, ctx)
        found = await record.find()
        progress = found.progress
        decided = decide(decisions, progress.pending, self.tools)
        found.fill(wc)
        restore_budget(ctx, run_id, progress)
        run = ToolRun(self, plan, ctx, wc, progress, record)
        events = run.already_over(found.end) if found.end is not None else run.take_up(decided)
        async with aclosing(events):
            async for event in events:
                yield event

    def _require_no_approval(self, ctx: Ctx) -> None:
        autonomy = autonomy_of(ctx)
        for tool in self.tools:
            if needs_approval(tool, autonomy):
                raise ValueError(
                    f"calls of {tool.name!r} wait for approval at autonomy {autonomy!r}, and there is no checkpointer "
                    "to keep the run meanwhile: pass ReActCognition(checkpointer=...) or Services(checkpointer=...)"
                )

    def __repr__(self) -> str:
        names = ", ".join(tool.name for tool in self.tools)
        return f"ReActCognition([{names}], max_iterations={self.max_iterations})"


class ToolRun:
    """One run of a tool loop."""

    def __init__(
        self,
        cognition: ReActCognition,
        plan: Plan,
        ctx: Ctx,
        wc: WorkingContext,
        progress: Progress,
        record: RunRecord | None,
    ) -> None:
        self._cognition, self._plan, self._ctx, self._wc = cognition, plan, ctx, wc
        self._progress, self._record = progress, record
        self._asking = Asking(plan, ctx, wc, cognition.tools.schemas)
        self._asking.usage, self._asking.calls, self._asking.text = progress.usage, progress.calls, progress.text
        self._asking.prompt_version = progress.prompt_version
        self._stops = copies(cognition.stop)
        self._ended: End | None = None
        self._stop: str | None = None
        self._rounds = Rounds(cognition.tools, ctx, wc, plan.hooks, progress, record)
        together = cognition.parallel == "all"
        self._loop = Loop(
            LoopLimits(cognition.max_iterations, None, None, None),
            started=0.0,
            read_only=lambda name: together or not cognition.tools.has_effects(name),
        )

    # Ways in

    async def go(self, task: str) -> AsyncGenerator[StreamEvent, None]:
        """From a task, or from where the context stands, to the end."""
        result: AgentResult | None = None
        while result is None:
            end = self._ended or self._loop.guard(0.0)
            if end is not None:
                result = self._over(end)
                break
            last = self._loop.steps + 1 >= self._cognition.max_iterations
            async with aclosing(self._asking.ask(task, last=last)) as events:
                async for event in events:
                    yield event
            task = ""
            step = self._take_answer()
            if isinstance(step, End):
                self._reason()  # conditions that count see every answer
                result = self._read(step)
                if result is None:
                    yield StreamEvent("step", data={"repair": self._progress.repairs})
                continue
            async with aclosing(self._round(step)) as events:
                async for event in events:
                    yield event
            if self._stop is not None:
                result = self._stopped(self._stop)
            elif self._progress.pending:
                async for event in self._wait():
                    yield event
                return
        async with aclosing(self._end(result)) as events:
            async for event in events:
                yield event

    async def take_up(self, decided: Mapping[str, Decision]) -> AsyncGenerator[StreamEvent, None]:
        """Go on where an earlier life, or a wait for approval, left the run."""
        progress = self._progress
        step = self._loop.take_up(progress.steps, 0, progress.open)
        if step is not None:
            progress.decided.update(decided)
            progress.pending = ()
            self._rounds.mark_unknown()
            async with aclosing(self._round(step, again=True)) as events:
                async for event in events:
                    yield event
        async with aclosing(self.go("")) as events:
            async for event in events:
                yield event

    async def already_over(self, end: Mapping[str, Any]) -> AsyncGenerator[StreamEvent, None]:
        """The end of a run that was durable before anybody heard of it."""
        parsed = None
        with suppress(*UNREADABLE):
            parsed = self._plan.read(LLMResult(end["output"]))
        async with aclosing(self._tell(self._result(end["output"], end["partial"], end["reason"], parsed))) as events:
            async for event in events:
                yield event

    # One answer, one round

    def _take_answer(self) -> Round | End:
        asking, progress = self._asking, self._progress
        step = self._loop.answer(asking.message, asking.result.usage)
        progress.usage, progress.calls, progress.steps = asking.usage, asking.calls, self._loop.steps
        progress.prompt_version, progress.text = asking.prompt_version, asking.text
        if isinstance(step, Round):
            progress.open, progress.round = step.calls, step.number
        return step

    def _reason(self) -> str | None:
        """Why to stop at the latest answer."""
        return first_reason(self._stops, Step(self._loop.steps, self._asking.message, self._asking.usage))

    async def _round(self, step: Round, *, again: bool = False) -> AsyncGenerator[StreamEvent, None]:
        """Tell the calls of an answer and run them, unless the run stops here or they wait for approval. `again`: an
        earlier life did the telling. Whatever ends it in the middle, every call has a result in the context then."""
        progress, rounds = self._progress, self._rounds
        try:
            if not again:
                self._stop = self._reason()
                for call in step.calls:
                    yield StreamEvent("tool_call", call.name, call)
                if self._stop is not None:
                    rounds.close(f"the run stopped ({self._stop})", not_begun=True)
                    return
                progress.pending = gated(step.calls, self._cognition.tools, autonomy_of(self._ctx))
                if progress.pending:
                    if self._record is None:
                        raise RuntimeError(
                            f"{progress.pending[0].name} waits for approval, and there is no checkpointer"
                        )
                    await self._record.save(self._wc, progress, "suspended")
                    return
            async with aclosing(rounds.run(together=step.together)) as events:
                async for event in events:
                    yield event
        except BaseException as error:
            await self._abandon(error)
            raise
        self._ended = self._loop.results(rounds.finish())
        yield StreamEvent("step", data={"iteration": step.number})

    async def _abandon(self, error: BaseException) -> None:
        """Leave whole messages behind, and, as far as the store still takes it, on record."""
        is_cancelled = isinstance(error, (asyncio.CancelledError, GeneratorExit))
        self._rounds.close("the run was cancelled" if is_cancelled else f"the run failed ({type(error).__name__})")
        if self._record is not None and self._record.is_written:
            with suppress(Exception):  # what ended the run is what its caller has to hear of
                await self._record.save(self._wc, self._progress)

    # Ways out

    def _read(self, end: End) -> AgentResult | None:
        """The result of an answer without calls; None where the model is to try once more."""
        progress, plan = self._progress, self._plan
        try:
            parsed = plan.read(self._asking.result)
        except UNREADABLE as error:
            if progress.repairs >= plan.max_repairs:
                return self._result(end.output, True, "invalid_output")
            progress.repairs += 1
            self._wc.append(Message("user", reflection(error)))
            return None
        return self._result(end.output, self._asking.result.partial, None, parsed)

    def _over(self, end: End) -> AgentResult:
        """The result where the machine ended the run: at its ceiling, in the midst of repairs maybe."""
        unread = self._progress.repairs > 0 and not self._asking.message.tool_calls
        reason = "invalid_output" if unread else end.reason if end.state is EndState.COMPLETED else str(end.state)
        return self._result(self._asking.text, end.state is not EndState.COMPLETED, reason)

    def _stopped(self, reason: str) -> AgentResult:
        """The result where a stop condition ended the run: not partial, unless an answer in some form was asked for."""
        try:
            return self._result(self._asking.text, False, reason, self._plan.read(self._asking.result))
        except UNREADABLE:
            return self._result(self._asking.text, True, reason)

    def _result(self, output: str, partial: bool, reason: str | None, parsed: Any = None) -> AgentResult:
        return AgentResult(output, self._progress.usage, partial, parsed, self._progress.prompt_version, reason)

    async def _wait(self) -> AsyncGenerator[StreamEvent, None]:
        assert self._record is not None
        pending = self._progress.pending
        names = ", ".join(sorted({call.name for call in pending}))
        suspended = Suspended(self._record.run_id, pending, f"waits for approval: {names}")
        yield StreamEvent("interrupt", suspended.reason, suspended)
        result = replace(self._result(self._progress.text, True, "suspended"), suspended=suspended)
        yield StreamEvent("final", result.output, result)

    async def _end(self, result: AgentResult) -> AsyncGenerator[StreamEvent, None]:
        if self._record is not None:
            await self._record.end(self._wc, self._progress, result)
        async with aclosing(self._tell(result)) as events:
            async for event in events:
                yield event

    async def _tell(self, result: AgentResult) -> AsyncGenerator[StreamEvent, None]:
        """The last event; only when it was taken, or left, is the run forgotten, whose end is durable by then."""
        try:
            yield StreamEvent("final", result.output, result)
        finally:
            if self._record is not None:
                await self._record.forget()
