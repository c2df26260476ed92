"""Tools for the plan of the context: create, update, get, clear. Touch the context that the desk hands them."""

from __future__ import annotations

from typing import Any

from agentd.context import plan as plans
from agentd.context.plan import Plan, PlanError
from agentd.context.record import PlanChange
from agentkit.core.contracts.errors import Corrupt

from .base import Answer, Invocation, Tool, ToolError
from .making import FLAG, TEXT, WHOLE, WORD, closed, list_of, open_object, own, with_words


def _told(plan: Plan | None) -> dict[str, Any]:
    return {"plan": plans.plain(plan), "progress": plans.progress(plan)}


def _held(asked: Invocation) -> Plan | None:
    try:
        return plans.plan_of(asked.desk.context.state.plan)
    except Corrupt as error:
        raise ToolError(str(error)) from error


async def _create(asked: Invocation) -> Answer:
    given, desk = asked.arguments, asked.desk
    try:
        made = plans.create(given["goal"], given["items"], now=desk.now, max_items=desk.settings.context.plan.max_items)
    except PlanError as error:
        raise ToolError(str(error)) from error
    return Answer(_told(made), bodies=(PlanChange("create", plans.plain(made)),))


async def _update(asked: Invocation) -> Answer:
    desk, change = asked.desk, _with_whole_numbers(asked.arguments)
    try:
        target = plans.binding(change)
        outcome = None if target is None else await desk.outcome(*target)
        made = plans.update(
            _held(asked),
            change,
            now=desk.now,
            max_items=desk.settings.context.plan.max_items,
            outcomes={} if target is None or outcome is None else {target: outcome},
        )
    except PlanError as error:
        raise ToolError(str(error)) from error
    return Answer(_told(made), bodies=(PlanChange("update", plans.plain(made)),))


async def _get(asked: Invocation) -> Answer:
    return Answer(_told(_held(asked)))


async def _clear(asked: Invocation) -> Answer:
    """What is no plan can be cleared too."""
    has_one = asked.desk.context.state.plan is not None
    return Answer({"ok": True}, bodies=(PlanChange("clear", None),) if has_one else ())


def _with_whole_numbers(change: dict[str, Any]) -> dict[str, Any]:
    """Ids as whole numbers; JSON Schema takes 2.0 for one too."""
    made = dict(change)
    if isinstance(item := made.get("item"), float):
        made["item"] = int(item)
    if "reorder" in made:
        made["reorder"] = [int(id) for id in made["reorder"]]
    if "after" in made.get("insert", {}):
        made["insert"] = {**made["insert"], "after": int(made["insert"]["after"])}
    return made


def plan_tools() -> list[Tool]:
    """The tools of this module."""
    item = {"anyOf": [WORD, closed({"title": WORD}, {"detail": TEXT})]}
    bind = {**closed({}, dict.fromkeys(plans.BINDINGS, WORD)), "minProperties": 1, "maxProperties": 1}
    update = closed(
        {},
        {
            "insert": with_words(
                closed({"title": WORD}, {"detail": TEXT, "after": WHOLE}), "a new item, behind the one with id `after`"
            ),
            "reorder": with_words(list_of(WHOLE), "ids that come first, in this order"),
            "item": with_words({"type": ["integer", "string"]}, "id or exact title of the item to change"),
            "status": {"enum": list(plans.LEGAL)},
            "note": with_words(TEXT, 'empty ("") takes it away'),
            "title": WORD,
            "detail": with_words(TEXT, 'empty ("") takes it away'),
            "bind": with_words(bind, "what the item waits for: its end settles the item"),
        },
    )
    told = open_object({"plan": {"type": ["object", "null"]}, "progress": TEXT})
    return [
        own("plan.create", "Make a plan: a goal and its steps. It replaces the one that there is.", _create,
            closed({"goal": WORD, "items": list_of(item, minItems=1)}), told),
        own("plan.update", "Change the plan: insert, reorder, or change one item. All of it, or nothing.", _update,
            update, told),
        own("plan.get", "The plan, with ids and details.", _get, closed({}), told, read_only=True),
        own("plan.clear", "Drop the plan.", _clear, closed({}), open_object({"ok": FLAG})),
    ]  # fmt: skip
