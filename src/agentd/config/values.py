"""Values with a notation of their own: durations, sizes, shares, rates, addresses. Touches its arguments only."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator, Field, PlainSerializer
from pydantic_core import PydanticCustomError

_UNITS_MS = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_BYTES = {
    "TiB": 1 << 40, "TB": 10**12, "GiB": 1 << 30, "GB": 10**9, "MiB": 1 << 20, "MB": 10**6, "KiB": 1 << 10,
    "kB": 1000, "KB": 1000, "B": 1,
}  # fmt: skip
_COUNTS = {"G": 10**9, "M": 10**6, "k": 1000}
_DECIMAL = r"[0-9]{1,15}(?:\.[0-9]{1,6})?"

DURATION = rf"(?:{_DECIMAL}(?:ms|[smhdw]))+"
SIZE = rf"{_DECIMAL} ?(?:[kKMGT]?B|[KMGT]iB)"
COUNT = rf"{_DECIMAL}[kMG]"
LIMIT = r"(?:[0-9]{1,15} ?/ ?)?[0-9]{1,3}(?:\.[0-9]{1,2})? ?%"
RATE = rf"[0-9]{{1,9}} ?/ ?{DURATION}"
ADDRESS = r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+):[0-9]{1,5}"

LONGEST = timedelta(days=36_500)
"""A century: what is longer is a slip of the unit."""


def wanted(want: str) -> PydanticCustomError:
    """The error of a value that is not as it should be: `want` says how."""
    return PydanticCustomError("want", "{want}", {"want": want})


def parse_duration(text: str) -> timedelta | None:
    """`90s`, `1h30m`, `250ms`, units w d h m s ms; None for anything else, finer than a millisecond or over LONGEST."""
    if not re.fullmatch(DURATION, text):
        return None
    parts = re.findall(rf"({_DECIMAL})(ms|[smhdw])", text)
    milliseconds = sum((Decimal(number) * _UNITS_MS[unit] for number, unit in parts), Decimal(0))
    if milliseconds != int(milliseconds) or milliseconds > LONGEST // timedelta(milliseconds=1):
        return None
    return timedelta(milliseconds=int(milliseconds))


def duration_text(value: timedelta) -> str:
    """In the largest unit that needs no fraction; `parse_duration` reads it back."""
    milliseconds = value // timedelta(milliseconds=1)
    unit = next(unit for unit, size in _UNITS_MS.items() if milliseconds % size == 0) if milliseconds else "s"
    return f"{milliseconds // _UNITS_MS[unit]}{unit}"


def parse_size(text: str) -> int | None:
    """Bytes of `64MiB` or `256 MB`; None for anything else, or a fraction of a byte."""
    return _scaled(text, SIZE, _BYTES)


def size_text(size: int) -> str:
    """In the largest unit that needs no fraction; `parse_size` reads it back."""
    unit = next(unit for unit, factor in _BYTES.items() if size % factor == 0) if size else "B"
    return f"{size // _BYTES[unit]}{unit}"


def parse_count(text: str) -> int | None:
    """`2M` is 2,000,000; None for anything else."""
    return _scaled(text, COUNT, _COUNTS)


def _scaled(text: str, pattern: str, factors: dict[str, int]) -> int | None:
    if not re.fullmatch(pattern, text):
        return None
    number, unit = re.fullmatch(r"([0-9.]+) ?([A-Za-z]+)", text).groups()  # type: ignore[union-attr]
    value = Decimal(number) * factors[unit]
    return int(value) if value == int(value) else None


@dataclass(frozen=True, slots=True)
class TokenLimit:
    """Tokens, or a share (0 to 1) of the model's window if that is less. At least one of the two is set."""

    tokens: int | None
    share: float | None

    def within(self, window: int) -> int:
        """Tokens for a model with this window."""
        limits = [] if self.tokens is None else [self.tokens]
        return min([*limits, *([] if self.share is None else [int(self.share * window)])])

    def __str__(self) -> str:
        parts = [] if self.tokens is None else [str(self.tokens)]
        return " / ".join([*parts, *([] if self.share is None else [f"{round(self.share * 100, 2):g} %"])])


@dataclass(frozen=True, slots=True)
class Rate:
    """At most `count` in any stretch of `per`."""

    count: int
    per: timedelta

    def __str__(self) -> str:
        return f"{self.count}/{duration_text(self.per)}"


