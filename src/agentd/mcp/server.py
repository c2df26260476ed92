"""One MCP server of `mcp.servers`: connected in the background, and again whenever the connection ends. Starts child
processes and opens connections; values are those of the SDK.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar

from mcp import Client
from mcp_types import (
    CallToolResult,
    GetPromptResult,
    Prompt,
    ReadResourceResult,
    Request,
    Resource,
    ResourceTemplate,
    ServerCapabilities,
    Tool,
)
from pydantic import RootModel

from agentd.config.secrets import SecretRef
from agentd.config.serving import Server as Settings

from .backoff import Backoff
from .connection import Change, Connection, Elicit
from .errors import CannotStart, ServerDown
from .pages import I, P, all_pages
from .stdio import stdio_transport, to_the_end
from .web import web_transport

log = logging.getLogger("agentd")
T = TypeVar("T")

State = Literal["connecting", "up", "down"]
STABLE = 30.0
"""Seconds of a connection after which the next repetition comes quickly again."""
LEAVE = 8.0
"""Seconds to end a connection in good order, all steps of ending a child process included."""
CLOSING = "this process lets go of it"


class _Raw(RootModel[dict[str, Any]]):
    """A result as it came."""


class Server:
    """One server. `state` and `error` are for status; `changed` are called with what changed, on the event loop.

    A request raises ServerDown at once while there is no connection, except while it connects for the first time,
    which it waits for. `target`: what the SDK's client is to speak with, in place of what the settings name; `mode`:
    "legacy" asks for the older era of the protocol only; `elicits`: whether callers can be asked (`call`).
    """

    def __init__(
        self,
        settings: Settings,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        target: Any = None,
        mode: Literal["auto", "legacy"] = "auto",
        elicits: bool = False,
    ) -> None:
        self.settings, self.name = settings, settings.name
        self.state: State = "connecting"
        self.error = ""
        self.changed: list[Callable[[Change], None]] = []
        self._sleep, self._target, self._mode, self._elicits = sleep, target, mode, elicits
        self._connection: Connection | None = None
        self._capabilities: ServerCapabilities | None = None
        self._version: str | None = None
        self._tried, self._up, self._in_vain = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._came_up_at = 0.0

    @property
    def timeout(self) -> float:
        """Seconds of one request, by the settings."""
        return self.settings.timeout.total_seconds()

    @property
    def capabilities(self) -> ServerCapabilities | None:
        """What it can do, as it last said; None before it was connected."""
        return self._capabilities

    @property
    def extensions(self) -> Mapping[str, Mapping[str, Any]]:
        """Extensions of the protocol that it offers, with their settings."""
        return (self._capabilities.extensions if self._capabilities is not None else None) or {}

    @property
    def version(self) -> str | None:
        """The version of the protocol that was agreed on last."""
        return self._version

    # Its life

    def start(self) -> None:
        """Begin to connect, and go on for as long as it takes."""
        if self._task is None:
            self._task = asyncio.create_task(self._supervise(), name=f"MCP server {self.name}")

    async def ready(self, timeout: float | None = None) -> bool:
        """Whether it came up within `timeout` seconds. False at once for a program that cannot be started."""
        await _any_of(timeout, self._up, self._in_vain)
        return self.state == "up"

    async def aclose(self) -> None:
        """End the connection, and the child process with all that it started."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

    async def _supervise(self) -> None:
        backoff = self._backoff()
        while True:
            connection = self._connection = Connection(
                self.name, self._reached, timeout=self.timeout, told=self._tell, backoff=self._backoff,
                mode=self._mode, elicits=self._elicits,
            )  # fmt: skip
            life = asyncio.create_task(connection.run(self._came_up))
            try:
                await connection.until_lost()
            except asyncio.CancelledError:
                connection.lose(CLOSING)
                self._went_down(CLOSING)
                await _ended(life, LEAVE if connection.is_made else 0)
                raise
            if self.state == "up" and asyncio.get_running_loop().time() - self._came_up_at > STABLE:
                backoff.reset()
            self._went_down(connection.reason)
            await _ended(life, LEAVE if connection.is_made else 0)
            if isinstance(connection.failure, CannotStart):
                self._in_vain.set()
            await backoff.wait()

    def _backoff(self) -> Backoff:
        return Backoff(self._sleep)

    def _reached(self, connection: Connection) -> Any:
        """What the SDK's client speaks with."""
        settings = self.settings
        if self._target is not None:
            return self._target
        if settings.url is not None:
            return web_transport(
                settings.url, _revealed(settings.headers), lost=connection.lose, resumed=connection.changed
            )
        return stdio_transport(self.name, settings.command or (), _revealed(settings.env), lost=connection.lose)

    def _came_up(self, client: Client) -> None:
        self._capabilities, self._version = client.server_capabilities, client.protocol_version
        self._came_up_at = asyncio.get_running_loop().time()
        self.state, self.error = "up", ""
        self._tried.set()
        self._up.set()
        log.info("the MCP server %s is up (protocol %s)", self.name, self._version)
        self._tell("up")

    def _went_down(self, reason: str) -> None:
        was, self.state, self.error = self.state, "down", reason
        self._tried.set()
        self._up.clear()
        if was != "down":
            level = logging.INFO if reason == CLOSING else logging.WARNING
            log.log(level, "the MCP server %s is down: %s", self.name, reason)
            self._tell("down")

    def _tell(self, change: Change) -> None:
        for listener in tuple(self.changed):
            try:
                listener(change)
            except Exception:
                log.exception("a listener to the MCP server %s failed", self.name)

    # Requests

    async def tools(self) -> list[Tool]:
        """Its tools, all pages; none for a server that says it has none. Raises ServerError, as all of these do."""
        return await self._all("tools", lambda client, cursor: client.list_tools(cursor=cursor), lambda p: p.tools)

    async def resources(self) -> list[Resource]:
        return await self._all(
            "resources", lambda client, cursor: client.list_resources(cursor=cursor), lambda p: p.resources
        )

    async def resource_templates(self) -> list[ResourceTemplate]:
        return await self._all(
            "resources",
            lambda client, cursor: client.list_resource_templates(cursor=cursor),
            lambda p: p.resource_templates,
        )

    async def prompts(self) -> list[Prompt]:
        return await self._all(
            "prompts", lambda client, cursor: client.list_prompts(cursor=cursor), lambda p: p.prompts
        )

    async def call(
        self,
        tool: str,
        arguments: dict[str, Any],
        *,
        meta: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        elicit: Elicit | None = None,
    ) -> CallToolResult:
        """Call a tool. `timeout`: seconds, by default those of the settings, in which a person who is asked does not
        count; `elicit`: asks somebody when the server wants to know something in the middle of it."""
        given: Any = dict(meta or {})
        return await self._request(
            lambda client: client.call_tool(tool, arguments, meta=given or None), timeout=timeout, elicit=elicit
        )

    async def read(self, uri: str) -> ReadResourceResult:
        return await self._request(lambda client: client.read_resource(uri))

    async def prompt(self, name: str, arguments: dict[str, str] | None = None) -> GetPromptResult:
        return await self._request(lambda client: client.get_prompt(name, arguments))

    async def request(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """A request of an extension, and its result as it came."""
        asked = Request[dict[str, Any], str](method=method, params=dict(params or {}))
        return (await self._request(lambda client: client.session.send_request(asked, _Raw))).root

    async def _all(
        self, what: str, fetch: Callable[[Client, str | None], Awaitable[P]], items: Callable[[P], Sequence[I]]
    ) -> list[I]:
        async def page(cursor: str | None) -> P:
            return await self._request(lambda client: fetch(client, cursor))

        await self._until_tried()
        if getattr(self._capabilities, what, None) is None and self.state == "up":
            return []
        return await all_pages(self.name, page, items)

    async def _request(
        self, make: Callable[[Client], Awaitable[T]], *, timeout: float | None = None, elicit: Elicit | None = None
    ) -> T:
        await self._until_tried()
        if (connection := self._connection) is None or self.state != "up":
            raise ServerDown(self.name, self.error or "it is not connected yet")
        return await connection.request(make, seconds=self.timeout if timeout is None else timeout, elicit=elicit)

    async def _until_tried(self) -> None:
        """Wait while it connects for the first time."""
        if self.state == "connecting":
            await _any_of(self.timeout, self._tried)


async def _ended(life: asyncio.Task[None], patience: float) -> None:
    """Wait for a connection to end in good order, and cancel it when it does not, or when this is cancelled. It has
    ended when this returns or raises, and its child process with it: nothing cuts that short."""
    try:
        await asyncio.wait({life}, timeout=patience)
    finally:
        life.cancel()
        await to_the_end(life)


async def _any_of(timeout: float | None, *events: asyncio.Event) -> None:
    """Wait until one of them is set, at most `timeout` seconds."""
    waiting = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in waiting:
            one.cancel()


def _revealed(table: Mapping[str, str | SecretRef]) -> dict[str, str]:
    """Headers or variables with their secrets, for the connection alone."""
    return {name: value.reveal() if isinstance(value, SecretRef) else value for name, value in table.items()}
