"""Questions over the lives of a real process, and answered from the command line."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.agentd.a2a.serving import message, text_of
from tests.agentd.a2a.test_process import LISTENING, rpc, say, url_of
from tests.agentd.commands import Process, agentd, stored, write_agent

QUESTION = {"question": "Which colour?", "options": ["red", "blue"]}
RULES = [
    {"when": "paint", "turns": [{"calls": [{"name": "ask_human", "arguments": QUESTION}]}, "Painted."]},
    {"when": "keep", "turns": [{"calls": [{"name": "memory_set", "arguments": {"key": "k", "value": 1}}]}, "Kept."]},
    {"when": "hurry", "turns": [
        {"calls": [{"name": "ask_human", "arguments": {"question": "Now?", "timeout": "1s"}}]}, "Went on."]},
]  # fmt: skip


def agent(folder: Path, **sections: Any) -> Path:
    return write_agent(
        folder,
        {"rules": RULES},
        store=stored(folder),
        **{"agent": {"preflight": "never", "approval": ["memory.*"]}, **LISTENING, **sections},
    )


def asks(url: str, text: str, id: str = "m1") -> dict[str, Any]:
    """Send a message whose task asks something: the task."""
    task: dict[str, Any] = rpc(url, "SendMessage", message(text, id, contextId="c"))["result"]["task"]
    assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    return task


@pytest.mark.crash
@pytest.mark.parametrize(("text", "answer", "end"), [("paint it", "red", "Painted."), ("keep it", "yes", "Kept.")])
def test_f47_gate_survives_kills_is_asked_once_and_answered_once(
    tmp_path: Path, text: str, answer: str, end: str
) -> None:
    """Killed while it waits, and again behind the commit of the answer."""
    file = agent(tmp_path)
    with Process(tmp_path, "-c", file) as first:
        asked = asks(url_of(first), text)
        first.signal(signal.SIGKILL)
        assert first.end()[0] == -signal.SIGKILL
    with Process(tmp_path, "-c", file, AGENTD_TEST="1", AGENTD_KILL_AT="commit:1") as second:
        url = url_of(second)
        (listed,) = rpc(url, "ListTasks", {"status": "TASK_STATE_INPUT_REQUIRED"})["result"]["tasks"]
        assert listed["id"] == asked["id"]
        assert rpc(url, "GetTask", {"id": asked["id"]})["result"]["status"] == asked["status"]
        params = message(answer, "a1", contextId="c", taskId=asked["id"])
        with pytest.raises(Exception, match=r"disconnected|reset|refused|peer"):
            # The turn that has its answer commits its result, and that is the end of this life.
            rpc(url, "SendMessage", params)
        assert second.end()[0] == -signal.SIGKILL
    with Process(tmp_path, "-c", file) as third:
        url = url_of(third)
        again = rpc(url, "SendMessage", params)["result"]["task"]
        assert (again["id"], again["status"]["state"]) == (asked["id"], "TASK_STATE_COMPLETED")
        assert text_of(again) == end
        third.signal(signal.SIGTERM)
        assert third.end()[0] == 0


def test_f48_signal_ends_a_process_that_waits_for_a_person_at_once(tmp_path: Path) -> None:
    file = agent(tmp_path)
    with Process(tmp_path, "-c", file) as first:
        task = asks(url_of(first), "paint it")["id"]
        begun = time.monotonic()
        first.signal(signal.SIGTERM)
        assert first.end()[0] == 0
        assert time.monotonic() - begun < 15, "the drain is given 25 s, and needs none of them"
        assert first.log[-1]["event"] == "lifecycle.stopped"
    with Process(tmp_path, "-c", file) as second:
        done = rpc(url_of(second), "SendMessage", message("blue", "a1", taskId=task))["result"]["task"]
        assert text_of(done) == "Painted."


def test_questions_are_answered_with_the_commands(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def run(*args: str) -> tuple[int, str, str]:
        code = agentd(*args, "--url", url)
        return code, *capfd.readouterr()

    with Process(tmp_path, "-c", agent(tmp_path)) as process:
        url = url_of(process)
        task = asks(url, "paint it")["id"]
        assert "input-required" in run("tasks", "list")[1]
        assert "? Which colour? (red / blue)" in run("tasks", "show", task)[1]
        code, _, errors = run("tasks", "answer", task, "green")
        assert (code, "'red', 'blue'" in errors) == (1, True)
        assert run("tasks", "answer", task, "[1", "--json")[0] == 2
        assert run("tasks", "answer", task, "blue")[0] == 0
        process.event("turn.end", state="completed")
        code, _, errors = run("tasks", "answer", task, "blue")
        assert (code, "has ended as completed" in errors) == (1, True)
        (said,) = re.findall(r"agent: (Which.*)\nyou: (.*)\n", run("tasks", "show", task)[1])
        assert said == ("Which colour?", "blue")
        refused = asks(url, "keep it", "m3")["id"]
        assert run("tasks", "answer", refused, '{"approved": false, "reason": "not today"}', "--json")[0] == 0
        process.event("turn.end", state="completed")


def test_chat_over_the_wire_answers_and_copes_with_a_question_that_is_over(tmp_path: Path) -> None:
    with Process(tmp_path, "-c", agent(tmp_path)) as process:
        url = url_of(process)
        chat = say(tmp_path, "chat", "--url", url, stdin="paint it\ngreen\nred\nkeep it\nno, never\n/quit\n")
        said = chat.stdout.splitlines()
        assert said[0] == "? Which colour? (red / blue)", chat.stderr
        assert "'green' is none of the options" in said[1]
        assert said[2] == "Painted."
        assert said[3].startswith("? May memory_set be run")
        assert said[-1] == "Kept.", "the model was told of the refusal, and says what its script says"
        late = Process(tmp_path, "chat", "--url", url, stdin=subprocess.PIPE)
        with late:
            late.say("hurry")
            assert late.printed() == "? Now?\n"
            process.event("gate.closed", how="over")
            process.event("turn.end")
            late.say("yes")
            assert "does not wait" in (told := late.printed()) or "has ended" in told
            assert late.printed() == "Went on.\n"
            late.say("paint it")
            assert late.printed() == "? Which colour? (red / blue)\n"


def test_chat_on_a_store_asks_in_the_terminal_and_again_another_day(tmp_path: Path) -> None:
    file = str(agent(tmp_path, a2a={"listen": "off"}))
    first = say(tmp_path, "chat", "-c", file, "--context", "shed", stdin="paint it\ngreen\n")
    assert first.stdout.splitlines()[0] == "? Which colour? (red / blue)", first.stderr
    assert "'green' is none of the options" in first.stdout.splitlines()[1]
    assert "the question stays: go on with --context shed" in first.stderr
    assert first.returncode == 0
    again = say(tmp_path, "chat", "-c", file, "--context", "shed", stdin="blue\npaint it\n/quit\n")
    assert again.stdout.splitlines() == ["? Which colour? (red / blue)", "Painted.", "? Which colour? (red / blue)"]
    assert "the question stays" in again.stderr


def test_chat_goes_on_when_nobody_waits_for_the_answer_any_more(tmp_path: Path) -> None:
    chat = Process(
        tmp_path, "chat", "-c", agent(tmp_path, a2a={"listen": "off"}), "--context", "c", stdin=subprocess.PIPE
    )
    with chat:
        chat.say("hurry")
        assert chat.printed() == "? Now?\n"
        assert chat.printed() == "[nobody waits for the answer any more]\n"
        assert chat.printed() == "Went on.\n"
        chat.say("paint it")
        assert chat.printed() == "? Which colour? (red / blue)\n"


def test_prompt_has_nobody_to_ask(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = agent(tmp_path, a2a={"listen": "off"})
    assert agentd("-c", file, "--prompt", "paint it") == 0
    assert capfd.readouterr().out == "Painted.\n"
    assert agentd("-c", file, "--prompt", "keep it") == 0
    assert capfd.readouterr().out == "Kept.\n"
    assert agentd("memory", "list", "-c", file) == 0
    assert '"k"' not in capfd.readouterr().out


def test_prompt_leaves_a_question_to_another_life(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    more = {"preflight": "never", "ask_human_fallback": "wait"}
    file = agent(tmp_path, a2a={"listen": "off"}, agent=more)
    assert agentd("-c", file, "--prompt", "paint it") == 3
    printed = capfd.readouterr()
    assert (printed.out, "agentd chat --context root`: Which colour?" in printed.err) == ("", True)
    again = say(tmp_path, "chat", "-c", str(file), "--context", "root", stdin="blue\n")
    assert again.stdout.splitlines() == ["? Which colour? (red / blue)", "Painted."]
