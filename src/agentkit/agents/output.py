"""Structured output: the form that an answer must have, told to the model and read back. Touches only its arguments."""

from __future__ import annotations

import dataclasses
import json
import re
import typing
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

from agentkit.core.contracts.errors import OutputError
from agentkit.core.contracts.jsontext import canonical_json

from .readers import read_as
from .shapes import is_model, shape_of

_FENCED = re.compile(r"\s*```[A-Za-z]*[ \t]*\n(.*)\n[ \t]*```\s*", re.DOTALL)


@runtime_checkable
class OutputAdapter(Protocol):
    """Tells a model which form its answer must have, and reads it. `parse` raises ValueError, TypeError or LookupError
    with a text that the model is shown."""

    @property
    def schema_block(self) -> str: ...

    def parse(self, text: str, /) -> Any: ...


class TypeOutput:
    """An `OutputAdapter` for a type: a dataclass, a TypedDict, a pydantic model, or any other hint of `shape_of`.

    The answer is JSON, alone or in one fenced block. `schema` is its JSON Schema, fit for `response_format`.
    Raises TypeError for a type that JSON cannot express.
    """

    def __init__(self, kind: Any) -> None:
        self.kind = kind
        self._shape = shape_of(kind, getattr(kind, "__name__", "output"))

    @property
    def schema(self) -> dict[str, Any]:
        return self._shape.schema

    @cached_property
    def schema_block(self) -> str:
        """The schema as standing text: the same bytes in every process, since it is part of the cached prefix."""
        return f"Answer with JSON that fits this schema, and nothing else:\n{canonical_json(self.schema)}"

    def parse(self, text: str, /) -> Any:
        """The value in an answer. OutputError says what is wrong with it."""
        fenced = _FENCED.fullmatch(text)
        try:
            data = json.loads(fenced[1] if fenced else text)
        except ValueError as error:
            raise OutputError(f"not JSON: {error}") from None
        except RecursionError:
            raise OutputError("not JSON that can be read: nested too deeply") from None
        try:
            return read_as(self._shape, data)
        except ValueError as error:
            raise OutputError(str(error)) from None

    def __repr__(self) -> str:
        return f"TypeOutput({getattr(self.kind, '__name__', self.kind)})"


def as_output(output: Any) -> OutputAdapter | None:
    """What `Agent(output=...)` takes: an adapter, or a type, or None."""
    if output is None:
        return None
    if not isinstance(output, type) and isinstance(output, OutputAdapter):
        return output
    return TypeOutput(output)


def is_form(value: Any) -> bool:
    """Whether a `response_format` is a type that describes an object, not a schema or a provider's own form."""
    return isinstance(value, type) and (
        is_model(value) or dataclasses.is_dataclass(value) or typing.is_typeddict(value)
    )


def as_response_format(value: Any) -> tuple[Any, OutputAdapter | None]:
    """What goes into requests for a `response_format`, and what reads the answers: of a type both, else it alone."""
    if is_form(value):
        made = TypeOutput(value)
        return made.schema, made
    if value is not None and not isinstance(value, (Mapping, str, bool)) and not isinstance(value, type):
        raise TypeError(
            f"response_format must be a type, a JSON Schema or a provider's form, not {type(value).__name__}"
        )
    return value, None
