"""The configurations of `examples/agentd` run as they are, from the folder of the repository."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
AGENTD = [sys.executable, "-m", "agentd"]
PATIENCE = 60.0


def agentd(example: str, store: Path, *args: str, command: str = "run", typed: str = "") -> tuple[str, str]:
    """What a run that ends by itself says on its standard output, and its log."""
    line = [*AGENTD, command, "-c", f"examples/agentd/{example}", "--store.path", str(store), *args]
    done = subprocess.run(line, cwd=ROOT, input=typed, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def results_of(example: str, store: Path, context: str) -> list[tuple[str, str]]:
    """Names and texts of the results that tools gave in a conversation."""
    line = [
        *AGENTD,
        "inspect",
        "log",
        context,
        "--json",
        "-c",
        f"examples/agentd/{example}",
        "--store.path",
        str(store),
    ]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    entries = [json.loads(line)["body"] for line in done.stdout.splitlines()]
    return [(body["name"], json.dumps(body["content"])) for body in entries if body.get("role") == "tool"]


@contextmanager
def serving(example: str, store: Path, port: int) -> Iterator[None]:
    """An example that listens, for as long as it is needed; it drains in good order."""
    line = [
        *AGENTD,
        "-c",
        f"examples/agentd/{example}",
        "--store.path",
        str(store),
        "--a2a.listen",
        f"127.0.0.1:{port}",
    ]
    process = subprocess.Popen(line, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        said = []
        for told in process.stderr:
            said.append(told)
            if "A2A: listening" in told:
                break
        else:
            pytest.fail("".join(said))
        yield
        process.terminate()
        process.communicate(timeout=PATIENCE)
        assert process.returncode == 0
    finally:
        process.kill()
        process.communicate()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.mark.parametrize(
    "example",
    [file for file in sorted(ROOT.glob("examples/agentd/**/*.yaml")) if not file.stem.endswith("model")],
    ids=lambda file: f"{file.parent.name}-{file.stem}",
)
def test_every_configuration_is_sound(example: Path) -> None:
    line = [*AGENTD, "check", "-c", str(example.relative_to(ROOT))]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stderr) == (0, "")


def test_notes_are_kept_over_conversations(tmp_path: Path) -> None:
    said, _ = agentd(
        "notes/agent.yaml",
        tmp_path,
        command="chat",
        typed="Please note: the demo is on Friday at ten, room 4.\nWrite this up by @skill:meeting-notes - it moves.\n",
    )
    assert said.splitlines() == [
        'Kept under "demo" - Friday at ten, room 4.',
        'Minutes are in minutes.md; Ann\'s task is kept under "todo/ann".',
    ]
    told, _ = agentd("notes/agent.yaml", tmp_path, "--context", "later", command="chat", typed="When is the demo?\n")
    assert told == "On Friday at ten, in room 4.\n"
    ((name, text),) = results_of("notes/agent.yaml", tmp_path, "later")
    assert name == "memory_get"
    assert "Friday, 10:00" in text


def test_files_and_history_come_from_servers_of_other_people(tmp_path: Path) -> None:
    said, _ = agentd("files/agent.yaml", tmp_path, "--prompt", "Which license is this under, and what changed last?")
    assert said.startswith("Apache-2.0")
    (read, license), (log, history) = results_of("files/agent.yaml", tmp_path, "root")
    assert (read, log) == ("read_text_file", "git_log")
    assert "Apache License" in license
    assert "Commit: " in history


def test_two_agents_talk_over_a2a(tmp_path: Path) -> None:
    port = free_port()
    server = {
        "name": "editor", "required": True,
        "command": [sys.executable, "examples/agentd/pair/ask_peer.py", f"http://127.0.0.1:{port}", "writer"],
    }  # fmt: skip
    with serving("pair/editor.yaml", tmp_path / "editor", port):
        said, _ = agentd(
            "pair/writer.yaml", tmp_path / "writer", "--mcp.servers", json.dumps([server]), "--prompt", "Announce it."
        )
    assert said.startswith("Release 2.0 is here.")
    answers = results_of("pair/writer.yaml", tmp_path / "writer", "root")
    assert [name for name, _ in answers] == ["ask", "ask"]
    assert "name the version" in answers[0][1]
    assert "It is good." in answers[1][1]
