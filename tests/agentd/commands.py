"""`agentd` for tests: within this process for what a command says, as a process for signals and for what only a second
process shows. Nothing of this machine's environment or state folder reaches either."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from agentd import cli

AGENTD = [sys.executable, "-W", "error", "-m", "agentd"]
PATIENCE = 60.0
"""Seconds after which a process that says nothing more is killed, so that its test fails."""


def write_agent(folder: Path, script: Any, **sections: Any) -> Path:
    """A configuration of an agent whose model follows `script`. `sections` are laid over it."""
    (folder / "script.yaml").write_text(yaml.safe_dump(script))
    document: dict[str, Any] = {
        "agent": {"name": "desk"},
        "intelligence": {"endpoints": [f"fake:{folder}/script.yaml"], "model": "m"},
    }
    for name, section in sections.items():
        document[name] = {**document.get(name, {}), **section}
    file = folder / "agent.yaml"
    file.write_text(yaml.safe_dump(document))
    return file


def stored(folder: Path) -> dict[str, Any]:
    """The section `store` of an agent that stores below `folder`."""
    return {"path": str(folder / "store")}


@contextmanager
def own_logging() -> Iterator[None]:
    """Puts back what `agentd` does to the logging of its process."""
    root, own = logging.getLogger(), logging.getLogger("agentd")
    before = root.handlers[:], root.level, own.level
    try:
        yield
    finally:
        root.handlers[:] = before[0]
        root.setLevel(before[1])
        own.setLevel(before[2])


def agentd(*args: str | Path) -> int:
    """The exit code of a command line, run in this process."""
    with own_logging():
        return cli.run([str(arg) for arg in args])


def log_of(text: str) -> list[dict[str, Any]]:
    """The JSON lines of a standard error; other lines begin with the name of the program."""
    lines = text.splitlines()
    assert [line for line in lines if not line.startswith(("{", "agentd"))] == []
    return [json.loads(line) for line in lines if line.startswith("{")]


class Process:
    """A running `agentd`. `with` kills what is left of it. `stdin`: what it reads, or a file descriptor."""

    def __init__(self, folder: Path, *args: str | Path, stdin: str | int | None = None, **environ: str) -> None:
        self.log: list[dict[str, Any]] = []
        self.said: list[str] = []
        """Lines of standard error that are no log."""
        self._process = subprocess.Popen(
            [*AGENTD, *map(str, args)],
            stdin=stdin if isinstance(stdin, int) else subprocess.DEVNULL if stdin is None else subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean_environment(folder, environ),
        )  # fmt: skip
        if isinstance(stdin, str) and self._process.stdin is not None:
            self._process.stdin.write(stdin)
            self._process.stdin.close()
        self._watchdog = threading.Timer(PATIENCE, self._process.kill)
        self._watchdog.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *exc: object) -> None:
        self._watchdog.cancel()
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()

    def event(self, name: str, **fields: Any) -> dict[str, Any]:
        """Reads on to the next event of this name with these fields."""
        return self.line(event=name, **fields)

    def line(self, **fields: Any) -> dict[str, Any]:
        """Reads on to the next log line with these fields."""
        assert self._process.stderr is not None
        for line in self._process.stderr:
            told = self._take(line)
            if told is not None and all(told.get(key) == value for key, value in fields.items()):
                return told
        raise AssertionError(f"it ended without {fields}: {self.log[-3:]} {self.said}")

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def say(self, line: str) -> None:
        """Give it a line, where its `stdin` is subprocess.PIPE."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def printed(self) -> str:
        """The next line of standard output."""
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def end(self) -> tuple[int, str]:
        """Waits for its end: exit code and standard output."""
        assert self._process.stderr is not None
        assert self._process.stdout is not None
        for line in self._process.stderr:
            self._take(line)
        return self._process.wait(), self._process.stdout.read()

    def _take(self, line: str) -> dict[str, Any] | None:
        if not line.startswith("{"):
            self.said.append(line.rstrip("\n"))
            return None
        told: dict[str, Any] = json.loads(line)
        self.log.append(told)
        return told


def clean_environment(folder: Path, environ: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AGENTD_")}
    return {**kept, "XDG_STATE_HOME": str(folder / "state"), **environ}
