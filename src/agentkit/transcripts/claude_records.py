"""Claude Code's records: each line a node of its tree, responses joined by their id. Touches only its arguments.

A session is a tree of records linked by `parentUuid`; a rewind or an edit starts a branch. One response is spread over
several records, one a block, whose usage repeats and grows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agentkit.core.contracts.frozen import FrozenDict, FrozenList
from agentkit.core.contracts.types import Block, Message, ToolCall

from .anthropic_shape import assemble, read_block, read_message, read_result
from .parsing import seal
from .parts import EMPTY
from .report import Reporter

CLIENT_MODEL = "<synthetic>"
"""The model that the client names for messages it made up itself (errors)."""

SIDE_RECORDS = frozenset(
    {
        "summary", "file-history-snapshot", "queue-operation", "last-prompt", "custom-title", "ai-title", "tag",
        "agent-name", "agent-color", "agent-setting", "mode", "permission-mode", "pr-link", "worktree-state",
        "content-replacement", "attribution-snapshot", "result", "rate_limit_event", "auth_status",
    }
)  # fmt: skip
"""Kinds of records that stand beside the conversation."""

_ECHOES = ("<command-name>", "<command-message>", "<command-args>", "<local-command-", "<bash-input>", "<bash-stdout>")
# How the client words a summary; the stream of its SDK has no other mark.
_CONTINUED = "This session is being continued from a previous conversation"
_TEXT_KEYS = ("content", "prompt", "text", "snippet", "message")


class Draft:
    """One response in the making: its blocks so far, and what its records say beside them."""

    __slots__ = ("cost", "id", "index", "is_made_up", "line", "message", "parts", "place", "records", "time", "usage")

    def __init__(self, id: str | None, line: int, place: str, time: Any) -> None:
        self.id, self.line, self.place, self.time = id, line, place, time
        self.index: int | None = None
        self.parts: list[str | Block | ToolCall] = []
        self.records: list[Any] = []
        self.message: Mapping[str, Any] = {}
        self.usage: Mapping[str, Any] | None = None
        self.cost: Any = None
        self.is_made_up = False

    def add(
        self, record: dict[str, Any], message: dict[str, Any], report: Reporter, place: str, *, is_copy: bool
    ) -> None:
        """Takes one record of the response. `is_copy`: it is written again, so blocks that are there come once.

        What is kept is sealed at once, while it is in the processor's cache; the record itself can go.
        """
        content = message.pop("content", None)
        for raw in content if isinstance(content, list) else [] if content is None else [content]:
            part = read_block(raw, report, place)
            if not (is_copy and part in self.parts):
                self.parts.append(part)
        self.is_made_up = record.get("isApiErrorMessage") is True or message.get("model") == CLIENT_MODEL
        # The last record wins: its usage has grown furthest.
        usage = message.pop("usage", None)
        if isinstance(usage, dict):
            self.usage = usage
        self.message = message
        self.cost = record.get("costUSD", self.cost)
        self.records.append(seal(record, report, place))

    def build(self, report: Reporter) -> Message:
        """The whole response as one message."""
        meta = {k: v for k, v in self.message.items() if v is not None}
        meta.pop("role", None)
        meta.pop("type", None)
        if self.time is not None:
            meta["time"] = self.time
        if self.usage is not None:
            meta["usage"] = self.usage
        meta["source"] = FrozenList(self.records)
        sealed = seal(meta, report, self.place)
        message = assemble("assistant", self.parts, sealed)
        # From now on the message has it all; what was gathered need not be there as well.
        self.message, self.usage, self.records = sealed, sealed.get("usage"), []
        self.parts = [*message.tool_calls]
        return message


class Node:
    """One record in its tree. `parent` is the uuid above it; `boundary` holds the data of a compaction boundary."""

    __slots__ = ("boundary", "draft", "is_summary", "line", "messages", "parent", "time", "tree", "uuid")

    def __init__(self, tree: Tree, uuid: str, parent: str | None, line: int, time: Any) -> None:
        self.tree, self.uuid, self.parent, self.line, self.time = tree, uuid, parent, line, time
        self.draft: Draft | None = None
        self.messages: Sequence[Message] = ()
        self.boundary: Mapping[str, Any] | None = None
        self.is_summary = False

    @property
    def place(self) -> str:
        return f"{self.tree.unit} {self.line}"


class Tree:
    """The records of one conversation: the main one, or a sub-agent's."""

    def __init__(self, key: str, unit: str) -> None:
        self.key, self.unit = key, unit
        self.nodes: list[Node] = []
        self.drafts: dict[str, Draft] = {}
        self.names: dict[str, str] = {}
        self.boundaries: list[Node] = []
        self.result_agents: dict[str, str] = {}
        """Which call a sub-agent's id was reported for."""


class Records:
    """All records of a file, sorted into trees."""

    def __init__(self, report: Reporter, unit: str) -> None:
        self.report, self.unit = report, unit
        self.by_uuid: dict[str, Node] = {}
        self.trees: dict[str, Tree] = {"": Tree("", unit)}
        self.side: list[dict[str, Any]] = []
        self.leaf: tuple[int, str] | None = None
        self.about: dict[str, Any] = {}
        self.titles: dict[str, str] = {}

    def take(self, line: int, record: Any) -> None:
        place = f"{self.unit} {line}"
        if not isinstance(record, dict):
            self._keep(line, place, record, "unknown record", "a value that is no object")
            return
        message, kind = record.get("message"), record.get("type")
        if kind != "user" and kind != "assistant" and isinstance(message, dict) and "type" not in record:
            kind = message.get("role")
        if (kind == "user" or kind == "assistant") and isinstance(message, dict):
            node = self._node(line, place, record)
            if node is None:
                return
            del record["message"]
            message = dict(message) if type(message) is not dict else message
            if kind == "assistant":
                self._take_assistant(node, place, record, message)
            else:
                self._take_user(node, place, record, message)
        else:
            self._take_other(line, place, record, kind)

    def _node(self, line: int, place: str, record: dict[str, Any]) -> Node | None:
        """The record's node, linked into its tree; None when the record is there already."""
        uuid, parent = record.get("uuid"), record.get("parentUuid")
        if type(uuid) is not str or not uuid:
            uuid = f"line {line}"
        elif uuid in self.by_uuid:
            self.report.note("duplicate skipped", place, "the first one was kept", "a record with the same uuid")
            return None
        tree = self._tree(uuid, parent, record)
        if parent is None and "parentUuid" not in record:  # a stream without links: the order of the file counts
            parent = tree.nodes[-1].uuid if tree.nodes else None
        if not self.about:
            self._note_session(record)
        node = Node(tree, uuid, parent if type(parent) is str else None, line, record.get("timestamp"))
        tree.nodes.append(node)
        self.by_uuid[uuid] = node
        return node

    def _tree(self, uuid: str, parent: Any, record: dict[str, Any]) -> Tree:
        is_sidechain = record.get("isSidechain") is True
        key = record.get("parent_tool_use_id")
        if key is None and not is_sidechain:
            return self.trees[""]
        if type(key) is not str:
            if not is_sidechain:
                return self.trees[""]
            key = record.get("agentId")
            if type(key) is not str:
                above = self.by_uuid.get(parent) if type(parent) is str else None
                if above is not None and above.tree.key:
                    return above.tree
                key = uuid
        tree = self.trees.get(key)
        if tree is None:
            tree = self.trees[key] = Tree(key, self.unit)
        return tree

    def _note_session(self, record: dict[str, Any]) -> None:
        session = record.get("sessionId", record.get("session_id"))
        if session is not None:
            found = {"session": session, **{k: record.get(k) for k in ("cwd", "version", "gitBranch")}}
            self.about = {k: v for k, v in found.items() if v is not None}

    def _take_assistant(self, node: Node, place: str, record: dict[str, Any], message: dict[str, Any]) -> None:
        tree = node.tree
        id = message.get("id")
        key = id if type(id) is str and id else node.uuid
        draft = tree.drafts.get(key)
        is_copy = False
        if draft is None:
            draft = tree.drafts[key] = Draft(id if type(id) is str else None, node.line, place, node.time)
        else:
            is_copy = bool(tree.boundaries) and draft.line < tree.boundaries[-1].line
            self.report.note("joined", place, "joined with the records before", "one response, several records")
        node.draft = draft
        known = len(draft.parts)
        draft.add(record, message, self.report, place, is_copy=is_copy)
        for part in draft.parts[known:]:
            if type(part) is ToolCall:
                tree.names[part.id] = part.name

    def _take_user(self, node: Node, place: str, record: dict[str, Any], message: dict[str, Any]) -> None:
        tree = node.tree
        content = message.get("content")
        fields: dict[str, Any] = {"source": record}
        if node.time is not None:
            fields["time"] = node.time
        follows = bool(tree.boundaries) and len(tree.nodes) > 1 and tree.nodes[-2] is tree.boundaries[-1]
        node.is_summary = record.get("isCompactSummary") is True or (follows and _text(content).startswith(_CONTINUED))
        if record.get("isMeta") is True or (type(content) is str and content.startswith(_ECHOES)):
            fields["injected"] = True
        meta: FrozenDict[str, Any] = seal(fields, self.report, place)
        if isinstance(content, list) and len(content) == 1 and _is_result(part := content[0]):
            call_id = part.get("tool_use_id")
            name = tree.names.get(call_id) if type(call_id) is str else None
            node.messages = [read_result(part, meta, self.report, place, name)]
            result = record.get("toolUseResult")
            if isinstance(result, dict) and type(agent := result.get("agentId")) is str:
                tree.result_agents[agent] = call_id if type(call_id) is str else ""
            return
        node.messages = read_message("user", content, meta, self.report, place)

    def _take_other(self, line: int, place: str, record: dict[str, Any], kind: Any) -> None:
        if kind == "last-prompt" and type(record.get("leafUuid")) is str:
            self.leaf = (line, record["leafUuid"])
        if kind in ("user", "assistant"):
            self.report.repair("field missing", place, "kept beside the conversation", f"a {kind} without `message`")
        if "uuid" not in record and kind != "attachment":
            self._keep_side(line, place, record, kind)
            return
        node = self._node(line, place, record)
        if node is None:
            return
        tree = node.tree
        if kind == "progress":
            self.report.note("progress skipped", place, "left out", "a display copy of work in progress")
            return
        if kind == "system" and record.get("subtype") == "compact_boundary":
            found = record.get("compactMetadata", record.get("compact_metadata"))
            node.boundary = found if isinstance(found, Mapping) else EMPTY
            logical = record.get("logicalParentUuid")
            node.parent = logical if type(logical) is str else tree.nodes[-2].uuid if len(tree.nodes) > 1 else None
            tree.boundaries.append(node)
        elif kind == "attachment":
            text = attached_text(record.get("attachment"))
            if text:
                meta = {"injected": True, "source": record, **({} if node.time is None else {"time": node.time})}
                node.messages = [Message("user", text, meta=seal(meta, self.report, place))]
                return
        what = "side record" if kind != "system" else "compaction" if node.boundary is not None else "system notice"
        self._keep(line, place, record, what, f"kind {str(kind)[:40]!r}")

    def _keep_side(self, line: int, place: str, record: dict[str, Any], kind: Any) -> None:
        title = next(
            (t for k in ("customTitle", "aiTitle", "title", "summary") if type(t := record.get(k)) is str), None
        )
        if title is not None and kind in ("summary", "custom-title", "ai-title"):
            leaf = record.get("leafUuid")
            self.titles[leaf if type(leaf) is str else ""] = title
        known = type(kind) is str and kind in SIDE_RECORDS
        what = kind if type(kind) is str else "none"
        self._keep(line, place, record, "side record" if known else "unknown record", f"kind {what[:40]!r}")

    def _keep(self, line: int, place: str, record: Any, kind: str, reason: str) -> None:
        self.report.note(kind, place, "kept in meta", reason)
        self.side.append(seal({"line": line, "record": record}, self.report, place))


def _is_result(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "tool_result"


def attached_text(attachment: Any) -> str:
    """The text for the model in an attachment, or none."""
    if not isinstance(attachment, dict):
        return ""
    for key in _TEXT_KEYS:
        text = _text(attachment.get(key))
        if text:
            return text
    return ""


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        inner = value.get("file", value)
        found = inner.get("content", inner.get("text")) if isinstance(inner, Mapping) else None
        return found if isinstance(found, str) else ""
    if isinstance(value, list):
        return "\n".join([text for part in value if (text := _text(part))])
    return ""
