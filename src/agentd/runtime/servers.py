"""The MCP servers of an instance as its runtime has them: connected in the background, their tools in the box. Starts
child processes and opens connections.

What a server offers stays offered while it is away, so that the prefix of requests keeps its bytes; a call says then
that it is away. The SDK is imported with the first server.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from agentd.config.serving import Server as Settings
from agentd.context.memory import MemoryRefused

from .tools.box import ToolBox

if TYPE_CHECKING:
    from agentd.mcp import Change, Server, Servers

    from .server_tools import ServerTools

log = logging.getLogger("agentd")

FIRST_MOMENT = 10.0
"""Seconds for which servers that are not required are waited for by those whose work is wrong without their tools: a
one-shot prompt, and a turn whose call of an earlier life nobody knows any more."""
BETWEEN, LONGEST = 1.0, 60.0
"""Seconds between two looks at the list of a server that keeps saying that it has changed; where the list cannot be
had, twice as long each time, up to the second."""


class RequiredServerDown(RuntimeError):
    """A server that the settings call required did not come up."""


class McpServers:
    """All of `mcp.servers`. `connections` is None until there is one; `elicits`: whether people can be asked what a
    server wants to know."""

    def __init__(
        self, box: ToolBox, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep, elicits: bool = False
    ) -> None:
        self.connections: Servers | None = None
        self._box, self._sleep, self._elicits = box, sleep, elicits
        self._tools: ServerTools | None = None
        self._stale: set[str] = set()
        self._jobs: dict[str, asyncio.Task[None]] = {}
        self._seen: dict[str, asyncio.Event] = {}
        self.heard: list[Callable[[str, Change], None]] = []
        """Called with what changed, and of which server."""

    async def open(self, settings: Sequence[Settings]) -> None:
        """Begin to connect to all of them, in the background."""
        if settings:
            await self._started(settings)

    async def come_up(self, *, is_one_shot: bool = False) -> None:
        """Wait for those that are required: RequiredServerDown names one that did not come up within its timeout.
        `is_one_shot`: the others are waited for a moment too."""
        if self.connections is None:
            return
        if missing := await self.connections.missing():
            told = "; ".join(f"{one.name}: {one.error or 'no answer yet'}" for one in missing)
            raise RequiredServerDown(f"required MCP servers did not come up: {told}")
        await self._first_look([one.name for one in self.connections if one.settings.required], None)
        if is_one_shot:
            await self.all_looked_at()

    async def reload(self, settings: Sequence[Settings]) -> None:
        """Go on with other settings: new and changed servers are started, others ended, in the background."""
        if self.connections is None or self._tools is None:
            if settings:
                await self._started(settings)
            return
        for name in await self.connections.reload(settings):
            self._seen.pop(name, None)
            self._stale.discard(name)
            if (job := self._jobs.pop(name, None)) is not None:
                job.cancel()
            self._tools.forget(name)

    async def aclose(self) -> None:
        """End all of them, with their processes."""
        for job in self._jobs.values():
            job.cancel()
        await asyncio.gather(*self._jobs.values(), return_exceptions=True)
        if self.connections is not None:
            await self.connections.aclose()

    def status(self) -> list[dict[str, Any]]:
        """What there is to see of each: state, protocol, error, tools, and what is left out of them and why."""
        if self.connections is None or self._tools is None:
            return []
        return [one | self._tools.status(one["name"]) for one in self.connections.status()]

    async def all_looked_at(self, timeout: float = FIRST_MOMENT) -> None:
        """Wait until each server was asked for its tools, or could not be reached, for the first time."""
        if self.connections is not None:
            await self._first_look([one.name for one in self.connections], timeout)

    async def _started(self, settings: Sequence[Settings]) -> None:
        # In a thread, as it takes a second: others are at work when a reload brings the first server.
        mcp = await asyncio.to_thread(importlib.import_module, "agentd.mcp")
        tools = await asyncio.to_thread(importlib.import_module, "agentd.runtime.server_tools")
        make = partial(mcp.Server, elicits=self._elicits)
        servers: Servers = mcp.Servers(settings, sleep=self._sleep, make=make)
        self._tools = tools.ServerTools(servers, self._box)
        servers.changed.append(self._heard)
        self.connections = servers
        servers.start()

    async def _first_look(self, names: Sequence[str], timeout: float | None) -> None:
        waits = [asyncio.ensure_future(self._first(name).wait()) for name in names]
        if waits:
            try:
                await asyncio.wait(waits, timeout=timeout)
            finally:
                for one in waits:
                    one.cancel()

    def _first(self, name: str) -> asyncio.Event:
        return self._seen.setdefault(name, asyncio.Event())

    async def memory_call(self, name: str, tool: str, arguments: dict[str, Any]) -> Any:
        """The result of a tool as data: structured, JSON, or text. MemoryRefused says why there is none."""
        server = self.find(name)
        if server is None:
            raise MemoryRefused(f"the memory is with the MCP server {name!r}, which is not configured any more")
        try:
            result = await server.call(tool, arguments)
        except Exception as error:  # what the server and its connection make of it; all of it is a ServerError
            raise MemoryRefused(f"the memory is with the MCP server {name!r}: {error}") from error
        texts = [one.text for one in result.content if one.type == "text"]
        text = "\n".join(texts)
        if result.is_error:
            raise MemoryRefused(f"the MCP server {name!r} refused {tool}: {text[:500]}")
        if result.structured_content is not None:
            return result.structured_content
        try:
            return json.loads(text)
        except ValueError:
            return text

    def find(self, name: str) -> Server | None:
        """A server by its name, connected or not."""
        return None if self.connections is None else self.connections.get(name)

    def _heard(self, server: Server, change: Change) -> None:
        for tell in self.heard:
            tell(server.name, change)
        if change == "down":
            self._first(server.name).set()
        if change in ("up", "tools"):
            self._stale.add(server.name)
            job = self._jobs.get(server.name)
            if job is None or job.done():
                self._jobs[server.name] = asyncio.create_task(self._look(server.name))

    async def _look(self, name: str) -> None:
        """Take over the tools of a server: again as long as they change meanwhile, or cannot be had."""
        pause = BETWEEN
        while name in self._stale and self._tools is not None:
            self._stale.discard(name)
            try:
                is_done = await self._tools.update(name)
            except Exception:  # of one server, whatever it is: the others go on
                log.exception("the tools of the MCP server %s could not be taken over", name)
                is_done = False
            self._first(name).set()
            if not is_done:
                self._stale.add(name)
                pause = min(pause * 2, LONGEST)
            if name in self._stale:
                await self._sleep(pause)
