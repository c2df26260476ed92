"""agentkit's own form of a transcript: JSON Lines, loss-free, one message a line. Touches only its arguments.

A conversation is a line that opens it, a line for each message of its history, and a line that closes it. Values are
spelled as the codec spells them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Any

from agentkit.core.contracts.errors import AgentKitError
from agentkit.core.contracts.frozen import thaw
from agentkit.core.contracts.plain import from_plain, to_plain
from agentkit.core.contracts.types import Message, ToolSchema, Usage
from agentkit.models.usage import UsageReading
from agentkit.state.context import PrefixContext, WorkingContext

from .conversation import Conversation
from .report import Finding, Report, Reporter
from .source import Source
from .transcript import CallLink, Compaction, Response, Transcript

NAME = "agentkit"
VERSION = 1
_KEY = "agentkit"


def recognises(value: Any) -> bool:
    """Whether one line gives the format away."""
    return isinstance(value, Mapping) and value.get(_KEY) in ("transcript", "message", "end")


def dumps(transcripts: Transcript | Iterable[Transcript]) -> str:
    """Transcripts in agentkit's own form: `loads` gives equal ones."""
    given = (transcripts,) if isinstance(transcripts, Transcript) else transcripts
    return "".join([_text(line) for transcript in given for line in _lines(transcript)])


def _text(line: Mapping[str, Any]) -> str:
    return json.dumps(to_plain(line), ensure_ascii=False, separators=(",", ":")) + "\n"


def _lines(transcript: Transcript) -> Iterator[dict[str, Any]]:
    history, context = transcript.history, transcript.context
    yield {
        _KEY: "transcript",
        "version": VERSION,
        "format": transcript.format,
        "id": transcript.id,
        "label": transcript.label,
        "parent": _fields(transcript.parent) if transcript.parent is not None else None,
        "tools": list(transcript.tools),
        "meta": thaw(transcript.meta),
    }
    for message in history:
        yield {_KEY: "message", "message": message}
    places = {id(message): place for place, message in enumerate(history)}
    prefix = context.prefix
    yield {
        _KEY: "end",
        "prefix": {
            "system_prompt": prefix.system_prompt,
            "grounding": [places.get(id(m), m) for m in prefix.grounding],
            "schema_block": prefix.schema_block,
        },
        # A message of the history is named by its place, so that it comes back as the same one.
        "context": [places.get(id(message), message) for message in context.messages],
        "compactions": [_fields(compaction) for compaction in transcript.compactions],
        "responses": [_response(response) for response in transcript.responses],
        "usage": transcript.usage,
        "findings": [_fields(finding) for finding in transcript.report],
    }


def _fields(value: Any) -> dict[str, Any]:
    return {f.name: getattr(value, f.name) for f in fields(value) if getattr(value, f.name) is not None}


def _response(response: Response) -> dict[str, Any]:
    reading = response.reading
    shown = _fields(response)
    if reading is not None:
        shown["reading"] = {**_fields(reading), "raw": thaw(reading.raw)}
    return shown


def read(source: Source) -> tuple[Transcript, ...]:
    """The transcripts of a file; what is cut off or damaged is read as far as it goes."""
    transcripts: list[Transcript] = []
    reader: _Reader | None = None
    for number, record in source.records():
        place = source.place(number)
        kind = record.get(_KEY) if isinstance(record, Mapping) else None
        if kind == "transcript":
            if reader is not None:
                transcripts.append(reader.finish(None, place))
            reader = _Reader(record, source.report if not transcripts else Reporter())
        elif kind == "message":
            reader = reader or _Reader({}, source.report if not transcripts else Reporter())
            reader.take(record.get("message"), place)
        elif kind == "end" and reader is not None:
            transcripts.append(reader.finish(record, place))
            reader = None
        else:
            source.report.note("unknown record", place, "left out", "a line that no transcript has")
    if reader is not None:
        transcripts.append(reader.finish(None, "end of file"))
    return tuple(transcripts)


class _Reader:
    """Takes the lines of one transcript."""

    def __init__(self, head: Mapping[str, Any], report: Reporter) -> None:
        self.head, self.report = head, report
        self.history: list[Message] = []

    def take(self, plain: Any, place: str) -> None:
        try:
            message = from_plain(plain)
        except AgentKitError as error:
            message = error
        if isinstance(message, Message):
            self.history.append(message)
        else:
            self.report.loss("record unreadable", place, "left out", f"not a message: {message}"[:200])

    def finish(self, end: Mapping[str, Any] | None, place: str) -> Transcript:
        """The whole transcript; without its last line, or with a damaged one, what the history alone tells."""
        if end is not None:
            try:
                return self._whole(from_plain(self.head), from_plain(end))
            except (AgentKitError, KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
                self.report.loss("record unreadable", place, "made anew from the messages", str(error)[:200])
        else:
            self.report.loss("record cut off", place, "made anew from the messages", "the closing line is missing")
        conversation = Conversation(str(self.head.get("format", NAME)), self.report)
        for number, message in enumerate(self.history, 1):
            conversation.add(message, f"message {number}")
        id, label = self.head.get("id"), self.head.get("label")
        return conversation.finish(id=id if isinstance(id, str) else "", label=label if isinstance(label, str) else "")

    def _whole(self, head: Any, end: Any) -> Transcript:
        prefix, parent = end["prefix"], head.get("parent")
        findings = [Finding(**f) for f in end["findings"]]
        return Transcript(
            format=_as(str, head["format"]),
            id=_as(str, head["id"]),
            label=_as(str, head["label"]),
            context=WorkingContext(
                PrefixContext(prefix["system_prompt"], self._messages(prefix["grounding"]), prefix["schema_block"]),
                self._messages(end["context"]),
            ),
            history=tuple(self.history),
            compactions=tuple([_compaction(c) for c in end["compactions"]]),
            tools=tuple([_as(ToolSchema, tool) for tool in head["tools"]]),
            usage=_as(Usage, end["usage"]),
            responses=tuple([_read_response(r) for r in end["responses"]]),
            meta=head["meta"],
            report=Report((*findings, *self.report.seal())),
            parent=CallLink(**parent) if parent is not None else None,
        )

    def _messages(self, entries: list[Any]) -> list[Message]:
        return [self.history[e] if isinstance(e, int) else _as(Message, e) for e in entries]


def _as(kind: type, value: Any) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"a {kind.__name__} is due, not a {type(value).__name__}")
    return value


def _compaction(plain: dict[str, Any]) -> Compaction:
    return Compaction(**{**plain, "kept": tuple(plain.get("kept", ()))})


def _read_response(plain: dict[str, Any]) -> Response:
    index, reading = plain.get("index"), plain.get("reading")
    found = None
    if reading is not None:
        known = {f.name for f in fields(UsageReading)}
        found = UsageReading(**{k: v for k, v in reading.items() if k in known})
    return Response(index, found, plain.get("model"), plain.get("time"), plain.get("id"))
