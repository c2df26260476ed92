"""What all sections of the document have in common. Values only."""

from __future__ import annotations

import os
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, TypeAlias, Union, get_args, get_origin

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, GetJsonSchemaHandler
from pydantic_core import CoreSchema

from agentkit.core.contracts.frozen import FrozenDict, deep_freeze

ALL = ("*",)
"""Every tool: what `all` in the document becomes."""

Json: TypeAlias = Annotated[Any, AfterValidator(deep_freeze)]
Word: TypeAlias = Annotated[str, Field(min_length=1, max_length=256)]
Words: TypeAlias = tuple[Word, ...]


class Section(BaseModel):
    """A mapping of the document: closed, strict, frozen. `shorthand` names the key that a bare text stands for."""

    # Input is hidden from pydantic's own messages, which may hold secrets; ours are made in `explain`.
    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, arbitrary_types_allowed=True, hide_input_in_errors=True,
        protected_namespaces=(),
    )  # fmt: skip
    shorthand: ClassVar[str | None] = None

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Defaults in the document's notation, where pydantic has its own; one that is null is no value to write."""
        found = handler(core_schema)
        schema = handler.resolve_ref_schema(found)
        written = cls.model_construct().model_dump(mode="json")
        for name, part in schema["properties"].items():
            if part.pop("default", None) is not None and section_of(cls.model_fields[name].annotation) is None:
                part["default"] = written[name]
            part.pop("title", None)
        return found


def alternatives(annotation: Any) -> tuple[Any, ...]:
    """The types that a value may have, without metadata and None."""
    if get_origin(annotation) is Annotated:
        return alternatives(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return tuple(kind for part in get_args(annotation) for kind in alternatives(part))
    return () if annotation is NoneType else (annotation,)


def section_of(annotation: Any) -> type[Section] | None:
    """The section that a value of this type is, if it is one."""
    kinds = [kind for kind in alternatives(annotation) if isinstance(kind, type) and issubclass(kind, Section)]
    return kinds[0] if kinds else None


def frozen_dict(value: dict[Any, Any]) -> dict[Any, Any]:
    """A mapping of settings that nobody can change; its values are frozen already."""
    return FrozenDict(value)


def host_name() -> str:
    """What this machine calls itself, without asking the network."""
    return os.uname().nodename or "agentd"


def _spelled_out(key: str) -> Any:
    return lambda value: {key: value} if isinstance(value, str) else value


def or_text(section: type[Section]) -> Any:
    """Metadata for a section that a bare text may stand for."""
    key = section.shorthand
    if key is None:
        raise TypeError(f"{section.__name__} has no shorthand")
    return BeforeValidator(_spelled_out(key), json_schema_input_type=str | section)


def _all(value: Any) -> Any:
    return ALL if value == "all" else value


ToolNames: TypeAlias = Annotated[Words, BeforeValidator(_all, json_schema_input_type=str | list[str])]
"""Names of tools, or prefixes that end in `*`; `all` in the document is `("*",)` here."""
