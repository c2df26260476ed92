"""The tool box: who is offered what, and that nothing that goes wrong with a call is more than its result."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from agentd.runtime.principals import OPERATOR, Principal, Role
from agentd.runtime.tools.base import Answer, EndsTurn, Invocation, Tool, ToolError
from agentd.runtime.tools.box import ToolBox
from agentkit.core.contracts.errors import Fenced

from .desks import USER, FakeDesk, settings_of

pytestmark = pytest.mark.anyio

ANYTHING = {"type": "object"}
ANONYMOUS = Principal("someone", "anonymous")
OWN = ("plan.get", "skills.list", "context.recall", "think", "finish", "memory.get", "memory.list", "memory.set",
       "artifact.get", "status")  # fmt: skip


async def nothing(asked: Invocation) -> Answer:
    return Answer("ok")


def tool(name: str, run: Callable[[Invocation], Awaitable[Any]] = nothing, schema: Any = None, **fields: Any) -> Tool:
    return Tool(name, f"does {name}", ANYTHING if schema is None else schema, run, **fields)


def own_tools() -> list[Tool]:
    return [tool(name, internal=True) for name in OWN]


def names(box: ToolBox, role: Role) -> set[str]:
    return {name for name, _, _ in box.told(Principal("x", role))}


class Timer:
    """A sleep that the test ends."""

    def __init__(self) -> None:
        self.asked: list[float] = []
        self._over = asyncio.Event()

    async def __call__(self, seconds: float) -> None:
        self.asked.append(seconds)
        await self._over.wait()

    def end(self) -> None:
        self._over.set()


# Grants


def test_f45_roles_are_offered_what_they_may_use() -> None:
    box = ToolBox([*own_tools(), tool("shell")], settings_of())
    box.set_server("fs", [tool("read")])
    everything = {*OWN, "shell", "read"}
    assert all(names(box, role) == everything for role in ("root", "operator", "user", "agent"))
    assert names(box, "anonymous") == set(OWN) - {"memory.set", "artifact.get", "status"}


@pytest.mark.parametrize(
    ("sections", "gone"),
    [
        ({"tools": {"disabled": ["memory.*", "read"]}}, {"memory.get", "memory.list", "memory.set", "read"}),
        ({"tools": {"disabled": ["fs.read"]}}, {"read"}),
        ({"agent": {"tools": {"internal": ["think"]}}}, set(OWN) - {"think"}),
        ({"agent": {"tools": {"mcp": []}}}, {"read"}),
        ({"tools": {"grants": {"user": ["think", "shell"]}}}, {*OWN, "read"} - {"think"}),
    ],
)
async def test_f45_tool_taken_away_is_neither_offered_nor_run(sections: dict[str, Any], gone: set[str]) -> None:
    ran: list[str] = []

    async def run(asked: Invocation) -> Answer:
        ran.append(asked.tool)
        return Answer("done")

    desk = FakeDesk(settings_of(**sections))
    box = ToolBox([*(tool(name, run, internal=True) for name in OWN), tool("shell", run)], desk.settings)
    box.set_server("fs", [tool("read", run)])
    assert {*OWN, "shell", "read"} - names(box, "user") == gone
    for name in gone:
        for spelled in (name, name.replace(".", "_")):
            answer = await box.dispatch(desk.calling(spelled))
            assert answer.is_error
            assert f"there is no tool {spelled!r}" in answer.content
    assert ran == []


def test_f45_anonymous_senders_have_none_but_the_daemons_own() -> None:
    """A server's tool that is called like a family of the daemon's is no part of it."""
    box = ToolBox([*own_tools(), tool("plan.do")], settings_of())
    box.set_server("fs", [tool("context.leak"), tool("finish")])
    assert names(box, "anonymous") == set(OWN) - {"memory.set", "artifact.get", "status"}


def test_f45_disabled_tool_does_not_return_under_another_name() -> None:
    """Two servers with one tool rename both; what is disabled stays so, what is allowed by its bare name does not
    spread to the second server."""
    box = ToolBox([], settings_of(tools={"disabled": ["delete"], "grants": {"user": ["read"]}}))
    box.set_server("a", [tool("delete"), tool("read")])
    assert names(box, "operator") == {"read"}
    box.set_server("b", [tool("delete"), tool("read")])
    assert names(box, "operator") == {"a.read", "b.read"}
    assert names(box, "user") == set()


async def test_turn_keeps_the_grants_it_started_with() -> None:
    box = ToolBox(own_tools(), settings_of())
    desk = FakeDesk(settings_of(tools={"disabled": ["think"]}))
    assert (await box.dispatch(desk.calling("think"))).is_error
    assert "think" not in [wire for _, _, wire in box.told(USER, desk.settings)]


# Names


async def test_own_tool_comes_before_a_servers() -> None:
    seen: list[str] = []

    async def run(asked: Invocation) -> Answer:
        seen.append(asked.tool)
        return Answer("server")

    desk = FakeDesk()
    box = ToolBox(own_tools(), desk.settings)
    box.set_server("fs", [tool("memory_get", run), tool("read", run)])
    assert (await box.dispatch(desk.calling("memory_get"))).content == "ok"
    assert (await box.dispatch(desk.calling("fs_memory_get"))).content == "server"
    assert (await box.dispatch(desk.calling("fs.memory_get"))).content == "server"
    assert seen == ["memory_get", "memory_get"], "a server is asked by its own name for the tool"


def test_definitions_are_canonical_and_keep_their_objects() -> None:
    box = ToolBox(own_tools(), settings_of())
    before = box.definitions(OPERATOR)
    box.set_server("fs", [tool("read"), tool("zip")])
    after = box.definitions(OPERATOR)
    assert [schema.name for schema in after] == sorted(schema.name for schema in after)
    assert {id(schema) for schema in before} <= {id(schema) for schema in after}
    box.remove_server("fs")
    assert box.definitions(OPERATOR) == before


def test_two_own_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match=r"two tools are called 'plan\.get'"):
        ToolBox([tool("plan.get"), tool("plan.get")])


def test_server_tool_with_a_broken_schema_is_left_out() -> None:
    box = ToolBox([], settings_of())
    faults = box.set_server("fs", [tool("bad", schema={"type": "nothing"}), tool("good")])
    assert len(faults) == 1
    assert faults[0].startswith("the input schema of fs.bad is no JSON Schema")
    assert names(box, "user") == {"good"}


def test_what_a_tool_is_like() -> None:
    box = ToolBox([tool("a.b", read_only=True), tool("c", idempotent=True), tool("d", internal=True), tool("e")])
    assert box.is_read_only("a_b")
    assert box.is_read_only("a.b")
    assert box.read_only == {"a_b"}
    assert box.repeatable == {"a_b", "c", "d"}
    assert [name for name in ("a_b", "c", "d", "e", "gone") if box.has_effects(name)] == ["c", "e"]


# Calls


async def test_unknown_tool_is_answered_with_what_there_is() -> None:
    desk = FakeDesk()
    answer = await ToolBox([tool("a.b"), tool("c")], desk.settings).dispatch(desk.calling("rm"))
    assert answer == Answer("there is no tool 'rm'; there are a_b, c", is_error=True)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({}, "do was not run. Its arguments are not right: the arguments: missing path"),
        ({"path": 3}, "do was not run. Its arguments are not right: path: must be string, not integer 3"),
        ({"path": "x", "scope": "other"}, "the arguments: unknown scope; it takes path"),
        ({"_raw": '{"path": "x'}, "Its arguments are no JSON object: Unterminated string starting at at character 9"),
        ({"_raw": "[1]"}, "Its arguments are no JSON object: they are [1]"),
        ({"_raw": '{"path": NaN}'}, "they hold a value that JSON does not have"),
    ],
)
async def test_bad_arguments_are_answered_readably(arguments: dict[str, Any], told: str) -> None:
    ran = False

    async def run(asked: Invocation) -> Answer:
        nonlocal ran
        ran = True
        return Answer()

    schema = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"],
              "additionalProperties": False}  # fmt: skip
    desk = FakeDesk()
    answer = await ToolBox([tool("do", run, schema)], desk.settings).dispatch(desk.calling("do", arguments))
    assert answer.is_error
    assert told in answer.content
    assert not ran


async def test_argument_called_raw_is_an_argument_like_others() -> None:
    schema = {"type": "object", "properties": {"_raw": {"type": "string"}}}
    desk = FakeDesk()
    box = ToolBox([tool("do", schema=schema)], desk.settings)
    assert (await box.dispatch(desk.calling("do", {"_raw": "{"}))).content == "ok"


@pytest.mark.parametrize(
    ("error", "told"),
    [(ToolError("no such key"), "no such key"), (ValueError("bad"), "do failed: ValueError: bad"),
     (TimeoutError("slow"), "do failed: TimeoutError: slow")],
)  # fmt: skip
async def test_exception_of_a_tool_is_its_result(error: Exception, told: str) -> None:
    async def run(asked: Invocation) -> Answer:
        raise error

    desk = FakeDesk()
    answer = await ToolBox([tool("do", run)], desk.settings).dispatch(desk.calling("do"))
    assert answer == Answer(told, is_error=True)


@pytest.mark.parametrize(("error", "internal"), [(EndsTurn("stop"), False), (EndsTurn("stop"), True),
                                                 (Fenced("gone"), True)])  # fmt: skip
async def test_end_of_turn_and_lost_lease_go_through(error: Exception, internal: bool) -> None:
    async def run(asked: Invocation) -> Answer:
        raise error

    desk = FakeDesk()
    with pytest.raises(type(error)):
        await ToolBox([tool("do", run, internal=internal)], desk.settings).dispatch(desk.calling("do"))


async def test_a_tool_with_a_store_of_its_own_may_lose_that_ones_lease() -> None:
    async def run(asked: Invocation) -> Answer:
        raise Fenced("another store's")

    desk = FakeDesk()
    answer = await ToolBox([tool("do", run)], desk.settings).dispatch(desk.calling("do"))
    assert answer == Answer("do failed: Fenced: another store's", is_error=True)


@pytest.mark.parametrize("content", [object(), {1: {2, object()}}, lambda: None])
async def test_result_that_is_no_json_is_an_error(content: Any) -> None:
    async def run(asked: Invocation) -> Answer:
        return Answer(content)

    desk = FakeDesk()
    answer = await ToolBox([tool("do", run)], desk.settings).dispatch(desk.calling("do"))
    assert answer.is_error
    assert "do was run, but its result is no JSON" in answer.content


async def test_result_is_made_plain_json() -> None:
    async def run(asked: Invocation) -> Answer:
        return Answer({"a": ("x\ud800", float("inf"))})

    desk = FakeDesk()
    answer = await ToolBox([tool("do", run)], desk.settings).dispatch(desk.calling("do"))
    assert answer.content == {"a": ["x\ufffd", "inf"]}


async def test_result_is_checked_against_its_schema() -> None:
    async def run(asked: Invocation) -> Answer:
        return Answer({"n": "many"})

    output = {"type": "object", "properties": {"n": {"type": "integer"}}}
    desk = FakeDesk()
    answer = await ToolBox([tool("do", run, output=output)], desk.settings).dispatch(desk.calling("do"))
    assert answer.is_error
    assert "do was run, but its result is not what it promises: n: must be integer" in answer.content


async def test_answer_of_another_type_is_an_error() -> None:
    async def run(asked: Invocation) -> Any:
        return "text"

    desk = FakeDesk()
    answer = await ToolBox([tool("do", run)], desk.settings).dispatch(desk.calling("do"))
    assert answer.content == "do was run, but gave a str in place of an answer"


# Time


async def test_slow_tool_is_stopped_at_its_limit() -> None:
    timer, stopped, begun = Timer(), asyncio.Event(), asyncio.Event()

    async def run(asked: Invocation) -> Answer:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        raise AssertionError

    desk = FakeDesk(settings_of(limits={"tool_timeout": "5s"}))
    box = ToolBox([tool("do", run)], desk.settings, sleep=timer)
    call = asyncio.create_task(box.dispatch(desk.calling("do")))
    await begun.wait()
    timer.end()
    answer = await call
    assert answer.content == "do did not end within 5 s (limits.tool_timeout) and was stopped"
    assert timer.asked[0] == 5
    assert stopped.is_set()


async def test_tool_that_ignores_its_end_is_left_behind() -> None:
    timer, begun, released = Timer(), asyncio.Event(), asyncio.Event()

    async def run(asked: Invocation) -> Answer:
        begun.set()
        while not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                continue
        return Answer("late")

    desk = FakeDesk()
    box = ToolBox([tool("do", run)], desk.settings, sleep=timer)
    call = asyncio.create_task(box.dispatch(desk.calling("do")))
    await begun.wait()
    timer.end()
    assert "was stopped" in (await call).content
    released.set()
    await asyncio.sleep(0)


async def test_cancel_of_the_turn_stops_the_tool() -> None:
    stopped, begun = asyncio.Event(), asyncio.Event()

    async def run(asked: Invocation) -> Answer:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        raise AssertionError

    desk = FakeDesk()
    call = asyncio.create_task(ToolBox([tool("do", run)], desk.settings).dispatch(desk.calling("do")))
    await begun.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert stopped.is_set()


async def test_tool_that_cancels_itself_ends_its_call_only() -> None:
    async def run(asked: Invocation) -> Answer:
        raise asyncio.CancelledError

    desk = FakeDesk()
    answer = await ToolBox([tool("do", run)], desk.settings).dispatch(desk.calling("do"))
    assert answer.content == "do failed: RuntimeError: it was cancelled from within"
