"""The tools of MCP servers as tools of the daemon. Calls the servers; writes binaries in their results as artifacts.

The hints `readOnlyHint` and `idempotentHint` are believed: the operator chose the server. They decide whether calls may
run together, and again after a crash.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from mcp_types import ElicitResult
from mcp_types import Tool as Listed

from agentd.mcp import Server, ServerDown, ServerError, Servers
from agentkit.core.contracts.jsontext import json_text

from .checking import UnusableSchema
from .server_results import answer_of
from .tools.base import Answer, Invocation, Tool, ToolError
from .tools.box import ToolBox

log = logging.getLogger("agentd")

KEY = "agentd/idempotency-key"
"""Where a call's key stands in its `_meta`: the same when the call is run again, and no other call's ever."""
MOST_TOOLS = 1_000
"""Of one server."""
MOST_DESCRIPTION, MOST_SCHEMA = 8_000, 65_536
"""Characters of a description, the rest of which is cut off; bytes of a schema, over which its tool is left out."""
MOST_TOLD = 20
"""Faults of a server that its status tells; the log has them all."""
AT_ONCE = 20
"""Schemas that are compiled before others get a turn."""


class ServerTools:
    """Puts what servers offer into the box, and keeps what is wrong with it for the status."""

    def __init__(self, servers: Servers, box: ToolBox) -> None:
        self._servers, self._box = servers, box
        self._listed: dict[str, list[Listed]] = {}
        self._tools: dict[str, dict[str, tuple[Listed, Tool]]] = {}
        self._faults: dict[str, list[str]] = {}

    def status(self, name: str) -> dict[str, Any]:
        return {"tools": len(self._tools.get(name, {})), "left_out": self._faults.get(name, [])[:MOST_TOLD]}

    def forget(self, name: str) -> None:
        """A server is not configured any more: its tools leave the box."""
        self._box.remove_server(name)
        for table in (self._listed, self._tools, self._faults):
            table.pop(name, None)

    async def update(self, name: str) -> bool:
        """Ask a server for its tools and take them over. One that is away, or gives a list that cannot be used, keeps
        those that it had. False where it should be asked again."""
        if (server := self._servers.get(name)) is None:
            return True
        try:
            listed = await server.tools()
        except ServerDown:
            return True  # it is asked again once it is up
        except ServerError as error:
            self._faults[name] = [f"its list of tools cannot be had: {error.reason}"]
            log.warning("%s; the tools that it had before stay", error)
            return False
        if self._servers.get(name) is server and listed != self._listed.get(name):
            await self._take(server, listed)
        return True

    async def _take(self, server: Server, listed: list[Listed]) -> None:
        faults = [f"only its first {MOST_TOOLS} tools of {len(listed)} count"] if len(listed) > MOST_TOOLS else []
        known, found = self._tools.get(server.name, {}), {}
        for at, one in enumerate(listed[:MOST_TOOLS]):
            before = known.get(one.name)
            tool = before[1] if before is not None and before[0] == one else tool_of(self._servers, server.name, one)
            if (fault := unfit(one)) is not None:
                faults.append(fault)
                continue
            try:
                self._box.check(server.name, tool)
            except UnusableSchema as error:
                faults.append(str(error))
                continue
            if one.name in found:
                faults.append(f"it has two tools called {one.name!r}; the last one counts")
            found[one.name] = (one, tool)
            if at % AT_ONCE == AT_ONCE - 1:
                await asyncio.sleep(0)
        if self._servers.get(server.name) is not server:  # a reload took its place meanwhile
            return
        self._box.set_server(server.name, [tool for _, tool in found.values()])
        self._listed[server.name], self._tools[server.name], self._faults[server.name] = listed, found, faults
        for fault in faults:
            log.warning("MCP server %s: %s", server.name, fault)


def unfit(listed: Listed) -> str | None:
    """Why a tool cannot be offered to a model at all, whatever its schema is checked by."""
    schema = listed.input_schema
    if schema.get("type") != "object":
        return f"the tool {listed.name!r} takes no object: its input schema has the type {schema.get('type')!r}"
    if (size := len(json_text(schema).encode("utf-8", "replace"))) > MOST_SCHEMA:
        return f"the input schema of the tool {listed.name!r} has {size} bytes; {MOST_SCHEMA} is the most"
    if not listed.name:
        return "a tool has no name"
    return None


def tool_of(servers: Servers, server: str, listed: Listed) -> Tool:
    """A tool of a server as one of the daemon. Whichever connection the server has then gets the call."""
    hints = listed.annotations
    read_only = hints is not None and hints.read_only_hint is True
    text = listed.description or (hints.title if hints is not None else None) or listed.title or ""
    return Tool(
        listed.name,
        text if len(text) <= MOST_DESCRIPTION else f"{text[:MOST_DESCRIPTION]}…",
        listed.input_schema,
        _Call(servers, server, listed.name),
        read_only=read_only,
        idempotent=read_only or (hints is not None and hints.idempotent_hint is True),
    )


class _Call:
    """Runs one tool."""

    def __init__(self, servers: Servers, server: str, tool: str) -> None:
        self._servers, self._server, self._tool = servers, server, tool

    async def __call__(self, asked: Invocation) -> Answer:
        if (server := self._servers.get(self._server)) is None:
            raise ToolError(f"the MCP server {self._server!r} is not configured any more")
        try:
            result = await server.call(
                self._tool, asked.arguments, meta={KEY: asked.key}, elicit=_Asking(asked, self._server)
            )
        except ServerError as error:
            raise ToolError(told(error)) from error
        return await answer_of(result, asked.desk.records)


class _Asking:
    """Asks a person what a server wants to know in the middle of a call; the question is one of that call's."""

    def __init__(self, asked: Invocation, server: str) -> None:
        self._asked, self._server, self._count = asked, server, 0

    async def __call__(self, message: str, schema: Mapping[str, Any]) -> ElicitResult:
        self._count += 1
        question = f"The server {self._server} asks: {message}"
        try:
            answer, _ = await self._asked.desk.ask(
                self._asked, question, schema=schema, part=f"elicit-{self._count}"
            )  # fmt: skip
        except ToolError:  # nobody can be asked, or nobody answered in time
            return ElicitResult(action="cancel")
        if not isinstance(answer, dict):
            return ElicitResult(action="decline")
        return ElicitResult(action="accept", content=answer)


def told(error: ServerError) -> str:
    """What a model reads of a call that came to nothing."""
    if error.may_have_run:
        return f"{error}. It is not known whether the call took effect: look before you repeat it."
    return f"{error}. The call was not run."
