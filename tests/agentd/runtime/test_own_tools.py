"""The daemon's own tools, called as a model calls them: through the box, committed as the actor commits."""

import asyncio
from typing import Any

import pytest

from agentd.context.record import SkillChange, TextPart, UserMsg
from agentd.context.skill_file import Skill
from agentd.context.skills import Offered
from agentd.records import Save
from agentd.runtime.skills import SkillLibrary
from agentd.runtime.thinking import ThinkFailed
from agentd.runtime.tools.artifact_tools import ARTIFACTS, MOST, listed
from agentd.runtime.tools.base import Answer, Finish
from agentd.runtime.tools.box import ToolBox
from agentd.runtime.tools.internal import internal_tools
from agentkit.core.contracts.errors import Corrupt
from agentkit.core.contracts.usage import Usage

from .desks import FakeDesk, settings_of

pytestmark = pytest.mark.anyio

BOX = ToolBox(internal_tools())


async def call(desk: FakeDesk, tool: str, **arguments: Any) -> Any:
    """The result of a call, with all that it changes committed."""
    async with BOX.holding(tool, desk):
        answer = await BOX.dispatch(desk.calling(tool, arguments))
        await asyncio.sleep(0)  # others may run between a call and its commit
        await desk.settle(answer)
    assert not answer.is_error, answer.content
    return answer.content


async def fault(desk: FakeDesk, tool: str, **arguments: Any) -> str:
    answer = await BOX.dispatch(desk.calling(tool, arguments))
    assert answer.is_error, answer.content
    assert answer == Answer(answer.content, is_error=True), "a fault changes nothing"
    return str(answer.content)


# What all have in common


def test_inputs_are_closed_and_say_nothing_of_tenants() -> None:
    for tool in internal_tools():
        assert tool.internal
        assert tool.parameters["type"] == "object"
        assert tool.parameters["additionalProperties"] is False, tool.name
        named = {"scope", "tenant", "context", "principal", "org", "domain"} & tool.parameters["properties"].keys()
        # How much of the caller's own conversation a subagent knows is no name of one.
        assert named == ({"context"} if tool.name == "subagent.run" else set())
        assert set(tool.parameters.get("required", ())) <= tool.parameters["properties"].keys()
        assert 0 < len(tool.description) < 160


def test_wire_names_are_the_names_with_underscores() -> None:
    assert {tool.name.replace(".", "_") for tool in internal_tools()} == {
        wire for _, _, wire in BOX.told(FakeDesk().calling("x").principal, settings_of())
    }


def test_what_changes_something_is_not_read_only() -> None:
    reading = {tool.name for tool in internal_tools() if tool.read_only}
    assert reading == {
        "artifact.get", "artifact.list", "context.recall", "instruction.read", "memory.get", "memory.list", "plan.get",
        "skills.list", "status",
    }  # fmt: skip


def test_every_family_of_the_contract_is_there() -> None:
    families = {tool.name.partition(".")[0] for tool in internal_tools()}
    assert {"ask_human", "await", "run", "sleep", "subagent"} <= families


# The turn


async def test_think_hands_over_what_it_is_given() -> None:
    desk = FakeDesk()
    desk.thoughts = [{"n": 1}, "because"]
    schema = {"type": "object"}
    assert await call(desk, "think", prompt="?", output_schema=schema, reads=["k"], skills=["s"]) == {"n": 1}
    assert await call(desk, "think", prompt="Why?") == "because"
    assert desk.asked == [("think", "?", schema, ("k",), ("s",)), ("think", "Why?", None, (), ())]


async def test_think_that_fails_is_an_error() -> None:
    desk = FakeDesk()
    assert await fault(desk, "think", prompt="?", output_schema={"type": "thing"}) == (
        "output_schema is no JSON Schema: at type: 'thing' is not valid under any of the given schemas"
    )
    assert desk.asked == []
    desk.thoughts = [ThinkFailed("empty", "no usable answer", Usage())]
    assert await fault(desk, "think", prompt="?") == "no usable answer"


