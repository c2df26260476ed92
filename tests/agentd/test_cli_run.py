"""`agentd -c FILE`: exit codes, signals, reload, and what is written where."""

import asyncio
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from agentd.runtime.daemon import Daemon
from tests.agentd.commands import Process, agentd, log_of, stored, write_agent

Run = Callable[..., tuple[int, str, str]]
PLAN = {"calls": [{"name": "plan_get", "arguments": {}}]}


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    for name in [name for name in os.environ if name.startswith("AGENTD_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def run(*args: str | Path) -> tuple[int, str, str]:
        code = agentd(*args)
        out, err = capfd.readouterr()
        return code, out, err

    return run


def finish(status: str, **arguments: Any) -> dict[str, Any]:
    return {"calls": [{"name": "finish", "arguments": {"status": status, **arguments}}]}


# Exit codes


@pytest.mark.parametrize(
    ("turns", "flags", "code", "out", "said"),
    [
        (["It is nine."], [], 0, "It is nine.\n", None),
        ([finish("completed", output={"hour": 9})], [], 0, '{"hour":9}\n', None),
        ([finish("completed", output="nine", exit=9)], [], 9, "nine\n", None),
        ([finish("failed", reason="no clock")], [], 3, "", "failed: no clock"),
        ([PLAN], [], 3, "", "loop_detected: "),
        ([PLAN], ["--limits.run.steps", "2"], 3, "", "exhausted_steps: "),
        ([finish("refused", reason="not mine to say")], [], 5, "", "refused: not mine to say"),
        ([PLAN], ["--limits.run.tokens", "10"], 7, "", "exhausted_tokens: "),
        (["x"], ["--intelligence.budget.lifetime_tokens", "10"], 7, "", "refused: "),
        ([{"text": "late", "delay": 60}], ["--limits.run.deadline", "50ms"], 124, "", "deadline: after 0.05 s"),
        ([{"error": "auth"}], [], 1, "", "failed: "),
    ],
    ids=lambda value: None if isinstance(value, list | str) else str(value),
)
def test_exit_code_of_a_prompt_says_how_it_ended(
    run: Run, tmp_path: Path, turns: list[Any], flags: list[str], code: int, out: str, said: str | None
) -> None:
    file = write_agent(tmp_path, {"turns": turns, "repeat": True})
    found, answer, err = run("-c", file, "--prompt", "What time is it?", *flags)
    assert (found, answer) == (code, out)
    log = log_of(err)
    assert [line["event"] for line in log][-2:] == ["lifecycle.draining", "lifecycle.stopped"]
    plain = [line for line in err.splitlines() if not line.startswith("{")]
    assert len(plain) == (said is not None)
    if said is not None:
        assert plain[0].startswith(f"agentd: {said}")


def test_model_that_cannot_be_reached_ends_with_4(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def without_pauses(seconds: float) -> None:
        if seconds < 3:  # longer ones are those of chores
            pauses.append(seconds)
        await asyncio.sleep(0 if seconds < 3 else seconds)

    opened = Daemon.open
    monkeypatch.setattr(Daemon, "open", lambda *args, **named: opened(*args, sleep=without_pauses, **named))
    file = write_agent(tmp_path, {"turns": [{"error": "transient"}], "repeat": True})
    code, out, err = run("-c", file, "--prompt", "Hello")
    assert (code, out) == (4, "")
    assert "agentd: failed: " in err
    assert len(pauses) == 2


def test_an_agent_that_cannot_start_says_why(run: Run, tmp_path: Path) -> None:
    file = write_agent(tmp_path, {})
    (tmp_path / "script.yaml").unlink()
    code, out, err = run("-c", file, "--prompt", "Hello")
    assert (code, out) == (1, "")
    assert err == f"agentd: {tmp_path}/script.yaml cannot be read: No such file or directory\n"
    assert run("-c", file, "--agent.nam", "x")[0] == 2


# What is written


def test_one_shot_without_a_store_writes_nothing(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.chdir(home)
    (tmp_path / "etc").mkdir()
    file = write_agent(tmp_path / "etc", {"turns": ["Hello."]})
    before = sorted(tmp_path.rglob("*"))
    assert run("-c", file, "--prompt", "Hello")[:2] == (0, "Hello.\n")
    assert sorted(tmp_path.rglob("*")) == before
    assert run("-c", file, "--prompt", "Hello", "--store.prefix", "agentd")[0] == 0
    assert (home / ".local/state/agentd/desk/agentd.db").exists()


def test_f51_log_is_json_lines_without_contents_and_secrets(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "hush-token")
    setting = {"name": "memory_set", "arguments": {"key": "hush-key", "value": "hush-value"}}
    turns = [
        {"text": "hush-thought", "calls": [setting]},
        {"calls": [{"name": "plan_create", "arguments": {"goal": "hush-goal", "items": ["hush-item"]}}]},
        {"calls": [{"name": "plan_update", "arguments": {"item": 9, "note": "hush-note"}}]},
        finish("failed", reason="hush-reason"),
    ]
    file = write_agent(
        tmp_path, {"turns": turns}, intelligence={"token": {"env": "TOKEN"}}, store=stored(tmp_path),
        agent={"instruction": "hush-instruction"}, observability={"log_level": "debug"},
    )  # fmt: skip
    code, out, err = run("-c", file, "--prompt", "hush-question")
    assert (code, out) == (3, "")
    log = log_of(err)
    assert "hush" not in json.dumps(log)
    assert err.count("hush") == 1  # the reason, to whoever asked
    assert all({"ts", "level", "logger"} <= line.keys() and ("event" in line) != ("message" in line) for line in log)
    assert [line["seq"] for line in log if "event" in line] == list(range(1, 1 + sum("event" in line for line in log)))
    (end,) = [line for line in log if line.get("event") == "turn.end"]
    assert (end["state"], end["reason"]) == ("failed", "11 characters")
    code, _, err = run("-c", file, "--prompt", "x", "--observability.log_content", "true", "--store.path",
                       str(tmp_path / "other"))  # fmt: skip
    assert "hush-reason" in json.dumps(log_of(err))
    assert "hush-token" not in err
    assert b"hush-token" not in (tmp_path / "store" / "agentd.db").read_bytes()


def test_f54_fresh_adopts_nothing_and_stays(run: Run, tmp_path: Path) -> None:
    setting = {"calls": [{"name": "memory_set", "arguments": {"key": "k", "value": 1}}]}
    script = {"rules": [{"when": "remember", "turns": [setting, "Done."]}, {"when": "count", "text": "Yes."}]}
    file = write_agent(tmp_path, script, store=stored(tmp_path))
    assert run("-c", file, "--prompt", "remember")[:2] == (0, "Done.\n")
    assert run("-c", file, "--prompt", "count", "--fresh")[:2] == (0, "Yes.\n")
    for _ in range(2):
        (told,) = json.loads(run("inspect", "contexts", "-c", file, "--json")[1])
        assert (told["id"], told["turns"]) == ("root", 1)
        assert json.loads(run("memory", "list", "-c", file)[1])["keys"] == []
    survey = json.loads(run("check", "--store", "-c", file, "--json")[1])["store"]
    assert survey["counts"]["1"]["memory"] == 1  # nothing was deleted


def test_work_of_an_earlier_life_is_done_when_idle_ends_it(run: Run, tmp_path: Path) -> None:
    file = write_agent(tmp_path, {"turns": ["First."]}, store=stored(tmp_path))
    assert run("-c", file, "--prompt", "Hello", "--lifecycle.run_until", "idle", "--lifecycle.idle_grace", "10ms")[
        :2
    ] == (0, "First.\n")
    assert run("-c", file, "--lifecycle.run_until", "idle", "--lifecycle.idle_grace", "10ms")[:2] == (0, "")


def test_a_prompt_that_cannot_be_taken_in_is_said(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_agent(tmp_path, {"turns": ["Hello."]}, store=stored(tmp_path))
    code, out, err = run("-c", file, "--prompt", " ")
    assert (code, out) == (1, "")
    assert "agentd: a message needs content" in err
    code, out, err = run("-c", file, "--prompt", "Hello", "--store.min_free", "1000000TB")
    assert (code, out) == (8, "")
    assert "bytes left, less than" in err
    assert "Traceback" not in err


def test_signal_that_comes_while_the_store_is_opened_drains(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def open_under_fire(*args: Any, **named: Any) -> Daemon:
        os.kill(os.getpid(), signal.SIGTERM)
        return await opened(*args, **named)

    opened = Daemon.open
    monkeypatch.setattr(Daemon, "open", open_under_fire)
    file = write_agent(tmp_path, {"turns": ["Hello."]}, store=stored(tmp_path))
    code, out, err = run("-c", file)
    assert (code, out) == (0, "")
    assert [line["event"] for line in log_of(err)] == ["lifecycle.started", "lifecycle.draining", "lifecycle.stopped"]


# Processes


def test_f48_signal_drains_and_a_second_life_goes_on(tmp_path: Path) -> None:
    file = write_agent(tmp_path, {"rules": [{"when": "Hello", "text": "Done."}]}, store=stored(tmp_path))
    with Process(tmp_path, "-c", file) as process:
        process.event("lifecycle.started", starts=1)
        process.signal(signal.SIGTERM)
        assert process.end() == (0, "")
        assert [line["event"] for line in process.log][-2:] == ["lifecycle.draining", "lifecycle.stopped"]
        assert process.said == []


def test_f48_turn_in_hand_finishes_in_a_drain(run: Run, tmp_path: Path) -> None:
    async def signalled(*args: Any, **named: Any) -> Daemon:
        agent = await opened(*args, **named)
        watching.append(asyncio.create_task(signal_within_turn(agent)))
        return agent

    async def signal_within_turn(agent: Daemon) -> None:
        await agent.events.wait_event("turn.round")
        os.kill(os.getpid(), signal.SIGTERM)

    opened, watching = Daemon.open, list[asyncio.Task[None]]()
    file = write_agent(tmp_path, {"turns": [{"text": "Done.", "delay": 0.2}]}, store=stored(tmp_path))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Daemon, "open", signalled)
        code, out, err = run("-c", file, "--prompt", "Hello")
    assert (code, out) == (0, "Done.\n")
    assert [line["event"] for line in log_of(err)][-3:] == ["lifecycle.draining", "turn.end", "lifecycle.stopped"]


def test_f48_second_signal_ends_at_once_and_the_next_life_answers(run: Run, tmp_path: Path) -> None:
    rule = {"when": "Hello", "text": "Done.", "delay": 600}
    file = write_agent(tmp_path, {"rules": [rule]}, store=stored(tmp_path))
    with Process(tmp_path, "-c", file, "--prompt", "Hello", "--lifecycle.drain_timeout", "10m") as process:
        process.event("turn.round")
        process.signal(signal.SIGINT)
        process.event("lifecycle.draining", running=1)
        process.signal(signal.SIGTERM)
        code, out = process.end()
        assert (code, out) == (3, "")
        assert process.log[-1]["event"] == "lifecycle.stopped"
        assert process.log[-1]["finished"] is False
    (tmp_path / "script.yaml").write_text(yaml.safe_dump({"rules": [{**rule, "delay": 0}]}))
    code, _, err = run("-c", file, "--lifecycle.run_until", "idle", "--lifecycle.idle_grace", "10ms")
    assert code == 0
    assert [line["state"] for line in log_of(err) if line.get("event") == "turn.end"] == ["completed"]
    view = json.loads(run("inspect", "view", "root", "-c", file, "--json")[1])
    assert [(one["role"], one["content"]) for one in view["messages"]] == [("user", "Hello"), ("assistant", "Done.")]


def test_hangup_reloads_all_or_nothing(tmp_path: Path) -> None:
    file = write_agent(tmp_path, {}, store=stored(tmp_path))
    with Process(tmp_path, "-c", file) as process:
        process.event("lifecycle.started")
        sound = yaml.safe_load(file.read_text())
        file.write_text(yaml.safe_dump({**sound, "context": {"compact_at": 0.6}}))
        process.signal(signal.SIGHUP)
        assert process.event("lifecycle.reloaded")["keys"] == ["context.compact_at"]
        other = {**sound, "context": {"compact_at": 0.5}, "limits": {"inbox": 7}, "lifecycle": {"drain_timeout": "1s"}}
        file.write_text(yaml.safe_dump(other))
        process.signal(signal.SIGHUP)
        refused = process.line(level="error")
        assert "lifecycle.drain_timeout" in refused["message"]
        assert "limits.inbox" not in refused["message"]
        file.write_text("agent: {nam: x}\n")
        process.signal(signal.SIGHUP)
        faulty = process.line(level="error")
        assert faulty["message"].startswith("not reloaded: ")
        assert "agent.nam" in faulty["message"]
        # Had one of the refused changes been taken over, the same file would now change something else.
        file.write_text(yaml.safe_dump({**sound, "limits": {"inbox": 8}}))
        process.signal(signal.SIGHUP)
        assert process.event("lifecycle.reloaded")["keys"] == ["context.compact_at", "limits.inbox"]
        process.signal(signal.SIGTERM)
        assert process.end()[0] == 0


def test_f8_store_of_another_process_is_refused_naming_it(run: Run, tmp_path: Path) -> None:
    file = write_agent(tmp_path, {"turns": ["Hello."]}, store=stored(tmp_path))
    with Process(tmp_path, "-c", file) as process:
        process.event("lifecycle.started")
        for command in (["-c", file], ["-c", file, "--prompt", "Hello"], ["chat", "-c", file]):
            code, out, err = run(*command)
            assert (code, out) == (8, "")
            assert f"process {process.pid} on " in err
            assert err.count("\n") == 1
        process.signal(signal.SIGKILL)
        process.end()
    assert run("-c", file, "--prompt", "Hello")[:2] == (0, "Hello.\n")  # whoever is dead blocks nobody


def test_chat_through_a_pipe_answers_line_by_line(tmp_path: Path) -> None:
    script = {"rules": [{"when": "one", "text": "First."}, {"when": "two", "text": "Second."}]}
    file = write_agent(tmp_path, script, store=stored(tmp_path))
    lines = "say one\n\nsay two\n/context\n/nonsense\n/new\nsay one\nsay three\n/quit\nsay one\n"
    with Process(tmp_path, "chat", "-c", file, "--context", "c", stdin=lines) as process:
        code, out = process.end()
        assert code == 0
        answers = out.splitlines()
        assert answers[:2] == ["First.", "Second."]
        assert " tokens, 6 of 6 entries shown, version 1, 2 turns" in answers[2]
        assert answers[3].startswith("unknown command /nonsense; /context")
        assert answers[4].startswith("conversation ")
        assert answers[5] == "First."
        assert answers[6].startswith("[failed: ")
        assert len(answers) == 7
        assert process.said == []


def test_chat_that_waits_for_a_person_ends_when_it_is_interrupted(tmp_path: Path) -> None:
    file = write_agent(tmp_path, {"turns": ["Hello."]}, store=stored(tmp_path))
    person, terminal = os.openpty()
    try:
        with Process(tmp_path, "chat", "-c", file, "--context", "c", stdin=terminal) as process:
            assert process.printed().startswith("conversation c. /context shows its size")
            os.write(person, b"say it\n")
            assert process.printed() == "> Hello.\n"
            process.signal(signal.SIGINT)
            assert process.end() == (130, "> ")
            assert process.said == ["agentd: interrupted"]
    finally:
        os.close(person)
        os.close(terminal)
