"""The budget through the whole daemon, over lives: every call counts, none is made that a window has no room for. And
the look at a message beforehand, which is one of those calls."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentd.runtime.principals import Principal
from agentkit.core.contracts.errors import PermanentError
from agentkit.core.contracts.requests import ChatRequest, LLMResult
from agentkit.core.contracts.usage import Usage
from tests.agentd.daemon.house import House, Said, StrictLLM, answers, forever, log_of, notes, settled, texts, until

pytestmark = pytest.mark.anyio

VERDICT: dict[str, Any] = {"intent": "task", "needs_plan": False, "risk": "low"}
SUMMARY = {"narrative": "They spoke about the weather.", "resume": "Answer."}


def is_verdict(request: ChatRequest) -> bool:
    return request.response_format is not None and "intent" in str(request.response_format)


def kinds_of(model: StrictLLM) -> dict[str, int]:
    """How many requests of each kind came."""
    found = {"compaction": 0, "preflight": 0, "think": 0, "turn": 0}
    for request in model.requests:
        if is_verdict(request):
            found["preflight"] += 1
        elif request.response_format is not None:
            found["compaction"] += 1
        elif request.temperature == 0.0:
            found["think"] += 1
        else:
            found["turn"] += 1
    return found


def spent(agent: Any) -> dict[str, tuple[float, float]]:
    """Requests and tokens by kind of call, over all lives."""
    figures = agent.services.governor.figures()
    return {kind: (one["requests"], one["tokens"]) for kind, one in figures.items()}


# What counts


async def test_f41_preflight_compaction_and_think_are_in_the_figures() -> None:
    def answer(request: ChatRequest) -> Said:
        if is_verdict(request):
            return json.dumps(VERDICT)
        if request.response_format is not None:
            return json.dumps(SUMMARY)
        if request.temperature == 0.0:
            return "a thought"
        if request.messages[-1].role == "user" and "think about it" in texts(request) and len(model.requests) == 2:
            return [("think", {"prompt": "what?"})]
        return "word " * 300

    house = House(agent__preflight="always", context__model_window=6_000, intelligence__max_output=500,
                  context__keep_last=2, intelligence__budget__windows="[{per: day, tokens: 100000000}]",
                  agent__tools__internal="[think]")  # fmt: skip
    model = StrictLLM(answer=answer)
    model.usage = None
    async with house.life(model) as agent:
        await agent.ask("think about it", context="c")
        while not kinds_of(model)["compaction"]:
            assert (await agent.ask("tell me more", context="c")).end_state == "completed"
            assert len(model.requests) < 100
        await agent.until_idle()
        made = kinds_of(model)
        assert min(made.values()) >= 1
        assert {kind: requests for kind, (requests, _) in spent(agent).items()} == made
        all_tokens = sum(usage.total_tokens for usage in model.reported)
        assert sum(tokens for _, tokens in spent(agent).values()) == all_tokens
        [level, *_] = agent.services.governor.levels()
        assert (level.spent.tokens, level.spent.requests) == (all_tokens, len(model.requests))
        assert level.reserved.tokens == 0
        figures = spent(agent)
    async with house.life(StrictLLM("not asked")) as agent:
        assert spent(agent) == figures


async def test_f41_usage_of_the_calls_beside_the_turn_counts_for_its_task() -> None:
    house = House(agent__preflight="always")
    model = StrictLLM(answer=lambda request: json.dumps(VERDICT) if is_verdict(request) else "done")
    async with house.life(model) as agent:
        task = await agent.ask("go", context="c")
        assert (task.usage["calls"], task.usage["rounds"], task.usage["input"]) == (2, 1, 200)


async def test_f41_a_call_whose_usage_never_came_is_charged_what_was_set_aside() -> None:
    model = StrictLLM(LLMResult("done", (), Usage(), "stop", "none"))
    async with House(intelligence__max_output=300, agent__tools__internal="[think]").life(model) as agent:
        assert (await agent.ask("go", context="c")).text == "done"
        requests, tokens = spent(agent)["turn"]
        assert requests == 1
        assert 300 < tokens < 4_000


async def test_f41_a_crash_loop_cannot_spend_past_a_window() -> None:
    """Each life makes the call and ends in it; the item is taken up again and again."""
    house = House(intelligence__budget__windows="[{per: day, requests: 3}]", intelligence__budget__tactic="refuse")
    model = StrictLLM(answer=lambda request: forever())
    for _ in range(3):
        async with house.life(model) as agent:
            await agent.send("go", context="c", message_id="m")
            await settled()
            await house.end(agent)
    for _ in range(3):
        async with house.life(model) as agent:
            sent = await agent.send("go", context="c", message_id="m")
            ended = await agent.wait(sent.task.id)
            assert (ended.state, ended.exit) == ("rejected", 7)
    assert len(model.requests) == 3


async def test_f41_a_restart_opens_no_window() -> None:
    house = House(intelligence__budget__windows="[{per: hour, tokens: 10000}]", intelligence__budget__tactic="refuse",
                  intelligence__max_output=100)  # fmt: skip
    model = StrictLLM("done")
    model.usage = Usage(4_000, 10)
    for end in ("completed", "completed", "refused", "refused"):
        async with house.life(model) as agent:
            assert (await agent.ask("go", context="c")).end_state == end
    assert len(model.requests) == 2
    house.clock.advance(3_600)
    async with house.life(model) as agent:
        assert (await agent.ask("go", context="c")).end_state == "completed"


# What is refused, and what waits


async def test_f42_a_request_too_big_for_a_window_is_refused_under_wait() -> None:
    house = House(intelligence__budget__windows="[{per: minute, tokens: 200}]")
    model = StrictLLM("never")
    async with house.life(model, sleep=house.clock.sleep) as agent:
        task = await agent.ask("go", context="c")
        assert (task.state, task.end_state, task.exit) == ("rejected", "refused", 7)
        assert "intelligence.budget.windows[0]" in task.reason
        assert not model.requests
        [note] = await notes(agent, "c")
        assert task.reason in note, "the next turn knows why nothing was answered"
        assert agent.services.slots.held == 0


async def test_f42_a_waiting_one_runs_after_the_reset() -> None:
    house = House(intelligence__budget__windows="[{per: minute, requests: 1}]")
    model = StrictLLM("done")
    async with house.life(model, sleep=house.clock.sleep) as agent:
        await agent.ask("first", context="a")
        sent = await agent.send("second", context="b")
        waits = await agent.events.wait_event("budget.wait", context="b")
        assert (waits.data["window"], waits.data["until"]) == ("minute", (house.clock.now + 60) * 1_000)
        await settled()
        assert agent.services.slots.held == 0
        house.clock.advance(59)
        await settled()
        assert len(model.requests) == 1, "a second too early"
        house.clock.advance(1)
        assert (await agent.wait(sent.task.id)).text == "done"


async def test_f42_a_waiting_one_is_taken_up_by_the_next_life() -> None:
    house = House(intelligence__budget__windows="[{per: minute, requests: 1}]")
    async with house.life(StrictLLM("done"), sleep=house.clock.sleep) as agent:
        await agent.ask("first", context="a")
        sent = await agent.send("second", context="b")
        await agent.events.wait_event("budget.wait", context="b")
        await house.end(agent)
    model = StrictLLM("done")
    async with house.life(model, sleep=house.clock.sleep) as agent:
        await agent.events.wait_event("budget.wait", context="b")
        assert not model.requests
        await settled()
        assert agent.services.slots.held == 0
        house.clock.advance(60)
        assert (await agent.wait(sent.task.id)).text == "done"
        assert len([e for e in await log_of(agent, "b") if e.kind == "user"]) == 1


async def test_the_tactic_fail_fails() -> None:
    house = House(intelligence__budget__windows="[{per: day, requests: 1}]", intelligence__budget__tactic="fail")
    async with house.life(StrictLLM("done")) as agent:
        await agent.ask("first", context="a")
        task = await agent.ask("second", context="a")
        assert (task.state, task.exit) == ("failed", 7)


async def test_a_conversation_has_a_budget_of_its_own() -> None:
    house = House(agent__conversation_budget="{requests: 2}")
    async with house.life(StrictLLM("done")) as agent:
        ends = [(await agent.ask("go", context=context)).end_state for context in "aaabb"]
        assert ends == ["completed", "completed", "refused", "completed", "completed"]


# The look beforehand


def looked(verdict: dict[str, Any] | Said, then: str = "answered") -> StrictLLM:
    """A model that gives this verdict, and then answers."""
    said = json.dumps(verdict) if isinstance(verdict, dict) else verdict
    return StrictLLM(answer=lambda request: said if is_verdict(request) else then)


async def test_preflight_answers_a_question_for_the_status_without_the_model() -> None:
    model = looked({**VERDICT, "intent": "status"})
    async with House(agent__preflight="always").life(model) as agent:
        task = await agent.ask("how far are you?", context="c")
        assert task.end_state == "completed"
        assert "est tokens" in task.text
        assert kinds_of(model) == {"preflight": 1, "turn": 0, "compaction": 0, "think": 0}
        assert await answers(agent, "c") == [task.text], "it is in the context like any answer"
        assert (await agent.ask("again", context="c")).end_state == "completed"


async def test_preflight_asks_back_and_ends() -> None:
    model = looked({**VERDICT, "intent": "clarify", "clarifications": ["Which file?", "And why?"]})
    async with House(agent__preflight="always").life(model) as agent:
        task = await agent.ask("delete it", context="c")
        assert (task.end_state, task.text) == ("completed", "1. Which file?\n2. And why?")
        assert kinds_of(model)["turn"] == 0


async def test_preflight_seeds_a_plan_that_the_model_is_shown() -> None:
    plan = {"goal": "Move the shop", "items": ["copy the data", "switch over"]}
    model = looked({**VERDICT, "needs_plan": True, "plan": plan})
    house = House(agent__preflight="always")
    async with house.life(model) as agent:
        assert (await agent.ask("move the shop", context="c")).text == "answered"
        found = (await agent.command("plan.get", context="c"))["plan"]
        assert (found["goal"], [item["title"] for item in found["items"]]) == ("Move the shop", plan["items"])
        assert "switch over" in texts(model.requests[-1])
        await agent.ask("go on", context="c")
        again = (await agent.command("plan.get", context="c"))["plan"]
        assert again == found, "a plan that is there is kept"
        state = agent.contexts.get("c")
        assert state is not None
        assert state.state.preflight["intent"] == "task"
    async with house.life(looked(VERDICT)) as agent:
        assert (await agent.command("plan.get", context="c"))["plan"] == found


@pytest.mark.parametrize(
    "said",
    ["rubbish", "", '{"intent": "no such"}', [("post", {})], PermanentError("400: no"), ValueError("oh"),
     LLMResult('{"intent": "chat", "needs_', (), Usage(1, 1), "length", "none")],
)  # fmt: skip
async def test_a_preflight_that_fails_stops_no_turn_and_leaves_nothing(said: Said) -> None:
    house, model = House(agent__preflight="always"), looked(said)
    async with house.life(model) as agent:
        task = await agent.ask("go", context="c")
        assert (task.end_state, task.text) == ("completed", "answered")
        failed = await agent.events.wait_event("preflight.failed", context="c")
        assert failed.data["reason"]
        assert [entry.kind for entry in await log_of(agent, "c")] == ["user", "assistant", "outcome"]
        assert not house.hands.calls


async def test_a_preflight_without_budget_leaves_the_refusal_to_the_turn() -> None:
    house = House(agent__preflight="always", intelligence__budget__lifetime_tokens=100)
    async with house.life(looked(VERDICT)) as agent:
        task = await agent.ask("go", context="c")
        assert (task.state, task.exit) == ("rejected", 7)


@pytest.mark.parametrize(
    ("when", "text", "looks"),
    [("never", "delete the database", 0), ("auto", "hello", 0), ("auto", "delete the database", 1),
     ("auto", "x" * 281, 1), ("always", "hello", 1)],
)  # fmt: skip
async def test_when_a_message_is_looked_at(when: str, text: str, looks: int) -> None:
    model = looked(VERDICT)
    async with House(agent__preflight=when).life(model) as agent:
        await agent.ask(text, context="c")
        assert kinds_of(model) == {"preflight": looks, "turn": 1, "compaction": 0, "think": 0}


async def test_a_cancel_in_the_look_beforehand_ends_the_turn_at_once() -> None:
    async def answer(request: ChatRequest) -> Said:
        if is_verdict(request) and len(model.requests) == 1:
            await forever()
        return "answered"

    model = StrictLLM(answer=answer)
    async with House(agent__preflight="always").life(model) as agent:
        sent = await agent.send("go", context="c")
        await until(lambda: len(model.requests) == 1)
        await agent.cancel(sent.task.id)
        assert (await agent.wait(sent.task.id)).end_state == "cancelled"
        assert kinds_of(model)["turn"] == 0
        assert spent(agent)["preflight"][0] == 1


async def test_f49_who_is_over_a_quota_waits_alone() -> None:
    rules = "[{id: ann, match: {subject: ann}, role: user, quota: {per: minute, requests: 1}}]"
    house = House(agent__max_parallel_turns=1, a2a__principals=rules)
    async with house.life(StrictLLM("done"), sleep=house.clock.sleep) as agent:
        ann, bob = Principal("ann"), Principal("bob")
        await agent.ask("go", context="a", principal=ann)
        waiting = await agent.send("go", context="a", principal=ann)
        behind = await agent.send("go", context="a", principal=ann)
        await settled()
        for _ in range(3):
            assert (await agent.ask("go", context="b", principal=bob)).text == "done"
        assert not agent.actors.running.keys() - {waiting.task.turn}
        house.clock.advance(60)
        assert (await agent.wait(waiting.task.id)).text == "done"
        await settled()
        house.clock.advance(60)
        assert (await agent.wait(behind.task.id)).text == "done"
