"""What a request carries beside its messages: tool schemas and prompt-cache marks. Touches only its arguments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .blocks import freeze_mapping, no_entries
from .checks import require_int, settle_text
from .jsontext import canonical_json
from .messages import FieldsOnly, derived


@dataclass(frozen=True)
class Breakpoint:
    """A place up to which a provider's prompt cache is asked to keep the request.

    `position`: number of layout messages in front of the mark. `ttl`: the lifetime asked for, `5m` or `1h`, `30m` or
    `12h`, as the provider names them.
    """

    position: int
    ttl: str = "5m"

    def __post_init__(self) -> None:
        require_int(self.position, "Breakpoint.position")
        if self.position < 0:
            raise ValueError(f"Breakpoint.position must not be negative: {self.position}")
        settle_text(self, "ttl")


@dataclass(frozen=True)
class ToolSchema(FieldsOnly):
    """A tool as a model is told of it; `parameters` is a JSON Schema object."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=no_entries, hash=False)

    def __post_init__(self) -> None:
        settle_text(self, "name", "description")
        object.__setattr__(self, "parameters", freeze_mapping(self.parameters, "ToolSchema.parameters"))


def canonical_tools(tools: Iterable[ToolSchema | Mapping[str, Any]]) -> tuple[str, ...]:
    """Canonical JSON of each tool, sorted by name: the same set in any order gives the same texts."""
    named: list[tuple[str, str]] = []
    for tool in tools:
        if isinstance(tool, ToolSchema):
            named.append((tool.name, derived(tool, "_canonical", _canonical)))
        elif isinstance(tool, Mapping):
            inner = tool.get("function")
            name = inner.get("name") if isinstance(inner, Mapping) else tool.get("name")
            named.append((str(name or ""), canonical_json(tool)))
        else:
            raise TypeError(f"a tool must be a ToolSchema or a mapping, not {type(tool).__name__}")
    return tuple(text for _, text in sorted(named))


def _canonical(tool: ToolSchema) -> str:
    return canonical_json({"name": tool.name, "description": tool.description, "parameters": tool.parameters})
