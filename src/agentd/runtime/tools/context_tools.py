"""Tools for what the conversation shows: compact, recall, pin, unpin. Touch the context and records that the desk hands
them: the caller's own, since no argument names another."""

from __future__ import annotations

from agentd.context.pins import PinRefused, unpinned
from agentd.context.recall import RecallRefused
from agentd.runtime.pinning import pins_of
from agentd.runtime.recalling import entries_of, recall

from .base import Answer, Desk, Invocation, Tool, ToolError
from .making import (
    AT_LEAST_ONE,
    AT_LEAST_ZERO,
    FLAG,
    OBJECT,
    TEXT,
    WHOLE,
    WORD,
    closed,
    list_of,
    open_object,
    own,
    whole,
    with_words,
)


async def _compact(asked: Invocation) -> Answer:
    given = asked.arguments
    return Answer(await asked.desk.compact(whole(given, "target_tokens"), whole(given, "keep_last")))


async def _recall(asked: Invocation) -> Answer:
    try:
        found = await recall(asked.desk.records, asked.desk.context, asked.arguments)
    except RecallRefused as error:
        raise ToolError(str(error)) from error
    return Answer(found.to_dict())


async def _pin(asked: Invocation) -> Answer:
    desk = asked.desk
    entries = [int(n) for n in asked.arguments["entries"]]
    try:
        bodies = await pins_of(desk.records, desk.context, entries, window=desk.window)
    except PinRefused as error:
        raise ToolError(str(error)) from error
    pins = sorted({*desk.context.state.pins, *(body.entry for body in bodies)})
    return Answer(await _told(desk, pins), bodies=tuple(bodies))


async def _unpin(asked: Invocation) -> Answer:
    desk = asked.desk
    bodies = unpinned(desk.context.state.pins, [int(n) for n in asked.arguments["entries"]])
    gone = {body.entry for body in bodies}
    pins = sorted(n for n in desk.context.state.pins if n not in gone)
    return Answer(await _told(desk, pins), bodies=tuple(bodies))


async def _told(desk: Desk, pins: list[int]) -> dict[str, object]:
    found = await entries_of(desk.records, desk.context, pins)
    return {"pins": pins, "tokens": sum(entry.est for entry in found)}


def context_tools() -> list[Tool]:
    """The tools of this module."""
    compact = closed(
        {},
        {
            "target_tokens": with_words(AT_LEAST_ONE, "size to come down to"),
            "keep_last": with_words(AT_LEAST_ZERO, "messages to keep as they are"),
        },
    )
    asking = closed(
        {},
        {
            "query": with_words(WORD, "words that an entry has to hold; this or `entries`"),
            "entries": with_words(WORD, "entry numbers, such as 12-20,31"),
            "version": with_words(AT_LEAST_ONE, "only entries that this version showed"),
            "limit": with_words(AT_LEAST_ONE, "entries at most; 10"),
            "max_tokens": with_words(AT_LEAST_ONE, "size of the answer; 4,000"),
        },
    )
    pinning = closed({"entries": list_of(AT_LEAST_ONE, minItems=1, maxItems=256)}, {"why": TEXT})
    pins = open_object({"pins": list_of(WHOLE), "tokens": AT_LEAST_ZERO})
    return [
        own("context.compact", "Fold the older part of this conversation into its summary now.", _compact, compact,
            open_object({"version": WHOLE, "est_tokens": WHOLE, "folded": WHOLE}, {"declined": TEXT})),
        own("context.recall", "Read earlier entries of this conversation in full, folded ones too.", _recall, asking,
            open_object({"entries": list_of(OBJECT), "truncated": FLAG}), read_only=True),
        own("context.pin", "Keep entries of this conversation word for word through every compaction.", _pin, pinning,
            pins),
        own("context.unpin", "Let pinned entries be folded again.", _unpin, pinning, pins),
    ]  # fmt: skip