@pytest.mark.parametrize(
    ("arguments", "end"),
    [
        ({"status": "completed"}, Finish("completed")),
        ({"status": "failed", "output": {"a": [1]}, "reason": "r", "exit": 4}, Finish("failed", {"a": [1]}, "r", 4)),
        ({"status": "refused", "exit": 5.0}, Finish("refused", exit=5)),
    ],
)
async def test_finish(arguments: dict[str, Any], end: Finish) -> None:
    answer = await BOX.dispatch(FakeDesk().calling("finish", arguments))
    assert answer == Answer({"ok": True}, finish=end)


async def test_finish_knows_its_statuses() -> None:
    assert "status: must be one of" in await fault(FakeDesk(), "finish", status="done")
    assert "exit: must be at most 255" in await fault(FakeDesk(), "finish", status="failed", exit=256)


async def test_status_and_instruction() -> None:
    desk = FakeDesk(settings_of(agent={"instruction": "Ünï code"}))
    assert await call(desk, "status") == {"instance": "one", "context": {"id": "c1"}}
    assert await call(desk, "instruction.read") == {"text": "Ünï code", "source": "agent.instruction"}


async def test_compact_passes_its_numbers_on() -> None:
    desk = FakeDesk()
    assert await call(desk, "context.compact", target_tokens=100, keep_last=0) == {
        "version": 2, "est_tokens": 10, "folded": 3,
    }  # fmt: skip
    assert desk.asked == [("compact", 100, 0)]
    assert "keep_last: must be at least 0" in await fault(desk, "context.compact", keep_last=-1)


# Skills


class Source:
    name = "here"

    def __init__(self, **bodies: str) -> None:
        self.bodies = bodies

    async def catalogue(self) -> Offered:
        return Offered(tuple(Skill(name, f"about {name}") for name in self.bodies), ("odd: no name",))

    async def body(self, name: str, *, file: str | None = None, arguments: Any = None) -> str:
        return self.bodies[name] if file is None else f"{name}/{file}"

    async def aclose(self) -> None: ...


async def skilled(**sections: Any) -> FakeDesk:
    desk = FakeDesk(settings_of(**sections))
    desk.skills = SkillLibrary([Source(git="Commit.", tidy="Tidy up.")], desk.settings.skills)
    await desk.skills.discover()
    return desk


async def test_skills_are_listed_loaded_and_unloaded() -> None:
    desk = await skilled()
    loaded = await call(desk, "skills.load", name="git")
    assert loaded == {"loaded": True, "name": "git", "hash": desk.context.state.skills[0].hash}
    listed = await call(desk, "skills.list")
    assert [(one["name"], one["loaded"]) for one in listed["skills"]] == [("git", True), ("tidy", False)]
    assert listed["errors"] == [{"source": "here", "error": "odd: no name"}]
    assert await call(desk, "skills.unload", name="git") == {"ok": True}
    assert desk.context.state.skills[0].status == "unloaded"
    assert [e.body.op for e in desk.context.entries if isinstance(e.body, SkillChange)] == ["load", "unload"]


async def test_skill_loaded_twice_is_written_once() -> None:
    desk = await skilled()
    assert await call(desk, "skills.load", name="git") == await call(desk, "skills.load", name="git")
    assert len(desk.context.entries) == 1


async def test_file_of_a_skill_is_read_and_not_loaded() -> None:
    desk = await skilled()
    found = await call(desk, "skills.load", name="git", file="more.md")
    assert (found["file"], found["text"]) == ("more.md", "git/more.md")
    assert desk.context.state.skills == ()


async def test_skill_faults_say_what_would_help() -> None:
    desk = await skilled(skills={"max_loaded": 1})
    assert "there is: git, tidy" in await fault(desk, "skills.load", name="nope")
    assert "loaded are: none" in await fault(desk, "skills.unload", name="git")
    await call(desk, "skills.load", name="git")
    assert "first unload one of git" in await fault(desk, "skills.load", name="tidy")


