"""A switch that forbids real model calls: this process reaches nobody but itself. Installs an audit hook, on first
use."""

from __future__ import annotations

import ipaddress
import os
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

VARIABLE = "AGENTKIT_LOOPBACK_ONLY"
"""Set to 1, it forbids clients that would reach beyond this machine, in this process and those it starts."""

_EVENTS = frozenset({"socket.connect", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo", "socket.gethostbyname"})


class ForeignHostError(RuntimeError):
    """Something reached for the network while only loopback is allowed. No OSError, so that no retry takes it for a
    hiccup."""

    def __init__(self, host: object = "") -> None:
        super().__init__(
            f"something reached for {host!r}, but this process is held to loopback only: use "
            f"agentkit.models.testing.provider, another fake or a local server"
        )
        self.host = host


class _Switch:
    """How many callers want the guard. An audit hook stays for the life of the process, so it asks here."""

    def __init__(self) -> None:
        self.lock = threading.Lock()  # guards both fields
        self.wanted = 0
        self.installed = False


_SWITCH = _Switch()


@contextmanager
def loopback_only() -> Iterator[None]:
    """Within it, connects, datagrams and name look-ups of this process end at loopback: ForeignHostError. Unix sockets
    are free. All threads are held to it, and it may be nested."""
    with _SWITCH.lock:
        if not _SWITCH.installed:
            sys.addaudithook(_audit)
            _SWITCH.installed = True
        _SWITCH.wanted += 1
    try:
        yield
    finally:
        with _SWITCH.lock:
            _SWITCH.wanted -= 1


def loopback_required() -> bool:
    """Whether the environment forbids clients that reach beyond this machine. ValueError for a value other than 0 and
    1, since a misspelt one would let calls out."""
    value = os.environ.get(VARIABLE, "")
    if value not in ("", "0", "1"):
        raise ValueError(f"{VARIABLE} must be 0 or 1, not {value!r}")
    return value == "1"


def require_loopback(url: str | None) -> None:
    """To be called where a client is made: ForeignHostError if the environment asks for loopback and `url`, the
    client's base URL, leads elsewhere. None is the provider's own address."""
    if not loopback_required():
        return
    host = urlsplit(url).hostname if url else None
    if host is None or not is_loopback(host):
        raise ForeignHostError(host or url or "the provider's own address")


def is_loopback(host: str | bytes) -> bool:
    """Whether a host stays on this machine; the empty and the unspecified address do."""
    text = host.decode("ascii", "replace") if isinstance(host, bytes) else host
    if text in ("", "localhost"):
        return True
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def _audit(event: str, args: tuple[object, ...]) -> None:
    if not _SWITCH.wanted or event not in _EVENTS:
        return
    if event in ("socket.getaddrinfo", "socket.gethostbyname"):
        host = args[0]
    else:
        own, address = args[0], args[1]
        if not isinstance(own, socket.SocketType) or own.family not in (socket.AF_INET, socket.AF_INET6):
            return
        host = address[0] if isinstance(address, tuple) and address else None
    if isinstance(host, (str, bytes)) and not is_loopback(host):
        raise ForeignHostError(host)
