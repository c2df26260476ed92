"""Commands to a context, and those of them that are obeyed while its turn in hand waits for a person or other work:
that may take days, and what is waited for may come by a command. Works through the context's writer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from .inbox import Draining, Item
from .writer import Writer


@dataclass
class Command:
    """Something to do between two turns, and who waits for it. `any_time`: also between two steps of a turn that
    waits."""

    run: Callable[[Writer], Awaitable[Any]]
    result: asyncio.Future[Any]
    any_time: bool = False


class Between:
    """Takes such commands out of the queue `jobs`, past what stands before them, and has `obey` do them."""

    def __init__(self, jobs: deque[Item | Command], obey: Callable[[Command], Awaitable[None]], name: str) -> None:
        self._jobs, self._obey, self._name = jobs, obey, name
        self._task: asyncio.Task[None] | None = None

    def serve(self, writer: Writer | None) -> None:
        """There is a new command, or the turn in hand has begun to wait."""
        if writer is not None and writer.is_at_rest and self._task is None and self._next() is not None:
            self._task = asyncio.create_task(self._serve(writer), name=self._name)

    async def over(self) -> None:
        """Wait until nothing works on the context beside the turn any more."""
        if self._task is not None:
            await asyncio.wait({self._task})

    async def stop(self) -> None:
        """End where it is."""
        if self._task is not None:
            self._task.cancel()
            await self.over()

    def refuse(self) -> None:
        """Nobody obeys what is left: items stay for the next life, and there nobody waits for a command."""
        for job in self._jobs:
            if isinstance(job, Command) and not job.result.done():
                job.result.set_exception(Draining("the agent is going down; the command was not run"))
                job.result.exception()  # some are waited for by nobody

    def _next(self) -> Command | None:
        return next((job for job in self._jobs if isinstance(job, Command) and job.any_time), None)

    async def _serve(self, writer: Writer) -> None:
        try:
            async with writer.between:
                while writer.is_at_rest and (job := self._next()) is not None:
                    self._jobs.remove(job)
                    await self._obey(job)
        finally:
            self._task = None
