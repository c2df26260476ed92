"""Runs in an environment that has the package, click and nothing else of it: `make bare`.

The same tests pass in the full environment, which they find out for themselves.
"""

import importlib.util
import json
import subprocess
import sys
from importlib.metadata import distribution
from importlib.resources import files
from pathlib import Path

import pytest

from tests.seed_examples import EXAMPLES, check_example

ROOMS = ["agentkit", "agentkit.core.contracts", "agentkit.state.context"]
PROBE = "import json, sys; old = set(sys.modules); import {0}; print(json.dumps([*set(sys.modules) - old]))"


@pytest.mark.parametrize("room", ROOMS)
def test_import_needs_standard_library_only(room: str) -> None:
    run = subprocess.run([sys.executable, "-c", PROBE.format(room)], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    loaded = {name.partition(".")[0] for name in json.loads(run.stdout)}
    assert loaded - set(sys.stdlib_module_names) == {"agentkit"}


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda script: script.stem)
def test_example_runs_bare(script: Path) -> None:
    check_example(script)


def test_package_requires_click_only() -> None:
    required = [line for line in distribution("arc-agentkit").requires or [] if "extra ==" not in line]
    assert [line.partition(">")[0] for line in required] == ["click"]


@pytest.mark.parametrize("package", ["agentkit", "agentd"])
def test_package_ships_its_types(package: str) -> None:
    assert files(package).joinpath("py.typed").is_file()


def test_extras_are_absent_when_bare() -> None:
    """Guards the environment itself: with an extra in it the other tests would prove nothing."""
    if ".venv-bare" not in Path(sys.prefix).parts:
        pytest.skip("not the bare environment")
    extras = (
        "a2a",
        "anthropic",
        "anyio",
        "apsw",
        "asyncpg",
        "google.genai",
        "mcp",
        "msgspec",
        "openai",
        "pydantic",
    )
    found = [name for name in (*extras, "tiktoken", "toktok_rs") if _is_installed(name)]
    assert found == []


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # the parent of a dotted name
        return False
