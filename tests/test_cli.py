"""The command line within this process: what commands print, and what they say when something is wrong."""

import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from agentkit import cli
from agentkit.cli import converting, looking
from agentkit.core.contracts.types import Message
from agentkit.inspect.measure import count_transcript
from agentkit.state.context import ApproxTokenCounter, CharClassTokenCounter
from agentkit.transcripts import load, loads

Run = Callable[..., tuple[int, str, str]]

CHAT: list[dict[str, Any]] = [
    {"role": "system", "content": "You are terse."},
    {"role": "user", "content": "List the files."},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "ls", "arguments": '{"path": "."}'}}],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "README.md\nsrc"},
    {"role": "assistant", "content": "README.md and src."},
]


@pytest.fixture
def run(capfdbinary: pytest.CaptureFixture[bytes]) -> Run:
    """Runs a command line; gives exit code, standard output and standard error."""

    def run(*args: str | Path) -> tuple[int, str, str]:
        code = cli.run([str(arg) for arg in args])
        out, err = capfdbinary.readouterr()
        return code, out.decode("utf-8"), err.decode("utf-8")

    return run


@pytest.fixture
def chat(tmp_path: Path) -> Path:
    return write(tmp_path / "chat.json", CHAT)


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """A conversation whose call nobody answered."""
    return write(tmp_path / "broken.json", CHAT[:3])


@pytest.fixture
def several(tmp_path: Path) -> Path:
    """Two runs in one file."""
    return write(tmp_path / "runs.json", [{"task_id": n, "reward": 1.0, "traj": CHAT[1:], "info": {}} for n in (1, 2)])


def write(file: Path, value: Any) -> Path:
    file.write_text(json.dumps(value), encoding="utf-8")
    return file


# -- inspect -----------------------------------------------------------------------------------------------------------


def test_inspect_prints_a_table(run: Run, chat: Path) -> None:
    code, out, err = run("inspect", chat)
    assert (code, err) == (0, "")
    assert out.startswith(f"{chat}\n")
    assert "Tokens by tool" in out
    assert "\x1b" not in out


def test_inspect_prints_the_prompt_cache_alone(run: Run, chat: Path, several: Path) -> None:
    code, out, err = run("inspect", "--cache", chat)
    assert (code, err) == (0, "")
    assert "Prompt cache" in out
    assert "the record names no model" in out
    assert "Largest parts" not in out
    _, out, _ = run("inspect", "--cache", several)
    assert out.count("Prompt cache") == 2


def test_inspect_prints_json_alone(run: Run, chat: Path) -> None:
    code, out, err = run("inspect", "--json", chat)
    assert (code, err) == (0, "")
    (one,) = json.loads(out)["conversations"]
    assert one["messages"] == 5
    assert one["file"] == str(chat)


