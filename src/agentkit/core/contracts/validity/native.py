"""Reading native blocks: what kind they are, the marks inside them, and the tool results that some of them are.

Touches only its arguments.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from agentkit.core.contracts.frozen import thaw
from agentkit.core.contracts.jsontext import json_text
from agentkit.core.contracts.surrogates import has_surrogates, replace_surrogates
from agentkit.core.contracts.types import Block, NativeBlock, TextBlock, as_block

MARK_KEYS = frozenset({"cache_control", "prompt_cache_breakpoint"})
"""Keys that ask a provider's prompt cache to keep what they stand on (Anthropic, OpenAI). Only the breakpoint plan sets
them: left in old content, they add up to more than a request may have."""

_NESTED = ("content", "source", "output")
"""Where blocks hold further blocks. Elsewhere, in a tool's input say, a key of that name is somebody's data."""

_SERVER_CALLS = frozenset({"server_tool_use", "mcp_tool_use"})
_THINKING = frozenset({"thinking", "redacted_thinking"})


def type_of(block: NativeBlock) -> str:
    """The block's type as its provider names it, "" if it says none."""
    kind = block.payload.get("type") if isinstance(block.payload, Mapping) else None
    return kind if isinstance(kind, str) else ""


def is_tool_result(block: NativeBlock) -> bool:
    """Whether this is the result of a call of ours, in Anthropic's shape."""
    return type_of(block) == "tool_result"


def is_server_call(block: NativeBlock) -> bool:
    return type_of(block) in _SERVER_CALLS


def is_server_result(block: NativeBlock) -> bool:
    kind = type_of(block)
    return kind.endswith("_tool_result")


def is_reasoning(block: NativeBlock) -> bool:
    return type_of(block) == "reasoning"


def is_thinking(block: NativeBlock) -> bool:
    return type_of(block) in _THINKING


def is_signed(block: NativeBlock) -> bool:
    """Whether a native thinking block carries what its provider checks it by."""
    proof = block.payload.get("signature" if type_of(block) == "thinking" else "data")
    return isinstance(proof, str) and bool(proof.strip())


def server_id(block: NativeBlock) -> str | None:
    """The id of a server-side call, or the one that a server-side result refers to."""
    found = block.payload.get("id" if is_server_call(block) else "tool_use_id")
    return found if isinstance(found, str) else None


def with_server_id(block: NativeBlock, new: str) -> NativeBlock:
    """The same call or result under another id."""
    key = "id" if is_server_call(block) else "tool_use_id"
    return NativeBlock(block.provider, {**block.payload, key: new})


def read_tool_result(block: NativeBlock) -> tuple[str, list[Block], bool]:
    """Call id, content and error flag of a `tool_result` block; whatever is not of the documented form becomes text."""
    payload = block.payload
    call_id, content = payload.get("tool_use_id"), payload.get("content")
    blocks: list[Block] = []
    for part in content if isinstance(content, (list, tuple)) else () if content is None else (content,):
        if isinstance(part, str):
            blocks.append(TextBlock(part))
        elif isinstance(part, Mapping) and part.get("type") not in ("tool_result", "tool_use"):
            blocks.append(as_block(part))
        elif part is not None:
            blocks.append(TextBlock(json_text(part)))
    return call_id if isinstance(call_id, str) else "", blocks, payload.get("is_error") is True


def without_marks(value: Any) -> Any:
    """A payload without cache marks on it or on the blocks inside it; the same object where there are none."""
    if not any(True for _ in _marked(value)):
        return value
    copy = thaw(value)
    for block in list(_marked(copy)):
        for key in MARK_KEYS & block.keys():
            del block[key]
    return copy


def _marked(value: Any) -> Iterator[dict[Any, Any]]:
    """The blocks in a payload that carry a cache mark."""
    # A work list, since payloads may nest deeper than the stack allows.
    work = [value]
    while work:
        item = work.pop()
        if isinstance(item, (list, tuple)):
            work.extend(item)
        elif isinstance(item, dict):
            if not MARK_KEYS.isdisjoint(item):
                yield item
            work.extend([item[key] for key in _NESTED if key in item])


def spells_surrogates(value: Any) -> bool:
    """Whether the JSON text of `value` is no valid UTF-8."""
    return has_surrogates(json_text(value))


def scrubbed(value: Any) -> Any:
    """`value` without lone surrogates; the same object where there are none."""
    if not spells_surrogates(value):
        return value
    clean = _scrubbed(value)
    # What still spells one is an object of the caller's own type; nothing else but its text can be mended.
    return replace_surrogates(json_text(clean)) if spells_surrogates(clean) else clean


def _scrubbed(value: Any) -> Any:
    root: list[Any] = [value]
    work: list[tuple[Any, Any]] = [(root, 0)]
    while work:
        holder, place = work.pop()
        item = holder[place]
        if isinstance(item, str):
            holder[place] = replace_surrogates(item)
        elif isinstance(item, dict):
            named = {replace_surrogates(k) if isinstance(k, str) else k: v for k, v in item.items()}
            holder[place] = named
            work.extend([(named, key) for key in named])
        elif isinstance(item, (list, tuple)):
            items = list(item)
            holder[place] = items
            work.extend([(items, at) for at in range(len(items))])
    return root[0]