# Artifacts


async def test_artifact_is_kept_beside_the_log() -> None:
    desk = FakeDesk()
    made = await call(desk, "artifact.create", name="Bericht", content="Grüße", media_type="text/markdown")
    assert (made["name"], made["bytes"]) == ("Bericht", 7)
    assert await call(desk, "artifact.get", id=made["id"]) == {**made, "content": "Grüße"}
    second = await call(desk, "artifact.create", name="Bericht", content="Grüße")
    assert second["id"] != made["id"]
    assert await call(desk, "artifact.list") == {"artifacts": [second, made], "truncated": False}
    assert await call(desk, "artifact.list", limit=1) == {"artifacts": [second], "truncated": True}
    assert await call(desk, "artifact.delete", id=made["id"]) == {"ok": True}
    assert "there is no artifact" in await fault(desk, "artifact.get", id=made["id"])
    assert (await call(desk, "artifact.get", id=second["id"]))["content"] == "Grüße"


async def test_f43_artifact_of_another_context_is_not_there() -> None:
    ann = FakeDesk()
    made = await call(ann, "artifact.create", name="mine", content="secret")
    for id in ("c2", "c1/", "C1", "c1/artifacts"):
        other = FakeDesk(id=id, records=ann.records)
        assert await call(other, "artifact.list") == {"artifacts": [], "truncated": False}
        assert "there is no artifact" in await fault(other, "artifact.get", id=made["id"])
        assert "there is no artifact" in await fault(other, "artifact.delete", id=made["id"])


async def test_artifact_is_not_listed_before_its_result_is_stored() -> None:
    desk = FakeDesk()
    answer = await BOX.dispatch(desk.calling("artifact.create", {"name": "a", "content": "x"}))
    assert await desk.records.get(ARTIFACTS, "c1") is None
    await desk.settle(answer)
    assert await desk.records.get(ARTIFACTS, "c1") is not None


async def test_artifacts_have_a_bound_and_damage_is_named() -> None:
    desk = FakeDesk()
    for n in range(MOST):
        await call(desk, "artifact.create", name=str(n), content="x")
    assert f"there are {MOST} artifacts" in await fault(desk, "artifact.create", name="one more", content="x")
    assert "name: must have at most 256 characters, not 300" in await fault(
        desk, "artifact.create", name="x" * 300, content=""
    )


async def test_damaged_list_of_artifacts_is_named() -> None:
    desk = FakeDesk()
    await desk.records.commit([Save(ARTIFACTS, "c1", b'{"a": 1}')])
    with pytest.raises(Corrupt, match=r"the list 'artifacts/c1' cannot be read"):
        await listed(desk)
    assert "cannot be read" in await fault(desk, "artifact.list")


async def test_text_that_cannot_be_stored_is_mended() -> None:
    desk = FakeDesk()
    made = await call(desk, "artifact.create", name="a\ud800", content="x\udfffy")
    assert made["name"] == "a\ufffd"
    assert (await call(desk, "artifact.get", id=made["id"]))["content"] == "x\ufffdy"


# Plan


async def test_plan_is_made_changed_and_cleared() -> None:
    desk = FakeDesk()
    assert await call(desk, "plan.get") == {"plan": None, "progress": "no plan"}
    made = await call(desk, "plan.create", goal="Ship", items=["build", {"title": "test", "detail": "all"}])
    assert made["progress"] == "0 of 2 done"
    assert [(item["id"], item["title"]) for item in made["plan"]["items"]] == [(1, "build"), (2, "test")]
    made = await call(
        desk, "plan.update", insert={"title": "think", "after": 1.0}, reorder=[3.0], item="build", status="done"
    )
    assert [(item["id"], item["status"]) for item in made["plan"]["items"]] == [
        (3, "pending"), (1, "done"), (2, "pending"),
    ]  # fmt: skip
    assert await call(desk, "plan.get") == made
    assert desk.context.state.plan == made["plan"]
    assert await call(desk, "plan.clear") == {"ok": True}
    assert desk.context.state.plan is None
    assert await call(desk, "plan.clear") == {"ok": True}
    assert [entry.body.op for entry in desk.context.entries] == ["create", "update", "clear"]