def test_inspect_writes_a_page(run: Run, chat: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    assert run("inspect", chat, "--html", page) == (0, f"wrote {page}\n", "")
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert [file.name for file in tmp_path.iterdir() if file.suffix == ".part"] == []
    code, out, _ = run("inspect", chat, "--html", "-")
    assert code == 0
    assert out.startswith("<!doctype html>")


def test_inspect_writes_page_and_json(run: Run, chat: Path, tmp_path: Path) -> None:
    _, out, _ = run("inspect", chat, "--json", "--html", tmp_path / "report.html")
    assert json.loads(out)["format"] == 1
    assert (tmp_path / "report.html").exists()


def test_inspect_lists_several(run: Run, several: Path, chat: Path) -> None:
    _, out, _ = run("inspect", several)
    assert out.startswith("2 conversations\n")
    _, out, _ = run("inspect", several, chat)
    assert out.startswith("3 conversations\n")
    _, out, _ = run("inspect", several, "--conversation", "2")
    assert "Tokens by tool" in out
    _, out, _ = run("inspect", several, "--conversation", "all")
    assert out.count("Tokens by tool") == 2


# -- count and check ---------------------------------------------------------------------------------------------------


def test_count_agrees_with_inspect(run: Run, chat: Path) -> None:
    (one,) = load(chat)
    for name, counter in (("approx", ApproxTokenCounter()), ("char-class", CharClassTokenCounter())):
        _, out, _ = run("count", "--counter", name, chat)
        assert out == f"{count_transcript(one, counter)} 5 {chat}\n"
        _, out, _ = run("inspect", "--json", "--counter", name, chat)
        assert json.loads(out)["conversations"][0]["tokens"]["total"] == count_transcript(one, counter)


def test_count_sums_up_files(run: Run, chat: Path, several: Path) -> None:
    _, out, _ = run("count", chat, several)
    rows = [line.split() for line in out.splitlines()]
    assert [row[2] for row in rows] == [str(chat), str(several), "total"]
    assert int(rows[2][0]) == int(rows[0][0]) + int(rows[1][0])
    assert [row[1] for row in rows] == ["5", "8", "13"]


def test_count_says_when_tiktoken_cannot(run: Run, chat: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    code, out, err = run("count", "--counter", "tiktoken", chat)
    assert code == 0
    assert out == run("count", "--counter", "approx", chat)[1]
    assert re.fullmatch(r"agentkit: tiktoken .* characters / 4 are counted; pip install .*\n", err)


def test_check_passes_sound_conversations(run: Run, chat: Path) -> None:
    assert run("check", chat) == (0, f"{chat}: valid by the strict rules\n", "")


def test_check_finds_problems(run: Run, broken: Path, chat: Path) -> None:
    code, out, err = run("check", broken, chat)
    assert (code, err) == (1, "")
    lines = out.splitlines()
    assert re.fullmatch(re.escape(str(broken)) + r": message 2: unanswered: .* \(call c1\)", lines[0])
    assert lines[-1] == f"{chat}: valid by the strict rules"


@pytest.mark.parametrize("rules", looking.RULES)
def test_check_knows_all_rules(run: Run, chat: Path, rules: str) -> None:
    assert run("check", chat, "--rules", rules)[0] == 0


# -- convert -----------------------------------------------------------------------------------------------------------


def test_convert_writes_requests(run: Run, chat: Path) -> None:
    _, out, _ = run("convert", chat, "--to", "anthropic")
    body = json.loads(out)
    assert body["messages"][0]["role"] == "user"
    assert body["messages"][1]["content"][0]["type"] == "tool_use"
    _, out, _ = run("convert", chat, "--to", "openai")
    assert json.loads(out)["messages"][3]["tool_call_id"] == "c1"


@pytest.mark.parametrize("target", converting.TARGETS)
def test_convert_is_stable(run: Run, chat: Path, tmp_path: Path, target: str) -> None:
    """What was written reads back, and is written alike again."""
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    assert run("convert", chat, "--to", target, "-o", first) == (0, "", "")
    assert run("convert", first, "--to", target, "-o", second) == (0, "", "")
    assert first.read_bytes() == second.read_bytes()
    assert load(first)[0].history == load(chat)[0].history


def test_convert_says_what_it_repaired(run: Run, broken: Path) -> None:
    """G3: no silent repair; and none at all in agentkit's own form."""
    code, out, err = run("convert", broken, "--to", "anthropic")
    assert code == 0
    assert json.loads(out)["messages"][-1]["content"][0]["is_error"] is True
    said = f"agentkit: {broken}: repaired for anthropic: unanswered; 'agentkit check --rules anthropic' says where\n"
    assert err == said
    assert run("convert", broken, "--to", "agentkit")[2] == ""


def test_convert_refuses_an_empty_request(run: Run, tmp_path: Path) -> None:
    code, out, err = run(
        "convert", write(tmp_path / "system.json", CHAT[:1]), "--to", "openai", "--format", "openai-chat"
    )
    assert (code, out) == (3, "")
    assert "nothing to ask a model" in err


def test_convert_asks_which_of_several(run: Run, several: Path) -> None:
    code, out, err = run("convert", several, "--to", "openai")
    assert (code, out) == (2, "")
    assert "holds 2 conversations; choose one with --conversation" in err
    _, out, _ = run("convert", several, "--to", "openai", "--conversation", "all")
    assert [len(json.loads(line)["messages"]) for line in out.splitlines()] == [4, 4]


# -- replay ------------------------------------------------------------------------------------------------------------


def test_replay_shows_each_turn(run: Run, chat: Path, tmp_path: Path) -> None:
    code, out, err = run("replay", chat, "--store", tmp_path / "a.db")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == f"run chat in {tmp_path / 'a.db'}: 2 turns"
    assert [line.split()[:2] for line in lines[2:]] == [["1", "2"], ["2", "4"]]
    assert "$0.00" not in out


def test_replay_refuses_a_run_that_exists(run: Run, chat: Path, tmp_path: Path) -> None:
    store = tmp_path / "a.db"
    run("replay", chat, "--store", store)
    code, out, err = run("replay", chat, "--store", store)
    assert (code, out) == (4, "")
    assert "run 'chat' is there already, at turn 2 of 2; go on with --resume" in err
    code, out, err = run("replay", chat, "--store", store, "--resume")
    assert (code, err) == (0, "")
    assert "2 of them stored already" in out
    assert "nothing left to do" in out
    assert run("replay", chat, "--store", store, "--run", "other")[0] == 0


def test_replay_refuses_another_file(run: Run, chat: Path, broken: Path, tmp_path: Path) -> None:
    store = tmp_path / "a.db"
    run("replay", chat, "--store", store, "--run", "x")
    code, _, err = run("replay", broken, "--store", store, "--run", "x", "--resume")
    assert code == 4
    assert "was started from conversation 1 of chat.json" in err
    write(chat, CHAT[:4])
    code, _, err = run("replay", chat, "--store", store, "--run", "x", "--resume")
    assert code == 4
    assert "has changed since" in err


def test_replay_names_runs_of_several(run: Run, several: Path, tmp_path: Path) -> None:
    store = tmp_path / "a.db"
    assert run("replay", several, "--store", store)[0] == 2
    _, out, _ = run("replay", several, "--store", store, "--conversation", "all")
    assert re.findall(r"^run (\S+) in", out, re.MULTILINE) == ["runs-1", "runs-2"]
    _, out, _ = run("replay", several, "--store", store, "--conversation", "2", "--resume")
    assert "run runs-2 in" in out


def test_replay_reads_no_standard_input(run: Run, tmp_path: Path) -> None:
    code, _, err = run("replay", "-", "--store", tmp_path / "a.db")
    assert code == 2
    assert "needs a file" in err


# -- what can be wrong -------------------------------------------------------------------------------------------------


def test_standard_input_is_read(run: Run, chat: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for command in (["count"], ["check"], ["inspect", "--json"], ["convert", "--to", "openai"]):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(chat.read_bytes())))
        code, out, err = run(*command, "-")
        assert (code, err) == (0, "")
        assert out
    assert loads(chat.read_bytes())[0].history[1] == Message("user", "List the files.")


@pytest.mark.parametrize("command", ["inspect", "count", "check"])
@pytest.mark.parametrize("kind", ["missing", "folder", "empty", "binary", "prose"])
def test_unreadable_input_is_one_line(run: Run, tmp_path: Path, command: str, kind: str) -> None:
    file = tmp_path / "file.jsonl"
    contents = {"empty": b"", "binary": bytes(range(256)) * 40, "prose": b"Dear diary,\nnothing happened.\n"}
    if kind == "folder":
        file.mkdir()
    elif kind != "missing":
        file.write_bytes(contents[kind])
    code, out, err = run(command, file)
    assert (code, out) == (3, "")
    assert_one_line(err)
    assert str(file) in err


@pytest.mark.parametrize("command", ["inspect", "count", "check"])
def test_unreadable_file_stops_no_other(run: Run, chat: Path, several: Path, tmp_path: Path, command: str) -> None:
    missing = tmp_path / "missing.json"
    code, out, err = run(command, chat, missing, several)
    assert code == 3
    assert_one_line(err)
    assert str(missing) in err
    alone = run(command, chat, several)[1]
    assert out == alone


def test_unwritable_output_is_one_line(run: Run, chat: Path, tmp_path: Path) -> None:
    gone = tmp_path / "gone" / "out"
    for args in (["convert", chat, "--to", "openai", "-o", gone], ["inspect", chat, "--html", gone]):
        code, out, err = run(*args)
        assert (code, out) == (4, "")
        assert_one_line(err)
        assert str(gone) in err
    assert list(tmp_path.glob("*.part")) == []


@pytest.mark.parametrize("kind", ["missing folder", "folder", "other file"])
def test_unusable_store_is_one_line(run: Run, chat: Path, tmp_path: Path, kind: str) -> None:
    store = tmp_path / "store.db"
    if kind == "folder":
        store.mkdir()
    elif kind == "other file":
        store.write_bytes(b"this is no database at all " * 400)
    else:
        store = tmp_path / "gone" / "store.db"
    code, _, err = run("replay", chat, "--store", store)
    assert code == 4
    assert_one_line(err)
    assert store.name in err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["inspect"], "Missing argument 'FILE...'"),
        (["inspect", "--counter", "abacus", "x"], "'abacus' is not one of"),
        (["check", "x", "--rules", "mine"], "'mine' is not one of"),
        (["inspect", "x", "--conversation", "0"], "neither a number from 1 on"),
        (["inspect", "x", "--conversation", "¹"], "neither a number from 1 on"),
        (["count", "--format", "x", "y"], "'x' is none of"),
        (["convert", "x"], "Missing option '--to'"),
        (["replay", "x"], "Missing option '--store'"),
        (["replay", "x", "--store", "y", "--delay", "-1"], "'--delay'"),
        (["frobnicate"], "No such command 'frobnicate'"),
        (["--frobnicate"], "No such option"),
    ],
)
def test_wrong_command_line_is_one_line(run: Run, args: list[str], message: str) -> None:
    code, out, err = run(*args)
    assert (code, out) == (2, "")
    assert_one_line(err)
    assert message in err
    assert "--help" in err


