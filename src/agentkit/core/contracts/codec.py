"""The one codec of every store: any value to JSON text and back, without loss. Touches only its arguments.

What JSON can carry stays as it is; the rest is tagged as `plain` describes. This file says what messages, blocks and
the project's other values look like; another room adds its own with `register`. The parts of a message come back
frozen.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from typing import Any

from .blocks import (
    EMPTY,
    Block,
    CallMark,
    DocumentBlock,
    ImageBlock,
    NativeBlock,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
)
from .errors import FormatError
from .frozen import FrozenDict, deep_freeze
from .messages import Message, ToolCall
from .offers import Breakpoint, ToolSchema
from .plain import (
    ATOMS,
    DICTS,
    FROM_MAPPING,
    LISTS,
    MAX_LEVELS,
    READERS,
    WRITERS,
    Refused,
    described,
    revived,
    with_full_stack,
    write_plain,
)
from .plain import decode as decode
from .plain import encode as encode
from .plain import from_plain as from_plain
from .plain import to_plain as to_plain
from .ports import Hit, Lease, MemoryItem
from .requests import ChatRequest, Chunk, Delta, LLMResult, StreamEvent, ToolRequest
from .scope import Scope
from .usage import Usage


def message_to_plain(message: Message) -> dict[str, Any]:
    """A message as plain JSON data with readable keys; what is at its default is left out."""
    return described(message)


def message_from_plain(data: Mapping[str, Any]) -> Message:
    """The message that `message_to_plain` described; keys that it does not know land in `meta`.

    Also reads messages in the shape of a provider's, as far as `Message` takes their content and calls. Raises
    TypeError or ValueError for a field of a wrong type, FormatError for a message without a role.
    """
    if not isinstance(data, Mapping):
        raise TypeError(f"a message must be a mapping, not {type(data).__name__}")
    return _message_of(
        {key: with_full_stack(revived, value) for key, value in data.items() if key != "$" or value != "message"}
    )


def register(cls: type, tag: str, to_plain: Callable[[Any], Any], from_plain: Callable[[Any], Any]) -> None:
    """Teaches the codec a class of its own: `to_plain` gives data it already carries, `from_plain` takes that back.

    Raises ValueError when the tag or the class is taken.
    """
    if tag in ("", "$"):
        raise ValueError(f"a codec tag must be a name, not {tag!r}")
    if tag in READERS:
        raise ValueError(f"the codec tag {tag!r} is taken; choose another for {cls.__name__}")
    if cls in WRITERS or cls in ATOMS or cls in DICTS or cls in LISTS:
        raise ValueError(f"{cls.__name__} is known to the codec already")

    def write(value: Any, strict: bool, room: int) -> dict[str, Any]:
        return {"$": tag, "v": write_plain(to_plain(value), strict, room - 1)}

    WRITERS[cls] = write
    READERS[tag] = lambda found: from_plain(found["v"])


def _part(name: str, value: Any, strict: bool, room: int) -> Any:
    try:
        return write_plain(value, strict, room - 2)
    except Refused as refused:
        refused.path.append(f".{name}")
        raise


def _parts(name: str, values: Sequence[Any], strict: bool, room: int) -> list[Any]:
    written: list[Any] = []
    write = _write_call if name == "tool_calls" else _write_block
    try:
        for value in values:
            written.append(write(value, strict, room - 4))  # noqa: PERF401 - its length tells where it failed
    except Refused as refused:
        refused.path.append(f".{name}[{len(written)}]")
        raise
    return written


def _write_message(m: Message, strict: bool, room: int) -> dict[str, Any]:
    # A role may be a str subclass; what comes back equals it.
    out: dict[str, Any] = {"$": "message", "role": _part("role", str.__str__(m.role), strict, room)}
    if m.blocks:
        out["blocks"] = _parts("blocks", m.blocks, strict, room)
    elif m.content:
        out["content"] = _part("content", m.content, strict, room)
    if m.name is not None:
        out["name"] = _part("name", str.__str__(m.name), strict, room)
    if m.tool_call_id is not None:
        out["tool_call_id"] = _part("tool_call_id", str.__str__(m.tool_call_id), strict, room)
    if m.tool_calls:
        out["tool_calls"] = _parts("tool_calls", m.tool_calls, strict, room)
    if m.is_error:
        out["is_error"] = True
    if m.meta:
        out["meta"] = _part("meta", m.meta, strict, room)
    return out


def _write_call(call: ToolCall, strict: bool, room: int) -> dict[str, Any]:
    """The provider's own text stands for the arguments that were read from it."""
    out: dict[str, Any] = {"id": _part("id", call.id, strict, room), "name": _part("name", call.name, strict, room)}
    if call.raw is not None:
        out["arguments"] = _part("raw", call.raw, strict, room)
    elif call.arguments:
        out["arguments"] = _part("arguments", call.arguments, strict, room)
    if call.meta:
        out["meta"] = _part("meta", call.meta, strict, room)
    return out


