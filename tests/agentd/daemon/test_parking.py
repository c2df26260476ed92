"""What goes on while a turn waits without a slot: commands, questions of subagents and of tools that run together."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agentd.runtime.daemon import Daemon
from agentd.runtime.inbox import Draining
from agentd.runtime.principals import Principal
from agentd.runtime.tools.base import Answer, Invocation, Tool
from agentd.runtime.waits import NotOpen, Wait
from agentkit.core.contracts.requests import ChatRequest
from tests.agentd.daemon.house import House, Said, StrictLLM, forever, log_of, notes, results, settled, until
from tests.agentd.daemon.scripts import run as subagent
from tests.agentd.daemon.scripts import script
from tests.agentd.daemon.test_gates import asked, asking, last, task_of

pytestmark = pytest.mark.anyio
ANN, BOB = Principal("ann"), Principal("bob")
DAY = 86_400


# Commands while a turn waits


@pytest.mark.parametrize("restarts", [False, True])
async def test_f21_pending_approval_survives_two_compactions_and_its_late_result_fits(restarts: bool) -> None:
    house = House(agent__approval='["post"]', context__keep_last=1)
    told: list[Said] = [f"{n}: {'word ' * 300}" for n in range(16)]
    model = StrictLLM(*told, [("post", {"n": 1})], "done")

    async def compact(agent: Daemon, keep_last: int, version: int) -> None:
        made = await agent.command("context.compact", context="c", keep_last=keep_last)
        assert (made["folded"] > 0, made["version"]) == (True, version), made
        assert agent.question(task_of(wait)) is not None

    async def approve(agent: Daemon) -> None:
        await agent.answer(task_of(wait), "yes")
        # The model refuses a transcript in which the result does not follow its call.
        assert (await agent.wait(task_of(wait))).text == "done"
        assert house.hands.names() == ["post"]
        roles = [message.role for message in model.requests[-1].messages]
        assert roles[-3:] == ["assistant", "tool", "user"], "behind the result comes the volatile block"

    async with house.life(model, people=True) as agent:
        for n in range(16):
            await agent.ask(f"tell me {n}", context="c")
        wait = await asked(agent, "now post it")
        await compact(agent, 16, 2)
        if restarts:
            await house.end(agent)
        else:
            await compact(agent, 0, 3)
            await approve(agent)
    if restarts:
        async with house.life(model, people=True) as agent:
            await agent.events.wait_event("inbox.replayed", context="c")
            await settled()
            await compact(agent, 0, 3)
            await approve(agent)


async def test_commands_come_in_between_while_a_turn_waits_and_what_takes_entries_away_comes_after() -> None:
    house, model = House(), StrictLLM([("ask_human", {"question": "Which?"})], "first", "second")
    async with house.life(model, people=True) as agent:
        wait = await asked(agent, principal=ANN)
        behind = await agent.send("and this", context="c", principal=ANN)
        cleared = asyncio.create_task(agent.command("context.clear", context="c", principal=ANN))
        told = await agent.command("context.get", context="c", principal=ANN)
        assert (told["id"], told["turns"]) == ("c", 0)
        assert (await agent.command("plan.get", context="c", principal=ANN)) == {"plan": None}
        pinned = await agent.command("context.pin", context="c", principal=ANN, entries=[1])
        assert pinned["pins"] == [1]
        with pytest.raises(ValueError, match="whole number"):
            await agent.command("context.compact", context="c", principal=ANN, keep_last=-1)
        await settled()
        assert not cleared.done()
        await agent.answer(task_of(wait), "red", principal=ANN)
        assert (await agent.wait(task_of(wait))).text == "first"
        assert (await agent.wait(behind.task.id)).text == "second"
        assert (await cleared)["version"] == 2


async def test_f48_command_behind_a_turn_that_waits_is_refused_by_a_drain() -> None:
    async with House().life(asking(), people=True) as agent:
        await asked(agent)
        clear = asyncio.create_task(agent.command("context.clear", context="c"))
        await settled()
        assert await agent.drain(timeout=5)
        with pytest.raises(Draining, match="the command was not run"):
            await clear


async def test_work_that_is_waited_for_can_be_reported() -> None:
    """The command comes to the context whose turn waits for it: behind the turn, neither would ever end."""
    house = House()
    house.hands.do["post"] = lambda asked: forever()
    ran: list[str] = []

    def answer(request: ChatRequest) -> Said:
        found = [message for message in request.messages if message.role == "tool"]
        if not found:
            return [("run.start", {"tool": "post"})]
        if len(found) == 1:
            ran.append(found[0].content.split('"')[3])
            return [("run.await", {"id": ran[0]})]
        return "done"

    async with house.life(StrictLLM(answer=answer)) as agent:
        sent = await agent.send("go", context="c")
        await until(lambda: bool(ran) and agent.services.slots.held == 0)
        await agent.note("meanwhile", context="c")  # waits behind the turn, and the command comes past it
        await agent.command("run.report", context="c", id=ran[0], result={"n": 7})
        assert (await agent.wait(sent.task.id)).text == "done"
        assert (await last(agent))["result"] == {"n": 7}


async def test_cancel_while_a_command_is_under_way_ends_behind_it() -> None:
    """A summary is being written while the question is given up: both are on record, one after the other."""
    writing, written = asyncio.Event(), asyncio.Event()

    async def summary(request: ChatRequest) -> Said:
        writing.set()
        await written.wait()
        return "no summary"

    def answer(request: ChatRequest) -> Any:
        if "ask" in request.messages[-1].content[:20]:
            return [("ask_human", {"question": "Which?"})]
        return "word " * 300 if "tell me" in request.messages[-1].content[:20] else summary(request)

    house = House(context__keep_last=1)
    async with house.life(StrictLLM(answer=answer), people=True) as agent:
        for n in range(4):
            await agent.ask(f"tell me {n}", context="c")
        wait = await asked(agent, "ask me")
        command = asyncio.create_task(agent.command("context.compact", context="c", keep_last=0))
        await writing.wait()
        await agent.cancel(task_of(wait))
        await settled()
        assert not command.done()
        written.set()  # it is none, so that the rules write one
        assert (await command)["folded"] > 0
        assert (await agent.wait(task_of(wait))).state == "canceled"
        kinds = [entry.kind for entry in await log_of(agent, "c")]
        assert kinds.index("compaction") < len(kinds) - 1
        assert kinds[-1] == "outcome"


# Questions of subagents


async def test_subagent_asks_with_the_task_that_people_know() -> None:
    ask: Said = [("ask_human", {"question": "Which?"})]
    house, model = House(), script(parent=[subagent(), "it said so"], child=[ask, "red it is"])
    async with house.life(model, people=True) as agent:
        wait = await asked(agent, "do parent", principal=ANN)
        assert wait.context != "c"
        opened = await agent.events.wait_event("gate.opened")
        assert (opened.context, opened.turn) == ("c", (await agent.services.inbox.task(task_of(wait))).turn)
        assert [one.id for one in agent.questions(ANN)] == [wait.id]
        assert agent.questions(BOB) == []
        await house.end(agent)
    async with house.life(model, people=True) as agent:
        assert [one.id for one in agent.questions(ANN)] == [wait.id]
        await agent.answer(task_of(wait), "red", principal=ANN)
        assert (await agent.wait(task_of(wait))).text == "it said so"
        assert (await last(agent))["result"] == "red it is"
        assert await agent.services.records.ids("wait") == []


async def test_approval_of_a_subagents_call_takes_days_and_no_time_of_anybodys() -> None:
    house = House(agent__approval='["post"]')
    model = script(parent=[subagent(), "over"], child=[[("post", {"n": 1})], "posted"])
    async with house.life(model, people=True, sleep=house.clock.sleep) as agent:
        wait = await asked(agent, "do parent", principal=ANN)
        assert (wait.kind, house.hands.calls) == ("approval", [])
        house.clock.advance(DAY)
        await settled()
        await house.end(agent)
    async with house.life(model, people=True, sleep=house.clock.sleep) as agent:
        house.clock.advance(DAY)
        await settled()
        await agent.answer(task_of(wait), "yes", principal=ANN)
        ended = await agent.wait(task_of(wait))
        assert (ended.state, ended.text) == ("completed", "over")
        assert house.hands.names() == ["post"]


async def test_two_subagents_ask_at_once_and_are_answered_one_after_the_other() -> None:
    ask: Said = [("ask_human", {"question": "Which?"})]
    both: Said = [("subagent.run", {"instruction": "be child", "mode": "async"})] * 2
    waiting: Said = [("subagent.list", {})]
    model = script(parent=[both, waiting, "over"], child=[ask, "done"])

    def parent(request: ChatRequest) -> Said:
        found = [m.content for m in request.messages if m.role == "tool"]
        if not found:
            return both
        handles = [one.split('"')[3] for one in found[:2]]
        return [("await", {"all": handles})] if len(found) == 2 else "over"

    model = script(parent=parent, child=[ask, "done"])
    house = House()
    async with house.life(model, people=True) as agent:
        first = await asked(agent, "do parent", principal=ANN)
        await until(lambda: len(agent.questions(ANN)) == 2)
        with pytest.raises(NotOpen, match="asks something else by now"):
            await agent.answer(task_of(first), "red", principal=ANN, question=agent.questions(ANN)[1].id)
        await agent.answer(task_of(first), "red", principal=ANN, question=first.id)
        second = await agent.wait_or_ask(task_of(first))
        assert isinstance(second, Wait)
        assert second.id != first.id
        with pytest.raises(NotOpen, match="asks something else by now"):
            await agent.answer(task_of(first), "red", principal=ANN, question=first.id)
        await agent.answer(task_of(first), "blue", principal=ANN, question=second.id)
        assert (await agent.wait(task_of(first))).text == "over"


async def test_cancel_of_the_work_closes_what_its_subagent_asks() -> None:
    ask: Said = [("ask_human", {"question": "Which?"})]
    house, model = House(), script(parent=[subagent(), "never"], child=[ask, "never"])
    async with house.life(model, people=True) as agent:
        wait = await asked(agent, "do parent", principal=ANN)
        await agent.cancel(task_of(wait), principal=ANN)
        assert (await agent.wait(task_of(wait))).state == "canceled"
        await agent.until_idle()
        assert agent.questions() == []
        assert await agent.services.records.ids("wait") == []


async def test_work_without_a_task_has_nobody_to_ask() -> None:
    """A note that wakes the agent comes from no person: an answer would have no task to name."""
    house = House(agent__wake_on='["alarm"]', agent__ask_human_fallback="wait")
    async with house.life(asking(), people=True) as agent:
        await agent.note("It rings.", kind="alarm")
        await agent.until_idle()
        assert "nobody can be asked here" in await last(agent, "root")
        assert await notes(agent, "root") == ["It rings."]


# Answers


async def test_f2_same_answer_sent_twice_at_once_acts_once() -> None:
    async with House().life(asking(), people=True) as agent:
        wait = await asked(agent, principal=ANN)

        async def answer(text: str = "red", id: str = "a1") -> str:
            return (await agent.answer(task_of(wait), text, principal=ANN, message_id=id)).id

        found = await asyncio.gather(*(answer() for _ in range(3)), answer("blue", "a2"), return_exceptions=True)
        assert found[:3] == [wait.task] * 3
        assert isinstance(found[3], NotOpen)
        await agent.wait(task_of(wait))
        assert (await last(agent))["answer"] == "red"


# Timers


async def test_looking_again_and_again_with_a_sleep_between_is_no_loop() -> None:
    turns: list[Said] = [[("sleep", {"seconds": 60})] for _ in range(6)]
    house = House()
    async with house.life(StrictLLM(*turns, "done"), sleep=house.clock.sleep) as agent:
        sent = await agent.send("go", context="c")
        for _ in range(6):
            await until(lambda: agent.services.slots.held == 0)
            await settled()
            house.clock.advance(60)
            await settled()
        ended = await agent.wait(sent.task.id)
        assert (ended.state, ended.text) == ("completed", "done")


# Tools that ask, several at once


class Asking:
    """A tool that asks a person in the middle of its work, as a server's tool may."""

    def __init__(self, *, read_only: bool = True) -> None:
        self.read_only = read_only
        self.broken = asyncio.Event()
        self.runs = 0

    def tool(self) -> Tool:
        schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
        return Tool("probe", "asks", schema, self._run, read_only=self.read_only)

    async def _run(self, asked: Invocation) -> Answer:
        self.runs += 1
        question = asyncio.ensure_future(asked.desk.ask(asked, f"Go on with {asked.arguments['n']}?", part="own"))
        broken = asyncio.ensure_future(self.broken.wait())
        await asyncio.wait({question, broken}, return_when=asyncio.FIRST_COMPLETED)
        try:
            if not question.done():
                raise ConnectionError("the server is gone")
            return Answer({"said": question.result()[0]})
        finally:
            question.cancel()
            broken.cancel()


