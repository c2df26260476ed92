"""Text of a YAML or JSON document into a tree with lines. Touches its arguments only.

YAML's notation with JSON's values: a plain scalar is null, true, false or a number exactly where JSON has one, all else
is text. So `on`, `no`, `12:30:45` and `010` are text, and `1e3` is a number. A repeated key is a fault. Anchors and
aliases work, within MAX_NODES; merge keys (`<<`) and tags other than `!!str` are refused: neither is JSON's, and `-c`
given twice does what merge keys are for.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

import yaml  # type: ignore[import-untyped]

from agentd.config.faults import Fault, Origin, Path, clipped
from agentd.config.merge import Node, Value

MAX_BYTES = 1 << 20
"""Bytes of one document. Ten times the longest template an agent may have, and few enough to be read in seconds."""
MAX_NODES = 100_000
"""Values of one document, an alias counted as often as it is used: ten aliases of ten aliases of ... stay harmless."""
MAX_DEPTH = 64
"""Levels of nesting, far under the interpreter's own limit."""

_PLAIN, _TEXT = "agentd:plain", "tag:yaml.org,2002:str"
_LIST, _MAPPING = "tag:yaml.org,2002:seq", "tag:yaml.org,2002:map"
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_MAX_DIGITS = 400
"""Characters of a number: a float ends at 309 digits, and Python refuses to read integers of thousands."""


class _Deep(Exception):
    def __init__(self, line: int) -> None:
        self.line = line


class _Endless(Exception):
    def __init__(self, line: int) -> None:
        self.line = line


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """Composes only, and marks plain scalars instead of guessing their type."""

    depth = 0

    def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
        if kind is yaml.ScalarNode:
            return _PLAIN if implicit[0] else _TEXT
        return super().resolve(kind, value, implicit)

    def compose_node(self, parent: Any, index: Any) -> Any:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise _Deep(self.peek_event().start_mark.line + 1)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


def read_document(data: bytes, source: str) -> tuple[Node | None, list[Fault]]:
    """The document in the bytes of a file, and its faults; None if it is no mapping at all. An empty one is {}."""
    if len(data) > MAX_BYTES:
        return None, [Fault(Origin(source), (), f"{len(data)} bytes", f"a document has at most {MAX_BYTES}")]
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        return None, [Fault(Origin(source, line), (), "bytes that are not UTF-8", "a document is UTF-8 text")]
    node, faults = read_text(text, source, lines=True)
    if node is None or node.value is None:
        return (None if faults else Node({}, Origin(source, 1))), faults
    if not isinstance(node.value, dict):
        found = f"{kind_of(node.value)} at the top"
        return None, [*faults, Fault(Origin(source, 1), (), found, "a document is a mapping of sections")]
    return node, faults


def read_text(text: str, source: str, *, lines: bool = False, at: Path = ()) -> tuple[Node | None, list[Fault]]:
    """One value in this notation, and its faults; None if it cannot be read. `lines`: origins carry line numbers."""
    try:
        loader = _Loader(_json_with_spaces(text))
        try:
            composed = loader.get_single_node()
        finally:
            loader.dispose()
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        return None, [Fault(_origin(source, line, lines), at, "a character that YAML does not allow", "escape it")]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        found = f"not YAML: {_harmless(str(error.problem or error.context))}"
        where = _origin(source, mark.line + 1 if mark is not None else 1, lines)
        return None, [Fault(where, at, found, "a document is YAML or JSON")]
    except _Deep as error:
        return None, [Fault(_origin(source, error.line, lines), at, "nested too deeply", f"at most {MAX_DEPTH} levels")]
    except (yaml.YAMLError, ValueError, OverflowError):
        # An escape beyond Unicode ("\UFFFFFFFF") or a version directive of thousands of digits, which the parser hands
        # to chr() and int() as they are.
        return None, [Fault(Origin(source), at, "not YAML: an escape or a number out of range", "YAML or JSON")]
    reader = _Reader(source, lines, at)
    if composed is None:
        return Node(None, _origin(source, 1, lines)), []
    try:
        return reader.node(composed, at, None), reader.faults
    except _Endless as error:
        where = _origin(source, error.line, lines)
        return None, [*reader.faults, Fault(where, at, f"more than {MAX_NODES} values", "use fewer aliases")]


