"""`a2a.scope: principal`: each sender has a memory of its own (F43, T1)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentkit.core.contracts.requests import ChatRequest
from tests.agentd.a2a.serving import CLOSED, Served, message, served
from tests.agentd.a2a.test_owners import house
from tests.agentd.daemon.house import Said, StrictLLM, results, texts

pytestmark = pytest.mark.anyio


def _act(request: ChatRequest) -> Said:
    """Does what the last message says: `remember KEY VALUE [TTL]`, `recall KEY` or `list`, and is done."""
    at, said = max(
        (at, m.content) for at, m in enumerate(request.messages) if m.content.startswith(("remember", "recall", "list"))
    )
    if any(m.role == "tool" for m in request.messages[at:]):
        return "done"
    op, *words = said.partition("<")[0].split()  # behind it stands the closing block
    if op == "remember":
        return [("memory.set", dict(zip(("key", "value", "ttl"), words, strict=False)))]
    return [("memory.get", {"key": words[0]})] if op == "recall" else [("memory.list", {})]


async def _said(at: Served, who: str, text: str, context: str) -> Any:
    """The result of the call that the message leads to."""
    await at.task(params=message(text, id=f"{who}-{text}-{context}", contextId=context), who=who)
    found = (await results(at.agent, context))[-1]
    assert not found.is_error, found.content
    return found.content


async def test_f43_nothing_that_one_sender_remembers_reaches_another(tmp_path: Path) -> None:
    model = StrictLLM(answer=_act)
    async with served(model, house(tmp_path, CLOSED), **{"a2a.scope": "principal"}) as at:
        assert (await _said(at, "ann", "remember colour red", "of-ann"))["ok"]
        assert (await _said(at, "bob", "recall colour", "of-bob"))["found"] is False
        assert (await _said(at, "bob", "list", "of-bob"))["keys"] == []
        assert (await _said(at, "bob", "remember colour blue", "of-bob"))["meta"]["seq"] == 1
        # One sender's conversations share it, as those of an instance do.
        assert (await _said(at, "ann", "recall colour", "another-of-ann"))["value"] == "red"
        # The agent's own memory is nobody's of these; an operator has one like everybody else.
        assert (await at.agent.services.memories.instance.get("colour")) == (None, False)
        assert (await _said(at, "ops", "list", "of-ops"))["keys"] == []


async def test_f43_prompt_names_the_keys_of_its_owner_alone(tmp_path: Path) -> None:
    model = StrictLLM(answer=_act)
    async with served(model, house(tmp_path, CLOSED), **{"a2a.scope": "principal"}) as at:
        await _said(at, "ann", "remember her-secret red", "of-ann")
        await _said(at, "bob", "remember his-secret blue", "of-bob")
        for who, own, foreign in (("ann", "her-secret", "his-secret"), ("bob", "his-secret", "her-secret")):
            model.requests.clear()
            await _said(at, who, "list", f"new-of-{who}")
            assert own in texts(model.requests[0])
            assert foreign not in "".join(texts(one) for one in model.requests)


async def test_f38_values_of_all_senders_expire_also_in_another_life(tmp_path: Path) -> None:
    model = StrictLLM(answer=_act)
    place = house(tmp_path, CLOSED, a2a__scope="principal")
    async with served(model, place) as at:
        await _said(at, "ann", "remember soon red 90s", "of-ann")
        await _said(at, "ann", "remember later red", "of-ann")
    keys = [key for key in await place.store.keys() if "/memory/" in key]
    assert len(keys) == 2
    async with served(model, place) as at:
        place.clock.advance(90)
        assert await at.agent.services.memories.sweep() == 1
        assert [key for key in await place.store.keys() if "/memory/" in key] == [key for key in keys if "later" in key]
        assert (await _said(at, "ann", "list", "of-ann"))["keys"] == ["later"]


async def test_senders_share_a_memory_unless_it_is_said(tmp_path: Path) -> None:
    async with served(StrictLLM(answer=_act), house(tmp_path, CLOSED)) as at:
        await _said(at, "ann", "remember colour red", "of-ann")
        assert (await _said(at, "bob", "recall colour", "of-bob"))["value"] == "red"
