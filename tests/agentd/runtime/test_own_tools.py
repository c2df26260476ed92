"""The daemon's own tools, called as a model calls them: through the box, committed as the actor commits."""

from typing import Any

import pytest

from agentd.context.record import SkillChange
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
    answer = await desk.settle(await BOX.dispatch(desk.calling(tool, arguments)))
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
        assert not {"scope", "tenant", "context", "principal", "org", "domain"} & tool.parameters["properties"].keys()
        assert set(tool.parameters.get("required", ())) <= tool.parameters["properties"].keys()
        assert 0 < len(tool.description) < 160


def test_wire_names_are_the_names_with_underscores() -> None:
    assert {tool.name.replace(".", "_") for tool in internal_tools()} == {
        wire for _, _, wire in BOX.told(FakeDesk().calling("x").principal, settings_of())
    }


def test_what_changes_something_is_not_read_only() -> None:
    reading = {tool.name for tool in internal_tools() if tool.read_only}
    assert reading == {"artifact.get", "artifact.list", "instruction.read", "skills.list", "status"}


def test_f45_nothing_is_offered_that_this_release_has_not() -> None:
    families = {tool.name.partition(".")[0] for tool in internal_tools()}
    assert not families & {"run", "subagent", "ask_human", "sleep", "await"}


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
