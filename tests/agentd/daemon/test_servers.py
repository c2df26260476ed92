"""A daemon with MCP servers, which are processes: their tools offered and run, their results as a model reads them;
what their death, slowness and changes do to turns, and what a crash of the daemon does to their calls."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from agentd.context.record import FilePart, ToolMsg
from agentd.runtime.daemon import Daemon
from agentd.runtime.principals import OPERATOR, Principal
from agentd.runtime.servers import RequiredServerDown
from agentd.runtime.waits import Wait
from agentkit.core.contracts.blocks import ImageBlock
from agentkit.core.contracts.errors import PermanentError
from agentkit.core.contracts.messages import same_objects
from agentkit.core.contracts.requests import ChatRequest
from tests.agentd.daemon.house import House, Said, StrictLLM, results, settings_of
from tests.agentd.daemon.test_prefix import prefix
from tests.agentd.mcp.peers import WebPeer, calls, npm, peer, python, until

pytestmark = pytest.mark.anyio


def servers(*given: dict[str, Any]) -> str:
    """`mcp.servers` as a flag has it."""
    return json.dumps([{key: list(v) if isinstance(v, tuple) else v for key, v in one.items()} for one in given])


def house_of(log: Path, **given: Any) -> House:
    """A house with `peer.py` as the server `peer`."""
    return House(mcp__servers=servers({"name": "peer", "command": peer(log)}), **given)


async def is_up(agent: Daemon, *names: str) -> None:
    """Wait until the tools of these servers are in the box."""

    def there() -> bool:
        found = {one["name"]: one for one in agent.services.servers.status()}
        return all(found[name]["state"] == "up" and found[name]["tools"] for name in names)

    await until(there, what=f"{names}, of {agent.services.servers.status()}")


def offered(request: ChatRequest) -> list[str]:
    return [tool.name for tool in request.tools or ()]


class Orders:
    """A model that makes the calls of its sender's text, a JSON list of [tool, arguments], and then says what the last
    result was."""

    def __init__(self) -> None:
        self.llm = StrictLLM(answer=self._answer)

    def _answer(self, request: ChatRequest) -> Said:
        said = [(one, one.content.partition("<runtime-state")[0].strip()) for one in request.messages]
        last, text = next((one, text) for one, text in reversed(said) if one.role == "tool" or text.startswith("[["))
        if last.role == "tool":
            return f"[{'error' if last.is_error else 'ok'}] {text}"
        return [(name, arguments) for name, arguments in json.loads(text)]


def order(*calls: tuple[str, dict[str, Any]]) -> str:
    return json.dumps(calls)


async def do(agent: Daemon, tool: str, context: str = "c", **arguments: Any) -> str:
    """What the model says of one call, made in a turn of its own."""
    return (await agent.ask(order((tool, arguments)), context=context)).text


async def last_result(agent: Daemon, context: str = "c") -> ToolMsg:
    return (await results(agent, context))[-1]


# Tools and their results


async def test_tools_of_servers_are_offered_and_their_results_are_what_the_record_holds(tmp_path: Path) -> None:
    log, orders = tmp_path / "log", Orders()
    async with house_of(log).life(orders.llm) as agent:
        await is_up(agent, "peer")
        assert await do(agent, "peer.post", n=1) == "[ok] posted 1"
        assert {"peer_post", "peer_look", "add"} <= set(offered(orders.llm.requests[0]))
        assert await do(agent, "add", a=1, b=2) == '[ok] {"result":3}'
        assert (await last_result(agent)).content == {"result": 3}, "structured content stays JSON"
        assert await do(agent, "fail") == "[error] no such day"
        wrong = await do(agent, "add", a="one", b=2)
        assert wrong.startswith("[error] add was not run. Its arguments are not right: a: must be integer")
        papers = await do(agent, "papers")
        assert papers.startswith(
            "[ok] two papers\n[resource paper: paper://1 (text/plain)]\n[resource paper://2]\nthe sec"
        )


async def test_f5_each_call_has_a_key_of_its_own(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with house_of(log).life(Orders().llm) as agent:
        await is_up(agent, "peer")
        first = await agent.ask(order(("peer.post", {"n": 1}), ("peer.post", {"n": 2})), context="c")
        await agent.ask(order(("peer.post", {"n": 3})), context="c")
        keys = [call["key"] for call in calls(log)]
        assert keys[:2] == [f"c:{first.turn}:1:0", f"c:{first.turn}:1:1"]
        assert len(set(keys)) == 3


def pictures(request: ChatRequest) -> list[ImageBlock]:
    return [block for message in request.messages for block in message.blocks if isinstance(block, ImageBlock)]


async def test_pictures_are_kept_as_artifacts_and_shown_to_the_model(tmp_path: Path) -> None:
    orders = Orders()
    async with house_of(tmp_path / "log").life(orders.llm) as agent:
        await is_up(agent, "peer")
        await agent.ask(order(("picture", {})), context="c")
        result = await last_result(agent)
        [part] = result.parts
        assert isinstance(part, FilePart)
        assert part.media_type == "image/png"
        assert part.artifact is not None
        kept = await agent.services.records.artifact_bytes(part.artifact)
        assert kept is not None
        assert (kept[:4], len(kept)) == (b"\x89PNG", part.size)
        assert result.content == f"[image: image/png, {part.size} bytes]"
        [shown] = pictures(orders.llm.requests[-1])
        assert shown.source == kept
        await agent.ask(order(("add", {"a": 1, "b": 1})), context="c")
        first, *_, last = [request.messages for request in orders.llm.requests if pictures(request)]
        assert same_objects(first[-2:-1], last[len(first) - 2 : len(first) - 1]), "made once"


async def test_a_model_that_takes_no_pictures_is_shown_none(tmp_path: Path) -> None:
    """The context would else be refused from its first picture on."""
    orders = Orders()
    seen: list[int] = []

    def answer(request: ChatRequest) -> Said:
        seen.append(len(pictures(request)))
        return PermanentError("400: no images") if pictures(request) else orders._answer(request)

    async with house_of(tmp_path / "log").life(StrictLLM(answer=answer)) as agent:
        await is_up(agent, "peer")
        ended = await agent.ask(order(("picture", {})), context="c")
        assert ended.state == "completed", ended.reason
        assert "image/png" in ended.text
        assert (await agent.ask(order(("add", {"a": 1, "b": 1})), context="c")).state == "completed"
        assert seen == [0, 1, 0, 0, 0]


async def test_real_servers_work_for_a_model(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("größer")
    given = servers(
        {"name": "files", "command": npm("filesystem", str(tmp_path))},
        {"name": "time", "command": python("mcp_server_time")},
        {"name": "every", "command": npm("everything")},
    )
    async with House(mcp__servers=given).life(Orders().llm) as agent:
        await is_up(agent, "files", "time", "every")
        assert "größer" in await do(agent, "read_text_file", path=str(tmp_path / "note.txt"))
        wrong = await do(agent, "read_text_file", path="/etc/hostname")
        assert wrong.startswith("[error]")
        assert "outside" in wrong
        zones = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
        assert "21:00" in await do(agent, "convert_time", **zones)
        assert "echo" in agent.services.box.read_only or await do(agent, "echo", message="hi") == "[ok] Echo: hi"
        assert "temperature" in await do(agent, "get-structured-content", location="Chicago")
        assert isinstance((await last_result(agent)).content, dict)


async def test_names_that_collide_are_told_apart_by_their_server(tmp_path: Path) -> None:
    """The daemon's own keeps its name, and so do tools that only one server has."""
    given = servers(
        {"name": "one", "command": peer(tmp_path / "one")}, {"name": "two", "command": peer(tmp_path / "two")}
    )
    house, orders = House(mcp__servers=given), Orders()
    async with house.life(orders.llm) as agent:
        await is_up(agent, "one", "two")
        assert await do(agent, "post", n=1) == '[ok] {"tool":"post","saw":{"n":1}}', "a tool in Python"
        assert await do(agent, "two.post", n=2) == "[ok] posted 2"
        assert [call["n"] for call in calls(tmp_path / "two")] == [2]
        assert calls(tmp_path / "one") == []
        assert {"post", "one_post", "two_post", "one_add", "two_add"} <= set(offered(orders.llm.requests[0]))


