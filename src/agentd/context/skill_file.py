"""Reading SKILL.md, the file that a skill is: frontmatter and body, by the limits of the Agent Skills specification.

Touches only its arguments. Fields that the specification does not know are left alone, since tools add their own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml  # type: ignore[import-untyped]

from agentkit.core.contracts.errors import AgentKitError

FILE = "SKILL.md"
NAME_CHARS, DESCRIPTION_CHARS, COMPATIBILITY_CHARS = 64, 1_024, 500
"""Limits of https://agentskills.io/specification."""
FRONTMATTER_BYTES = 1 << 16
"""A frontmatter with every field at its limit takes a tenth of this."""
_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_FENCE = re.compile(r"---[ \t]*\r?(?:\n|\Z)")
_END = re.compile(r"^---[ \t]*\r?(?:\n|\Z)", re.MULTILINE)
_DEPTH = 8


class SkillError(AgentKitError, ValueError):
    """A skill cannot be read, found or loaded; the message says which, why, and what would help."""


@dataclass(frozen=True)
class Skill:
    """What a skill says of itself. `when`: when to use it, where that is said apart from the description."""

    name: str
    description: str
    when: str = ""
    license: str = ""
    compatibility: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict, hash=False)
    allowed_tools: tuple[str, ...] = ()


def read_skill(text: str, *, folder: str | None = None, where: str = FILE) -> tuple[Skill, str]:
    """The skill in the text of a SKILL.md, and its body. `folder`: name of the folder it stands in, which is its own.

    Raises SkillError that names `where`, the field and what would be right.
    """
    text = text.removeprefix("\ufeff")
    fields, body = _split(text, where)
    name = _text(fields, "name", where, NAME_CHARS, required=True)
    if not _NAME.fullmatch(name):
        raise SkillError(
            f"{where}: name {name[:NAME_CHARS]!r}; it takes a-z, 0-9 and single hyphens, none at the beginning or end"
        )
    if folder is not None and name != folder:
        raise SkillError(f"{where}: name {name!r} in a folder called {folder!r}; give both the same name")
    metadata = _metadata(fields, where)
    tools = fields.get("allowed-tools")
    if isinstance(tools, list) and all(isinstance(tool, str) for tool in tools):
        allowed = tuple(tools)
    else:
        allowed = tuple(_text(fields, "allowed-tools", where).split())
    return Skill(
        name,
        _text(fields, "description", where, DESCRIPTION_CHARS, required=True),
        _when(fields, metadata, where),
        _text(fields, "license", where),
        _text(fields, "compatibility", where, COMPATIBILITY_CHARS, filled=True),
        metadata,
        allowed,
    ), body


def frontmatter_of(text: str, *, where: str = FILE) -> tuple[dict[str, Any], str]:
    """The fields of a SKILL.md as its author wrote them, and the text below. Raises SkillError."""
    return _split(text.removeprefix("\ufeff"), where)


def _split(text: str, where: str) -> tuple[dict[str, Any], str]:
    start = _FENCE.match(text)
    if start is None:
        raise SkillError(f"{where}: no frontmatter; the first line is ---, then come name and description, then ---")
    end = _END.search(text, start.end())
    if end is None:
        raise SkillError(f"{where}: a frontmatter without an end; close it with a line ---")
    front = text[start.end() : end.start()]
    if len(front.encode("utf-8", "surrogatepass")) > FRONTMATTER_BYTES:
        raise SkillError(f"{where}: a frontmatter of more than {FRONTMATTER_BYTES} bytes; move text to the body")
    return _fields(front, where), text[end.end() :]


def _fields(front: str, where: str) -> dict[str, Any]:
    try:
        _require_plain(front, where)
        loader = yaml.SafeLoader(front)
        try:
            node = loader.get_single_node()
            if node is None or not isinstance(node, yaml.MappingNode):
                raise SkillError(f"{where}: a frontmatter that is no mapping; it takes lines such as name: my-skill")
            names = Counter(key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode))
            if twice := next((name for name, count in names.items() if count > 1), None):
                raise SkillError(f"{where}: {twice!r} is there twice; give it once")
            found: dict[str, Any] = loader.construct_document(node)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 2}" if error.problem_mark is not None else ""
        problem = error.problem or error.context
        raise SkillError(f"{where}{line}: not YAML: {problem}; quote texts that hold ': ' or '#'") from None
    except SkillError:
        raise
    except (yaml.YAMLError, ValueError, OverflowError, TypeError) as error:
        # A date that is none, a number of thousands of digits, a character that YAML does not allow, a list as a key.
        raise SkillError(f"{where}: a value that cannot be read ({type(error).__name__}); quote it") from None
    return found


def _require_plain(front: str, where: str) -> None:
    """No aliases, which a few lines can unfold into gigabytes, and no depth that ends the reader."""
    depth = 0
    for event in yaml.parse(front, yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise SkillError(f"{where}, line {event.start_mark.line + 2}: an anchor or alias; write the value out")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEPTH:
            raise SkillError(f"{where}, line {event.start_mark.line + 2}: nested more than {_DEPTH} levels deep")


def _text(
    fields: Mapping[str, Any], key: str, where: str, most: int | None = None, *, required: bool = False,
    filled: bool = False,
) -> str:  # fmt: skip
    value = fields.get(key)
    if value is None and not required and not (filled and key in fields):
        return ""
    if value is None:
        raise SkillError(f"{where}: no {key}; it takes 1 to {most} characters")
    if not isinstance(value, str):
        raise SkillError(f"{where}: {key} is {_kind(value)}; it is text, so quote it")
    text = value.strip()
    if (required or filled) and not text:
        raise SkillError(f"{where}: an empty {key}; it takes 1 to {most} characters")
    if most is not None and len(text) > most:
        raise SkillError(f"{where}: {key} has {len(text)} characters; it takes 1 to {most}")
    return text


def _when(fields: Mapping[str, Any], metadata: Mapping[str, str], where: str) -> str:
    for key in ("when_to_use", "when-to-use"):
        if text := _text(fields, key, where, DESCRIPTION_CHARS) or metadata.get(key, "").strip()[:DESCRIPTION_CHARS]:
            return text
    return ""


def _metadata(fields: Mapping[str, Any], where: str) -> dict[str, str]:
    given = fields.get("metadata")
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise SkillError(f"{where}: metadata is {_kind(given)}; it is a mapping of texts")
    for key, value in given.items():
        if not isinstance(key, str) or not isinstance(value, (str, int, float)):
            raise SkillError(f"{where}: metadata {key!r} is {_kind(value)}; it is a mapping of texts")
    return {key: str(value) for key, value in given.items()}


def _kind(value: object) -> str:
    if isinstance(value, bool):
        return "true or false"
    names = {dict: "a mapping", list: "a list", int: "a number", float: "a number", str: "text", type(None): "nothing"}
    return names.get(type(value), f"a {type(value).__name__}")
