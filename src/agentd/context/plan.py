"""The plan of a context: a short list of steps that the model keeps. Touches only its arguments.

A change is made whole or not at all: what cannot be applied raises PlanError and leaves the old value, which is never
edited, as it is. The state row and the log hold a plan as plain JSON (`plain`, `plan_of`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import msgspec

from agentkit.core.contracts.errors import Corrupt
from agentkit.core.contracts.surrogates import replace_surrogates

from .record import Struct
from .skills import one_line

MAX_ITEMS = 32
MAX_TITLE, MAX_TEXT = 500, 2_000
"""Characters of a goal or title, and of a detail or note."""
SHOWN = 200
"""Characters of a detail or note that stand in every request; plan.get has all of them."""

LEGAL: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "pending": frozenset({"in_progress", "done", "blocked", "skipped"}),
        "in_progress": frozenset({"pending", "done", "blocked", "skipped"}),
        "blocked": frozenset({"pending", "in_progress", "done", "skipped"}),
        "done": frozenset({"pending", "in_progress"}),
        "skipped": frozenset({"pending", "in_progress"}),
    }
)
"""What an item may become by an update. One that is over is reopened before it ends in another way."""
TERMINAL: Final = frozenset({"done", "blocked", "skipped"})
"""Statuses that no outcome changes any more."""
BINDINGS: Final = ("run", "subagent", "task")
"""What an item may be bound to."""


class PlanError(ValueError):
    """A plan that cannot be made or changed like this; the text says what is wrong and what would be right."""


class Item(Struct, frozen=True):
    """A step. `bound`: `{run}`, `{subagent}` or `{task}` with its id, whose end settles the item; `updated` in ms."""

    id: int = 0
    title: str = ""
    status: str = "pending"
    detail: str | None = None
    note: str | None = None
    bound: dict[str, str] | None = None
    updated: int = 0

    @property
    def is_over(self) -> bool:
        return self.status in TERMINAL


class Plan(Struct, frozen=True):
    """`next_id`: the id of the next item; ids count up from 1 and none is used twice. Times in ms."""

    goal: str = ""
    items: tuple[Item, ...] = ()
    next_id: int = 1
    created: int = 0
    updated: int = 0

    @property
    def is_finished(self) -> bool:
        """Whether no item is left to work on."""
        return all(item.is_over for item in self.items)


Outcomes = Mapping[tuple[str, str], tuple[bool, str]]
"""How what ended did: by kind and id, whether well, and the text to note."""


# As JSON


def plain(plan: Plan | None) -> Any:
    """The plan as plain JSON, None for none. Every field of an item that says something is there."""
    if plan is None:
        return None
    made = msgspec.to_builtins(plan)
    rows = (msgspec.to_builtins(item) for item in plan.items)
    items = [{"id": item.id, "title": item.title, "status": item.status, **row}
             for item, row in zip(plan.items, rows, strict=True)]  # fmt: skip
    return {**made, "goal": plan.goal, "items": items, "next_id": plan.next_id}


def plan_of(value: Any) -> Plan | None:
    """The plan that `plain` wrote. Raises Corrupt for what is none; a status of a later release stays as it is."""
    if value is None:
        return None
    try:
        return msgspec.convert(value, Plan)
    except msgspec.ValidationError as error:
        raise Corrupt(f"the plan of this context cannot be read ({error}); make a new one, or clear it") from error


# Changes


def create(goal: Any, items: Any, *, now: int, max_items: int = MAX_ITEMS) -> Plan:
    """A new plan. `items`: titles, or mappings of title and detail. Raises PlanError."""
    if not isinstance(items, (list, tuple)) or not items:
        raise PlanError("a plan needs items: a list of titles, or of objects with title and detail")
    _require_room(len(items), max_items)
    made = Plan(_words(goal, "the goal", MAX_TITLE), created=now, updated=now)
    for at, given in enumerate(items, 1):
        made = _with_item(made, given, len(made.items), f"item {at}", now)
    return made


def update(
    plan: Plan | None,
    change: Mapping[str, Any],
    *,
    now: int,
    max_items: int = MAX_ITEMS,
    outcomes: Outcomes = MappingProxyType({}),
) -> Plan:
    """The plan after `insert`, `reorder`, and the change of one `item`, in this order. Raises PlanError for any fault
    and for a change that changes nothing.

    `outcomes`: of what the item is bound to here, where that has ended already: the item is settled at once.
    """
    if plan is None:
        raise PlanError("there is no plan to update; make one with plan.create")
    _require_keys(change, _UPDATE, "plan.update")
    made = plan
    if (given := change.get("insert")) is not None:
        _require_room(len(made.items) + 1, max_items)
        after = given.get("after") if isinstance(given, Mapping) else None
        made = _with_item(made, given, _place_behind(made, after), "insert", now)
    if (order := change.get("reorder")) is not None:
        made = _reordered(made, order)
    made = _with_change(made, change, now, outcomes)
    if made == plan:
        raise PlanError("nothing to apply: the plan is like that already; give insert, reorder, or item with a change")
    return msgspec.structs.replace(made, updated=now)


def settle(plan: Plan, kind: str, id: str, success: bool, text: str, now: int) -> Plan:
    """The plan once what items are bound to has ended: done if well, else blocked, with the text as note. Items that
    are over stay; the same object when nothing changes."""
    items = tuple(
        _settled(item, success, text, now) if item.bound == {kind: id} and not item.is_over else item
        for item in plan.items
    )
    if all(new is old for new, old in zip(items, plan.items, strict=True)):
        return plan
    return msgspec.structs.replace(plan, items=items, updated=now)


def settled(value: Any, kind: str, id: str, success: bool, text: str, *, now: int) -> Any:
    """`settle` on a plan as plain JSON; the same object when nothing changes."""
    plan = plan_of(value)
    made = plan if plan is None else settle(plan, kind, id, success, text, now)
    return value if made is plan else plain(made)


def bound(value: Any) -> tuple[tuple[str, str], ...]:
    """What the unfinished items of a plan, as plain JSON, are bound to: kind and id, each once. To be looked up when
    something ends, when a binding is made, and at restore."""
    plan = plan_of(value)
    items = plan.items if plan is not None else ()
    pairs = (pair for item in items if item.bound and not item.is_over for pair in item.bound.items())
    return tuple(dict.fromkeys(pairs))


def binding(change: Mapping[str, Any]) -> tuple[str, str] | None:
    """What an update binds its item to, so that its outcome can be looked up first. Raises PlanError."""
    given = change.get("bind")
    if given is None:
        return None
    if not isinstance(given, Mapping) or len(given) != 1 or next(iter(given)) not in BINDINGS:
        raise PlanError(f'bind takes one of {", ".join(BINDINGS)} with an id, such as {{"run": "..."}}')
    kind, id = next(iter(given.items()))
    return kind, _words(id, f"the id of the {kind} to bind to", MAX_TITLE)


# As text


def progress(plan: Plan | None) -> str:
    """How far it is, such as `2 of 5 done, 1 in progress`."""
    if plan is None:
        return "no plan"
    counts = dict.fromkeys(("in_progress", "blocked", "skipped"), 0)
    for item in plan.items:
        counts[item.status] = counts.get(item.status, 0) + 1
    others = [f"{counts[name]} {_told(name)}" for name in ("in_progress", "blocked", "skipped") if counts[name]]
    return ", ".join([f"{counts.get('done', 0)} of {len(plan.items)} done", *others])


def render(plan: Plan) -> str:
    """The plan as it stands in every request: progress, goal, a line for each item."""
    return "\n".join([progress(plan), f"goal: {one_line(plan.goal)}", *map(_line, plan.items)])


def _line(item: Item) -> str:
    parts = [f"{item.id}. [{_told(item.status)}] {one_line(item.title)}"]
    if item.detail:
        parts.append(_clipped(one_line(item.detail), SHOWN))
    if item.note:
        parts.append(f"note: {_clipped(one_line(item.note), SHOWN)}")
    if item.bound:
        parts.append("waits for " + ", ".join(f"{kind} {one_line(id)}" for kind, id in item.bound.items()))
    return " | ".join(parts)


def _told(status: str) -> str:
    return status.replace("_", " ")


# Parts of an update


_UPDATE = ("insert", "reorder", "item", "status", "note", "title", "detail", "bind")
_FIELDS = ("status", "note", "title", "detail", "bind")
_INSERT = ("title", "detail", "after")


def _with_item(plan: Plan, given: Any, place: int, where: str, now: int) -> Plan:
    if isinstance(given, str):
        given = {"title": given}
    if not isinstance(given, Mapping):
        raise PlanError(f"{where} must be a title or an object with title and detail, not {type(given).__name__}")
    _require_keys(given, _INSERT, where)
    detail = _optional(given.get("detail"), f"the detail of {where}")
    made = Item(
        plan.next_id, _words(given.get("title"), f"the title of {where}", MAX_TITLE), detail=detail, updated=now
    )
    items = (*plan.items[:place], made, *plan.items[place:])
    return msgspec.structs.replace(plan, items=items, next_id=plan.next_id + 1)


def _place_behind(plan: Plan, after: Any) -> int:
    if after is not None and not _is_id(after):
        raise PlanError(f"after is the id of an item, a whole number, not {after!r}")
    return next((at for at, item in enumerate(plan.items, 1) if item.id == after), len(plan.items))


def _reordered(plan: Plan, order: Any) -> Plan:
    if not isinstance(order, (list, tuple)) or not all(map(_is_id, order)):
        raise PlanError(f"reorder is a list of item ids, whole numbers, not {order!r}")
    by_id = {item.id: item for item in plan.items}
    first = dict.fromkeys(id for id in order if id in by_id)
    items = tuple(by_id[id] for id in (*first, *(id for id in by_id if id not in first)))
    return msgspec.structs.replace(plan, items=items)


def _with_change(plan: Plan, change: Mapping[str, Any], now: int, outcomes: Outcomes) -> Plan:
    wanted = [name for name in _FIELDS if change.get(name) is not None]
    if change.get("item") is None:
        if wanted:
            raise PlanError(f"{', '.join(wanted)}: say which item, by its id or exact title")
        return plan
    old = _found(plan, change["item"])
    made = old
    if (title := change.get("title")) is not None:
        made = msgspec.structs.replace(made, title=_words(title, "the title", MAX_TITLE))
    for name in ("note", "detail"):
        if (text := change.get(name)) is not None:
            made = msgspec.structs.replace(made, **{name: _optional(text, f"the {name}")})
    if (status := change.get("status")) is not None:
        made = msgspec.structs.replace(made, status=_legal(old, status))
        if old.is_over and not made.is_over:
            # What it waited for has ended: that would settle it again with the next look at the outcome.
            made = msgspec.structs.replace(made, bound=None)
    if (target := binding(change)) is not None:
        made = _bound(made, target, now, outcomes)
    if made == old:
        return plan
    made = msgspec.structs.replace(made, updated=now)
    return msgspec.structs.replace(plan, items=tuple(made if item is old else item for item in plan.items))


def _found(plan: Plan, wanted: Any) -> Item:
    known = ", ".join(f"{item.id} {one_line(item.title)!r}" for item in plan.items)
    if _is_id(wanted):
        found = [item for item in plan.items if item.id == wanted]
    elif isinstance(wanted, str):
        found = [item for item in plan.items if item.title == wanted.strip()]
    else:
        raise PlanError(f"item is an id or an exact title, not {wanted!r}")
    if len(found) > 1:
        raise PlanError(
            f"{len(found)} items have the title {wanted!r}; name one by id: {', '.join(str(i.id) for i in found)}"
        )
    if not found:
        raise PlanError(f"there is no item {wanted!r}; items are {known}")
    return found[0]


def _legal(item: Item, status: Any) -> str:
    if not isinstance(status, str) or status not in LEGAL:
        raise PlanError(f"status is one of {', '.join(LEGAL)}, not {status!r}")
    if status != item.status and status not in LEGAL.get(item.status, frozenset(LEGAL)):
        may = ", ".join(name for name in LEGAL if name in LEGAL[item.status])
        raise PlanError(f"item {item.id} is {item.status} and cannot become {status}; it may become {may}")
    return status


def _bound(item: Item, target: tuple[str, str], now: int, outcomes: Outcomes) -> Item:
    if item.is_over:
        raise PlanError(f"item {item.id} is {item.status}: nothing would settle it; reopen it with status in_progress")
    made = msgspec.structs.replace(item, bound=dict([target]))
    if made.status == "pending":
        made = msgspec.structs.replace(made, status="in_progress")
    outcome = outcomes.get(target)
    return made if outcome is None else _settled(made, *outcome, now)


def _settled(item: Item, success: bool, text: str, now: int) -> Item:
    note = _clipped(replace_surrogates(text).strip(), MAX_TEXT) or item.note
    return msgspec.structs.replace(item, status="done" if success else "blocked", note=note, updated=now)


def _clipped(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _words(value: Any, what: str, most: int) -> str:
    if not isinstance(value, str) or not value.strip():
        raise PlanError(f"{what} must be a text that is not empty, not {value!r}")
    return _short(value, what, most)


def _optional(value: Any, what: str) -> str | None:
    if value is not None and not isinstance(value, str):
        raise PlanError(f"{what} must be a text, not {type(value).__name__}")
    return _short(value or "", what, MAX_TEXT) or None


def _short(value: str, what: str, most: int) -> str:
    text = replace_surrogates(value).strip()
    if len(text) > most:
        raise PlanError(f"{what} has {len(text):,} characters; a plan is in every request, so {most:,} is the most")
    return text


def _require_keys(given: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    if unknown := sorted(set(given) - set(known)):
        raise PlanError(f"{where} does not know {', '.join(map(repr, unknown))}; it takes {', '.join(known)}")


def _require_room(count: int, most: int) -> None:
    if count > most:
        raise PlanError(f"a plan has at most {most} items, this would be {count}; join some (context.plan.max_items)")


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