# F45


@pytest.mark.parametrize(
    ("narrowed", "sender"),
    [
        ({"agent__tools__mcp": "[look]"}, OPERATOR),
        ({"tools__disabled": "[peer.post, put]"}, OPERATOR),
        ({"tools__grants": "{user: [look, 'plan.*']}"}, Principal("ann")),
        ({}, Principal("anonymous", "anonymous")),
    ],
)
async def test_f45_a_tool_that_is_not_granted_is_neither_offered_nor_run(
    tmp_path: Path, narrowed: dict[str, Any], sender: Principal
) -> None:
    log, orders = tmp_path / "log", Orders()
    house = house_of(log, **narrowed)
    house.hands.tools = list  # type: ignore[method-assign]  # its own `post` would be another one
    async with house.life(orders.llm) as agent:
        await is_up(agent, "peer")
        for name in ("post", "peer.post", "put"):
            ended = await agent.ask(order((name, {"n": 1})), context="c", principal=sender)
            assert "[error] there is no tool" in ended.text
        assert calls(log) == []
        assert not {"post", "peer_post", "put"} & set(offered(orders.llm.requests[0]))
        assert ("look" in offered(orders.llm.requests[0])) == (sender.role != "anonymous")


# Death, slowness, change


@pytest.mark.crash
async def test_a_server_that_is_killed_in_the_middle_leaves_an_error_and_the_turn_goes_on(tmp_path: Path) -> None:
    log, orders = tmp_path / "log", Orders()
    async with house_of(log).life(orders.llm) as agent:
        await is_up(agent, "peer")
        (tmp_path / "log.hold").touch()
        sent = await agent.send(order(("peer.post", {"n": 1})), context="c")
        await until(lambda: calls(log))
        os.kill(calls(log)[0]["pid"], signal.SIGKILL)
        ended = await agent.wait(sent.task.id)
        assert ended.state == "completed"
        assert "SIGKILL" in ended.text
        assert "not known whether the call took effect" in ended.text
        before = prefix(orders.llm.requests[-1])
        down = await do(agent, "peer.post", n=2)
        assert down.startswith("[error] the MCP server 'peer': its process got SIGKILL. The call was not run.")
        assert prefix(orders.llm.requests[-1]) == before, "its tools stay offered while it is away"
        (tmp_path / "log.hold").unlink()
        await is_up(agent, "peer")
        assert await do(agent, "peer.post", n=3) == "[ok] posted 3"
        assert prefix(orders.llm.requests[-1]) == before, "and come back as they were"
        assert [call["n"] for call in calls(log)] == [1, 3]


