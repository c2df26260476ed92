"""How turns end: the eight end states with the state of the task and the exit code of each, and what a turn leaves that
was ended in the middle of a round. The model refuses what a provider would refuse, so each next turn is a proof."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agentd.context.record import AssistantMsg
from agentd.runtime.tools.base import Answer, Finish, Invocation, Tool
from agentkit.core.contracts.errors import PermanentError, TransientError
from agentkit.core.contracts.ports import LLM
from agentkit.core.contracts.requests import ChatRequest
from tests.agentd.daemon.house import House, Said, StrictLLM, forever, log_of, notes, results, until

pytestmark = pytest.mark.anyio


async def at_once(seconds: float) -> None:
    """A sleep that takes no time, for pauses between tries; who sleeps long sleeps for good."""
    if seconds >= 5:
        await forever()


async def ended(house: House, model: LLM, **how: Any) -> tuple[str, str | None, int | None]:
    """Task state, end state and exit code of one turn; its reason is told in its context unless it completed."""
    async with house.life(model, **how) as agent:
        task = await agent.ask("go", context="c")
        told = [entry.body for entry in await log_of(agent, "c") if entry.kind == "outcome"]
        assert [(body.of, body.state, body.text) for body in told] == [(task.turn, task.end_state, task.reason)]
        said = await notes(agent, "c")
        assert bool(said) == (task.end_state != "completed")
        assert all(task.end_state in text and task.reason in text for text in said if task.end_state)
        return task.state, task.end_state, task.exit


async def test_an_answer_without_calls_completes() -> None:
    assert await ended(House(), StrictLLM("done")) == ("completed", "completed", 0)


@pytest.mark.parametrize(
    ("status", "state", "code"),
    [("completed", "completed", 0), ("failed", "failed", 3), ("refused", "rejected", 5), ("cancelled", "canceled", 3)],
)
async def test_finish_ends_a_turn_as_it_says(status: str, state: str, code: int) -> None:
    model = StrictLLM([("finish", {"status": status, "reason": "for a reason", "output": {"n": 1}})])
    assert await ended(House(), model) == (state, status, code)


async def test_finish_hands_over_output_and_exit_and_acts_after_its_round() -> None:
    house = House()
    model = StrictLLM([("finish", {"status": "failed", "output": {"n": [1]}, "reason": "so", "exit": 42}),
                       ("post", {"n": 7})])  # fmt: skip
    async with house.life(model) as agent:
        task = await agent.ask("go", context="c")
        assert (task.output, task.reason, task.exit) == ({"n": [1]}, "so", 42)
        assert house.hands.names() == ["post"], "the calls behind it in its round are run"
        assert len(model.requests) == 1, "and no further round begins"
        assert [result.state for result in await results(agent, "c")] == ["", ""]


async def test_a_finish_that_makes_no_sense_ends_nothing() -> None:
    model = StrictLLM([("finish", {"status": "splendid"})], "then so")
    async with House().life(model) as agent:
        task = await agent.ask("go", context="c")
        assert (task.end_state, task.text) == ("completed", "then so")
        assert [result.is_error for result in await results(agent, "c")] == [True]


@pytest.mark.parametrize(
    ("said", "code"), [(TransientError("503"), 4), (PermanentError("400: no"), 1), (ZeroDivisionError("oh"), 1)]
)
async def test_a_model_that_fails_fails_the_turn_and_says_whether_it_was_reached(said: Said, code: int) -> None:
    assert await ended(House(), StrictLLM(said), sleep=at_once) == ("failed", "failed", code)


async def test_cancel_ends_a_turn() -> None:
    house = House()
    house.hands.do["post"] = lambda asked: forever()
    async with house.life(StrictLLM([("post", {})])) as agent:
        sent = await agent.send("go", context="c")
        await house.hands.begun.wait()
        assert await agent.cancel(sent.task.id, reason="not needed any more")
        task = await agent.wait(sent.task.id)
        assert (task.state, task.end_state, task.exit) == ("canceled", "cancelled", 3)
        assert task.reason == "not needed any more"
        assert not await agent.cancel(sent.task.id), "it has ended"


async def test_a_budget_that_is_used_up_refuses_with_a_code_of_its_own() -> None:
    house = House(intelligence__budget__lifetime_tokens=100)
    assert await ended(house, StrictLLM("never")) == ("rejected", "refused", 7)


async def test_steps_are_limited() -> None:
    turns = [[("look", {"n": n})] for n in range(9)]
    assert await ended(House(limits__run__steps=3), StrictLLM(*turns)) == ("failed", "exhausted_steps", 3)


async def test_tokens_are_limited() -> None:
    turns = [[("look", {"n": n})] for n in range(9)]
    house = House(limits__run__tokens=250)
    assert await ended(house, StrictLLM(*turns)) == ("failed", "exhausted_tokens", 7)
    assert len(house.hands.calls) == 3, "110 each"


async def test_tokens_are_counted_over_lives_as_they_were_reported() -> None:
    """What a provider reported is on record with each answer, so that a restart makes a limit neither looser nor
    tighter, and the task's bill is that of all its lives."""
    house = House(limits__run__tokens=450)
    house.hands.do["post"] = lambda asked: forever()
    async with house.life(StrictLLM([("look", {"n": 1})], [("look", {"n": 2})], [("post", {})])) as agent:
        task = (await agent.send("go", context="c")).task.id
        await until(lambda: "post" in house.hands.names())
        await house.end(agent)
    model = StrictLLM([("look", {"n": 3})], [("look", {"n": 4})])
    async with house.life(model) as agent:
        ended = await agent.wait(task)
        assert (ended.end_state, ended.reason) == ("exhausted_tokens", "550 of 450 tokens")
        assert len(model.requests) == 2, "330 of the first life, then 110 each"
        assert (ended.usage["input"], ended.usage["output"], ended.usage["calls"]) == (500, 50, 5)


