"""The manifest of an instance: which generation is in force, how often it was started, under which configuration.
Touches the records that are handed in.

A generation is a set of records that know of each other. Opening the next one adopts nothing of those before it and
deletes nothing; it stays in force until the next is opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from agentkit.core.contracts.errors import FormatError

from .envelope import corrupt, told
from .keys import ABOVE
from .records import Records
from .writes import Save

KIND, ID = "manifest", "agent"
FORM = 1


@dataclass(frozen=True, slots=True)
class Start:
    """A start that is on record. `starts`: how many there were, this one included; `changed`: sections of the
    configuration that differ from those of the start before, none at the first; `retired`: generations before this."""

    generation: int
    starts: int
    changed: tuple[str, ...] = ()
    retired: tuple[int, ...] = ()


class _Manifest(msgspec.Struct, frozen=True):
    v: int = FORM
    generation: int = 1
    starts: int = 0
    digests: dict[str, str] = {}
    retired: tuple[int, ...] = ()


async def open_manifest(records: Records, digests: Mapping[str, str]) -> Start:
    """Note a start in the generation that is in force. `digests`: of each section of the configuration.

    Raises FormatError or Corrupt for a manifest that cannot be read: nothing else tells which records are in force.
    """
    return await _start(records, digests, fresh=False)


async def open_next_generation(records: Records, digests: Mapping[str, str]) -> Start:
    """Note a start in the generation after the one in force, the first one where none is. The others are left as they
    are."""
    return await _start(records, digests, fresh=True)


async def read_manifest(records: Records) -> Start | None:
    """The last start, None where there was none. Writes nothing."""
    row = await records.of_generation(ABOVE).get(KIND, ID)
    if row is None:
        return None
    found = decoded(row.state)[0]
    return Start(found.generation, found.starts, (), found.retired)


async def _start(records: Records, digests: Mapping[str, str], *, fresh: bool) -> Start:
    above = records.of_generation(ABOVE)
    row = await above.get(KIND, ID)
    found, unknown = (_Manifest(), {}) if row is None else decoded(row.state)
    generation, retired = found.generation, found.retired
    if fresh and row is not None:
        generation, retired = generation + 1, (*retired, generation)
    changed: tuple[str, ...] = ()
    if row is not None:
        names = sorted({*digests, *found.digests})
        changed = tuple(name for name in names if digests.get(name) != found.digests.get(name))
    made = _Manifest(FORM, generation, found.starts + 1, dict(digests), retired)
    state = msgspec.json.encode({**unknown, **msgspec.to_builtins(made)})
    await above.commit([Save(KIND, ID, state, row)])
    return Start(generation, made.starts, changed, retired)


def decoded(state: bytes) -> tuple[_Manifest, dict[str, Any]]:
    """A manifest, and its fields that are not known here. Raises FormatError or Corrupt."""
    try:
        fields = msgspec.json.decode(state, type=dict[str, Any])
        if (form := fields.get("v", FORM)) != FORM:
            raise FormatError(
                f"record {told(KIND, ID)} has form {form!r}, this release reads {FORM}: start the release that "
                "wrote it, or a newer one"
            )
        found = msgspec.convert(fields, _Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise corrupt(KIND, ID, str(error)) from None
    return found, {name: value for name, value in fields.items() if name not in _Manifest.__struct_fields__}
