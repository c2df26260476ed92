"""The report as JSON for other programs; docs/cli.md describes it. Touches only its arguments.

A key is never renamed, dropped or given another meaning without a new FORMAT; new keys may appear at any time. What is
not known is null, never 0.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from .cache_shape import cache_shape, cost_shape, usage_shape
from .values import Inspection, Response, Sizes

FORMAT = 1


def to_shape(inspections: Sequence[Inspection]) -> dict[str, Any]:
    """Plain data: `{format, conversations}`."""
    return {"format": FORMAT, "conversations": [_conversation(one) for one in inspections]}


def json_document(value: Any, *, a_line: bool = False) -> str:
    """`value` as JSON text that ends with a line end: indented, or all in one line. Lone surrogates, which UTF-8 has no
    form for, are written as JSON escapes."""
    text = json.dumps(value, ensure_ascii=False, indent=None if a_line else 2)
    return re.sub("[\ud800-\udfff]", lambda found: f"\\u{ord(found[0]):04x}", text) + "\n"


def _conversation(one: Inspection) -> dict[str, Any]:
    accuracy = one.accuracy
    return {
        "file": one.source,
        "number": one.number,
        "of": one.of,
        "title": one.title,
        "source_format": one.format,
        "models": list(one.models),
        "began": one.began,
        "ended": one.ended,
        "counter": one.counter,
        "messages": one.messages,
        "user_turns": one.user_turns,
        "calls": one.calls,
        "errors": one.errors,
        "tokens": {
            "total": one.tokens,
            "tool_schemas": one.tool_schema_tokens,
            "by_role": [_plain(share) for share in one.roles],
            "by_kind": [_plain(share) for share in one.kinds],
            "by_tool": [_plain(tool) for tool in one.tools],
        },
        "next_request": _sizes(one.next_request),
        "window": one.window,
        "usage": usage_shape(one.usage),
        "cost": cost_shape(one.cost),
        "recorded_usd": None if one.recorded_usd is None else float(one.recorded_usd),
        "accuracy": {**_plain(accuracy), "error": None if accuracy.error is None else round(accuracy.error, 4)},
        "responses": [_response(response) for response in one.responses],
        "largest": [_plain(part) for part in one.largest],
        "compactions": [_plain(folding) for folding in one.foldings],
        "cache": None if one.cache is None else cache_shape(one.cache),
        "findings": [{**_plain(finding), "places": list(finding.places)} for finding in one.findings],
    }


def _response(response: Response) -> dict[str, Any]:
    return {
        "number": response.number,
        "place": response.place,
        "model": response.model,
        "time": response.time,
        "compacted": response.compacted,
        "estimated": None if response.estimate is None else _sizes(response.estimate),
        "reported": response.reported,
        "usage": usage_shape(response.usage),
        "cost": cost_shape(response.cost),
    }


def _sizes(sizes: Sizes) -> dict[str, int]:
    return {**_plain(sizes), "total": sizes.total}


def _plain(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(value)}
