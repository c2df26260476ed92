"""The listener: one socket, served within the daemon's own event loop. Touches the socket and the certificate that the
settings name."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import ssl
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from starlette.applications import Starlette
from starlette.types import ASGIApp

from agentd.config.serving import Tls
from agentd.config.values import Address
from agentd.runtime.daemon import Daemon

from .card import REST, card_of
from .front import Contexts, Front
from .handler import Handler

log = logging.getLogger("agentd")
CLOSING = 2
"""Seconds in which answers that are under way are finished once the work is drained."""
BACKLOG = 2_048


class Server:
    """A daemon's listener. `url` is its address; whoever connects waits until `serving`. Raises OSError where the
    address cannot be had, ValueError for a certificate that cannot be used."""

    def __init__(self, daemon: Daemon, listen: Address, tls: Tls | None) -> None:
        self._daemon, self._listen = daemon, listen
        self.handler = Handler(daemon)
        self._socket = _bound(listen)
        bound = Address(listen.host, self._socket.getsockname()[1])
        self.url = f"{'https' if tls else 'http'}://{bound}"
        config = uvicorn.Config(
            self.app(), lifespan="off", ws="none", log_config=None, access_log=False, server_header=False,
            proxy_headers=False, timeout_graceful_shutdown=CLOSING, backlog=BACKLOG,
        )  # fmt: skip
        config.load()
        if tls is not None:
            config.ssl = _secured(tls)
        self._uvicorn = _Uvicorn(config)

    def app(self) -> ASGIApp:
        """The ASGI application."""
        settings, contexts = self._daemon.services.settings, Contexts()
        self.handler.card = card_of(settings, settings.a2a.url or self._named())
        routes = [
            *create_agent_card_routes(self.handler.card),
            *create_jsonrpc_routes(
                self.handler, "/", context_builder=contexts, enable_v0_3_compat=settings.a2a.compat_0_3
            ),
            *create_rest_routes(self.handler, context_builder=contexts, path_prefix=REST)[:-1],  # the last: tenants
        ]
        return Front(Starlette(routes=routes), lambda: self._daemon.services.settings, time.monotonic)

    def _named(self) -> str:
        """The address for the card: where all addresses are listened on, by the name of this machine."""
        everywhere = {"0.0.0.0": "://0.0.0.0:", "::": "://[::]:"}.get(self._listen.host)
        return self.url if everywhere is None else self.url.replace(everywhere, f"://{socket.gethostname()}:")

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Answer requests; the address is told as a log line. At the end streams are closed where they are, and answers
        under way are finished."""
        _quiet()
        running = asyncio.create_task(self._uvicorn.serve(sockets=[self._socket]), name="a2a")
        log.info("A2A: listening on %s", self.url, extra={"url": self.url})
        try:
            yield
        finally:
            self.handler.streams.close()
            self._uvicorn.should_exit = True
            await asyncio.wait({running})
            self._socket.close()
            if not running.cancelled() and (error := running.exception()) is not None:
                log.error("the listener died", exc_info=error)


class _Uvicorn(uvicorn.Server):
    """Leaves signals to the process, which drains before it closes the door."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _quiet() -> None:
    """What the libraries log of a request is its content, and tracebacks of callers' mistakes; faults of ours are
    logged here."""
    for name in ("a2a", "jsonrpc", "sse_starlette"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    logging.getLogger("uvicorn").setLevel(logging.ERROR)


def _bound(listen: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    # Named as TCP, or asyncio leaves Nagle's algorithm on: 40 ms for each answer of two packets.
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((listen.host, listen.port))
        made.listen(BACKLOG)
    except OSError as error:
        made.close()
        raise OSError(error.errno, f"a2a.listen: {listen} cannot be had: {error.strerror or error}") from error
    made.setblocking(False)
    return made


def _secured(tls: Tls) -> ssl.SSLContext:
    """The certificate. Its key is text by reference, and Python reads keys from files alone: it is one for a moment, in
    a folder of our own."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    with _as_file(tls.key.reveal()) as key:
        try:
            context.load_cert_chain(tls.cert, key)
        except (OSError, ssl.SSLError) as error:
            raise ValueError(f"a2a.tls: {tls.cert} and its key cannot be used: {error}") from None
    return context


@contextmanager
def _as_file(text: str) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "key.pem")
        with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write(text + "\n")
        yield path
