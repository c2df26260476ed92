"""The tool calls of one round: run together or in order, each with a result, whatever happens. Calls the run's invoker
and writes down what it does in the run's record, where there is one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from agentkit.core.contracts.blocks import TextBlock
from agentkit.core.contracts.messages import Message, ToolCall
from agentkit.core.contracts.ports import Ctx
from agentkit.core.contracts.requests import StreamEvent, ToolRequest
from agentkit.core.runtime import RunContext
from agentkit.state.context import WorkingContext

from .approval import REJECTED, Decision, changed_note
from .hooks import Hooks
from .records import Progress, RunRecord
from .tools import Toolbox, as_result, error_result, told

UNKNOWN = "It is not known whether this call took effect: {}. It was not run again. Look before you repeat it."
NOT_RUN = "This call was not run: {}."


class Rounds:
    """Runs the calls that `progress` has open. `results` are there when a round is over; after a failure or a
    cancellation `close` gives every call one."""

    def __init__(
        self, tools: Toolbox, ctx: Ctx, wc: WorkingContext, hooks: Hooks, progress: Progress, record: RunRecord | None
    ) -> None:
        self._tools, self._ctx, self._wc, self._hooks = tools, ctx, wc, hooks
        self._progress, self._record = progress, record
        self._begun: set[str] = set()

    async def run(self, *, together: bool) -> AsyncGenerator[StreamEvent, None]:
        """Run the open calls that have no result yet; yields each result, in the order of the calls."""
        progress = self._progress
        self._reject()
        left = [call for call in progress.open if call.id not in progress.results]
        groups = [left] if together else [[call] for call in left]
        told = 0
        for group in groups:
            async with aclosing(self._run_group(group)) as moments:
                async for _ in moments:
                    while told < len(progress.open) and (call := progress.open[told]).id in progress.results:
                        told += 1
                        message = progress.results[call.id]
                        yield StreamEvent("tool_result", message.content, message)
        for call in progress.open[told:]:
            message = progress.results[call.id]
            yield StreamEvent("tool_result", message.content, message)

    async def _run_group(self, calls: Sequence[ToolCall]) -> AsyncGenerator[None, None]:
        """Run these together; yields whenever some of them are done."""
        if not calls:
            return
        progress = self._progress
        runnable = [call.id for call in calls if self._tools.problem(self._as_decided(call)) is None]
        progress.started.update(runnable)
        if runnable:
            await self._save()
        jobs = {asyncio.create_task(self._run_one(call)) for call in calls}
        waiting = set(jobs)
        try:
            while waiting:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for job in done:
                    job.result()
                yield
        finally:
            for job in waiting:
                job.cancel()
            await asyncio.gather(*jobs, return_exceptions=True)

    async def _run_one(self, call: ToolCall) -> None:
        self._progress.results[call.id] = await self._answer(call)
        await self._save()

    async def _answer(self, call: ToolCall) -> Message:
        decision = self._progress.decided.get(call.id)
        asked = self._as_decided(call)
        problem = self._tools.problem(asked)
        tool = self._tools.get(call.name)
        if problem is not None or tool is None:
            return error_result(call, problem or "")
        request = ToolRequest(asked, side_effecting=tool.side_effecting)

        async def body(request: ToolRequest, ctx: Ctx) -> Any:
            self._begun.add(call.id)
            return await tool.run(request.arguments, ctx)

        await self._hooks.call("before_tool", self._ctx, request)
        try:
            made = as_result(call, await self._ctx.invoker.invoke_tool(request, self._inside(call), body))
        except Exception as error:
            made = error_result(call, told(error))
        await self._hooks.call("after_tool", self._ctx, request, made)
        return _noted(made, decision)

    def _as_decided(self, call: ToolCall) -> ToolCall:
        decision = self._progress.decided.get(call.id)
        return call if decision is None else decision.applied(call)

    def _inside(self, call: ToolCall) -> Ctx:
        """The run as the tool sees it: agents that it runs have a run id of their own, the same in every life."""
        if not isinstance(self._ctx, RunContext):
            return self._ctx
        return self._ctx.at(f"{self._progress.round}.{self._progress.open.index(call)}")

    def _reject(self) -> None:
        for call in self._progress.open:
            decision = self._progress.decided.get(call.id)
            if decision is not None and not decision.approved and call.id not in self._progress.results:
                self._progress.results[call.id] = error_result(call, REJECTED)

    def close(self, reason: str, *, not_begun: bool = False) -> None:
        """Give each open call a result that says what is known, and append all of them. `not_begun`: none was run."""
        progress = self._progress
        for call in progress.open:
            if call.id not in progress.results:
                began = not not_begun and call.id in self._begun
                progress.results[call.id] = error_result(
                    call, (UNKNOWN if began else NOT_RUN).format(reason), synthetic=True
                )
        self.finish()

    def finish(self) -> list[Message]:
        """Append the results of the round, which is over then, in the order of its calls."""
        progress, results = self._progress, self._progress.in_order()
        self._wc.extend(results)
        progress.open, progress.round = (), 0
        progress.results, progress.started, progress.decided, progress.pending = {}, set(), {}, ()
        self._begun.clear()
        return results

    def mark_unknown(self) -> None:
        """Give the calls that an earlier life started, and left without a result, one that says so."""
        progress = self._progress
        for call in progress.open:
            if call.id in progress.started and call.id not in progress.results:
                progress.results[call.id] = error_result(
                    call, UNKNOWN.format("the process ended in the middle of it"), synthetic=True
                )
                self._ctx.emit("tool.unknown", tool=call.name, call=call.id)

    async def _save(self) -> None:
        if self._record is not None:
            await self._record.save(self._wc, self._progress)


def _noted(made: Message, decision: Decision | None) -> Message:
    """The result, with the note that other arguments than the model's led to it in front."""
    note = None if decision is None else changed_note(decision)
    if note is None:
        return made
    if made.blocks:
        return replace(made, content=f"{note}\n{made.content}", blocks=(TextBlock(f"{note}\n"), *made.blocks))
    return made.with_text(f"{note}\n{made.content}")
