"""Recall over the records: what is folded or masked comes back in full, from the caller's own context alone."""

from __future__ import annotations

from typing import Any

import pytest

from agentd.context.messages import entry_message
from agentd.context.recall import RecallRefused
from agentd.context.record import AssistantMsg, Call, Compaction, Control, Masking, Msg, TextPart, ToolMsg, UserMsg
from agentd.runtime.recalling import recall
from agentd.runtime.tools.base import Answer

from .desks import FakeDesk

pytestmark = pytest.mark.anyio

FACTS = ("XK-4471", "etc/hosts", "東京", "東", "1234567")


async def folded() -> FakeDesk:
    """Entries 1 to 4 are folded by version 2, entry 7 is masked by version 3."""
    bodies: tuple[Msg | Control, ...] = (
        UserMsg((TextPart("look at XK-4471 in 東京"),)),
        AssistantMsg("", (Call("c1", "read", {"path": "/etc/hosts"}),)),
        ToolMsg("c1", "read", {"rows": 1234567}),
        AssistantMsg("all is well"),
        UserMsg((TextPart("and now?"),)),
        AssistantMsg("", (Call("c2", "list", {}),)),
        ToolMsg("c2", "list", {"names": ["alpha", "beta"]}),
        Compaction(2, folded=((1, 4),)),
        Masking(3, entries={7: 20}),
    )
    desk = FakeDesk()
    for body in bodies:
        desk.context.append(body, now=desk.now)
    await desk.settle(Answer())
    desk.context.forget()
    assert desk.context.entry(1) is None, "folded entries come from the log"
    return desk


async def numbers(desk: FakeDesk, **asked: Any) -> list[int]:
    return [one["n"] for one in (await recall(desk.records, desk.context, asked)).to_dict()["entries"]]


@pytest.mark.parametrize("fact", FACTS)
async def test_f32_what_is_folded_is_found(fact: str) -> None:
    desk = await folded()
    found = (await recall(desk.records, desk.context, {"query": fact})).to_dict()["entries"]
    assert len(found) == 1
    assert fact in found[0]["text"]
    assert found[0]["folded"] is True


@pytest.mark.parametrize("fact", FACTS)
async def test_f32_another_context_finds_nothing_of_it(fact: str) -> None:
    desk = await folded()
    other = FakeDesk(id="c2", records=desk.records)
    other.context.append(UserMsg((TextPart("mine"),)), now=other.now)
    await other.settle(Answer())
    assert await numbers(other, query=fact) == []
    assert await numbers(other, entries="1-9") == [1]


async def test_f31_a_masked_result_is_had_back() -> None:
    desk = await folded()
    entry = desk.context.entry(7)
    assert entry is not None
    assert "alpha" not in entry_message(entry, desk.context.state.view.marks[7]).content
    (found,) = (await recall(desk.records, desk.context, {"entries": "7"})).to_dict()["entries"]
    assert '["alpha","beta"]' in found["text"].replace(" ", "")
    assert (found["role"], found["folded"]) == ("tool", False)


async def test_a_version_has_what_it_showed() -> None:
    """Also the current one; whether an entry is folded is told of now."""
    desk = await folded()
    assert await numbers(desk, entries="1-9") == [1, 2, 3, 4, 5, 6, 7]
    assert await numbers(desk, entries="1-9", version=1) == [1, 2, 3, 4, 5, 6, 7]
    assert await numbers(desk, entries="1-9", version=2) == [5, 6, 7]
    assert await numbers(desk, entries="1-9", version=3) == [5, 6, 7]
    assert await numbers(desk, query="XK-4471", version=1) == [1]
    assert await numbers(desk, query="XK-4471", version=2) == []
    assert await numbers(desk, query="XK-4471", version=3) == []
    with pytest.raises(RecallRefused, match="versions 1 to 3, not 9"):
        await numbers(desk, query="XK-4471", version=9)