async def test_time_is_limited_between_rounds() -> None:
    house = House(limits__run__deadline="10m")

    async def slow(asked: Invocation) -> str:
        house.clock.advance(301)
        return "done"

    house.hands.do["look"] = slow
    turns = [[("look", {"n": n})] for n in range(9)]
    assert await ended(house, StrictLLM(*turns)) == ("failed", "deadline", 124)
    assert len(house.hands.calls) == 2


async def test_the_same_call_with_the_same_result_in_four_rounds_is_a_loop() -> None:
    model = StrictLLM([("look", {"n": 1}), ("look", {"n": 2})])
    house = House()
    assert await ended(house, model) == ("failed", "loop_detected", 3)
    assert len(model.requests) == 4


async def test_the_same_call_with_other_results_is_no_loop() -> None:
    house = House()

    async def counting(asked: Invocation) -> int:
        return len(house.hands.calls)

    house.hands.do["look"] = counting
    model = StrictLLM(*[[("look", {})]] * 6, "six times")
    assert await ended(house, model) == ("completed", "completed", 0)


# A turn that ended in the middle of a round


ROUND: Said = [("post", {"n": 1}), ("post", {"n": 2}), ("post", {"n": 3})]
"""The first is answered, the second is under way when the turn ends, the third has not begun."""


async def next_turn_is_legal(house: House, *, states: list[str]) -> None:
    """Another turn in a second life on the same store, then the same once more in a third."""
    for life in range(2):
        model = StrictLLM([("put", {"n": life})], "still here")
        async with house.life(model) as agent:
            task = await agent.ask("and now?", context="c")
            assert (task.end_state, task.text) == ("completed", "still here"), task
            if not life:
                found = [result.state for result in await results(agent, "c") if result.name == "post"]
                assert found == states


async def test_f6_a_turn_ended_by_a_loop_inside_a_round_leaves_a_legal_context() -> None:
    house = House()
    async with house.life(StrictLLM(ROUND)) as agent:
        task = await agent.ask("go", context="c")
        assert task.end_state == "loop_detected"
        more = await agent.ask("again", context="c")
        assert more.end_state == "loop_detected", "the loop of an earlier turn is not counted on"
    await next_turn_is_legal(house, states=[""] * 24)


