"""Tools for skills: list, load, unload. Touch the library that the desk hands them."""

from __future__ import annotations

from agentd.context import skills as steps
from agentd.context.skill_file import SkillError

from .base import Answer, Invocation, Tool, ToolError
from .making import FLAG, OBJECT, TEXT, WORD, closed, list_of, open_object, own, with_words


async def _list(asked: Invocation) -> Answer:
    # As it is told in the prompt: asking the sources anew would change what every request begins with.
    catalogue = asked.desk.skills.catalogue
    loaded = set(steps.loaded_names(asked.desk.context.state.skills))
    skills = [
        {"name": one.ref, "description": one.description, "when": one.when, "source": one.source,
         "loaded": one.ref in loaded}
        for one in catalogue.skills
    ]  # fmt: skip
    errors = [{"source": source, "error": error} for source, error in catalogue.errors]
    return Answer({"skills": skills, "errors": errors})


async def _load(asked: Invocation) -> Answer:
    given, desk = asked.arguments, asked.desk
    file, arguments = given.get("file"), given.get("arguments")
    try:
        found = await desk.skills.load(given["name"], file=file, arguments=arguments)
        if found.file is not None:
            return Answer({"loaded": True, "name": found.ref, "hash": found.hash, "file": file, "text": found.text})
        step = steps.load(
            desk.context.state.skills,
            found.ref,
            found.hash,
            args=arguments,
            max_loaded=desk.settings.skills.max_loaded,
        )
    except SkillError as error:
        raise ToolError(str(error)) from error
    told = {"loaded": True, "name": found.ref, "hash": found.hash}
    if step.note is not None:
        told["note"] = step.note
    return Answer(told, bodies=() if step.change is None else (step.change,))


async def _unload(asked: Invocation) -> Answer:
    try:
        step = steps.unload(asked.desk.context.state.skills, asked.arguments["name"])
    except SkillError as error:
        raise ToolError(str(error)) from error
    return Answer({"ok": True}, bodies=() if step.change is None else (step.change,))


def skill_tools() -> list[Tool]:
    """The tools of this module."""
    load = closed(
        {"name": WORD},
        {
            "arguments": with_words(OBJECT, "for a skill that takes some"),
            "file": with_words(WORD, "a file that belongs to the skill, in place of its text"),
        },
    )
    return [
        own("skills.list", "The skills there are, and what is wrong with those that cannot be read.", _list, closed({}),
            open_object({"skills": list_of(OBJECT), "errors": list_of(OBJECT)}), read_only=True),
        own("skills.load", "Load the text of a skill into this conversation, or read one of its files.", _load, load,
            open_object({"loaded": FLAG, "name": TEXT, "hash": TEXT})),
        own("skills.unload", "Take a loaded skill away; its text leaves with the next compaction.", _unload,
            closed({"name": WORD}), open_object({"ok": FLAG})),
    ]  # fmt: skip
