"""Servers that mean no good, or do not know better: what they offer and answer costs them a tool or a request, never
the daemon, and never another server."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from mcp.server.lowlevel import Server as SdkServer
from mcp_types import CallToolResult, ListToolsResult, TextContent, Tool, ToolAnnotations

from agentd.config.serving import Server as Settings
from agentd.mcp import BadAnswer, Server, ServerDown, ServerError, ServerRefused, Servers, ServerTimeout
from agentd.runtime.principals import OPERATOR
from agentd.runtime.server_tools import MOST_DESCRIPTION, MOST_TOOLS, ServerTools
from agentd.runtime.tools.base import Answer, Invocation
from agentd.runtime.tools.base import Tool as OwnTool
from agentd.runtime.tools.box import ToolBox
from agentkit.core.contracts.jsontext import json_text
from tests.agentd.daemon.house import settings_of as daemon_settings
from tests.agentd.mcp.peers import Heard, connected, settings_of

pytestmark = pytest.mark.anyio
OBJECT: dict[str, Any] = {"type": "object"}
RUDE = (sys.executable, str(Path(__file__).with_name("rude.py")))


def offering(*tools: Tool, answer: CallToolResult | None = None) -> SdkServer[Any]:
    """A server in this process that offers these; the list may be changed afterwards."""

    async def listed(ctx: Any, params: Any) -> ListToolsResult:
        return ListToolsResult(tools=list(tools))

    async def called(ctx: Any, params: Any) -> CallToolResult:
        return answer or CallToolResult(content=[TextContent(type="text", text=params.name)])

    return SdkServer("hostile", on_list_tools=listed, on_call_tool=called)


def tool(name: str, **given: Any) -> Tool:
    return Tool(name=name, **{"input_schema": OBJECT, **given})


async def nothing(asked: Invocation) -> Answer:
    return Answer("own")


@asynccontextmanager
async def boxed(
    target: SdkServer[Any] | None, settings: Settings | None = None
) -> AsyncIterator[tuple[ToolBox, ServerTools]]:
    """A box with a tool of its own, `look`, and what the server `s` offers."""
    box = ToolBox([OwnTool("look", "own", OBJECT, nothing)], daemon_settings())
    servers = Servers([settings or settings_of("s", ("x",))], make=lambda one, **how: Server(one, target=target, **how))
    servers.start()
    server = servers.get("s")
    assert server is not None
    try:
        assert await server.ready(10)
        tools = ServerTools(servers, box)
        await tools.update("s")
        yield box, tools
    finally:
        await servers.aclose()


def names(box: ToolBox) -> set[str]:
    return {schema.name for schema in box.definitions(OPERATOR)}


# What is offered


async def test_ten_thousand_tools_are_cut_to_a_bound_and_others_get_their_turns() -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    watching = asyncio.create_task(other())
    async with boxed(offering(*(tool(f"tool-{n}") for n in range(10_000)))) as (box, tools):
        assert len(names(box)) == MOST_TOOLS + 1
        assert tools.status("s") == {
            "tools": MOST_TOOLS, "left_out": [f"only its first {MOST_TOOLS} tools of 10000 count"]
        }  # fmt: skip
    watching.cancel()
    assert turns > MOST_TOOLS / 20


async def test_what_cannot_be_used_is_left_out_and_told() -> None:
    bad = {"type": "object", "properties": {"a": {"type": "banana"}}}
    huge = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(5_000)}}
    offered = [
        tool("fine"), tool("bad", input_schema=bad),
        tool("huge", input_schema=huge), tool("twice", description="1"),
        tool("twice", description="2"), tool(""),
    ]  # fmt: skip
    async with boxed(offering(*offered)) as (box, tools):
        assert names(box) == {"look", "fine", "twice"}
        assert [schema.description for schema in box.definitions(OPERATOR) if schema.name == "twice"] == ["2"]
        told = "\n".join(tools.status("s")["left_out"])
        for part in ("the input schema of s.bad is no JSON Schema: at properties.a.type",
                     "the input schema of the tool 'huge' has", "two tools called 'twice'",
                     "a tool has no name"):  # fmt: skip
            assert part in told


@pytest.mark.parametrize("schema", ['"text"', "{}", '{"type": "array"}', "null"])
async def test_a_list_that_is_not_of_the_protocol_is_told(schema: str) -> None:
    async with boxed(None, settings_of("s", (*RUDE, schema))) as (box, tools):
        assert names(box) == {"look"}
        assert tools.status("s")["left_out"]


async def test_a_huge_description_is_cut_off() -> None:
    async with boxed(offering(tool("wordy", description="word " * 100_000))) as (box, _):
        held = box.find("wordy")
        assert held is not None
        assert len(held.tool.description) == MOST_DESCRIPTION + 1


async def test_names_of_the_daemon_cannot_be_taken_over() -> None:
    odd = ["look", "memory.get", "finish", "ein name", "naïve", "a" * 300, "x\ny", "<b>"]
    async with boxed(offering(*map(tool, odd))) as (box, _):
        own = box.find("look")
        assert own is not None
        assert own.server is None
        found = names(box)
        assert len(found) == len(odd) + 1
        assert "s_look" in found
        assert all(len(name) <= 64 and name.isascii() and json_text(name) == f'"{name}"' for name in found)


async def test_hints_are_believed_as_they_stand() -> None:
    hinted = [
        tool("reads", annotations=ToolAnnotations(read_only_hint=True)),
        tool("repeats", annotations=ToolAnnotations(read_only_hint=False, idempotent_hint=True)),
        tool("neither", annotations=ToolAnnotations(destructive_hint=False)),
    ]
    async with boxed(offering(*hinted)) as (box, _):
        assert box.read_only & {"reads", "repeats", "neither"} == {"reads"}
        assert box.repeatable & {"reads", "repeats", "neither"} == {"reads", "repeats"}


async def test_a_list_that_cannot_be_had_leaves_what_was_there() -> None:
    pages: list[str | None] = [None]

    async def listed(ctx: Any, params: Any) -> ListToolsResult:
        return ListToolsResult(tools=[tool("a")], next_cursor=pages[0])

    async with boxed(SdkServer("loop", on_list_tools=listed)) as (box, tools):
        before = box.definitions(OPERATOR)
        assert names(box) == {"look", "a"}
        pages[0] = "again"
        assert not await tools.update("s"), "it is asked again later"
        assert "has no end" in tools.status("s")["left_out"][0]
        pages[0] = None
        assert await tools.update("s")
        assert box.definitions(OPERATOR) is before, "the same tools are the same definitions"


async def test_a_result_that_its_own_schema_refuses_is_an_error() -> None:
    promised = tool("t", output_schema={"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})
    wrong = CallToolResult(content=[], structured_content={"n": "seven"})
    async with connected(Server(settings_of("s", ("x",)), target=offering(promised, answer=wrong))) as server:
        await server.tools()
        with pytest.raises(BadAnswer, match="seven") as caught:
            await server.call("t", {})
        assert caught.value.may_have_run
        assert server.state == "up"


# What is written


async def test_a_broken_answer_costs_one_request() -> None:
    async with connected(Server(settings_of("rude", RUDE))) as server:
        assert server.version == "2025-11-25"
        found = await server.call("bad_utf8", {})
        assert isinstance(found.content[0], TextContent)
        assert found.content[0].text == "caf��"
        for name in ("junk_before", "two_answers", "flood", "fine"):
            assert not (await server.call(name, {})).is_error
        with pytest.raises(ServerRefused, match=r"no message of JSON-RPC"):
            await server.call("not_jsonrpc", {})
        with pytest.raises(BadAnswer, match="not of the form that the protocol has"):
            await server.call("wrong_shape", {})
        assert not (await server.call("fine", {})).is_error


async def test_a_line_without_end_ends_the_connection() -> None:
    async with connected(Server(settings_of("rude", RUDE))) as server:
        with pytest.raises(ServerDown, match="a line of more than 16 MiB"):
            await server.call("endless_line", {})
        assert await server.ready(20)
        assert not (await server.call("fine", {})).is_error


async def test_an_answer_without_end_over_http_costs_its_request() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"accept-encoding: identity" in head.lower()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n")
        with suppress(ConnectionError):
            while True:
                writer.write(b" " * (1 << 20))
                await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        server = Server(settings_of("endless", url=f"http://127.0.0.1:{port}/mcp"))
        heard = Heard(server)
        server.start()
        await heard.wait("down")
        assert "more than 16 MiB" in server.error
        await server.aclose()


async def test_the_end_of_a_process_is_told_with_its_last_words(caplog: pytest.LogCaptureFixture) -> None:
    async with connected(Server(settings_of("rude", RUDE))) as server:
        with pytest.raises(ServerDown, match="its process ended with exit code 3"):
            await server.call("exit", {})
        assert "the last that the MCP server rude said: I have had enough" in caplog.messages


async def test_a_program_that_is_no_server_comes_to_nothing() -> None:
    for command, reason in ((("false",), "exit code 1"), (("cat",), ""), (("yes",), "1000 lines in a row")):
        server = Server(settings_of("no", command, timeout="900ms"))
        heard = Heard(server)
        server.start()
        try:
            await heard.wait("down")
            assert reason in server.error
            with pytest.raises(ServerError):
                await server.tools()
        finally:
            await server.aclose()


async def test_errors_survive_pickling_and_name_their_server() -> None:
    import pickle

    for error in (ServerDown("s", "why"), ServerTimeout("s", "why"), ServerRefused("s", -1, "no"), BadAnswer("s", "x")):
        again = pickle.loads(pickle.dumps(error))
        assert str(again) == str(error)
        assert "'s'" in str(again)
