"""The MCP servers of an instance. Starts and ends them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

from agentd.config.serving import Server as Settings

from .connection import Change
from .server import Server


class Servers:
    """All of `mcp.servers`, by name. `changed` are called with a server and what changed of it, whichever connection
    or reload it comes from; `make`: in place of the class."""

    def __init__(
        self,
        settings: Sequence[Settings] = (),
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        make: Callable[..., Server] = Server,
    ) -> None:
        self.changed: list[Callable[[Server, Change], None]] = []
        self._make, self._sleep = make, sleep
        self._servers = {one.name: self._made(one) for one in settings}

    def __iter__(self) -> Iterator[Server]:
        return iter(self._servers.values())

    def __len__(self) -> int:
        return len(self._servers)

    def get(self, name: str) -> Server | None:
        return self._servers.get(name)

    def start(self) -> None:
        """Begin to connect to all of them."""
        for server in self:
            server.start()

    async def missing(self) -> list[Server]:
        """Of those that are required, the ones that do not come up within the time of their requests."""
        required = [server for server in self if server.settings.required]
        came = await asyncio.gather(*(server.ready(server.timeout) for server in required))
        return [server for server, is_up in zip(required, came, strict=True) if not is_up]

    async def reload(self, settings: Sequence[Settings]) -> list[str]:
        """Go on with other settings: what is gone or different is ended, and only then what is new or different is
        started, as two processes of one server may be in each other's way. Returns the names of those that are gone."""
        before = self._servers
        kept = {one.name: found for one in settings if (found := before.get(one.name)) and found.settings == one}
        self._servers = {one.name: kept.get(one.name) or self._made(one) for one in settings}
        await asyncio.gather(*(server.aclose() for name, server in before.items() if name not in kept))
        self.start()
        return [name for name in before if name not in self._servers]

    async def aclose(self) -> None:
        """End all of them, together."""
        await asyncio.gather(*(server.aclose() for server in self))

    def status(self) -> list[dict[str, Any]]:
        """What there is to see of each."""
        return [
            {"name": server.name, "state": server.state, "protocol": server.version, "error": server.error}
            for server in self
        ]

    def _made(self, settings: Settings) -> Server:
        server = self._make(settings, sleep=self._sleep)
        server.changed.append(lambda change: self._tell(server, change))
        return server

    def _tell(self, server: Server, change: Change) -> None:
        if self._servers.get(server.name) is server:  # one that a reload replaced says nothing any more
            for listener in tuple(self.changed):
                listener(server, change)
