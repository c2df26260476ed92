"""Rows that cannot be read, or are of a newer release: named, left byte for byte as they are, and in nobody's way."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from agentd.context.registry import Contexts
from agentd.records import Records
from agentd.records.keys import Keys
from agentd.runtime.daemon import Daemon
from agentd.runtime.events import Event
from agentkit.core.contracts.errors import Corrupt, FormatError
from agentkit.core.contracts.ports import Append, Delete
from agentkit.core.contracts.scope import Scope
from tests.agentd.daemon.house import House, StrictLLM, answers, forever

pytestmark = pytest.mark.anyio
KEYS = Keys("agentd", Scope(None, None), "house", 1)


def told(agent: Daemon, name: str) -> list[Event]:
    found = agent.events.since(0)
    assert isinstance(found, list)
    return [event for event in found if event.name == name]


def in_state(**fields: Any) -> Callable[[bytes], bytes]:
    def change(row: bytes) -> bytes:
        found = json.loads(row)
        found["state"] |= fields
        return json.dumps(found).encode()

    return change


def in_envelope(**fields: Any) -> Callable[[bytes], bytes]:
    return lambda row: json.dumps(json.loads(row) | fields).encode()


DAMAGES: dict[str, tuple[Callable[[bytes], bytes], type[Exception]]] = {
    "no JSON": (lambda row: b"\x00\xff garbage", Corrupt),
    "cut off": (lambda row: row[: len(row) // 2], Corrupt),
    "nothing": (lambda row: b"", Corrupt),
    "newer envelope": (in_envelope(v=99), FormatError),
    "newer state": (in_state(v=99), FormatError),
    "another's envelope": (in_envelope(id="else"), Corrupt),
    "a field of another type": (in_state(next="seven"), Corrupt),
    "a view of another type": (in_state(view=[]), Corrupt),
}


@pytest.mark.parametrize("how", DAMAGES)
async def test_f11_a_state_row_that_cannot_be_read_is_named_and_left_and_others_serve(how: str) -> None:
    change, error = DAMAGES[how]
    house = House()
    async with house.life(StrictLLM("done")) as agent:
        for context in ("bad", "good"):
            await agent.ask("go", context=context)
    key = KEYS.key("context", "bad")
    damaged = change(await house.store.get(key))
    await house.store.set(key, damaged)
    async with house.life(StrictLLM("again")) as agent:
        with pytest.raises(error, match="bad"):
            await agent.send("go", context="bad")
        with pytest.raises(error, match="bad"):
            await agent.command("context.clear", context="bad")
        with pytest.raises(error, match="bad"):
            await agent.note("look", context="bad")
        assert (await agent.ask("go", context="good")).text == "again"
        assert "bad" in told(agent, "restore.lost")[0].data["reason"]
        assert {event.context for event in told(agent, "restore.lost")} == {"bad"}
        assert agent.halted is None
        await agent.until_idle()
    assert await house.store.get(key) == damaged


@pytest.mark.parametrize("kind", ["context", "plan"])
async def test_f11_work_that_waits_for_a_damaged_context_fails_naming_it_and_the_rest_goes_on(kind: str) -> None:
    house = House()
    house.hands.do["post"] = lambda asked: forever()
    plan = [("plan.create", {"goal": "all", "items": ["one"]})]
    async with house.life(StrictLLM(plan, "planned", [("post", {})])) as agent:
        await agent.ask("plan", context="bad")
        bad = await agent.send("go", context="bad")
        await house.hands.begun.wait()
        agent.pause()
        good = await agent.send("go", context="good")
        await house.end(agent)
    key = KEYS.key(kind, "bad")
    assert await house.store.get(key) is not None
    await house.store.set(key, b"garbage")
    house.hands.do.clear()
    async with house.life(StrictLLM("done")) as agent:
        failed = await agent.wait(bad.task.id)
        assert (failed.state, failed.exit) == ("failed", 1)
        assert "'bad'" in failed.reason
        assert (await agent.wait(good.task.id)).text == "done"
        await agent.until_idle()
        assert len(agent.services.inbox) == 0
    assert await house.store.get(key) == b"garbage"


async def test_f11_a_line_of_a_log_that_cannot_be_read_is_named_and_left() -> None:
    house = House()
    async with house.life(StrictLLM("done")) as agent:
        for context in ("bad", "good"):
            await agent.ask("go", context=context)
    key = KEYS.key("log", "bad")
    lines = [b"garbage" if at == 1 else line for at, line in enumerate(await house.store.list(key))]
    await house.store.commit([Delete(key)])
    await house.store.commit([Append(key, tuple(lines))])
    row = await house.store.get(KEYS.key("context", "bad"))
    async with house.life(StrictLLM("again")) as agent:
        task = await agent.ask("go", context="bad")
        assert (task.state, task.exit) == ("failed", 1)
        assert "entry 2 of context 'bad'" in task.reason
        assert (await agent.ask("go", context="good")).text == "again"
        assert agent.halted is None
    assert await house.store.list(key) == lines
    assert await house.store.get(KEYS.key("context", "bad")) == row


@pytest.mark.parametrize("nth", [0, 1])
@pytest.mark.parametrize("change", [lambda row: b"garbage", in_state(n="seven")])
async def test_f11_an_inbox_row_that_cannot_be_read_keeps_nobody_from_starting(
    nth: int, change: Callable[[bytes], bytes]
) -> None:
    house = House()
    async with house.life(StrictLLM("done")) as agent:
        agent.pause()
        sent = [await agent.send("go", context=f"c{at}") for at in range(2)]
        await house.end(agent)
    bad, good = sent[nth], sent[1 - nth]
    assert bad.item is not None
    key = KEYS.key("inbox", bad.item.row_id)
    damaged = change(await house.store.get(key))
    await house.store.set(key, damaged)
    async with house.life(StrictLLM("done")) as agent:
        assert (await agent.wait(good.task.id)).text == "done"
        assert bad.item.row_id in told(agent, "restore.lost")[0].data["reason"]
        assert (await agent.ask("more", context=bad.task.context)).text == "done"
        await agent.until_idle()
    assert await house.store.get(key) == damaged


async def test_f11_a_task_row_that_cannot_be_read_holds_up_no_other_work() -> None:
    house = House()
    async with house.life(StrictLLM("done")) as agent:
        agent.pause()
        bad = await agent.send("go", context="c")
        behind = await agent.send("more", context="c")
        await house.end(agent)
    key = KEYS.key("task", bad.task.id)
    await house.store.set(key, b"garbage")
    async with house.life(StrictLLM("done")) as agent:
        assert (await asyncio.wait_for(agent.wait(behind.task.id), 10)).text == "done"
        with pytest.raises(Corrupt, match=bad.task.id):
            await agent.wait(bad.task.id)
        await agent.until_idle()
        assert await answers(agent, "c")
    assert await house.store.get(key) == b"garbage"


async def test_f11_restore_returns_the_ids_that_cannot_be_read() -> None:
    house = House()
    async with house.life(StrictLLM("done")) as agent:
        for context in ("a", "b", "c", "d"):
            await agent.ask("go", context=context)
        records: Records = agent.services.records
        rows = [await records.get("context", context) for context in ("d", "c", "b", "a")]
        contexts = Contexts()
        given = [msgspec.structs.replace(row, state=b"[]") if row and row.id in ("b", "d") else row for row in rows]
        assert contexts.restore(row for row in given if row is not None) == ["b", "d"]
        assert contexts.ids() == ["a", "c"]
        assert not any(held.is_dirty for held in contexts)
