"""What models refuse and support, each fact with its source and date: which parameters of a request are left out.

Reads `abilities.json` beside this file on first use. A model or a fact that nobody wrote down is unknown: nothing is
left out for it, and nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple


class Source(NamedTuple):
    """Where a fact stands, and the ISO date on which somebody last looked."""

    url: str
    checked: str


@dataclass(frozen=True)
class Abilities:
    """What is known of one model; None and empty where nothing is.

    `refuses`: parameters that it answers with an error; `refuses_with_thinking`, `refuses_with_effort`: the same while
    it thinks, or is told to (an effort other than `none`). `thinking`: accepted values of `thinking.type`; `efforts`:
    of the effort. `prefill`: whether a request may end with the start of the answer; `forced_tools`: whether
    `tool_choice` may demand a call; `late_system`: whether system text may stand among the messages. `max_output`:
    tokens of the longest answer.
    """

    refuses: frozenset[str] = frozenset()
    refuses_with_thinking: frozenset[str] = frozenset()
    refuses_with_effort: frozenset[str] = frozenset()
    thinking: tuple[str, ...] | None = None
    efforts: tuple[str, ...] | None = None
    prefill: bool | None = None
    forced_tools: bool | None = None
    late_system: bool | None = None
    max_output: int | None = None
    sources: tuple[Source, ...] = ()

    def refused(self, values: Mapping[str, Any]) -> tuple[str, ...]:
        """The names of those parameters that the model refuses together with the others, sorted.

        `values` by neutral name: `temperature`, `thinking` (a mapping with `type`), `effort`, or as a provider has it:
        `reasoning_effort`, `reasoning` and `output_config` (mappings with `effort`).
        """
        found = {name for name in self.refuses if name in values}
        thinking, effort = values.get("thinking"), effort_of(values)
        kind = thinking.get("type") if isinstance(thinking, Mapping) else None
        if kind is not None and self.thinking is not None and kind not in self.thinking:
            found.add("thinking")
        elif kind not in (None, "disabled"):
            found |= {name for name in self.refuses_with_thinking if name in values}
        if effort not in (None, "none"):
            found |= {name for name in self.refuses_with_effort if name in values}
        if "effort" in values and self.efforts is not None and effort not in self.efforts:
            found.add("effort")
        return tuple(sorted(found))


def effort_of(values: Mapping[str, Any]) -> str | None:
    """How hard the model is told to think, under whatever name; None where nothing is said."""
    for given in (
        values.get("effort"),
        values.get("reasoning_effort"),
        *(
            inner.get("effort")
            for name in ("reasoning", "output_config")
            if isinstance(inner := values.get(name), Mapping)
        ),
    ):
        if isinstance(given, str):
            return given
    return None


@cache
def abilities_of(model: str | None) -> Abilities:
    """What is known of a model, by its name at any vendor. Of several rows that match, the longest pattern decides."""
    from fnmatch import fnmatchcase

    name = _plain(model or "")
    matching = [
        (max(map(len, patterns)), at, row)
        for at, row in enumerate(_rows())
        if (patterns := [pattern for pattern in row["models"] if fnmatchcase(name, pattern)])
    ]
    if not matching:
        return Abilities()
    found: dict[str, Any] = {}
    matching.sort(key=lambda match: match[:2])
    for _, _, row in matching:
        found.update(row)
    sources = [Source(row["source"], row["checked"]) for _, _, row in matching]
    for key in ("refuses", "refuses_with_thinking", "refuses_with_effort"):
        found[key] = frozenset(found.get(key, ()))
    for key in ("thinking", "efforts"):
        found[key] = None if found.get(key) is None else tuple(found[key])
    for key in ("models", "source", "checked"):
        del found[key]
    return Abilities(**found, sources=tuple(dict.fromkeys(reversed(sources))))


def _plain(model: str) -> str:
    """The maker's own name: `us.anthropic.claude-opus-4-7-v1:0` and `anthropic/claude-opus-4.7` are `claude-opus-4-7`
    with or without an end."""
    name = model.lower().rpartition("/")[2]
    at = name.find("claude-")
    return name[at:].replace(".", "-") if at >= 0 else name


@cache
def _rows() -> tuple[dict[str, Any], ...]:
    import json
    from pathlib import Path

    data = json.loads(Path(__file__).with_name("abilities.json").read_text(encoding="utf-8"))
    return tuple(data["rows"])