def probing(*numbers: int) -> StrictLLM:
    return StrictLLM([("probe", {"n": n}) for n in numbers], "done")


async def test_f49_calls_that_ask_at_once_hold_no_slot_and_take_one_back() -> None:
    house, probe = House(agent__max_parallel_turns=1), Asking()
    async with house.life(probing(1, 2), tools=[probe.tool()], people=True) as agent:
        first = await asked(agent)
        await until(lambda: len(agent.questions()) == 2)
        assert agent.services.slots.held == 0
        await agent.answer(task_of(first), "yes", question=first.id)
        await settled()
        assert agent.services.slots.held == 0, "the other call still waits"
        second = agent.question(task_of(first))
        assert second is not None
        await agent.answer(task_of(first), "no", question=second.id)
        assert (await agent.wait(task_of(first))).text == "done"
        assert [one.content["said"] for one in await results(agent, "c")] in (["yes", "no"], ["no", "yes"])
        await agent.until_idle()
        assert agent.services.slots.held == 0


async def test_f47_question_of_a_call_that_fails_closes_and_the_turn_goes_on() -> None:
    house, probe = House(), Asking(read_only=False)
    async with house.life(probing(1), tools=[probe.tool()], people=True) as agent:
        wait = await asked(agent)
        probe.broken.set()
        assert (await agent.wait(task_of(wait))).text == "done"
        assert "the server is gone" in await last(agent)
        closed = await agent.events.wait_event("gate.closed", context="c")
        assert (closed.data["gate"], closed.data["how"]) == (wait.id, "ended")
        with pytest.raises(NotOpen):
            await agent.answer(task_of(wait), "yes")
        await agent.until_idle()
        assert agent.services.slots.held == 0


