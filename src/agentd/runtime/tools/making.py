"""Making the daemon's own tools: closed objects in, open ones out. Touches only its arguments."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, TypeAlias

from agentd.context.record import ToolMsg
from agentd.context.rows import accepted

from .base import Answer, Desk, Invocation, Tool

Schema: TypeAlias = dict[str, Any]
Run: TypeAlias = Callable[[Invocation], Awaitable[Answer]]

TEXT: Final[Schema] = {"type": "string"}
WORD: Final[Schema] = {"type": "string", "minLength": 1}
WHOLE: Final[Schema] = {"type": "integer"}
AT_LEAST_ONE: Final[Schema] = {"type": "integer", "minimum": 1}
AT_LEAST_ZERO: Final[Schema] = {"type": "integer", "minimum": 0}
FLAG: Final[Schema] = {"type": "boolean"}
OBJECT: Final[Schema] = {"type": "object"}
ANY_JSON: Final[Schema] = {}


def list_of(items: Schema, **more: Any) -> Schema:
    return {"type": "array", "items": items, **more}


def with_words(schema: Schema, description: str) -> Schema:
    """A schema that tells the model what the value is for."""
    return {**schema, "description": description}


def closed(required: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None) -> Schema:
    """An object with these keys and no others."""
    made: Schema = {"type": "object", "properties": {**required, **(optional or {})}, "additionalProperties": False}
    return {**made, "required": list(required)} if required else made


def open_object(required: Mapping[str, Schema] | None = None, optional: Mapping[str, Schema] | None = None) -> Schema:
    """An object with these keys, and any others."""
    made: Schema = {"type": "object", "properties": {**(required or {}), **(optional or {})}}
    return {**made, "required": list(required)} if required else made


def own(
    name: str,
    description: str,
    run: Run,
    parameters: Schema,
    output: Schema | None = None,
    *,
    read_only: bool = False,
    holds: Callable[[Desk], AbstractAsyncContextManager[Any]] | None = None,
    waits: bool = False,
) -> Tool:
    """One of the daemon's own tools."""
    return Tool(
        name, description, parameters, run, read_only=read_only, internal=True, output=output, holds=holds, waits=waits
    )


def whole(arguments: Mapping[str, Any], name: str, default: int | None = None) -> int | None:
    """A whole number; JSON Schema takes 10.0 for one too."""
    value = arguments.get(name, default)
    return None if value is None else int(value)


def storable(value: Any) -> Any:
    """JSON without what no store takes, such as half a surrogate pair."""
    msg: Any = accepted(ToolMsg(content=value))[0]
    return msg.content
