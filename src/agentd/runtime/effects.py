"""What became of the tool calls of a context: which have no result yet, and what to put in place of one after a crash
or an end. Touches only its arguments.

A call that changes something outside is written down as started before it runs, so that a life that finds no end of it
knows that it may have happened. Such a call is shown as unknown and not run again, unless running it twice is as good
as once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from agentd.context.record import AssistantMsg, Call, Effect, Entry, ToolMsg


@dataclass(frozen=True)
class OpenCall:
    """A call without a final result. `n`: the entry that it stands in; `round`, `index`: its place in its turn."""

    call: Call
    n: int
    turn: str | None
    round: int
    index: int
    is_started: bool


def key_of(context: str, turn: str, round: int, index: int) -> str:
    """The idempotency key of a call: the same in every life, and no other call's ever."""
    return f"{context}:{turn}:{round}:{index}"


def open_calls(entries: Iterable[Entry]) -> list[OpenCall]:
    """The calls among these entries that have no result, or an interim one only, in order."""
    waiting: dict[str, tuple[Call, Entry, int]] = {}
    started: set[str] = set()
    for entry in entries:
        body = entry.body
        if isinstance(body, AssistantMsg):
            waiting.update((call.id, (call, entry, index)) for index, call in enumerate(body.tool_calls))
        elif isinstance(body, ToolMsg):
            if body.state != "pending":
                waiting.pop(body.id, None)
        elif isinstance(body, Effect) and body.state == "started":
            started.add(body.call)
    return [
        OpenCall(call, entry.n, entry.turn, entry.round or 0, index, call.id in started)
        for call, entry, index in waiting.values()
    ]


def stand_in(found: OpenCall, may_have_run: bool, reason: str) -> ToolMsg:
    """The result that a call gets which has none: whether it ran is said, never guessed."""
    text = (
        f"It is not known whether this call took effect: {reason}. It was not run again. Look before you repeat it."
        if may_have_run
        else f"This call was not run: {reason}."
    )
    state = "unknown" if may_have_run else "not_run"
    return ToolMsg(found.call.id, found.call.name, text, is_error=True, state=state)
