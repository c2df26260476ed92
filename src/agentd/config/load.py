"""From files, environment and flags to settings, or to all that is wrong with them at once.

Reads the files that are named, and those of secrets; opens nothing else, and writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from os import PathLike
from typing import Any

from pydantic import ValidationError

from agentd.config import explain, keys
from agentd.config.faults import NOWHERE, ConfigError, Fault, Path
from agentd.config.merge import Node, merge_patch, plain, reached
from agentd.config.rules import RULES, Finding, Rule, unsupported
from agentd.config.secrets import resolver
from agentd.config.section import section_of
from agentd.config.settings import Settings
from agentd.config.sources import Flag, Gathered, gather

_ROUNDS = 4
"""Times a draft is mended before its rules are looked at; mending once is enough unless a fault hides another."""


def load(
    files: Sequence[str | PathLike[str]] = (),
    *,
    environ: Mapping[str, str],
    flags: Iterable[Flag] = (),
    rules: Sequence[Rule] = (),
    release: Rule = unsupported,
) -> Settings:
    """The settings that the files (later ones laid over earlier ones), `AGENTD_` variables and flags give.

    `rules` are those of other rooms (that a template parses, say), `release` names what this release does not support.
    Raises ConfigError with every fault: of reading, of single keys and of rules between them. A rule that rests on a
    faulty key is left out, since it would judge a value that nobody gave.
    """
    gathered = gather(files, environ, flags)
    faults = [*gathered.faults, *_unknown_nulls(gathered)]
    # The section without defaults: not it is named as missing, but its keys.
    tree = merge_patch(Node({"intelligence": Node({}, NOWHERE)}, NOWHERE), gathered.tree)
    data = plain(tree)
    resolve = resolver(environ)
    settings, errors = _validated(data, resolve)
    bad: set[Path] = {fault.path for fault in faults if fault.path}
    for error in errors:
        fault = explain.fault(error, tree)
        # What could not be read is not missing too.
        if error["type"] != "missing" or (gathered.is_whole and not _touches(fault.path, bad)):
            faults.append(fault)
        bad.add(fault.path)
    if gathered.is_whole:
        draft = settings if settings is not None else _mended(data, errors)
        if draft is not None:
            found = (finding for rule in (*RULES, release, *rules) for finding in rule(draft))
            faults += [_placed(finding, tree) for finding in found if not _rests_on(finding, bad)]
    if faults or settings is None:
        raise ConfigError(_in_order(faults, gathered.order))
    return settings


def _validated(data: Any, resolve: Any) -> tuple[Settings | None, list[Any]]:
    try:
        return Settings.model_validate(data, context={"resolve": resolve}), []
    except ValidationError as error:
        return None, error.errors(include_url=False)


def _unknown_nulls(gathered: Gathered) -> Iterator[Fault]:
    for path, origin in gathered.nulls:
        if not keys.types_at(path):
            yield Fault(origin, path, "an unknown key", keys.suggestion(path))


# -- rules over a document with faults ---------------------------------------------------------------------------------


def _mended(data: Any, errors: list[Any]) -> Settings | None:
    """Settings in which every faulty value is replaced by its default, or by an example where it is required: a value
    to run the other keys' rules with, never one to start with. None if that fails."""
    data = _mutable(data)
    for _ in range(_ROUNDS):
        for error in errors:
            _mend(data, _path_in(data, error))
        settings, errors = _validated(_immutable(data), lambda kind, name: "-")
        if settings is not None:
            return settings
    return None


def _path_in(data: Any, error: Any) -> Path:
    """The path of an error in the data, with the name of what is missing."""
    path: Path = ()
    for step in error["loc"]:
        is_item = isinstance(data, list) and isinstance(step, int) and step < len(data)
        if is_item or (isinstance(data, dict) and step in data):
            data, path = data[step], (*path, step)
    return (*path, error["loc"][-1]) if error["type"] == "missing" else path


def _mend(data: Any, path: Path) -> None:
    """Put an example at `path`, or take away what is there; a list loses no item, so that places stay what they are."""
    for depth in range(len(path), 0, -1):
        parent, step = _walked(data, path[: depth - 1]), path[depth - 1]
        example = _example(path[:depth])
        if isinstance(parent, dict):
            if example is None:
                parent.pop(step, None)
            else:
                parent[step] = _mutable(example)
            return
        if isinstance(parent, list) and isinstance(step, int) and step < len(parent):
            section = section_of(_only(keys.types_at(path[:depth])))
            if section is not None:
                parent[step] = {
                    name: _mutable(field.examples[0]) for name, field in section.model_fields.items() if field.examples
                }
                return
            parent[step] = "-"
            return


def _example(path: Path) -> Any:
    parent = section_of(_only(keys.types_at(path[:-1])))
    field = parent.model_fields.get(str(path[-1])) if parent is not None else None
    return field.examples[0] if field is not None and field.is_required() and field.examples else None


def _only(kinds: tuple[Any, ...]) -> Any:
    sections = [kind for kind in kinds if section_of(kind) is not None]
    return sections[0] if sections else None


def _walked(data: Any, path: Path) -> Any:
    for step in path:
        data = data.get(step) if isinstance(data, dict) else data[step] if isinstance(step, int) else None
    return data


def _mutable(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _mutable(item) for key, item in value.items()}
    return [_mutable(item) for item in value] if isinstance(value, tuple | list) else value


def _immutable(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _immutable(item) for key, item in value.items()}
    return tuple(_immutable(item) for item in value) if isinstance(value, list) else value


def _rests_on(finding: Finding, bad: set[Path]) -> bool:
    return any(_touches(path, bad) for path in (finding.path, *finding.uses))


def _touches(path: Path, bad: set[Path]) -> bool:
    """Whether a faulty key is this one, part of it, or what it is part of."""
    return any(path[: len(fault)] == fault or fault[: len(path)] == path for fault in bad)


def _placed(finding: Finding, tree: Node) -> Fault:
    """A finding with the place that gave its key, or else a key that it rests on, or what its key is part of."""
    for path in (finding.path, *finding.uses):
        node, found = reached(tree, path)
        if found == path:
            return Fault(node.origin, finding.path, finding.found, finding.want)
    return Fault(reached(tree, finding.path)[0].origin, finding.path, finding.found, finding.want)


def _in_order(faults: list[Fault], sources: list[str]) -> list[Fault]:
    """By source as they were laid over each other, and within one by line."""
    return sorted(dict.fromkeys(faults), key=lambda fault: (sources.index(fault.origin.source), fault.origin.line or 0))
