"""Subagents: conversations of their own that work for a turn, with fewer tools and narrower limits, over crashes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentd.context.registry import NotYours
from agentd.runtime.daemon import Daemon
from agentd.runtime.principals import Principal
from agentkit.core.contracts.requests import ChatRequest, LLMResult
from agentkit.core.contracts.usage import Usage
from tests.agentd.daemon.house import House, Said, answers, notes, results, texts, until
from tests.agentd.daemon.scripts import asked, has_results, run, script

pytestmark = pytest.mark.anyio
ANN = Principal("ann")


async def only(agent: Daemon, context: str = "c") -> Any:
    (found,) = await results(agent, context)
    return found.content if not found.is_error else f"error: {found.content}"


async def test_caller_waits_and_has_the_answer() -> None:
    house, model = House(agent__max_parallel_turns=1), script(parent=[run(), "it said so"], child=["seven"])
    async with house.life(model) as agent:
        task = await agent.ask("do parent", context="c", principal=ANN)
        assert task.text == "it said so"
        told = await only(agent)
        assert (told["state"], told["result"]) == ("completed", "seven")
        names = [event.name for event in agent.events.since(0)]  # type: ignore[union-attr]
        assert names.index("subagent.start") < names.index("subagent.end")
        # Its conversation is nobody's but the runtime's: its owner reaches it no more than others (daemon.md 13).
        own = f"subagent/{told['handle']}"
        assert await answers(agent, own) == ["seven"]
        with pytest.raises(NotYours):
            await agent.send("hello", context=own, principal=ANN)
        with pytest.raises(NotYours):
            await agent.command("context.get", context=own, principal=ANN)
        assert (await agent.command("status", context=own))["entries"] > 0


async def test_f45_tools_are_those_of_the_caller_or_fewer() -> None:
    model = script(
        parent=[run(tools=["look"]), "done"], child=[[("post", {"n": 1})], [("look", {})], "seen"],
    )  # fmt: skip
    house = House()
    async with house.life(model) as agent:
        await agent.ask("do parent", context="c")
        own = f"subagent/{(await only(agent))['handle']}"
        offered = [{tool.name for tool in one.tools or ()} for one in model.requests if asked(one) == "be child"]
        assert all(names == {"look"} for names in offered)
        first, second = await results(agent, own)
        assert (first.is_error, second.is_error) == (True, False)
        assert house.hands.names() == ["look"]
    limited = House(tools__grants='{"user": ["subagent.run", "look"]}')
    async with limited.life(script(parent=[run(tools=["post"]), "done"])) as agent:
        await agent.ask("do parent", context="c", principal=ANN)
        assert "you have no tool 'post'" in await only(agent)


async def test_limits_are_the_rest_of_the_callers() -> None:
    calls: list[Said] = [[("look", {"n": n})] for n in range(9)]
    model = script(parent=[run(limits={"steps": 3}), "done"], child=[*calls, "never"])
    async with House().life(model) as agent:
        await agent.ask("do parent", context="c")
        told = await only(agent)
        assert (told["state"], "3 of 3 steps" in told["result"]) == ("failed", True)


async def test_its_tokens_are_the_callers() -> None:
    usage = Usage(600, 0)

    def child(request: ChatRequest) -> Said:
        return LLMResult("much", (), usage, "stop", request.model)

    def parent(request: ChatRequest) -> Said:
        return run() if has_results(request) < 3 else "done"

    async with House(limits__run__tokens=1_500).life(script(parent=parent, child=child)) as agent:
        task = await agent.ask("do parent", context="c")
        assert task.end_state == "exhausted_tokens"
        assert "with subagents" in task.reason


@pytest.mark.parametrize(
    ("limit", "value", "said"), [("breadth", 2, "limits.subagents.breadth"), ("rate", "2/10s", "limits.subagents.rate"),
                                 ("total", 2, "limits.subagents.total")],
)  # fmt: skip
async def test_there_are_only_so_many(limit: str, value: Any, said: str) -> None:
    many: Said = [("subagent.run", {"instruction": "be child", "mode": "async"})] * 3
    house = House(**{f"limits__subagents__{limit}": value})

    def child(request: ChatRequest) -> Said:
        return "well"

    async with house.life(script(parent=[many, "done", "done", "done"], child=child)) as agent:
        agent.services.slots._size = lambda: 1  # none of them begins before all were asked for
        await agent.ask("do parent", context="c")
        found = await results(agent, "c")
        assert [one.is_error for one in found] == [False, False, True], [one.content for one in found]
        assert said in str(found[2].content)


async def test_they_go_only_so_deep() -> None:
    def deeper(request: ChatRequest) -> Said:
        return run("be deeper") if not has_results(request) else f"[{request.messages[-1].content}]"

    async with House(limits__subagents__depth=3, agent__max_parallel_turns=1).life(script(deeper=deeper)) as agent:
        task = await agent.ask("do deeper", context="c")
        contexts = [id for id in await agent.services.records.ids("context") if id.startswith("subagent/")]
        assert len(contexts) == 3
        assert task.state == "completed"
        last = [one for id in contexts for one in await results(agent, id) if one.is_error]
        assert ["limits.subagents.depth" in str(one.content) for one in last] == [True]


async def test_f49_many_at_once_with_few_slots_all_come_to_an_end() -> None:
    start: Said = [("subagent.run", {"instruction": "be child", "mode": "async"})] * 8

    def parent(request: ChatRequest) -> Said:
        done = has_results(request)
        if not done:
            return start
        told = [json.loads(m.content) for m in request.messages if m.role == "tool"]
        handles = [one["handle"] for one in told if "handle" in one]
        return [("await", {"all": handles})] if done == 8 else "all there"

    house = House(agent__max_parallel_turns=2, limits__subagents__rate="100/1s")
    async with house.life(script(parent=parent, child=["well"])) as agent:
        assert (await agent.ask("do parent", context="c")).text == "all there"
        told = (await results(agent, "c"))[-1].content
        assert (told["woken_by"], [one["result"] for one in told["ended"]]) == ("work", ["well"] * 8)
        assert agent.services.slots.held == 0
        await agent.until_idle()
        assert (
            len(
                [
                    text
                    for text in await notes(agent, "c")
                    if "has ended as completed. What it brought, quoted:\nwell" in text
                ]
            )
            == 8
        )


async def test_those_that_go_on_end_with_the_turn() -> None:
    house = House()

    async def child(request: ChatRequest) -> str:
        await house.clock.sleep(1_000)
        return "too late"

    parent: list[Said] = [run(mode="async"), "done"]
    model = script(parent=parent, child=child)
    async with house.life(model) as agent:
        assert (await agent.ask("do parent", context="c")).text == "done"
        handle = (await only(agent))["handle"]
        await until(lambda: agent.services.subagents.of_context(f"subagent/{handle}") is None)
        found = await agent.services.subagents.find(handle)
        assert found is not None
        assert (found.ended, found.state) == (True, "canceled")


async def test_cancel_goes_down() -> None:
    house = House()

    async def child(request: ChatRequest) -> str:
        await house.clock.sleep(1_000)
        return "too late"

    model = script(parent=[run("be middle")], middle=[run("be child")],
                   child=child)  # fmt: skip
    async with house.life(model) as agent:
        sent = await agent.send("do parent", context="c")
        await until(lambda: len(model.requests) == 3)
        await agent.cancel(sent.task.id)
        assert (await agent.wait(sent.task.id)).state == "canceled"
        await agent.until_idle()
        assert agent.actors.running == {}


@pytest.mark.parametrize("fits", [True, False])
async def test_answer_is_what_the_schema_asks_for_or_is_asked_for_once_more(fits: bool) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}

    def child(request: ChatRequest) -> Said:
        again = any("does not fit" in m.content for m in request.messages)
        return '```json\n{"n": 7}\n```' if again and fits else "about seven"

    async with House().life(script(parent=[run(output_schema=schema), "done"], child=child)) as agent:
        await agent.ask("do parent", context="c")
        told = await only(agent)
        if fits:
            assert (told["state"], told["result"]) == ("completed", {"n": 7})
        else:
            assert told["state"] == "failed"
            assert "does not fit" in told["result"]


@pytest.mark.parametrize("how", ["none", "summary", "fork"])
async def test_it_knows_what_it_is_to_know(how: str) -> None:
    model = script(parent=[run(context=how), "done"], first=["the colour is red"], child=["well"])
    async with House().life(model) as agent:
        await agent.ask("do first thing", context="c")
        await agent.ask("do parent", context="c")
        mine = next(one for one in model.requests if asked(one) == "be child")
        assert ("the colour is red" in texts(mine)) == (how != "none")
        assert ("do first thing" in texts(mine)) == (how != "none")
        assert any(m.content == "do first thing" for m in mine.messages) == (how == "fork")
        theirs = [one for one in model.requests if asked(one) == "do parent"][-1]
        assert mine.messages[0] == theirs.messages[0]
        assert mine.tools == theirs.tools, "one prefix, so one cache"


async def test_f4_restart_in_the_middle_starts_nothing_twice() -> None:
    house = House()
    hold = True

    async def child(request: ChatRequest) -> str:
        if hold:
            await house.clock.sleep(1_000)
        return "seven"

    model = script(parent=[run(), "it said so"], child=child)
    async with house.life(model) as agent:
        sent = await agent.send("do parent", context="c")
        await until(lambda: len(model.requests) == 2)
        await house.end(agent)
    hold = False
    async with house.life(model) as agent:
        assert (await agent.wait(sent.task.id)).text == "it said so"
        assert (await only(agent))["result"] == "seven"
        contexts = [id for id in await agent.services.records.ids("context") if id.startswith("subagent/")]
        assert len(contexts) == 1
    assert len([one for one in model.requests if asked(one) == "do parent"]) == 2


async def test_told_more_it_goes_on_and_killed_it_ends() -> None:
    def parent(request: ChatRequest) -> Said:
        done = has_results(request)
        handle = next((json.loads(m.content)["handle"] for m in request.messages if m.role == "tool"), "")
        steps: list[Said] = [
            run(), [("subagent.send", {"handle": handle, "text": "be twice"})],
            [("subagent.await", {"handle": handle})], [("subagent.status", {"handle": "nobody"})],
            [("subagent.kill", {"handle": handle})], [("subagent.list", {})], "done",
        ]  # fmt: skip
        return steps[done]

    async with House().life(script(parent=parent, child=["once"], twice=["twice"])) as agent:
        assert (await agent.ask("do parent", context="c")).text == "done"
        first, sent, awaited, unknown, killed, listed = await results(agent, "c")
        assert (first.content["result"], sent.content["state"], awaited.content["result"]) == (
            "once",
            "working",
            "twice",
        )
        assert unknown.is_error
        assert (killed.content["state"], len(listed.content["handles"])) == ("completed", 1)


async def test_f37_plan_item_that_is_bound_to_it_settles() -> None:
    def parent(request: ChatRequest) -> Said:
        done = has_results(request)
        told = [json.loads(m.content) for m in request.messages if m.role == "tool"]
        handle = next((one["handle"] for one in told if "handle" in one), "")
        steps: list[Said] = [
            [("plan.create", {"goal": "g", "items": ["one"]})], run(mode="async"),
            [("plan.update", {"item": 1, "bind": {"subagent": handle}})],
            [("subagent.await", {"handle": handle})], "done",
        ]  # fmt: skip
        return steps[done]

    async with House().life(script(parent=parent, child=["well"])) as agent:
        await agent.ask("do parent", context="c")
        await agent.until_idle()
        plan = (await agent.command("plan.get", context="c"))["plan"]
        assert (plan["items"][0]["status"], plan["items"][0]["note"]) == ("done", "well")


@pytest.mark.parametrize("wrong", [{"mode": "detached"}, {"peer": "other"}])
async def test_what_there_is_not_yet_is_refused_by_name(wrong: dict[str, Any]) -> None:
    async with House().life(script(parent=[run(**wrong), "done"])) as agent:
        await agent.ask("do parent", context="c")
        assert next(iter(wrong)) in await only(agent)
