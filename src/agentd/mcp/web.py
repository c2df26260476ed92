"""The SDK's transport over HTTP, with what it does not tell: that a server is gone, and that its session is. Opens
connections."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp.client._transport import TransportStreams
from mcp.client.streamable_http import MCP_SESSION_ID, streamable_http_client

from .stdio import MOST_BYTES

CONNECT = 10.0
"""Seconds to reach a server. How long an answer may take is each request's own time."""
GOODBYE = 1.0
"""Seconds in which to tell a server that its session is over."""


@asynccontextmanager
async def web_transport(
    url: str, headers: Mapping[str, str], *, lost: Callable[[str], None], resumed: Callable[[], None]
) -> AsyncIterator[TransportStreams]:
    """Speak with the server at `url`. `lost` is told why it can be spoken with no more; `resumed`, that its stream of
    changes was interrupted and goes on, so that some may have been missed."""
    async with (
        _Watched(headers, lost, resumed) as http,
        streamable_http_client(url, http_client=http, max_sse_event_size=MOST_BYTES) as streams,
    ):
        yield streams


class _Watched(httpx2.AsyncClient):
    """Sends requests, and looks at what becomes of them."""

    def __init__(self, headers: Mapping[str, str], lost: Callable[[str], None], resumed: Callable[[], None]) -> None:
        # Nothing compressed: what is small on the wire could be of any size here.
        sent = {"accept-encoding": "identity", **headers}
        super().__init__(headers=sent, timeout=httpx2.Timeout(None, connect=CONNECT))
        self._lost, self._resumed = lost, resumed
        self._streams = 0

    async def send(self, request: httpx2.Request, **how: Any) -> httpx2.Response:
        if request.method == "DELETE":  # of the session, at the end: a server that hangs holds nobody up
            request.extensions["timeout"] = httpx2.Timeout(GOODBYE).as_dict()
        try:
            response = await super().send(request, **how)
        except httpx2.TransportError as error:
            self._lost(f"it cannot be reached ({type(error).__name__})")
            raise
        if response.status_code == 404 and MCP_SESSION_ID in request.headers:
            # What the protocol has for a session that the server does not know any more.
            self._lost("it knows our session no more")
        elif response.is_success and request.method == "GET":
            self._streams += 1
            if self._streams > 1:
                self._resumed()
        if response.headers.get("content-type", "").lower().startswith("application/json"):
            response.stream = _Bounded(response.stream)
        return response


class _Bounded(httpx2.AsyncByteStream):
    """A body of at most MOST_BYTES; the SDK bounds the events of a stream only."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._inner:
            size += len(chunk)
            if size > MOST_BYTES:
                raise httpx2.StreamError(f"an answer of more than {MOST_BYTES >> 20} MiB")
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()
