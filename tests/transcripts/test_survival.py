"""Each importer: an unknown record, an unknown block, a cut end and a missing field survive, with a report entry."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from agentkit.transcripts import Transcript, loads
from tests.transcripts.accounting import texts_in
from tests.transcripts.samples import jsonl, kinds

ODD = {"type": "hologram", "shape": "a cube of light"}
LOST = "a record that no rule knows"


def lines(*records: Any) -> Callable[[], str]:
    return lambda: jsonl(*records)


CLAUDE: list[dict[str, Any]] = [
    {"sessionId": "s", "uuid": "1", "parentUuid": None, "type": "user", "message": {"role": "user", "content": "hi"}},
    {"sessionId": "s", "uuid": "2", "parentUuid": "1", "type": "user", "message": {"role": "user", "content": "there"}},
]
CODEX: list[dict[str, Any]] = [
    {"type": "response_item", "payload": {"type": "message", "role": "user", "content": "hi"}},
    {"type": "response_item", "payload": {"type": "message", "role": "user", "content": "there"}},
]
CHAT: list[dict[str, Any]] = [{"role": "user", "content": "hi"}, {"role": "user", "content": "there"}]
EVENTS: list[dict[str, Any]] = [
    {"id": 1, "source": "user", "action": "message", "args": {"content": "hi"}},
    {"id": 2, "source": "user", "action": "message", "args": {"content": "there"}},
]
DOJO: list[dict[str, Any]] = [
    {"role": "user", "content": [{"type": "text", "content": "hi"}]},
    {"role": "user", "content": [{"type": "text", "content": "there"}]},
]
CHAIN: list[dict[str, Any]] = [{"type": "human", "content": "hi"}, {"type": "human", "content": "there"}]
ITEMS: list[dict[str, Any]] = [
    {"type": "message", "role": "user", "content": "hi"},
    {"type": "message", "role": "user", "content": "there"},
]


def document(wrap: Callable[[list[Any]], Any]) -> Callable[..., str]:
    return lambda *records: json.dumps(wrap(list(records)))


# format, the records of a file, how records become a file, where a record has its content, what it cannot do without
FORMS: list[tuple[str, list[dict[str, Any]], Callable[..., str], tuple[str, ...], tuple[str, ...]]] = [
    ("claude-code", CLAUDE, jsonl, ("message", "content"), ("message",)),
    ("codex", CODEX, jsonl, ("payload", "content"), ("payload",)),
    ("openai-chat", CHAT, jsonl, ("content",), ("role",)),
    ("openai-chat", CHAT, document(lambda r: {"messages": r}), ("content",), ("role",)),
    ("anthropic-messages", CHAT, document(lambda r: {"system": "s", "messages": r}), ("content",), ("role",)),
    ("openai-responses", ITEMS, document(lambda r: {"model": "m", "input": r}), ("content",), ("role",)),
    ("swe-agent", CHAT, document(lambda r: {"history": r}), ("content",), ("role",)),
    (
        "mini-swe-agent", CHAT, document(lambda r: {"trajectory_format": "mini-swe-agent-1", "messages": r}),
        ("content",), ("role",),
    ),
    ("tau-bench", CHAT, document(lambda r: [{"traj": r, "task_id": 1}]), ("content",), ("role",)),
    ("agentdojo", DOJO, document(lambda r: {"suite_name": "banking", "messages": r}), ("content",), ("role",)),
    ("langchain", CHAIN, document(lambda r: {"values": {"messages": r}}), ("content",), ("type",)),
    ("openhands", EVENTS, document(lambda r: r), (), ("action",)),
]  # fmt: skip
IDS = [f"{form[0]}-{index}" for index, form in enumerate(FORMS)]


def replaced(record: dict[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    key, *rest = path
    return {**record, key: replaced(record[key], tuple(rest), value) if rest else value}


def found_in(transcript: Transcript) -> set[str]:
    return {text for part in (transcript.history, transcript.meta) for text in texts_in(part)}


def said(transcript: Transcript) -> list[str]:
    return [message.content for message in transcript.history if message.content]


@pytest.mark.parametrize(("format", "records", "file", "content", "needed"), FORMS, ids=IDS)
def test_unknown_record_survives(
    format: str, records: list[dict[str, Any]], file: Callable[..., str], content: Any, needed: Any
) -> None:
    """I2."""
    for odd in ({"what": LOST}, LOST, [LOST], None):
        (transcript,) = loads(file(records[0], odd, records[1]), format=format)
        assert [text for text in said(transcript) if text in ("hi", "there")] == ["hi", "there"]
        assert odd is None or LOST in found_in(transcript)
        assert set(kinds(transcript)) & {"unknown record", "field missing"}
        assert not transcript.report.has_losses


@pytest.mark.parametrize(
    ("format", "records", "file", "content", "needed"),
    [form for form in FORMS if form[3]],
    ids=[name for name, form in zip(IDS, FORMS, strict=True) if form[3]],
)
def test_unknown_block_survives(
    format: str, records: list[dict[str, Any]], file: Callable[..., str], content: tuple[str, ...], needed: Any
) -> None:
    """E4."""
    text = {"type": "text", "text": "hi"} if format != "agentdojo" else {"type": "text", "content": "hi"}
    (transcript,) = loads(file(replaced(records[0], content, [text, ODD]), records[1]), format=format)
    (message, _) = [m for m in transcript.history if m.role == "user"]
    assert message.content == "hi"
    assert message.blocks[1].payload == ODD  # type: ignore[union-attr]
    assert "unknown block" in kinds(transcript)


@pytest.mark.parametrize(("format", "records", "file", "content", "needed"), FORMS, ids=IDS)
def test_cut_end_survives(
    format: str, records: list[dict[str, Any]], file: Callable[..., str], content: Any, needed: Any
) -> None:
    """W6: a torn write costs what was being written."""
    whole = file(records[0], records[1]).rstrip()
    cut = whole[: whole.rindex("there") + 2]
    (transcript,) = loads(cut, format=format)
    assert said(transcript)[-1] == "hi"
    assert transcript.report.of("record cut off")
    assert transcript.report.has_losses


@pytest.mark.parametrize(("format", "records", "file", "content", "needed"), FORMS, ids=IDS)
def test_missing_field_survives(
    format: str, records: list[dict[str, Any]], file: Callable[..., str], content: Any, needed: tuple[str, ...]
) -> None:
    for field in needed:
        torn = {key: value for key, value in records[0].items() if key != field}
        (transcript,) = loads(file(torn, records[1]), format=format)
        assert said(transcript)[-1] == "there"
        assert set(kinds(transcript)) & {"field missing", "unknown record"}
        wanted = {text for text in texts_in(torn) if text not in ("user", "message", "response_item", "human", "text")}
        assert wanted <= found_in(transcript) | {"s", "1"}
