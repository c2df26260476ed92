"""One connection to an MCP server, from the handshake to its end. Speaks through the SDK's client.

The SDK ends a connection by cancelling the task that holds it, whatever the reason. So that task is one of our own
(`run`), and each request is a task of its own too: what befalls them reaches those who asked as a ServerError only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from typing import Any, Literal, TypeAlias, TypeVar

from mcp import Client
from mcp.client import ClientRequestContext, advertise
from mcp.client.session import IncomingMessage
from mcp.client.subscriptions import PromptsListChanged, ResourcesListChanged, ToolsListChanged
from mcp_types import (
    ElicitRequestFormParams,
    ElicitRequestParams,
    ElicitResult,
    Implementation,
    PromptListChangedNotification,
    ResourceListChangedNotification,
    ToolListChangedNotification,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

import agentkit

from .backoff import Backoff
from .errors import ServerDown, ended, leaf, mapped, reason_of

log = logging.getLogger("agentd")
T = TypeVar("T")

Change: TypeAlias = Literal["tools", "resources", "prompts", "up", "down"]
Elicit: TypeAlias = Callable[[str, Mapping[str, Any]], Awaitable[ElicitResult]]
"""Asks a person on behalf of a server: its message, and the JSON Schema of what it wants to know."""

LISTS: tuple[Change, ...] = ("tools", "resources", "prompts")
_MEANT: Mapping[type, Change] = {
    ToolsListChanged: "tools",
    ResourcesListChanged: "resources",
    PromptsListChanged: "prompts",
    ToolListChangedNotification: "tools",
    ResourceListChangedNotification: "resources",
    PromptListChangedNotification: "prompts",
}
EXTENSIONS = ("io.modelcontextprotocol/skills",)
"""Extensions of the protocol that this client knows."""


class _Asked:
    """A request under way: its time, and who is asked when the server wants to know something in the middle of it."""

    def __init__(self, limit: asyncio.Timeout, elicit: Elicit | None) -> None:
        self.elicit = elicit
        self._limit, self._is_over = limit, False

    def end(self) -> None:
        self._is_over = True

    @asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """While a person is waited for, the server's time does not run."""
        loop, until = asyncio.get_running_loop(), self._limit.when()
        left = None if until is None else until - loop.time()
        if not self._is_over and not self._limit.expired():
            self._limit.reschedule(None)
        try:
            yield
        finally:
            if left is not None and not self._is_over and not self._limit.expired():
                self._limit.reschedule(loop.time() + left)


_ASKED: ContextVar[_Asked | None] = ContextVar("agentd_mcp_request", default=None)


