"""The switch that keeps a process on loopback."""

import asyncio
import socket
import subprocess
import sys

import pytest

from agentkit.models.testing import ForeignHostError, loopback_only, loopback_required, require_loopback


@pytest.mark.parametrize("value", ["1", "0", ""])
def test_variable_says_whether_loopback_is_required(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("AGENTKIT_LOOPBACK_ONLY", value)
    assert loopback_required() is (value == "1")


def test_misspelt_variable_is_no_silent_permission(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTKIT_LOOPBACK_ONLY", "yes")
    with pytest.raises(ValueError, match="must be 0 or 1, not 'yes'"):
        loopback_required()


@pytest.mark.parametrize("url", ["http://127.0.0.1:8080/v1", "http://localhost", "http://[::1]:9/v1"])
def test_client_of_loopback_is_made(url: str) -> None:
    require_loopback(url)


@pytest.mark.parametrize("url", [None, "", "https://api.example.invalid/v1", "http://192.0.2.7:80"])
def test_client_that_leads_elsewhere_is_refused(monkeypatch: pytest.MonkeyPatch, url: str | None) -> None:
    monkeypatch.setenv("AGENTKIT_LOOPBACK_ONLY", "1")
    with pytest.raises(ForeignHostError, match="held to loopback only"):
        require_loopback(url)


def test_without_the_variable_any_client_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AGENTKIT_LOOPBACK_ONLY")
    require_loopback(None)


@pytest.mark.anyio
async def test_guard_holds_in_the_event_loop() -> None:
    loop = asyncio.get_running_loop()
    with socket.socket() as client:
        client.setblocking(False)
        with pytest.raises(ForeignHostError):
            await loop.sock_connect(client, ("192.0.2.1", 80))


def test_datagrams_are_held_too() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client, pytest.raises(ForeignHostError):
        client.sendto(b"x", ("192.0.2.1", 53))


def test_guard_ends_with_its_block() -> None:
    """In a process of its own, since this one is held to loopback for all of its tests."""
    code = """
import socket
from agentkit.models.testing import ForeignHostError, loopback_only
with loopback_only(), loopback_only():
    pass
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    with loopback_only():
        try:
            s.connect(("192.0.2.1", 9))
        except ForeignHostError as error:
            print(error.host)
    try:
        s.connect(("192.0.2.1", 9))  # sends nothing: it is a datagram socket
    except OSError:
        pass
    print("free")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["192.0.2.1", "free"]


def test_guard_may_be_nested() -> None:
    with loopback_only(), loopback_only():
        pass
    with socket.socket() as client, pytest.raises(ForeignHostError):
        client.connect(("192.0.2.1", 80))
