"""An MCP server for tests, as a process: `python peer.py LOG [PORT]`, over standard input and output or, with a port,
over HTTP. Each call is noted in LOG before anything else happens, with its idempotency key."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import Context, Image, MCPServer
from mcp_types import (
    CallToolResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    EmbeddedResource,
    InputRequiredResult,
    ResourceLink,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)
from pydantic import BaseModel

LOG = Path(sys.argv[1])
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
server = MCPServer("peer")


def note(tool: str, ctx: Context[Any, Any], **about: Any) -> None:
    key = (ctx.request_context.meta or {}).get("agentd/idempotency-key")
    with LOG.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"tool": tool, "key": key, "pid": os.getpid(), **about}) + "\n")
        file.flush()
        os.fsync(file.fileno())


async def hold(ctx: Context[Any, Any]) -> None:
    """Until the file LOG.hold is gone."""
    while LOG.with_suffix(".hold").exists():  # noqa: ASYNC110 - another process takes it away
        await asyncio.sleep(0.02)


@server.tool(structured_output=False)
async def post(n: int, ctx: Context[Any, Any]) -> str:
    """Changes something outside."""
    note("post", ctx, n=n)
    await hold(ctx)
    return f"posted {n}"


@server.tool(annotations=ToolAnnotations(read_only_hint=True), structured_output=False)
async def look(n: int, ctx: Context[Any, Any]) -> str:
    """Changes nothing."""
    note("look", ctx, n=n)
    await hold(ctx)
    return f"saw {n}"


@server.tool(annotations=ToolAnnotations(idempotent_hint=True), structured_output=False)
async def put(n: int, ctx: Context[Any, Any]) -> str:
    """May be repeated."""
    note("put", ctx, n=n)
    await hold(ctx)
    return f"put {n}"


@server.tool()
async def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


@server.tool(structured_output=False)
async def fail() -> CallToolResult:
    """Fails."""
    return CallToolResult(content=[TextContent(type="text", text="no such day")], is_error=True)


@server.tool(structured_output=False)
async def picture() -> Image:
    """A picture."""
    return Image(data=PIXEL, format="png")


@server.tool(structured_output=False)
async def papers() -> CallToolResult:
    """A link and a text."""
    return CallToolResult(
        content=[
            TextContent(type="text", text="two papers"),
            ResourceLink(type="resource_link", name="paper", uri="paper://1", mime_type="text/plain"),
            EmbeddedResource(
                type="resource",
                resource=TextResourceContents(uri="paper://2", text="the second", mime_type="text/plain"),
            ),
        ]
    )


@server.tool(structured_output=False)
async def grow(name: str, ctx: Context[Any, Any]) -> str:
    """Offers one more tool from now on."""

    async def grown() -> str:
        return name

    server.add_tool(grown, name=name, description="grown", structured_output=False)
    await ctx.notify_tools_changed()
    if ctx.protocol_version is None or ctx.protocol_version < "2026":
        await ctx.session.send_tool_list_changed()
    return "grown"


class Colour(BaseModel):
    colour: str


@server.tool(structured_output=False)
async def ask(ctx: Context[Any, Any]) -> str | InputRequiredResult:
    """Asks for a colour: in the middle of the call in the older era, by way of its result in the newer one."""
    if ctx.protocol_version is not None and ctx.protocol_version >= "2026":
        if not ctx.input_responses:
            schema = Colour.model_json_schema()
            params = ElicitRequestFormParams(message="Which colour?", requested_schema=schema)
            return InputRequiredResult(input_requests={"colour": ElicitRequest(params=params)})
        given = ctx.input_responses["colour"]
        assert isinstance(given, ElicitResult)
        return f"{given.action} {(given.content or {}).get('colour', '')}".strip()
    found = await ctx.elicit("Which colour?", Colour)
    return f"{found.action} {found.data.colour if found.action == 'accept' else ''}".strip()


@server.tool(structured_output=False)
async def spawn(ctx: Context[Any, Any]) -> str:
    """Starts a process of its own, which holds the output open."""
    child = await asyncio.create_subprocess_exec("sleep", "600", stdin=subprocess.DEVNULL)
    note("spawn", ctx, child=child.pid)
    return str(child.pid)


@server.resource("paper://1")
def paper() -> str:
    return "the first"


@server.prompt()
def greet(name: str) -> str:
    """Greets."""
    return f"Greet {name}."


if __name__ == "__main__":
    print("peer is starting", file=sys.stderr)
    if len(sys.argv) > 2:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[2]))
    else:
        server.run("stdio")