class Connection:
    """One connection. `target`: what the SDK's client is to speak with; `timeout`: seconds for the handshake; `told`:
    hears of changed lists; `elicits`: whether somebody can be asked, which is what the server is told."""

    def __init__(
        self,
        name: str,
        target: Callable[[Connection], Any],
        *,
        timeout: float,
        told: Callable[[Change], None],
        backoff: Callable[[], Backoff],
        mode: Literal["auto", "legacy"] = "auto",
        elicits: bool = False,
    ) -> None:
        self.name, self.reason = name, ""
        self.client: Client | None = None
        self.failure: BaseException | None = None
        self._is_new = True
        self._target, self._timeout, self._told, self._backoff = target, timeout, told, backoff
        self._mode, self._elicits = mode, elicits
        self._lost = asyncio.Event()
        self._suspect = asyncio.Event()
        self._jobs: set[asyncio.Task[Any]] = set()
        self._asked: set[_Asked] = set()

    def lose(self, reason: str) -> None:
        """It can be spoken with no more; the first reason counts."""
        if not self._lost.is_set():
            self.reason = reason
            self._lost.set()

    @property
    def is_made(self) -> bool:
        """Whether the handshake was finished."""
        return not self._is_new

    async def until_lost(self) -> None:
        await self._lost.wait()

    def changed(self) -> None:
        """Something may have changed, and nobody knows what."""
        for change in LISTS:
            self._told(change)

    # Its life

    async def run(self, up: Callable[[Client], None]) -> None:
        """Connect, tell `up`, and stay until the connection is lost. Returns then, whatever the SDK made of it:
        `reason` says why, `failure` is what was raised. Only a cancel of this very task goes through."""
        try:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(self._timeout):
                    client = await stack.enter_async_context(self._made())
                self.client = client
                await self._stay(client, up)
        except Exception as error:  # an ExceptionGroup is one too
            self.failure = leaf(error)
            in_vain = self._is_new and isinstance(self.failure, TimeoutError)
            self.lose(f"it did not come up within {self._timeout:g} s" if in_vain else reason_of(error))
        finally:
            self.lose("the connection ended")
            for job in self._jobs:
                job.cancel()

    async def _stay(self, client: Client, up: Callable[[Client], None]) -> None:
        self._is_new = False
        chores = [asyncio.create_task(self._listen(client)), asyncio.create_task(self._look(client))]
        try:
            up(client)
            await self._lost.wait()
        finally:
            self.client = None
            for chore in chores:
                chore.cancel()
            await asyncio.gather(*chores, return_exceptions=True)

    def _made(self) -> Client:
        return Client(
            self._target(self),
            mode=self._mode,
            cache=None,  # lists are fetched when they change, and held by those who need them
            client_info=Implementation(name="agentd", version=agentkit.__version__),
            message_handler=self._heard,
            elicitation_callback=self._elicited if self._elicits else None,
            extensions=[advertise(name) for name in EXTENSIONS],
        )

    async def _heard(self, message: IncomingMessage) -> None:
        if (change := _MEANT.get(type(message))) is not None:
            self._told(change)

    async def _listen(self, client: Client) -> None:
        """Hear of changes from a server of the era that has a stream for them. What changed while there was none is
        not told, so everything counts as changed then."""
        offered = client.server_capabilities
        tools, resources, prompts = (
            one is not None and bool(one.list_changed) for one in (offered.tools, offered.resources, offered.prompts)
        )
        if client.protocol_version not in MODERN_PROTOCOL_VERSIONS or not (tools or resources or prompts):
            return
        backoff, again = self._backoff(), False
        while True:
            try:
                async with client.listen(
                    tools_list_changed=tools, resources_list_changed=resources, prompts_list_changed=prompts
                ) as heard:
                    if again:
                        self.changed()
                    backoff.reset()
                    async for event in heard:
                        if (change := _MEANT.get(type(event))) is not None:
                            self._told(change)
            except Exception as error:  # whatever it is, the connection itself tells when it is at an end
                log.debug("the MCP server %s: the stream of changes ended: %s", self.name, reason_of(error))
            again = True
            await backoff.wait()

    async def _look(self, client: Client) -> None:
        """After a request whose connection ended, see whether the server still answers."""
        while True:
            await self._suspect.wait()
            self._suspect.clear()
            try:
                async with asyncio.timeout(self._timeout):
                    if client.protocol_version in MODERN_PROTOCOL_VERSIONS:
                        await client.session.send_discover(client.protocol_version)
                    else:
                        await client.session.send_ping()
            except Exception as error:
                self.lose(f"it answers no more ({reason_of(error)})")

    # Requests

    async def request(
        self, make: Callable[[Client], Awaitable[T]], *, seconds: float, elicit: Elicit | None = None
    ) -> T:
        """What `make` gets from the client, within `seconds`. Raises a ServerError, never anything of the SDK."""
        client = self.client
        if client is None or self._lost.is_set():
            raise ServerDown(self.name, self.reason or "there is no connection")
        job = asyncio.create_task(self._run(make, client, seconds, elicit))
        self._jobs.add(job)
        job.add_done_callback(self._over)
        try:
            await asyncio.wait({job})
        except asyncio.CancelledError:
            job.cancel()  # in its own time: the server is told that nobody waits any more
            raise
        if job.cancelled():
            raise ended(self.name, self.reason)
        error = job.exception()
        if error is None:
            return job.result()
        if not isinstance(error, Exception):
            raise error
        if self._lost.is_set():
            raise ended(self.name, self.reason) from error
        found = mapped(self.name, error, seconds=seconds)
        if isinstance(found, ServerDown):
            self._suspect.set()
        raise found from error

    async def _run(
        self, make: Callable[[Client], Awaitable[T]], client: Client, seconds: float, elicit: Elicit | None
    ) -> T:
        async with asyncio.timeout(seconds) as limit:
            asked = _Asked(limit, elicit)
            self._asked.add(asked)
            _ASKED.set(asked)
            try:
                return await make(client)
            finally:
                self._asked.discard(asked)
                asked.end()

    def _over(self, job: asyncio.Task[Any]) -> None:
        self._jobs.discard(job)
        if not job.cancelled() and job.exception() is not None:  # looked at here, in case that nobody waits any more
            log.debug("the MCP server %s: a request ended with %s", self.name, type(job.exception()).__name__)

    async def _elicited(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        """Ask whoever made the request that the server is busy with. Over standard input and output the protocol does
        not say which one that is: it has to be the only one."""
        asked = _ASKED.get()
        if asked is None and len(self._asked) == 1:
            asked = next(iter(self._asked))
        if not isinstance(params, ElicitRequestFormParams):
            return self._declined("it wants a page opened, and this is no browser")
        if asked is None:
            return self._declined(f"{len(self._asked)} requests are under way, and it is not known for which it asks")
        if asked.elicit is None:
            return self._declined("nobody can be asked on behalf of this request")
        async with asked.paused():
            try:
                return await asked.elicit(params.message, params.requested_schema)
            except Exception as error:
                return self._declined(f"asking failed: {reason_of(error)}")

    def _declined(self, reason: str) -> ElicitResult:
        log.warning("a question of the MCP server %s was declined: %s", self.name, reason)
        return ElicitResult(action="decline")
