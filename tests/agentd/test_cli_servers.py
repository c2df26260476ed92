"""`agentd` with MCP servers: exit code 6, a one-shot prompt that has their tools, reload by signal, a daemon that is
killed in the middle of a call."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from tests.agentd.commands import Process, agentd, stored, write_agent
from tests.agentd.mcp.peers import WebPeer, calls, is_alive, peer

PATIENCE = 30.0


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"calls": [{"name": name, "arguments": arguments}]}


def until(holds: Callable[[], Any]) -> None:
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def server_of(log: Path, **given: Any) -> dict[str, Any]:
    return {"servers": [{"name": "peer", "command": list(peer(log)), **given}]}


def test_a_required_server_that_is_not_there_ends_with_6(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    gone = {"servers": [{"name": "gone", "command": ["/nowhere"], "required": True}]}
    file = write_agent(tmp_path, {"turns": ["never said"]}, mcp=gone)
    assert agentd("-c", file, "--prompt", "Hello") == 6
    out, err = capfd.readouterr()
    assert out == ""
    plain = [line for line in err.splitlines() if not line.startswith("{")]
    assert plain == [
        "agentd: required MCP servers did not come up: gone: '/nowhere' cannot be started: No such file or directory"
    ]


def test_a_required_server_has_its_timeout_to_come_up(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    slow = {"servers": [{"name": "slow", "url": "http://127.0.0.1:9/mcp", "required": True, "timeout": "300ms"}]}
    file = write_agent(tmp_path, {"turns": ["never said"]}, mcp=slow)
    began = time.monotonic()
    assert agentd("-c", file, "--prompt", "Hello") == 6
    assert 0.3 < time.monotonic() - began < 20
    assert "slow: it cannot be reached" in capfd.readouterr().err


@pytest.mark.crash
def test_a_one_shot_prompt_has_the_tools_of_its_servers_and_leaves_no_process(tmp_path: Path) -> None:
    log = tmp_path / "log"
    file = write_agent(tmp_path, {"turns": [call("post", n=7), "Posted."]}, mcp=server_of(log))
    with Process(tmp_path, "-c", file, "--prompt", "Post it.") as process:
        code, out = process.end()
    assert (code, out) == (0, "Posted.\n"), process.said
    [noted] = calls(log)
    assert noted["n"] == 7
    assert not is_alive(noted["pid"])


@pytest.mark.crash
def test_sighup_brings_a_server_and_takes_it_away(tmp_path: Path) -> None:
    log = tmp_path / "log"
    file = write_agent(tmp_path, {"turns": ["x"]}, store=stored(tmp_path))
    plain = yaml.safe_load(file.read_text())
    with Process(tmp_path, "-c", file) as process:
        process.event("lifecycle.started")
        file.write_text(yaml.safe_dump({**plain, "mcp": server_of(log)}))
        process.signal(signal.SIGHUP)
        assert process.event("lifecycle.reloaded")["keys"] == ["mcp.servers"]
        process.line(message="the MCP server peer is up (protocol 2026-07-28)")
        file.write_text(yaml.safe_dump(plain))
        process.signal(signal.SIGHUP)
        process.line(message="the MCP server peer is down: this process lets go of it")
        process.signal(signal.SIGTERM)
        assert process.end()[0] == 0


@pytest.mark.crash
@pytest.mark.parametrize(("tool", "runs"), [("post", 1), ("put", 2)])
def test_f3_f5_a_daemon_that_is_killed_in_a_call_repeats_only_what_may_be_repeated(
    tmp_path: Path, tool: str, runs: int
) -> None:
    log = tmp_path / "log"
    log.with_suffix(".hold").touch()
    with WebPeer(log) as web:
        until(lambda: web.log.with_suffix(".err").exists() and "running" in web.log.with_suffix(".err").read_text())
        file = write_agent(
            tmp_path, {"turns": [call(tool, n=1), "Done."], "repeat": False},
            mcp={"servers": [{"name": "web", "url": web.url, "required": True}]}, store=stored(tmp_path),
        )  # fmt: skip
        with Process(tmp_path, "-c", file, "--prompt", "Go.") as process:
            until(lambda: calls(log))
            process.signal(signal.SIGKILL)
            process.end()
        log.with_suffix(".hold").unlink()
        (tmp_path / "script.yaml").write_text(yaml.safe_dump({"turns": ["Taken up."], "repeat": True}))
        with Process(tmp_path, "-c", file) as process:
            process.event("turn.end")
            process.signal(signal.SIGTERM)
            assert process.end()[0] == 0
            unknown = [line for line in process.log if line.get("event") == "effect.unknown"]
        noted = calls(log)
        assert [one["tool"] for one in noted] == [tool] * runs
        assert len({one["key"] for one in noted}) == 1
        assert len(unknown) == (runs == 1)


def test_capabilities_name_the_servers(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    servers = [
        {"name": "files", "command": ["files", "/srv"], "required": True},
        {"name": "web", "url": "http://x/mcp"},
    ]
    file = write_agent(tmp_path, {"turns": ["x"]}, mcp={"servers": servers})
    assert agentd("capabilities", "-c", file) == 0
    lines = [" ".join(line.split()) for line in capfd.readouterr().out.splitlines()]
    assert lines[lines.index("MCP servers") + 1 :][:2] == ["files files /srv; required", "web http://x/mcp"]
    assert agentd("capabilities", "--json", "-c", file) == 0
    assert json.loads(capfd.readouterr().out)["servers"][1] == {
        "name": "web", "reached": "http://x/mcp", "required": False
    }  # fmt: skip
    assert agentd("capabilities") == 0
    assert "MCP servers" not in capfd.readouterr().out
