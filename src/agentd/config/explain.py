"""pydantic's complaints in the words of the document: where, what was found, what would be right. Values only.

The text of a value is shown only where one value is due and none of it can be a secret.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from pydantic_core import ErrorDetails

from agentd.config import keys
from agentd.config.document import kind_of
from agentd.config.faults import Fault, Path, clipped
from agentd.config.merge import Node, reached
from agentd.config.rules import LATER_SECTIONS

_WANTED = {
    "int_type": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "text",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "literal_error": "one of {expected}",
    "string_too_short": "text that is not empty",
    "string_too_long": "text of at most {max_length} characters",
    "too_short": "a list of at least {min_length}",
}
_YAML_1_1 = re.compile(
    r"~|[yYnN]|yes|Yes|YES|no|No|NO|on|On|ON|off|Off|OFF|True|TRUE|False|FALSE|Null|NULL"
    r"|[-+]?(?:0[xo]?[0-9a-fA-F_]+|[0-9][0-9_]*(?::[0-9]+)*\.?[0-9_]*|\.[0-9]+|\.(?:inf|Inf|nan|NaN))"
)
"""What older YAML readers take for something else than text."""


def fault(error: ErrorDetails, tree: Node) -> Fault:
    """One of pydantic's errors as a fault."""
    node, path = place(error, tree)
    kind = error["type"]
    origin = node.origin
    if kind == "missing":
        return Fault(origin, (*path, str(error["loc"][-1])), "nothing", "a value is required here")
    if kind == "extra_forbidden" or error["loc"][-1:] == ("[key]",):
        if path[0] in LATER_SECTIONS:
            return Fault(origin, path, "a section that this release does not support", "leave it out")
        return Fault(origin, path, "an unknown key", keys.suggestion(path))
    context: Mapping[str, Any] = error.get("ctx", {})
    if "found" in context:  # the check itself says what may be shown
        return Fault(origin, path, context["found"], context["want"])
    want = context.get("want") or _WANTED.get(kind, error["msg"]).format_map(_Shown(context))
    return Fault(origin, path, shown(node, path), f"expected {want}{_hint(node, kind)}")


def place(error: ErrorDetails, tree: Node) -> tuple[Node, Path]:
    """The node an error is about, and its path. pydantic also names alternatives and shorthands, which are no keys."""
    loc = tuple(step for step in error["loc"] if step != "[key]")
    node = tree
    path: Path = ()
    for step in loc:
        child, further = reached(node, (step,))
        if further:
            node, path = child, (*path, step)
    return node, path


def shown(node: Node, path: Path) -> str:
    """A value as a message may show it."""
    value = node.value
    if keys.takes_reference(path):
        return f"{kind_of(value)} (not shown)"
    if isinstance(value, dict | list) or keys.is_container(path):
        return kind_of(value)
    text = json.dumps(value, ensure_ascii=False)
    return clipped(re.sub(r"//[^/@\s]*@", "//…@", re.sub(r"\?.*", "?…", text) if "//" in text else text))


def _hint(node: Node, kind: str) -> str:
    if isinstance(node.value, str) and _YAML_1_1.fullmatch(node.value) and kind != "string_too_short":
        return " (this document has JSON's values: true, false, null, and numbers such as 10, 0.5, 1e3)"
    return ""


class _Shown(dict[str, Any]):
    def __missing__(self, name: str) -> str:
        return "…"
