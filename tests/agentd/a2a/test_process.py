"""`agentd` as a process behind its listener: the kill in the middle of a task, the drain, and the client commands."""

import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.agentd.a2a.serving import frames, message, text_of
from tests.agentd.commands import AGENTD, PATIENCE, Process, clean_environment, stored, write_agent

LISTENING = {"a2a": {"listen": "127.0.0.1:0"}}


def agent(folder: Path, turns: list[Any], **sections: Any) -> Path:
    return write_agent(folder, {"turns": turns, "repeat": True}, store=stored(folder), **{**LISTENING, **sections})


def url_of(process: Process) -> str:
    while True:
        line = process.line()
        if "url" in line:
            return str(line["url"])


def rpc(url: str, method: str, params: Any) -> dict[str, Any]:
    asked = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    told: dict[str, Any] = httpx.post(url, json=asked, timeout=PATIENCE).json()
    return told


def say(folder: Path, *args: str, stdin: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*AGENTD, *args], input=stdin, capture_output=True, text=True, timeout=PATIENCE,
        env=clean_environment(folder, environ),
    )  # fmt: skip


@pytest.mark.crash
def test_f1_kill_in_the_middle_of_a_task_leaves_none_working_for_ever(tmp_path: Path) -> None:
    """The message is accepted, the process is killed; the next life takes the task up, and its stream goes on."""
    file = agent(tmp_path, ["after all"])
    point = {"AGENTD_TEST": "1", "AGENTD_KILL_AT": "round.before_call"}
    with Process(tmp_path, "-c", file, **point) as first:
        url = url_of(first)
        with pytest.raises(httpx.TransportError):
            rpc(url, "SendMessage", message("survive", "m1", contextId="c"))
        assert first.end()[0] == -signal.SIGKILL
    with Process(tmp_path, "-c", file) as second:
        url = url_of(second)
        again = rpc(url, "SendMessage", message("survive", "m1", contextId="c"))["result"]["task"]
        assert again["status"]["state"] == "TASK_STATE_COMPLETED"
        assert text_of(again) == "after all"
        listed = rpc(url, "ListTasks", {})["result"]
        assert [task["id"] for task in listed["tasks"]] == [again["id"]]
        second.signal(signal.SIGTERM)
        assert second.end()[0] == 0


def test_f48_sigterm_finishes_and_closes_the_door(tmp_path: Path) -> None:
    """A stream that is open when the signal comes is told the end of its task."""
    file = agent(tmp_path, [{"text": "finished", "delay": 1.5}])
    with Process(tmp_path, "-c", file) as process:
        url = url_of(process)
        asked = {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": message()}
        with httpx.stream("POST", url, json=asked, timeout=PATIENCE) as stream:
            process.event("turn.round")
            process.signal(signal.SIGTERM)
            told = frames(stream.read().decode())
        assert told[-1][1]["result"]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
        assert process.end()[0] == 0
        with pytest.raises(httpx.ConnectError):
            httpx.get(url)


def test_linter_of_a2a_servers_gives_its_best_grade(tmp_path: Path) -> None:
    """Card and live behaviour, by a program that is not ours."""
    with Process(tmp_path, "-c", agent(tmp_path, ["x"])) as process:
        linter = [str(Path(sys.executable).with_name("a2a-lint")), "--live", url_of(process)]
        told = subprocess.run(
            linter, capture_output=True, text=True, timeout=PATIENCE, env=clean_environment(tmp_path, {})
        )  # fmt: skip
    assert "GRADE A — 0 error(s), 0 warning(s)" in told.stdout, told.stdout + told.stderr
    assert "SSE event(s)" in told.stdout


def test_address_that_is_taken_is_said(tmp_path: Path) -> None:
    file = agent(tmp_path, ["x"])
    with Process(tmp_path, "-c", file) as process:
        taken = url_of(process).removeprefix("http://")
        other = tmp_path / "other"
        other.mkdir()
        found = say(tmp_path, "-c", str(agent(other, ["x"], a2a={"listen": taken})))
        assert found.returncode == 1
        assert f"agentd: [Errno 98] a2a.listen: {taken} cannot be had" in found.stderr


def test_client_commands_talk_to_a_running_agent(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("sesame")
    rules = [{"id": "me", "match": {"bearer": {"file": str(token)}}, "role": "user"}]
    file = agent(tmp_path, ["It is nine.", "Still nine."], a2a={"listen": "127.0.0.1:0", "principals": rules})
    with Process(tmp_path, "-c", file) as process:
        url = url_of(process)
        me = {"A2A_TOKEN": "sesame"}
        chat = say(tmp_path, "chat", "--url", url, stdin="What time is it?\nand now?\n/nope\n/quit\n", **me)
        assert chat.stdout.splitlines() == [
            "It is nine.", "Still nine.", "unknown command /nope; /new begins another conversation, /quit ends.",
        ]  # fmt: skip
        (context,) = re.findall(r"conversation (\S+)", chat.stderr)
        listed = say(tmp_path, "tasks", "list", "--url", url, "--context", context, **me).stdout.splitlines()
        assert [line.split()[1] for line in listed] == ["completed", "completed"]
        id = listed[-1].split()[0]
        shown = say(tmp_path, "tasks", "show", id, "--url", url, **me).stdout
        assert (
            shown
            == f"{id}: completed, conversation {context}\nyou: What time is it?\nagent: It is nine.\nIt is nine.\n"
        )
        over = say(tmp_path, "tasks", "cancel", id, "--url", url, **me)
        assert (over.returncode, "has ended as completed" in over.stderr) == (1, True)
        stranger = say(tmp_path, "tasks", "list", "--url", url)
        assert stranger.returncode == 1
        assert "401" in stranger.stderr
        assert "sesame" not in chat.stderr + stranger.stderr
    nobody = say(tmp_path, "tasks", "list", "--url", url)
    assert (nobody.returncode, nobody.stderr.startswith("agentd: http://127.0.0.1:")) == (1, True)
