"""The command line as a process: what it loads, how it ends, and that a killed replay goes on where it was."""

import asyncio
import contextlib
import json
import os
import pty
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from agentkit.core.contracts.scope import Scope
from agentkit.core.contracts.usage import Usage
from agentkit.state.context import WorkingContext
from agentkit.state.persistence import Checkpointer, StoreCheckpoints, rehydrate
from agentkit.state.stores.sqlite import SQLiteStore
from agentkit.transcripts import load

AGENTKIT = [sys.executable, "-W", "error", "-m", "agentkit"]

# What the budgets of the design name, and what no help text needs.
HEAVY = {
    "a2a", "mcp", "pydantic", "anthropic", "openai", "google.genai", "asyncpg", "jinja2", "starlette", "uvicorn",
    "httpx", "httpx2", "sqlite3", "asyncio", "json", "decimal", "tiktoken", "msgspec",
    "agentkit.transcripts", "agentkit.state", "agentkit.inspect", "agentkit.models", "agentkit.core",
}  # fmt: skip
PROBE = """
import sys
sys.argv[0] = "agentkit"
from agentkit.cli import run
code = run()
print("LOADED", *sys.modules)
sys.exit(code)
"""


@pytest.mark.parametrize(
    "args", [[], *[[name] for name in ("inspect", "count", "check", "convert", "replay")]], ids=str
)
def test_help_loads_nothing_heavy(args: list[str]) -> None:
    command = [sys.executable, "-W", "error", "-c", PROBE, *args, "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "Usage: agentkit" in done.stdout
    loaded = done.stdout.rpartition("LOADED")[2].split()
    assert [name for name in loaded if any(name == h or name.startswith(h + ".") for h in HEAVY)] == []
    assert "click" in loaded


def test_version_is_the_package_version() -> None:
    done = subprocess.run([*AGENTKIT, "--version"], capture_output=True, text=True, timeout=60)
    assert re.fullmatch(r"agentkit, version \d+\.\d+\.\d+\n", done.stdout)


def test_installed_command_is_the_module() -> None:
    script = Path(sys.executable).with_name("agentkit")
    assert subprocess.run([script, "--help"], capture_output=True, text=True, timeout=60).stdout == (
        subprocess.run([*AGENTKIT, "--help"], capture_output=True, text=True, timeout=60).stdout
    )


@pytest.fixture(scope="module")
def conversation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A chat of 40 responses."""
    file = tmp_path_factory.mktemp("conversation") / "chat.json"
    messages: list[dict[str, Any]] = [{"role": "system", "content": "Answer briefly."}]
    for turn in range(20):
        call = {"id": f"c{turn}", "type": "function", "function": {"name": "look", "arguments": f'{{"at": {turn}}}'}}
        messages += [
            {"role": "user", "content": f"Question {turn}, surrogate \ud83d. " * 20},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{turn}", "content": f"{turn}: nothing\u2028here"},
            {"role": "assistant", "content": f"Answer {turn}."},
        ]
    file.write_text(json.dumps(messages), encoding="utf-8")
    return file


# -- endings -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "code"), [(["count", "FILE"], 0), (["check", "CUT"], 1), (["count"], 2), (["count", "GONE"], 3)]
)
def test_exit_codes(conversation: Path, tmp_path: Path, args: list[str], code: int) -> None:
    cut = tmp_path / "cut.json"
    cut.write_text(json.dumps(json.loads(conversation.read_text())[:3]))
    named = {"FILE": conversation, "CUT": cut, "GONE": tmp_path / "gone.json"}
    done = subprocess.run([*AGENTKIT, *[named.get(a, a) for a in args]], capture_output=True, text=True, timeout=60)
    assert done.returncode == code
    assert "Traceback" not in done.stderr


def test_store_error_code(conversation: Path, tmp_path: Path) -> None:
    command = [*AGENTKIT, "replay", str(conversation), "--store", str(tmp_path / "gone" / "a.db")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 4
    assert len(done.stderr.splitlines()) == 1


def test_reader_that_leaves_is_no_error(conversation: Path) -> None:
    """`agentkit inspect FILE | head -1` says nothing on standard error."""
    child = subprocess.Popen(
        [*AGENTKIT, "inspect", "--json", *[str(conversation)] * 30], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert child.stdout is not None
    assert child.stderr is not None
    child.stdout.close()
    with child.stderr:
        assert child.stderr.read() == b""
    assert child.wait(60) == 141


def test_interrupt_ends_quietly(conversation: Path, tmp_path: Path) -> None:
    store = tmp_path / "a.db"
    child = start_replay(conversation, store, "--delay", "5")
    assert child.stdout is not None
    while child.stdout.readline().split()[:1] != ["1"]:
        assert child.poll() is None
    child.send_signal(signal.SIGINT)
    try:
        _, err = child.communicate(timeout=30)
    finally:
        child.kill()
    assert child.returncode == 130
    assert err == "agentkit: interrupted; go on behind the last stored turn with --resume\n"
    assert stored_turn(store) == 1


def on_terminal(command: list[str], **environment: str) -> bytes:
    """What a command writes to a terminal, which is both its outputs."""
    controller, terminal = pty.openpty()
    plain = {k: v for k, v in os.environ.items() if k != "NO_COLOR"}
    child = subprocess.Popen(command, stdout=terminal, stderr=terminal, env={**plain, "TERM": "xterm", **environment})
    os.close(terminal)
    seen = b""
    with contextlib.suppress(OSError):  # how Linux says that the other side is closed
        while piece := os.read(controller, 65536):
            seen += piece
    os.close(controller)
    assert child.wait(60) == 0
    return seen


def test_colours_are_for_terminals(conversation: Path) -> None:
    command = [*AGENTKIT, "inspect", str(conversation)]
    assert b"\x1b[1m" in on_terminal(command)
    assert b"\x1b" not in on_terminal(command, NO_COLOR="1")
    assert b"\x1b" not in on_terminal(command, TERM="dumb")


def test_progress_is_for_long_work_on_terminals(conversation: Path) -> None:
    eager = "from agentkit.cli import main, reading; reading.LONG_WORK = -1; main()"
    command = [sys.executable, "-W", "error", "-c", eager, "count", str(conversation)]
    assert b"reading chat.json" in on_terminal(command)
    assert b"reading" not in on_terminal([*AGENTKIT, "count", str(conversation)])
    piped = subprocess.run(command, capture_output=True, timeout=60)
    assert (piped.returncode, piped.stderr) == (0, b"")


@pytest.mark.parametrize("args", [["inspect", "FILE"], ["replay", "FILE", "--store", "STORE"], ["check", "FILE"]])
def test_old_terminal_gets_signs_it_has(conversation: Path, tmp_path: Path, args: list[str]) -> None:
    named = {"FILE": str(conversation), "STORE": str(tmp_path / "é.db")}
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    command = [*AGENTKIT, *[named.get(a, a) for a in args]]
    done = subprocess.run(command, capture_output=True, env=environment, timeout=60)
    assert done.stderr == b""
    assert done.returncode in (0, 1)
    assert "–".encode() not in done.stdout


# -- a replay that is killed -------------------------------------------------------------------------------------------


def start_replay(conversation: Path, store: Path, *more: str) -> "subprocess.Popen[str]":
    command = [*AGENTKIT, "replay", str(conversation), "--store", str(store), "--run", "r", "--every", "1", *more]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=_heed_interrupts
    )


def _heed_interrupts() -> None:
    """Whoever runs the tests in the background has told them, and so their children, to ignore interrupts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


async def read_back(store_file: Path) -> tuple[WorkingContext, Usage, int, str] | None:
    store = SQLiteStore(store_file)
    try:
        found = await Checkpointer(StoreCheckpoints(store, Scope())).resume("r", include_terminal=True)
        if found is None:
            return None
        context, usage, following, _ = rehydrate(found.state)
        return context, usage, following - 1, found.status
    finally:
        await store.aclose()


def stored_turn(store_file: Path) -> int:
    found = asyncio.run(read_back(store_file)) if store_file.exists() else None
    return found[2] if found is not None else 0


@pytest.mark.crash
@pytest.mark.parametrize("seed", range(20 if os.environ.get("AGENTKIT_SOAK") else 2))
def test_killed_replay_goes_on_where_it_was(conversation: Path, tmp_path: Path, seed: int) -> None:
    """W4: killed at random points until it is through, a replay ends where one ends that nobody killed; no turn that
    was shown is lost, none is taken twice."""
    chance = random.Random(seed)
    whole, torn = tmp_path / "whole.db", tmp_path / "torn.db"
    child = start_replay(conversation, whole)
    _, err = child.communicate(timeout=60)
    assert child.returncode == 0, err
    expected = asyncio.run(read_back(whole))
    shown: list[int] = []
    kills = 0
    while True:
        child = start_replay(conversation, torn, "--delay", "0.002", *(["--resume"] if stored_turn(torn) else []))
        assert child.stdout is not None
        stop_behind, turns = chance.randint(0, 8), 0
        ended = False
        for line in child.stdout:
            if (first := line.split()[:1]) and first[0].isdigit():
                shown.append(int(first[0]))
                turns += 1
            if turns >= stop_behind and chance.random() < 0.7:
                time.sleep(chance.random() * 0.01)
                child.kill()
                break
        else:
            ended = True
        rest, err = child.communicate(timeout=60)
        shown += [int(word) for word in re.findall(r"^ *(\d+) ", rest, re.MULTILINE)]
        durable = stored_turn(torn)
        if shown:
            assert durable >= max(shown)
        if ended and child.returncode == 0:
            break
        assert child.returncode == -signal.SIGKILL, err
        kills += 1
        assert kills < 100
    assert kills >= 3
    assert shown == sorted(set(shown))
    assert asyncio.run(read_back(torn)) == expected
    assert expected is not None
    context, _, turns_taken, status = expected
    (recorded,) = load(conversation)
    assert context.messages == recorded.context.messages
    assert context.prefix == recorded.context.prefix
    assert (turns_taken, status) == (40, "done")


def test_two_replays_of_one_run_do_not_mix(conversation: Path, tmp_path: Path) -> None:
    """W1: the second writer is refused, and what is stored is one of them, whole."""
    store = tmp_path / "a.db"
    first = start_replay(conversation, store, "--delay", "0.05")
    assert first.stdout is not None
    while first.stdout.readline().split()[:1] != ["2"]:
        assert first.poll() is None
    second = start_replay(conversation, store, "--resume")
    _, second_error = second.communicate(timeout=60)
    _, first_error = first.communicate(timeout=60)
    assert sorted([first.returncode, second.returncode]) == [0, 4], (first_error, second_error)
    found = asyncio.run(read_back(store))
    assert found is not None
    assert found[0].messages == load(conversation)[0].context.messages