def _write_block(block: Block, strict: bool, room: int) -> dict[str, Any]:
    kind, own = _BLOCK_KINDS[type(block)]
    out: dict[str, Any] = {"type": kind}
    for field in own:
        value = getattr(block, field.name)
        if field.name == "source" and type(value) is bytes:
            out["data"] = base64.b64encode(value).decode("ascii")
        elif not _is_default(field, value):
            out[field.name] = _part(field.name, value, strict, room)
    return out


def _is_default(field: Field[Any], value: Any) -> bool:
    if field.default_factory is not MISSING:
        default = field.default_factory()
    else:
        default = field.default
    if value is default:
        return True
    # 0 and 0.0, or 0.0 and -0.0, are equal and yet not the same.
    return type(value) is type(default) and bool(value == default) and repr(value) == repr(default)


def _read_message(found: dict[str, Any]) -> Message:
    # Most of a stored context was written by this module: what is as it would write it is checked and built at once.
    get = found.get
    role, content, name, call_id = get("role"), get("content", ""), get("name"), get("tool_call_id")
    is_error, calls, meta = get("is_error", False), get("tool_calls"), get("meta")
    blocks = _settled_blocks(found["blocks"]) if "blocks" in found else ()
    if (
        blocks is not None
        and type(role) is str
        and type(content) is str
        and (name is None or type(name) is str)
        and (call_id is None or type(call_id) is str)
        and type(is_error) is bool
        and found.keys() <= _MESSAGE_KEYS
        and not (blocks and content)
    ):
        return Message.trusted(
            role,
            "".join([block.text for block in blocks if type(block) is TextBlock]) if blocks else content,
            name,
            call_id,
            () if calls is None else tuple([_read_call(call) for call in calls]),
            blocks,
            is_error,
            EMPTY if meta is None else _frozen(meta),
        )
    return _message_of({key: value for key, value in found.items() if key != "$"})


def _settled_blocks(found: Any) -> tuple[Block, ...] | None:
    """The blocks of a stored message; None where the message has to find their one spelling, or check their marks."""
    if type(found) is not list or not found:
        return None
    blocks = []
    for entry in found:
        block = _read_block(entry) if type(entry) is dict else None
        if block is None or type(block) is CallMark:
            return None
        blocks.append(block)
    if len(blocks) == 1 and type(blocks[0]) is TextBlock and not blocks[0].extra:
        return None
    return tuple(blocks)


def _message_of(fields: dict[str, Any]) -> Message:
    if "role" not in fields:
        raise FormatError(f"a message needs a role; found the keys {sorted(map(str, fields))[:12]}")
    meta = fields.pop("meta", EMPTY)
    unknown = {key: fields.pop(key) for key in list(fields) if key not in _MESSAGE_KEYS or key == "$"}
    if unknown and isinstance(meta, Mapping):
        meta = dict(meta)
        for key, value in unknown.items():
            while key in meta:
                key = f"{key}_"
            meta[key] = value
    calls, blocks = fields.pop("tool_calls", ()), fields.pop("blocks", ())
    if isinstance(calls, (list, tuple)):
        calls = [_read_call(call) if _is_own_call(call) else call for call in calls]
    if isinstance(blocks, (list, tuple)):
        blocks = [_read_block(block) or block if isinstance(block, dict) else block for block in blocks]
    return Message(**fields, tool_calls=calls, blocks=blocks, meta=meta)


def _is_own_call(call: Any) -> bool:
    return (
        isinstance(call, dict)
        and call.keys() <= _CALL_KEYS
        and type(call.get("id")) is str
        and type(call.get("name")) is str
        and isinstance(call.get("arguments", ""), (str, dict))
        and isinstance(call.get("meta", EMPTY), dict)
    )


