"""How something ended that an item of a plan may be bound to. Reads the records of the instance.

What belongs to somebody else has no outcome here: a plan would tell of it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from agentd.context.record import ROOT
from agentd.context.resident import Context

from .services import Services


async def outcome_of(services: Services, held: Context, kind: str, id: str) -> tuple[bool, str] | None:
    """Of a run or subagent of this context, or a task of its owner: whether it ended well, and what to note. None while
    it has not, and for one that there is none of; the root context reaches all."""
    if kind == "task":
        try:
            task = await services.inbox.task(id)
        except LookupError:
            return None
        if not task.is_settled or not (held.id == ROOT or task.principal == held.state.principal):
            return None
        return task.state == "completed", task.text if task.output is not None else task.reason
    row = await services.records.get(kind, id)
    found: Any = None if row is None else msgspec.json.decode(row.state)
    if not isinstance(found, dict) or not found.get("ended"):
        return None
    if held.id != ROOT and found.get("context") != held.id:
        return None
    return found.get("state") == "completed", str(found.get("text", ""))
