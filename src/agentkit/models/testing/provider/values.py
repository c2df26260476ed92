"""What a fake provider is told and what it notes: answers, faults, gates, exchanges. Touches only its arguments."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeAlias

from agentkit.core.contracts.errors import FormatError

KINDS = ("auth", "billing", "overloaded", "permission", "rate_limit", "server", "too_large", "unavailable")
"""Kinds of errors that a fault may raise. Status, type and words are those of the wire that the request came on."""


class Gate:
    """A point where an exchange waits until a test opens it: a delay without a clock.

    `reached` is set once an exchange waits here. `open` may be called from any thread, and lets all pass from then on.
    """

    def __init__(self) -> None:
        self.reached = threading.Event()
        self._lock = threading.Lock()  # guards _open and _waiting
        self._open = False
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    def open(self) -> None:
        """Lets through whoever waits here, now and later on."""
        with self._lock:
            self._open = True
            waiting, self._waiting = self._waiting, []
        for loop, event in waiting:
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)

    async def passed(self) -> None:
        """Returns once the gate is open."""
        event = asyncio.Event()
        with self._lock:
            if not self._open:
                self._waiting.append((asyncio.get_running_loop(), event))
            else:
                event.set()
        self.reached.set()
        await event.wait()


@dataclass(frozen=True)
class AnswerCall:
    """A tool call of an answer. `arguments`: a mapping, or a text as a model may write it, malformed if a test wants
    that; `id`: the provider's next one, if None."""

    name: str
    arguments: Mapping[str, Any] | str = field(default_factory=dict, hash=False)
    id: str | None = None


@dataclass(frozen=True)
class Answer:
    """What the model says, in this order: `thinking`, `native`, `text`, `calls`.

    `finish_reason`: in the words of the wire; by default that of calls, else of an end. `usage`: figures in place of
    the measured ones: fresh, read, write_short, write_long, output, reasoning. `native`: blocks or items in the form of
    the wire, given out as they are. `redacted`: thinking that is given out encrypted only.
    """

    text: str = ""
    calls: tuple[AnswerCall, ...] = ()
    thinking: str | None = None
    redacted: bool = False
    finish_reason: str | None = None
    usage: Mapping[str, int] = field(default_factory=dict, hash=False)
    native: tuple[Mapping[str, Any], ...] = field(default=(), hash=False)

    @classmethod
    def read(cls, data: Any, place: str = "answer") -> Answer:
        """From an Answer, a text or a mapping of the fields. FormatError for anything else."""
        if isinstance(data, cls):
            return data
        if isinstance(data, str):
            return cls(data)
        given = _known(data, cls, place)
        calls = []
        for at, call in enumerate(given.get("calls", ())):
            one = (
                call if isinstance(call, AnswerCall) else AnswerCall(**_known(call, AnswerCall, f"{place}.calls[{at}]"))
            )
            calls.append(one)
        wrong = sorted(set(given.get("usage", {})) - USAGE)
        if wrong:
            raise FormatError(f"{place}.usage: {', '.join(wrong)} is not known; known are {', '.join(sorted(USAGE))}")
        return cls(**{**given, "calls": tuple(calls), "native": tuple(given.get("native", ()))})


USAGE = {"fresh", "read", "write_short", "write_long", "output", "reasoning"}
"""Figures that an answer may set, in tokens; all disjoint but reasoning, which is a part of output."""