def _read_call(found: dict[str, Any]) -> ToolCall:
    name, call_id, arguments, meta = found["name"], found["id"], found.get("arguments"), found.get("meta")
    frozen = EMPTY if meta is None else _frozen(meta)
    if type(arguments) is str or type(name) is not str or type(call_id) is not str:
        return ToolCall(call_id, name, arguments, meta=frozen)
    return ToolCall.trusted(call_id, name, EMPTY if arguments is None else _frozen(arguments), None, frozen)


def _read_block(found: dict[str, Any]) -> Block | None:
    """The block of `_write_block`'s form, or None for a mapping of another."""
    kind = found.get("type")
    known = _BLOCKS_BY_KIND.get(kind) if type(kind) is str else None
    values = {key: value for key, value in found.items() if key not in ("type", "$")}
    if known is None:
        return None
    if kind in ("image", "document") and type(values.get("data")) is str and "source" not in values:
        try:
            values["source"] = base64.b64decode(values.pop("data"), validate=True)
        except ValueError:
            return None
    cls, required, allowed = known
    if not required <= values.keys() <= allowed or isinstance(values.get("source"), dict):
        return None
    return cls(**values)  # type: ignore[no-any-return]


def _read_own_block(found: dict[str, Any]) -> Block:
    block = _read_block(found)
    if block is None:
        raise FormatError(f"stored text holds a block that cannot be read: {sorted(map(str, found))}")
    return block


def _frozen(mapping: Any) -> FrozenDict[str, Any]:
    if type(mapping) is not dict:
        raise FormatError(f"stored text holds a {type(mapping).__name__} in the place of a mapping")
    frozen: FrozenDict[str, Any] = deep_freeze(mapping, max_depth=MAX_LEVELS)
    return frozen


_MESSAGE_KEYS = frozenset({"$", *(field.name for field in fields(Message))})
_CALL_KEYS = frozenset({"id", "name", "arguments", "meta"})
_BLOCK_NAMES: dict[type[Block], str] = {
    TextBlock: "text",
    ImageBlock: "image",
    DocumentBlock: "document",
    ThinkingBlock: "thinking",
    RedactedThinkingBlock: "redacted_thinking",
    NativeBlock: "native",
    CallMark: "call",
}
_BLOCK_KINDS = {cls: (name, fields(cls)) for cls, name in _BLOCK_NAMES.items()}
_BLOCKS_BY_KIND: dict[str, tuple[Any, frozenset[str], frozenset[str]]] = {
    name: (
        cls,
        frozenset(f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING),
        frozenset(f.name for f in fields(cls)),
    )
    for cls, name in _BLOCK_NAMES.items()
}

WRITERS[Message] = _write_message
WRITERS[ToolCall] = lambda value, strict, room: {"$": "call", **_write_call(value, strict, room)}
WRITERS.update(
    dict.fromkeys(_BLOCK_NAMES, lambda value, strict, room: {"$": "block", **_write_block(value, strict, room)})
)
FROM_MAPPING[Message] = message_from_plain
READERS["message"] = _read_message
READERS["call"] = _read_call
READERS["block"] = _read_own_block


def _register_value(cls: Any, tag: str) -> None:
    own = fields(cls)
    known = {field.name for field in own}

    def to_fields(value: Any) -> dict[str, Any]:
        return {field.name: item for field in own if not _is_default(field, item := getattr(value, field.name))}

    def from_fields(found: dict[str, Any]) -> Any:
        unknown = {key: value for key, value in found.items() if key not in known}
        if unknown and "meta" in known:  # written by a newer release
            found = {**found, "meta": {**unknown, **found.get("meta", EMPTY)}}
        return cls(**{key: value for key, value in found.items() if key in known})

    register(cls, tag, to_fields, from_fields)


for _cls, _tag in (
    (Usage, "usage"),
    (Scope, "scope"),
    (Breakpoint, "breakpoint"),
    (ToolSchema, "tool_schema"),
    (ToolRequest, "tool_request"),
    (ChatRequest, "chat_request"),
    (LLMResult, "llm_result"),
    (Delta, "delta"),
    (StreamEvent, "stream_event"),
    (Chunk, "chunk"),
    (MemoryItem, "memory_item"),
    (Lease, "lease"),
    (Hit, "hit"),
):
    _register_value(_cls, _tag)