@pytest.mark.crash
async def test_a_web_server_that_is_killed_in_the_middle_leaves_an_error_and_the_turn_goes_on(tmp_path: Path) -> None:
    with WebPeer(tmp_path / "log") as web:
        async with House(mcp__servers=servers({"name": "web", "url": web.url})).life(Orders().llm) as agent:
            await is_up(agent, "web")
            (tmp_path / "log.hold").touch()
            sent = await agent.send(order(("web.post", {"n": 1})), context="c")
            await until(lambda: calls(web.log))
            web.kill()
            ended = await agent.wait(sent.task.id)
            assert (ended.state, "[error]" in ended.text) == ("completed", True)
            (tmp_path / "log.hold").unlink()
            web.start()
            await until(lambda: agent.services.servers.status()[0]["state"] == "down")
            await is_up(agent, "web")
            assert await do(agent, "web.post", n=2) == "[ok] posted 2"


@pytest.mark.crash
async def test_f50_a_slow_server_delays_no_other_context_and_no_start(tmp_path: Path) -> None:
    log = tmp_path / "log"
    given = servers(
        {"name": "peer", "command": peer(log)},
        {"name": "mute", "command": ("sleep", "600")},
        {"name": "nobody", "url": "http://127.0.0.1:9/mcp"},
    )
    (tmp_path / "log.hold").touch()
    async with House(mcp__servers=given).life(Orders().llm) as agent:
        assert await do(agent, "look", context="before", n=0) == '[ok] {"tool":"look","saw":{"n":0}}'
        await is_up(agent, "peer")
        slow = await agent.send(order(("peer.post", {"n": 1})), context="slow")
        await until(lambda: calls(log))
        os.kill(calls(log)[0]["pid"], signal.SIGSTOP)
        for n in range(3):
            assert await do(agent, "memory.set", context=f"c{n}", key=f"k{n}", value=n)
        assert not (await agent.services.inbox.task(slow.task.id)).is_settled
        assert await agent.cancel(slow.task.id), "and a call under way can be given up"
        assert (await agent.wait(slow.task.id)).end_state == "cancelled"
        states = {one["name"]: one["state"] for one in agent.services.servers.status()}
        assert states == {"peer": "up", "mute": "connecting", "nobody": "down"}


async def test_a_call_that_takes_too_long_is_an_error_that_the_model_reads(tmp_path: Path) -> None:
    log = tmp_path / "log"
    (tmp_path / "log.hold").touch()
    given = servers({"name": "peer", "command": peer(log), "timeout": "5s"})
    async with House(mcp__servers=given).life(Orders().llm) as agent:
        await is_up(agent, "peer")
        late = await do(agent, "peer.post", n=1)
        assert late.startswith("[error] the MCP server 'peer': it did not answer within 5 s. It is not known whether")


async def test_a_changed_list_shows_in_the_next_request(tmp_path: Path) -> None:
    """Until it changes the prefix keeps its bytes; what a list brings is offered and can be called."""
    orders = Orders()
    async with house_of(tmp_path / "log").life(orders.llm) as agent:
        await is_up(agent, "peer")
        await do(agent, "add", a=1, b=1)
        await do(agent, "add", a=2, b=2)
        assert len({prefix(request) for request in orders.llm.requests}) == 1
        assert "grown" not in offered(orders.llm.requests[-1])
        await do(agent, "grow", name="grown")
        await until(lambda: agent.services.box.find("grown") is not None)
        assert await do(agent, "grown") == "[ok] grown"
        assert "grown" in offered(orders.llm.requests[-1])
        event = await agent.events.wait_event("prompt.changed", context="c")
        assert event.data["segment"]


