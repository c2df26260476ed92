"""Tools about the turn itself: think, finish, status, instruction.read. Touch what the desk hands them."""

from __future__ import annotations

from typing import Any

from agentd.runtime.checking import Checker, UnusableSchema
from agentd.runtime.thinking import ThinkFailed

from .base import Answer, Finish, Invocation, Tool, ToolError
from .making import ANY_JSON, FLAG, OBJECT, TEXT, WORD, closed, list_of, open_object, own, whole, with_words


async def _think(asked: Invocation) -> Answer:
    given = asked.arguments
    schema = given.get("output_schema")
    try:
        if schema is not None:
            Checker(schema, what="output_schema")
        value = await asked.desk.think(given["prompt"], schema, given.get("reads", []), given.get("skills", []))
    except (UnusableSchema, ThinkFailed) as error:
        raise ToolError(str(error)) from error
    return Answer(value)


async def _finish(asked: Invocation) -> Answer:
    given = asked.arguments
    end = Finish(given["status"], given.get("output"), given.get("reason", ""), whole(given, "exit"))
    return Answer({"ok": True}, finish=end)


async def _status(asked: Invocation) -> Answer:
    return Answer(asked.desk.status())


async def _instruction(asked: Invocation) -> Answer:
    return Answer({"text": asked.desk.settings.agent.instruction, "source": "agent.instruction"})


def turn_tools() -> list[Tool]:
    """The tools of this module."""
    think: dict[str, Any] = closed(
        {"prompt": WORD},
        {
            "output_schema": with_words(OBJECT, "JSON Schema of the answer; without one it is text"),
            "reads": with_words(list_of(WORD), "memory keys whose values go along"),
            "skills": with_words(list_of(WORD), "skills whose texts go along"),
        },
    )
    finish = closed(
        {"status": {"enum": ["completed", "failed", "refused", "cancelled"]}},
        {
            "output": with_words(ANY_JSON, "the result, any JSON"),
            "reason": TEXT,
            "exit": with_words({"type": "integer", "minimum": 0, "maximum": 255}, "exit code of a one-shot prompt"),
        },
    )
    return [
        own("think", "Work something out in one separate call of the model, without tools. Only the answer is kept.",
            _think, think),
        own("finish", "End this work after the current round, with its result.", _finish, finish,
            open_object({"ok": FLAG})),
        own("status", "The state of this agent and of this conversation.", _status, closed({}), open_object(),
            read_only=True),
        own("instruction.read", "The agent's standing instruction, in full.", _instruction, closed({}),
            open_object({"text": TEXT, "source": TEXT}), read_only=True),
    ]  # fmt: skip
