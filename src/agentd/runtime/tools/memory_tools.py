"""Tools for the agent's memory. Touch the memory that the desk hands them: its scope is settled there, and no argument
names one.

A change is decided here and committed with the result; in between the memory is held, so that no other context decides
on what is about to change.
"""

from __future__ import annotations

import asyncio
from typing import Any

from agentd.runtime.memory import Change, MemoryRefused

from .base import Answer, Desk, Invocation, Tool, ToolError
from .making import (
    ANY_JSON,
    AT_LEAST_ONE,
    AT_LEAST_ZERO,
    FLAG,
    TEXT,
    WORD,
    closed,
    list_of,
    open_object,
    own,
    storable,
    whole,
    with_words,
)

DURATION = with_words(WORD, "a duration such as 90s, 5m, 2d; without one the value stays")
META = open_object({"ts": AT_LEAST_ZERO, "by": TEXT, "seq": AT_LEAST_ONE}, {"ttl_ms": {"type": ["integer", "null"]}})


async def _get(asked: Invocation) -> Answer:
    try:
        value, expired = await asked.desk.memory.get(asked.arguments["key"])
    except MemoryRefused as error:
        raise ToolError(str(error)) from error
    if value is None:
        return Answer({"found": False, "expired": True} if expired else {"found": False})
    return Answer({"found": True, "value": value.record.value, "meta": value.meta})


async def _set(asked: Invocation) -> Answer:
    given = asked.arguments
    try:
        change = await asked.desk.memory.set(
            given["key"],
            storable(given["value"]),
            ttl=given.get("ttl"),
            if_seq=whole(given, "if_seq"),
            by=asked.principal.id,
        )
    except MemoryRefused as error:
        raise ToolError(str(error)) from error
    return _changed(change, {"ok": True, "key": change.key, "meta": change.meta})


async def _delete(asked: Invocation) -> Answer:
    try:
        change = await asked.desk.memory.delete(asked.arguments["key"])
    except MemoryRefused as error:
        raise ToolError(str(error)) from error
    return _changed(change, {"ok": True, "key": change.key, "found": change.found})


def _changed(change: Change, told: dict[str, Any]) -> Answer:
    return Answer(told, writes=change.writes)


async def _list(asked: Invocation) -> Answer:
    given = asked.arguments
    try:
        page = await asked.desk.memory.list(
            prefix=given.get("prefix", ""), after=given.get("after"), limit=whole(given, "limit")
        )
    except MemoryRefused as error:
        raise ToolError(str(error)) from error
    told: dict[str, Any] = {"keys": list(page.keys), "truncated": page.is_truncated}
    return Answer(told if page.next is None else {**told, "next": page.next})


def _writing(desk: Desk) -> asyncio.Lock:
    return desk.memory.writing()


def memory_tools() -> list[Tool]:
    """The tools of this module."""
    by_key = closed({"key": WORD})
    setting = closed(
        {"key": WORD, "value": with_words(ANY_JSON, "any JSON")},
        {"ttl": DURATION, "if_seq": with_words(AT_LEAST_ZERO, "only if the key is still at this seq; 0: not there")},
    )
    listing = closed(
        {}, {"prefix": TEXT, "after": with_words(TEXT, "the `next` of the page before"), "limit": AT_LEAST_ONE}
    )
    done = open_object({"ok": FLAG, "key": TEXT})
    return [
        own("memory.get", "Read a value that you remembered under a key.", _get, by_key,
            open_object({"found": FLAG}, {"value": ANY_JSON, "meta": META, "expired": FLAG}), read_only=True),
        own("memory.set", "Remember a value under a key, beyond this conversation.", _set, setting,
            open_object({"ok": FLAG, "key": TEXT, "meta": META}), holds=_writing),
        own("memory.delete", "Forget a key.", _delete, by_key, done, holds=_writing),
        own("memory.list", "The keys that you remembered, in order, a page at a time.", _list, listing,
            open_object({"keys": list_of(TEXT), "truncated": FLAG}, {"next": TEXT}), read_only=True),
    ]  # fmt: skip
