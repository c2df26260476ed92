"""Whether JSON is what a JSON Schema asks for, in words that a model can act on. Touches only its arguments: a schema
that refers to another place is not followed there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from jsonschema.exceptions import SchemaError, ValidationError  # type: ignore[import-untyped]
from jsonschema.validators import validator_for  # type: ignore[import-untyped]
from referencing import Registry

from agentkit.core.contracts.frozen import thaw
from agentkit.core.contracts.jsontext import json_text

MOST = 5
"""Faults that are named; a model mends the first few and is told of the rest then."""
_SHOWN = 120


class UnusableSchema(ValueError):
    """This is no JSON Schema that anything could be checked by."""


class Checker:
    """Checks values by one schema, which is compiled once. Raises UnusableSchema saying what is wrong with it."""

    def __init__(self, schema: Mapping[str, Any] | bool, *, what: str = "the schema") -> None:
        plain = thaw(schema) if isinstance(schema, Mapping) else schema
        kind = validator_for(plain, default=Draft202012Validator)
        try:
            kind.check_schema(plain)
        except SchemaError as error:
            at = _place(error.absolute_path, "its top")
            raise UnusableSchema(f"{what} is no JSON Schema: at {at}: {_clipped(error.message)}") from error
        except RecursionError as error:
            raise UnusableSchema(f"{what} is nested too deeply") from error
        self.schema = plain
        self._what = what
        # An empty registry: the default one would fetch what a schema refers to.
        self._validator = kind(plain, registry=Registry())

    def fault(self, value: Any, *, of: str = "the value") -> str | None:
        """What is wrong with `value`, by place, or None. `of`: what the whole of it is called."""
        try:
            errors = sorted(self._validator.iter_errors(value), key=_order)
        except RecursionError:
            return f"{of} is nested too deeply"
        except (
            Exception
        ) as error:  # a reference that leads nowhere, a pattern that is none: the library raises anything
            return f"{self._what} cannot be used: {type(error).__name__}: {_clipped(str(error))}"
        if not errors:
            return None
        told = list(dict.fromkeys(_told(error, of) for error in errors[:MOST]))
        if len(errors) > MOST:
            told.append(f"and {len(errors) - MOST} more faults")
        return "; ".join(told)


def _order(error: ValidationError) -> tuple[int, str]:
    return len(error.absolute_path), _place(error.absolute_path, "")


def _told(error: ValidationError, of: str) -> str:
    if error.validator in ("anyOf", "oneOf") and error.context:
        return _alternatives(error, of)
    word = _WORDS.get(error.validator)
    return f"{_place(error.absolute_path, of)}: {word(error) if word is not None else _clipped(error.message)}"


def _alternatives(error: ValidationError, of: str) -> str:
    """The faults by the alternative that comes nearest: the one whose type fits, if any."""
    by_branch: dict[int, list[ValidationError]] = {}
    for one in error.context:
        by_branch.setdefault(one.schema_path[0], []).append(one)
    fitting = [
        branch
        for branch in by_branch.values()
        if not any(one.validator == "type" and len(one.path) == 0 for one in branch)
    ]
    if len(fitting) == 1:
        return "; ".join(_told(one, of) for one in fitting[0][:MOST])
    given = _clipped(json_text(error.instance))
    return f"{_place(error.absolute_path, of)}: it has none of the forms allowed here: {given}"


def _required(error: ValidationError) -> str:
    if not isinstance(error.validator_value, list):  # as the third draft has it
        return _clipped(error.message)
    missing = [name for name in error.validator_value if name not in error.instance]
    return f"missing {', '.join(missing)}"


def _additional(error: ValidationError) -> str:
    if "patternProperties" in error.schema:
        return _clipped(error.message)
    known = error.schema.get("properties", {})
    extra = [_clipped(str(name)) for name in error.instance if name not in known]
    takes = f"it takes {', '.join(known)}" if known else "it takes nothing"
    return f"unknown {', '.join(extra)}; {takes}"


def _type(error: ValidationError) -> str:
    wanted = error.validator_value
    names = [wanted] if isinstance(wanted, str) else list(wanted)
    return f"must be {' or '.join(names)}, not {_kind(error.instance)} {_clipped(json_text(error.instance))}"


def _enum(error: ValidationError) -> str:
    allowed = ", ".join(json_text(value) for value in error.validator_value)
    return f"must be one of {_clipped(allowed, 400)}, not {_clipped(json_text(error.instance))}"


def _text_of(pattern: str) -> Callable[[ValidationError], str]:
    def told(error: ValidationError) -> str:
        return f"{pattern.format(error.validator_value)}, not {_clipped(json_text(error.instance))}"

    return told


def _short_of(pattern: str) -> Callable[[ValidationError], str]:
    def told(error: ValidationError) -> str:
        return f"{pattern.format(error.validator_value)}, not {len(error.instance)}"

    return told


_WORDS: dict[str, Callable[[ValidationError], str]] = {
    "required": _required,
    "additionalProperties": _additional,
    "type": _type,
    "enum": _enum,
    "const": lambda error: f"must be {_clipped(json_text(error.validator_value))}",
    "minimum": _text_of("must be at least {}"),
    "maximum": _text_of("must be at most {}"),
    "pattern": _text_of("must match {}"),
    "minLength": _short_of("must have at least {} characters"),
    "maxLength": _short_of("must have at most {} characters"),
    "minItems": _short_of("must have at least {} items"),
    "maxItems": _short_of("must have at most {} items"),
    "minProperties": _short_of("must have at least {} keys"),
    "maxProperties": _short_of("must have at most {} keys"),
}


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    kinds = {bool: "boolean", str: "string", int: "integer", float: "number", list: "array", dict: "object"}
    return kinds.get(type(value), type(value).__name__)


def _place(path: Iterable[Any], of: str) -> str:
    """`items[0].title`; `of` for the whole."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}"
    return _clipped(text.removeprefix(".")) or of


def _clipped(text: str, most: int = _SHOWN) -> str:
    return text if len(text) <= most else f"{text[:most]}…"
