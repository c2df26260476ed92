"""Calls of tools over lives: what was begun and has no end is told as unknown and not run again, unless it may be; keys
are the same in every life and no other call's; a sender's grants hold in each."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agentd.context.registry import NotYours
from agentd.runtime.principals import OPERATOR, Principal
from agentd.runtime.tools.base import Invocation
from agentkit.core.contracts.requests import ChatRequest
from agentkit.core.testing import FaultyStore
from agentkit.state.stores import InMemoryStore
from tests.agentd.daemon.house import House, Said, StrictLLM, forever, results, texts, until

pytestmark = pytest.mark.anyio
ANN, ANYBODY = Principal("ann"), Principal("anonymous", "anonymous")


def hang(house: House, tool: str, index: int) -> None:
    """Calls of this tool at this place of their round do not end by themselves."""

    async def run(asked: Invocation) -> Any:
        return await forever() if asked.index == index else {"index": asked.index}

    house.hands.do[tool] = run


async def interrupted(house: House, calls: Said, *, at: int) -> str:
    """A life that ends while the call at this place is under way. Returns the task."""
    async with house.life(StrictLLM(calls)) as agent:
        sent = await agent.send("go", context="c")
        await until(lambda: any(call.index == at for call in house.hands.calls))
        await house.end(agent)
    house.hands.do.clear()
    return sent.task.id


async def test_f3_what_was_begun_is_unknown_and_what_was_not_is_not_run() -> None:
    house = House()
    hang(house, "post", 1)
    task = await interrupted(house, [("post", {"n": n}) for n in range(3)], at=1)
    model = StrictLLM("taken up")
    async with house.life(model) as agent:
        assert (await agent.wait(task)).text == "taken up"
        done, unknown, not_run = await results(agent, "c")
        assert (done.content, done.state, done.is_error) == ({"index": 0}, "", False)
        assert (unknown.state, unknown.is_error) == ("unknown", True)
        assert (not_run.state, not_run.is_error) == ("not_run", True)
        assert [call.arguments["n"] for call in house.hands.calls] == [0, 1], "nothing was run again"
        told = texts(model.requests[0])
        assert "not known whether this call took effect" in told
        assert "was not run" in told
        event = await agent.events.wait_event("effect.unknown", context="c")
        assert event.data["call"] == unknown.id


async def test_f3_what_only_reads_is_run_again() -> None:
    house = House()
    hang(house, "look", 1)
    task = await interrupted(house, [("look", {"n": 0}), ("look", {"n": 1})], at=1)
    async with house.life(StrictLLM("taken up")) as agent:
        assert (await agent.wait(task)).text == "taken up"
        assert [result.state for result in await results(agent, "c")] == ["", ""]
        assert sorted(call.arguments["n"] for call in house.hands.calls) == [0, 0, 1, 1]


async def test_f3_f5_what_may_be_repeated_is_run_again_under_its_key() -> None:
    house = House()
    hang(house, "put", 0)
    task = await interrupted(house, [("put", {"n": 0})], at=0)
    async with house.life(StrictLLM("taken up")) as agent:
        assert (await agent.wait(task)).text == "taken up"
        [result] = await results(agent, "c")
        assert (result.content, result.state) == ({"tool": "put", "saw": {"n": 0}}, "")
        first, again = house.hands.calls
        assert first.key == again.key
        assert first.call == again.call


async def test_f3_results_stand_in_the_order_of_their_calls() -> None:
    house = House()
    hang(house, "put", 1)
    task = await interrupted(house, [("post", {}), ("put", {}), ("post", {}), ("look", {})], at=1)
    async with house.life(StrictLLM("taken up")) as agent:
        assert (await agent.wait(task)).text == "taken up"
        found = [(result.name, result.state) for result in await results(agent, "c")]
        assert found == [("post", ""), ("put", ""), ("post", "not_run"), ("look", "")]
        assert house.hands.names() == ["post", "put", "put", "look"]


async def test_f3_a_crash_while_it_is_taken_up_runs_nothing_with_an_effect_again() -> None:
    house = House()
    hang(house, "put", 1)
    calls: Said = [("post", {}), ("put", {}), ("post", {})]
    task = await interrupted(house, calls, at=1)
    hang(house, "put", 1)
    async with house.life(StrictLLM("not asked")) as agent:
        house.hands.begun.clear()
        await house.hands.begun.wait()
        await house.end(agent)
    house.hands.do.clear()
    async with house.life(StrictLLM("taken up")) as agent:
        assert (await agent.wait(task)).text == "taken up"
        assert [result.state for result in await results(agent, "c")] == ["", "", "not_run"]
        assert house.hands.names() == ["post", "put", "put", "put"]
        assert len({call.key for call in house.hands.calls if call.tool == "put"}) == 1


async def test_f3_a_tool_that_is_gone_in_the_next_life_is_not_run_again() -> None:
    house = House()
    hang(house, "look", 0)
    task = await interrupted(house, [("look", {})], at=0)
    async with house.life(StrictLLM("taken up"), given={"tools__disabled": "[look]"}) as agent:
        assert (await agent.wait(task)).text == "taken up"
        [result] = await results(agent, "c")
        assert result.is_error
        assert house.hands.names() == ["look"]


async def test_f3_a_finish_on_record_ends_the_turn_without_the_model() -> None:
    house = House()
    hang(house, "post", 1)
    calls: Said = [("finish", {"status": "completed", "output": "the end"}), ("post", {})]
    task = await interrupted(house, calls, at=1)
    model = StrictLLM("not asked")
    async with house.life(model) as agent:
        ended = await agent.wait(task)
        assert (ended.end_state, ended.text) == ("completed", "the end")
        assert not model.requests


@pytest.mark.parametrize(
    ("limits", "end", "rounds"), [({}, "loop_detected", 4), ({"limits__run__steps": 3}, "exhausted_steps", 3)]
)
async def test_steps_and_loops_count_over_lives(limits: dict[str, Any], end: str, rounds: int) -> None:
    house = House()
    hang(house, "look", 1)
    async with house.life(StrictLLM([("look", {})], [("look", {})], [("look", {}), ("look", {"n": 1})])) as agent:
        sent = await agent.send("go", context="c")
        await until(lambda: any(call.index == 1 for call in house.hands.calls))
        await house.end(agent)
    hang(house, "look", 9)
    async with house.life(StrictLLM([("look", {})]), given=limits) as agent:
        ended = await agent.wait(sent.task.id)
        assert (ended.end_state, ended.usage["rounds"]) == (end, rounds)


async def test_f5_keys_of_rounds_turns_contexts_and_lives_are_all_different() -> None:
    house = House()
    for _ in range(2):
        three: Said = [("post", {}), ("put", {}), ("look", {})]
        model = StrictLLM(three, "done", three, "done", three, "done")
        async with house.life(model) as agent:
            for context in ("c", "c", "d"):
                await agent.ask("go", context=context)
        model = StrictLLM([("look", {}), ("look", {})], [("look", {"n": 1})], "done")
        async with house.life(model) as agent:
            await agent.ask("go", context="c")
    keys = [call.key for call in house.hands.calls]
    assert len(keys) == len(set(keys)) == 24


async def test_results_of_calls_that_run_together_stand_in_call_order() -> None:
    house, second = House(), asyncio.Event()

    async def crossed(asked: Invocation) -> int:
        if asked.index == 0:
            await second.wait()
        else:
            second.set()
        return asked.index

    house.hands.do["look"] = crossed
    async with house.life(StrictLLM([("look", {}), ("look", {})], "done")) as agent:
        assert (await agent.ask("go", context="c")).text == "done"
        assert [result.content for result in await results(agent, "c")] == [0, 1]


async def test_a_tool_over_its_time_is_an_error_that_the_model_reads() -> None:
    house = House(limits__tool_timeout="30s")
    house.hands.do["post"] = lambda asked: forever()
    async with house.life(StrictLLM([("post", {})], "well"), sleep=house.clock.sleep) as agent:
        sent = await agent.send("go", context="c")
        await house.hands.begun.wait()
        house.clock.advance(30)
        assert (await agent.wait(sent.task.id)).text == "well"
        [result] = await results(agent, "c")
        assert "limits.tool_timeout" in result.content


async def test_a_cancel_while_a_call_is_written_down_runs_nothing() -> None:
    store = FaultyStore(InMemoryStore())
    house = House(store=store)
    gates = []

    def answer(request: ChatRequest) -> Said:
        gates.append(store.delay(of="commit"))
        return [("post", {}), ("post", {})]

    async with house.life(StrictLLM(answer=answer)) as agent:
        sent = await agent.send("go", context="c")
        await agent.events.wait_event("turn.round")
        await until(lambda: bool(gates))
        await gates[0].reached()
        await agent.cancel(sent.task.id)
        gates[0].open()
        assert (await agent.wait(sent.task.id)).end_state == "cancelled"
        assert not house.hands.calls
        assert [result.state for result in await results(agent, "c")] == ["unknown", "not_run"]


# Grants


async def test_f44_a_user_and_an_anonymous_sender_cannot_reach_root() -> None:
    async with House().life(StrictLLM("done")) as agent:
        task = await agent.ask("for the operator", context="root")
        assert task.text == "done"
        for sender in (ANN, ANYBODY, Principal("peer", "agent")):
            with pytest.raises(NotYours):
                await agent.send("hello", context="root", principal=sender)
            with pytest.raises(NotYours):
                await agent.command("status", context="root", principal=sender)
            with pytest.raises(LookupError):
                await agent.cancel(task.id, principal=sender)
        assert agent.contexts.get("root") is not None
        assert (await agent.command("status", principal=OPERATOR))["entries"] == 3


def offered(request: ChatRequest) -> set[str]:
    return {tool.name for tool in request.tools or ()}


@pytest.mark.parametrize(
    ("sender", "given", "missing", "kept"),
    [
        (ANYBODY, {}, {"post", "look", "memory_set"}, {"memory_get", "finish"}),
        (ANN, {"tools__disabled": "[post]"}, {"post"}, {"look", "memory_set"}),
        (OPERATOR, {"tools__disabled": "['memory.*', post]"}, {"post", "memory_set", "memory_get"}, {"look"}),
        (ANN, {"tools__grants": "{user: [post, finish]}"}, {"look", "memory_set"}, {"post", "finish"}),
        (ANYBODY, {"tools__grants": "{anonymous: [post, finish]}"}, {"post", "think"}, {"finish"}),
    ],
)
async def test_f45_a_tool_not_granted_is_neither_offered_nor_executed(
    sender: Principal, given: dict[str, str], missing: set[str], kept: set[str]
) -> None:
    house = House(**given)  # type: ignore[arg-type]
    model = StrictLLM([(name, {"key": "k", "value": 1} if "memory" in name else {}) for name in sorted(missing)], "so")
    async with house.life(model) as agent:
        assert (await agent.ask("go", context="c", principal=sender)).text == "so"
        assert not offered(model.requests[0]) & missing
        assert kept <= offered(model.requests[0])
        found = await results(agent, "c")
        assert len(found) == len(missing)
        assert all(result.is_error and "there is no tool" in result.content for result in found)
        assert not house.hands.calls
        assert await agent.services.records.get("memory", "k") is None
        assert not missing & {word.strip("`,.:()") for word in model.requests[0].messages[0].content.split()}


async def test_f45_a_grant_is_that_of_the_one_who_speaks() -> None:
    house = House(tools__grants="{user: [finish]}")
    post: Said = [("post", {})]
    model = StrictLLM(post, "so", post, "so")
    async with house.life(model) as agent:
        await agent.ask("go", context="c", principal=ANN)
        assert not house.hands.calls
        await agent.ask("go", context="c", principal=OPERATOR)
        assert house.hands.names() == ["post"]
