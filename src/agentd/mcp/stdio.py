"""The SDK's transport over a child process: one JSON-RPC message a line. Starts the process and ends it."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import INTERNAL_ERROR, ErrorData, JSONRPCError, jsonrpc_message_adapter

from .child import Child
from .errors import CannotStart

log = logging.getLogger("agentd")

MOST_BYTES = 16 << 20
"""Of one message of a server."""
LONGEST = 10.0
"""Seconds for the end of a child process, which takes up to three times `GRACE`."""
MOST_JUNK = 1_000
"""Lines in a row that are no messages: some servers print to their standard output, none prints only that."""

Incoming = MemoryObjectReceiveStream[SessionMessage | Exception]
Outgoing = MemoryObjectSendStream[SessionMessage]


@asynccontextmanager
async def stdio_transport(
    name: str, command: Sequence[str], env: Mapping[str, str], *, lost: Callable[[str], None]
) -> AsyncIterator[tuple[Incoming, Outgoing]]:
    """Start the program and speak with it. `lost` is told why that is no more possible. Raises CannotStart."""
    try:
        child = await Child.start(name, command, env, limit=MOST_BYTES)
    except (OSError, ValueError) as error:  # ValueError: a NUL in an argument
        reason = getattr(error, "strerror", None) or error
        raise CannotStart(name, f"{command[0]!r} cannot be started: {reason}") from error
    to_session, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, from_session = anyio.create_memory_object_stream[SessionMessage](0)
    jobs = [
        asyncio.create_task(_read(child, to_session, lost)),
        asyncio.create_task(_write(child, from_session, lost)),
        asyncio.create_task(child.log_errors()),
    ]
    try:
        yield incoming, outgoing
    finally:
        try:
            await to_the_end(asyncio.create_task(_end(child, jobs)))
        finally:
            for stream in (to_session, incoming, outgoing, from_session):
                stream.close()


async def to_the_end(ending: asyncio.Task[None], seconds: float = LONGEST) -> None:
    """Wait for a task, at most this long, whatever cancels the wait; the cancel goes on afterwards."""
    loop = asyncio.get_running_loop()
    until, cancelled = loop.time() + seconds, None
    with anyio.CancelScope(shield=True):
        while not ending.done() and (left := until - loop.time()) > 0:
            try:
                await asyncio.wait({ending}, timeout=left)
            except asyncio.CancelledError as error:
                cancelled = error
    if cancelled is not None:
        raise cancelled


async def _end(child: Child, jobs: Sequence[asyncio.Task[None]]) -> None:
    try:
        await child.end()
    finally:
        for job in jobs:
            job.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)


async def _read(
    child: Child, to_session: MemoryObjectSendStream[SessionMessage | Exception], lost: Callable[[str], None]
) -> None:
    reason, junk = "", 0
    try:
        async with aclosing(child.lines()) as lines:
            async for line in lines:
                if (message := _message(line)) is not None:
                    junk = 0
                    await to_session.send(message)
                    continue
                if line.strip():
                    junk += 1
                    level = logging.WARNING if junk == 1 else logging.DEBUG
                    log.log(level, "the MCP server %s wrote a line that is no message of JSON-RPC", child.name)
                    if junk == MOST_JUNK:
                        reason = f"it wrote {MOST_JUNK} lines in a row that are no messages of JSON-RPC"
                        break
                await asyncio.sleep(0)  # lines that are there already are read without giving others their turn
    except ValueError:
        reason = f"it wrote a line of more than {MOST_BYTES >> 20} MiB"
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        return  # the session is gone
    if not child.is_ending:
        if child.last_line:
            log.warning("the last that the MCP server %s said: %s", child.name, child.last_line)
        lost(reason or child.how_it_ended)
    to_session.close()


async def _write(
    child: Child, from_session: MemoryObjectReceiveStream[SessionMessage], lost: Callable[[str], None]
) -> None:
    try:
        async for item in from_session:
            text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
            await child.write(text.encode("utf-8", "replace") + b"\n")
    except (OSError, RuntimeError):  # RuntimeError: its pipe is closed already
        if not child.is_ending:
            lost(child.how_it_ended if await child.has_ended() else "it does not read what it is sent")
        from_session.close()


def _message(line: bytes) -> SessionMessage | None:
    """A line as a message. An answer that cannot be read costs the request that it answers."""
    text = line.decode("utf-8", "replace")
    with suppress(ValueError):
        return SessionMessage(jsonrpc_message_adapter.validate_json(text, by_name=False))
    if (id := _id_of(text)) is None:
        return None
    fault = ErrorData(code=INTERNAL_ERROR, message="its answer is no message of JSON-RPC")
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=id, error=fault))


def _id_of(text: str) -> int | str | None:
    """The id of the request that a broken answer answers."""
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or "method" in found:
        return None
    id = found.get("id")
    return id if isinstance(id, int | str) and not isinstance(id, bool) else None
