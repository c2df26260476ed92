"""Rows of a record as JSON: state, log lines, messages, and what a message must be free of to be stored. Touches only
its arguments.

A log line is never written again. A state row keeps what it has beyond the known fields; a row of a newer form is
refused, and so is one that cannot be read: both by an error that names it, so that the others can be served.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import msgspec

from agentkit.core.contracts.errors import CodecError, Corrupt, FormatError
from agentkit.core.contracts.jsontext import json_text
from agentkit.core.contracts.surrogates import replace_surrogates
from agentkit.state.compaction import Summary

from .record import (
    APART,
    KIND_OF,
    KINDS,
    MESSAGE_KINDS,
    RECORD_VERSION,
    AssistantMsg,
    ContextState,
    DataPart,
    Entry,
    FilePart,
    Msg,
    Part,
    Struct,
    TextPart,
    ToolMsg,
    UserMsg,
)


def encode_state(state: ContextState) -> bytes:
    """The row as JSON, without the fields of APART."""
    slim = msgspec.structs.replace(state, summary=_NO_SUMMARY, plan=None, preflight=None, unknown={})
    row = msgspec.to_builtins(slim, str_keys=True)
    row.pop("summary", None)  # a dataclass, which is written whether it is empty or not
    return _encoded({**state.unknown, "v": RECORD_VERSION, **row}, state.id)


_NO_SUMMARY = Summary()


def encode_apart(state: ContextState) -> dict[str, bytes]:
    """The fields of APART that are not empty, each as JSON."""
    found = {"summary": state.summary.to_dict(), "plan": state.plan, "preflight": state.preflight}
    return {name: _encoded(value, state.id) for name, value in found.items() if value not in (None, {})}


def decode_state(row: bytes, apart: Mapping[str, bytes] | None = None, *, id: str = "") -> ContextState:
    """The state of a row and its apart fields. Raises FormatError for a row of a newer form, Corrupt for one that
    cannot be read; both name the context `id`."""
    found = _decoded(row, dict[str, Any], id)
    _require_known(found.pop("v", RECORD_VERSION), id)
    for name, value in (apart or {}).items():
        if name in APART:
            found[name] = _decoded(value, Any, id)
    unknown = {name: value for name, value in found.items() if name not in _STATE_FIELDS}
    known = {name: value for name, value in found.items() if name in _STATE_FIELDS}
    if id:
        known["id"] = id
    state: ContextState = _converted(known, ContextState, id)
    return msgspec.structs.replace(state, unknown=unknown)


_STATE_FIELDS = frozenset(ContextState.__struct_fields__) - {"unknown"}


class _Row(Struct, frozen=True):
    n: int
    v: int = 0  # absent: the first form; written always, since it is never the default
    ts: int = 0
    kind: str = ""
    body: msgspec.Raw = msgspec.Raw(b"null")
    turn: str | None = None
    round: int | None = None
    source: str | None = None
    est: int = 0
    words: str = ""


def encode_entry(entry: Entry) -> bytes:
    """The log line of an entry. CodecError for half a surrogate pair, which `accepted` replaces.

    `words`: keys and numbers of the JSON in a message, since a store finds a line by the strings in it alone.
    """
    body = entry.body if isinstance(entry.body, msgspec.Raw) else msgspec.Raw(_encoded(entry.body, f"entry {entry.n}"))
    words = " ".join(dict.fromkeys(_keys_and_numbers(entry.body))) if entry.kind in _WITH_JSON else ""
    fields = (entry.ts, entry.kind, body, entry.turn, entry.round, entry.source, entry.est, words)
    return _encoded(_Row(entry.n, RECORD_VERSION, *fields), f"entry {entry.n}")


_WITH_JSON = frozenset({"user", "assistant", "tool"})


def _keys_and_numbers(body: Any) -> Iterator[str]:
    work = list(json_in(body))
    while work:
        value = work.pop()
        if isinstance(value, dict):
            yield from value
            work.extend(reversed(value.values()))
        elif isinstance(value, (list, tuple)):
            work.extend(reversed(value))
        elif type(value) in (int, float):
            yield json_text(value)


def json_in(body: Any) -> Iterator[Any]:
    """The values in a message that are JSON rather than text: arguments, results, parts of data."""
    if isinstance(body, AssistantMsg):
        yield from (call.arguments for call in body.tool_calls)
    elif isinstance(body, ToolMsg):
        yield body.content
    if isinstance(body, (UserMsg, ToolMsg)):
        yield from (part.data for part in body.parts if isinstance(part, DataPart))


def decode_entry(line: bytes, *, where: str = "") -> Entry:
    """The entry of a log line. Raises FormatError for one of a newer form, Corrupt for one that cannot be read."""
    row = _decoded(line, _Row, where)
    _require_known(row.v or 1, where or f"entry {row.n}")
    body: Any = bytes(row.body)
    kind = KINDS.get(row.kind)
    body = msgspec.Raw(body) if kind is None else _body(body, kind, where or f"entry {row.n}")
    return Entry(row.n, row.ts, row.kind, body, row.turn, row.round, row.source, row.est)


def encode_msg(msg: Msg) -> bytes:
    """A message by itself, with its role."""
    return _encoded(msg, "message")


def decode_msg(data: bytes) -> Msg:
    """The message that `encode_msg` wrote; Corrupt for anything else."""
    role = _decoded(data, dict[str, msgspec.Raw], "message").get("role")
    kind = KINDS.get(_decoded(bytes(role), str, "message")) if role is not None else None
    if kind is None or KIND_OF[kind] not in MESSAGE_KINDS:
        raise Corrupt("a message has a role: system, user, assistant, tool or note")
    message: Msg = _body(data, kind, "message")
    return message


class _Parts(Struct, frozen=True):
    parts: tuple[msgspec.Raw, ...] = ()


_KnownPart: TypeAlias = TextPart | DataPart | FilePart
_part_decoder: msgspec.json.Decoder[_KnownPart] = msgspec.json.Decoder(_KnownPart)


def _body(data: bytes, kind: type, where: str) -> Any:
    if kind not in (UserMsg, ToolMsg):
        return _decoded(data, kind, where)
    # Parts are read one by one: a type that this release does not know may not make the whole entry unreadable.
    rest = _decoded(data, dict[str, msgspec.Raw], where)
    parts = tuple(_part(raw) for raw in _decoded(data, _Parts, where).parts)
    rest.pop("parts", None)
    return msgspec.structs.replace(_decoded(msgspec.json.encode(rest), kind, where), parts=parts)


def _part(raw: msgspec.Raw) -> Part:
    try:
        return _part_decoder.decode(raw)
    except msgspec.ValidationError:
        return msgspec.Raw(bytes(raw))


def _encoded(value: Any, where: str) -> bytes:
    try:
        return msgspec.json.encode(value)
    except (UnicodeEncodeError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise CodecError(f"{where} cannot be stored: {error}") from error


def _decoded(data: bytes, kind: Any, where: str) -> Any:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Corrupt(f"{where or 'this row'} cannot be read: {error}", key=where or None) from error


def _converted(value: Any, kind: Any, where: str) -> Any:
    try:
        return msgspec.convert(value, kind, str_keys=True)
    except msgspec.ValidationError as error:
        raise Corrupt(f"{where or 'this row'} cannot be read: {error}", key=where or None) from error


def _require_known(version: Any, where: str) -> None:
    if type(version) is not int or version < 1:
        raise Corrupt(f"{where or 'this row'} has no readable version: {version!r}", key=where or None)
    if version > RECORD_VERSION:
        raise FormatError(
            f"{where or 'this row'} is of form {version}, and this release reads up to {RECORD_VERSION}: left as it is"
        )


def accepted(msg: Msg) -> tuple[Msg, bool]:
    """`msg` as it can be stored, and whether anything had to be replaced: lone surrogates by U+FFFD, since no stored
    text may hold them, and numbers that are not finite by their names, since JSON would make them null."""
    changes: dict[str, Any] = {}
    for name in msg.__struct_fields__:
        value = getattr(msg, name)
        if _is_clean(value):
            continue
        if (clean := _clean(value)) is not value:
            changes[name] = clean
    return (msgspec.structs.replace(msg, **changes), True) if changes else (msg, False)


def _is_clean(value: Any) -> bool:
    """Whether that is plain at first sight, as nearly everything is."""
    kind = type(value)
    if kind is str:
        return bool(value.isascii())
    if kind is tuple:
        return all(type(part) is TextPart and part.text.isascii() for part in value)
    return value is None or kind is int or kind is bool


def _clean(value: Any) -> Any:
    cleaner = _CLEANERS.get(type(value))
    if cleaner is not None:
        return cleaner(value)
    if isinstance(value, Struct):
        parts = {name: getattr(value, name) for name in value.__struct_fields__}
        clean = {name: _clean(part) for name, part in parts.items()}
        same = all(clean[name] is part for name, part in parts.items())
        return value if same else msgspec.structs.replace(value, **clean)
    return value


def _clean_list(value: Any) -> Any:
    clean = [_clean(item) for item in value]
    same = all(new is old for new, old in zip(clean, value, strict=True))
    return value if same else type(value)(clean)


def _clean_dict(value: dict[Any, Any]) -> dict[Any, Any]:
    clean = {_clean(key): _clean(item) for key, item in value.items()}
    same = all(a is b and clean[a] is value[b] for a, b in zip(clean, value, strict=False)) and len(clean) == len(value)
    return value if same else clean


_CLEANERS: dict[type, Callable[[Any], Any]] = {
    str: replace_surrogates,
    float: lambda number: number if math.isfinite(number) else str(number),
    list: _clean_list,
    tuple: _clean_list,
    dict: _clean_dict,
}
