"""Tools for artifacts: named texts that a context keeps beside its log. Touch the records that the desk hands them.

The bytes are stored under their digest before the row that names them; that row is the context's own, so no other
context's artifact can be named.
"""

from __future__ import annotations

from typing import Final

import msgspec

from agentd.records import Row, Save
from agentkit.core.contracts.errors import Corrupt
from agentkit.core.contracts.surrogates import replace_surrogates

from .base import Answer, Desk, Invocation, Tool, ToolError
from .making import AT_LEAST_ONE, AT_LEAST_ZERO, FLAG, OBJECT, TEXT, WORD, closed, list_of, open_object, own, whole

ARTIFACTS: Final = "artifacts"
"""The kind of the row in which a context's artifacts are listed."""
MOST: Final = 256
"""Artifacts of one context: its list is one row, which is written with each change."""
LIMIT: Final = 100
_NAME = {"type": "string", "minLength": 1, "maxLength": 256}


class Listed(msgspec.Struct, frozen=True, omit_defaults=True):
    """An artifact in the list of its context. `size` in bytes."""

    id: str
    name: str
    sha256: str
    size: int
    media_type: str = "text/plain"
    ts: int = 0

    def told(self) -> dict[str, object]:
        return {"id": self.id, "name": self.name, "bytes": self.size, "media_type": self.media_type}


async def listed(desk: Desk) -> tuple[Row | None, list[Listed]]:
    """The row of the context's artifacts, and what it lists, oldest first. Raises Corrupt naming it."""
    row = await desk.records.get(ARTIFACTS, desk.context.id)
    if row is None:
        return None, []
    try:
        return row, msgspec.json.decode(row.state, type=list[Listed])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        key = f"{ARTIFACTS}/{desk.context.id}"
        raise Corrupt(f"the list {key!r} cannot be read: {error}", key=key) from error


def _saved(desk: Desk, row: Row | None, items: list[Listed]) -> Save:
    return Save(ARTIFACTS, desk.context.id, msgspec.json.encode(items), row)


def _find(items: list[Listed], id: str) -> Listed:
    for item in items:
        if item.id == id:
            return item
    raise ToolError(f"there is no artifact {id[:80]!r} in this conversation; artifact_list tells which there are")


async def _create(asked: Invocation) -> Answer:
    given, desk = asked.arguments, asked.desk
    row, items = await listed(desk)
    if len(items) >= MOST:
        raise ToolError(f"there are {len(items)} artifacts, which is the most; delete one first")
    data = replace_surrogates(given["content"]).encode()
    sha = await desk.records.artifact(data)
    media_type = replace_surrogates(given.get("media_type", "text/plain"))
    made = Listed(desk.new_id(), replace_surrogates(given["name"]), sha, len(data), media_type, desk.now)
    return Answer(made.told(), writes=(_saved(desk, row, [*items, made]),))


async def _get(asked: Invocation) -> Answer:
    _, items = await listed(asked.desk)
    found = _find(items, asked.arguments["id"])
    data = await asked.desk.records.artifact_bytes(found.sha256)
    if data is None:
        raise ToolError(f"the content of the artifact {found.name!r} is gone from the store")
    return Answer({**found.told(), "content": data.decode("utf-8", "replace")})


async def _delete(asked: Invocation) -> Answer:
    """The bytes stay: the log, or another artifact, may name them too."""
    row, items = await listed(asked.desk)
    found = _find(items, asked.arguments["id"])
    return Answer({"ok": True}, writes=(_saved(asked.desk, row, [item for item in items if item is not found]),))


async def _list(asked: Invocation) -> Answer:
    _, items = await listed(asked.desk)
    limit = whole(asked.arguments, "limit", LIMIT) or LIMIT
    newest = items[::-1]
    return Answer({"artifacts": [item.told() for item in newest[:limit]], "truncated": len(newest) > limit})


def artifact_tools() -> list[Tool]:
    """The tools of this module."""
    told = {"id": TEXT, "name": TEXT, "bytes": AT_LEAST_ZERO}
    by_id = closed({"id": WORD})
    return [
        own("artifact.create", "Keep a text under a name, outside the conversation's size.", _create,
            closed({"name": _NAME, "content": TEXT}, {"media_type": _NAME}), open_object(told)),
        own("artifact.get", "The content of an artifact of this conversation.", _get, by_id,
            open_object({**told, "content": TEXT}), read_only=True),
        own("artifact.delete", "Take an artifact of this conversation off its list.", _delete, by_id,
            open_object({"ok": FLAG})),
        own("artifact.list", "The artifacts of this conversation, newest first.", _list,
            closed({}, {"limit": AT_LEAST_ONE}), open_object({"artifacts": list_of(OBJECT), "truncated": FLAG}),
            read_only=True),
    ]  # fmt: skip
