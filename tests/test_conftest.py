"""The guard against foreign hosts holds, and lets loopback pass."""

import socket

import pytest


def test_foreign_address_is_refused() -> None:
    with socket.socket() as client, pytest.raises(RuntimeError, match=r"reached for '192\.0\.2\.1'"):
        client.connect(("192.0.2.1", 80))


def test_foreign_name_is_refused() -> None:
    with pytest.raises(RuntimeError, match="loopback only"):
        socket.create_connection(("example.invalid", 80))


def test_loopback_connects() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(server.getsockname()) as client:
            client.sendall(b"x")
        peer, _ = server.accept()
        with peer:
            assert peer.recv(1) == b"x"


@pytest.mark.anyio
async def test_coroutine_runs(anyio_backend: str) -> None:
    assert anyio_backend == "asyncio"
