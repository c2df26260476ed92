"""The example of each provider works as it is called in its own text, without a key and without a foreign host."""

import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parent.parent.parent / "examples" / "providers"
EXAMPLES = sorted(FOLDER.glob("*.py"))
ON_LOOPBACK = """
import runpy, sys
from agentkit.models.testing import loopback_only
sys.argv = sys.argv[1:]
with loopback_only():
    runpy.run_path(sys.argv[0], run_name="__main__")
"""
TURN = re.compile(r"  input ([\d,]+): ([\d,]+) read, ([\d,]+) written, ([\d,]+) fresh; output (\d+); (0\.\d{6}) USD")


def run_example(script: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs it in a process that reaches loopback only and knows no key."""
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    command = [sys.executable, "-W", "error", "-c", ON_LOOPBACK, str(script), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda script: script.stem)
def test_later_turns_read_what_the_first_left(script: Path) -> None:
    run = run_example(script, "--fake")
    assert (run.returncode, run.stderr) == (0, "")
    turns = [[int(figure.replace(",", "")) for figure in found[:4]] for found in TURN.findall(run.stdout)]
    assert len(turns) == 3
    assert turns[0][1] == 0
    for (before, *_), (prompt, read, written, fresh) in pairwise(turns):
        assert read + written + fresh == prompt > before
        assert read > 0.9 * before
    assert "37 EUR." in run.stdout


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda script: script.stem)
def test_without_key_or_server_an_example_says_what_to_do(script: Path) -> None:
    run = run_example(script)
    assert (run.returncode, run.stdout) == (2, "")
    assert "--fake" in run.stderr.splitlines()[-1]


def test_an_unknown_price_is_not_shown_as_nothing() -> None:
    run = run_example(FOLDER / "compatible.py", "--fake", "--provider", "vllm", "--model", "Qwen/Qwen3-8B")
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.count("price unknown") == 3


def test_every_provider_has_its_example() -> None:
    assert [script.stem for script in EXAMPLES] == [
        "anthropic_chat",
        "compatible",
        "gemini_chat",
        "openai_chat",
        "openai_responses",
    ]
