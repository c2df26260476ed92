"""A conversation of hundreds of turns of real content through a small window: what was said stays within reach, and a
turn near the end costs what one near the beginning costs."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentd.context.record import Compaction, UserMsg
from agentd.runtime.daemon import Daemon
from agentd.runtime.recalling import recall
from agentkit.core.testing import FaultyStore
from agentkit.state.stores import SQLiteStore

from .house import House, Time, log_of
from .samples import EVERY, SampleLLM, fact, lookup, request

pytestmark = pytest.mark.anyio
CONTEXT = "long"
PINNED = (
    "Never write to the table `ledger_2019`; read it through the view `ledger_ro` only.",
    "所有金额必须以分为单位。",
    "Always answer with the ticket's number first: it is OPS-7731/β.",
)
UNPINNED = (
    "Never restart the host db-4 between 02:00 and 04:30.",
    "Every path must be absolute, such as /opt/kettle/etc/kettle.toml.",
)
WINDOW = 8_000


async def reach(agent: Daemon, query: str) -> str:
    """All that one recall tells."""
    held = agent.contexts.get(CONTEXT)
    assert held is not None
    found = await recall(agent.services.records, held, {"query": query})
    return "\n".join(one["text"] for one in found.entries)


async def run(turns: int, folder: Path) -> None:
    clock, model = Time(), SampleLLM()

    def opened() -> FaultyStore:
        return FaultyStore(SQLiteStore(folder / "store.db", exclusive=True, synchronous="NORMAL", clock=clock))

    store = opened()
    given = {
        "context__model_window": WINDOW, "context__keep_last": 6, "intelligence__max_output": 500,
        "agent__tools__internal": "[memory.*, context.*]", "observability__events_ring": 16,
    }  # fmt: skip
    house = House(store=store, clock=clock, **given)
    written, operations = [], []
    async with house.life(model, tools=[lookup()]) as agent:
        for turn in range(1, turns + 1):
            before, calls = store.written, store.operations.total()
            text = request(turn)
            if turn <= 2:
                text += "\n" + "\n".join(PINNED if turn == 1 else UNPINNED)
            ended = await agent.ask(text, context=CONTEXT)
            assert ended.state == "completed", ended
            if turn == 1:
                first = next(e.n for e in await log_of(agent, CONTEXT) if isinstance(e.body, UserMsg))
                await agent.command("context.pin", context=CONTEXT, entries=[first])
            clock.advance(20)
            written.append(store.written - before)
            operations.append(store.operations.total() - calls)
        await verify(agent, model, turns)
    # The same work every fifteen turns, so fifths of whole rounds of it are compared.
    fifth = turns // 5
    for cost in (written, operations):
        early, late = sum(cost[fifth : 2 * fifth]), sum(cost[-fifth:])
        assert late <= 1.3 * early, f"{late / early:.2f} of what it was"
    async with house.life(model, tools=[lookup()], store=opened()) as agent:
        await agent.ask(request(turns + 1), context=CONTEXT)
        await verify(agent, model, turns)


async def verify(agent: Daemon, model: SampleLLM, turns: int) -> None:
    log = await log_of(agent, CONTEXT)
    folds = [entry.body for entry in log if isinstance(entry.body, Compaction) and entry.body.folded]
    assert len(folds) >= turns // 5
    assert model.last is not None
    shown = "\n".join(message.content for message in model.last.messages)
    for rule in PINNED:
        assert rule in shown
    for rule in UNPINNED:
        assert rule in shown or rule in await reach(agent, rule)
    lost = []
    for turn in range(EVERY, turns + 1, EVERY):
        told = fact(turn)
        assert told is not None
        if told[1] not in await reach(agent, told[1]):
            lost.append(told)
    assert not lost


async def test_f32_f17_five_hundred_turns_work_like_ten(tmp_path: Path) -> None:
    await run(500, tmp_path)


@pytest.mark.soak
async def test_f32_f17_ten_thousand_turns_work_like_ten(tmp_path: Path) -> None:
    await run(10_000, tmp_path)
