"""Claude Code sessions (JSONL), and the stream of its SDK. Touches only its arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agentkit.core.contracts.frozen import FrozenDict
from agentkit.core.contracts.types import Message, ToolCall, mark
from agentkit.models.usage import UsageReading, read_usage

from .claude_records import Draft, Node, Records, Tree
from .claude_tree import Walk, leaf_of
from .conversation import Conversation
from .report import Reporter
from .source import Source
from .transcript import CallLink, Transcript

NAME = "claude-code"

MOST_CHARACTERS = 20
"""Characters that one token of output can stand for on average; a response of more was never counted to its end."""


def recognises(record: Any) -> bool:
    """Whether one line of a file gives the format away."""
    if not isinstance(record, Mapping):
        return False
    if "leafUuid" in record or ("sessionId" in record and "uuid" in record):
        return True
    return "session_id" in record and record.get("type") in ("system", "user", "assistant", "result", "stream_event")


def read(source: Source) -> tuple[Transcript, ...]:
    """The main conversation of a session, and one for each sub-agent that is recorded in the same file."""
    records = Records(source.report, source.unit)
    for number, record in source.plain_records():
        records.take(number, record)
    main = records.trees.pop("")
    session = records.about.get("session")
    session = session if isinstance(session, str) else ""
    transcripts: list[Transcript] = []
    if main.nodes or not records.trees:
        leaf = leaf_of(main, records.by_uuid, records.leaf)
        reader = _Reader(main, records, source.report, Walk(main, records.by_uuid, leaf, source.broken_lines))
        transcripts.append(reader.read(session, _title(records), _about(records), None))
    starters = _starters(main) if records.trees else {}
    for tree in records.trees.values():
        report = Reporter() if transcripts else source.report
        reader = _Reader(tree, records, report, Walk(tree, records.by_uuid, tree.nodes[-1], source.broken_lines))
        about = _about(records) if not transcripts else {"session": session}
        parent = CallLink(session, _call_that_started(tree, main, starters))
        transcripts.append(reader.read(f"{session}/{tree.key}", "", about, parent))
    return tuple(transcripts)


class _Reader:
    """Makes a conversation of one tree's path."""

    def __init__(self, tree: Tree, records: Records, report: Reporter, walk: Walk) -> None:
        self.tree, self.records, self.report, self.walk = tree, records, report, walk
        self.conversation = Conversation(NAME, report)
        self.placed: dict[Node, list[int]] = {}
        self.compactions: list[tuple[int, Mapping[str, Any], set[int]]] = []
        self.by_time: dict[str, list[Node]] = {}
        self.boundary: Node | None = None

    def read(self, id: str, label: str, meta: Mapping[str, Any], parent: CallLink | None) -> Transcript:
        for node in self.walk.bridged:
            reason = "its parent is on a line that could not be read"
            self.report.repair("link broken", node.place, "linked to the record before that line", reason)
        for node in self.walk.nodes:
            self._add(node)
        for index, data, kept in self.compactions:
            before = data.get("preTokens", data.get("pre_tokens"))
            after = data.get("postTokens", data.get("post_tokens"))
            self.conversation.compact(index, data.get("trigger"), before, after, kept)
        self._leave_out()
        if self.conversation.responses:
            reason = "the file has neither system prompt nor tools; reported usage counts them"
            self.report.note("prompt not recorded", "the whole file", "sizes need the reported usage", reason)
        return self.conversation.finish(id=id, label=label, meta=meta, parent=parent)

    def _add(self, node: Node) -> None:
        if node.boundary is not None:
            self.boundary = node
            return
        if node.draft is not None:
            places = [self._add_response(node.draft)]
        elif self.boundary is not None and not node.is_summary and (copied := self._earlier(node)) is not None:
            self.report.note("duplicate skipped", node.place, "the first one was kept", "written again by a compaction")
            places = copied
            if self.compactions:
                self.compactions[-1][2].update(copied)
        else:
            add = self._add_summary if node.is_summary else self._add_plain
            places = [add(message, node) for message in node.messages]
            if self.tree.boundaries and isinstance(node.time, str):
                self.by_time.setdefault(node.time, []).append(node)
        if self.tree.boundaries:  # nothing else asks what became of a record
            self.placed[node] = places
        else:
            node.messages = ()

    def _add_response(self, draft: Draft) -> int:
        if draft.index is not None:
            if self.compactions and draft.index < self.compactions[-1][0]:
                self.compactions[-1][2].add(draft.index)
            return draft.index
        message = draft.build(self.report)
        draft.index = self.conversation.add(message, draft.place, in_context=not draft.is_made_up)
        if draft.is_made_up:
            self.report.note("client message", draft.place, "left out of the context", "made up by the client")
        else:
            self._respond(draft, message, draft.index)
        return draft.index

    def _respond(self, draft: Draft, message: Message | None, index: int | None) -> None:
        reading, said = _reading(draft), draft.message
        # The final count comes with the reason for stopping, so without one it may be that of an unfinished stream.
        if reading is not None and message is not None and said.get("stop_reason") is None:
            size = _characters(message)
            if size > MOST_CHARACTERS * reading.usage.output_tokens:
                reason = (
                    f"{reading.usage.output_tokens} tokens of output for {size} characters: never counted to the end"
                )
                self.report.repair("usage doubtful", draft.place, "counted as recorded", reason)
                reading = replace(reading, flags=(*reading.flags, "unfinished"), anchor=None)
        self.conversation.respond(
            index, reading, model=said.get("model"), time=draft.time, id=draft.id, place=draft.place
        )

    def _add_plain(self, message: Message, node: Node) -> int:
        return self.conversation.add(message, node.place)

    def _add_summary(self, message: Message, node: Node) -> int:
        data: Mapping[str, Any] = FrozenDict()
        kept: set[int] = set()
        if self.boundary is not None:
            data = self.boundary.boundary or data
            for record in self.walk.kept_by(self.boundary):
                kept.update(self.placed.get(record, ()))
        start, _, still = self.compactions[-1] if self.compactions else (0, {}, set())
        covered = len(self.conversation.history) - start + len(still) - len(kept)
        index = self.conversation.add(mark(message, "summary", covers=max(covered, 0)), node.place)
        self.compactions.append((index, data, kept))
        return index

    def _earlier(self, node: Node) -> list[int] | None:
        """Where the same messages stand already, if a compaction wrote this record again: with its older time."""
        boundary = self.boundary
        if (
            boundary is None
            or not node.messages
            or not isinstance(node.time, str)
            or not isinstance(boundary.time, str)
        ):
            return None
        if node.time >= boundary.time:
            return None
        for earlier in self.by_time.get(node.time, ()):
            if earlier.messages == node.messages:
                return self.placed[earlier]
        return None

    def _leave_out(self) -> None:
        drafts: dict[int, Draft] = {}
        for node in self.walk.left_out:
            if node.messages or node.draft is not None:
                self.report.note("branch left out", node.place, "not in the history", "rewound or edited: off the path")
            if node.draft is not None and not node.draft.is_made_up:
                drafts[id(node.draft)] = node.draft
        for draft in drafts.values():
            self._respond(draft, None, None)


