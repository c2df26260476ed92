"""Tools that wait for somebody or for a time: ask_human, sleep. Touch what the desk hands them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from agentd.config.values import LONGEST, parse_duration

from .base import Answer, Invocation, Tool, ToolError
from .making import ANY_JSON, OBJECT, TEXT, WORD, closed, list_of, open_object, own, with_words


async def _ask(asked: Invocation) -> Answer:
    given = asked.arguments
    options, schema = given.get("options", []), given.get("schema")
    if options and schema is not None:
        raise ToolError("options or schema, not both: options are texts, a schema describes data")
    seconds = None
    if (timeout := given.get("timeout")) is not None:
        parsed = parse_duration(timeout)
        if parsed is None or not parsed:
            raise ToolError(f"a timeout is a duration above 0 such as 90s, 5m or 2d, not {timeout!r:.60}")
        seconds = parsed.total_seconds()
    answer, by = await asked.desk.ask(asked, given["question"], options=options, schema=schema, seconds=seconds)
    return Answer({"answer": answer, "by": by})


async def _sleep(asked: Invocation) -> Answer:
    given, now = asked.arguments, asked.desk.now
    if ("seconds" in given) == ("until" in given):
        raise ToolError("give either seconds or until")
    if "seconds" in given:
        if given["seconds"] > LONGEST.total_seconds():
            raise ToolError(f"{given['seconds']:g} seconds are more than a century")
        until = now + round(given["seconds"] * 1000)
    else:
        until = _time(given["until"])
        if until - now > LONGEST.total_seconds() * 1000:
            raise ToolError(f"{given['until']!r} is more than a century away")
    await asked.desk.sleep(asked, until)
    # With the time each result is another one: who looks at something every minute is caught in no loop.
    return Answer({"woken_by": "time", "now": told_time(asked.desk.now)})


def told_time(now: int) -> str:
    """A time in ms as RFC 3339 writes it, in UTC."""
    return datetime.fromtimestamp(now / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _time(text: str) -> int:
    """A time as RFC 3339 writes it, in ms."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise ToolError(f"until is a time with its offset, such as 2026-12-24T18:00:00Z, not {text!r:.60}")
    return round(found.timestamp() * 1000)


def human_tools() -> list[Tool]:
    """The tools of this module."""
    ask: dict[str, Any] = closed(
        {"question": WORD},
        {
            "options": with_words(list_of(WORD, maxItems=32), "the answers to choose from"),
            "schema": with_words(OBJECT, "JSON Schema of the answer; without options and schema it is text"),
            "timeout": with_words(
                TEXT, "how long to wait at most, such as 10m or 2d; without one, as long as it takes"
            ),
        },
    )
    sleep = closed(
        {},
        {
            "seconds": {"type": "number", "minimum": 0},
            "until": with_words(TEXT, "a time with its offset, such as 2026-12-24T18:00:00Z"),
        },
    )
    return [
        own("ask_human", "Ask the person you work for, and wait for the answer. For what only they can know or decide.",
            _ask, ask, open_object({"answer": ANY_JSON, "by": TEXT}), waits=True),
        own("sleep", "Do nothing for a while, or until a time, and then go on with this work.", _sleep, sleep,
            open_object({"woken_by": TEXT, "now": TEXT}), waits=True),
    ]  # fmt: skip