async def test_f6_a_turn_cancelled_inside_a_round_leaves_a_legal_context() -> None:
    house = House()

    async def second_hangs(asked: Invocation) -> Any:
        return "first" if asked.index == 0 else await forever()

    house.hands.do["post"] = second_hangs
    model = StrictLLM(ROUND, "in this life too")
    async with house.life(model) as agent:
        sent = await agent.send("go", context="c")
        await agent.events.wait_event("effect.completed")
        house.hands.begun.clear()
        await house.hands.begun.wait()
        await agent.cancel(sent.task.id)
        assert (await agent.wait(sent.task.id)).end_state == "cancelled"
        task = await agent.ask("go on", context="c")
        assert (task.end_state, task.text) == ("completed", "in this life too")
    await next_turn_is_legal(house, states=["", "unknown", "not_run"])


async def test_f6_a_turn_over_its_deadline_inside_a_round_leaves_a_legal_context() -> None:
    house = House()

    async def late(asked: Invocation) -> Any:
        if asked.index == 0:
            house.clock.advance(3_599.98)
            return "first"
        return await forever()

    house.hands.do["post"] = late
    async with house.life(StrictLLM(ROUND)) as agent:
        task = await agent.ask("go", context="c")
        assert (task.end_state, task.exit) == ("deadline", 124)
    await next_turn_is_legal(house, states=["", "unknown", "not_run"])


async def test_f6_a_turn_whose_life_ended_inside_a_round_leaves_a_legal_context() -> None:
    house = House()

    async def second_hangs(asked: Invocation) -> Any:
        return "first" if asked.index == 0 else await forever()

    house.hands.do["post"] = second_hangs
    async with house.life(StrictLLM(ROUND)) as agent:
        await agent.send("go", context="c")
        await agent.events.wait_event("effect.completed")
        house.hands.begun.clear()
        await house.hands.begun.wait()
        await house.end(agent)
    await next_turn_is_legal(house, states=["", "unknown", "not_run"])


async def test_a_cancel_while_the_model_is_asked_leaves_a_legal_context() -> None:
    asked = asyncio.Event()

    async def answer(request: ChatRequest) -> Said:
        if len(model.requests) > 1:
            return "here"
        asked.set()
        await forever()
        return ""

    model = StrictLLM(answer=answer)
    async with House().life(model) as agent:
        sent = await agent.send("go", context="c")
        await asked.wait()
        await agent.cancel(sent.task.id)
        assert (await agent.wait(sent.task.id)).state == "canceled"
        assert (await agent.ask("again", context="c")).text == "here"


async def test_a_result_that_came_beats_a_cancel_that_races_with_it() -> None:
    house = House()

    async def cancels_itself(asked: Invocation) -> str:
        await agent.cancel(sent.task.id)
        return "it is done"

    house.hands.do["post"] = cancels_itself
    async with house.life(StrictLLM([("post", {})])) as agent:
        sent = await agent.send("go", context="c")
        assert (await agent.wait(sent.task.id)).end_state == "cancelled"
        [result] = await results(agent, "c")
        assert (result.content, result.state) == ("it is done", "")


# A turn that dies of a fault of ours


async def test_f7_a_turn_that_dies_mid_call_has_failed_and_the_next_message_starts() -> None:
    house = House(agent__max_parallel_turns=1)

    async def answer(request: ChatRequest) -> Said:
        if len(model.requests) > 1:
            return "alive"
        raise RuntimeError("the transport broke in two")

    model = StrictLLM(answer=answer)
    async with house.life(model) as agent:
        first = await agent.send("go", context="c")
        second = await agent.send("and?", context="c")
        died, lives = await agent.wait(first.task.id), await agent.wait(second.task.id)
        assert (died.state, died.end_state, died.exit) == ("failed", "failed", 1)
        assert "RuntimeError: the transport broke in two" in died.reason
        assert (lives.end_state, lives.text) == ("completed", "alive")
        assert agent.services.slots.held == 0
        spent = agent.services.governor.figures()["turn"]
        assert spent["requests"] == 2
        assert spent["tokens"] > 4_096 + 110, (
            "the estimate of the first with its output, what was reported of the second"
        )


