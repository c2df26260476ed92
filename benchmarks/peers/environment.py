"""Starts what runs in the peers' own environment, `.venv-peers`, which `make peers` makes. Opens processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
PYTHON = ROOT / ".venv-peers" / "bin" / "python"


def require_peers() -> None:
    """Exits with 2, saying what to do, where there is no such environment."""
    if not PYTHON.exists():
        print("the other libraries are not installed here: `make peers` makes .venv-peers for them", file=sys.stderr)
        sys.exit(2)


def environment() -> dict[str, str]:
    """Of a process that finds the drivers, reports nothing to anybody and is told of no key."""
    kept = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    quiet = {"OPENAI_AGENTS_DISABLE_TRACING": "1", "LANGSMITH_TRACING": "false"}
    return {**kept, **quiet, "PYTHONPATH": str(ROOT / "benchmarks")}


class Peer:
    """A process of another library, which takes one job after the other. `name`: package and version."""

    def __init__(self, module: str, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [str(PYTHON), "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        self.name = self._line()

    def do(self, job: Mapping[str, Any]) -> str:
        """Its answer to a job. RuntimeError where it ended instead; its own error is on standard error."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        return self._line()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{' '.join(map(str, self._process.args[2:]))} ended: {self._process.wait()}")  # type: ignore[index]
        return line.rstrip("\n")

    def __enter__(self) -> Peer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def names(peers: Iterable[Peer]) -> str:
    return ", ".join(peer.name for peer in peers)
