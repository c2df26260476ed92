"""Runs that wait for approval, and runs that their process left: taken up from what is stored, nothing run twice."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from agentkit.agents import Agent, AgentResult, ReActCognition, Suspended, store_checkpointer, tool
from agentkit.agents.loop import Loop, LoopLimits, Round
from agentkit.core.contracts.errors import Conflict, InvalidDecisionError, MeterExceeded, RunSuspendedError, ScopeError
from agentkit.core.contracts.messages import marked
from agentkit.core.contracts.ports import Store
from agentkit.core.contracts.types import LLMResult, Message, Scope, ToolCall, Usage
from agentkit.core.contracts.validity import check
from agentkit.core.runtime import Budget, RunContext
from agentkit.core.testing import FakeLLM, FaultyStore, make_test_ctx
from agentkit.state.context import PrefixContext, WorkingContext
from agentkit.state.persistence import Checkpointer, StoreCheckpoints
from agentkit.state.stores import InMemoryStore, SQLiteStore

pytestmark = pytest.mark.anyio

ran: list[Any] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


@tool(side_effecting=False)
async def look(what: str) -> str:
    ran.append(("look", what))
    return f"saw {what}"


@tool(side_effecting=True)
async def write(text: str) -> str:
    ran.append(("write", text))
    return f"wrote {text}"


@tool(side_effecting=True, requires_approval=True)
async def delete(path: str, force: bool = False) -> str:
    ran.append(("delete", path, force))
    return f"deleted {path}"


def calls(*named: tuple[str, str, dict[str, Any]], text: str = "") -> LLMResult:
    return LLMResult(text, tuple(ToolCall(*given) for given in named), Usage(10, 5, 0.0001))


ASKS = calls(("1", "look", {"what": "x"}), ("2", "delete", {"path": "a"}), ("3", "delete", {"path": "b"}), text="Now.")


def worker(**options: Any) -> Agent:
    cognition = ReActCognition([look, write, delete], checkpointer=store_checkpointer, **options)
    return Agent("a", "fake", prompt="Be brief.", cognition=cognition)


def run_of(store: Store, *turns: Any, **options: Any) -> RunContext:
    return make_test_ctx(llm=FakeLLM(validate=check).script(turns or ["never asked"]), store=store, **options)


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    made: Store = InMemoryStore() if request.param == "memory" else SQLiteStore(tmp_path / "runs.db")
    yield made
    await made.aclose()


async def suspended(store: Store, *turns: Any, **options: Any) -> AgentResult:
    result = await worker().run("go", run_of(store, *(turns or (ASKS,)), **options))
    assert result.suspended is not None
    return result


# Approval


async def test_gated_batch_waits_before_anything_runs(store: Store) -> None:
    events = [e async for e in worker().stream("go", run_of(store, ASKS))]
    assert ran == []
    assert [e.kind for e in events[-2:]] == ["interrupt", "final"]
    pending = (ToolCall("2", "delete", {"path": "a"}), ToolCall("3", "delete", {"path": "b"}))
    waits = Suspended("test-run", pending, "waits for approval: delete")
    assert events[-2].data == waits
    end = events[-1].data
    assert (end.suspended, end.partial, end.reason, end.output) == (waits, True, "suspended", "Now.")


async def test_decisions_are_carried_out_in_another_run(store: Store) -> None:
    await suspended(store)
    wc = WorkingContext(scope=Scope("test"))
    ctx = run_of(store, "done")
    result = await worker().resume("test-run", {"2": "approve"}, ctx, context=wc)
    assert ran == [("look", "x"), ("delete", "a", False)]
    assert (result.output, result.usage, result.suspended) == ("done", Usage(20, 10, 0.0002), None)
    assert [m.content for m in wc.messages] == [
        "go", "Now.", "saw x", "deleted a", "The user rejected this call. It was not run.", "done",
    ]  # fmt: skip
    assert wc.prefix == PrefixContext("Be brief.")
    assert [m.is_error for m in wc.messages[2:5]] == [False, False, True]
    assert await store.keys() == []


@pytest.mark.parametrize("given", [{"path": "c", "force": True}, '{"path": "c", "force": true}'])
async def test_new_arguments_take_the_place_of_the_models(given: Any) -> None:
    store, wc = InMemoryStore(), WorkingContext()
    await suspended(store, calls(("1", "delete", {"path": "a"})))
    await worker().resume("test-run", {"1": given}, run_of(store, "done"), context=wc)
    assert ran == [("delete", "c", True)]
    assert wc.messages[2].content == (
        'The user changed the arguments of this call to {"path": "c", "force": true}.\ndeleted c'
    )
    assert wc.messages[1].tool_calls[0].arguments == {"path": "a"}


@pytest.mark.parametrize(
    ("decisions", "named"),
    [
        ({"2": "aprove"}, "'aprove'"),
        ({"2": "[1]"}, r"'\[1\]'"),
        ({"2": [1]}, r"\[1\]"),
        ({"2": True}, "True"),
        ({"2": 5}, "5"),
        ({"2": {"path": 5}}, "path: expected a string, got 5"),
        ({"2": {}}, "missing: path"),
        ({"9": "approve"}, "no call waits for a decision as 9; waiting: 2, 3"),
        ({"1": "approve"}, "no call waits for a decision as 1"),
        (["2"], "mapping"),
    ],
)
async def test_invalid_decision_leaves_the_run_waiting(decisions: Any, named: str) -> None:
    store = InMemoryStore()
    await suspended(store)
    if isinstance(decisions, dict):
        decisions = {"3": "approve", **decisions}
    with pytest.raises(InvalidDecisionError, match=named):
        await worker().resume("test-run", decisions, run_of(store))
    assert ran == []
    assert (await worker().resume("test-run", {}, run_of(store, "done"))).output == "done"
    assert ran == [("look", "x")]


def gates(autonomy: str, name: str) -> bool:
    return name == "delete" or autonomy == "manual" or (autonomy == "gated" and name == "write")


@pytest.mark.parametrize("autonomy", ["auto", "gated", "manual"])
@pytest.mark.parametrize("decision", ["approve", "reject", None])
async def test_who_waits_and_who_runs(autonomy: str, decision: str | None) -> None:
    store = InMemoryStore()
    turn = calls(("1", "look", {"what": "x"}), ("2", "write", {"text": "y"}), ("3", "delete", {"path": "z"}),
                 ("4", "delete", {}), ("5", "nobody", {}))  # fmt: skip
    result = await worker().run("go", run_of(store, turn, autonomy=autonomy))
    assert result.suspended is not None
    names = {"1": "look", "2": "write", "3": "delete"}
    waiting = [call_id for call_id, name in names.items() if gates(autonomy, name)]
    assert [call.id for call in result.suspended.pending] == waiting
    decisions = {} if decision is None else dict.fromkeys(waiting, decision)
    await worker().resume("test-run", decisions, run_of(store, "done", autonomy=autonomy))
    assert [entry[0] for entry in ran] == [
        name for name in names.values() if decision == "approve" or not gates(autonomy, name)
    ]


async def test_nothing_waits_where_nothing_is_gated() -> None:
    store = InMemoryStore()
    result = await worker().run("go", run_of(store, calls(("1", "write", {"text": "x"})), "done"))
    assert (result.suspended, ran, await store.keys()) == (None, [("write", "x")], [])


async def test_approval_without_checkpoints_is_refused_at_once() -> None:
    llm = FakeLLM("x")
    agent = Agent("a", cognition=ReActCognition([look, delete]))
    with pytest.raises(ValueError, match="'delete' wait for approval at autonomy 'auto', and there is no checkpointer"):
        await agent.run("go", make_test_ctx(llm=llm))
    assert llm.calls == 0
    with pytest.raises(RuntimeError, match="no checkpointer"):
        await agent.resume("x", {}, make_test_ctx(llm=llm))
    with pytest.raises(ValueError, match="no store to keep checkpoints in"):
        await worker().run("go", make_test_ctx(llm=llm))


async def test_two_who_take_up_one_run_run_it_once() -> None:
    """W1: whoever is second gets a conflict before any tool of his runs."""
    store = FaultyStore(InMemoryStore())
    await suspended(store, calls(("1", "delete", {"path": "a"})))
    gate = store.delay(of="commit")
    slow = asyncio.create_task(worker().resume("test-run", {"1": "approve"}, run_of(store, "done")))
    await gate.reached()
    assert (await worker().resume("test-run", {"1": "approve"}, run_of(store, "done"))).output == "done"
    gate.open()
    with pytest.raises(Conflict):
        await slow
    assert ran == [("delete", "a", False)]


async def test_checkpointer_of_the_services_is_used() -> None:
    kept = Checkpointer(StoreCheckpoints(InMemoryStore(), Scope("test")))
    agent = Agent("a", cognition=ReActCognition([look, delete]))
    ctx = make_test_ctx(llm=FakeLLM().script([ASKS]), checkpointer=kept)
    assert (await agent.run("go", ctx)).suspended is not None
    assert (await kept.resume("test-run")) is not None


async def test_suspended_run_is_not_run_again() -> None:
    store = InMemoryStore()
    await suspended(store)
    with pytest.raises(RunSuspendedError, match="'test-run' waits for decisions"):
        await worker().run("go", run_of(store))
    await worker().run("go", run_of(store, "other", correlation_id="other-run"))


async def test_unknown_and_foreign_runs_are_the_same() -> None:
    """T5: another tenant cannot resume, and learns nothing."""
    store = InMemoryStore()
    await suspended(store)
    said = []
    for run_id, scope in (("test-run", Scope("other")), ("unknown", Scope("other")), ("unknown", Scope("test"))):
        with pytest.raises(LookupError) as caught:
            await worker().resume(run_id, {"2": "approve"}, run_of(store, scope=scope))
        said.append(str(caught.value).replace("unknown", "test-run"))
    assert len(set(said)) == 1
    assert ran == []
    one = Checkpointer(StoreCheckpoints(store, Scope("test")))
    shared = Agent("a", cognition=ReActCognition([look, delete], checkpointer=one))
    with pytest.raises(LookupError, match="no run 'test-run'"):
        await shared.resume("test-run", {}, run_of(store, scope=Scope("other")))
    with pytest.raises(ScopeError):
        await shared.run("go", run_of(InMemoryStore(), ASKS, scope=Scope("other"), correlation_id="new"))


async def test_two_tenants_may_use_one_run_id() -> None:
    """T1."""
    store = InMemoryStore()
    for tenant in ("one", "two"):
        turn = calls(("1", "delete", {"path": tenant}))
        assert (await worker().run("go", run_of(store, turn, scope=Scope(tenant)))).suspended is not None
    await worker().resume("test-run", {"1": "approve"}, run_of(store, "done", scope=Scope("two")))
    assert ran == [("delete", "two", False)]
    await worker().resume("test-run", {"1": "approve"}, run_of(store, "done", scope=Scope("one")))
    assert ran[1:] == [("delete", "one", False)]


async def test_passed_context_is_filled_in_place() -> None:
    store = InMemoryStore()
    wc = WorkingContext(scratchpad={"note": [1]})
    wc.append(Message("user", "before"), Message("assistant", "yes"))
    await worker().run("go", run_of(store, ASKS), context=wc)
    messages, note = wc.messages, {"stale": True}
    other = WorkingContext(messages=[Message("user", "else")], scratchpad=note)
    version = other.version
    await worker().resume("test-run", {}, run_of(store, "done"), context=other)
    assert (other.messages[:2], other.scratchpad) == (messages[:2], {"note": [1]})
    assert other.version > version
    other.scratchpad["note"].append(2)  # live again, at every depth
    with pytest.raises(TypeError, match="context must be a WorkingContext"):
        await worker().resume("test-run", {}, run_of(store), context=[])  # type: ignore[arg-type]


async def test_budget_is_billed_once_wherever_the_run_goes_on() -> None:
    store, budget = InMemoryStore(), Budget(max_calls=5)
    asks = [calls((call_id, "delete", {"path": "a"})) for call_id in "123"]
    await suspended(store, asks[0], budget=budget)
    await worker().resume("test-run", {}, run_of(store, asks[1], budget=budget))
    assert (budget.calls, budget.spent) == (2, Usage(20, 10, 0.0002))
    fresh = Budget(max_calls=5)
    await worker().resume("test-run", {}, run_of(store, asks[2], budget=fresh))
    assert (fresh.calls, fresh.spent) == (3, Usage(30, 15, 0.0003))
    spent = Budget(max_calls=3)
    with pytest.raises(MeterExceeded):
        await worker().resume("test-run", {}, run_of(store, "x", budget=spent))


async def test_ceiling_counts_over_all_lives() -> None:
    store = InMemoryStore()
    agent = worker(max_iterations=2)
    await agent.run("go", run_of(store, ASKS))
    again = await agent.resume("test-run", {}, run_of(store, calls(("9", "look", {"what": "y"}))))
    assert (again.reason, again.partial, again.output) == ("exhausted_steps", True, "Now.")


async def test_loop_takes_up_a_round_or_none() -> None:
    one = Loop(LoopLimits(), started=0, read_only=lambda name: True)
    call = ToolCall("1", "look")
    assert one.take_up(3, 7, [call]) == Round(3, (call,), True)
    assert (one.progress.owed, one.steps, one.tokens) == (("1",), 3, 7)
    with pytest.raises(RuntimeError, match="round 3 already"):
        one.take_up(1)


# Crashes


async def test_run_writes_nothing_until_a_tool_runs() -> None:
    store = InMemoryStore()
    await worker().run("go", run_of(store, "done"))
    assert await store.keys() == []


async def test_what_cannot_be_written_down_is_not_run() -> None:
    """W7."""
    store, wc = FaultyStore(InMemoryStore()), WorkingContext()
    store.fail(of="commit", error=OSError("disk full"))
    with pytest.raises(OSError, match="disk full"):
        await worker().run("go", run_of(store, calls(("1", "write", {"text": "x"}))), context=wc)
    assert (ran, await store.keys()) == ([], [])
    assert wc.messages[-1].content == "This call was not run: the run failed (OSError)."
    store.fail(2, of="commit", error=OSError("disk full"))  # the result is not written, so nobody knows of it later
    with pytest.raises(OSError, match="disk full"):
        await worker().run("go", run_of(store, calls(("1", "write", {"text": "x"}))))
    again = WorkingContext()
    await worker().resume("test-run", {}, run_of(store, "done"), context=again)
    assert ran == [("write", "x")]
    assert again.messages[2].content.startswith(("wrote x", "It is not known"))


async def test_swapped_arguments_of_resume_are_named() -> None:
    ctx: Any = run_of(InMemoryStore())
    with pytest.raises(TypeError, match=r"not dict: resume\(run_id, decisions, ctx, context=...\)"):
        await worker().resume("test-run", ctx, {})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="run_id must be a str"):
        await worker().resume(ctx, {}, ctx)


async def test_failed_model_call_leaves_a_run_to_go_on_with() -> None:
    store, wc = InMemoryStore(), WorkingContext()
    with pytest.raises(OSError, match="line"):
        await worker().run("go", run_of(store, calls(("1", "write", {"text": "x"})), OSError("line")))
    with pytest.raises(RunSuspendedError, match="was left running"):
        await worker().run("go", run_of(store))
    with pytest.raises(InvalidDecisionError, match="waiting: none"):
        await worker().resume("test-run", {"1": "approve"}, run_of(store))
    result = await worker().resume("test-run", {}, run_of(store, "done"), context=wc)
    assert (ran, result.output, result.usage.input_tokens) == ([("write", "x")], "done", 20)
    assert [m.content for m in wc.messages] == ["go", "", "wrote x", "done"]


async def test_end_that_nobody_heard_of_is_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    store = InMemoryStore()

    async def killed(self: Any, run_id: str) -> None:
        raise asyncio.CancelledError

    with monkeypatch.context() as patch:
        patch.setattr(Checkpointer, "delete", killed)
        with pytest.raises(asyncio.CancelledError):
            await worker().run("go", run_of(store, calls(("1", "write", {"text": "x"})), "done"))
    ctx = run_of(store)
    result = await worker().resume("test-run", {}, ctx)
    assert (result.output, result.usage, ran) == ("done", Usage(20, 10, 0.0002), [("write", "x")])
    assert await store.keys() == []


async def test_agents_inside_tools_have_run_ids_of_their_own() -> None:
    store, seen = InMemoryStore(), []

    @tool(side_effecting=True)
    async def ask(task: str, ctx: RunContext) -> str:
        inner = await worker().run(task, run_inside(ctx))
        assert inner.suspended is not None
        seen.append(inner.suspended.run_id)
        return "waits"

    def run_inside(ctx: RunContext) -> RunContext:
        child = ctx.child("critic")
        made = run_of(store, ASKS)
        return RunContext(child.correlation_id, child.scope, services=made.services, depth=1, path=child.path)

    outer = Agent("o", cognition=ReActCognition([ask], checkpointer=store_checkpointer))
    turn = calls(("1", "ask", {"task": "a"}), ("2", "ask", {"task": "b"}))
    await outer.run("go", run_of(store, turn, "done"))
    assert sorted(seen) == ["test-run/1.0/critic", "test-run/1.1/critic"]
    assert (await worker().resume(seen[0], {}, run_of(store, "ok"))).output == "ok"


CHILD = """
import asyncio, os, signal, sys, json
from agentkit.agents import Agent, ReActCognition, store_checkpointer, tool
from agentkit.core.contracts.types import LLMResult, ToolCall, Usage
from agentkit.core.testing import FakeLLM, FaultyStore, make_test_ctx
from agentkit.state.stores import SQLiteStore

