"""What stands in front of every request keeps its bytes, whatever changes behind it; and the skills in it: fetched anew
in each life, gone once nothing refers to them, stored nowhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentd.context.record import SkillChange, SkillRef
from agentd.runtime.daemon import Daemon
from agentkit.core.contracts.offers import canonical_tools
from agentkit.core.contracts.requests import ChatRequest, LLMResult
from agentkit.state.stores import SQLiteStore
from tests.agentd.daemon.house import House, Said, log_of, notes, texts
from tests.agentd.daemon.test_reductions import CountingLLM, fill, folds, told
from tests.agentd.runtime.test_skills import Scripted

pytestmark = pytest.mark.anyio
WINDOW = 14_000
SMALL: dict[str, Any] = {"context__model_window": WINDOW, "intelligence__max_output": 200, "context__keep_last": 4}


def prefix(request: ChatRequest) -> bytes:
    return "\n".join([*canonical_tools(request.tools or ()), request.messages[0].content]).encode()


def behind(request: ChatRequest) -> str:
    """What follows the standing prompt, without the block that closes the request, which no provider keeps."""
    said = [f"[{m.role} {m.tool_call_id} {list(m.tool_calls)}] {m.content}" for m in request.messages[1:]]
    text, closing, block = "\n".join(said).rpartition("<runtime-state")
    assert closing
    assert "</runtime-state>" in block
    return text.removesuffix("[user None []] ").rstrip()


class WatchingLLM(CountingLLM):
    """Notes under which version of the context each request was made."""

    def __init__(self, *turns: Said, **how: Any) -> None:
        super().__init__(*turns, window=WINDOW, **how)
        self.agent: Daemon | None = None
        self.versions: list[int] = []

    async def chat(self, request: ChatRequest, /) -> LLMResult:
        if request.response_format is None and self.agent is not None:
            held = self.agent.contexts.get("c")
            self.versions.append(held.state.version if held is not None else 0)
        return await super().chat(request)


def work(request: ChatRequest) -> Said:
    """What a turn does follows from the number in its message."""
    said = behind(request)
    if "[tool " in said[said.rindex("[assistant " if "[assistant " in said else "[user ") :]:
        return "done"
    n = int(said.rpartition("turn ")[2].split()[0])
    steps: list[Said] = [
        [("plan.create", {"goal": f"goal {n}", "items": [f"item {n}", "another"]})],
        [("memory.set", {"key": f"key-{n}", "value": n})],
        [("skills.load", {"name": f"skill-{n % 3}"})],
        [("plan.update", {"item": 1, "status": "done", "note": f"at {n}"}), ("skills.unload", {"name": "skill-1"})],
        "done",
    ]
    return steps[n % 5]


async def test_f34_the_prefix_keeps_its_bytes_over_200_turns_a_compaction_and_a_restart() -> None:
    house = House(**SMALL)
    skills = {f"skill-{n}": f"body of skill {n}" for n in range(3)}
    seen: set[bytes] = set()
    compactions = 0
    for life in range(2):
        model = WatchingLLM(answer=work)
        async with house.life(model, skills=[Scripted("s", skills)]) as agent:
            model.agent = agent
            for n in range(life * 100, life * 100 + 100):
                house.clock.advance(61)
                if n % 7 == 0:
                    await agent.note(f"something happened before {n}", context="c") if n else None
                task = await agent.ask(f"turn {n} {'lorem ipsum ' * 60}", context="c")
                assert task.state == "completed", task.reason
            await agent.until_idle()
            seen |= {prefix(request) for request in model.requests}
            assert {event.data["segment"] for event in told(agent, "prompt.changed")} <= {"prompt"}
            assert len(told(agent, "prompt.changed")) <= 1
            made = folds(await log_of(agent, "c"))
            assert len(made) > compactions
            compactions = len(made)
        pairs = zip(model.requests, model.requests[1:], model.versions, model.versions[1:], strict=False)
        same = [(behind(a), behind(b)) for a, b, version, next_one in pairs if version == next_one]
        assert len(same) > 100
        assert all(b.startswith(a) for a, b in same), "between reductions requests grow at their end alone"
    assert len(seen) == 1


async def test_f35_a_skill_edited_between_lives_is_fetched_again_and_told_with_both_hashes() -> None:
    house = House()
    source = Scripted("s", {"deploy": "body ONE"})
    model = CountingLLM("done", window=100_000)
    async with house.life(model, skills=[source]) as agent:
        await agent.ask("use @skill:deploy, please", context="c")
        assert "body ONE" in texts(model.requests[-1])
        held = agent.contexts.get("c")
        assert held is not None
        (old,) = held.state.skills
    source.bodies["deploy"] = "body TWO"
    async with house.life(model, skills=[source]) as agent:
        await agent.ask("go on", context="c")
        assert "body TWO" in texts(model.requests[-1])
        assert "body ONE" not in texts(model.requests[-1])
        held = agent.contexts.get("c")
        assert held is not None
        (new,) = held.state.skills
        assert (new.name, new.hash != old.hash) == ("deploy", True)
        changed = [
            e.body for e in await log_of(agent, "c") if isinstance(e.body, SkillChange) and e.body.op == "change"
        ]
        assert [(body.old, body.new) for body in changed] == [(old.hash, new.hash)]
        (note,) = [text for text in await notes(agent, "c") if "deploy" in text]
        assert old.hash in note
        assert new.hash in note
        (event,) = told(agent, "skill.changed")
        assert (event.data["old"], event.data["new"]) == (old.hash, new.hash)
    async with house.life(model, skills=[source]) as agent:
        await agent.ask("and on", context="c")
        assert "body TWO" in texts(model.requests[-1])
        assert told(agent, "skill.changed") == [], "what is the same is not told again"


async def test_f35_bodies_of_skills_are_in_no_file_of_the_store(tmp_path: Path) -> None:
    house = House(store=SQLiteStore(tmp_path / "agentd.db"))
    source = Scripted("s", {"deploy": "a body that is UNMISTAKABLE"})
    model = CountingLLM([("skills.load", {"name": "deploy"})], "done", window=100_000)
    async with house.life(model, skills=[source]) as agent:
        await agent.ask("load it", context="c")
        await agent.ask("and @skill:deploy", context="d")
        assert "UNMISTAKABLE" in texts(model.requests[-1])
        await agent.until_idle()
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert any(b"deploy" in path.read_bytes() for path in files)
        assert [path.name for path in files if b"UNMISTAKABLE" in path.read_bytes()] == []
    assert [path.name for path in tmp_path.rglob("*") if b"UNMISTAKABLE" in path.read_bytes()] == []


async def test_f36_a_body_that_nothing_refers_to_leaves_with_the_fold_and_comes_back_with_a_reference() -> None:
    house = House(**SMALL | {"context__model_window": 8_000})
    source = Scripted("s", {"deploy": "body ONE"})
    model = CountingLLM("done", window=8_000)

    def refs(agent: Daemon) -> tuple[SkillRef, ...]:
        held = agent.contexts.get("c")
        assert held is not None
        return held.state.skills

    async with house.life(model, skills=[source]) as agent:
        await agent.ask("use @skill:deploy, please", context="c")
        while not folds(await log_of(agent, "c")):
            await fill(agent, 1)
        await fill(agent, 1)
        assert "body ONE" not in texts(model.requests[-1])
        assert [(ref.name, ref.status) for ref in refs(agent)] == [("deploy", "evicted")]
        assert [event.data["skill"] for event in told(agent, "skill.evicted")] == ["deploy"]
        asked = len(source.asked)
        await agent.ask("once more: @skill:deploy", context="c")
        assert "body ONE" in texts(model.requests[-1])
        assert len(source.asked) == asked + 1
        assert [(ref.name, ref.status) for ref in refs(agent)] == [("deploy", "")]


async def test_f36_a_body_that_the_kept_messages_refer_to_stays_through_a_fold() -> None:
    house = House(**SMALL | {"context__model_window": 8_000})
    source = Scripted("s", {"deploy": "body ONE"})
    model = CountingLLM("done", window=8_000)
    async with house.life(model, skills=[source]) as agent:
        await agent.ask("use @skill:deploy, please", context="c")
        made = 0
        while made < 2:
            await agent.ask(f"again @skill:deploy {'lorem ' * 100}", context="c")
            made = len(folds(await log_of(agent, "c")))
            assert "body ONE" in texts(model.requests[-1])
            assert texts(model.requests[-1]).count("body ONE") == 1
