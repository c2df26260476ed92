"""A small HTTP/1.1 server in a thread of its own: loopback, keep-alive, chunked answers. Touches sockets."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TypeAlias

MOST_HEAD = 64 * 1024
"""Bytes of a request's head: more than any client sends."""

MOST_BODY = 64 * 1024 * 1024
"""Bytes of a request's body: twice what Anthropic takes, so that its refusal is the wire's own affair."""


@dataclass(frozen=True)
class HttpRequest:
    """A request as it came; header names in lower case, the query still in `target`."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


@dataclass
class HttpAnswer:
    """An answer. With `stream` the body is what it yields, chunked. `cut`: the connection is closed behind as many
    bytes of `body`; with 0 before anything."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    stream: AsyncIterator[bytes] | None = None
    cut: int | None = None


class CutOff(Exception):
    """Raised by a stream that ends without its end: the connection is closed as it stands."""


Handler: TypeAlias = Callable[[HttpRequest], Awaitable[HttpAnswer]]


class _BadRequest(Exception):
    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class LoopbackServer:
    """Serves `handler` on 127.0.0.1, in an event loop in a thread of its own, until `close`.

    `close` ends open connections, cancels what is under way, and returns once thread and sockets are gone.
    """

    def __init__(self, handler: Handler, *, port: int = 0) -> None:
        self._handler, self._wanted = handler, port
        self._connections: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over: asyncio.Event | None = None
        self._ready = threading.Event()
        self._thread: threading.Thread | None = None
        self._failed: BaseException | None = None
        self.port = 0

    def open(self) -> None:
        """Starts to listen. OSError if the port is taken."""
        self._thread = threading.Thread(target=self._main, name="fake-provider", daemon=True)
        self._thread.start()
        self._ready.wait()
        if self._failed is not None:
            self._thread.join()
            self._thread = None
            raise self._failed

    def close(self) -> None:
        """Ends everything; a second time does nothing."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        if self._loop is not None and self._over is not None:
            self._loop.call_soon_threadsafe(self._over.set)
        thread.join()

    def _main(self) -> None:
        try:
            asyncio.run(self._serve())
        except OSError as error:
            self._failed = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._connected, "127.0.0.1", self._wanted, limit=MOST_HEAD, backlog=512)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        try:
            await self._over.wait()
        finally:
            server.close()
            connections = list(self._connections)
            for task in connections:
                task.cancel()
            await asyncio.gather(*connections, return_exceptions=True)
            await server.wait_closed()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            while await self._one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, CutOff, asyncio.CancelledError):
            pass  # the client went, the stream was cut, or the server ends: in each case the connection does too
        finally:
            self._connections.discard(task)
            writer.close()
            with suppress(ConnectionError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answers one request; whether the connection goes on."""
        try:
            request = await _read(reader, writer)
        except _BadRequest as error:
            text = f"{error}\n".encode()
            writer.write(_head(error.status, {"content-type": "text/plain", "connection": "close"}, len(text)) + text)
            await writer.drain()
            return False
        if request is None:
            return False
        answer = await self._handler(request)
        goes_on = request.headers.get("connection", "").lower() != "close"
        if answer.stream is not None:
            await _write_stream(writer, answer)
        elif answer.cut is not None:
            if answer.cut:
                writer.write(_head(answer.status, answer.headers, len(answer.body)) + answer.body[: answer.cut])
                await writer.drain()
            raise CutOff
        else:
            writer.write(_head(answer.status, answer.headers, len(answer.body)) + answer.body)
            await writer.drain()
        return goes_on


async def _write_stream(writer: asyncio.StreamWriter, answer: HttpAnswer) -> None:
    assert answer.stream is not None
    writer.write(_head(answer.status, answer.headers, None))
    await writer.drain()
    async for piece in answer.stream:
        writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        await writer.drain()
    writer.write(b"0\r\n\r\n")
    await writer.drain()


def _head(status: int, headers: Mapping[str, str], length: int | None) -> bytes:
    known = {one.value for one in HTTPStatus}
    reason = HTTPStatus(status).phrase if status in known else "Unknown"
    lines = [f"HTTP/1.1 {status} {reason}", *(f"{name}: {value}" for name, value in headers.items())]
    lines.append("transfer-encoding: chunked" if length is None else f"content-length: {length}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


async def _read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> HttpRequest | None:
    """The next request; None where the client has closed between two."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise
        return None
    except asyncio.LimitOverrunError:
        raise _BadRequest(431, f"the head of the request is longer than {MOST_HEAD} bytes") from None
    first, *rest = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise _BadRequest(400, "the request does not begin with a method, a target and HTTP/1.x")
    headers: dict[str, str] = {}
    for line in rest:
        name, colon, value = line.partition(":")
        if not colon:
            raise _BadRequest(400, "a line of the head is no header")
        headers[name.strip().lower()] = value.strip()
    if headers.get("expect", "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        await writer.drain()
    return HttpRequest(words[0], words[1], headers, await _body(reader, headers))


async def _body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return await _chunks(reader)
    length = headers.get("content-length", "0")
    if not (length.isascii() and length.isdigit()):
        raise _BadRequest(400, "content-length is no number")
    if int(length) > MOST_BODY:
        raise _BadRequest(413, f"the body is longer than {MOST_BODY} bytes")
    return await reader.readexactly(int(length))


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    found = bytearray()
    while True:
        line = await reader.readuntil(b"\r\n")
        try:
            size = int(line.split(b";")[0], 16)
        except ValueError:
            raise _BadRequest(400, "a chunk does not begin with its size") from None
        if size < 0 or len(found) + size > MOST_BODY:
            raise _BadRequest(413, f"the body is longer than {MOST_BODY} bytes")
        found += await reader.readexactly(size)
        end = await reader.readuntil(b"\r\n")
        if size == 0:
            while end != b"\r\n":  # trailers
                end = await reader.readuntil(b"\r\n")
            return bytes(found)