path, log, resume = sys.argv[1], sys.argv[2], sys.argv[3:]

def note(text):
    with open(log, "a") as out:
        out.write(text + "\\n")

@tool(side_effecting=True)
async def first() -> str:
    note("first")
    return "one"

@tool(side_effecting=True)
async def deadly() -> str:
    note("deadly")
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"

@tool(side_effecting=True)
async def last() -> str:
    note("last")
    return "three"

async def main():
    store = SQLiteStore(path)
    calls = LLMResult("", tuple(ToolCall(n, n) for n in ("first", "deadly", "last")), Usage(7, 3))
    tools = [first, deadly, last]
    agent = Agent("a", cognition=ReActCognition(tools, checkpointer=store_checkpointer, parallel="read_only"))
    llm = FakeLLM(lambda system, user, model: "done" if resume else calls, usage=Usage(7, 3))
    ctx = make_test_ctx(llm=llm, store=store)
    result = await (agent.resume("test-run", {}, ctx) if resume else agent.run("go", ctx))
    sent = [[m.role, m.content] for m in llm.requests[-1].messages]
    keys = await store.keys()
    print(json.dumps({"output": result.output, "input": result.usage.input_tokens, "sent": sent, "keys": keys}))
    await store.aclose()

asyncio.run(main())
"""


async def test_killed_in_a_tool_and_taken_up_by_another_process(tmp_path: Path) -> None:
    """W5: kill -9 in the middle of three calls. The first is not run again, the second is unknown, the third runs."""
    script, log = tmp_path / "child.py", tmp_path / "log"
    script.write_text(textwrap.dedent(CHILD))
    command = [sys.executable, str(script), str(tmp_path / "runs.db"), str(log)]
    dead = await asyncio.to_thread(subprocess.run, command, capture_output=True, timeout=60)
    assert dead.returncode == -signal.SIGKILL, dead.stderr
    assert log.read_text().split() == ["first", "deadly"]
    alive = await asyncio.to_thread(subprocess.run, [*command, "resume"], capture_output=True, text=True, timeout=60)
    assert alive.returncode == 0, alive.stderr
    assert log.read_text().split() == ["first", "deadly", "last"]
    told = json.loads(alive.stdout)
    assert (told["output"], told["input"], told["keys"]) == ("done", 14, [])
    unknown = (
        "It is not known whether this call took effect: the process ended in the middle of it. It was not run again. "
        "Look before you repeat it."
    )
    assert told["sent"] == [["user", "go"], ["assistant", ""], ["tool", "one"], ["tool", unknown], ["tool", "three"]]


async def test_unknown_outcome_is_a_stand_in() -> None:
    """W5: so a real result that comes after all takes its place."""
    store, wc = InMemoryStore(), WorkingContext()
    started = asyncio.Event()

    @tool(side_effecting=True)
    async def hang() -> str:
        started.set()
        await asyncio.Event().wait()
        return ""

    hanging = Agent("a", cognition=ReActCognition([hang], checkpointer=store_checkpointer))
    ctx = make_test_ctx(llm=FakeLLM().script([calls(("1", "hang", {}))]), store=store)
    task = asyncio.create_task(hanging.run("go", ctx, context=wc))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert marked(wc.messages[-1], "synthetic") is not None
    again = WorkingContext()
    await hanging.resume("test-run", {}, make_test_ctx(llm=FakeLLM("ok"), store=store), context=again)
    assert again.messages[:-1] == wc.messages
    assert check(again.messages) == ()


async def test_a_round_costs_the_store_the_same_however_long_the_run() -> None:
    """W8: only what is new is written."""
    store, rounds = FaultyStore(InMemoryStore()), 60
    agent = Agent("a", cognition=ReActCognition([write], max_iterations=99, checkpointer=store_checkpointer))
    turns = [calls((f"c{n}", "write", {"text": "x" * 200})) for n in range(rounds)]
    events = agent.stream("go", run_of(store, *turns, "done"))
    written = [store.written async for event in events if event.kind == "step"]
    costs = [after - before for before, after in pairwise(written)]
    assert max(costs[-10:]) < 1.1 * max(costs[:10])
    assert len(ran) == rounds