def _reading(draft: Draft) -> UsageReading | None:
    if draft.usage is None:
        return None
    reading = read_usage(draft.usage, "anthropic")
    cost = draft.cost
    if isinstance(cost, (int, float)) and not isinstance(cost, bool) and 0 <= cost < 1e9:
        reading = replace(reading, usage=replace(reading.usage, cost_usd=cost))
    return reading


def _characters(message: Message) -> int:
    """Characters of what the model wrote; those of arguments without their JSON punctuation."""
    size = len(message.content)
    for call in message.tool_calls:
        for value in call.arguments.values():
            size += len(value) if type(value) is str else _leaves(value)
    return size


def _leaves(value: Any) -> int:
    size = 0
    work = [value]
    while work:
        item = work.pop()
        if isinstance(item, str):
            size += len(item)
        elif isinstance(item, dict):
            size += sum(map(len, item))
            work.extend(item.values())
        elif isinstance(item, list):
            work.extend(item)
        else:
            size += 1
    return size


def _title(records: Records) -> str:
    """The title of the session: one that names a record of this file, or none at all."""
    found = [title for leaf, title in records.titles.items() if not leaf or leaf in records.by_uuid]
    return found[-1] if found else ""


def _about(records: Records) -> dict[str, Any]:
    titles = list(records.titles.values())
    return {**records.about, "titles": titles or None, "records": records.side or None}


def _starters(main: Tree) -> dict[str, str]:
    """Prompts given to calls of the main conversation, and the calls' ids."""
    found: dict[str, str] = {}
    for draft in main.drafts.values():
        for part in draft.parts:
            if isinstance(part, ToolCall) and isinstance(prompt := part.arguments.get("prompt"), str):
                found.setdefault(prompt, part.id)
    return found


def _call_that_started(tree: Tree, main: Tree, starters: Mapping[str, str]) -> str | None:
    """The call in the main conversation whose work this sub-agent is: as recorded, or else by its prompt."""
    if tree.key in main.names:
        return tree.key
    if tree.key in main.result_agents:
        return main.result_agents[tree.key] or None
    return starters.get(next((node.messages[0].content for node in tree.nodes if node.messages), ""))
