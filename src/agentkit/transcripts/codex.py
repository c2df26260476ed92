"""Codex rollouts (JSONL): items of the responses API, each in a `payload`. Touches only its arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentkit.core.contracts.types import Message, mark
from agentkit.models.usage import read_usage

from .conversation import Conversation, split_prefix
from .items import Turns
from .openai_responses import is_compaction
from .report import Reporter
from .source import Source
from .transcript import Transcript

NAME = "codex"


def recognises(value: Any) -> bool:
    """Whether one line of a file gives the format away."""
    return (
        isinstance(value, Mapping) and isinstance(value.get("payload"), Mapping) and isinstance(value.get("type"), str)
    )


def read(source: Source) -> tuple[Transcript, ...]:
    """The conversation of a rollout."""
    reader = _Reader(source)
    for number, record in source.records():
        reader.take(record, source.place(number))
    return (reader.finish(),)


class _Reader:
    """Takes the lines of a rollout in order."""

    def __init__(self, source: Source) -> None:
        self.report = source.report
        self.conversation = Conversation(NAME, source.report)
        self.turns = Turns(self.conversation)
        self.replaced: list[Message] | None = None
        self.since = 0
        self.beside: list[Any] = []
        self.session: Mapping[str, Any] = {}
        self.total: Any = None

    def take(self, record: Any, place: str) -> None:
        payload = record.get("payload") if isinstance(record, Mapping) else None
        kind = record.get("type") if isinstance(record, Mapping) else None
        time = record.get("timestamp") if isinstance(record, Mapping) else None
        if not isinstance(payload, Mapping):
            self.report.note("unknown record", place, "kept in meta", "a line without a payload")
            self.beside.append(record)
        elif kind == "response_item":
            self.turns.take(payload, place, time)
        elif kind == "compacted":
            self._compact(payload, place)
        elif kind == "event_msg":
            self._take_event(payload, place, time)
        elif kind == "session_meta":
            self._begin(payload, place)
        else:
            if kind == "turn_context" and isinstance(payload.get("model"), str):
                self.turns.model = payload["model"]
            known = kind in ("turn_context", "world_state")
            self.report.note(
                "side record" if known else "unknown record", place, "kept in meta", f"kind {str(kind)[:40]!r}"
            )
            self.beside.append(record)

    def _begin(self, payload: Mapping[str, Any], place: str) -> None:
        if self.session:
            self.report.note("side record", place, "kept in meta", "a further session_meta")
            self.beside.append(payload)
            return
        self.session = payload
        base = payload.get("base_instructions")
        text = base.get("text") if isinstance(base, Mapping) else None
        if isinstance(text, str) and text and not self.conversation.history:
            self.conversation.add(Message("system", text), place)

    def _take_event(self, payload: Mapping[str, Any], place: str, time: Any) -> None:
        kind, info = payload.get("type"), payload.get("info")
        if kind != "token_count":
            self.report.note("display copy", place, "left out", f"event {str(kind)[:40]!r}")
            return
        last = info.get("last_token_usage") if isinstance(info, Mapping) else None
        if not isinstance(last, Mapping) or not isinstance(info, Mapping):
            return
        total = info.get("total_token_usage")
        if total is not None and total == self.total:
            return  # the same figures again, since a rate limit moved
        self.total = total
        self.turns.flush()
        reading = read_usage(last, "codex")
        self.conversation.respond(self.turns.last_turn, reading, model=self.turns.model, time=time, place=place)

    def _compact(self, payload: Mapping[str, Any], place: str) -> None:
        self.turns.flush()
        text, items = payload.get("message"), payload.get("replacement_history")
        start = split_prefix(self.conversation.history)[1]
        covers = len(self.conversation.history) - start if self.replaced is None else self._length()
        summary: Message | None = None
        if isinstance(items, list):
            self.replaced = self._read_replacement(items)
            native = next((m for m in self.replaced if any(is_compaction(b) for b in m.blocks)), None)
            summary = Message("user", blocks=native.blocks) if native is not None and not text else None
        if summary is None:
            summary = Message("user", text if isinstance(text, str) else "")
        summary = mark(summary, "summary", covers=covers)
        index = self.conversation.add(summary, place, in_context=bool(summary.content or summary.blocks))
        if not isinstance(items, list):
            self.replaced = [summary] if summary.content else []
        self.conversation.compact(index, payload.get("trigger"))
        self.since = index + 1
        self.report.note("compaction", place, "the context starts with what it kept", "a recorded compaction")

    def _read_replacement(self, items: list[Any]) -> list[Message]:
        """The messages that a compaction put in place of the history."""
        probe = Conversation(NAME, Reporter())
        turns = Turns(probe)
        turns.model = self.turns.model
        for item in items:
            turns.take(item, "replacement history")
        turns.flush()
        return probe.history

    def _length(self) -> int:
        return len(self.replaced or ()) + len(self.conversation.history) - self.since

    def finish(self) -> Transcript:
        self.turns.flush()
        context = None
        if self.replaced is not None:
            context = [*self.replaced, *self.conversation.history[self.since :]]
        id = self.session.get("id", self.session.get("session_id"))
        meta = {"session": self.session or None, "records": self.beside or None}
        return self.conversation.finish(id=id if isinstance(id, str) else "", meta=meta, context=context)
