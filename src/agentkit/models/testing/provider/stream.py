"""How the answers of a fake provider leave: as JSON or as server-sent events, with what goes wrong on the way. Touches
its arguments, and waits where a fault says so."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import replace
from typing import Any

from .anthropic_replies import arguments_text
from .server import CutOff, HttpAnswer
from .shapes import Event
from .values import Answer, Exchange, Gate, WireFault

BROKEN = '{"type": "con'
"""Data of an event that is no JSON."""

_HEADERS = {"request-id": "req_fake", "x-request-id": "req_fake"}


def plain(status: int, body: Any, headers: Mapping[str, str] | None = None) -> HttpAnswer:
    """An answer as JSON. A lone surrogate leaves as the escape that it came as."""
    kinds = {**_HEADERS, "content-type": "application/json", **(headers or {})}
    return HttpAnswer(status, kinds, json.dumps(body).encode("ascii"))


def streamed(events: Iterable[Event], fault: WireFault, error: Event) -> HttpAnswer:
    """An answer as events; `error` is the one that a fault with `error_after` ends it with."""
    kinds = {**_HEADERS, "content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
    return HttpAnswer(200, kinds, stream=_pieces(events, fault, error))


async def waited(how_long: float | Gate | None) -> None:
    """Waits for seconds or for a gate."""
    if isinstance(how_long, Gate):
        await how_long.passed()
    elif how_long:
        await asyncio.sleep(how_long)


async def _pieces(events: Iterable[Event], fault: WireFault, error: Event) -> AsyncIterator[bytes]:
    at = 0
    for at, event in enumerate(events):
        if fault.cut_after == at:
            raise CutOff
        if fault.error_after == at:
            yield encoded(_numbered(error, at))
            return
        if fault.malformed_after == at:
            yield encoded((event[0], BROKEN))
        if fault.pause_after in (None, at):
            await waited(fault.pause)
        yield encoded(event)
    if fault.cut_after is not None:
        raise CutOff
    if fault.error_after is not None:
        yield encoded(_numbered(error, at + 1))


def _numbered(event: Event, at: int) -> Event:
    name, data = event
    return name, {**data, "sequence_number": at} if isinstance(data, dict) and "sequence_number" in data else data


def encoded(event: Event) -> bytes:
    """An event as it goes over the wire."""
    name, data = event
    text = data if isinstance(data, str) else json.dumps(data, separators=(",", ":"))
    head = "" if name is None else f"event: {name}\n"
    return f"{head}data: {text}\n\n".encode("ascii")


def spoilt(answer: Answer, fault: WireFault, cut_reason: str) -> Answer:
    """An answer with what a fault does to it."""
    if fault.empty:
        return Answer(usage=answer.usage)
    if not fault.truncated or not answer.calls:
        return answer
    *first, last = answer.calls
    text = arguments_text(last)
    calls = (*first, replace(last, arguments=text[: len(text) // 2]))
    return replace(answer, calls=calls, finish_reason=answer.finish_reason or cut_reason)


class Faults:
    """The faults that are still to come, in order."""

    def __init__(self, faults: Iterable[WireFault | None]) -> None:
        self._faults = list(faults)
        self._left = [1 if fault is None else fault.times for fault in self._faults]

    def add(self, fault: WireFault | None) -> None:
        self._faults.append(fault)
        self._left.append(1 if fault is None else fault.times)

    def clear(self) -> None:
        self._faults.clear()
        self._left.clear()

    def take(self, exchange: Exchange) -> WireFault | None:
        """The first that is left and fits, used once more; None where the request goes well."""
        for at, fault in enumerate(self._faults):
            left = self._left[at]
            if left == 0 or (fault is not None and fault.when is not None and not fault.when(exchange)):
                continue
            if left is not None:
                self._left[at] = left - 1
            return fault
        return None
