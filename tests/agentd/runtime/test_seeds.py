"""What a subagent's conversation begins with, and that a fork of a conversation is valid and as it was shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentd.context.record import Masking
from agentkit.core.contracts.requests import ChatRequest
from tests.agentd.daemon.house import House, Said, results, texts
from tests.agentd.daemon.scripts import asked, has_results, run, script

pytestmark = pytest.mark.anyio


def last_of(model: Any, order: str) -> ChatRequest:
    found: ChatRequest = next(one for one in model.requests if asked(one) == order)
    return found


def heads(one: ChatRequest, other: ChatRequest) -> int:
    """How many messages two requests begin with that are the same."""
    pairs = zip(one.messages, other.messages, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one.messages), len(other.messages)))


async def test_fork_shares_every_message_that_its_parent_was_shown() -> None:
    two: Said = [("look", {"n": 1}), ("look", {"n": 2})]
    model = script(
        first=lambda request: "the colour is red" if has_results(request) else two,
        parent=[run(context="fork"), "done"],
        child=["well"],
    )
    async with House().life(model) as agent:
        await agent.ask("do first thing", context="c")
        await agent.ask("do parent", context="c")
        mine = last_of(model, "be child")
        theirs = [one for one in model.requests if asked(one) == "do parent"][-1]
        # System, user, call, two results, answer, user, call: its result is each one's own.
        assert heads(mine, theirs) == 8
        assert mine.tools == theirs.tools
        assert "You are the subagent that this call has started." in texts(mine)


async def test_fork_of_a_round_with_several_calls_is_valid() -> None:
    """Calls behind the one that starts it have no result there; StrictLLM refuses a transcript that is not valid."""
    call = ("subagent.run", {"instruction": "be child", "context": "fork"})
    two: Said = [("look", {"n": 1}), call, ("post", {"n": 2})]
    model = script(parent=[two, "done"], child=["well"])
    async with House().life(model) as agent:
        await agent.ask("do parent", context="c")
        assert [one.is_error for one in await results(agent, "c")] == [False] * 3
        told = texts(last_of(model, "be child"))
        assert "This call was not run: a subagent begins here." in told


async def test_fork_shows_shortened_what_was_shown_shortened() -> None:
    model = script(first=[[("look", {"n": 1})], "seen"], parent=[run(context="fork"), "done"], child=["well"])
    async with House().life(model) as agent:
        await agent.ask("do first thing", context="c")

        async def mask(writer: Any) -> None:
            held = writer.held
            masked = next(entry.n for entry in held.entries if entry.kind == "tool")
            held.append(Masking(held.state.version + 1, 3, "masked", {masked: 500}), now=0)
            await writer.commit()

        await agent.actors.command("c", mask)
        await agent.ask("do parent", context="c")
        mine = last_of(model, "be child")
        assert '"masked":' in texts(mine)
        assert '"saw":' not in texts(mine)
        handle = (await results(agent, "c"))[-1].content["handle"]
        own = await agent.services.residents.open(f"subagent/{handle}")
        assert len(own.state.view.marks) == 1
        own_numbers = {entry.n for entry in own.entries if entry.kind == "tool"}
        assert set(own.state.view.marks) <= own_numbers, "it is had back from its own log"


async def test_fork_has_the_skills_that_are_loaded(tmp_path: Path) -> None:
    (tmp_path / "tone").mkdir()
    (tmp_path / "tone" / "SKILL.md").write_text("---\nname: tone\ndescription: how to write\n---\nWrite in rhymes.")
    model = script(parent=[run(context="fork"), "done"], child=["well"])
    async with House(skills__sources=f"[{{path: {tmp_path}}}]").life(model) as agent:
        await agent.ask("do parent by @skill:tone", context="c")
        mine = last_of(model, "be child")
        theirs = [one for one in model.requests if asked(one) == "do parent"][-1]
        assert "Write in rhymes." in texts(mine)
        assert heads(mine, theirs) == next(at for at, one in enumerate(theirs.messages) if one.role == "tool")


async def test_summary_is_handed_on_as_a_note() -> None:
    """What was folded and what is still shown: made by code, which keeps the rules of people word for word."""
    first: list[Said] = ["well. " + "lorem ipsum dolor " * 200]
    model = script(first=first, parent=[run(context="summary"), "done"], child=["well"])
    async with House(context__keep_last=1).life(model) as agent:
        await agent.ask("do first thing. Never paint it red.", context="c")
        for _ in range(3):
            await agent.ask("do first thing", context="c")
        made = await agent.command("context.compact", context="c", target_tokens=100, keep_last=1)
        assert made["folded"] > 0, made
        await agent.ask("do parent", context="c")
        mine = texts(last_of(model, "be child"))
        assert "What came before in the conversation that you work for" in mine
        assert "Never paint it red." in mine


def parent_of_two(request: ChatRequest) -> Said:
    return run(context="fork") if has_results(request) < 2 else "done"


async def test_each_fork_is_of_that_moment() -> None:
    model = script(parent=parent_of_two, child=["well"])
    async with House().life(model) as agent:
        await agent.ask("do parent", context="c")
        first, second = [one for one in model.requests if asked(one) == "be child"]
        assert len(second.messages) == len(first.messages) + 2