def test_no_command_shows_the_help(run: Run) -> None:
    code, out, _ = run()
    assert code == 2
    assert out == run("--help")[1]


def test_number_beyond_the_file_is_told(run: Run, several: Path) -> None:
    code, _, err = run("inspect", several, "--conversation", "3")
    assert code == 2
    assert "holds 2 conversation(s), there is no number 3" in err


def test_messages_cannot_take_over_the_terminal(run: Run, tmp_path: Path) -> None:
    code, _, err = run("inspect", tmp_path / "\x1b[2Jevil\nline\u202e.json")
    assert code == 3
    assert_one_line(err)
    assert "\x1b" not in err
    assert "\u202e" not in err


def test_fault_of_our_own_has_its_code(run: Run, chat: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception from inside never ends with the code that means findings."""

    def fail(*args: object, **options: object) -> None:
        raise LookupError("what nobody foresaw")

    monkeypatch.setattr("agentkit.inspect.inspect_transcript", fail)
    code, out, err = run("inspect", chat)
    assert (code, out) == (70, "")
    assert "LookupError: what nobody foresaw" in err
    assert "please report it" in err


def test_every_command_tells_its_exit_codes(run: Run) -> None:
    context = click.Context(cli.cli)
    for name in cli.cli.list_commands(context):
        code, out, _ = run(name, "--help")
        assert code == 0
        assert "130  interrupted" in out


def assert_one_line(text: str) -> None:
    assert text.endswith("\n")
    assert len(text.splitlines()) == 1, text
    assert "Traceback" not in text
