"""Recall and pins over stored logs: whatever is folded, on stores that search and stores that do not."""

from __future__ import annotations

from typing import Any

import pytest

from agentd.context.pins import PinRefused
from agentd.context.recall import RecallRefused
from agentd.context.record import Compaction, Msg, NoteMsg, Pin, TextPart, ToolMsg, UserMsg
from agentd.context.registry import Contexts
from agentd.records import Abilities
from agentd.runtime.pinning import pins_of
from agentd.runtime.recalling import recall
from agentkit.core.testing import FaultyStore
from agentkit.state.stores import InMemoryStore, SQLiteStore
from tests.agentd.records.making import records

pytestmark = pytest.mark.anyio
NOW = 1_700_000_000_000


class Talk:
    """Contexts on one store. What is folded is in the store only."""

    def __init__(self, store: Any, *, search: bool = True) -> None:
        self.records = records(store, abilities=Abilities(search=search))
        self.contexts = Contexts()

    async def write(self, *bodies: Msg, id: str = "c1", source: str = "inbox") -> None:
        held = self.contexts.get(id) or self.contexts.conversation(id, "ann", now=NOW)
        for body in bodies:
            held.append(body, now=NOW, turn="turn-1", source=source)
        held.stored(await self.records.commit(held.writes()))

    async def fold(self, last: int, id: str = "c1") -> None:
        held = self.contexts.get(id)
        assert held is not None
        held.append(Compaction(held.state.version + 1, folded=((1, last),)), now=NOW)
        held.stored(await self.records.commit(held.writes()))
        held.forget()

    async def recall(self, id: str = "c1", **asked: Any) -> list[int]:
        held = self.contexts.get(id)
        assert held is not None
        found = await recall(self.records, held, asked)
        return [one["n"] for one in found.entries]


@pytest.fixture(params=["memory", "sqlite", "no search"])
async def talk(request: pytest.FixtureRequest, tmp_path: Any) -> Any:
    store: Any = SQLiteStore(tmp_path / "s.db") if request.param == "sqlite" else InMemoryStore()
    if request.param == "no search":
        store = FaultyStore(store, searches=False)
    yield Talk(store, search=request.param != "no search")
    await store.aclose()


def user(text: str) -> UserMsg:
    return UserMsg((TextPart(text),), "ann")


FACTS = ["TCK-00412-Q", "srv/export/412", "数据", "库", "90482113", "é-7", "Zß"]


async def test_f32_each_folded_entry_is_found_by_number_and_by_its_word_and_another_contexts_never(talk: Talk) -> None:
    await talk.write(*(user(f"about {fact} here") for fact in FACTS))
    await talk.write(ToolMsg("c", "read", {"found": [31_415_926]}), user("last"))
    await talk.write(user("nothing of it"), id="c2")
    for folds in range(2):
        for n, fact in enumerate(FACTS, 1):
            assert await talk.recall(query=fact) == [n]
            assert await talk.recall(query=f"HERE {fact.upper()[:-1] or fact}") == [n]
            assert await talk.recall(entries=str(n)) == [n]
            assert await talk.recall("c2", query=fact) == []
        assert await talk.recall(query="31415926") == [8]
        assert await talk.recall("c2", entries="1-9") == [1]
        if not folds:
            await talk.fold(8)


async def test_f32_a_word_that_stands_beside_most_messages_is_found_in_the_one_that_says_it(talk: Talk) -> None:
    await talk.write(user("the inbox of turn-1 is full"))
    await talk.write(*(user(f"message {n}") for n in range(120)))
    await talk.fold(100)
    assert await talk.recall(query="inbox") == [1]
    assert await talk.recall(query="turn-1", limit=1) == [1]
    assert await talk.recall(query="ann") == []


async def test_the_newest_that_hold_every_word_are_told_oldest_first(talk: Talk) -> None:
    await talk.write(*(user(f"item {n} is {'red' if n % 2 else 'blue'}") for n in range(1, 21)))
    held = talk.contexts.get("c1")
    assert held is not None
    found = await recall(talk.records, held, {"query": "RED item", "limit": 3})
    assert [one["n"] for one in found.entries] == [15, 17, 19]
    assert found.is_truncated
    assert not (await recall(talk.records, held, {"query": "red", "limit": 10})).is_truncated


async def test_recall_of_a_version_tells_what_that_version_showed(talk: Talk) -> None:
    await talk.write(*(user(f"item {n}") for n in range(1, 6)))
    await talk.fold(3)
    assert await talk.recall(query="item", version=2) == [4, 5]
    assert await talk.recall(entries="1-5", version=2) == [4, 5]
    assert await talk.recall(query="item", version=1) == [1, 2, 3, 4, 5]
    with pytest.raises(RecallRefused):
        await talk.recall(query="item", version=9)


@pytest.mark.parametrize("asked", [{}, {"query": "a", "entries": "1"}, {"query": " \n"}])
async def test_what_makes_no_sense_is_refused(talk: Talk, asked: dict[str, Any]) -> None:
    await talk.write(user("a"))
    with pytest.raises(RecallRefused):
        await talk.recall(**asked)


async def test_folded_entries_are_pinned_by_their_size_in_the_log(talk: Talk) -> None:
    await talk.write(user("x" * 400), NoteMsg("short"), user("last"))
    await talk.fold(2)
    held = talk.contexts.get("c1")
    assert held is not None
    assert await pins_of(talk.records, held, [1, 2], window=10_000) == [Pin(1), Pin(2)]
    with pytest.raises(PinRefused, match="a tenth of the window"):
        await pins_of(talk.records, held, [1], window=200)
    with pytest.raises(PinRefused, match="no entry 9"):
        await pins_of(talk.records, held, [1, 9], window=10_000)
