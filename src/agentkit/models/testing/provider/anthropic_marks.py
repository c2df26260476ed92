"""Where cache marks may stand in an Anthropic request. Touches only its arguments.

Source: the documentation of prompt caching, November 2026: four marks at most, longer lifetimes ahead of shorter ones,
none on thinking; in the order tools, system, messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

MOST = 4


def check_marks(body: Mapping[str, Any], no: Callable[[str], NoReturn]) -> None:
    """Calls `no` with the words of the refusal, if marks are wrong."""
    marks = list(_marks(body))
    for place, mark in marks:
        if mark.get("type") != "ephemeral":
            no(f"{place}.cache_control.type: Input should be 'ephemeral'")
        if mark.get("ttl", "5m") not in ("5m", "1h"):
            no(f"{place}.cache_control.ttl: Input should be '5m' or '1h'")
        for name in mark:
            if name not in ("type", "ttl"):
                no(f"{place}.cache_control.{name}: Extra inputs are not permitted")
    if len(marks) > MOST:
        no(f"A maximum of {MOST} blocks with cache_control may be provided. Found {len(marks)}.")
    short = False
    for place, mark in marks:
        if mark.get("ttl") == "1h" and short:
            no(
                f"{place}.cache_control.ttl: a ttl='1h' cache_control block must not come after a ttl='5m' "
                "cache_control block. Note that blocks are processed in the following order: `tools`, `system`, "
                "`messages`."
            )
        short = short or mark.get("ttl", "5m") == "5m"


def _marks(body: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for at, tool in enumerate(body.get("tools") or []):
        yield from _mark(tool, f"tools.{at}")
    system = body.get("system")
    for at, block in enumerate(system if isinstance(system, list) else []):
        yield from _mark(block, f"system.{at}")
    for at, message in enumerate(body["messages"]):
        content = message["content"]
        for number, block in enumerate(content if isinstance(content, list) else []):
            inner = block.get("content")
            for inside, part in enumerate(inner if isinstance(inner, list) else []):
                if isinstance(part, dict):
                    yield from _mark(part, f"messages.{at}.content.{number}.content.{inside}")
            yield from _mark(block, f"messages.{at}.content.{number}")
    yield from _mark(body, "")


def _mark(holder: Mapping[str, Any], place: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    mark = holder.get("cache_control")
    if mark is not None:
        yield place.lstrip("."), mark
