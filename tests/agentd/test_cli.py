"""The command `agentd`: help, check and schema, within this process and as processes of their own."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from agentd import cli

Run = Callable[..., tuple[int, str, str]]
AGENTD = [sys.executable, "-W", "error", "-m", "agentd"]

# What the budgets of the design name.
SDKS = {"a2a", "mcp", "anthropic", "openai", "google", "httpx", "httpx2", "nats", "asyncpg"}
HEAVY = SDKS | {
    "pydantic", "pydantic_core", "yaml", "jinja2", "starlette", "uvicorn", "msgspec", "asyncio", "sqlite3", "json",
    "decimal", "agentkit.core", "agentkit.models", "agentkit.state", "agentd.config",
}  # fmt: skip
PROBE = """
import sys
sys.argv[0] = "agentd"
from agentd.cli import run
code = run()
print("LOADED", *sys.modules)
sys.exit(code)
"""
SOUND = "intelligence: {endpoints: ['replay:x'], model: m}\n"


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command line without any `AGENTD_` variable but those given; exit code, standard output and error."""

    def run(*args: str | Path, **environ: str) -> tuple[int, str, str]:
        for name in [name for name in os.environ if name.startswith("AGENTD_")]:
            monkeypatch.delenv(name)
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        code = cli.run([str(arg) for arg in args])
        out, err = capfd.readouterr()
        return code, out, err

    return run


def loaded(*args: str | Path) -> tuple[int, set[str]]:
    """The exit code of a fresh process, and what it had imported at its end."""
    command = [sys.executable, "-W", "error", "-c", PROBE, *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return done.returncode, set(done.stdout.rpartition("LOADED")[2].split())


def among(modules: set[str], names: set[str]) -> list[str]:
    return sorted(module for module in modules if any(module == n or module.startswith(n + ".") for n in names))


@pytest.mark.parametrize(
    "args",
    [["--help"], ["--version"], ["inspect", "view", "-h"], ["memory", "set", "-h"], ["capabilities", "-h"]],
    ids=" ".join,
)
def test_help_loads_nothing_heavy(args: list[str]) -> None:
    code, modules = loaded(*args)
    assert code == 0
    assert among(modules, HEAVY) == []
    assert "click" in modules


def test_help_looks_at_every_command() -> None:
    """So that the budget of `--help` is one of all of them."""
    modules = loaded("--help")[1]
    assert set(cli.COMMANDS.values()) <= modules


def test_check_loads_no_protocol_and_no_provider(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(SOUND)
    code, modules = loaded("check", "-c", file)
    assert code == 0
    assert among(modules, SDKS | {"jinja2", "starlette", "uvicorn", "asyncio", "sqlite3", "ssl"}) == []
    assert "pydantic" in modules


def test_check_of_a_sound_configuration(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(SOUND)
    code, out, err = run("check", "-c", file, "--agent.name", "desk")
    assert (code, err) == (0, "")
    assert re.fullmatch(r"configuration of desk is sound: store sqlite, digest [0-9a-f]{12}\n", out)


def test_files_flags_and_variables_join(run: Run, tmp_path: Path) -> None:
    first, second = tmp_path / "a.yaml", tmp_path / "b.json"
    first.write_text(SOUND + "agent: {name: first}\n")
    second.write_text(json.dumps({"agent": {"name": "second"}}))
    assert run("check", "-c", first, "-c", second)[1].startswith("configuration of second ")
    environ = {"AGENTD_AGENT__NAME": "third"}
    assert run("check", "-c", first, "--config", second, **environ)[1].startswith("configuration of third ")
    flags = ["--agent.name=-x", "--store.kind", "memory"]
    code, out, _ = run("check", *flags, f"-c{first}", "-c", second, **environ)
    assert code == 0
    assert out.startswith("configuration of -x is sound: store memory")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["check", "--agent.name"], "agentd check: --agent.name needs a value. See 'agentd check --help'.\n"),
        (["check", "--frsh"], "agentd check: No such option"),
        (["check", "-c"], "Option '-c' requires an argument."),
        (["check", "extra"], "agentd check: Got unexpected extra argument"),
        (["check", "--", "--agent.name", "x"], "agentd check: Got unexpected extra argument"),
        (["chek"], "agentd: No such command 'chek'."),
        (["schema", "--agent.name", "x"], "agentd schema: No such option"),
        (["check", "--agent.nam", "x"], "agentd: --agent.nam: an unknown key; did you mean agent.name?\n"),
    ],
)
def test_wrong_command_lines(run: Run, args: list[str], message: str) -> None:
    code, out, err = run(*args)
    assert (code, out) == (2, "")
    assert err.startswith(message) or message in err


