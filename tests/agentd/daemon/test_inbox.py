"""Messages from the outside: once each, in order, durable, whatever is in them; notes; and when nothing may start."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentd.context.record import DataPart, TextPart
from agentd.context.registry import NotYours
from agentd.runtime.daemon import Daemon
from agentd.runtime.inbox import Busy, Draining, SameId, Task
from agentd.runtime.principals import Principal
from agentd.runtime.tools.base import Invocation
from agentkit.core.contracts.requests import ChatRequest
from tests.agentd.daemon.house import (
    START,
    House,
    Said,
    StrictLLM,
    answers,
    forever,
    log_of,
    notes,
    settled,
    texts,
    until,
    users,
)

pytestmark = pytest.mark.anyio
ANN, BOB = Principal("ann"), Principal("bob")


# The same message twice


async def test_f2_the_same_message_twice_is_one_entry_one_task_one_answer() -> None:
    model = StrictLLM("done")
    async with House().life(model) as agent:
        first = await agent.send("go", context="c", message_id="m")
        again = await agent.send("go", context="c", message_id="m")
        await agent.wait(first.task.id)
        late = await agent.send("go", context="c", message_id="m")
        assert not first.is_duplicate
        assert again.is_duplicate
        assert late.is_duplicate
        assert first.task.id == again.task.id == late.task.id
        assert late.task.text == "done", "who asks again is told the answer"
        await agent.until_idle()
        assert (len(await users(agent, "c")), await answers(agent, "c")) == (1, ["done"])
        assert len(model.requests) == 1


async def test_f2_the_same_message_at_the_same_time_is_one() -> None:
    async with House().life(StrictLLM("done")) as agent:
        made = await asyncio.gather(*(agent.send("go", context="c", message_id="m") for _ in range(10)))
        assert len({one.task.id for one in made}) == 1
        assert sum(not one.is_duplicate for one in made) == 1
        await agent.until_idle()
        assert len(await users(agent, "c")) == 1


async def test_f2_the_same_message_in_a_later_life_is_one() -> None:
    house = House()
    house.hands.do["post"] = lambda asked: forever()
    async with house.life(StrictLLM([("post", {})])) as agent:
        first = await agent.send("go", context="c", message_id="m")
        await house.hands.begun.wait()
        await house.end(agent)
    async with house.life(StrictLLM("done")) as agent:  # while it is taken up
        again = await agent.send("go", context="c", message_id="m")
        assert again.task.id == first.task.id
        assert (await agent.wait(again.task.id)).text == "done"
    async with house.life(StrictLLM("not asked")) as agent:  # after it has ended
        late = await agent.send("go", context="c", message_id="m")
        assert (late.task.id, late.task.text) == (first.task.id, "done")
        assert (len(await users(agent, "c")), await answers(agent, "c")) == (1, ["done"])


async def test_f2_a_message_id_is_its_senders_own() -> None:
    async with House().life(StrictLLM("done")) as agent:
        mine = await agent.send("go", context="a", principal=ANN, message_id="m")
        other = await agent.send("go", context="b", principal=BOB, message_id="m")
        assert not other.is_duplicate
        assert mine.task.id != other.task.id
        with pytest.raises(SameId, match="'m'"):
            await agent.send("something else", context="a", principal=ANN, message_id="m")


# Ids


async def test_f4_what_three_lives_make_is_all_different_and_stays_as_it_was() -> None:
    """With a clock that stands still, and is set back in between."""
    house, made, kept = House(), [], dict[str, Task]()
    for life in range(3):
        house.clock.now = START - 100 * life
        async with house.life(StrictLLM([("post", {})], "done")) as agent:
            for _ in range(3):
                task = await agent.ask("go")
                kept[task.id] = task
                made += [task.id, task.turn, task.context]
                made += [e.body.tool_calls[0].id for e in await log_of(agent, task.context)
                         if e.kind == "assistant" and e.body.tool_calls]  # fmt: skip
            for id, task in kept.items():
                assert await agent.wait(id) == task
    assert len(made) == len(set(made)) >= 27


# What is refused


@pytest.mark.parametrize("message", ["", "  \n\t ", [], [TextPart(" ")], [TextPart(""), TextPart("")]])
async def test_a_message_without_content_is_refused_and_leaves_nothing(message: Any) -> None:
    async with House().life(StrictLLM("done")) as agent:
        with pytest.raises(ValueError, match="content"):
            await agent.send(message, context="c")
        await agent.until_idle()
        assert len(agent.services.inbox) == 0
        assert (await agent.ask("go", context="c")).text == "done"


@pytest.mark.parametrize("context", ["", "x" * 257, "é" * 129, "\ud800"])
async def test_an_id_that_is_none_is_refused_and_the_next_message_works(context: str) -> None:
    async with House().life(StrictLLM("done")) as agent:
        with pytest.raises(ValueError, match=r"256|UTF-8|surrogate"):
            await agent.send("go", context=context)
        assert (await agent.ask("go", context="c")).text == "done"
        assert agent.contexts.ids() == ["c"]


async def test_data_alone_is_content() -> None:
    async with House().life(StrictLLM("done")) as agent:
        assert (await agent.ask([DataPart({"n": 1})], context="c")).text == "done"


async def test_more_than_the_inbox_holds_is_refused_and_taken_later() -> None:
    house = House(limits__inbox=2)
    async with house.life(StrictLLM("done")) as agent:
        agent.pause()
        for _ in range(2):
            await agent.send("go", context="c", principal=ANN)
        with pytest.raises(Busy, match=r"limits\.inbox"):
            await agent.send("go", context="c", principal=ANN)
        agent.resume()
        await agent.until_idle()
        assert (await agent.ask("go", context="c", principal=ANN)).text == "done"


async def test_another_ones_conversation_is_not_there() -> None:
    async with House().life(StrictLLM("done")) as agent:
        await agent.ask("go", context="c", principal=ANN)
        with pytest.raises(NotYours):
            await agent.send("go", context="c", principal=BOB)
        assert len(await users(agent, "c")) == 1


async def test_a_task_that_there_is_none_of() -> None:
    async with House().life(StrictLLM("done")) as agent:
        with pytest.raises(LookupError, match="nowhere"):
            await agent.wait("nowhere")
        with pytest.raises(LookupError, match="nowhere"):
            await agent.cancel("nowhere")


# Whatever is in them

PLAIN = [
    "Grüße aus Köln 🦊",
    "日本語のテキスト",
    "مرحبا بالعالم",
    "e\u0301 is not é",
    "a\u0000b",
    "\u2028 line",
    "👩‍👩‍👧‍👦",
]


async def test_f52_instruction_and_messages_reach_the_model_unchanged() -> None:
    instruction = "Antworte auf Deutsch: Straße, naïve, 漢字, 🚀, \u202eabc"
    model = StrictLLM(answer=lambda request: "gehört: ñ 字")
    async with House(agent__instruction=instruction).life(model) as agent:
        for text in PLAIN:
            task = await agent.ask(text, context="c")
            assert task.text == "gehört: ñ 字"
        said = texts(model.requests[-1])
        assert instruction in model.requests[-1].messages[0].content
        assert all(text in said for text in PLAIN)
    async with House(agent__instruction=instruction).life(StrictLLM("x")) as agent:
        assert await users(agent, "c") == []


@given(st.lists(st.text(st.characters(exclude_categories=())).filter(str.strip), min_size=1, max_size=8))
@settings(max_examples=10)
async def test_f52_no_text_raises_and_half_pairs_are_replaced(said: list[str]) -> None:
    model = StrictLLM(answer=lambda request: said[0])
    async with House().life(model) as agent:
        for at, text in enumerate(said):
            task = await agent.ask(text, context="c", message_id=f"m{at}")
            assert task.end_state == "completed", task.reason
        for body, text in zip(await users(agent, "c"), said, strict=True):
            [part] = body.parts
            assert isinstance(part, TextPart)
            clean = "".join("\ufffd" if "\ud800" <= char <= "\udfff" else char for char in text)
            assert part.text == clean
            assert clean in texts(model.requests[-1])


@given(st.text(st.characters(exclude_categories=()), min_size=1))
@settings(max_examples=5)
async def test_f52_no_message_id_raises(id: str) -> None:
    async with House().life(StrictLLM("done")) as agent:
        first = await agent.send("go \udc00", context="c", message_id=id)
        again = await agent.send("go \udc00", context="c", message_id=id)
        assert first.task.id == again.task.id


async def test_f52_a_tool_may_answer_half_pairs_and_a_model_may_send_them() -> None:
    house = House()

    async def broken(asked: Invocation) -> Any:
        return {"text": "half \ud83d pair", "bytes": ["\udcff"]}

    house.hands.do["post"] = broken
    model = StrictLLM([("post", {"more": "\ud800"})], "answer \udfff")
    async with house.life(model) as agent:
        task = await agent.ask("go", context="c")
        assert (task.end_state, task.text) == ("completed", "answer \ufffd")
        assert (await agent.ask("again", context="c")).end_state == "completed"
    async with house.life(StrictLLM("still")) as agent:
        assert (await agent.ask("again", context="c")).text == "still"


# Notes


async def test_a_note_that_wakes_starts_a_turn_and_one_that_does_not_starts_none() -> None:
    model = StrictLLM("seen")
    async with House(agent__wake_on="[alarm]").life(model) as agent:
        await agent.note("only to know", about="run-1")
        await agent.until_idle()
        assert not model.requests
        assert await notes(agent, "root") == ["only to know"]
        await agent.note("it burns", kind="alarm")
        await agent.until_idle()
        assert len(model.requests) == 1
        assert {"only to know", "it burns"} <= {text for text in PLAIN_NOTES if text in texts(model.requests[0])}
        assert await answers(agent, "root") == ["seen"]


PLAIN_NOTES = ("only to know", "it burns", *(f"note {n}" for n in range(4)))


async def test_notes_that_wait_together_make_one_turn() -> None:
    model = StrictLLM("seen")
    async with House(agent__wake_on="[alarm]").life(model) as agent:
        agent.pause()
        for n in range(4):
            await agent.note(f"note {n}", kind="alarm" if n % 2 == 0 else "note")
        agent.resume()
        await agent.until_idle()
        assert len(model.requests) == 1
        assert await notes(agent, "root") == [f"note {n}" for n in range(4)]
        assert all(f"note {n}" in texts(model.requests[0]) for n in range(4))
        assert len(agent.services.inbox) == 0


async def test_a_task_that_waits_is_cancelled_when_it_begins() -> None:
    model = StrictLLM("done")
    async with House().life(model) as agent:
        agent.pause()
        waiting = await agent.send("go", context="c", principal=ANN)
        assert await agent.cancel(waiting.task.id, principal=ANN, reason="not needed any more")
        agent.resume()
        ended = await agent.wait(waiting.task.id, timeout=5)
        assert (ended.state, ended.reason) == ("canceled", "not needed any more")
        assert model.requests == []
        assert not await agent.cancel(waiting.task.id, principal=ANN)


async def test_f3_a_result_that_comes_after_all_becomes_a_note() -> None:
    async with House().life(StrictLLM("done")) as agent:
        await agent.ask("go", context="c")
        await agent.report("call_7", {"paid": True}, context="c")
        await agent.until_idle()
        assert await notes(agent, "c") == ['The result of call call_7 has come after all: {"paid":true}']


async def test_a_waking_note_that_waits_behind_a_quiet_one_wakes() -> None:
    model = StrictLLM("seen")
    async with House(agent__wake_on="[alarm]").life(model) as agent:
        agent.pause()
        await agent.note("note 0")
        await agent.note("note 1", kind="alarm")
        agent.resume()
        await agent.until_idle()
        assert await answers(agent, "root") == ["seen"]


async def test_notes_do_not_overtake_a_message() -> None:
    model = StrictLLM("seen")
    async with House(agent__wake_on="[alarm]").life(model) as agent:
        agent.pause()
        await agent.note("note 0", kind="alarm")
        sent = await agent.send("a message", context="root")
        await agent.note("note 1", kind="alarm")
        agent.resume()
        await agent.wait(sent.task.id)
        await agent.until_idle()
        kinds = [entry.kind for entry in await log_of(agent, "root") if entry.kind in ("user", "note")]
        assert kinds == ["note", "user", "note"]
        assert len(model.requests) == 3


async def test_notes_of_a_life_that_ended_are_there_in_the_next_once() -> None:
    house = House(agent__wake_on="[alarm]")
    async with house.life(StrictLLM("seen")) as agent:
        agent.pause()
        for n in range(3):
            await agent.note(f"note {n}", kind="alarm")
        await house.end(agent)
    model = StrictLLM("seen")
    async with house.life(model) as agent:
        await agent.until_idle()
        assert await notes(agent, "root") == ["note 0", "note 1", "note 2"]
        assert len(model.requests) == 1


# Pause and drain


async def test_f48_pause_takes_in_and_starts_nothing() -> None:
    house, model = House(), StrictLLM("done")
    async with house.life(model) as agent:
        agent.pause()
        sent = [await agent.send("go", context=f"c{n}") for n in range(3)]
        await agent.note("a note")
        await settled()
        assert not model.requests
        assert not agent.actors.running
        assert len(agent.services.inbox) == 4
        agent.resume()
        assert [(await agent.wait(one.task.id)).text for one in sent] == ["done"] * 3


async def test_f48_what_runs_when_it_is_paused_runs_on() -> None:
    house, go = House(), asyncio.Event()

    async def waits(asked: Invocation) -> str:
        await go.wait()
        return "waited"

    house.hands.do["post"] = waits
    async with house.life(StrictLLM([("post", {})], "done")) as agent:
        sent = await agent.send("go", context="c")
        await house.hands.begun.wait()
        agent.pause()
        go.set()
        assert (await agent.wait(sent.task.id)).text == "done"


async def test_f48_drain_finishes_what_runs_and_leaves_the_rest_to_the_next_life() -> None:
    house, go = House(agent__max_parallel_turns=1), asyncio.Event()

    async def waits(asked: Invocation) -> str:
        await go.wait()
        return "waited"

    house.hands.do["post"] = waits
    async with house.life(StrictLLM([("post", {})], "first life")) as agent:
        running = await agent.send("go", context="c")
        same = await agent.send("later", context="c")
        other = await agent.send("later", context="d")
        await house.hands.begun.wait()
        draining = asyncio.ensure_future(agent.drain(30))
        await agent.events.wait_event("lifecycle.draining")
        with pytest.raises(Draining):
            await agent.send("more", context="e")
        with pytest.raises(Draining):
            await agent.note("more")
        go.set()
        assert await draining, "what ran has ended, and nothing else has begun"
        assert (await agent.wait(running.task.id)).text == "first life"
    model = StrictLLM("next life")
    async with house.life(model) as agent:
        assert [(await agent.wait(one.task.id)).text for one in (same, other)] == ["next life"] * 2
        assert len(model.requests) == 2
        assert await agent.wait(running.task.id) is not None
        assert len(await users(agent, "c")) == 2


async def test_f48_a_drain_that_is_over_time_leaves_the_turn_to_the_next_life() -> None:
    house = House()
    house.hands.do["post"] = lambda asked: forever()
    async with house.life(StrictLLM([("post", {})])) as agent:
        sent = await agent.send("go", context="c")
        await house.hands.begun.wait()
        assert not await agent.drain(0.01)
        await house.end(agent)
    async with house.life(StrictLLM("taken up")) as agent:
        assert (await agent.wait(sent.task.id)).text == "taken up"
        assert len(await users(agent, "c")) == 1
        assert house.hands.names() == ["post"]


async def test_f48_what_waits_for_a_slot_when_it_is_paused_does_not_start() -> None:
    house, go = House(agent__max_parallel_turns=1), asyncio.Event()

    async def answer(request: ChatRequest) -> Said:
        await go.wait()
        return "done"

    model = StrictLLM(answer=answer)
    async with house.life(model) as agent:
        first = await agent.send("go", context="a")
        second = await agent.send("go", context="b")
        await until(lambda: agent.services.slots.waiting == 1 and len(model.requests) == 1)
        agent.pause()
        go.set()
        await agent.wait(first.task.id)
        await until(lambda: not agent.services.slots.held)
        assert len(model.requests) == 1
        agent.resume()
        assert (await agent.wait(second.task.id)).text == "done"


async def test_f48_what_waits_while_paused_is_left_by_a_drain() -> None:
    house = House()
    async with house.life(StrictLLM("first")) as agent:
        agent.pause()
        sent = await agent.send("go", context="c")
        assert await agent.drain()
    async with house.life(StrictLLM("second")) as agent:
        assert (await agent.wait(sent.task.id)).text == "second"


# Slots


async def test_f49_more_starts_than_slots_all_run_once_in_order() -> None:
    house, most = House(agent__max_parallel_turns=2), 0

    async def answer(request: ChatRequest) -> Said:
        nonlocal most
        most = max(most, len(agent.actors.running))
        await asyncio.sleep(0)
        return "done"

    model = StrictLLM(answer=answer)
    async with house.life(model) as agent:
        sent = [await agent.send(f"{n} of {c}", context=f"c{c}") for n in range(4) for c in range(6)]
        ended = [await agent.wait(one.task.id) for one in sent]
        assert {task.end_state for task in ended} == {"completed"}
        assert len(model.requests) == 24
        assert most == 2
        for c in range(6):
            said = [body.parts[0].text for body in await users(agent, f"c{c}") if isinstance(body.parts[0], TextPart)]
            assert said == [f"{n} of c{c}".replace("of c", "of ") for n in range(4)]
        assert agent.services.slots.held == 0


class Parked:
    """A house with one slot and one request a minute. The one of this minute is made; who asks next waits."""

    def __init__(self) -> None:
        self.house = House(agent__max_parallel_turns=1, intelligence__budget__windows="[{per: minute, requests: 1}]")

    @asynccontextmanager
    async def life(self, model: StrictLLM) -> AsyncIterator[Daemon]:
        async with self.house.life(model, sleep=self.house.clock.sleep) as agent:
            await agent.ask("the one of this minute", context="a")
            try:
                yield agent
            finally:
                await House.end(agent)


async def test_f49_a_parked_turn_holds_no_slot() -> None:
    parked = Parked()
    async with parked.life(StrictLLM("done")) as agent:
        first = await agent.send("go", context="b")
        await agent.events.wait_event("budget.wait", context="b")
        second = await agent.send("go", context="c")
        await agent.events.wait_event("budget.wait", context="c")  # so it had the slot
        await settled()
        assert agent.services.slots.held == 0
        parked.house.clock.advance(60)
        assert (await agent.wait(first.task.id)).end_state == "completed"
        parked.house.clock.advance(60)
        assert (await agent.wait(second.task.id)).end_state == "completed"
        assert agent.services.slots.held == 0


async def test_f49_a_parked_turn_that_is_cancelled_ends_though_there_is_no_slot() -> None:
    parked = Parked()
    async with parked.life(StrictLLM("done")) as agent:
        first = await agent.send("go", context="b")
        await agent.events.wait_event("budget.wait", context="b")
        await until(lambda: agent.services.slots.held == 0)
        await agent.services.slots.acquire()  # somebody else has the only one
        await agent.cancel(first.task.id)
        assert (await agent.wait(first.task.id)).end_state == "cancelled"
        assert agent.services.slots.held == 1, "nobody else's was given back"
        agent.services.slots.release()


async def test_f49_parked_turns_and_running_ones_can_be_ended_together() -> None:
    parked = Parked()
    async with parked.life(StrictLLM("done")) as agent:
        for context in "bcd":
            await agent.send("go", context=context)
            await agent.events.wait_event("budget.wait", context=context)
        await until(lambda: agent.services.slots.held == 0)
        await agent.services.slots.acquire()
        await asyncio.wait_for(agent.actors.stop(), 5)
        assert agent.actors.is_idle
        agent.services.slots.release()
