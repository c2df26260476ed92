"""Commands that are about the instance, its memory or its tasks rather than about one context. Each is given the daemon
and who asks; what is refused is refused as by the daemon's own methods.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from typing import Any, Protocol, TypeAlias

import msgspec

from agentd.config.settings import document
from agentd.context.registry import status_of
from agentd.context.resident import STATE
from agentd.context.rows import decode_state
from agentkit.core.contracts.errors import Corrupt, FormatError

from .commands import NotPermitted
from .memory import MemoryStore
from .principals import Principal
from .services import Services

LOOKED_AT = 500
"""Rows that one `context.list` looks at; where there are more, `next` says where to go on."""


class Instance(Protocol):
    """The daemon, as far as its commands have to know it."""

    services: Services

    async def cancel(self, task: str, *, principal: Principal, reason: str = "cancelled") -> bool: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def leave(self) -> None: ...


Run: TypeAlias = "Callable[[Instance, Principal, Mapping[str, Any]], Awaitable[Any]]"


async def _pause(instance: Instance, sender: Principal, given: Mapping[str, Any]) -> Any:
    _require_operator(sender, "pause")
    instance.pause()
    return {"paused": True}


async def _resume(instance: Instance, sender: Principal, given: Mapping[str, Any]) -> Any:
    _require_operator(sender, "resume")
    instance.resume()
    return {"paused": False}


async def _drain(instance: Instance, sender: Principal, given: Mapping[str, Any]) -> Any:
    _require_operator(sender, "drain")
    instance.leave()
    return {"draining": True}


async def _config(instance: Instance, sender: Principal, given: Mapping[str, Any]) -> Any:
    """The settings with every default; of secrets only where they come from."""
    _require_operator(sender, "config")
    return document(instance.services.settings)


async def _cancel(instance: Instance, sender: Principal, given: Mapping[str, Any]) -> Any:
    return {"cancelled": await instance.cancel(_text(given, "task"), principal=sender)}


async def _list(instance: Instance, sender: Principal, given: Mapping[str, Any]) -> Any:
    """The sender's contexts by id, all of them for operators; `after` goes on behind a `next`."""
    services, after = instance.services, given.get("after")
    if after is not None and not isinstance(after, str):
        raise ValueError("context.list takes after, the next of the list before")
    ids = await services.records.ids(STATE, after=after, limit=LOOKED_AT)
    window = services.requests.window(services.settings)
    told = []
    for id in ids:
        held = services.residents.contexts.get(id)
        if held is not None:
            state = held.state
        else:
            row = await services.records.get(STATE, id)
            if row is None:
                continue
            try:
                state = decode_state(row.state, id=id)
            except (Corrupt, FormatError, msgspec.DecodeError):  # who opens it is told
                continue
        if _is_operator(sender) or state.principal == sender.id:
            told.append(asdict(status_of(state, window.tokens, window.source)))
    return {"contexts": told, "next": ids[-1] if len(ids) == LOOKED_AT else None}


async def _memory_get(instance: Instance, sender: Principal, given: Mapping[str, Any]) -> Any:
    value, expired = await _memory(instance, sender).get(_text(given, "key"))
    if value is None:
        return {"found": False, "expired": expired}
    return {"found": True, "value": value.record.value, "meta": value.meta}


async def _memory_set(instance: Instance, sender: Principal, given: Mapping[str, Any]) -> Any:
    if "value" not in given:
        raise ValueError("memory.set takes key and value, and ttl and if_seq")
    memory = _memory(instance, sender)
    async with memory.writing():
        change = await memory.set(
            _text(given, "key"), given["value"], ttl=given.get("ttl"), if_seq=given.get("if_seq"), by=sender.id
        )
        await memory.commit(change)
    return {"ok": True, "key": change.key, "meta": change.meta}


async def _memory_delete(instance: Instance, sender: Principal, given: Mapping[str, Any]) -> Any:
    memory = _memory(instance, sender)
    async with memory.writing():
        change = await memory.commit(await memory.delete(_text(given, "key")))
    return {"ok": True, "key": change.key, "found": change.found}


async def _memory_list(instance: Instance, sender: Principal, given: Mapping[str, Any]) -> Any:
    page = await _memory(instance, sender).list(
        prefix=given.get("prefix", ""), after=given.get("after"), limit=given.get("limit")
    )
    return {"keys": list(page.keys), "truncated": page.is_truncated, "next": page.next}


INSTANCE_COMMANDS: dict[str, Run] = {
    "cancel": _cancel,
    "config": _config,
    "context.list": _list,
    "drain": _drain,
    "memory.delete": _memory_delete,
    "memory.get": _memory_get,
    "memory.list": _memory_list,
    "memory.set": _memory_set,
    "pause": _pause,
    "resume": _resume,
}
FOR_OPERATORS = frozenset({"config", "drain", "pause", "resume"})


def _memory(instance: Instance, sender: Principal) -> MemoryStore:
    """What the sender's conversations have for a memory. While all share one, only operators reach it this way."""
    memories = instance.services.memories
    if _is_operator(sender):
        return memories.instance
    if instance.services.settings.a2a.scope == "instance":
        raise NotPermitted("the memory is the agent's own: its commands are for operators")
    return memories.of_owner(sender.id)


def _is_operator(sender: Principal) -> bool:
    return sender.role in ("root", "operator")


def _require_operator(sender: Principal, op: str) -> None:
    if not _is_operator(sender):
        raise NotPermitted(f"{op} is for operators")


def _text(given: Mapping[str, Any], name: str) -> str:
    found = given.get(name)
    if not isinstance(found, str) or not found:
        raise ValueError(f"it takes {name}, a text")
    return found
