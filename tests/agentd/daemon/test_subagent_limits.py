"""What subagents may spend and do, over each other, over reloads, over a store that fails."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agentd.config import Changes
from agentd.runtime.principals import Principal
from agentkit.core.contracts.requests import ChatRequest, LLMResult
from agentkit.core.contracts.usage import Usage
from tests.agentd.daemon.doubtful import Doubtful
from tests.agentd.daemon.house import (
    House,
    Said,
    StrictLLM,
    forever,
    notes,
    results,
    settings_of,
    settled,
    texts,
    until,
)
from tests.agentd.daemon.scripts import asked, handle_of, has_results, run, script

pytestmark = pytest.mark.anyio
ANN = Principal("ann")


def costs(tokens: int, text: str) -> LLMResult:
    return LLMResult(text, (), Usage(tokens, 0), "stop", "none")


async def test_tokens_below_a_subagent_are_its_callers_too() -> None:
    middle: list[Said] = [run("be deepest"), "deep"]
    parent: list[Said] = [run("be middle"), run("be middle"), "done"]
    model = script(parent=parent, middle=middle, deepest=lambda request: costs(700, "deepest"))
    async with House(limits__run__tokens=2_000).life(model) as agent:
        task = await agent.ask("do parent", context="c")
        # Each round of StrictLLM is 110 tokens: twice 2 * 110 + 700 below, and two rounds of its own.
        assert (task.end_state, task.reason) == ("exhausted_tokens", "2,060 of 2,000 tokens, with subagents")
        spent = [(await agent.services.subagents.find(one)) for one in await agent.services.records.ids("subagent")]
        assert sorted(child.spent for child in spent if child is not None) == [700, 700, 920, 920]


async def test_subagents_at_work_share_what_their_caller_has_left() -> None:
    """Each of the two may use all that is left; together they may not."""
    start: Said = [("subagent.run", {"instruction": "be child", "mode": "async"})] * 2
    wait: Said = [("await", {"all": []})]

    def child(request: ChatRequest) -> LLMResult:
        made = script(child=[[("look", {"n": has_results(request)})]])._made([("look", {"n": len(request.messages)})])
        return LLMResult("", made, Usage(300, 0), "tool_calls", "none")

    def parent(request: ChatRequest) -> Said:
        if has_results(request) == 2:
            wait[0][1]["all"] = [handle_of(request, 0), handle_of(request, 1)]  # type: ignore[index]
            return wait
        return "done" if has_results(request) else start

    model = script(parent=parent, child=child)
    async with House(limits__run__tokens=2_000, agent__max_parallel_turns=3).life(model) as agent:
        task = await agent.ask("do parent", context="c")
        assert task.end_state == "exhausted_tokens"
        ended = (await results(agent, "c"))[-1].content["ended"]
        assert {one["state"] for one in ended} == {"failed"}
        assert any("by the work that this is part of" in one["result"] for one in ended)
        # The limit is met within one round of each.
        assert sum(asked(one) == "be child" for one in model.requests) * 300 < 2_000 + 2 * 300


async def test_conversation_budget_is_that_of_the_conversation_above() -> None:
    model = script(parent=[run(), "done"], child=[[("look", {})], [("look", {"n": 1})], "never"])
    house = House(agent__conversation_budget="{requests: 3}", intelligence__budget__tactic="refuse")
    async with house.life(model) as agent:
        task = await agent.ask("do parent", context="c", principal=ANN)
        assert task.state == "rejected"
        (told,) = await results(agent, "c")
        assert told.content["state"] == "rejected"
        assert "agent.conversation_budget" in told.content["result"]
        assert len(model.requests) == 3


async def test_message_to_one_that_works_is_worked_on_after() -> None:
    house, gate = House(), asyncio.Event()

    async def once(request: ChatRequest) -> LLMResult:
        await gate.wait()
        return costs(500, "once")

    def parent(request: ChatRequest) -> Said:
        handle, done = handle_of(request), has_results(request)
        if done == 2:
            gate.set()
        steps: list[Said] = [
            run("be once", mode="async"), [("subagent.send", {"handle": handle, "text": "be twice"})],
            [("subagent.await", {"handle": handle})], "done",
        ]  # fmt: skip
        return steps[done]

    model = script(parent=parent, once=once, twice=lambda request: costs(300, "twice"))
    async with house.life(model) as agent:
        assert (await agent.ask("do parent", context="c")).text == "done"
        _, sent, awaited = await results(agent, "c")
        assert (sent.content["state"], awaited.content["result"]) == ("working", "twice")
        child = await agent.services.subagents.find(awaited.content["handle"])
        assert child is not None
        assert (child.spent, child.before) == (800, ())


async def test_kill_ends_all_that_it_was_told() -> None:
    house = House()

    async def once(request: ChatRequest) -> str:
        await forever()
        return "never"

    def parent(request: ChatRequest) -> Said:
        handle, done = handle_of(request), has_results(request)
        steps: list[Said] = [
            run("be once", mode="async"), [("subagent.send", {"handle": handle, "text": "be twice"})],
            [("subagent.kill", {"handle": handle})], "done",
        ]  # fmt: skip
        return steps[done]

    model = script(parent=parent, once=once, twice=["twice"])
    async with house.life(model) as agent:
        assert (await agent.ask("do parent", context="c")).text == "done"
        assert (await results(agent, "c"))[-1].content["state"] == "canceled"
        await agent.until_idle()
        assert "be twice" not in [asked(one) for one in model.requests]
        assert (agent.actors.running, agent.actors._cancelled) == ({}, {})


async def test_schema_that_is_none_is_refused_before_anything_is_started() -> None:
    async with House().life(script(parent=[run(output_schema={"type": "nothing"}), "done"])) as agent:
        await agent.ask("do parent", context="c")
        (told,) = await results(agent, "c")
        assert (told.is_error, "output_schema" in told.content) == (True, True)
        assert await agent.services.records.ids("subagent") == []


async def test_each_message_has_its_second_try() -> None:
    schema = {"type": "object", "required": ["n"]}

    def child(request: ChatRequest) -> Said:
        return '{"n": 1}' if "does not fit" in request.messages[-2].content + request.messages[-1].content else "one"

    def parent(request: ChatRequest) -> Said:
        handle, done = handle_of(request), has_results(request)
        steps: list[Said] = [
            run("be child", output_schema=schema), [("subagent.send", {"handle": handle, "text": "be child"})],
            [("subagent.await", {"handle": handle})], "done",
        ]  # fmt: skip
        return steps[done]

    async with House().life(script(parent=parent, child=child)) as agent:
        await agent.ask("do parent", context="c")
        found = [one.content for one in await results(agent, "c")]
        assert [one["state"] for one in found] == ["completed", "working", "completed"]


async def test_f45_tool_that_a_reload_takes_away_is_gone_in_a_subagent_too() -> None:
    house = House(tools__grants='{"user": ["subagent.*", "look", "post"]}')

    def parent(request: ChatRequest) -> Said:
        handle, done = handle_of(request), has_results(request)
        steps: list[Said] = [
            run("be first"), [("look", {})], [("subagent.send", {"handle": handle, "text": "be second"})],
            [("subagent.await", {"handle": handle})], "done",
        ]  # fmt: skip
        return steps[done]

    model = script(parent=parent, first=["well"], second=["well"])
    async with house.life(model) as agent:

        async def reload(call: Any) -> Any:
            changed = settings_of(tools__grants='{"user": ["subagent.*", "look"]}')
            assert isinstance(await agent.reload(changed), Changes)
            return {}

        house.hands.do["look"] = reload
        await agent.ask("do parent", context="c", principal=ANN)
        offered = {asked(one): {tool.name for tool in one.tools or ()} for one in model.requests}
        assert "post" in offered["be first"]
        assert "post" not in offered["be second"]


async def test_f44_turn_of_a_note_has_the_rights_of_whose_conversation_it_is() -> None:
    house = House(tools__grants='{"user": ["run.*", "look"]}', agent__wake_on="[run]")
    model = script(parent=[[("run.start", {"tool": "look"})], "done", "noted", "noted"])
    async with house.life(model) as agent:
        await agent.ask("do parent", context="c", principal=ANN)
        await until(lambda: agent.services.runs.is_idle)
        await agent.until_idle()
        assert len(model.requests) == 3
        offered = [{tool.name for tool in one.tools or ()} for one in model.requests]
        assert offered[2] == offered[0], "what a note begins may do no more"
        assert "post" not in offered[2]


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("nth", range(1, 9))
async def test_f14_store_that_breaks_at_any_commit_delays_a_subagent_and_loses_nothing(nth: int, lost: bool) -> None:
    store = Doubtful(lost=lost)
    house = House(store=store, store__on_error="degrade")
    model = script(parent=[run(), "it said so"], child=["seven"])
    async with house.life(model, sleep=house.clock.sleep) as agent:
        sent = await agent.send("do parent", context="c")
        store.left = nth
        for _ in range(20):  # less than the lease lasts
            await settled()
            house.clock.advance(0.25)
        store.mend()
        for _ in range(40):
            await settled()
            house.clock.advance(1)
        assert (await agent.wait(sent.task.id)).text == "it said so"
        assert (await results(agent, "c"))[-1].content["result"] == "seven"
        assert len(await agent.services.records.ids("subagent")) == 1
    assert store.left < 0, "there were that many commits"


async def test_what_works_beside_is_told_in_status_and_prompt() -> None:
    house = House()

    async def child(request: ChatRequest) -> str:
        await forever()
        return "never"

    def parent(request: ChatRequest) -> Said:
        return run(mode="async") if not has_results(request) else "done"

    model = script(parent=parent, child=child)
    async with house.life(model) as agent:
        sent = await agent.send("do parent", context="c")
        await agent.wait(sent.task.id)
        handle = (await results(agent, "c"))[0].content["handle"]
        last = [one for one in model.requests if asked(one) == "do parent"][-1]
        assert f"Running in the background:\n- {handle}: subagent" in texts(last)
        await agent.until_idle()
        assert (await agent.command("status", context="c"))["at_work"] == []
        assert await notes(agent, "c") == [], "nobody waits for one whose turn has ended"


async def test_state_row_names_who_started_it() -> None:
    async with House().life(script(parent=[run(), "done"], child=["well"])) as agent:
        task = await agent.ask("do parent", context="c")
        handle = (await results(agent, "c"))[0].content["handle"]
        held = await agent.services.residents.open(f"subagent/{handle}")
        assert held.state.parent is not None
        assert (held.state.parent.context, held.state.parent.turn, held.state.parent.handle) == (
            "c",
            task.turn,
            handle,
        )


async def test_runs_of_a_subagent_end_with_it() -> None:
    house = House()

    async def never(call: Any) -> Any:
        await forever()

    house.hands.do["post"] = never
    model = script(parent=[run(), "done"], child=[[("run.start", {"tool": "post"})], "left it running"])
    async with house.life(model) as agent:
        await agent.ask("do parent", context="c")
        await agent.until_idle()
        (id,) = await agent.services.records.ids("run")
        found = await agent.services.runs.until_ended(id)
        assert (found.state, "the subagent that started it has ended" in found.text) == ("canceled", True)
        assert await notes(agent, found.context) != []


async def test_f4_subagent_whose_turn_had_ended_before_a_crash_ends_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A life that dies between the end of a turn and those of its subagents leaves them to nobody."""
    house = House()

    async def child(request: ChatRequest) -> str:
        await forever()
        return "never"

    model = script(parent=[run(mode="async"), "done"], child=child)
    async with house.life(model) as agent:
        monkeypatch.setattr(agent.services.subagents, "kill", lambda child, reason: None)
        await agent.ask("do parent", context="c")
        await until(lambda: asked(model.requests[-1]) == "be child" or len(model.requests) == 3)
        await house.end(agent)
    later = script(parent=["never"], child=["never"])
    async with house.life(later) as agent:
        await agent.until_idle()
        (handle,) = await agent.services.records.ids("subagent")
        found = await agent.services.subagents.until_ended(handle)
        assert (found.state, found.text) == ("canceled", "the turn that it worked for has ended")
        assert (later.requests, await notes(agent, "c")) == ([], [])
        assert agent.services.subagents._held == {}


async def test_f43_subagents_of_others_are_not_there() -> None:
    house = House()
    async with house.life(script(parent=[run(), "done"], child=["well"])) as agent:
        await agent.ask("do parent", context="mine", principal=ANN)
        handle = (await results(agent, "mine"))[0].content["handle"]
    calls: Said = [
        ("subagent.status", {"handle": handle}), ("subagent.send", {"handle": handle, "text": "x"}),
        ("subagent.await", {"handle": handle}), ("subagent.kill", {"handle": handle}),
        ("await", {"any": [handle]}), ("plan.create", {"goal": "g", "items": ["one"]}),
        ("plan.update", {"item": 1, "bind": {"subagent": handle}}), ("subagent.list", {}),
    ]  # fmt: skip
    async with house.life(StrictLLM(calls, "done")) as agent:
        await agent.ask("do bob", context="other", principal=Principal("bob"))
        found = await results(agent, "other")
        assert all("there is no" in str(one.content) for one in found[:5])
        assert found[-1].content["handles"] == []
        plan = (await agent.command("plan.get", context="other"))["plan"]
        assert plan["items"][0]["status"] != "done", "a plan would tell of it"
