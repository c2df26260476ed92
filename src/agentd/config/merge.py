"""Documents as trees that know where each value came from, and how one is laid over another. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from agentd.config.faults import Origin, Path

Value: TypeAlias = "bool | int | float | str | dict[str, Node] | list[Node] | None"


@dataclass(frozen=True, slots=True)
class Node:
    """A JSON value with the place that gave it: for a member of a mapping its key's, for an item its own."""

    value: Value
    origin: Origin


def merge_patch(target: Node | None, patch: Node) -> Node:
    """`patch` applied to `target` (None: nothing there yet) by JSON Merge Patch, RFC 7396.

    Mappings merge member by member, null takes a member away, anything else, a list too, replaces what was there. A
    mapping that merges keeps the origin of the one below.
    """
    if not isinstance(patch.value, dict):
        return patch
    is_mapping = target is not None and isinstance(target.value, dict)
    merged: dict[str, Node] = {}
    if target is not None and isinstance(target.value, dict):
        merged.update(target.value)
    for key, node in patch.value.items():
        if node.value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), node)
    return Node(merged, target.origin if target is not None and is_mapping else patch.origin)


def nested(path: Path, node: Node) -> Node:
    """The patch that gives `path` (keys only) this value."""
    for key in reversed(path):
        node = Node({str(key): node}, node.origin)
    return node


def plain(node: Node) -> Any:
    """Dicts, tuples and scalars, without origins. Tuples, since settings are frozen and strict checks convert none."""
    if isinstance(node.value, dict):
        return {key: plain(child) for key, child in node.value.items()}
    if isinstance(node.value, list):
        return tuple(plain(child) for child in node.value)
    return node.value


def reached(root: Node, path: Path) -> tuple[Node, Path]:
    """The node at `path`, or the deepest one on the way to it, and the part of the path that leads there."""
    node = root
    for depth, step in enumerate(path):
        child: Node | None = None
        if isinstance(node.value, dict) and isinstance(step, str):
            child = node.value.get(step)
        elif isinstance(node.value, list) and isinstance(step, int) and step < len(node.value):
            child = node.value[step]
        if child is None:
            return node, path[:depth]
        node = child
    return node, path


def null_paths(node: Node, at: Path = ()) -> list[tuple[Path, Origin]]:
    """Members that are null, which a merge takes away: their keys have to be known all the same."""
    if not isinstance(node.value, dict):
        return []
    found: list[tuple[Path, Origin]] = []
    for key, child in node.value.items():
        found += [((*at, key), child.origin)] if child.value is None else null_paths(child, (*at, key))
    return found
