"""Values with a notation of their own, there and back."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from agentd.config.values import (
    LONGEST,
    Address,
    ByteSize,
    Count,
    Duration,
    Frequency,
    HostPort,
    Keep,
    Listen,
    Rate,
    TokenLimit,
    Tokens,
    duration_text,
    parse_duration,
    parse_size,
    size_text,
)

KINDS: dict[str, Any] = {
    "Duration": Duration, "ByteSize": ByteSize, "Count": Count, "Tokens": Tokens, "Frequency": Frequency,
    "HostPort": HostPort, "Listen": Listen, "Keep": Keep,
}  # fmt: skip


def read(kind: str, value: Any) -> Any:
    adapter: TypeAdapter[Any] = TypeAdapter(KINDS[kind])
    return adapter.validate_python(value, strict=True)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("250ms", 0.25), ("90s", 90), ("5m", 300), ("1h30m", 5400), ("2d", 172_800), ("1w", 604_800), ("1.5h", 5400)],
)
def test_durations(text: str, seconds: float) -> None:
    assert read("Duration", text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text", ["", "5", "s", "5 s", "-5s", "5S", "5min", "0.1ms", "1e3s", "99999w", "5s5", "١s", 7, 7.0, True, None, "0s"]
)
def test_no_durations(text: Any) -> None:
    with pytest.raises(ValidationError):
        read("Duration", text)


@given(st.integers(0, LONGEST // timedelta(milliseconds=1)))
def test_duration_text_reads_back(milliseconds: int) -> None:
    value = timedelta(milliseconds=milliseconds)
    assert parse_duration(duration_text(value)) == value


@given(st.integers(1, 10**14))
def test_size_text_reads_back(size: int) -> None:
    assert parse_size(size_text(size)) == size


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("ByteSize", 4096, 4096),
        ("ByteSize", "64KiB", 65_536), ("ByteSize", "256 MB", 256_000_000), ("ByteSize", "2.5kB", 2500),
        ("Count", 7, 7), ("Count", "2M", 2_000_000), ("Count", "1.5k", 1500),
        ("Tokens", 16_000, TokenLimit(16_000, None)), ("Tokens", "20 %", TokenLimit(None, 0.2)),
        ("Tokens", "16000 / 20 %", TokenLimit(16_000, 0.2)), ("Tokens", "16000/12.5%", TokenLimit(16_000, 0.125)),
        ("Frequency", "8/2s", Rate(8, timedelta(seconds=2))),
        ("HostPort", "localhost:80", Address("localhost", 80)), ("HostPort", "[::1]:0", Address("::1", 0)),
        ("Listen", "off", None), ("Keep", "keep", None), ("Keep", "30d", timedelta(days=30)),
    ],
)  # fmt: skip
def test_other_values(kind: str, text: Any, expected: Any) -> None:
    assert read(kind, text) == expected


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("ByteSize", 0), ("ByteSize", True),
        ("ByteSize", "64 kb"), ("ByteSize", "0.5B"), ("ByteSize", 1.5), ("Count", "2m"), ("Count", 0),
        ("Tokens", "0 / 20 %"), ("Tokens", "16000 / 0 %"), ("Tokens", "101 %"), ("Tokens", "20"), ("Tokens", 0),
        ("Tokens", True),
        ("Frequency", "0/2s"), ("Frequency", "8"), ("Frequency", "8/0s"), ("HostPort", "localhost"),
        ("HostPort", "::1:80"),
        ("HostPort", "[::g]:80"), ("HostPort", "a:65536"), ("HostPort", "http://a:80"),
        ("Listen", False), ("Keep", "never"),
    ],
)  # fmt: skip
def test_what_is_none_of_them(kind: str, text: Any) -> None:
    with pytest.raises(ValidationError):
        read(kind, text)


def test_a_token_limit_is_the_less_of_both() -> None:
    limit = TokenLimit(16_000, 0.2)
    assert (limit.within(200_000), limit.within(8000)) == (16_000, 1600)
    assert TokenLimit(None, 0.5).within(10) == 5
    assert TokenLimit(12, None).within(10) == 12


@pytest.mark.parametrize(
    ("host", "is_loopback"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("LOCALHOST", True), ("0.0.0.0", False), ("::", False),
     ("10.0.0.1", False), ("localhost.example", False)],
)  # fmt: skip
def test_loopback(host: str, is_loopback: bool) -> None:
    assert Address(host, 1).is_loopback is is_loopback


@pytest.mark.parametrize("value", [TokenLimit(5, 0.125), Rate(3, timedelta(minutes=2)), Address("::1", 80)])
def test_text_reads_back(value: TokenLimit | Rate | Address) -> None:
    kind = {TokenLimit: "Tokens", Rate: "Frequency", Address: "HostPort"}[type(value)]
    assert read(kind, str(value)) == value
