"""What every test gets: one event loop, example counts for property tests, and no way to a foreign host."""

import ipaddress
import os
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# A busy machine is no finding, and CI draws the same examples in every run: it must not fail by chance.
_common: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("default", max_examples=60, derandomize="CI" in os.environ, **_common)
settings.register_profile("soak", max_examples=3000, print_blob=True, **_common)
settings.load_profile("soak" if os.environ.get("AGENTKIT_SOAK") else "default")


class ForeignHostError(RuntimeError):
    """A test reached for the network. No OSError, so that no retry takes it for a hiccup."""

    def __init__(self, host: object) -> None:
        super().__init__(f"a test reached for {host!r}: tests talk to loopback only, use a fake or a local server")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def no_foreign_hosts() -> Iterator[None]:
    """Connects and name look-ups of this process end at loopback; Unix sockets are free."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("connect", "connect_ex", "sendto"):
            patch.setattr(socket.socket, name, _guarded_method(getattr(socket.socket, name)))
        patch.setattr(socket, "getaddrinfo", _guarded_lookup(socket.getaddrinfo))
        yield


def _guarded_method(method: Callable[..., Any]) -> Callable[..., Any]:
    def guarded(self: socket.socket, *args: Any) -> Any:
        address = args[-1]  # sendto has it last, behind optional flags
        if self.family in (socket.AF_INET, socket.AF_INET6) and not _is_loopback(address[0]):
            raise ForeignHostError(address[0])
        return method(self, *args)

    return guarded


def _guarded_lookup(lookup: Callable[..., Any]) -> Callable[..., Any]:
    def guarded(host: Any, *args: Any, **options: Any) -> Any:
        if host is not None and not _is_loopback(host):
            raise ForeignHostError(host)
        return lookup(host, *args, **options)

    return guarded


def _is_loopback(host: str | bytes) -> bool:
    """Whether the host stays on this machine; the empty and the unspecified address do."""
    text = host.decode() if isinstance(host, bytes) else host
    if text in ("", "localhost"):
        return True
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified
