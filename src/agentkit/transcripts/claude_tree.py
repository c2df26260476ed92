"""Walking a Claude Code tree from its leaf to its root: what belongs to the conversation, and in which order.

Touches only its arguments.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agentkit.core.contracts.types import ToolCall

from .claude_records import Draft, Node, Tree


class Walk:
    """The path of one tree. `nodes`: what belongs to it, in order. `left_out`: what is on branches off it.

    `bridged`: nodes whose parent is on a line that could not be read and that were linked to what stood before it.
    """

    def __init__(self, tree: Tree, by_uuid: Mapping[str, Node], leaf: Node | None, broken_lines: Sequence[int]) -> None:
        self._tree, self._by_uuid, self._broken = tree, by_uuid, broken_lines
        self._lines = [node.line for node in tree.nodes]
        self._boundary_lines = [node.line for node in tree.boundaries]
        self._kept = {boundary: self._read_kept(boundary) for boundary in tree.boundaries}
        self._summaries = _summaries(tree)
        self.bridged: list[Node] = []
        self.left_out: list[Node] = []
        path = self._climb(leaf) if leaf is not None else []
        self.nodes = path if len(path) == len(tree.nodes) else self._with_answers(path)

    def kept_by(self, boundary: Node) -> Iterable[Node]:
        """The records that a compaction left in the context beside its summary, as its boundary names them."""
        return self._kept[boundary]

    def _read_kept(self, boundary: Node) -> dict[Node, None]:
        data = boundary.boundary or {}
        named = data.get("preservedMessages", data.get("preserved_messages"))
        uuids = named.get("uuids") if isinstance(named, Mapping) else None
        if isinstance(uuids, list):
            return {node: None for uuid in uuids if (node := self._find(uuid)) is not None}
        segment = data.get("preservedSegment", data.get("preserved_segment"))
        if not isinstance(segment, Mapping):
            return {}
        head = self._find(segment.get("headUuid", segment.get("head_uuid")))
        node = self._find(segment.get("tailUuid", segment.get("tail_uuid")))
        kept: dict[Node, None] = {}
        while node is not None and node not in kept and node.line < boundary.line:
            kept[node] = None
            if node is head:
                return kept
            node = self._find(node.parent)
        return {}

    def _find(self, uuid: Any) -> Node | None:
        return self._by_uuid.get(uuid) if isinstance(uuid, str) else None

    def _climb(self, leaf: Node) -> list[Node]:
        path: list[Node] = []
        seen: set[Node] = set()
        node: Node | None = leaf
        while node is not None and node not in seen:
            path.append(node)
            seen.add(node)
            node = self._above(node, seen)
        path.reverse()
        return path

    def _above(self, node: Node, seen: set[Node]) -> Node | None:
        if node.parent is None:
            if node.is_summary:  # older versions write a summary without a boundary in front
                return self._before(node.line)
            return None
        above = self._by_uuid.get(node.parent)
        if above is None:
            return self._bridge(node)
        at = bisect_left(self._boundary_lines, node.line)
        boundary = self._tree.boundaries[at - 1] if at else None
        is_between = boundary is not None and above.line < boundary.line and boundary not in seen
        if boundary is None or not is_between or not (above.uuid == boundary.parent or above in self._kept[boundary]):
            return above
        # What follows a compaction may hang on a record that it kept; its context begins with the summary all the same.
        return self._summaries.get(boundary, boundary)

    def _bridge(self, node: Node) -> Node | None:
        at = bisect_left(self._broken, node.line)
        found = self._before(self._broken[at - 1]) if at else None
        if found is not None:
            self.bridged.append(node)
        return found

    def _before(self, line: int) -> Node | None:
        at = bisect_left(self._lines, line)
        return self._tree.nodes[at - 1] if at else None

    def _with_answers(self, path: list[Node]) -> list[Node]:
        """The path with the results of its parallel calls, which hang on different records of one response."""
        ranks = {node: i for i, node in enumerate(path)}
        drafts = {id(node.draft) for node in path if node.draft is not None}
        open_calls = {call_id for node in path if node.draft is not None for call_id in _call_ids(node.draft)}
        open_calls -= {m.tool_call_id for node in path for m in node.messages}
        order = [(rank, node.line, node) for node, rank in ranks.items()]
        for node in self._tree.nodes:
            if node in ranks:
                continue
            above = self._find(node.parent)
            rank = ranks.get(above) if above is not None else None
            answers = {m.tool_call_id for m in node.messages if m.role == "tool"}
            if node.draft is not None and id(node.draft) in drafts:
                if rank is not None:
                    ranks[node] = rank
            elif rank is not None and answers and answers <= open_calls:
                order.append((rank, node.line, node))
                ranks[node] = rank
                open_calls -= answers
            else:
                self.left_out.append(node)
        order.sort(key=lambda entry: entry[:2])
        return [node for _, _, node in order]


def leaf_of(tree: Tree, by_uuid: Mapping[str, Node], told: tuple[int, str] | None) -> Node | None:
    """The last record of the conversation: the last one written, unless a later line says that it is another one."""
    last = tree.nodes[-1] if tree.nodes else None
    if last is None or told is None or told[0] < last.line:
        return last
    leaf = by_uuid.get(told[1])
    if leaf is None or leaf not in tree.nodes:
        return last
    node: Node | None = last
    seen: set[Node] = set()
    while node is not None and node not in seen:
        if node is leaf:
            return last  # what stands behind the leaf belongs to it: notices, attachments
        seen.add(node)
        node = by_uuid.get(node.parent) if node.parent is not None else None
    return leaf


def _summaries(tree: Tree) -> dict[Node, Node]:
    """For each boundary the next summary after it."""
    found: dict[Node, Node] = {}
    waiting: Node | None = None
    for node in tree.nodes if tree.boundaries else ():
        if node.boundary is not None:
            waiting = node
        elif waiting is not None and node.is_summary:
            found[waiting] = node
            waiting = None
    return found


def _call_ids(draft: Draft) -> list[str]:
    return [part.id for part in draft.parts if isinstance(part, ToolCall)]