@dataclass(frozen=True, slots=True)
class Address:
    """A host and a TCP port; port 0 lets the system choose one."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host.lower() == "localhost"

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _duration(value: Any, *, zero: bool = False) -> timedelta:
    found = value if isinstance(value, timedelta) else parse_duration(value) if isinstance(value, str) else None
    if found is None:
        raise wanted("a duration with its unit, such as 250ms, 90s, 5m, 1h30m, 30d")
    if not found and not zero:
        raise wanted("a duration above 0")
    return found


def _duration_or_zero(value: Any) -> timedelta:
    return _duration(value, zero=True)


def _keep(value: Any) -> timedelta | None:
    return None if value in (None, "keep") else _duration(value)


def _size(value: Any) -> int:
    found = parse_size(value) if isinstance(value, str) else value
    if type(found) is not int or found < 1:
        raise wanted("a number of bytes above 0, such as 65536, 64KiB, 256MB")
    return found


def _count(value: Any) -> int:
    found = parse_count(value) if isinstance(value, str) else value
    if type(found) is not int or found < 1:
        raise wanted("a number above 0, such as 50000, 500k, 2M")
    return found


def _limit(value: Any) -> TokenLimit:
    if isinstance(value, TokenLimit):
        return value
    if type(value) is int and value > 0:
        return TokenLimit(value, None)
    if isinstance(value, str) and re.fullmatch(LIMIT, value):
        tokens, _, share = value.rpartition("/")
        percent = Decimal(share.strip(" %"))
        if 0 < percent <= 100 and (not tokens or int(tokens) > 0):
            return TokenLimit(int(tokens) if tokens else None, float(percent / 100))
    raise wanted('tokens, a share of the window, or the less of both: 16000, "20 %", "16000 / 20 %"')


def _rate(value: Any) -> Rate:
    if isinstance(value, Rate):
        return value
    if isinstance(value, str) and re.fullmatch(RATE, value):
        count, _, per = value.partition("/")
        stretch = parse_duration(per.strip())
        if int(count) > 0 and stretch:
            return Rate(int(count), stretch)
    raise wanted("a number per duration, such as 8/2s")


def _address(value: Any) -> Address:
    if isinstance(value, Address):
        return value
    if isinstance(value, str) and re.fullmatch(ADDRESS, value):
        host, _, port = value.rpartition(":")
        if int(port) <= 65_535 and (host[0] != "[" or _is_ipv6(host[1:-1])):
            return Address(host.strip("[]"), int(port))
    raise wanted("host:port, such as 127.0.0.1:8080, [::1]:8080, or 0.0.0.0:8080 for every interface")


def _listen(value: Any) -> Address | None:
    if value in (None, "off"):
        return None
    try:
        return _address(value)
    except PydanticCustomError:
        raise wanted('"off" or host:port, such as 127.0.0.1:8080') from None


def _is_ipv6(text: str) -> bool:
    try:
        return ipaddress.ip_address(text).version == 6
    except ValueError:
        return False


def _anchored(pattern: str) -> str:
    return f"^(?:{pattern})$"


_DurationText: TypeAlias = Annotated[str, Field(pattern=_anchored(DURATION))]
_KeepText: TypeAlias = Annotated[str, Field(pattern=_anchored(f"keep|{DURATION}"))]
_SizeText: TypeAlias = Annotated[str, Field(pattern=_anchored(SIZE))]
_CountText: TypeAlias = Annotated[str, Field(pattern=_anchored(COUNT))]
_LimitText: TypeAlias = Annotated[str, Field(pattern=_anchored(LIMIT))]
_RateText: TypeAlias = Annotated[str, Field(pattern=_anchored(RATE))]
_AddressText: TypeAlias = Annotated[str, Field(pattern=_anchored(ADDRESS))]
_ListenText: TypeAlias = Annotated[str, Field(pattern=_anchored(f"off|{ADDRESS}"))]
_Whole: TypeAlias = Annotated[int, Field(ge=1)]

Duration: TypeAlias = Annotated[
    timedelta, BeforeValidator(_duration, json_schema_input_type=_DurationText), PlainSerializer(duration_text)
]
DurationOrZero: TypeAlias = Annotated[
    timedelta, BeforeValidator(_duration_or_zero, json_schema_input_type=_DurationText), PlainSerializer(duration_text)
]
Keep: TypeAlias = Annotated[
    timedelta | None,
    BeforeValidator(_keep, json_schema_input_type=_KeepText),
    PlainSerializer(lambda value: "keep" if value is None else duration_text(value)),
]
"""How long something is kept; None, written `keep`, is for ever."""
ByteSize: TypeAlias = Annotated[
    int, BeforeValidator(_size, json_schema_input_type=_Whole | _SizeText), PlainSerializer(size_text)
]
Count: TypeAlias = Annotated[int, BeforeValidator(_count, json_schema_input_type=_Whole | _CountText)]
Tokens: TypeAlias = Annotated[
    TokenLimit,
    BeforeValidator(_limit, json_schema_input_type=_Whole | _LimitText),
    PlainSerializer(lambda value: value.tokens if value.share is None else str(value)),
]
Frequency: TypeAlias = Annotated[Rate, BeforeValidator(_rate, json_schema_input_type=_RateText), PlainSerializer(str)]
HostPort: TypeAlias = Annotated[
    Address, BeforeValidator(_address, json_schema_input_type=_AddressText), PlainSerializer(str)
]
Listen: TypeAlias = Annotated[
    Address | None,
    BeforeValidator(_listen, json_schema_input_type=_ListenText),
    PlainSerializer(lambda value: "off" if value is None else str(value)),
]
"""Where to listen; None, written `off`, is nowhere."""
