"""Where settings come from: files, environment, flags, each as a tree. Reads the files it is given."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from os import PathLike, fspath
from typing import TypeAlias

from agentd.config.document import MAX_BYTES, read_document, read_text
from agentd.config.faults import NOWHERE, Fault, Origin, Path, clipped
from agentd.config.keys import takes_reference, takes_text
from agentd.config.merge import Node, merge_patch, nested, null_paths

PREFIX = "AGENTD_"
SEAMS = frozenset({"AGENTD_KILL_AT", "AGENTD_TEST"})
"""Variables of the test seams: not read as configuration."""

Flag: TypeAlias = tuple[str, str]
"""`context.compact_at` and its text."""


class Gathered:
    """All sources laid over each other; `is_whole` unless a file could not be read as a document,
    `order` the sources in the order of laying."""

    def __init__(self) -> None:
        self.tree = Node({}, NOWHERE)
        self.faults: list[Fault] = []
        self.nulls: list[tuple[Path, Origin]] = []
        self.order: list[str] = [NOWHERE.source]
        self.is_whole = True

    def add(self, source: str, node: Node | None, faults: list[Fault]) -> None:
        """Lay a document over what is there."""
        self.order.append(source)
        self.faults += faults
        if node is None:
            self.is_whole = self.is_whole and all(fault.path for fault in faults)
            return
        self.nulls += null_paths(node)
        self.tree = merge_patch(self.tree, node)


def gather(files: Sequence[str | PathLike[str]], environ: Mapping[str, str], flags: Iterable[Flag]) -> Gathered:
    """Files in order, then the environment, then flags, as RFC 7396 merges them."""
    found = Gathered()
    for file in files:
        found.add(fspath(file), *_file(fspath(file)))
    for name, node, faults in _variables(environ):
        found.add(name, node, faults)
    for key, text in flags:
        name = f"--{clipped(key)}"
        found.add(name, *_given(tuple(key.split(".")), text, name))
    return found


def _file(name: str) -> tuple[Node | None, list[Fault]]:
    try:
        with open(name, "rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        found = f"cannot be read: {getattr(error, 'strerror', None) or 'no name of a file'}"
        return None, [Fault(Origin(name), (), found, "give a file that is there")]
    return read_document(data, name)


def _variables(environ: Mapping[str, str]) -> Iterator[tuple[str, Node | None, list[Fault]]]:
    """A whole section before its keys, so that the more precise variable wins."""
    chosen: dict[Path, str] = {}
    for name in sorted(environ, key=lambda name: (name.count("__"), name)):
        if not name.startswith(PREFIX) or name in SEAMS:
            continue
        path = tuple(name.removeprefix(PREFIX).lower().split("__"))
        if path in chosen:
            yield name, None, [Fault(Origin(name), path, f"also given as {chosen[path]}", "give it once, in capitals")]
            continue
        chosen[path] = name
        yield name, *_given(path, environ[name], name)


def _given(path: Path, text: str, source: str) -> tuple[Node | None, list[Fault]]:
    """Text stands for itself where the key takes text, else it is a value in the document's notation; `null` takes a
    key back to its default."""
    origin = Origin(source)
    is_text = takes_text(path) and not (takes_reference(path) and text.lstrip().startswith("{"))
    if is_text and text != "null":
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            return None, [Fault(origin, path, "bytes that are not UTF-8", "text is UTF-8")]
        return nested(path, Node(text, origin)), []
    if not text.strip():
        return None, [Fault(origin, path, "nothing", "give a value; null takes the key back to its default")]
    node, faults = read_text(text, source, at=path)
    return (None if node is None else nested(path, node)), faults
