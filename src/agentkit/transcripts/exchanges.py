"""Recorded requests and responses, gathered into the conversations they belong to. Touches only its arguments.

The last request of a conversation is its history; earlier ones are prefixes of it and tell which response came when.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agentkit.core.contracts.jsontext import wire_json


@dataclass
class Exchanged:
    """One conversation: its last request, and each response with the number of entries that its request had."""

    request: Mapping[str, Any]
    entries: list[Any]
    responses: list[tuple[int, int, Any]] = field(default_factory=list)
    """(record number, entries of the request, response)"""
    beside: list[dict[str, Any]] = field(default_factory=list)
    """What each record says beside the messages: URL, status, the response's own fields."""

    def taken(self) -> set[int]:
        """The records whose response is the turn that followed: of several responses to one request the last one."""
        return set({length: number for number, length, _ in self.responses}.values())


def is_exchange(value: Any) -> bool:
    """Whether a record holds a request and its response."""
    return isinstance(value, Mapping) and isinstance(value.get("request"), Mapping) and "response" in value


def _about(response: Any) -> Any:
    """A response less the content that becomes a message; a recorded stream as it is."""
    if not isinstance(response, Mapping):
        return response
    about = {k: v for k, v in response.items() if k not in ("content", "output")}
    choices = about.get("choices")
    if isinstance(choices, list):
        about["choices"] = [{k: v for k, v in c.items() if k != "message"} for c in choices if isinstance(c, Mapping)]
    return about


def gather(records: Iterable[tuple[int, Mapping[str, Any]]], key: str) -> list[Exchanged]:
    """The conversations in a sequence of exchanges; `key` is where a request has its entries."""
    found: list[Exchanged] = []
    begun: dict[str, list[Exchanged]] = {}
    for number, record in records:
        request = record["request"]
        entries = request.get(key)
        entries = list(entries) if isinstance(entries, list) else [] if entries is None else [entries]
        same = begun.setdefault(_beginning(entries), [])
        # The latest conversation is looked at first: a log seldom goes back to an older one.
        one = next((e for e in reversed(same) if e.entries == entries[: len(e.entries)]), None)
        if one is None:
            one = Exchanged(request, entries)
            found.append(one)
            same.append(one)
        one.request, one.entries = request, entries
        one.responses.append((number, len(entries), record["response"]))
        beside = {k: v for k, v in record.items() if k not in ("request", "response")}
        one.beside.append({**beside, "response": _about(record["response"])})
    return found


def _beginning(entries: list[Any]) -> str:
    """What sets conversations of one agent apart: the first thing that is no system text."""
    roles = ("system", "developer")
    return wire_json(next((e for e in entries if not (isinstance(e, Mapping) and e.get("role") in roles)), None))
