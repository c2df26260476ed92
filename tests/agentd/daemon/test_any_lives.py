"""Messages, notes, cancels, pauses and ends of lives in any order on one store; the model and the tools do anything.
What was acknowledged ends once, logs are whole, and nothing with an effect runs twice."""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentd.context.record import AssistantMsg, Effect, ToolMsg, UserMsg
from agentd.runtime.daemon import Daemon
from agentd.runtime.inbox import Task
from agentd.runtime.tools.base import Invocation
from agentkit.core.contracts.errors import PermanentError
from agentkit.core.contracts.requests import ChatRequest
from agentkit.core.contracts.validity import check
from tests.agentd.daemon.house import House, Said, StrictLLM, forever, log_of

pytestmark = pytest.mark.anyio

STEPS = st.one_of(
    st.tuples(st.just("send"), st.integers(0, 9)),
    st.tuples(st.just("send"), st.integers(0, 9)),
    st.tuples(st.just("note"), st.integers(0, 1)),
    st.tuples(st.just("cancel"), st.integers(0, 9)),
    st.tuples(st.just("wait"), st.integers(0, 40)),
    st.tuples(st.just("wait"), st.integers(0, 40)),
    st.tuples(st.sampled_from(["pause", "resume", "end", "compact", "drain"]), st.just(0)),
)


class World:
    """One store, what was acknowledged on it, and chance."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.house = House(
            agent__max_parallel_turns=2, agent__wake_on="[alarm]", context__model_window=4_000, context__keep_last=2,
            intelligence__max_output=300, limits__run__steps=8,
        )  # fmt: skip
        self.acknowledged: dict[str, str] = {}
        self.illegal: list[Any] = []
        for tool in ("post", "look", "put"):
            self.house.hands.do[tool] = self.do
        self.hangs = True

    async def do(self, asked: Invocation) -> Any:
        for _ in range(self.chance.randrange(6)):
            await asyncio.sleep(0)
        luck = self.chance.random()
        if luck < 0.05 and self.hangs:
            await forever()
        if luck < 0.15:
            raise RuntimeError("no luck")
        return "x" * self.chance.choice([1, 10, 2_000])

    async def answer(self, request: ChatRequest) -> Said:
        if found := check(request.messages, prefix=request.prefix_length):
            self.illegal.append(found)
        for _ in range(self.chance.randrange(6)):
            await asyncio.sleep(0)
        luck = self.chance.random()
        if luck < 0.03 and self.hangs:
            await forever()
        if luck < 0.08:
            return PermanentError("400: no luck")
        if luck < 0.1:
            return RuntimeError("no luck at all")
        calls: list[Said] = [
            [("post", {})], [("look", {}), ("look", {"n": 1})], [("put", {"n": 1}), ("post", {"n": 2})],
            [("memory.set", {"key": "k", "value": luck})], [("finish", {"status": "completed"}), ("post", {})],
            [("nothing", {})], [("context.compact", {})], [("plan.create", {"goal": "g", "items": ["a"]})],
        ]  # fmt: skip
        return self.chance.choice([*calls, "done", "done", "word " * 200])

    async def step(self, agent: Daemon, op: str, n: int) -> None:
        if op == "send" and not agent.actors.is_draining:
            made = await agent.send(f"message {n} " * 20, context=f"c{n % 3}", message_id=f"m{n}")
            known = self.acknowledged.setdefault(f"m{n}", made.task.id)
            assert known == made.task.id
        elif op == "note" and not agent.actors.is_draining:
            await agent.note(f"note {n}", kind="alarm" if n else "note")
        elif op == "cancel" and f"m{n}" in self.acknowledged:
            await agent.cancel(self.acknowledged[f"m{n}"])
        elif op == "wait":
            for _ in range(n):
                await asyncio.sleep(0)
        elif op == "pause":
            agent.pause()
        elif op == "resume":
            agent.resume()
        elif op == "compact":
            asyncio.get_running_loop().create_task(self.compact(agent))
        elif op == "drain":
            await agent.drain(0)

    async def compact(self, agent: Daemon) -> None:
        with suppress(Exception, asyncio.CancelledError):
            await agent.command("context.compact", context="c0")


@given(st.lists(STEPS, min_size=5, max_size=60), st.integers(0, 2**32))
@settings(max_examples=1_000 if os.environ.get("AGENTKIT_SOAK") else 10)
async def test_f1_f2_f3_any_order_of_lives_ends_everything_once(steps: list[tuple[str, int]], seed: int) -> None:
    world, left = World(seed), list(steps)
    while left:
        async with world.house.life(StrictLLM(answer=world.answer)) as agent:
            while left:
                op, n = left.pop(0)
                if op == "end":
                    break
                await world.step(agent, op, n)
            await world.house.end(agent)
    world.hangs = False
    async with world.house.life(StrictLLM(answer=world.answer)) as agent:
        await asyncio.wait_for(agent.until_idle(), 60)
        tasks = {id: await agent.wait(task, timeout=1) for id, task in world.acknowledged.items()}
        await verify(agent, world, tasks)


async def verify(agent: Daemon, world: World, tasks: dict[str, Task]) -> None:
    assert not world.illegal
    assert len(agent.services.inbox) == 0
    assert agent.services.slots.held == 0
    assert not any(level.reserved.requests for level in agent.services.governor.levels())
    seen: Counter[str | None] = Counter()
    ends: Counter[str] = Counter()
    for context in await agent.services.records.ids("context"):
        log = await log_of(agent, context)
        assert [entry.n for entry in log] == list(range(1, len(log) + 1))
        seen.update(entry.body.message_id for entry in log if isinstance(entry.body, UserMsg))
        ends.update(entry.body.of for entry in log if entry.kind == "outcome")
        calls = [call.id for entry in log if isinstance(entry.body, AssistantMsg) for call in entry.body.tool_calls]
        assert sorted(e.body.id for e in log if isinstance(e.body, ToolMsg)) == sorted(calls)
        begun = Counter(e.body.call for e in log if isinstance(e.body, Effect) and e.body.state == "started")
        assert set(begun.values()) <= {1}
    assert seen == Counter(dict.fromkeys(world.acknowledged, 1))
    for id, task in tasks.items():
        assert task.is_settled, id
        assert ends[task.turn] == 1, id
    keys = Counter(call.key for call in world.house.hands.calls if call.tool == "post")
    assert set(keys.values()) <= {1}, "run again in silence"
