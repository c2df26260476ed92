"""A store that takes its time holds up whom it keeps waiting and nobody else; a life that ends in the middle of a write
leaves it whole."""

from __future__ import annotations

import asyncio
import os
import signal
from functools import partial
from typing import Any

import pytest

from agentd.runtime import preflight
from agentkit.core.contracts.requests import ChatRequest
from agentkit.core.testing import FaultyStore
from agentkit.core.testing.faults import Gate
from agentkit.state.stores import InMemoryStore
from tests.agentd.daemon.house import House, Said, StrictLLM, answers, forever, settings_of, settled, until, users

pytestmark = pytest.mark.anyio


def slow_house(**given: Any) -> tuple[House, FaultyStore]:
    store = FaultyStore(InMemoryStore())
    return House(store=store, **given), store


@pytest.mark.parametrize("operation", ["commit", "versioned"])
async def test_f50_a_slow_store_delays_no_timer_signal_or_other_context(operation: str) -> None:
    house, store = slow_house(agent__max_parallel_turns=2)
    fired, signalled = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    async with house.life(StrictLLM("done")) as agent:
        gate = store.delay(of=operation)
        slow = asyncio.ensure_future(agent.ask("go", context="slow"))
        await gate.reached()
        loop.call_later(0, fired.set)
        loop.add_signal_handler(signal.SIGUSR1, signalled.set)
        try:
            os.kill(os.getpid(), signal.SIGUSR1)
            await fired.wait()
            await signalled.wait()
        finally:
            loop.remove_signal_handler(signal.SIGUSR1)
        for n in range(3):
            assert (await agent.ask("go", context=f"other{n}")).text == "done"
        assert (await agent.command("status", context="other0"))["turns"] == 1
        agent.pause()
        agent.resume()
        assert not slow.done()
        gate.open()
        assert (await slow).text == "done"


@pytest.mark.parametrize("nth", range(1, 7))
async def test_f50_whichever_write_of_a_turn_is_slow_the_others_go_on(nth: int) -> None:
    house, store = slow_house(agent__max_parallel_turns=2)
    async with house.life(StrictLLM(answer=once_posts)) as agent:
        await agent.ask("go", context="other")
        gate = store.delay(nth, of="commit")
        slow = asyncio.ensure_future(agent.ask("go", context="slow"))
        await gate.reached()
        assert (await agent.ask("go", context="other")).text == "done"
        assert not slow.done()
        gate.open()
        assert (await slow).text == "done"


def once_posts(request: ChatRequest) -> Said:
    return "done" if request.messages[-1].role == "tool" or "tool" in request.messages[-2].role else [("post", {})]


async def test_f50_a_slow_drain_is_left_after_its_time() -> None:
    house, store = slow_house()
    async with house.life(StrictLLM(answer=lambda request: armed(store, gates))) as agent:
        gates: list[Gate] = []
        sent = await agent.send("go", context="c")
        await until(lambda: bool(gates))
        await gates[0].reached()
        assert not await agent.drain(0.01)
        gates[0].open()
        assert (await agent.wait(sent.task.id)).text == "done"


def armed(store: FaultyStore, gates: list[Gate], *, done: bool = False) -> str:
    gates.append(store.delay(of="commit", done=done))
    return "done"


@pytest.mark.parametrize("done", [False, True])
async def test_a_life_that_ends_in_the_last_write_of_a_turn_leaves_it_whole(done: bool) -> None:
    """Whether the write landed or not, the turn ends once, and the next life knows which it was."""
    house, store = slow_house()
    gates: list[Gate] = []
    async with house.life(StrictLLM(answer=lambda request: armed(store, gates, done=done))) as agent:
        sent = await agent.send("go", context="c")
        await until(lambda: bool(gates))
        await gates[0].reached()
        await house.end(agent)
    model = StrictLLM("the second")
    async with house.life(model) as agent:
        task = await agent.wait(sent.task.id)
        answer = "done" if done else "the second"
        assert (task.end_state, task.text) == ("completed", answer)
        assert (len(await users(agent, "c")), await answers(agent, "c")) == (1, [answer])
        assert len(model.requests) == (0 if done else 1)
        assert len(agent.services.inbox) == 0


async def test_a_write_of_a_look_beforehand_is_not_given_up_half_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """The look is over its time while the write that pays for it is under way: what is stored stays known."""
    monkeypatch.setattr(preflight, "examine", partial(preflight.examine, timeout=0.01))
    house, store = slow_house(agent__preflight="always")
    async with house.life(StrictLLM("done")) as agent:
        await agent.ask("go", context="c")
        gate = store.delay(2, of="commit", done=True)  # the first takes the message in
        sent = await agent.send("go", context="c")
        await gate.reached()
        asyncio.get_running_loop().call_later(0.02, gate.open)
        assert (await agent.wait(sent.task.id)).text == "done"
        seen = agent.events.since(0)
        assert isinstance(seen, list)
        names = [event.name for event in seen]
        assert "preflight.failed" in names
        assert not [name for name in names if name.startswith("store.")]


async def test_f50_one_parked_turn_wakes_while_another_is_cancelled() -> None:
    house = House(agent__max_parallel_turns=1, intelligence__budget__windows="[{per: minute, requests: 2}]")
    async with house.life(StrictLLM("done"), sleep=house.clock.sleep) as agent:
        await agent.ask("go", context="a")
        await agent.ask("go", context="a")
        sent = [await agent.send("go", context=context) for context in "bcd"]
        await settled()
        house.clock.advance(60)
        await agent.cancel(sent[1].task.id)
        ends = [(await agent.wait(one.task.id)).end_state for one in sent]
        assert ends == ["completed", "cancelled", "completed"]
        assert agent.services.slots.held == 0


async def test_a_turn_keeps_the_settings_that_it_started_with() -> None:
    house, go = House(), asyncio.Event()

    async def waits(asked: object) -> str:
        await go.wait()
        return "waited"

    house.hands.do["look"] = waits
    model = StrictLLM([("look", {})], [("post", {})], "done", [("post", {})], "done")
    async with house.life(model) as agent:
        sent = await agent.send("go", context="c")
        await house.hands.begun.wait()
        await agent.reload(settings_of(tools__disabled="[post]"))
        go.set()
        assert (await agent.wait(sent.task.id)).text == "done"
        assert house.hands.names() == ["look", "post"]
        await agent.ask("and now", context="c")
        assert house.hands.names() == ["look", "post"], "the next turn has the new ones"
    assert "post" in {tool.name for tool in model.requests[1].tools or ()}
    assert "post" not in {tool.name for tool in model.requests[-1].tools or ()}


async def test_a_cancelled_wait_gives_up_nothing() -> None:
    house = House()
    async with house.life(StrictLLM(answer=lambda request: forever())) as agent:
        sent = await agent.send("go", context="c")
        with pytest.raises(TimeoutError):
            await agent.wait(sent.task.id, timeout=0.01)
        await until(lambda: bool(agent.actors.running))
        await agent.cancel(sent.task.id)
        assert (await agent.wait(sent.task.id)).end_state == "cancelled"
