"""Questions, approvals and timers under answers, cancels, time and ends of lives in any order: each is asked once and
answered at most once, every task ends as it has to, and nothing is left waiting."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentd.context.record import AssistantMsg, ToolMsg
from agentd.runtime.answers import Unfitting
from agentd.runtime.daemon import Daemon
from agentd.runtime.waits import NotOpen
from agentkit.core.contracts.requests import ChatRequest
from tests.agentd.daemon.house import House, Said, StrictLLM, log_of, settled

pytestmark = pytest.mark.anyio
MINUTE = 60
KINDS = ("open", "choice", "timed", "approval", "sleep")
STEPS = st.one_of(
    st.tuples(st.just("send"), st.sampled_from(KINDS)),
    st.tuples(st.sampled_from(["answer", "wrong", "cancel", "race", "twice"]), st.integers(0, 3)),
    st.tuples(st.just("go_by"), st.sampled_from([MINUTE // 2, MINUTE, 5 * MINUTE])),
    st.tuples(st.sampled_from(["end", "drain", "compact"]), st.just(0)),
)


def work(request: ChatRequest) -> Said:
    """A model that makes one call by the kind of its task, and tells its result."""
    if any(message.role == "tool" for message in request.messages):
        return "told"
    text = "\n".join(message.content for message in request.messages if message.role == "user")
    kind = next(kind for kind in KINDS if f"do {kind}" in text)
    calls: dict[str, tuple[str, dict[str, Any]]] = {
        "open": ("ask_human", {"question": "What?"}),
        "choice": ("ask_human", {"question": "Which?", "options": ["red", "blue"]}),
        "timed": ("ask_human", {"question": "Now?", "timeout": "1m"}),
        "approval": ("post", {"n": 1}),
        "sleep": ("sleep", {"seconds": MINUTE}),
    }
    return [calls[kind]]


@dataclass
class Job:
    """A task, and what has to become of it. `due`: when it ends by itself, in seconds of the clock."""

    task: str
    context: str
    kind: str
    due: float | None
    end: str = ""

    @property
    def fitting(self) -> str:
        return "yes" if self.kind == "approval" else "red"


class World:
    """One store, the tasks on it, and what is known of them."""

    def __init__(self) -> None:
        self.house = House(agent__max_parallel_turns=1, agent__approval='["post"]')
        self.model = StrictLLM(answer=work)
        self.jobs: list[Job] = []
        self.agent: Daemon

    async def play(self, steps: list[tuple[str, Any]]) -> None:
        left = list(steps)
        while True:
            async with self.house.life(self.model, people=True, sleep=self.house.clock.sleep) as agent:
                self.agent = agent
                await self.check()
                while left:
                    name, argument = left.pop(0)
                    if name == "end":
                        await self.house.end(agent)
                        break
                    if name == "drain":
                        assert await agent.drain(timeout=5)
                        break
                    await getattr(self, name)(argument)
                    await self.check()
                else:
                    await self.finish()
                    return

    @property
    def waiting(self) -> list[Job]:
        """Those that a person can answer."""
        return [job for job in self.jobs if not job.end and job.kind != "sleep"]

    def chosen(self, at: int) -> Job | None:
        return self.waiting[at % len(self.waiting)] if self.waiting else None

    # Steps

    async def send(self, kind: str) -> None:
        context = f"c{len(self.jobs)}"
        task = (await self.agent.send(f"do {kind}", context=context)).task.id
        due = self.house.clock.now + MINUTE if kind in ("timed", "sleep") else None
        self.jobs.append(Job(task, context, kind, due))

    async def answer(self, at: int) -> None:
        if (job := self.chosen(at)) is not None:
            await self.agent.answer(job.task, job.fitting, message_id=f"answer to {job.task}")
            job.end = "answered"

    async def twice(self, at: int) -> None:
        """The same message, sent twice at once."""
        if (job := self.chosen(at)) is not None:
            again = [self.agent.answer(job.task, job.fitting, message_id=f"twice {job.task}") for _ in range(2)]
            assert [task.id for task in await asyncio.gather(*again)] == [job.task] * 2
            job.end = "answered"

    async def wrong(self, at: int) -> None:
        job = self.chosen(at)
        if job is not None and job.kind in ("choice", "approval"):
            with pytest.raises(Unfitting):
                await self.agent.answer(job.task, "whatever", message_id=f"wrong {job.task}")
        for job in self.jobs:
            if job.end or job.kind == "sleep":
                with pytest.raises(NotOpen):
                    await self.agent.answer(job.task, "red")

    async def cancel(self, at: int) -> None:
        going = [job for job in self.jobs if not job.end]
        if going:
            job = going[at % len(going)]
            assert await self.agent.cancel(job.task)
            job.end = "cancelled"

    async def race(self, at: int) -> None:
        """F50: one is answered while it is cancelled: one of both holds, whole."""
        if (job := self.chosen(at)) is not None:
            answered, _ = await asyncio.gather(
                self.agent.answer(job.task, job.fitting), self.agent.cancel(job.task), return_exceptions=True
            )
            assert isinstance(answered, NotOpen) or not isinstance(answered, BaseException)
            ended = await self.agent.wait(job.task)
            job.end = {"completed": "answered", "canceled": "cancelled"}[ended.state]

    async def compact(self, _: int) -> None:
        for job in self.jobs[-2:]:
            await self.agent.command("context.compact", context=job.context, keep_last=0)

    async def go_by(self, seconds: int) -> None:
        self.house.clock.advance(seconds)

    # What has to hold

    async def check(self) -> None:
        await settled()
        for job in self.jobs:
            if not job.end and job.due is not None and job.due <= self.house.clock.now:
                job.end = "over"
        assert {one.task for one in self.agent.questions()} == {job.task for job in self.waiting}
        assert self.agent.services.slots.held == 0

    async def finish(self) -> None:
        while self.waiting:
            await self.answer(0)
        await self.go_by(MINUTE)
        await self.check()
        await self.agent.until_idle()
        assert await self.agent.services.records.ids("wait") == []
        posts = [call for call in self.house.hands.calls if call.tool == "post"]
        # An answer that a cancel raced with may have let the call run.
        assert sum(job.kind == "approval" and job.end == "answered" for job in self.jobs) <= len(posts)
        assert len({call.key for call in posts}) == len(posts)
        for job in self.jobs:
            task = await self.agent.services.inbox.task(job.task)
            assert task.state == ("canceled" if job.end == "cancelled" else "completed"), job
            bodies = [entry.body for entry in await log_of(self.agent, job.context)]
            found = [body for body in bodies if isinstance(body, ToolMsg)]
            calls = [call for body in bodies if isinstance(body, AssistantMsg) for call in body.tool_calls]
            assert len(found) == len(calls) <= 1, job
            if job.end == "answered":
                assert not found[0].is_error
                assert job.kind == "approval" or found[0].content["answer"] == "red"
            elif job.end == "over":
                assert found[0].is_error == (job.kind == "timed"), job


@settings(max_examples=400 if os.environ.get("AGENTKIT_SOAK") else 25, deadline=None)
@given(st.lists(STEPS, max_size=12))
async def test_f47_f50_waits_in_any_order_of_events(steps: list[tuple[str, Any]]) -> None:
    await World().play(steps)
