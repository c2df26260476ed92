"""`agentd inspect`: what is stored, read beside a running daemon, as text and as JSON."""

import io
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import agentkit.cli
from tests.agentd.commands import Process, agentd, stored, write_agent

Run = Callable[..., tuple[int, str, str]]
LOOKING = [{"calls": [{"name": "memory_list", "arguments": {}}]}, "Nothing there."]
SAID = "Said, with many words: " + "the blue folder in the archive of the town, " * 20


class Daemon(NamedTuple):
    file: Path
    process: Process


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon that runs, on a store with the conversation `c`, which was compacted once. Nothing changes it."""
    folder = tmp_path_factory.mktemp("inspect")
    script = {"rules": [{"when": "look", "turns": LOOKING}, {"when": "say", "text": SAID}]}
    context = {"keep_last": 2, "min_gain": 0, "model_window": 12_000}
    file = write_agent(folder, script, store=stored(folder), context=context)
    said = [f"say something of file-{n}.txt" for n in range(1, 7)]
    lines = "".join(f"{line}\n" for line in [*said, "look", "/compact", "say more"])
    with Process(folder, "chat", "-c", file, "--context", "c", stdin=lines) as chat:
        code, out = chat.end()
        assert code == 0
        assert "now version 2, " in out
    with Process(folder, "-c", file) as process:
        process.event("lifecycle.started")
        yield Daemon(file, process)


@pytest.fixture
def inspect(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, daemon: Daemon) -> Run:
    for name in [name for name in os.environ if name.startswith("AGENTD_")]:
        monkeypatch.delenv(name)

    def run(what: str, *args: str) -> tuple[int, str, str]:
        code = agentd("inspect", what, "-c", daemon.file, *args)
        out, err = capfd.readouterr()
        return code, out, err

    return run


def as_json(inspect: Run, what: str, *args: str) -> Any:
    code, out, err = inspect(what, *args, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def as_text(inspect: Run, what: str, *args: str) -> list[str]:
    code, out, err = inspect(what, *args)
    assert (code, err) == (0, "")
    return out.splitlines()


def test_contexts(inspect: Run) -> None:
    (told,) = as_json(inspect, "contexts")
    assert (told["id"], told["kind"], told["version"], told["turns"]) == ("c", "conversation", 2, 8)
    head, line = as_text(inspect, "contexts")
    assert head.split() == ["context", "version", "entries", "shown", "tokens", "turns", "owner", "status"]
    assert line.split()[:3] == ["c", "2", str(told["entries"])]


def test_log_holds_folded_entries_and_is_a_line_an_entry(inspect: Run) -> None:
    code, out, _ = inspect("log", "c", "--json")
    entries = [json.loads(line) for line in out.splitlines()]
    assert [entry["n"] for entry in entries] == list(range(1, len(entries) + 1))
    assert (code, entries[0]["kind"], entries[1]["body"]["text"]) == (0, "user", SAID)
    assert [entry["kind"] for entry in entries].count("compaction") == 1
    lines = as_text(inspect, "log", "c")
    assert len(lines) == len(entries)
    assert [line.split()[0] for line in as_text(inspect, "log", "c", "--entries", "2-3")] == ["2", "3"]
    assert as_text(inspect, "log", "c", "--entries", "2") == lines[1:2]


def test_view_now_and_as_it_was(inspect: Run) -> None:
    now, before = as_json(inspect, "view", "c"), as_json(inspect, "view", "c", "--version", "1")
    assert (now["version"], before["version"]) == (2, 1)
    assert now["messages"][0]["content"].startswith("<context-summary")
    assert before["messages"][0]["content"] == "say something of file-1.txt"
    assert len(before["messages"]) > len(now["messages"])
    head, *lines = as_text(inspect, "view", "c", "--version", "1")
    assert head == f"version 1, {len(before['messages'])} messages"
    assert "[user]" in lines
    assert "-> memory_list({})" in lines


def test_search_finds_what_was_folded(inspect: Run) -> None:
    (found,) = as_json(inspect, "search", "c", "file-2.txt")
    assert (found["n"], "file-2.txt" in found["excerpt"]) == (4, True)
    assert as_text(inspect, "search", "c", "file-2.txt")[0].split()[0] == "4"
    assert len(as_json(inspect, "search", "c", "file", "--limit", "3")) == 3
    assert as_json(inspect, "search", "c", "nowhere") == []


def test_text_of_others_cannot_take_over_the_terminal(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a model or a tool wrote is shown, never acted upon; JSON has it as it came."""
    for name in [name for name in os.environ if name.startswith("AGENTD_")]:
        monkeypatch.delenv(name)
    file = write_agent(tmp_path, {"rules": [{"when": "go", "text": "red \x1b[31malert\x07"}]}, store=stored(tmp_path))
    with Process(tmp_path, "chat", "-c", file, "--context", "c", stdin="go\n") as chat:
        assert chat.end() == (0, "red \ufffd[31malert\ufffd\n")
    for what in (["log", "c"], ["view", "c"], ["search", "c", "alert"]):
        assert agentd("inspect", *what, "-c", file) == 0
        out = capfd.readouterr().out
        assert "alert" in out
        assert "\x1b" not in out
    assert agentd("inspect", "view", "c", "-c", file, "--json") == 0
    assert json.loads(capfd.readouterr().out)["messages"][-1]["content"] == "red \x1b[31malert\x07"


