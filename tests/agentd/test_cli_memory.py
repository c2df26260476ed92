"""`agentd memory`: values in and out as JSON, on a store that no daemon holds."""

import asyncio
import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentd import cli
from agentd.config import load
from agentd.runtime.daemon import Daemon
from tests.agentd.daemon.model import ObedientLLM, task

Run = Callable[..., tuple[int, Any, str]]


@pytest.fixture
def sound(tmp_path: Path) -> Path:
    file = tmp_path / "a.yaml"
    model = "intelligence: {endpoints: ['replay:x'], model: m}"
    file.write_text(f"agent: {{name: desk}}\n{model}\nstore: {{path: {tmp_path}/store}}\n")
    return file


@pytest.fixture
def memory(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, sound: Path) -> Run:
    """Runs `agentd memory ...`; exit code, what standard output holds as JSON, standard error."""
    for name in [name for name in os.environ if name.startswith("AGENTD_")]:
        monkeypatch.delenv(name)

    def run(operation: str, *args: str) -> tuple[int, Any, str]:
        code = cli.run(["memory", operation, "-c", str(sound), *args])
        out, err = capfd.readouterr()
        return code, json.loads(out) if out else None, err

    return run


def test_values_come_back_as_they_were_set(memory: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    code, told, err = memory("set", "colour", '{"of": ["shed", "für"], "n": 1.5}')
    assert (code, err) == (0, "")
    assert (told["ok"], told["key"], told["meta"]["seq"], told["meta"]["by"]) == (True, "colour", 1, "operator")
    assert told["meta"]["ttl_ms"] is None
    code, told, err = memory("get", "colour")
    assert (code, told["found"], told["value"]) == (0, True, {"of": ["shed", "für"], "n": 1.5})
    monkeypatch.setattr("sys.stdin", io.StringIO('"from a pipe"'))
    assert memory("set", "colour", "-", "--ttl", "5m", "--if-seq", "1")[1]["meta"]["ttl_ms"] == 300_000
    assert memory("get", "colour")[1]["value"] == "from a pipe"
    assert memory("get", "shape") == (1, {"found": False, "key": "shape", "expired": False}, "")
    assert memory("delete", "colour") == (0, {"ok": True, "key": "colour", "found": True}, "")
    assert memory("delete", "colour") == (0, {"ok": True, "key": "colour", "found": False}, "")
    assert memory("get", "colour")[0] == 1


def test_senders_may_have_a_memory_of_their_own(memory: Run, sound: Path) -> None:
    code, _, err = memory("get", "colour", "--principal", "ann")
    assert (code, "only where a2a.scope is principal" in err) == (2, True)
    with sound.open("a") as file:
        file.write("a2a: {scope: principal}\n")
    assert memory("set", "colour", '"red"', "--principal", "ann")[0] == 0
    assert memory("get", "colour", "--principal", "ann")[1]["value"] == "red"
    assert memory("list", "--principal", "bob")[1]["keys"] == memory("list")[1]["keys"] == []
    assert memory("delete", "colour", "--principal", "ann")[1]["found"] is True


def test_memory_that_is_with_a_server_is_not_here(memory: Run, sound: Path) -> None:
    with sound.open("a") as file:
        file.write("mcp: {servers: [{name: graph, command: [x]}]}\n")
        file.write("tools: {overrides: {memory: {preset: knowledge-graph, server: graph}}}\n")
    code, _, err = memory("get", "colour")
    assert (code, "is with an MCP server" in err) == (1, True)


def test_keys_are_listed_a_page_at_a_time(memory: Run) -> None:
    for key in ("b/1", "a", "b/2", "b/3"):
        memory("set", key, "1")
    assert memory("list") == (0, {"keys": ["a", "b/1", "b/2", "b/3"], "truncated": False}, "")
    page = memory("list", "--prefix", "b/", "--limit", "2")[1]
    assert page == {"keys": ["b/1", "b/2"], "truncated": True, "next": "b/2"}
    assert memory("list", "--prefix", "b/", "--after", page["next"])[1] == {"keys": ["b/3"], "truncated": False}


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (("set", "k", "no json"), 2, "VALUE is JSON"),
        (("set", "_k", "1"), 1, "_"),
        (("set", "k", "1", "--ttl", "soon"), 1, "a ttl is a duration"),
        (("set", "k", "1", "--if-seq", "7"), 1, "'k' is at seq 0, not 7"),
        (("set", "k"), 2, "Missing argument 'VALUE'"),
        (("list", "--limit", "0"), 2, "--limit"),
        (("get", "k", "--agent.nam", "x"), 2, "did you mean agent.name?"),
    ],
)
def test_what_is_refused_is_said_in_one_line(memory: Run, args: tuple[str, ...], code: int, said: str) -> None:
    memory("set", "other", "1")
    found, out, err = memory(*args)
    assert (found, out) == (code, None)
    assert said in err
    assert err.count("\n") == 1


def test_only_set_makes_a_store(memory: Run, tmp_path: Path, sound: Path) -> None:
    for args in (("get", "k"), ("list",), ("delete", "k")):
        code, out, err = memory(*args)
        assert (code, out) == (8, None)
        assert err.startswith(f"agentd: there is no store at {tmp_path}/store/agentd.db")
    assert not (tmp_path / "store").exists()
    assert memory("set", "k", "1")[0] == 0
    sound.write_text(sound.read_text().replace("{path: ", "{kind: memory} #"))
    code, out, err = memory("list")
    assert (code, out) == (8, None)
    assert err == "agentd: store.kind is memory, which ends with its process: there is nothing to change\n"


def test_a_daemon_and_the_command_see_the_same_and_never_at_once(memory: Run, sound: Path) -> None:
    order = task(
        "all",
        [{"tool": "memory.get", "args": {"key": "mine"}}],
        [{"tool": "memory.set", "args": {"key": "its", "value": [1]}}],
    )
    memory("set", "mine", '"set before the first start"')

    async def life(*, fresh: bool = False) -> None:
        async with await Daemon.open(load([sound], environ={}), model=ObedientLLM(), fresh=fresh) as agent:
            (started,) = [one for one in agent.events.since(0) if one.name == "lifecycle.started"]  # type: ignore[union-attr]
            starts.append(started.data["starts"])
            await agent.ask(order)
            refused.append(await asyncio.to_thread(memory, "get", "mine"))

    refused: list[tuple[int, Any, str]] = []
    starts: list[int] = []
    asyncio.run(life())
    code, out, err = refused[0]
    assert (code, out) == (8, None)
    assert f"process {os.getpid()} on " in err
    assert memory("get", "its")[1]["value"] == [1]
    assert memory("list")[1]["keys"] == ["its", "mine"]
    asyncio.run(life())
    assert starts[1] == starts[0] + 1  # the commands in between are no starts
    asyncio.run(life(fresh=True))
    assert memory("list")[1]["keys"] == ["its"]  # a new generation adopts nothing, whoever wrote it