async def test_f37_plan_update_with_one_bad_part_changes_nothing() -> None:
    desk = FakeDesk()
    assert "there is no plan to update" in await fault(desk, "plan.update", item=1, status="done")
    before = await call(desk, "plan.create", goal="g", items=["a", "b"])
    for bad in (
        {"insert": {"title": "c"}, "item": 9, "status": "done"},
        {"reorder": [2], "status": "done"},
        {"item": 1, "status": "finished"},
        {"item": 1, "bind": {"run": "r", "task": "t"}},
        {"item": 1, "bind": {"file": "f"}},
        {"insert": {"title": "c", "status": "done"}},
        {"items": ["c"]},
        {},
    ):
        await fault(desk, "plan.update", **bad)
        assert await call(desk, "plan.get") == before
    assert "must have at least 1 items" in await fault(desk, "plan.create", goal="g", items=[])


async def test_f37_item_bound_to_what_has_ended_is_settled_at_once() -> None:
    desk = FakeDesk()
    desk.outcomes["task", "t1"] = (False, "no disk")
    await call(desk, "plan.create", goal="g", items=["a", "b"])
    made = await call(desk, "plan.update", item=1, bind={"task": "t1"})
    assert (made["plan"]["items"][0]["status"], made["plan"]["items"][0]["note"]) == ("blocked", "no disk")
    made = await call(desk, "plan.update", item=2, bind={"run": "r1"})
    assert made["plan"]["items"][1]["status"] == "in_progress"


async def test_plan_has_the_configured_bound() -> None:
    desk = FakeDesk(settings_of(context={"plan": {"max_items": 2}}))
    assert "context.plan.max_items" in await fault(desk, "plan.create", goal="g", items=["a", "b", "c"])


async def test_damaged_plan_can_be_cleared() -> None:
    desk = FakeDesk()
    desk.context.update(plan={"items": 7})
    assert "make a new one, or clear it" in await fault(desk, "plan.get")
    assert await call(desk, "plan.clear") == {"ok": True}
    assert await call(desk, "plan.get") == {"plan": None, "progress": "no plan"}


# Memory


async def test_memory_is_set_read_listed_and_deleted() -> None:
    desk = FakeDesk()
    assert await call(desk, "memory.get", key="a") == {"found": False}
    done = await call(desk, "memory.set", key="a", value={"n": [1, None]}, ttl="5m")
    assert done == {"ok": True, "key": "a", "meta": {"ts": desk.now, "ttl_ms": 300_000, "by": "ann", "seq": 1}}
    assert await call(desk, "memory.get", key="a") == {"found": True, "value": {"n": [1, None]}, "meta": done["meta"]}
    assert (await call(desk, "memory.set", key="b", value=None))["meta"]["seq"] == 1
    assert await call(desk, "memory.list", limit=1) == {"keys": ["a"], "truncated": True, "next": "a"}
    assert await call(desk, "memory.list", after="a") == {"keys": ["b"], "truncated": False}
    desk.clock.now += 300_000
    assert await call(desk, "memory.get", key="a") == {"found": False, "expired": True}
    assert await call(desk, "memory.delete", key="b") == {"ok": True, "key": "b", "found": True}
    assert await call(desk, "memory.list") == {"keys": [], "truncated": False}


