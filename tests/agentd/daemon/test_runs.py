"""Background runs: calls that go on beside the turns, over crashes, told by a note."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from agentd.context.record import FilePart
from agentd.runtime.daemon import Busy, Daemon
from agentd.runtime.principals import Principal
from agentd.runtime.retention import Janitor
from agentd.runtime.tools.base import Answer, Invocation, Tool
from agentkit.core.testing import FaultyStore
from agentkit.state.stores import InMemoryStore
from tests.agentd.daemon.house import House, Said, StrictLLM, notes, results, settled, until

pytestmark = pytest.mark.anyio
ANN = Principal("ann")


def start(tool: str = "look", **more: Any) -> list[tuple[str, dict[str, Any]]]:
    return [("run.start", {"tool": tool, **more})]


class Gate:
    """What a tool waits for before it answers."""

    def __init__(self, house: House, *tools: str) -> None:
        self.event = asyncio.Event()
        for tool in tools:
            house.hands.do[tool] = self.run

    async def run(self, asked: Invocation) -> Any:
        await self.event.wait()
        return {"n": asked.arguments.get("n")}


async def one(agent: Daemon, at: int = 0, context: str = "c") -> Any:
    found = (await results(agent, context))[at]
    return found.content if not found.is_error else f"error: {found.content}"


async def test_turn_goes_on_and_a_note_tells_the_end() -> None:
    house = House()
    gate = Gate(house, "post")
    async with house.life(StrictLLM(start("post", arguments={"n": 1}), "started")) as agent:
        assert (await agent.ask("go", context="c")).text == "started"
        told = await one(agent)
        assert told["state"] == "working"
        gate.event.set()
        await until(lambda: not agent.services.runs.of_context("c"))
        await agent.until_idle()
        assert (await notes(agent, "c")) == [
            f'Run {told["id"]} of post has ended as completed. What it brought, quoted:\n{{"n":1}}'
        ]
        found = await agent.services.runs.find(told["id"])
        assert found is not None
        assert found.told == {"id": told["id"], "state": "completed", "result": {"n": 1}}
        assert (await agent.events.wait_event("run.end", context="c")).data["state"] == "completed"
        assert await agent.services.records.ids("running") == []


@pytest.mark.parametrize(("tool", "state"), [("look", "completed"), ("put", "completed"), ("post", "unknown")])
async def test_f5_crash_leaves_none_working_and_repeats_only_what_may_be(tool: str, state: str) -> None:
    house = House()
    gate = Gate(house, tool)
    async with house.life(StrictLLM(start(tool, arguments={"n": 1}), "started")) as agent:
        await agent.ask("go", context="c")
        run = (await one(agent))["id"]
        await until(lambda: bool(house.hands.calls))
        await agent.services.runs.aclose()
        await house.end(agent)
    gate.event.set()
    async with house.life(StrictLLM("hello")) as agent:
        found = await agent.services.runs.until_ended(run)
        assert found.state == state
        await agent.until_idle()
        assert len(await notes(agent, "c")) == 1
        keys = {call.key for call in house.hands.calls}
        assert (len(house.hands.calls), len(keys)) == ((1, 1) if tool == "post" else (2, 1))
        assert await agent.services.records.ids("running") == []


async def test_waited_for_and_cancelled() -> None:
    house = House()
    gate = Gate(house, "look", "put")

    def answer(request: Any) -> Said:
        ids = [json.loads(m.content)["id"] for m in request.messages if m.role == "tool"]
        steps: list[Said] = [
            start("look"), start("put"), [("run.cancel", {"id": ids[1]})] if len(ids) > 1 else "",
            [("run.await", {"id": ids[0]})] if ids else "", [("run.status", {"id": ids[1]})] if len(ids) > 1 else "",
        ]  # fmt: skip
        return steps[len(ids)] if len(ids) < len(steps) else "done"

    async with house.life(StrictLLM(answer=answer)) as agent:
        sent = await agent.send("go", context="c")
        await until(lambda: agent.services.slots.held == 0 and len(agent.services.runs.of_context("c")) == 1)
        gate.event.set()
        assert (await agent.wait(sent.task.id)).text == "done"
        assert [(await one(agent, at))["state"] for at in (2, 3, 4)] == ["canceled", "completed", "canceled"]


async def test_await_has_its_time_over_lives() -> None:
    house = House()
    Gate(house, "look")

    def answer(request: Any) -> Said:
        ids = [json.loads(m.content).get("id") for m in request.messages if m.role == "tool"]
        if not ids:
            return start("look")
        return [("await", {"any": ids, "timeout": "100s"})] if len(ids) == 1 else "done"

    async with house.life(StrictLLM(answer=answer), sleep=house.clock.sleep) as agent:
        sent = await agent.send("go", context="c")
        await until(lambda: agent.services.slots.held == 0 and len(house.hands.calls) == 1)
        house.clock.advance(60)
        await agent.services.runs.aclose()
        await house.end(agent)
    async with house.life(StrictLLM(answer=answer), sleep=house.clock.sleep) as agent:
        await until(lambda: len(house.hands.calls) == 2)
        house.clock.advance(41)
        assert (await agent.wait(sent.task.id)).text == "done"
        assert (await one(agent, 1)) == {"woken_by": "time", "ended": []}
        await agent.services.runs.aclose()


async def test_there_are_only_so_many_and_own_tools_are_called_directly() -> None:
    house = House(limits__max_runs=2)
    gate = Gate(house, "look")
    calls: Said = [*start("look"), *start("look"), *start("look"), *start("memory.list"), *start("nothing")]
    async with house.life(StrictLLM(calls, "done")) as agent:
        await agent.ask("go", context="c")
        assert "limits.max_runs" in await one(agent, 2)
        assert "call it directly" in await one(agent, 3)
        assert "there is no tool 'nothing'" in await one(agent, 4)
        gate.event.set()
        await until(lambda: not agent.services.runs.of_context("c"))


async def test_f45_what_is_not_granted_or_approved_is_not_run_in_the_background_either() -> None:
    house = House(tools__grants='{"user": ["run.*", "look"]}', agent__approval='["look"]')
    async with house.life(StrictLLM([*start("post"), *start("look")], "done"), people=True) as agent:
        sent = await agent.send("go", context="c", principal=ANN)
        await until(lambda: agent.question(sent.task.id) is not None)
        await agent.answer(sent.task.id, "no", principal=ANN)
        await agent.wait(sent.task.id)
        assert "there is no tool 'post'" in await one(agent, 0)
        assert "did not approve it" in await one(agent, 1)
        assert house.hands.calls == []


async def test_f43_runs_of_others_are_not_there() -> None:
    house = House()
    gate = Gate(house, "look")
    async with house.life(StrictLLM(start("look"), "done")) as agent:
        await agent.ask("go", context="mine", principal=ANN)
        run = (await one(agent, context="mine"))["id"]
        gate.event.set()
    async with house.life(StrictLLM([("run.status", {"id": run}), ("run.cancel", {"id": run}),
                                     ("await", {"all": [run]})], "done")) as agent:  # fmt: skip
        await agent.ask("go", context="other", principal=Principal("bob"))
        assert all(f"there is no run '{run}'" in str(found.content) for found in await results(agent, "other"))


async def test_work_done_elsewhere_is_reported() -> None:
    house = House()
    Gate(house, "look")
    async with house.life(StrictLLM(start("look"), "started")) as agent:
        await agent.ask("go", context="c", principal=ANN)
        run = (await one(agent))["id"]
        told = await agent.command("run.report", context="c", principal=ANN, id=run, result={"rows": 3})
        assert told == {"id": run, "state": "completed", "result": {"rows": 3}}
        with pytest.raises(ValueError, match="has ended"):
            await agent.command("run.report", context="c", principal=ANN, id=run, result=1)
        with pytest.raises(ValueError, match="there is no run"):
            await agent.command("run.report", context="c", principal=ANN, id="nothing", result=1)


async def test_run_has_a_time_of_its_own() -> None:
    house = House()
    Gate(house, "look")
    async with house.life(StrictLLM(start("look", deadline="90s"), "started"), sleep=house.clock.sleep) as agent:
        await agent.ask("go", context="c")
        run = (await one(agent))["id"]
        await until(lambda: bool(house.hands.calls))
        house.clock.advance(91)
        found = await agent.services.runs.until_ended(run)
        assert (found.state, "did not end within 90 s" in found.text) == ("failed", True)


async def test_time_of_a_run_is_that_of_all_lives() -> None:
    house = House()
    Gate(house, "look")
    async with house.life(StrictLLM(start("look", deadline="90s"), "started"), sleep=house.clock.sleep) as agent:
        await agent.ask("go", context="c")
        run = (await one(agent))["id"]
        await until(lambda: bool(house.hands.calls))
        house.clock.advance(80)
        await agent.services.runs.aclose()
        await house.end(agent)
    async with house.life(StrictLLM("hello"), sleep=house.clock.sleep) as agent:
        await until(lambda: len(house.hands.calls) == 2)
        house.clock.advance(11)
        assert (await agent.services.runs.until_ended(run)).state == "failed"


async def test_end_is_told_however_much_waits() -> None:
    house = House(limits__inbox=1)
    gate = Gate(house, "look")
    async with house.life(StrictLLM(start("look"), "started", "hello")) as agent:
        await agent.ask("go", context="c")
        agent.pause()
        await agent.send("wait", context="d")
        with pytest.raises(Busy):
            await agent.send("too much", context="d")
        gate.event.set()
        await until(lambda: agent.services.runs.is_idle)
        agent.resume()
        await agent.until_idle()
        assert len(await notes(agent, "c")) == 1


async def test_f48_drain_and_idleness_wait_for_runs() -> None:
    house = House()
    gate = Gate(house, "look")
    async with house.life(StrictLLM(start("look"), "started")) as agent:
        await agent.ask("go", context="c")
        run = (await one(agent))["id"]
        idle, drained = asyncio.ensure_future(agent.until_idle()), asyncio.ensure_future(agent.drain())
        await settled()
        assert not idle.done()
        assert not drained.done()
        gate.event.set()
        assert await drained
        await idle
        found = await agent.services.runs.find(run)
        assert found is not None
        assert found.state == "completed"
    async with house.life(StrictLLM("hello")) as agent:
        await agent.until_idle()
        assert len(await notes(agent, "c")) == 1, "a note of a drained life is taken up by the next one"


async def test_f14_store_that_breaks_at_the_end_of_a_run_delays_it() -> None:
    store = FaultyStore(InMemoryStore())
    house = House(store=store, store__on_error="degrade")
    gate = Gate(house, "look")
    async with house.life(StrictLLM(start("look"), "started"), sleep=house.clock.sleep) as agent:
        await agent.ask("go", context="c")
        store.break_down()
        gate.event.set()
        for _ in range(20):  # less than the lease lasts
            await settled()
            house.clock.advance(0.25)
        store.mend()
        for _ in range(20):
            await settled()
            house.clock.advance(1)
        assert agent.services.runs.is_idle
        assert len(await notes(agent, "c")) == 1
        assert await agent.services.records.ids("running") == []


async def test_pictures_of_a_result_are_left_out_and_that_is_said() -> None:
    async def draw(asked: Invocation) -> Answer:
        return Answer({"n": 1}, parts=(FilePart(media_type="image/png"),))

    house = House()
    model = StrictLLM(start("draw"), "started")
    async with house.life(model, tools=[Tool("draw", "draws", {"type": "object"}, draw)]) as agent:
        await agent.ask("go", context="c")
        run = (await one(agent))["id"]
        result = (await agent.services.runs.until_ended(run)).told["result"]
        assert (result["content"], "1 pictures or files" in result["left_out"]) == ({"n": 1}, True)


async def test_operators_turns_reach_the_runs_of_all() -> None:
    house = House()
    gate = Gate(house, "look")
    async with house.life(StrictLLM(start("look"), "done")) as agent:
        await agent.ask("go", context="mine", principal=ANN)
        run = (await one(agent, context="mine"))["id"]
        gate.event.set()
    async with house.life(StrictLLM([("run.status", {"id": run})], "done")) as agent:
        await agent.ask("go", context="ops")
        assert (await one(agent, context="ops"))["state"] == "completed"


async def test_retention_keeps_what_is_at_work() -> None:
    house = House(store__retention__runs="1h", limits__run__deadline="10h")
    Gate(house, "look")
    async with house.life(StrictLLM([*start("look"), *start("memory.list")], "started")) as agent:
        await agent.ask("go", context="c")
        run = (await one(agent))["id"]
        house.clock.advance(7_200)
        janitor = Janitor(agent.services.records, agent.services.residents, agent.services.clock)
        assert (await janitor.sweep(agent.services.settings))["runs"] == 0
        found = await agent.services.runs.find(run)
        assert found is not None
        await agent.services.runs.cancel(found, "over")
        house.clock.advance(7_200)
        assert (await janitor.sweep(agent.services.settings))["runs"] == 1
        assert await agent.services.runs.find(run) is None