def test_versions_and_their_difference(inspect: Run) -> None:
    first, second = as_json(inspect, "versions", "c")
    assert (first["made_by"], first["covered"]) == ("start", 0)
    assert second["covered"] > 0
    assert [line.split()[0] for line in as_text(inspect, "versions", "c")] == ["version", "1", "2"]
    told = as_json(inspect, "diff", "c", "1", "2")
    assert told == as_json(inspect, "diff", "c", "1")
    assert (told["summary"], told["pins"]) == (True, False)
    assert sum(last - first + 1 for first, last in told["removed"]) == second["covered"]
    lines = as_text(inspect, "diff", "c", "1")
    assert [line.split()[0] for line in lines] == ["added", "removed", "shortened", "changed"]
    assert lines[3] == "changed  summary"


def test_export_is_read_by_agentkit(inspect: Run, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for args in ((), ("--version", "2")):
        code, out, err = inspect("export", "c", *args)
        assert (code, err) == (0, "")
        file = tmp_path / "c.jsonl"
        file.write_text(out)
        assert agentkit.cli.run(["inspect", str(file), "--json"]) == 0
        told = capfd.readouterr().out
        assert json.loads(told)
        assert (SAID in out, "<context-summary" in out) == (True, bool(args))


@pytest.mark.parametrize(
    ("what", "args", "code", "said"),
    [
        ("log", ("d",), 1, "agentd: there is no context 'd'"),
        ("view", ("c", "--version", "9"), 1, "9"),
        ("diff", ("c", "1", "9"), 1, "9"),
        ("export", ("d",), 1, "agentd: there is no context 'd'"),
        ("search", ("d", "x"), 1, "agentd: there is no context 'd'"),
        ("log", ("c", "--entries", "2-x"), 2, "--entries takes a number or a range such as 12-20, not '2-x'"),
        ("view", ("c", "--version", "0"), 2, "--version"),
        ("contexts", ("--store.path", "nowhere"), 8, "agentd: there is no store at nowhere/agentd.db"),
    ],
)
def test_what_is_not_there_is_said_in_one_line(
    inspect: Run, what: str, args: tuple[str, ...], code: int, said: str
) -> None:
    found, out, err = inspect(what, *args)
    assert (found, out, err.count("\n")) == (code, "", 1)
    assert said in err


def test_chat_needs_the_store_for_itself(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, daemon: Daemon
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("say hello\n"))
    assert agentd("chat", "-c", daemon.file) == 8
    assert f"process {daemon.process.pid} on " in capfd.readouterr().err
