"""Calls that a provider runs itself, and their results, inside one assistant turn. Touches only its arguments."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from agentkit.core.contracts.types import NativeBlock

from . import native
from .mending import Item


def pair_server_calls(items: Sequence[Item], paused: bool) -> tuple[dict[int, int], dict[int, tuple[str, str]]]:
    """The place of each call's result, and what has no other half and is left out, with code and detail.

    A `paused` turn ends with calls that are still running: these stay, since the provider goes on from them.
    """
    waiting: dict[str, deque[int]] = {}
    calls: dict[int, None] = {}
    pairs: dict[int, int] = {}
    dropped: dict[int, tuple[str, str]] = {}
    for at, item in enumerate(items):
        if not isinstance(item, NativeBlock):
            continue
        if native.is_server_call(item):
            calls[at] = None
            if (found := native.server_id(item)) is not None:
                waiting.setdefault(found, deque()).append(at)
        elif native.is_server_result(item):
            found = native.server_id(item)
            if found is not None and waiting.get(found):
                pairs[waiting[found].popleft()] = at
            else:
                dropped[at] = "server-call", "result without its call: left out"
    running = len(items)
    while paused and running and (running - 1 in dropped or (running - 1 in calls and running - 1 not in pairs)):
        running -= 1
    for at in calls:
        if at not in pairs and at < running:
            dropped[at] = "server-call", "call without a result: left out"
    return pairs, dropped
