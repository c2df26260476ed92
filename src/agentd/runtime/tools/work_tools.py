"""Tools about work beside the turn: background runs, subagents, waiting for either. Touch what the desk hands them."""

from __future__ import annotations

from typing import Any

from .base import Answer, Invocation, Tool
from .making import AT_LEAST_ONE, OBJECT, TEXT, WORD, Schema, closed, list_of, open_object, own, with_words

DEADLINE = with_words(WORD, "how long it may take, such as 10m or 2h")
TIMEOUT = with_words(WORD, "how long to wait at most, such as 10m; without one, as long as it takes")


async def _work(asked: Invocation) -> Answer:
    return Answer(await asked.desk.work(asked.tool, asked, asked.arguments))


def _tool(name: str, text: str, given: Schema, told: Schema, *, waits: bool = False) -> Tool:
    return own(name, text, _work, given, told, waits=waits)


def work_tools() -> list[Tool]:
    """The tools of this module."""
    run, subagent = open_object({"id": WORD, "state": WORD}), open_object({"handle": WORD, "state": WORD})
    limits: dict[str, Any] = closed({}, {"steps": AT_LEAST_ONE, "tokens": AT_LEAST_ONE, "deadline": DEADLINE})
    brief = closed(
        {"instruction": with_words(WORD, "all that it has to know; it sees nothing else unless context says so")},
        {
            "mode": with_words(
                {"enum": ["sync", "async"]}, "sync waits for its answer; async goes on, within this turn"
            ),
            "context": with_words(
                {"enum": ["none", "summary", "fork"]}, "what it knows of this conversation: nothing, a summary, all"
            ),
            "tools": with_words(list_of(WORD), "names of those of your tools that it may use; default all"),
            "skills": with_words(list_of(WORD), "skills that it begins with"),
            "limits": limits,
            "output_schema": with_words(OBJECT, "JSON Schema of its answer; without one it is text"),
        },
    )
    several = list_of(WORD, minItems=1, maxItems=64)
    return [
        _tool("run.start", "Start a tool in the background, and go on. A note tells when it has ended.",
              closed({"tool": WORD}, {"arguments": OBJECT, "deadline": DEADLINE}), run, waits=True),
        _tool("run.status", "How a background run stands, and its result.", closed({"id": WORD}), run),
        _tool("run.await", "Wait for a background run.", closed({"id": WORD}, {"timeout": TIMEOUT}), run, waits=True),
        _tool("run.cancel", "End a background run where it is.", closed({"id": WORD}), run, waits=True),
        _tool("subagent.run", "Have a subagent do a piece of work, with a conversation of its own.", brief, subagent,
              waits=True),
        _tool("subagent.send", "Tell a subagent more.", closed({"handle": WORD, "text": WORD}), subagent),
        _tool("subagent.status", "How a subagent stands, and its answer.", closed({"handle": WORD}), subagent),
        _tool("subagent.await", "Wait for a subagent.", closed({"handle": WORD}, {"timeout": TIMEOUT}), subagent,
              waits=True),
        _tool("subagent.kill", "End a subagent, and those that it started.", closed({"handle": WORD}), subagent,
              waits=True),
        _tool("subagent.list", "The subagents of this turn.", closed({}), open_object({"handles": list_of(OBJECT)})),
        _tool("await", "Wait for any or all of several background runs and subagents.",
              closed({}, {"any": several, "all": several, "timeout": TIMEOUT}), open_object({"woken_by": TEXT}),
              waits=True),
    ]  # fmt: skip