@pytest.mark.parametrize(
    ("tool", "arguments", "told"),
    [
        ("memory.get", {"key": "_index"}, "keys that begin with _ are the daemon's own"),
        ("memory.set", {"key": "a b", "value": 1}, "a key has no blanks"),
        ("memory.set", {"key": "a", "value": 1, "ttl": "soon"}, "a ttl is a duration above 0"),
        ("memory.set", {"key": "a", "value": 1, "if_seq": 3}, "'a' is at seq 0, not 3"),
        ("memory.set", {"key": "a"}, "missing value"),
        ("memory.set", {"key": "a", "value": 1, "scope": "other"}, "unknown scope"),
        ("memory.set", {"key": "a", "value": "x" * 70_000}, "memory.max_value_bytes"),
        ("memory.list", {"limit": 0}, "limit: must be at least 1"),
    ],
)
async def test_memory_faults_are_readable(tool: str, arguments: dict[str, Any], told: str) -> None:
    assert told in await fault(FakeDesk(), tool, **arguments)


async def test_memory_takes_text_that_no_store_takes() -> None:
    desk = FakeDesk()
    await call(desk, "memory.set", key="a", value={"k": "x\ud800"})
    assert (await call(desk, "memory.get", key="a"))["value"] == {"k": "x\ufffd"}


async def test_memory_is_held_until_a_change_is_stored() -> None:
    """Contexts that set one key at the same time do so one after the other, and none loses its turn over it."""
    first = FakeDesk()
    others = [FakeDesk(id=f"d{n}", records=first.records) for n in range(8)]
    for other in others:
        other.memory = first.memory
    await asyncio.gather(*(call(desk, "memory.set", key="a", value=n) for n, desk in enumerate([first, *others])))
    assert (await call(first, "memory.get", key="a"))["meta"]["seq"] == 9
    async with BOX.holding("memory_set", first):
        assert first.memory.writing().locked()
    assert not first.memory.writing().locked()
    async with BOX.holding("memory_get", first), BOX.holding("gone", first):
        assert not first.memory.writing().locked()


# What the context shows


async def talked(texts: int = 5) -> FakeDesk:
    desk = FakeDesk()
    for n in range(1, texts + 1):
        desk.context.append(UserMsg((TextPart(f"message {n} about Köln-{n}"),)), now=desk.now)
    await desk.settle(Answer())
    return desk


async def test_recall_by_number_and_by_words() -> None:
    desk = await talked()
    found = await call(desk, "context.recall", entries="2-3,9")
    assert [(one["n"], one["role"], one["folded"]) for one in found["entries"]] == [
        (2, "user", False), (3, "user", False),
    ]  # fmt: skip
    found = await call(desk, "context.recall", query="köln-4")
    assert [one["text"] for one in found["entries"]] == ["message 4 about Köln-4"]
    assert (await call(desk, "context.recall", query="about", limit=2))["truncated"] is True


async def test_recall_faults_are_readable() -> None:
    desk = await talked()
    assert "one of query" in await fault(desk, "context.recall")
    assert "such as 12-20,31" in await fault(desk, "context.recall", entries="all")
    assert "unknown context" in await fault(desk, "context.recall", query="x", context="other")


async def test_f43_recall_does_not_reach_another_context() -> None:
    ann = await talked()
    other = FakeDesk(id="c2", records=ann.records)
    assert await call(other, "context.recall", query="message") == {"entries": [], "truncated": False}
    assert await call(other, "context.recall", entries="1-5") == {"entries": [], "truncated": False}


async def test_entries_are_pinned_and_unpinned() -> None:
    desk = await talked()
    done = await call(desk, "context.pin", entries=[4, 2.0, 2], why="rules")
    assert done == {"pins": [2, 4], "tokens": sum(e.est for e in desk.context.entries if e.n in (2, 4))}
    assert set(desk.context.state.pins) == {2, 4}
    assert (await call(desk, "context.unpin", entries=[2, 5]))["pins"] == [4]
    assert [*desk.context.state.pins] == [4]
    assert "there is no entry 99" in await fault(desk, "context.pin", entries=[1, 99])
    assert [*desk.context.state.pins] == [4]


async def test_pins_over_their_share_of_the_window_are_refused() -> None:
    desk = await talked()
    desk.window = 100
    assert "a tenth of the window" in await fault(desk, "context.pin", entries=[1, 2, 3])