class _Reader:
    """Turns composed nodes into a tree, collecting faults; what is faulty becomes null or is left out."""

    def __init__(self, source: str, lines: bool, at: Path) -> None:
        self.source, self.lines, self.base = source, lines, len(at)
        self.faults: list[Fault] = []
        self.open: set[int] = set()
        self.count = 0

    def node(self, composed: Any, path: Path, key: Any) -> Node:
        line = (key or composed).start_mark.line + 1
        origin = _origin(self.source, line, self.lines)
        self.count += 1
        if self.count > MAX_NODES:
            raise _Endless(line)
        if id(composed) in self.open:
            return self.fault(origin, path, "an alias of what it stands in", "an alias names an earlier value")
        if len(path) - self.base > MAX_DEPTH:
            return self.fault(origin, path, "nested too deeply", f"at most {MAX_DEPTH} levels")
        self.open.add(id(composed))
        try:
            return Node(self.value(composed, path, origin), origin)
        finally:
            self.open.discard(id(composed))

    def value(self, composed: Any, path: Path, origin: Origin) -> Value:
        if composed.tag not in (_PLAIN, _TEXT, _LIST, _MAPPING):
            self.fault(origin, path, "a tag", "values are JSON's; of YAML's tags only !!str is read")
            return None
        if isinstance(composed, yaml.SequenceNode):
            return [self.node(item, (*path, place), None) for place, item in enumerate(composed.value)]
        if isinstance(composed, yaml.MappingNode):
            return self.mapping(composed, path)
        return self.scalar(composed.value, path, origin, is_plain=composed.tag == _PLAIN)

    def mapping(self, composed: Any, path: Path) -> dict[str, Node]:
        members: dict[str, Node] = {}
        for key, item in composed.value:
            line = key.start_mark.line + 1
            origin = _origin(self.source, line, self.lines)
            if not isinstance(key, yaml.ScalarNode) or key.tag not in (_PLAIN, _TEXT):
                self.fault(origin, path, "a key that is no text", "keys are text, as in JSON")
                continue
            name = self.scalar(key.value, path, origin, is_plain=False)
            if not isinstance(name, str):
                continue
            if name == "<<" and key.tag == _PLAIN:
                self.fault(origin, (*path, name), "a merge key", "give a second file with -c, or repeat the keys")
                continue
            if name in members:
                first = members[name].origin.line
                found = f"repeated key {clipped(name)!r}" + (f", first on line {first}" if first is not None else "")
                self.fault(origin, (*path, name), found, "give it once")
                continue
            members[name] = self.node(item, (*path, name), key)
        return members

    def scalar(self, text: str, path: Path, origin: Origin, *, is_plain: bool) -> Value:
        if is_plain:
            if text in _WORDS:
                return _WORDS[text]
            if _NUMBER.fullmatch(text):
                value = _number(text)
                if value is None:
                    self.fault(origin, path, "a number out of range", "numbers fit a 64-bit float")
                return value
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            # JSON writes a character beyond the first 65,536 as a pair of escapes, which YAML reads as two.
            try:
                return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
            except UnicodeDecodeError:
                self.fault(origin, path, "text with half a surrogate pair", "text is Unicode")
                return None
        return text

    def fault(self, origin: Origin, path: Path, found: str, want: str) -> Node:
        self.faults.append(Fault(origin, path, found, want))
        return Node(None, origin)


_WORDS: dict[str, bool | None] = {"": None, "null": None, "true": True, "false": False}


def kind_of(value: object) -> str:
    """What a value is called in messages that must not show it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return "text"
    if isinstance(value, int | float):
        return "a number"
    return "a mapping" if isinstance(value, dict) else "a list"


def _number(text: str) -> int | float | None:
    """JSON has one kind of number, so 1e3 and 1.0 are integers; None where a float would be infinite."""
    if len(text) > _MAX_DIGITS:
        return None
    value = float(text)
    if not math.isfinite(value):
        return None
    if text.lstrip("-").isdigit():
        return int(text)
    return int(value) if value.is_integer() else value


def _origin(source: str, line: int, lines: bool) -> Origin:
    return Origin(source, line if lines else None)


def _json_with_spaces(text: str) -> str:
    """JSON may be indented with tabs, YAML may not; in valid JSON every tab stands between values."""
    if "\t" in text and text.lstrip().startswith("{"):
        try:
            json.loads(text)
        except (ValueError, RecursionError):
            return text
        return text.replace("\t", " ")
    return text


def _harmless(problem: str) -> str:
    """The parser's complaint up to the first piece of the document that it quotes: that may be part of a secret."""
    quoted = re.search(r"""['"](?!<[a-z ]+>')(?!.['"])""", problem)
    return problem if quoted is None else f"{problem[: quoted.start()]}…"