def test_no_command_is_help_and_a_wrong_command_line(run: Run) -> None:
    code, out, err = run()
    assert (code, err) == (2, "")
    assert "Usage: agentd" in out


def test_schema_is_json(run: Run) -> None:
    code, out, err = run("schema")
    assert (code, err) == (0, "")
    assert json.loads(out)["required"] == ["intelligence"]


def test_f51_all_faults_with_nothing_touched(tmp_path: Path) -> None:
    """Every fault in one run of a real process, exit code 2; nothing but the named files is opened, no socket is made,
    and no secret is in the output."""
    folder = tmp_path / "run"
    folder.mkdir()
    (tmp_path / "key").write_text("hush-file")
    (tmp_path / "a.yaml").write_text(
        "agent:\n  nam: desk\nintelligence:\n  endpoints: ['replay:x']\n  model: mystery\n  token: hush-literal\n"
        "  headers: {X: {env: HUSH}, Y: {file: ../key}, Cookie: hush-cookie}\n"
        "  budget: {windows: [{per: day, usd: 1}]}\n"
        "a2a: {listen: '0.0.0.0:0'}\nstore: {kind: sqlite, path: state}\nstore: {}\n"
    )
    (tmp_path / "b.yaml").write_text("context: {compact_at: on, keep_last: [}\n")
    (tmp_path / "c.yaml").write_text("context: {compact_to: 2}\n")
    watch = """
import sys
touched = []
def hook(event, args):
    if event == "open" and isinstance(args[0], str) and not args[0].startswith(sys.prefix):
        touched.append((str(args[0]), args[1]))
    elif event.startswith(("socket.", "subprocess.", "os.", "sqlite3.", "shutil.")):
        if event not in ("os.listdir", "os.scandir"):
            touched.append((event, args))
from agentd.cli import run
import agentd.config, agentd.cli.check, traceback
sys.addaudithook(hook)
code = run()
code_and_prices = (".py", ".pyc", ".json")
names = sorted({name for name, _ in touched if not name.endswith(code_and_prices) and "site-packages" not in name})
print("TOUCHED", *names)
sys.exit(code)
"""
    environ = {k: v for k, v in os.environ.items() if not k.startswith("AGENTD_")}
    args = ["-c", "../a.yaml", "-c", "../b.yaml", "-c", "../c.yaml", "--x.y", "hush-flag"]
    done = subprocess.run(
        [sys.executable, "-c", watch, "check", *args],
        cwd=folder, env={**environ, "HUSH": "hush-env", "AGENTD_LIMITS__INBOX": "none"},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stdout.split() == ["TOUCHED", "../a.yaml", "../b.yaml", "../c.yaml", "../key"]
    assert list(folder.iterdir()) == []
    assert "hush" not in done.stdout + done.stderr
    lines = done.stderr.splitlines()
    expected = [
        "../a.yaml:2: agent.nam: ", "../a.yaml:6: intelligence.token: ", "../a.yaml:11: store: ",
        "../b.yaml:1: not YAML", "../c.yaml:1: context.compact_to: ", "AGENTD_LIMITS__INBOX: limits.inbox: ", "--x.y: ",
    ]  # fmt: skip
    assert [line.startswith(f"agentd: {start}") for line, start in zip(lines, expected, strict=True)] == [True] * 7
    (tmp_path / "b.yaml").write_text("context: {compact_at: on}\n")
    again = subprocess.run([*AGENTD, "check", "-c", "../a.yaml", "-c", "../b.yaml"], cwd=folder,
                           env={**environ, "HUSH": "hush-env"}, capture_output=True, text=True, timeout=60)  # fmt: skip
    assert again.returncode == 2
    for key in (
        "intelligence.headers.Cookie",
        "intelligence.budget.windows[0].usd",
        "a2a.listen",
        "context.compact_at",
    ):
        assert f" {key}: " in again.stderr
    assert "hush" not in again.stderr


def test_without_the_extra_one_error_names_it(tmp_path: Path) -> None:
    (tmp_path / "pydantic.py").write_text("raise ImportError(name='pydantic')\n")
    for command in ("check", "schema", "capabilities"):
        done = subprocess.run(
            [*AGENTD, command],
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 1
        assert done.stderr == "agentd: agentd needs the package 'pydantic': pip install 'arc-agentkit[agentd]'\n"


def test_installed_command_is_the_module() -> None:
    script = Path(sys.executable).with_name("agentd")
    outputs = [
        subprocess.run([*command, "--help"], capture_output=True, text=True, timeout=60).stdout
        for command in (AGENTD, [script])
    ]
    assert outputs[0] == outputs[1]
    assert "Usage: agentd" in outputs[0]


def test_version_is_the_package_version(run: Run) -> None:
    assert re.fullmatch(r"agentd, version \d+\.\d+\.\d+\n", run("--version")[1])