@dataclass(frozen=True)
class WireFault:
    """What goes wrong with a request, if `when` is None or holds for its exchange, the next `times` times (None:
    always).

    `kind` (one of KINDS), `status`, `message`, `headers`, `retry_after` (seconds): the answer is this error, or with
    `error_after` the stream ends with it behind as many events. `before`: seconds, or a gate, ahead of the first byte;
    `pause`: the same ahead of each event, or with `pause_after` once behind as many. `cut_after`: the connection is
    closed behind as many events; an answer without events is cut in its middle, or with 0 never begun.
    `malformed_after`: behind as many events comes data that is no JSON. `empty`: the answer has no content.
    `truncated`: the arguments of the last call stop in the middle.
    """

    kind: str | None = None
    status: int | None = None
    message: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, hash=False)
    retry_after: float | None = None
    error_after: int | None = None
    before: float | Gate | None = None
    pause: float | Gate | None = None
    pause_after: int | None = None
    cut_after: int | None = None
    malformed_after: int | None = None
    empty: bool = False
    truncated: bool = False
    times: int | None = 1
    when: Callable[[Exchange], bool] | None = None

    def __post_init__(self) -> None:
        if self.kind is not None and self.kind not in KINDS:
            raise ValueError(f"WireFault.kind: {self.kind!r} is no kind of error; known are {', '.join(KINDS)}")
        if self.kind is None and (self.status is not None or self.error_after is not None):
            raise ValueError(f"WireFault needs a kind for its error, one of {', '.join(KINDS)}")
        if self.times is not None and self.times < 1:
            raise ValueError(f"WireFault.times must be None or at least 1, not {self.times}")

    @classmethod
    def read(cls, data: Any, place: str = "fault") -> WireFault | None:
        """From a fault, a kind, a mapping of the fields, or None for a request that goes well."""
        if data is None or isinstance(data, cls):
            return data
        if isinstance(data, str):
            return cls(data)
        try:
            return cls(**_known(data, cls, place))
        except ValueError as error:
            raise FormatError(f"{place}: {error}") from None

    @property
    def refuses(self) -> bool:
        """Whether the whole answer is an error."""
        return self.kind is not None and self.error_after is None


@dataclass(frozen=True)
class Segment:
    """The size of a part of a request: UTF-8 bytes of its JSON form, and counted tokens."""

    bytes: int
    tokens: int


@dataclass(frozen=True)
class Spent:
    """Tokens of an exchange, disjoint but for `reasoning`, which is a part of `output`."""

    fresh: int = 0
    read: int = 0
    write_short: int = 0
    write_long: int = 0
    output: int = 0
    reasoning: int = 0

    @property
    def prompt(self) -> int:
        """All tokens of the prompt."""
        return self.fresh + self.read + self.write_short + self.write_long


@dataclass(frozen=True)
class Exchange:
    """A request and what became of it.

    `wire`: anthropic, openai_chat, openai_responses or gemini, "" for a path of none of them; `body`: the parsed JSON,
    None where there was none; `raw`: the bytes as they came; `headers`: lower-case names, the secret left out;
    `segments`: sizes of tools, system and messages; `prompt` and `bill`: of `agentkit.models.cache`, None where the
    model has no cache rules; `error`: the JSON of a refusal; `at`: the provider's clock, seconds.
    """

    method: str
    path: str
    wire: str
    headers: Mapping[str, str] = field(hash=False)
    body: Any = field(hash=False)
    raw: bytes = field(repr=False)
    at: float
    segments: Mapping[str, Segment] = field(default_factory=dict, hash=False)
    prompt: Any = field(default=None, hash=False, repr=False)
    bill: Any = field(default=None, hash=False)
    spent: Spent | None = None
    status: int = 0
    error: Any = field(default=None, hash=False)
    answer: Answer | None = field(default=None, hash=False)
    fault: WireFault | None = field(default=None, hash=False)

    @property
    def model(self) -> str:
        """The model asked for; empty where the request names none."""
        named = self.body.get("model") if isinstance(self.body, dict) else None
        return named if isinstance(named, str) else ""


class Refused(Exception):
    """A request that the provider does not take: status, the provider's own JSON, headers."""

    def __init__(self, status: int, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> None:
        super().__init__(f"{status}: {body}")
        self.status, self.body, self.headers = status, body, dict(headers or {})


Answers: TypeAlias = (
    "Sequence[Answer | str | Mapping[str, Any]] | Callable[[Exchange], Answer | str | Mapping[str, Any]]"
)
"""Answers one after the other, or a function that makes them of what was asked."""


def _known(data: Any, cls: type, place: str) -> dict[str, Any]:
    if not isinstance(data, Mapping):
        raise FormatError(f"{place} must be a text or a mapping, not {type(data).__name__}")
    names = {one.name for one in fields(cls)}
    unknown = [str(name) for name in data if name not in names]
    if unknown:
        raise FormatError(f"{place}: {', '.join(unknown)} is not known here; known are {', '.join(sorted(names))}")
    return dict(data)
