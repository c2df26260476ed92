"""Questions to people, approvals and timers: durable, asked once, answered in any life, and holding no slot."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agentd.runtime.answers import Unfitting
from agentd.runtime.daemon import Daemon
from agentd.runtime.principals import OPERATOR, Principal
from agentd.runtime.waits import NotOpen, Wait
from agentkit.core.contracts.errors import StoreError
from agentkit.core.testing import FaultyStore
from agentkit.state.stores import InMemoryStore
from tests.agentd.daemon.house import House, Said, StrictLLM, log_of, results, settled, until

pytestmark = pytest.mark.anyio
ANN, BOB = Principal("ann"), Principal("bob")


def asking(question: str = "Which colour?", **more: Any) -> StrictLLM:
    return StrictLLM([("ask_human", {"question": question, **more})], "done")


async def asked(agent: Daemon, text: str = "go", **where: Any) -> Wait:
    """Send a message, and wait until the agent asks something."""
    sent = await agent.send(text, **{"context": "c", **where})
    found = await agent.wait_or_ask(sent.task.id)
    assert isinstance(found, Wait), found
    assert found.task == sent.task.id
    return found


async def last(agent: Daemon, context: str = "c") -> Any:
    found = (await results(agent, context))[-1]
    return found.content if not found.is_error else f"error: {found.content}"


def task_of(wait: Wait) -> str:
    assert wait.task is not None
    return wait.task


async def test_f47_question_gets_its_answer_and_is_asked_once() -> None:
    house, model = House(), asking(options=["red", "blue"])
    async with house.life(model, people=True) as agent:
        wait = await asked(agent, principal=ANN)
        assert (wait.question, wait.options, wait.owner, wait.kind) == (
            "Which colour?",
            ("red", "blue"),
            "ann",
            "question",
        )
        opened = await agent.events.wait_event("gate.opened", context="c")
        assert (opened.data["kind"], "colour" in str(opened.data)) == ("question", False)
        assert [one.id for one in agent.questions(ANN)] == [one.id for one in agent.questions()] == [wait.id]
        with pytest.raises(Unfitting, match="'green' is none of the options; it takes one of 'red', 'blue'"):
            await agent.answer(task_of(wait), "green", principal=ANN)
        await agent.answer(task_of(wait), " red\n", principal=ANN, message_id="a1")
        assert (await agent.wait(task_of(wait))).text == "done"
        assert await last(agent) == {"answer": "red", "by": "ann"}
        assert (await agent.events.wait_event("gate.closed", context="c")).data["how"] == "answered"
        assert agent.questions() == []
        # The same answer under its id is known; another one finds no question.
        assert (await agent.answer(task_of(wait), " red\n", principal=ANN, message_id="a1")).id == wait.task
        with pytest.raises(NotOpen):
            await agent.answer(task_of(wait), "blue", principal=ANN)
        assert await agent.services.records.ids("wait") == []
    assert len(model.requests) == 2


@pytest.mark.parametrize("when", ["before the restart", "after the restart"])
async def test_f47_question_survives_a_restart(when: str) -> None:
    """The answer may come before the next life or in it; the question is not asked again, the model not either."""
    house, model = House(), asking()
    async with house.life(model, people=True) as agent:
        wait = await asked(agent, principal=ANN)
        if when == "before the restart":
            # Answered by a process that dies before the turn takes it in.
            await agent.actors.stop()
            await agent.answer(task_of(wait), "red", principal=ANN)
        else:
            await house.end(agent)
    async with house.life(model, people=True) as agent:
        if when == "after the restart":
            again = await agent.wait_or_ask(task_of(wait))
            assert isinstance(again, Wait)
            assert again == wait
            await agent.answer(task_of(wait), "red", principal=OPERATOR)
        assert (await agent.wait(task_of(wait))).text == "done"
        assert (await last(agent))["answer"] == "red"
        assert [entry.kind for entry in await log_of(agent, "c")].count("tool") == 1
    assert len(model.requests) == 2


async def test_f48_drain_leaves_what_waits_for_people_to_the_next_life() -> None:
    house, model = House(), asking()
    async with house.life(model, people=True) as agent:
        wait = await asked(agent)
        assert await agent.drain(timeout=5), "nothing is waited for in vain"
        assert agent.actors.is_idle
    async with house.life(model, people=True) as agent:
        await until(lambda: agent.question(task_of(wait)) is not None)
        await agent.answer(task_of(wait), "red")
        assert (await agent.wait(task_of(wait))).state == "completed"


async def test_f47_cancel_ends_the_question_and_who_asked_has_an_error() -> None:
    house, model = House(), asking()
    async with house.life(model, people=True) as agent:
        wait = await asked(agent)
        assert await agent.cancel(task_of(wait))
        ended = await agent.wait(task_of(wait))
        assert (ended.state, agent.questions()) == ("canceled", [])
        (result,) = await results(agent, "c")
        assert result.is_error
        assert (await agent.events.wait_event("gate.closed", context="c")).data["how"] == "ended"
        with pytest.raises(NotOpen):
            await agent.answer(task_of(wait), "red")
        assert await agent.services.records.ids("wait") == []


async def test_f47_gate_whose_asker_is_gone_closes() -> None:
    house, model = House(), asking()
    async with house.life(model, people=True) as agent:
        wait = await asked(agent)
        await house.end(agent)
        item = agent.services.inbox.waiting[0]
        await agent.services.records.commit(agent.services.inbox.finish(item))
    async with house.life(model, people=True) as agent:
        assert agent.questions() == []
        assert await agent.services.records.ids("wait") == []
        assert (await agent.events.wait_event("gate.closed", context="c")).data["gate"] == wait.id


async def test_question_has_a_time_of_its_own_and_the_tools_limit_is_none_of_it() -> None:
    house, model = House(limits__tool_timeout="5s"), asking(timeout="2h")
    async with house.life(model, people=True, sleep=house.clock.sleep) as agent:
        wait = await asked(agent)
        house.clock.advance(3_600)
        await settled()
        assert agent.question(task_of(wait)) is not None
        house.clock.advance(3_600)
        await agent.wait(task_of(wait))
        assert await last(agent) == "error: nobody answered in time"


async def test_time_that_a_question_takes_is_no_time_of_the_run() -> None:
    """`limits.run.deadline` is an hour; a person answers after two days, half of that in another life."""
    house, model = House(), asking()
    async with house.life(model, people=True, sleep=house.clock.sleep) as agent:
        wait = await asked(agent)
        house.clock.advance(86_400)
        await house.end(agent)
    async with house.life(model, people=True, sleep=house.clock.sleep) as agent:
        house.clock.advance(86_400)
        await settled()
        await agent.answer(task_of(wait), "red")
        assert (await agent.wait(task_of(wait))).state == "completed"


@pytest.mark.parametrize(
    ("fallback", "said"),
    [("fail", "error: nobody can be asked here"), ("auto", "decide by yourself"), ("wait", None)],
)
async def test_where_nobody_can_be_asked(fallback: str, said: str | None) -> None:
    house, model = House(agent__ask_human_fallback=fallback), asking()
    async with house.life(model) as agent:
        if said is None:
            wait = await asked(agent)
            await agent.answer(task_of(wait), "red")
            assert (await agent.wait(task_of(wait))).state == "completed"
        else:
            assert (await agent.ask("go", context="c")).text == "done"
            assert said in str(await last(agent))


async def test_answers_are_what_the_schema_asks_for() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    house, model = House(), asking(schema=schema)
    async with house.life(model, people=True) as agent:
        wait = await asked(agent)
        for wrong in ("many", '{"n": "many"}', "[1"):
            with pytest.raises(Unfitting, match="JSON Schema"):
                await agent.answer(task_of(wait), wrong)
        await agent.answer(task_of(wait), '{"n": 3}')
        await agent.wait(task_of(wait))
        assert (await last(agent))["answer"] == {"n": 3}


async def test_f43_others_have_no_question_of_mine() -> None:
    async with House().life(asking(), people=True) as agent:
        wait = await asked(agent, principal=ANN)
        assert agent.questions(BOB) == []
        with pytest.raises(LookupError, match="there is no task"):
            await agent.answer(task_of(wait), "red", principal=BOB)
        await agent.answer(task_of(wait), "red", principal=OPERATOR)
        await agent.wait(task_of(wait))
        assert (await last(agent))["by"] == "operator"


async def test_f49_turns_that_wait_hold_no_slot() -> None:
    house = House(agent__max_parallel_turns=2)

    def answer(request: Any) -> Said:
        said = next(m.content for m in reversed(request.messages) if m.content.startswith(("ask", "work")))
        if (
            said.startswith("work")
            or request.messages[-1].role == "tool"
            or any(m.role == "tool" for m in request.messages)
        ):
            return "done"
        return [("ask_human", {"question": "Which?"})]

    async with house.life(StrictLLM(answer=answer), people=True) as agent:
        waits = [await asked(agent, "ask", context=f"c{n}") for n in range(8)]
        assert agent.services.slots.held == 0
        assert (await agent.ask("work", context="other")).text == "done"
        # F50: one is answered while another is cancelled.
        await asyncio.gather(agent.answer(task_of(waits[0]), "red"), agent.cancel(task_of(waits[1])))
        ended = [await agent.wait(task_of(wait)) for wait in waits[:2]]
        assert [one.state for one in ended] == ["completed", "canceled"]
        await asyncio.gather(*(agent.answer(task_of(wait), "red") for wait in waits[2:]))
        assert {(await agent.wait(task_of(wait))).state for wait in waits[2:]} == {"completed"}
        assert agent.services.slots.held == 0


async def test_messages_of_a_conversation_that_waits_come_behind() -> None:
    house, model = House(), StrictLLM([("ask_human", {"question": "Which?"})], "first", "second")
    async with house.life(model, people=True) as agent:
        wait = await asked(agent)
        behind = await agent.send("and this", context="c")
        await settled()
        assert len(model.requests) == 1
        await agent.answer(task_of(wait), "red")
        assert (await agent.wait(task_of(wait))).text == "first"
        assert (await agent.wait(behind.task.id)).text == "second"


# Approvals


def posting(*more: Said) -> StrictLLM:
    return StrictLLM([("post", {"n": 1})], *more, "done")


async def test_call_waits_for_approval_and_is_run_once() -> None:
    house, model = House(agent__approval='["post"]'), posting()
    async with house.life(model, people=True) as agent:
        wait = await asked(agent)
        assert wait.kind == "approval"
        assert '"n": 1' in wait.question
        assert house.hands.calls == []
        with pytest.raises(Unfitting, match="it takes yes, or no and a reason"):
            await agent.answer(task_of(wait), "perhaps")
        await agent.answer(task_of(wait), "Yes.")
        await agent.wait(task_of(wait))
        assert house.hands.names() == ["post"]
        kinds = [entry.kind for entry in await log_of(agent, "c")]
        assert kinds.count("effect") == 2


@pytest.mark.parametrize("answered", ["no, not on a Friday", '{"approved": false, "reason": "not on a Friday"}'])
async def test_refused_call_is_not_run_and_the_model_reads_why(answered: str) -> None:
    house = House(agent__approval='["po*"]')
    async with house.life(posting(), people=True) as agent:
        wait = await asked(agent, principal=ANN)
        if answered.startswith("{"):
            from agentd.context.record import DataPart

            await agent.answer(
                task_of(wait), [DataPart({"approved": False, "reason": "not on a Friday"})], principal=ANN
            )
        else:
            await agent.answer(task_of(wait), answered, principal=ANN)
        await agent.wait(task_of(wait))
        assert await last(agent) == "error: post was not run: ann did not approve it: not on a Friday"
        assert house.hands.calls == []
        assert not [entry for entry in await log_of(agent, "c") if entry.kind == "effect"]


async def test_f21_approval_survives_a_restart_and_the_call_is_run_after_it() -> None:
    house, model = House(agent__approval='["post"]'), posting()
    async with house.life(model, people=True) as agent:
        wait = await asked(agent)
        await house.end(agent)
    async with house.life(model, people=True) as agent:
        await until(lambda: agent.question(task_of(wait)) is not None)
        assert house.hands.calls == []
        await agent.answer(task_of(wait), "yes")
        assert (await agent.wait(task_of(wait))).text == "done"
        assert house.hands.names() == ["post"]


async def test_what_a_person_refused_is_not_run_by_a_life_that_would_not_have_asked() -> None:
    house, model = House(agent__approval='["post"]'), posting()
    async with house.life(model, people=True) as agent:
        wait = await asked(agent)
        await house.end(agent)
        await agent.answer(task_of(wait), "no, never")
    async with house.life(model, people=True, given={"agent__approval": "[]"}) as agent:
        await agent.wait(task_of(wait))
        assert "did not approve it: never" in await last(agent)
        assert house.hands.calls == []


async def test_calls_that_only_read_wait_too_and_nobody_to_ask_means_no() -> None:
    house = House(agent__approval='["look"]')
    async with house.life(StrictLLM([("look", {}), ("look", {})], "done")) as agent:
        assert (await agent.ask("go", context="c")).text == "done"
        assert all(one.is_error and "nobody can be asked" in str(one.content) for one in await results(agent, "c"))
        assert house.hands.calls == []


async def test_what_would_be_refused_anyway_is_not_asked_about() -> None:
    house = House(agent__approval='["*"]')
    async with house.life(StrictLLM([("post", {"n": "one"}), ("nothing", {})], "done"), people=True) as agent:
        assert (await agent.ask("go", context="c")).text == "done"
        assert [one.is_error for one in await results(agent, "c")] == [True, True]


# Timers


async def test_f47_timer_keeps_its_time_over_lives_and_wakes_once() -> None:
    house, model = House(), StrictLLM([("sleep", {"seconds": 100})], "done")
    async with house.life(model, sleep=house.clock.sleep) as agent:
        sent = await agent.send("go", context="c")
        await until(lambda: agent.services.slots.held == 0 and bool(model.requests))
        await settled()
        house.clock.advance(60)
        await settled()
        await house.end(agent)
    async with house.life(model, sleep=house.clock.sleep) as agent:
        await settled()
        house.clock.advance(39)
        await settled()
        assert not (await agent.services.inbox.task(sent.task.id)).is_settled
        house.clock.advance(1)
        assert (await agent.wait(sent.task.id)).text == "done"
        assert await last(agent) == {"woken_by": "time", "now": "2027-01-15T08:01:40.000Z"}
    assert len(model.requests) == 2


async def test_sleep_until_a_time_that_is_over_is_no_wait() -> None:
    model = StrictLLM([("sleep", {"until": "2020-01-01T00:00:00Z"})], [("sleep", {"until": "tomorrow"})], "done")
    async with House().life(model) as agent:
        assert (await agent.ask("go", context="c")).text == "done"
        first, second = await results(agent, "c")
        assert (first.content["woken_by"], second.is_error) == ("time", True)
        assert "2026-12-24T18:00:00Z" in str(second.content)


async def test_f14_answer_that_cannot_be_stored_is_no_answer() -> None:
    store = FaultyStore(InMemoryStore())
    house = House(store=store)
    async with house.life(asking(), people=True) as agent:
        wait = await asked(agent)
        store.break_down()
        with pytest.raises((StoreError, OSError)):
            await agent.answer(task_of(wait), "red")
        assert agent.question(task_of(wait)) is not None
        store.mend()
        await agent.answer(task_of(wait), "blue")
        await agent.wait(task_of(wait))
        assert (await last(agent))["answer"] == "blue"