# Crashes of the daemon


@pytest.mark.parametrize(
    ("tool", "state", "runs"), [("peer.post", "unknown", 1), ("peer.put", "", 2), ("peer.look", "", 2)]
)
async def test_f3_f5_a_call_that_a_crash_cut_off_is_run_again_only_if_it_may_be(
    tmp_path: Path, tool: str, state: str, runs: int
) -> None:
    """By what the server says of the tool, under the same key; the second life begins before the server is up."""
    log = tmp_path / "log"
    house = house_of(log)
    (tmp_path / "log.hold").touch()
    async with house.life(Orders().llm) as agent:
        await is_up(agent, "peer")
        sent = await agent.send(order((tool, {"n": 1})), context="c")
        await until(lambda: calls(log))
        await house.end(agent)
    (tmp_path / "log.hold").unlink()
    async with house.life(Orders().llm) as agent:
        ended = await agent.wait(sent.task.id)
        assert ended.state == "completed"
        [result] = await results(agent, "c")
        assert result.state == state
        noted = calls(log)
        assert len(noted) == runs
        assert len({call["key"] for call in noted}) == 1
        assert len({call["pid"] for call in noted}) == runs, "each life has a child of its own"


# Settings


async def test_a_required_server_that_does_not_come_up_is_named() -> None:
    given = servers({"name": "gone", "command": ("/nowhere",), "required": True}, {"name": "x", "command": ("/y",)})
    with pytest.raises(RequiredServerDown, match="required MCP servers did not come up: gone: '/nowhere' cannot be"):
        async with House(mcp__servers=given).life(StrictLLM("never")):
            pass


async def test_a_required_server_is_there_with_its_tools_at_the_start(tmp_path: Path) -> None:
    given = servers({"name": "peer", "command": peer(tmp_path / "log"), "required": True})
    async with House(mcp__servers=given).life(Orders().llm) as agent:
        assert await do(agent, "peer.post", n=1) == "[ok] posted 1"


async def test_a_reload_starts_and_ends_servers_by_what_changed(tmp_path: Path) -> None:
    one, two = ({"name": name, "command": peer(tmp_path / name)} for name in ("one", "two"))
    async with House(mcp__servers=servers(one)).life(Orders().llm) as agent:
        await is_up(agent, "one")
        await do(agent, "one.post", n=1)
        await agent.reload(settings_of(mcp__servers=servers(one, two)))
        await is_up(agent, "one", "two")
        await do(agent, "one.post", n=2)
        await do(agent, "two.post", n=2)
        assert len({call["pid"] for call in calls(tmp_path / "one")}) == 1, "what did not change goes on"
        await agent.reload(settings_of(mcp__servers=servers(two)))
        assert "[error] there is no tool" in await do(agent, "one.post", n=3)
        assert [one["name"] for one in agent.services.servers.status()] == ["two"]
        status = await agent.command("status", context="c")
        assert status["servers"][0]["tools"] > 5
        await agent.reload(settings_of())
        assert agent.services.servers.status() == []
        await agent.reload(settings_of(mcp__servers=servers(two)))
        await is_up(agent, "two")
        assert await do(agent, "two.post", n=4) == "[ok] posted 4", "what comes back is offered again"


async def test_a_reload_brings_the_first_server(tmp_path: Path) -> None:
    async with House().life(Orders().llm) as agent:
        assert agent.services.servers.status() == []
        await agent.reload(settings_of(mcp__servers=servers({"name": "peer", "command": peer(tmp_path / "log")})))
        await is_up(agent, "peer")
        assert await do(agent, "peer.post", n=1) == "[ok] posted 1"


@pytest.mark.parametrize(
    ("people", "answer", "told"),
    [(True, '{"colour": "red"}', "[ok] accept red"), (True, "No.", "[ok] decline"), (False, "", "")],
)
async def test_server_that_wants_to_know_something_asks_a_person(
    tmp_path: Path, people: bool, answer: str, told: str
) -> None:
    """A question of a call in the middle of it: its answer is data by the server's schema, or no."""
    async with house_of(tmp_path / "log").life(Orders().llm, people=people) as agent:
        await is_up(agent, "peer")
        sent = await agent.send(order(("ask", {})), context="c")
        if people:
            asked = await agent.wait_or_ask(sent.task.id)
            assert isinstance(asked, Wait)
            assert asked.question == "The server peer asks: Which colour?"
            with pytest.raises(ValueError, match="JSON Schema"):
                await agent.answer(sent.task.id, "red")
            await agent.answer(sent.task.id, answer)
        said = (await agent.wait(sent.task.id)).text
        assert said == told if people else "accept" not in said
