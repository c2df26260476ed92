"""Laws of the tool loop, over random runs that are stopped, cancelled, killed and taken up again at any point: what is
sent is valid, what is left is valid, and nothing that has an effect happens twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.agents import Agent, AgentResult, ReActCognition, Step, store_checkpointer, tool
from agentkit.core.contracts.errors import RunSuspendedError
from agentkit.core.contracts.ports import Batch, Lease, Store
from agentkit.core.contracts.types import LLMResult, Scope, ToolCall, Usage
from agentkit.core.contracts.validity import check
from agentkit.core.runtime import RunContext
from agentkit.core.testing import FakeLLM, make_test_ctx
from agentkit.state.context import WorkingContext
from agentkit.state.stores import InMemoryStore, SQLiteStore

KINDS = ("look", "write", "delete", "fail", "nobody")
LEAVING = ("message_delta", "tool_call", "tool_result", "step")
WITH_EFFECT = ("write", "delete", "fail")


class Kill(BaseException):
    """The process ends here."""


@dataclass
class World:
    """What outlives a process: what tools have done; and when the process dies or is cancelled, in steps."""

    done: Counter[str] = field(default_factory=Counter)
    kill_at: int | None = None
    cancel_at: int | None = None
    steps: int = 0
    dead: bool = False
    task: asyncio.Task[Any] | None = None

    def step(self) -> None:
        if self.dead:
            raise Kill
        self.steps += 1
        if self.steps == self.kill_at:
            self.dead = True
            raise Kill
        if self.steps == self.cancel_at and self.task is not None:
            self.task.cancel()

    async def act(self, key: str) -> str:
        """One effect, and steps before and after it."""
        self.step()
        await asyncio.sleep(0)
        if self.dead:
            raise Kill
        self.done[key] += 1
        self.step()
        await asyncio.sleep(0)
        return key


class Mortal(InMemoryStore):
    """A store whose process may die before a commit or after it."""

    world: World

    async def commit(self, batch: Batch, *, fence: Lease | None = None) -> tuple[int, ...]:
        self.world.step()
        await asyncio.sleep(0)
        found = await super().commit(batch, fence=fence)
        self.world.step()
        return found


def tools_of(world: World) -> list[Any]:
    @tool(side_effecting=False)
    async def look(key: str) -> str:
        world.step()
        await asyncio.sleep(0)
        return key

    @tool(side_effecting=True)
    async def write(key: str) -> str:
        return await world.act(key)

    @tool(side_effecting=True, requires_approval=True)
    async def delete(key: str) -> str:
        return await world.act(key)

    @tool(side_effecting=True)
    async def fail(key: str) -> str:
        await world.act(key)
        raise RuntimeError("after all")

    return [look, write, delete, fail]


def model(script: list[list[str]], world: World) -> FakeLLM:
    """Answers by how many rounds the transcript has, so that every life goes on where it stands."""

    def answer(system: str, user: str, name: str | None) -> LLMResult:
        world.step()
        number = sum(1 for message in llm.requests[-1].messages if message.tool_calls)
        if number >= len(script):
            return LLMResult("done", usage=Usage(1, 1))
        calls = [ToolCall(f"{number}_{at}", kind, {"key": f"{number}_{at}"}) for at, kind in enumerate(script[number])]
        return LLMResult(f"round {number}", tuple(calls), Usage(1, 1))

    llm = FakeLLM(answer, validate=check)
    return llm


@dataclass(frozen=True)
class Fate:
    """What becomes of one life, and after how many steps."""

    kind: str
    after: int


fates = st.lists(
    st.builds(Fate, st.sampled_from(["kill", "cancel", "leave"]), st.integers(1, 30)), min_size=1, max_size=4
)
scripts = st.lists(st.lists(st.sampled_from(KINDS), min_size=1, max_size=4), min_size=1, max_size=4)


@dataclass
class Lives:
    """A run over as many lives as it takes."""

    script: list[list[str]]
    parallel: str
    autonomy: str
    decide: Any
    world: World = field(default_factory=World)
    rejected: set[str] = field(default_factory=set)
    broken: int = 0
    heard: AgentResult | None = None

    def ctx(self, store: Store, llm: FakeLLM, scope: Scope | None = None) -> RunContext:
        return make_test_ctx(llm=llm, store=store, autonomy=self.autonomy, scope=scope)

    async def live(
        self, store: Store, fate: Fate | None, pending: tuple[ToolCall, ...], first: bool
    ) -> AgentResult | None:
        """One process: begins the run or takes it up. The result, or None where it came to no end."""
        world = self.world
        world.dead, world.steps, world.kill_at, world.cancel_at = False, 0, None, None
        if fate is not None and fate.kind == "kill":
            world.kill_at = fate.after
        if fate is not None and fate.kind == "cancel":
            world.cancel_at = fate.after
        agent = Agent(
            "a",
            cognition=ReActCognition(
                tools_of(world), max_iterations=9, checkpointer=store_checkpointer, parallel=self.parallel
            ),
        )
        wc = WorkingContext()
        ctx = self.ctx(store, model(self.script, world))
        decisions = {call.id: self.decide(call) for call in pending}
        self.rejected |= {call_id for call_id, decision in decisions.items() if decision == "reject"}
        events = (
            agent.stream("go", ctx, context=wc)
            if first
            else agent.resume_stream("test-run", decisions, ctx, context=wc)
        )

        async def follow() -> None:
            seen = 0
            try:
                async for event in events:
                    seen += 1
                    if fate is not None and fate.kind == "leave" and seen >= fate.after and event.kind in LEAVING:
                        return
                    if event.kind == "final":
                        self.heard = event.data  # whoever follows the run has the end, whatever becomes of the process
            finally:
                await events.aclose()

        self.heard = None
        world.task = asyncio.ensure_future(follow())
        try:
            await world.task
        except (Kill, asyncio.CancelledError):
            self.broken += 1
        except RuntimeError:  # a generator that is closed while it dies says so in its own words
            if not world.dead:
                raise
            self.broken += 1
        died, world.dead, world.kill_at, world.cancel_at = world.dead, False, None, None
        if not died and not await waiting(store, self):
            assert check(wc.messages) == ()
        return self.heard


async def all_lives(lives: Lives, store: Mortal, plan: list[Fate]) -> AgentResult:
    store.world = lives.world
    ahead: list[Fate | None] = [*plan]
    for number in range(40):
        fate = ahead.pop(0) if ahead else None
        first = number == 0 or not await store.keys()
        result = await lives.live(store, fate, await waiting(store, lives), first)
        if result is not None and result.suspended is None:
            return result
    raise AssertionError("the run came to no end")


async def waiting(store: Store, lives: Lives) -> tuple[ToolCall, ...]:
    """The calls that wait for a decision in the store, as an operator would look them up."""
    found = await store_checkpointer(lives.ctx(store, FakeLLM())).resume("test-run", include_terminal=True)
    if found is None or found.status != "suspended":
        return ()
    ids = set(found.state["agent"]["pending"])
    return tuple(call for message in found.state["messages"] for call in message.tool_calls if call.id in ids)


@given(
    scripts,
    st.sampled_from(["all", "read_only"]),
    st.sampled_from(["auto", "gated", "manual"]),
    fates | st.just([]),
    st.integers(0, 3),
)
def test_no_effect_happens_twice_and_every_transcript_is_valid(
    script: list[list[str]], parallel: str, autonomy: str, plan: list[Fate], reject: int
) -> None:
    def decide(call: ToolCall) -> str:
        return "reject" if int(call.id[-1]) == reject else "approve"

    lives = Lives(script, parallel, autonomy, decide)
    result = asyncio.run(all_lives(lives, Mortal(), plan))
    assert result.output == "done"
    assert max(lives.world.done.values(), default=0) <= 1
    assert not set(lives.world.done) & lives.rejected
    if not lives.broken and not any(fate.kind == "leave" for fate in plan):
        expected = {
            f"{n}_{at}" for n, kinds in enumerate(script) for at, kind in enumerate(kinds) if kind in WITH_EFFECT
        }
        assert set(lives.world.done) == expected - lives.rejected


@pytest.mark.parametrize("kind", ["kill", "cancel", "leave"])
@pytest.mark.parametrize("parallel", ["all", "read_only"])
def test_every_point_of_a_run_can_be_its_last(kind: str, parallel: str) -> None:
    """W5, W9: all points of a run with an approval in it, one after another, twice in a row."""
    script = [["write", "look"], ["write", "delete"], ["write"]]
    outcomes: set[tuple[int, ...]] = set()
    for after in range(1, 45, 1 if kind == "kill" else 4):
        lives = Lives(script, parallel, "auto", lambda call: "approve")
        result = asyncio.run(all_lives(lives, Mortal(), [Fate(kind, after), Fate(kind, after)]))
        assert result.output == "done"
        assert max(lives.world.done.values()) <= 1, after
        outcomes.add(tuple(lives.world.done[key] for key in ("0_0", "1_0", "1_1", "2_0")))
    assert (1, 1, 1, 1) in outcomes


@given(scripts, st.integers(1, 4), st.sampled_from(["all", "read_only"]))
def test_a_stop_at_any_answer_leaves_whole_rounds(script: list[list[str]], at: int, parallel: str) -> None:
    async def go() -> None:
        world, wc = World(), WorkingContext()

        def stop(step: Step) -> str | None:
            return "here" if step.number == at else None

        agent = Agent("a", cognition=ReActCognition(tools_of(world)[:2], stop=stop, parallel=parallel))
        result = await agent.run("go", make_test_ctx(llm=model(script, world)), context=wc)
        assert result.reason == (None if at > len(script) else "here")
        assert check(wc.messages) == ()
        made = {f"{n}_{i}" for n, kinds in enumerate(script[: at - 1]) for i, k in enumerate(kinds) if k == "write"}
        assert set(world.done) == made

    asyncio.run(go())


@given(scripts, fates)
def test_another_tenant_never_takes_a_run_up(script: list[list[str]], plan: list[Fate]) -> None:
    """T1, T5."""

    async def go() -> None:
        lives, store = Lives(script, "all", "auto", lambda call: "approve"), Mortal()
        store.world = lives.world
        await lives.live(store, plan[0], (), True)
        before, keys = lives.world.done.copy(), await store.keys()
        llm = FakeLLM("x")
        other = Agent("b", cognition=ReActCognition(tools_of(lives.world), checkpointer=store_checkpointer))
        with pytest.raises(LookupError, match="no run 'test-run'"):
            await other.resume("test-run", {}, lives.ctx(store, llm, Scope("other")))
        assert (llm.calls, lives.world.done, await store.keys()) == (0, before, keys)
        if keys:
            with pytest.raises(RunSuspendedError):
                await other.run("go", lives.ctx(store, llm))

    asyncio.run(go())


def test_a_real_file_serves_as_well(tmp_path: Any) -> None:
    async def go() -> None:
        lives = Lives([["write", "delete"], ["look", "write"]], "all", "auto", lambda call: "approve")
        store = SQLiteStore(tmp_path / "runs.db")
        await lives.live(store, Fate("kill", 4), (), True)
        result = await lives.live(store, None, (), not await store.keys())
        while result is not None and result.suspended is not None:
            result = await lives.live(store, None, result.suspended.pending, False)
        assert result is not None
        assert (result.output, set(lives.world.done.values())) == ("done", {1})
        await store.aclose()

    asyncio.run(go())
