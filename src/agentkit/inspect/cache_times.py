"""When each request was sent, and how long the pause before it was, as far as a record tells. Touches only its
arguments.

Clients that resume a session copy its messages and stamp them with the time of the copy; such times say nothing. The
newest message of a request is the best witness of when it was sent, else the time of its response.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import NamedTuple

from agentkit.transcripts import Transcript

from .responses import moment
from .values import Response

COPIED = 0.05
"""Seconds: two responses in a row that are nearer than that bear the time at which the record was copied."""


class Pause(NamedTuple):
    """Seconds since the request before: at least `least`, at most `most`; equal where it is known."""

    least: float
    most: float


def request_times(transcript: Transcript, responses: Sequence[Response]) -> list[float | None]:
    """Seconds since 1970 of each request; None where the record has no time, or a copied one."""
    stamped = [_seconds(response.time) for response in responses]
    copied = {
        round(time / COPIED)
        for one, other in pairwise(stamped)
        if one is not None and other is not None and abs(one - other) < COPIED
        for time in (one, other)
    }

    def trusted(time: float | None) -> float | None:
        if time is None or not copied.isdisjoint(round(time / COPIED) + near for near in (-1, 0, 1)):
            return None
        return time

    found: list[float | None] = []
    before = -1
    for response, time in zip(responses, stamped, strict=True):
        sent = None
        if response.place is not None:
            for at in range(response.place - 1, before, -1):
                said = transcript.history[at].meta.get("time")
                sent = trusted(_seconds(said)) if isinstance(said, str) else None
                if sent is not None:
                    break
            before = response.place
        found.append(trusted(time) if sent is None else sent)
    return found


@dataclass
class Pauses:
    """The pauses of one conversation, request by request.

    Between two known times lie requests of unknown ones. Each of these that read all that was left came within the
    lifetime of the one before: what they leave of the whole time is the least that the last pause can have been.
    """

    has_begun: bool = False
    _at: float | None = None
    _between: int = 0
    _is_whole: bool = True

    def before(self, at: float | None, lifetime: float) -> Pause | None:
        """The pause before a request of time `at`; None where nothing is known of it."""
        if at is None or self._at is None:
            return None
        whole = max(at - self._at, 0.0)
        if not self._between:
            return Pause(whole, whole)
        least = whole - self._between * lifetime
        return Pause(least, whole) if self._is_whole and least >= lifetime else None

    def add(self, at: float | None, *, was_whole: bool) -> None:
        """Take in a request; `was_whole`: it read all that was left."""
        self.has_begun = True
        if at is not None:
            self._at, self._between, self._is_whole = at, 0, True
        else:
            self._between += 1
            self._is_whole &= was_whole


def _seconds(time: str | None) -> float | None:
    found: datetime | None = moment(time)
    if found is None:
        return None
    return (found.replace(tzinfo=UTC) if found.tzinfo is None else found).timestamp()
