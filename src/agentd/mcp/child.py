"""An MCP server as a child process that speaks over its standard input and output. Starts and ends processes.

In place of the SDK's own transport, since these are needed: the end of the process is noticed even while a grandchild
holds its output open; everything of its process group is ended for certain; a line has a bound; what it writes to
its standard error goes to the log.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from asyncio.subprocess import PIPE, SubprocessStreamProtocol
from collections.abc import AsyncGenerator, Awaitable, Mapping, Sequence
from contextlib import suppress

from mcp.client.stdio import get_default_environment

log = logging.getLogger("agentd")

GRACE = 2.0
"""Seconds for each step of the end: after its input was closed, after SIGTERM, after SIGKILL."""
LAST_WORDS = 0.5
"""Seconds for what a process wrote before it ended, while another holds its output open; and between the end of its
pipes and its own."""
SHOWN = 2_000
"""Bytes of a line of standard error that are logged."""


class _Protocol(SubprocessStreamProtocol):
    """Tells when the process ends, not only when its pipes are closed too."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit=limit, loop=asyncio.get_running_loop())
        self.exited = asyncio.Event()

    def process_exited(self) -> None:
        super().process_exited()
        self.exited.set()


class Child:
    """One child process. `pid`: also that of its process group; `last_line`: of its standard error;
    `is_ending`: whether it is us who end it."""

    def __init__(self, name: str, transport: asyncio.SubprocessTransport, protocol: _Protocol) -> None:
        stdin, stdout, stderr = protocol.stdin, protocol.stdout, protocol.stderr
        if stdin is None or stdout is None or stderr is None:
            raise RuntimeError("a child process was started without its pipes")
        self.name, self.pid, self.last_line = name, transport.get_pid(), ""
        self.is_ending = False
        self._transport, self._exited = transport, protocol.exited
        self._stdin, self._stdout, self._stderr = stdin, stdout, stderr

    @classmethod
    async def start(cls, name: str, command: Sequence[str], env: Mapping[str, str], *, limit: int) -> Child:
        """Start it, with the few variables that the SDK lets through (HOME, PATH and such) and `env`. Raises OSError.
        `limit`: bytes of a line."""
        transport, protocol = await asyncio.get_running_loop().subprocess_exec(
            lambda: _Protocol(limit), *command, stdin=PIPE, stdout=PIPE, stderr=PIPE,
            env=get_default_environment() | dict(env), start_new_session=True,
        )  # fmt: skip
        return cls(name, transport, protocol)

    @property
    def how_it_ended(self) -> str:
        code = self._transport.get_returncode()
        if code is None:
            return "it closed its output"
        return f"its process ended with exit code {code}" if code >= 0 else f"its process got {_signal_name(-code)}"

    async def lines(self) -> AsyncGenerator[bytes, None]:
        """What it writes, line by line, until its output or the process ends. Raises ValueError for a line over the
        limit."""
        watch = asyncio.create_task(self._close_when_ended())
        try:
            while line := await self._stdout.readline():
                yield line
        finally:
            watch.cancel()
        await self.has_ended()

    async def has_ended(self) -> bool:
        """Whether it ended, with a moment's patience: pipes break just before the process is gone."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._exited.wait(), LAST_WORDS)
        return self._exited.is_set()

    async def _close_when_ended(self) -> None:
        await self._exited.wait()
        await asyncio.sleep(LAST_WORDS)
        if (pipe := self._transport.get_pipe_transport(1)) is not None:
            pipe.close()

    async def write(self, data: bytes) -> None:
        """Raises ConnectionError once it reads no more."""
        self._stdin.write(data)
        await self._stdin.drain()

    async def log_errors(self) -> None:
        """Write its standard error to the log, line by line, each cut to a bound."""
        rest = b""
        while chunk := await self._stderr.read(1 << 16):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._log(line)
            rest = rest[: SHOWN + 1]  # what is cut off is of a line that is cut anyway
        self._log(rest)

    def _log(self, line: bytes) -> None:
        text = line[:SHOWN].decode("utf-8", "replace").strip()
        if text:
            self.last_line = text
            log.debug("MCP server %s: %s", self.name, text)

    async def end(self) -> None:
        """End it and all that it started: by closing its input, then SIGTERM, then SIGKILL, which also comes when this
        is cancelled."""
        self.is_ending = True
        try:
            try:
                self._stdin.close()
                await _within(self._exited.wait())
                if _signal(self.pid, signal.SIGTERM):
                    _signal(self.pid, signal.SIGCONT)  # one that is stopped would not hear the other
                    await _within(self._all_gone())
            finally:
                _signal(self.pid, signal.SIGKILL)  # whoever is left of the group
            await _within(self._exited.wait())
            if not self._exited.is_set():
                log.error("the MCP server %s (process %d) cannot be ended", self.name, self.pid)
        finally:
            self._transport.close()  # pipes that somebody outside the group still holds

    async def _all_gone(self) -> None:
        while _signal(self.pid, 0):  # noqa: ASYNC110 - nothing tells of the end of processes that are not ours
            await asyncio.sleep(0.01)


async def _within(waiting: Awaitable[object]) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(waiting, GRACE)


def _signal(group: int, number: int) -> bool:
    """Whether there is still somebody in the group who got it."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):  # PermissionError: what some systems say of zombies
        return False
    return True


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
