"""`agentd check --store` and `agentd capabilities`: what is stored, and what there is."""

import asyncio
import json
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentd import cli
from agentd.cli.capabilities import capabilities
from agentd.cli.check import report
from agentd.config import load
from agentd.records import ANY, Save
from agentd.records.keys import Name
from agentd.records.survey import DiskFile, Survey, Unreadable
from agentd.runtime.daemon import Daemon
from tests.agentd.daemon.model import ObedientLLM

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    for name in [name for name in os.environ if name.startswith("AGENTD_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def run(*args: str | Path) -> tuple[int, str, str]:
        code = cli.run([str(arg) for arg in args])
        out, err = capfd.readouterr()
        return code, out, err

    return run


@pytest.fixture
def sound(tmp_path: Path) -> Path:
    file = tmp_path / "a.yaml"
    model = "intelligence: {endpoints: ['replay:x'], model: m}"
    file.write_text(f"agent: {{name: desk}}\n{model}\nstore: {{path: {tmp_path}/store}}\n")
    return file


async def one_life(file: Path, work: Callable[[Daemon], Any] | None = None) -> Any:
    async with await Daemon.open(load([file], environ={}), model=ObedientLLM()) as agent:
        assert (await agent.ask("Hello", context="c")).state == "completed"
        return None if work is None else await work(agent)


def test_store_that_is_sound_also_beside_a_daemon(run: Run, sound: Path, tmp_path: Path) -> None:
    async def look(agent: Daemon) -> tuple[int, str, str]:
        return await asyncio.to_thread(run, "check", "--store", "-c", sound)

    code, out, err = asyncio.run(one_life(sound, look))
    assert (code, err) == (0, "")
    lines = dict(line.split(maxsplit=1) for line in out.splitlines()[1:])
    assert out.startswith("configuration of desk is sound: store sqlite")
    assert f"{tmp_path}/store/agentd.db" in lines["file"]
    assert f"SQLite {sqlite3.sqlite_version}" in lines["file"]
    assert lines["integrity"] == "ok"
    assert lines["held"].startswith(f"by     process {os.getpid()} on ")
    assert lines["unreadable"] == "nothing"
    before = {path.name: path.read_bytes() for path in (tmp_path / "store").iterdir()}
    code, out, err = run("check", "--store", "-c", sound, "--json")
    assert (code, err) == (0, "")
    told = json.loads(out)
    store = told["store"]
    assert (told["agent"], told["store_kind"], store["is_sound"], store["unreadable"]) == ("desk", "sqlite", True, [])
    assert store["counts"]["1"]["context"] == 1
    assert (store["lines"] > 1, store["file"]["locked_by"], store["generation"]) == (True, None, 1)
    after = {path.name: path.read_bytes() for path in (tmp_path / "store").iterdir()}
    assert after["agentd.db"] == before["agentd.db"]


def test_row_that_cannot_be_read_is_named(run: Run, sound: Path) -> None:
    async def spoil(agent: Daemon) -> None:
        await agent.services.records.commit([Save("context", "broken", b'{"next": "x"}', ANY)])

    asyncio.run(one_life(sound, spoil))
    code, out, err = run("check", "--store", "-c", sound)
    assert (code, err) == (1, "")
    assert "\nunreadable  1\n  context 'broken', generation 1, orgNone:domNone: broken cannot be read: " in out
    code, out, _ = run("check", "--store", "-c", sound, "--json")
    assert code == 1
    (told,) = json.loads(out)["store"]["unreadable"]
    assert (told["kind"], told["id"], told["generation"], told["entry"]) == ("context", "broken", 1, None)


def test_store_that_cannot_be_opened(run: Run, sound: Path, tmp_path: Path) -> None:
    code, out, err = run("check", "--store", "-c", sound)
    assert (code, out.count("\n")) == (8, 1)
    assert err.startswith(f"agentd: there is no store at {tmp_path}/store/agentd.db")
    assert not (tmp_path / "store").exists()
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "agentd.db").write_text(
        "no database, but long enough to be looked at as if it were one\n" * 9
    )
    code, _, err = run("check", "--store", "-c", sound)
    assert code == 8
    assert "agentd.db" in err
    memory = tmp_path / "memory.yaml"
    memory.write_text(sound.read_text().partition("store:")[0])
    code, _, err = run("check", "--store", "-c", memory, "--store.kind", "memory")
    assert code == 8
    assert "nothing to look into" in err


def test_report_tells_damage_and_everything_that_is_known() -> None:
    name = Name("agentd", "orgNone:domNone", "desk", 2, "log", "c")
    file = DiskFile(Path("/x/agentd.db"), 4096, "3.44.0", True, ("row 3 missing",), None)
    found = Survey(
        "SQLiteStore", file, ("process 7 on h", 5), 2, 3, {0: {"manifest": 1}, 2: {"log": 1}}, 5, {"manifest": 2_222},
        (Unreadable(name, "of form 9", 12),), 40, None, "the index is gone",
    )  # fmt: skip
    text = report(found)
    for line in (
        "file        /x/agentd.db, 4,096 bytes, SQLite 3.44.0; it can damage a file that two connections write, so one "
        "alone does",
        "integrity   1 faults",
        "            row 3 missing",
        "held by     nobody",
        "generation  2, started 3 times",
        "records     1 manifest (above all generations)",
        "records     1 log (generation 2)",
        "bytes       2,222 manifest",
        "tombstones  5",
        "log lines   40",
        "cut short   the index is gone",
        "  entry 12 of log 'c', generation 2, orgNone:domNone: of form 9",
    ):
        assert f"{line}\n" in text
    bare = report(Survey("OtherStore", None, ("process 7 on h", 5), None, 0, None, 0, {}, (), 0, 4))
    assert "last held   process 7 on h\ngeneration  never started\nrecords     not counted" in bare
    assert "memory      list of keys made anew: 4\n" in bare


# Capabilities


def test_capabilities_name_tools_with_their_roles(run: Run, sound: Path) -> None:
    code, out, err = run("capabilities")
    assert (code, err) == (0, "")
    lines = [line.split(maxsplit=1) for line in out.splitlines() if line.startswith("  ")]
    told = {line[0]: line[-1] for line in lines}
    assert told["memory.get"] == "all; reads only"
    assert told["memory.set"] == "root, operator, user, agent"
    assert told["sqlite"] == "durable, ttl, lease, search"
    assert "anthropic, fake, gemini, openai, replay" in out
    assert told["turn"] == "end, round, start"


def test_capabilities_as_json_narrowed_by_a_configuration(run: Run, sound: Path) -> None:
    wide = json.loads(run("capabilities", "--json")[1])
    assert wide == json.loads(json.dumps(capabilities()))
    tools = {tool["name"]: tool for tool in wide["tools"]}
    assert tools["memory.set"]["wire"] == "memory_set"
    assert tools["memory.set"]["parameters"]["required"] == ["key", "value"]
    assert tools["think"]["roles"] == wide["roles"] == ["root", "operator", "user", "agent", "anonymous"]
    narrowing = ["--tools.disabled", "[think]", "--tools.grants", "{user: ['memory.*']}"]
    narrow = {
        tool["name"]: tool["roles"]
        for tool in json.loads(run("capabilities", "--json", "-c", sound, *narrowing)[1])["tools"]
    }
    assert narrow["think"] == []
    assert narrow["plan.create"] == ["root", "operator", "agent", "anonymous"]
    assert narrow["memory.set"] == ["root", "operator", "user", "agent"]
    code, out, err = run("capabilities", "-c", sound, *narrowing)
    assert (code, err) == (0, "")
    assert "think             nobody\n" in out


def test_capabilities_of_a_faulty_configuration_are_refused(run: Run) -> None:
    code, out, err = run("capabilities", "--agent.nam", "x")
    assert (code, out) == (2, "")
    assert "--agent.nam" in err
