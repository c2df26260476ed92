"""`agentd prompt`, and templates as part of the configuration that every command checks."""

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

from agentd import cli
from agentd.cli.prompt import default_yaml, rendered
from agentd.config import ConfigError, load
from agentd.context.prompt import StandingData, VolatileData, prompt_of, prompt_of_settings
from agentd.context.prompt_rules import template_rules
from agentd.context.prompt_text import STANDING, VOLATILE
from agentd.runtime.daemon import Daemon
from agentd.runtime.principals import Principal, sender_of
from tests.agentd.daemon.model import ObedientLLM, task

SOUND = "intelligence: {endpoints: ['replay:x'], model: m}\nagent: {name: desk, instruction: Reply briefly.}\n"


def run(capfd: pytest.CaptureFixture[str], *args: str | Path) -> tuple[int, str, str]:
    code = cli.run([str(arg) for arg in args])
    out, err = capfd.readouterr()
    return code, out, err


@pytest.fixture(autouse=True)
def nothing_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("AGENTD_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def sound(tmp_path: Path) -> Path:
    file = tmp_path / "a.yaml"
    file.write_text(SOUND)
    return file


def test_default_is_a_document_that_gives_the_built_in(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, sound: Path
) -> None:
    code, out, err = run(capfd, "prompt", "--default")
    assert (code, err) == (0, "")
    assert out == default_yaml()
    file = tmp_path / "prompt.yaml"
    file.write_text(out, encoding="utf-8")
    found = load([sound, file], environ={}, rules=[template_rules])
    assert found.context.template.standing == STANDING
    assert found.context.template.volatile == VOLATILE
    assert prompt_of_settings(found).sources == prompt_of().sources
    assert yaml.safe_load(out)["context"]["template"] == {"standing": STANDING, "volatile": VOLATILE}


def test_render_shows_both_parts(capfd: pytest.CaptureFixture[str], tmp_path: Path, sound: Path) -> None:
    folder = tmp_path / "skills" / "pdf"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: pdf\ndescription: Fill in forms\n---\nbody\n")
    (tmp_path / "skills" / "bad").mkdir()
    (tmp_path / "skills" / "bad" / "SKILL.md").write_text("x")
    code, out, err = run(capfd, "prompt", "-c", sound, "--skills.sources", f"[{{path: {folder.parent}}}]", "--render",
                         "root")  # fmt: skip
    assert (code, err) == (0, "")
    assert out.startswith("--- standing, by built-in\nYou are desk.\n")
    assert "Reply briefly." in out
    assert "- pdf: Fill in forms\n" in out
    assert "bad" not in out
    assert "- memory: " in out
    assert re.fullmatch(r"Time: \S+Z\n", out.rpartition("\n--- volatile, by built-in\n")[2])
    assert not (tmp_path / "state").exists()


def test_render_of_a_stored_context_shows_its_plan_and_the_keys_in_memory(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, sound: Path
) -> None:
    order = task(
        "all",
        [{"tool": "memory.set", "args": {"key": "colour", "value": "red"}}],
        [{"tool": "plan.create", "args": {"goal": "Paint the shed", "items": ["Buy paint"]}}],
    )

    async def fill() -> None:
        async with await Daemon.open(load([sound], environ={}), model=ObedientLLM()) as agent:
            assert (await agent.ask(order, context="d", principal=Principal("ben", "user"))).state == "completed"
            # Beside the running daemon, in a thread, since the command has an event loop of its own.
            told.append(await asyncio.to_thread(run, capfd, "prompt", "-c", sound, "--render", "d"))

    told: list[tuple[int, str, str]] = []
    asyncio.run(fill())
    for code, out, err in (told[0], run(capfd, "prompt", "-c", sound, "--render", "d")):
        assert (code, err) == (0, "")
        shown = out.rpartition("\n--- volatile, by built-in\n")[2]
        assert "Paint the shed" in shown
        assert "Buy paint" in shown
        assert "- colour\n" in shown
    shown = run(capfd, "prompt", "-c", sound, "--render", "root")[1].rpartition("\n--- volatile")[2]
    assert "- colour\n" in shown
    assert "Paint" not in shown
    assert run(capfd, "prompt", "-c", sound, "--render", "e") == (1, "", "agentd: there is no context 'e'\n")
    code, out, err = run(capfd, "prompt", "-c", sound, "--render", "d", "--store.path", tmp_path / "elsewhere")
    assert (code, out) == (8, "")
    assert err.startswith(f"agentd: there is no store at {tmp_path / 'elsewhere'}")


def test_tools_of_a_prompt_are_those_of_the_owner(sound: Path) -> None:
    found = load([sound], environ={}, flags=[("a2a.principals", "[{id: web, match: any, role: anonymous}]")])
    assert sender_of(found, None) == sender_of(found, "operator") == Principal("operator", "operator")
    assert sender_of(found, "web") == Principal("web", "anonymous")
    assert sender_of(found, "anna") == Principal("anna", "user")


def test_render_tells_what_failed_and_what_is_hardly_meant(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, sound: Path
) -> None:
    file = tmp_path / "b.yaml"
    file.write_text("context: {template: {standing: '{{ 1 / 0 }}', volatile: 'Now.'}}\n")
    code, out, err = run(capfd, "prompt", "-c", sound, "-c", file, "--render", "root")
    assert code == 0
    assert out.startswith("--- standing, by built-in\nYou are desk.")
    assert out.endswith("\n--- volatile, by template\nNow.\n")
    assert err == (
        "agentd: context.template.standing: the standing template never reads `instruction`, so the model is not told "
        "what agent.instruction says\n"
        "agentd: standing: by template: ZeroDivisionError: division by zero\n"
    )


@pytest.mark.parametrize("args", [[], ["--default", "--render", "root"]], ids=["none", "both"])
def test_one_of_both_is_needed(capfd: pytest.CaptureFixture[str], args: list[str]) -> None:
    code, out, err = run(capfd, "prompt", *args)
    assert (code, out) == (2, "")
    assert "it takes one of --default and --render CONTEXT." in err


def test_rendered_is_a_function_of_its_data() -> None:
    data = StandingData("desk", "", "x")
    text, failures = rendered(prompt_of("{{ instruction }}", "{{ now }}"), data, VolatileData(now=1_000))
    assert (text, failures) == (
        "--- standing, by template\nx\n--- volatile, by template\n1970-01-01T00:00:01Z\n", [],
    )  # fmt: skip


def test_check_tells_what_is_hardly_meant(capfd: pytest.CaptureFixture[str], sound: Path) -> None:
    code, out, err = run(capfd, "check", "-c", sound, "--context.template", "You.")
    assert code == 0
    assert out.startswith("configuration of desk is sound")
    assert err.startswith("agentd: context.template.standing: the standing template never reads `instruction`")


# Rules


def test_f40_faulty_templates_are_configuration_faults_with_file_line_and_key(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, sound: Path
) -> None:
    file = tmp_path / "b.yaml"
    file.write_text(
        "context:\n  compact_at: 2\n  template: |\n    You.\n    {{ nothing }} {{ plan }}\n"
        "  templates:\n    short: '{% if %}'\n    two:\n      standing: fine {{ instruction }}\n"
        f'      volatile: "{"x" * 65_537}"\n'
    )
    for command in (["check"], ["prompt", "--render", "root"]):
        code, out, err = run(capfd, *command, "-c", sound, "-c", file)
        assert (code, out) == (2, "")
        lines = err.replace(f"agentd: {file}:", "").splitlines()
        assert [line.partition("; ")[0] for line in lines] == [
            "2: context.compact_at: 2",
            "3: context.template.standing: line 2 of the text: 'plan', which changes from turn to turn",
            "3: context.template.standing: line 2 of the text: an unknown variable, 'nothing'",
            "7: context.templates.short.standing: line 1 of the text: it does not parse: Expected an expression, got "
            "'end of statement block'",
            "10: context.templates.two.volatile: a template that is too long",
        ]


def test_f40_template_by_flag_or_variable_is_checked_too(sound: Path) -> None:
    for given in ({"flags": [("context.template", "{{ x }}")]}, {"environ": {"AGENTD_CONTEXT__TEMPLATE": "{{ x }}"}}):
        options = {"environ": {}, **given}
        with pytest.raises(ConfigError, match="an unknown variable, 'x'"):
            load([sound], rules=[template_rules], **options)  # type: ignore[arg-type]


def test_f52_configured_instruction_reaches_the_prompt_unchanged(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, sound: Path
) -> None:
    file = tmp_path / "b.yaml"
    file.write_text(
        "agent: {instruction: 'Отвечай 简短 🙂 {{ x }}'}\ncontext: {template: 'Ü {{ instruction }}'}\n", "utf-8"
    )
    code, out, err = run(capfd, "prompt", "-c", sound, "-c", file, "--render", "root")
    assert (code, err) == (0, "")
    assert out.startswith("--- standing, by template\nÜ Отвечай 简短 🙂 {{ x }}\n")


def test_templates_of_subagents_are_found_by_name(tmp_path: Path, sound: Path) -> None:
    file = tmp_path / "b.yaml"
    file.write_text("context: {templates: {short: '{{ instruction }}'}}\n")
    found = load([sound, file], environ={}, rules=[template_rules])
    assert prompt_of_settings(found, "short").sources == ("{{ instruction }}", VOLATILE)
    assert prompt_of_settings(found).sources == (STANDING, VOLATILE)
    with pytest.raises(KeyError, match=r"no prompt 'long' in context\.templates; there is: short"):
        prompt_of_settings(found, "long")


PROBE = """
import sys
from agentd.cli import run
code = run()
print("LOADED", *sys.modules)
sys.exit(code)
"""


@pytest.mark.parametrize(
    ("args", "loaded"),
    [
        (["--help"], False),
        (["prompt", "--help"], False),
        (["prompt", "--default"], False),
        (["check", "-c", "a.yaml"], False),
        (["check", "-c", "a.yaml", "--context.template", "{{ instruction }}"], True),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)
def test_template_language_is_loaded_where_there_is_a_template(tmp_path: Path, sound: Path, args: list[str],
                                                               loaded: bool) -> None:  # fmt: skip
    done = subprocess.run([sys.executable, "-W", "error", "-c", PROBE, *args], capture_output=True, text=True,
                          timeout=60, cwd=tmp_path)  # fmt: skip
    assert done.returncode == 0, done.stderr
    modules = done.stdout.rpartition("LOADED")[2].split()
    assert ("jinja2" in modules) == loaded


def test_without_the_template_language_one_error_names_the_extra(tmp_path: Path, sound: Path) -> None:
    (tmp_path / "jinja2.py").write_text("raise ImportError(name='jinja2')\n")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "agentd", "check", "-c", "a.yaml", "--context.template", "x"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)}, cwd=tmp_path, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == "agentd: agentd needs the package 'jinja2': pip install 'arc-agentkit[agentd]'\n"
