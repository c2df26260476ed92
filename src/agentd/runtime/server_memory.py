"""The memory's work done by MCP servers (`tools.overrides.memory`): each operation is one or more calls, mapped by
expressions. Calls the servers through what it is handed.

The contract of memory stays: keys, limits and lifetimes are checked here, and when a value was set, by whom and for how
long is kept beside it, in the records of the instance. A value that somebody else has put there is found all the same.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias

from jinja2 import ChainableUndefined, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from agentd.config.thinking import Memory, MemoryOverrides, Override
from agentd.context.memory import MemoryRecord, MemoryRefused, Page, checked_key, page_of, record_of
from agentd.records import Records

from .memory import Change, MemoryStore, Value

Call: TypeAlias = Callable[[str, str, dict[str, Any]], Awaitable[Any]]
"""Calls a tool: server, tool, arguments. Gives its result as data; raises MemoryRefused saying why there is none."""


class WrongMapping(ValueError):
    """An expression of `tools.overrides.memory` is none."""


def _of_json(text: Any) -> Any:
    try:
        return json.loads(text)
    except (TypeError, ValueError):
        return text


_ENVIRONMENT = ImmutableSandboxedEnvironment(undefined=ChainableUndefined)
_ENVIRONMENT.filters = {
    name: _ENVIRONMENT.filters[name]
    for name in ("map", "select", "reject", "selectattr", "rejectattr", "list", "first", "last", "length", "default",
                 "join", "lower", "upper", "trim", "unique", "sort", "string", "int", "attr")
} | {"to_json": lambda value: json.dumps(value, ensure_ascii=False, sort_keys=True), "of_json": _of_json}  # fmt: skip


class Operation:
    """One operation: its calls in order, each seeing the results of those before it."""

    def __init__(self, op: str, steps: Sequence[Override]) -> None:
        self._steps = [
            (one.server, one.tool, _compiled(one.args if one.args is not None else {}, f"{op}[{at}].args"),
             None if one.result is None else _compiled(one.result, f"{op}[{at}].result"))
            for at, one in enumerate(steps)
        ]  # fmt: skip

    async def run(self, call: Call, data: Mapping[str, Any]) -> Any:
        """What the last call came to. Raises MemoryRefused."""
        results: list[Any] = []
        for server, tool, args, result in self._steps:
            given = args({**data, "results": results})
            if not isinstance(given, dict):
                raise MemoryRefused(f"the mapping for {server}.{tool} makes no arguments, but a {type(given).__name__}")
            found = await call(server, tool, given)
            results.append(found if result is None else result({**data, "results": results, "result": found}))
        return results[-1] if results else None


def _compiled(given: Any, place: str) -> Callable[[Mapping[str, Any]], Any]:
    """Data whose texts are expressions, ready to be made. Raises WrongMapping."""
    if isinstance(given, str):
        try:
            made = _ENVIRONMENT.compile_expression(given, undefined_to_none=True)
        except TemplateError as error:
            raise WrongMapping(f"tools.overrides.memory.{place}: {given!r} is no expression: {error}") from error

        def evaluated(data: Mapping[str, Any]) -> Any:
            try:
                return made(**data)
            except (TemplateError, TypeError, ValueError, AttributeError, LookupError) as error:
                raise MemoryRefused(f"the mapping tools.overrides.memory.{place} does not fit: {error}") from error

        return evaluated
    if isinstance(given, Mapping):
        parts = {key: _compiled(value, f"{place}.{key}") for key, value in given.items()}
        return lambda data: {key: part(data) for key, part in parts.items()}
    if isinstance(given, (list, tuple)):
        items = [_compiled(value, f"{place}[{at}]") for at, value in enumerate(given)]
        return lambda data: [item(data) for item in items]
    return lambda data: given


def knowledge_graph(server: str) -> MemoryOverrides:
    """The official memory server, which keeps entities with observations: a key is an entity, its value the last of its
    observations, as JSON. A value is there before the one before it is taken away."""

    def step(tool: str, args: dict[str, Any], result: str | None = None) -> dict[str, Any]:
        return {"server": server, "tool": tool, "args": args, "result": result}

    entity = "result.entities | selectattr('name', 'equalto', key) | first"
    read = step("open_nodes", {"names": ["key"]}, f"({entity}).observations")
    return MemoryOverrides.model_validate(
        {
            "get": step(
                "open_nodes", {"names": ["key"]},
                f"{{'value': (({entity}).observations | last | of_json)}} if ({entity}).observations else none",
            ),
            "set": (
                read,
                step("create_entities", {"entities": [{"name": "key", "entityType": "'memory'", "observations": []}]}),
                step("add_observations", {"observations": [{"entityName": "key", "contents": ["value | to_json"]}]}),
                step(
                    "delete_observations",
                    {"deletions": [
                        {"entityName": "key",
                         "observations": "(results[0] or []) | reject('equalto', value | to_json) | list"},
                    ]},
                ),
            ),
            "delete": step("delete_entities", {"entityNames": ["key"]}),
            "list": step("read_graph", {}, "result.entities | map(attribute='name') | list"),
        }
    )  # fmt: skip


class OverriddenMemory(MemoryStore):
    """A memory whose values are with MCP servers; operations that are not overridden stay here."""

    def __init__(
        self, records: Records, settings: Memory, clock: Callable[[], int], overrides: MemoryOverrides, call: Call
    ) -> None:
        super().__init__(records, settings, clock)
        self._call = call
        if overrides.preset is not None:
            overrides = knowledge_graph(overrides.server or "")
        self._by = next((steps[0].server for steps in overrides.calls.values()), "")
        self._mapped = {op: Operation(op, steps) for op, steps in overrides.calls.items()}

    async def get(self, key: str) -> tuple[Value | None, bool]:
        own, is_expired = await super().get(key)
        if "get" not in self._mapped or is_expired:
            return (None, True) if is_expired else (own, False)
        found = await self._run("get", key=key)
        if not isinstance(found, dict) or "value" not in found:
            if found is not None:
                raise MemoryRefused("the mapping of memory.get gives an object with `value`, or nothing")
            return None, False
        if own is None:  # put there by somebody else
            return Value(key, MemoryRecord(found["value"], 0, None, self._by), 1), False
        record = own.record
        return Value(key, MemoryRecord(found["value"], record.ts, record.ttl_ms, record.by), own.seq), False

    async def list(self, *, prefix: str = "", after: str | None = None, limit: int | None = None) -> Page:
        if "list" not in self._mapped:
            return await super().list(prefix=prefix, after=after, limit=limit)
        found = await self._run("list", prefix=prefix, after=after)
        if not isinstance(found, list) or not all(isinstance(key, str) for key in found):
            raise MemoryRefused("the mapping of memory.list gives a list of keys")
        over = set((await self._known()).over(self._clock()))
        keys = sorted({key for key in found if key not in over})
        return page_of(
            keys, prefix=prefix, after=after, limit=self._settings.list_default_limit if limit is None else limit
        )

    async def set(
        self, key: str, value: Any, *, ttl: str | None = None, if_seq: int | None = None, by: str = ""
    ) -> Change:
        if "set" not in self._mapped:
            return await super().set(key, value, ttl=ttl, if_seq=if_seq, by=by)
        checked_key(key)
        # Everything that may be refused is, before the server hears of it.
        record_of(value, ttl=ttl, by=by, now=self._clock(), limits=self._settings)
        if if_seq is not None:
            current, _ = await self.get(key)
            if (seq := 0 if current is None else current.seq) != if_seq:
                raise MemoryRefused(f"{key!r} is at seq {seq}, not {if_seq}: read it again, and decide anew")
        change = await super().set(key, None, ttl=ttl, by=by)
        await self._run("set", key=key, value=value)
        return change

    async def delete(self, key: str) -> Change:
        if "delete" not in self._mapped:
            return await super().delete(key)
        found, _ = await self.get(checked_key(key))
        if found is not None:
            await self._run("delete", key=key)
        change = await super().delete(key)
        return Change(change.key, change.writes, found=found is not None) if not change.writes else change

    async def _swept(self, keys: Collection[str]) -> int:
        """Expired values leave the server first: what is left of one is then still known here, and tried again."""
        gone = []
        for key in keys:
            _, is_expired = await super().get(key)
            if is_expired and "delete" in self._mapped:
                await self._run("delete", key=key)
            gone.append(key)
        return await super()._swept(gone)

    async def _run(self, op: str, **data: Any) -> Any:
        return await self._mapped[op].run(self._call, data)
