"""Random logs: messages in any order with control entries among them, as a runtime would write them and worse."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from agentd.context.messages import assistant_msg
from agentd.context.record import (
    Clear,
    Compaction,
    DataPart,
    Entry,
    Masking,
    Msg,
    NoteMsg,
    Pin,
    PlanChange,
    Restore,
    SkillChange,
    SystemMsg,
    TextPart,
    ToolMsg,
    Unpin,
    UserMsg,
    entry_of,
)
from agentd.context.rows import accepted
from agentkit.core.contracts.types import Message, marked
from agentkit.state.compaction import Point, Summary
from agentkit.state.compaction.ranges import ranges_of
from tests import strategies


def msg_of(message: Message, note: bool = False) -> Msg:
    """What the record would hold of one of the library's messages."""
    made: Msg
    if note:
        made = NoteMsg(message.content)
    elif message.role in ("system", "developer"):
        made = SystemMsg(message.content)
    elif message.role == "assistant":
        made = assistant_msg(message)
    elif message.role in ("tool", "function"):
        state = "pending" if marked(message, "pending") is not None else ""
        made = ToolMsg(message.tool_call_id or "", message.name or "", message.content, message.is_error, state)
    else:
        made = UserMsg(
            (TextPart(message.content), DataPart({"n": 1}))
            if len(message.content) % 2
            else (TextPart(message.content),)
        )
    return accepted(made)[0]


def log_of(messages: list[Message], notes: frozenset[int] = frozenset()) -> list[Entry]:
    """A log of these messages; those at `notes` are notes of the runtime."""
    return [entry_of(n, msg_of(m, n in notes and m.role == "user")) for n, m in enumerate(messages, 1)]


@st.composite
def message_logs(draw: st.DrawFn, max_size: int = 24) -> list[Entry]:
    """Messages alone: valid transcripts, and lists in which nothing need be right."""
    found = draw(strategies.valid_transcripts(8) | strategies.transcripts(max_size))
    return log_of(found, frozenset(draw(st.sets(st.integers(1, len(found) + 1), max_size=4))))


@st.composite
def logs(draw: st.DrawFn, max_size: int = 24) -> list[Entry]:
    """Logs with every kind of control entry; versions rise by one."""
    entries: list[Entry] = []
    version = 1
    for message in draw(strategies.transcripts(max_size)):
        entries.append(entry_of(len(entries) + 1, msg_of(message)))
        body: Any = None
        pick = draw(st.integers(0, 12))
        last = len(entries)
        numbers = st.integers(1, last)
        if pick == 0:
            some = draw(st.sets(numbers, min_size=1))
            back = draw(st.sets(numbers, max_size=1)) - some
            delta = Summary(goals=(Point(f"g{last}", last),))
            body = Compaction(version + 1, folded=ranges_of(some), back=ranges_of(back), summary=delta)
        elif pick == 1:
            how = draw(st.sampled_from(["clamped", "masked", "superseded"]))
            body = Masking(version + 1, how=how, entries=dict.fromkeys(draw(st.sets(numbers)), 10))  # type: ignore[arg-type]
        elif pick == 2:
            body = Clear(version + 1)
        elif pick == 3:
            body = Restore(draw(st.integers(1, version)), version + 1)
        elif pick == 4:
            body = draw(st.sampled_from([Pin, Unpin]))(draw(numbers))
        elif pick == 5:
            body = PlanChange("create", {"goal": str(last)})
        elif pick == 6:
            body = SkillChange(
                draw(st.sampled_from(["load", "change", "unload"])), draw(st.sampled_from("ab")), None, str(last)
            )
        if body is not None:
            entries.append(entry_of(len(entries) + 1, body))
            version = getattr(body, "version", version)
    return entries