async def test_time_that_people_take_is_no_time_of_the_tool_that_asks() -> None:
    house, probe = House(limits__tool_timeout="60s"), Asking()
    async with house.life(probing(1), tools=[probe.tool()], people=True, sleep=house.clock.sleep) as agent:
        wait = await asked(agent)
        for _ in range(5):
            house.clock.advance(59)
            await settled()
        assert agent.question(task_of(wait)) is not None
        await agent.answer(task_of(wait), "yes")
        await agent.wait(task_of(wait))
        assert await last(agent) == {"said": "yes"}


@pytest.mark.parametrize("read_only", [True, False])
async def test_f3_question_of_a_call_that_a_restart_cuts_off(read_only: bool) -> None:
    """A call that may be repeated asks the same question on; of any other the question closes with its call."""
    house, probe, model = House(), Asking(read_only=read_only), probing(1)
    async with house.life(model, tools=[probe.tool()], people=True) as agent:
        wait = await asked(agent)
        assert await agent.drain(timeout=5)
    async with house.life(model, tools=[probe.tool()], people=True) as agent:
        if read_only:
            assert await agent.wait_or_ask(task_of(wait)) == wait
            await agent.answer(task_of(wait), "yes")
        assert (await agent.wait(task_of(wait))).state == "completed"
        (result,) = await results(agent, "c")
        assert result.content == {"said": "yes"} if read_only else result.state == "unknown"
        assert probe.runs == (2 if read_only else 1)
        assert await agent.services.records.ids("wait") == []