async def test_f7_a_call_that_is_cancelled_from_elsewhere_ends_its_turn_only() -> None:
    house = House(agent__max_parallel_turns=1)

    async def answer(request: ChatRequest) -> Said:
        if len(model.requests) > 1:
            return "alive"
        raise asyncio.CancelledError

    model = StrictLLM(answer=answer)
    async with house.life(model) as agent:
        first = await agent.send("go", context="c")
        second = await agent.send("and?", context="c")
        died = await agent.wait(first.task.id, timeout=5)
        assert (died.state, died.exit) == ("failed", 1)
        assert "cancelled" in died.reason
        assert (await agent.wait(second.task.id, timeout=5)).text == "alive"
        assert agent.services.slots.held == 0


class Rude:
    """Tools of a user's own that break what they promise."""

    @staticmethod
    def tools() -> list[Tool]:
        async def unwritable(asked: Invocation) -> Answer:
            return Answer("done", finish=Finish("completed", output=object()))

        async def nonsense(asked: Invocation) -> Answer:
            return Answer("done", finish=Finish("splendid"))  # type: ignore[arg-type]

        async def no_entry(asked: Invocation) -> Answer:
            return Answer("done", bodies=(object(),))  # type: ignore[arg-type]

        async def no_row(asked: Invocation) -> Answer:
            return Answer("done", writes=(object(),))  # type: ignore[arg-type]

        async def cancelled(asked: Invocation) -> Answer:
            raise asyncio.CancelledError

        async def half_pair(asked: Invocation) -> Answer:
            raise RuntimeError("half \ud800 pair")

        made = (unwritable, nonsense, no_entry, no_row, cancelled, half_pair)
        return [Tool(run.__name__, "rude", {"type": "object"}, run) for run in made]


@pytest.mark.parametrize("tool", [tool.name for tool in Rude.tools()])
async def test_f7_a_rude_tool_ends_its_turn_at_most(tool: str) -> None:
    """Whatever it does, the turn ends with a reason, and the next turn is legal, in this life and in the next."""
    house = House()
    async with house.life(StrictLLM([(tool, {}), ("post", {})], "alive"), tools=Rude.tools()) as agent:
        task = await agent.ask("go", context="c")
        assert task.is_settled
        assert task.reason or task.end_state == "completed"
        more = await agent.ask("and now?", context="c")
        assert (more.end_state, more.text) == ("completed", "alive"), more
        assert agent.services.slots.held == 0
        log = await log_of(agent, "c")
        calls = [call.id for entry in log if isinstance(entry.body, AssistantMsg) for call in entry.body.tool_calls]
        assert sorted(result.id for result in await results(agent, "c")) == sorted(calls)
        assert len([entry for entry in log if entry.kind == "outcome"]) == 2
    async with house.life(StrictLLM("alive")) as agent:
        assert (await agent.ask("and now?", context="c")).text == "alive"


async def test_f52_a_reason_with_half_pairs_ends_a_turn_all_the_same() -> None:
    house = House()
    house.hands.do["post"] = lambda asked: forever()
    async with house.life(StrictLLM([("post", {})], PermanentError("half \udcff pair"), "alive")) as agent:
        sent = await agent.send("go", context="c")
        await house.hands.begun.wait()
        await agent.cancel(sent.task.id, reason="half \ud800 pair")
        assert (await agent.wait(sent.task.id)).reason == "half \ufffd pair"
        failed = await agent.ask("go", context="c")
        assert (failed.end_state, failed.reason) == ("failed", "the model refused: half \ufffd pair")
        await agent.note("half \ud800 pair", about="\udfff", context="c")
        assert (await agent.ask("go", context="c")).text == "alive"
