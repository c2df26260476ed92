"""A record as it is stored: `{v, kind, id, seq, fence, commit, ts, instance, state}`, one JSON object. Touches only its
arguments.

The state is put in and taken out as the JSON text it is: neither looked into nor written anew. The whole is a bytes
value, which every store keeps as it is, so that one who encodes pays once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from agentkit.core.contracts.errors import Corrupt, FormatError

FORM = 1
"""The `v` that is written here, and the only one that is read."""

GONE = b"null"
"""The state of a tombstone: the record was removed, its key and seq remain."""


class Row(msgspec.Struct, frozen=True):
    """A record that was read or written. `state`: JSON text; `seq`: rises by one with each write; `ts` in ms; `fence`
    and `commit`: of the write that made it; `version`: the store's own, for compare-and-set; `unknown`: fields of the
    envelope that a newer release added, which stay."""

    kind: str
    id: str
    seq: int
    state: bytes
    ts: int = 0
    fence: int = 0
    commit: str = ""
    version: int = 0
    unknown: Mapping[str, msgspec.Raw] | None = None

    @property
    def gone(self) -> bool:
        """Whether this is a tombstone."""
        return self.state == GONE


class _Envelope(msgspec.Struct, frozen=True):
    v: int
    kind: str
    id: str
    seq: int
    fence: int = 0
    commit: str = ""
    ts: int = 0
    instance: str = ""
    state: msgspec.Raw = msgspec.Raw(GONE)


_FIELDS = frozenset(_Envelope.__struct_fields__)
_encoder = msgspec.json.Encoder()
_fields_decoder: msgspec.json.Decoder[dict[str, msgspec.Raw]] = msgspec.json.Decoder(dict[str, msgspec.Raw])
_raw_decoder: msgspec.json.Decoder[msgspec.Raw] = msgspec.json.Decoder(msgspec.Raw)
_decoder: msgspec.json.Decoder[_Envelope] = msgspec.json.Decoder(_Envelope)


def encode(row: Row, instance: str) -> bytes:
    """The stored form of a row; its `version` is the store's business."""
    state = msgspec.Raw(row.state)
    made = _encoder.encode(_Envelope(FORM, row.kind, row.id, row.seq, row.fence, row.commit, row.ts, instance, state))
    return made if not row.unknown else made[:-1] + b"," + _encoder.encode(dict(row.unknown))[1:]


def decode(value: Any, version: int, kind: str, id: str) -> Row:
    """The row that is stored as `value` under the key of `kind` and `id`.

    Raises FormatError for an envelope of another form, Corrupt for one that cannot be read or belongs elsewhere; both
    name the record.
    """
    if type(value) is not bytes:
        raise corrupt(kind, id, f"it is a {type(value).__name__}, not an envelope")
    try:
        found = _fields_decoder.decode(value)
        form = msgspec.json.decode(found["v"]) if "v" in found else None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise corrupt(kind, id, str(error)) from None
    if form != FORM or type(form) is not int:
        raise FormatError(
            f"record {told(kind, id)} has form {form!r}, this release reads {FORM}; it was left as it is: read it with "
            "the release that wrote it, or a newer one"
        )
    try:
        made = _decoder.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise corrupt(kind, id, str(error)) from None
    if (made.kind, made.id) != (kind, id):
        raise corrupt(kind, id, f"its envelope is that of {told(made.kind, made.id)}")
    unknown = {name: raw.copy() for name, raw in found.items() if name not in _FIELDS} if len(found) > 9 else None
    return Row(kind, id, made.seq, bytes(made.state), made.ts, made.fence, made.commit, version, unknown)


def require_json(state: object, kind: str, id: str) -> None:
    """ValueError for a state that would leave a row which nobody can read. The text is passed over, not decoded."""
    if type(state) is not bytes:
        raise TypeError(f"the state of {told(kind, id)} must be bytes of JSON, not {type(state).__name__}")
    try:
        _raw_decoder.decode(state)
    except msgspec.DecodeError as error:
        raise ValueError(f"the state of {told(kind, id)} is no JSON: {error}") from None


def told(kind: str, id: str) -> str:
    """A record as messages name it."""
    return f"{kind} {id!r}"


def corrupt(kind: str, id: str, why: str, *, position: int | None = None) -> Corrupt:
    """The error of a record that cannot be read."""
    where = told(kind, id) if position is None else f"entry {position + 1} of {told(kind, id)}"
    return Corrupt(
        f"record {where} cannot be read ({why}); all else is untouched: remove it, or restore it from a backup",
        key=f"{kind}/{id}",
        position=position,
    )
