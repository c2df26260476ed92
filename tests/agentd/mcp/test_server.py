"""One MCP server: connected in both eras of the protocol and over both transports, with real servers; what its death,
its slowness and its changes come to for those who use it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any, Literal

import pytest
from mcp.server.lowlevel import Server as SdkServer
from mcp_types import CallToolResult, ElicitResult, ListToolsResult, TextContent, Tool

from agentd.mcp import BadAnswer, CannotStart, Server, ServerDown, ServerRefused, ServerTimeout
from agentd.mcp.child import Child
from tests.agentd.mcp.peers import (
    Heard,
    WebPeer,
    calls,
    connected,
    is_alive,
    npm,
    peer,
    python,
    settings_of,
    until,
)

pytestmark = pytest.mark.anyio
Mode = Literal["auto", "legacy"]


def text_of(result: CallToolResult) -> str:
    return "".join(block.text for block in result.content if isinstance(block, TextContent))


async def pid_of(server: Server, log: Path) -> int:
    await server.call("look", {"n": 0})
    pid: int = calls(log)[-1]["pid"]
    return pid


# Real servers


@pytest.mark.parametrize(
    ("command", "version", "tool", "arguments", "answer"),
    [
        (npm("everything"), "2025-11-25", "echo", {"message": "grüß dich"}, "grüß dich"),
        (npm("filesystem", str(Path(__file__).parent)), "2025-11-25", "list_directory",
         {"path": str(Path(__file__).parent)}, "test_server.py"),
        (python("mcp_server_time"), "2026-07-28", "convert_time",
         {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}, "21:00"),
        (python("mcp_server_git"), "2026-07-28", "git_status", {"repo_path": "/nowhere"}, "nowhere"),
    ],
    ids=["everything", "filesystem", "time", "git"],
)  # fmt: skip
async def test_real_servers_answer(
    command: tuple[str, ...], version: str, tool: str, arguments: dict[str, Any], answer: str
) -> None:
    async with connected(Server(settings_of("real", command))) as server:
        assert (server.state, server.version) == ("up", version)
        assert tool in [one.name for one in await server.tools()]
        assert answer in text_of(await server.call(tool, arguments))


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_both_eras_over_standard_streams(tmp_path: Path, mode: Mode) -> None:
    log = tmp_path / "log"
    async with connected(Server(settings_of("peer", peer(log)), mode=mode)) as server:
        assert server.version == ("2026-07-28" if mode == "auto" else "2025-11-25")
        result = await server.call("post", {"n": 7}, meta={"agentd/idempotency-key": "k"})
        assert text_of(result) == "posted 7"
        assert calls(log)[-1]["key"] == "k"
        assert (await server.read("paper://1")).contents[0].model_dump()["text"] == "the first"
        assert [prompt.name for prompt in await server.prompts()] == ["greet"]
        assert (await server.prompt("greet", {"name": "Ann"})).messages[0].content.model_dump()["text"] == "Greet Ann."
        assert [one.uri for one in await server.resources()] == ["paper://1"]
        assert await server.resource_templates() == []
        with pytest.raises(ServerRefused, match="'peer'"):
            await server.prompt("nobody", {})
        assert (await server.call("fail", {})).is_error, "an error of a tool is an answer"
        heard = Heard(server)
        await server.call("grow", {"name": f"grown_{mode}"})
        await heard.wait("tools")
        assert f"grown_{mode}" in [tool.name for tool in await server.tools()]


# Death, slowness, and coming back


@pytest.mark.crash
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_killed_child_fails_its_callers_and_comes_back(tmp_path: Path, mode: Mode) -> None:
    log = tmp_path / "log"
    async with connected(Server(settings_of("peer", peer(log)), mode=mode)) as server:
        heard, pid = Heard(server), await pid_of(server, log)
        (tmp_path / "log.hold").touch()
        asked = [asyncio.create_task(server.call("post", {"n": n})) for n in range(3)]
        await until(lambda: len(calls(log)) == 4)
        os.kill(pid, signal.SIGKILL)
        for one in asked:
            with pytest.raises(ServerDown, match="SIGKILL") as caught:
                await one
            assert caught.value.may_have_run
            assert not one.cancelled()
        with pytest.raises(ServerDown) as caught:
            await server.call("look", {"n": 1})
        assert not caught.value.may_have_run, "what is asked while it is down fails at once"
        (tmp_path / "log.hold").unlink()
        assert await server.ready(30)
        assert heard.changes[:2] == ["down", "up"]
        assert text_of(await server.call("look", {"n": 2})) == "saw 2"
        assert calls(log)[-1]["pid"] != pid


@pytest.mark.crash
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_killed_web_server_fails_its_callers_and_comes_back(tmp_path: Path, mode: Mode) -> None:
    """The SDK throws CancelledError into the task that holds the client: nobody who asked is cancelled by it."""
    log = tmp_path / "log"
    with WebPeer(log) as web:
        async with connected(Server(settings_of("web", url=web.url), mode=mode)) as server:
            assert server.version == ("2026-07-28" if mode == "auto" else "2025-11-25")
            (tmp_path / "log.hold").touch()
            asked = [asyncio.create_task(server.call("post", {"n": n})) for n in range(3)]
            await until(lambda: len(calls(log)) == 3)
            web.kill()
            for one in asked:
                with pytest.raises(ServerDown) as caught:
                    await one
                assert caught.value.may_have_run
            await until(lambda: server.state == "down")
            (tmp_path / "log.hold").unlink()
            web.start()
            assert await server.ready(30)
            assert text_of(await server.call("look", {"n": 2})) == "saw 2"
            heard = Heard(server)
            await server.call("grow", {"name": f"grown_{mode}"})
            await heard.wait("tools")


@pytest.mark.crash
async def test_a_web_server_that_forgot_the_session_is_connected_anew(tmp_path: Path) -> None:
    """In the older era a server that was restarted, unnoticed since nobody asked meanwhile, refuses the old session."""
    log = tmp_path / "log"
    with WebPeer(log) as web:
        async with connected(Server(settings_of("web", url=web.url), mode="legacy")) as server:
            heard = Heard(server)
            web.kill()
            web.start()
            await heard.wait("down")
            assert await server.ready(30)
            assert text_of(await server.call("look", {"n": 1})) == "saw 1"


@pytest.mark.crash
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_stopped_server_costs_its_callers_their_time_only(tmp_path: Path, mode: Mode) -> None:
    log = tmp_path / "log"
    with WebPeer(log) as web:
        async with connected(Server(settings_of("web", url=web.url), mode=mode)) as server:
            web.signal(signal.SIGSTOP)
            with pytest.raises(ServerTimeout, match=r"0\.3 s"):
                await server.call("look", {"n": 1}, timeout=0.3)
            web.signal(signal.SIGCONT)
            assert text_of(await server.call("look", {"n": 2})) == "saw 2"
            assert server.state == "up"
            web.signal(signal.SIGSTOP)
            async with asyncio.timeout(6):  # closing waits for nobody who hangs
                await server.aclose()


async def test_requests_run_at_the_same_time_and_each_has_its_own_end(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with connected(Server(settings_of("peer", peer(log)))) as server:
        (tmp_path / "log.hold").touch()
        slow = asyncio.create_task(server.call("post", {"n": 1}))
        given_up = asyncio.create_task(server.call("post", {"n": 2}))
        await until(lambda: len(calls(log)) == 2)
        assert text_of(await server.call("add", {"a": 1, "b": 2})) == "3"
        given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up
        with pytest.raises(ServerTimeout):
            await server.call("post", {"n": 3}, timeout=0.2)
        (tmp_path / "log.hold").unlink()
        assert text_of(await slow) == "posted 1"
        assert server.state == "up"


async def test_a_program_that_cannot_be_started_is_told_at_once() -> None:
    server = Server(settings_of("none", ("/nowhere/at/all", "x")))
    server.start()
    try:
        async with asyncio.timeout(5):
            assert not await server.ready(60)
        assert server.error == "'/nowhere/at/all' cannot be started: No such file or directory"
        with pytest.raises(ServerDown, match="cannot be started"):
            await server.tools()
    finally:
        await server.aclose()
    assert issubclass(CannotStart, ServerDown)


async def test_pauses_between_tries_grow_and_begin_anew() -> None:
    pauses: list[float] = []
    enough = asyncio.Event()

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 9:
            enough.set()
            await asyncio.Event().wait()

    server = Server(settings_of("none", ("/nowhere",)), sleep=sleep)
    server.start()
    await enough.wait()
    await server.aclose()
    for at, pause in enumerate(pauses):
        whole = min(0.5 * 2**at, 60.0)
        assert whole / 2 <= pause <= whole
    assert pauses[-1] <= 60


async def test_a_request_waits_for_the_first_connection_only(tmp_path: Path) -> None:
    log = tmp_path / "log"
    server = Server(settings_of("peer", peer(log)))
    server.start()
    try:
        assert server.state == "connecting"
        assert text_of(await server.call("look", {"n": 1})) == "saw 1"
    finally:
        await server.aclose()
    with pytest.raises(ServerDown, match="lets go"):
        await server.call("look", {"n": 2})


async def test_a_server_that_never_answers_the_handshake_is_given_up_in_time() -> None:
    server = Server(settings_of("mute", ("sleep", "600"), timeout="300ms"))
    heard = Heard(server)
    server.start()
    await heard.wait("down")
    assert server.error == "it did not come up within 0.3 s"
    await server.aclose()


# The end of child processes


@pytest.mark.crash
async def test_closing_ends_the_child_and_what_it_started(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with connected(Server(settings_of("peer", peer(log)))) as server:
        pid = await pid_of(server, log)
        grandchild = int(text_of(await server.call("spawn", {})))
        assert is_alive(pid)
        assert is_alive(grandchild)
    assert not is_alive(pid)
    assert not is_alive(grandchild)


@pytest.mark.crash
async def test_a_grandchild_that_holds_the_output_open_hides_no_death(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with connected(Server(settings_of("peer", peer(log)))) as server:
        heard, pid = Heard(server), await pid_of(server, log)
        grandchild = int(text_of(await server.call("spawn", {})))
        os.kill(pid, signal.SIGKILL)
        await heard.wait("down")
        assert await server.ready(30)
        assert not is_alive(grandchild), "nothing of the old process is left once the new one is up"


@pytest.mark.crash
async def test_a_child_that_ignores_all_but_sigkill_is_ended() -> None:
    deaf = "import signal, time; [signal.signal(n, signal.SIG_IGN) for n in (1, 2, 15)]; print(1, flush=True)"
    child = await Child.start("deaf", (sys.executable, "-c", f"{deaf}; time.sleep(600)"), {}, limit=1 << 16)
    async for line in child.lines():
        assert line == b"1\n"
        break
    assert is_alive(child.pid)
    await child.end()
    assert not is_alive(child.pid)


async def test_a_cancel_of_the_one_who_closes_ends_the_child_all_the_same(tmp_path: Path) -> None:
    log = tmp_path / "log"
    server = Server(settings_of("peer", peer(log)))
    server.start()
    pid = await pid_of(server, log)
    closing = asyncio.create_task(server.aclose())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    await until(lambda: not is_alive(pid))


async def test_standard_error_goes_to_the_log_by_lines(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", logger="agentd")
    async with connected(Server(settings_of("peer", peer(tmp_path / "log")))):
        await until(lambda: "MCP server peer: peer is starting" in caplog.messages)


async def test_the_child_gets_its_variables_and_few_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROVIDER_KEY", "hush")
    async with connected(Server(settings_of("every", npm("everything"), env={"COLOUR": "blue"}))) as server:
        text = text_of(await server.call("get-env", {}))
    assert "blue" in text
    assert "hush" not in text


# Lists and questions


def paged(pages: dict[str | None, tuple[list[str], str | None]], asked: list[str | None]) -> SdkServer[Any]:
    """A server whose tools come in these pages: names and the next cursor, by cursor."""

    async def tools(ctx: Any, params: Any) -> ListToolsResult:
        cursor = params.cursor if params is not None else None
        asked.append(cursor)
        names, after = pages[cursor]
        return ListToolsResult(tools=[Tool(name=n, input_schema={"type": "object"}) for n in names], next_cursor=after)

    return SdkServer("paged", on_list_tools=tools)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_all_pages_of_a_list_are_read(mode: Mode) -> None:
    asked: list[str | None] = []
    pages: dict[str | None, tuple[list[str], str | None]] = {
        None: (["a", "b"], "2"), "2": ([], "3"), "3": (["c"], None)
    }  # fmt: skip
    async with connected(Server(settings_of("paged", ("x",)), target=paged(pages, asked), mode=mode)) as server:
        assert [tool.name for tool in await server.tools()] == ["a", "b", "c"]
        assert asked == [None, "2", "3"]
        assert await server.prompts() == [], "what a server says it has not is not asked for"


async def test_a_list_without_end_is_an_error() -> None:
    asked: list[str | None] = []
    pages: dict[str | None, tuple[list[str], str | None]] = {None: (["a"], "1"), "1": (["b"], "2"), "2": (["c"], "1")}
    async with connected(Server(settings_of("loop", ("x",)), target=paged(pages, asked))) as server:
        with pytest.raises(BadAnswer, match="has no end"):
            await server.tools()
        assert len(asked) == 3


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_question_of_a_server_reaches_who_asked_it(tmp_path: Path, mode: Mode) -> None:
    """While a person is waited for, the time of the request does not run."""
    log = tmp_path / "log"
    asked: list[tuple[str, Any]] = []

    async def answer(message: str, schema: Any) -> ElicitResult:
        asked.append((message, schema["properties"].keys()))
        await asyncio.sleep(0.6)
        return ElicitResult(action="accept", content={"colour": "red"})

    async def trouble(message: str, schema: Any) -> ElicitResult:
        raise LookupError("nobody here")

    async with connected(Server(settings_of("peer", peer(log)), mode=mode, elicits=True)) as server:
        assert text_of(await server.call("ask", {}, timeout=0.5, elicit=answer)) == "accept red"
        assert asked == [("Which colour?", {"colour": None}.keys())]
        assert text_of(await server.call("ask", {})) == "decline"
        assert text_of(await server.call("ask", {}, elicit=trouble)) == "decline"
