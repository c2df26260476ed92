"""What a file can be before it is a transcript: encodings, torn lines, huge lines, and things that are none at all."""

import codecs
import gc
import io
import json
import os
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from agentkit.core.contracts.errors import FormatError
from agentkit.transcripts import lines, load, loads
from agentkit.transcripts.lines import Lines
from agentkit.transcripts.report import MAX_FINDINGS
from tests.transcripts.samples import jsonl, kinds, one

CHAT: list[dict[str, Any]] = [{"role": "user", "content": "grüß dich"}, {"role": "assistant", "content": "hallo 👋"}]


def shown(data: bytes | str) -> list[str]:
    return [message.content for message in one(data).history]


@pytest.mark.parametrize("form", ["document", "indented", "lines"])
@pytest.mark.parametrize(
    ("encoding", "mark"),
    [
        ("utf-8", b""),
        ("utf-8", codecs.BOM_UTF8),
        ("utf-16-le", codecs.BOM_UTF16_LE),
        ("utf-16-be", codecs.BOM_UTF16_BE),
        ("utf-16-le", b""),
        ("utf-16-be", b""),
        ("utf-32-le", codecs.BOM_UTF32_LE),
        ("utf-32-be", codecs.BOM_UTF32_BE),
    ],
)
def test_encodings_and_marks_are_no_faults(encoding: str, mark: bytes, form: str) -> None:
    indented = json.dumps(CHAT, ensure_ascii=False, indent=1)
    text = {"document": json.dumps(CHAT, ensure_ascii=False), "indented": indented, "lines": jsonl(*CHAT)}[form]
    transcript = one(mark + text.encode(encoding))
    assert [message.content for message in transcript.history] == ["grüß dich", "hallo 👋"]
    assert kinds(transcript) == []


def test_line_ends_and_blank_lines_are_no_faults() -> None:
    """U3: LF alone ends a record; other separators are text."""
    odd = [{"role": "user", "content": "a\u2028b\x85c\x0bd"}, {"role": "assistant", "content": "e"}]
    text = "\n\r\n  \n" + "\r\n\r\n".join(json.dumps(m, ensure_ascii=False) for m in odd)
    assert shown(text) == ["a\u2028b\x85c\x0bd", "e"]
    assert kinds(one(text)) == []


def test_complete_last_line_needs_no_newline() -> None:
    assert kinds(one(jsonl(*CHAT).rstrip("\n"))) == []


def test_lone_surrogates_are_no_faults() -> None:
    """U1: escaped, as JSON writes them, or as bytes, as careless writers do."""
    escaped = '{"role": "user", "content": "half \\ud83d pair"}\n{"role": "assistant", "content": "ok"}\n'
    assert shown(escaped)[0] == "half \ud83d pair"
    raw = '{"role": "user", "content": "half \ud83d pair"}\n'.encode("utf-8", "surrogatepass")
    assert shown(raw + b'{"role": "assistant", "content": "ok"}\n')[0] == "half \ud83d pair"
    assert kinds(one(raw)) == []


def test_broken_utf8_is_replaced_and_reported() -> None:
    data = b'{"role": "user", "content": "caf\xe9"}\n{"role": "assistant", "content": "ok"}\n'
    transcript = one(data)
    assert transcript.history[0].content == "caf\ufffd"
    (finding,) = transcript.report
    assert (finding.level, finding.kind, finding.place) == ("loss", "bytes unreadable", "line 1")


def test_broken_line_is_a_loss_with_its_number() -> None:
    data = jsonl(CHAT[0]) + '{"role": "user", "content": oops}\n' + jsonl(CHAT[1])
    transcript = one(data)
    assert len(transcript.history) == 2
    (finding,) = transcript.report
    assert (finding.level, finding.kind, finding.place) == ("loss", "line broken", "line 2")
    assert "column 29" in finding.reason


def test_first_line_may_be_broken() -> None:
    transcript = one('{"role": "user", "conte\n' + jsonl(*CHAT))
    assert len(transcript.history) == 2
    assert kinds(transcript) == ["line broken"]


def test_last_line_cut_off() -> None:
    """W6: a torn write costs the record that was being written."""
    data = jsonl(*CHAT, {"role": "user", "content": "and another thing"})
    transcript = one(data[:-12])
    assert len(transcript.history) == 2
    assert kinds(transcript) == ["record cut off"]


def test_document_cut_off_is_read_to_its_last_element() -> None:
    whole = json.dumps({"model": "gpt-4o", "messages": [*CHAT, {"role": "user", "content": 'a "quoted" \\ word, [1]'}]})
    for cut in (-3, -10, -20):
        transcript = one(whole[:cut])
        assert transcript.report.of("record cut off")
        assert [m.content for m in transcript.history][:2] == ["grüß dich", "hallo 👋"]
        assert len(transcript.history) <= 3
    indented = json.dumps(CHAT, indent=2)
    assert kinds(one(indented[:-8]))[0] == "record cut off"


def test_nul_bytes_are_left_out_and_reported() -> None:
    """What a crash leaves where a write never reached the disk."""
    first, second = jsonl(*CHAT).splitlines(keepends=True)
    transcript = one(first.encode() + b"\0" * 300 + second.encode() + b"\0" * 20)
    assert len(transcript.history) == 2
    assert kinds(transcript) == ["line broken", "line broken"]
    inside = '{"role": "user", "content": "a\0b"}\n'
    assert shown(inside + second) == ["a\0b", "hallo 👋"]


def test_large_lines_are_read() -> None:
    big = "x" * 50_000_000
    assert shown(jsonl({"role": "user", "content": big}, CHAT[1])) == [big, "hallo 👋"]


def test_line_above_the_limit_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_LINE", 1000)
    data = jsonl(CHAT[0], {"role": "user", "content": "y" * 5000}, CHAT[1]).encode()
    found = list(Lines("x", io.BytesIO(data), len(data), None))
    assert [(number, text is None) for number, text, _ in found] == [(1, False), (2, True), (3, False)]


@pytest.mark.parametrize("depth", [390, 500, 5_000, 200_000])
def test_nesting_is_survived(depth: int) -> None:
    """What the parser reads is kept, the deep part as text; what it cannot read costs that line."""
    deep = '{"role": "user", "content": "hi", "extra": ' + "[" * depth + "]" * depth + "}\n"
    transcript = one(deep + jsonl(CHAT[1]))
    assert transcript.history[-1].content == "hallo 👋"
    assert kinds(transcript) == ([] if depth < 400 else ["nested"] if depth < 900 else ["line broken"])


def test_long_numbers_are_kept_as_text() -> None:
    transcript = one('{"role": "user", "content": "hi", "n": ' + "9" * 5000 + "}\n" + jsonl(CHAT[1]))
    assert transcript.history[0].meta["n"] == "9" * 5000


def test_values_one_after_the_other() -> None:
    """As tools that print JSON for people write several values."""
    transcript = one("\n".join(json.dumps(message, indent=2) for message in CHAT))
    assert [message.content for message in transcript.history] == ["grüß dich", "hallo 👋"]


def test_infinite_numbers_import_equal() -> None:
    data = '{"role": "user", "content": "hi", "a": NaN, "b": Infinity}\n' + jsonl(CHAT[1])
    assert loads(data) == loads(data)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is empty"),
        (b" \n\n", "is empty"),
        (b"\0" * 100, "no record could be read"),
        (b"\x7fELF\x02\x01\x01" + bytes(range(256)), "binary"),
        (b"PK\x03\x04rest", "zip"),
        (b"\x1f\x8brest", "gzip"),
        (b"SQLite format 3\0rest", "SQLite"),
        (b"hello\nworld\n", "neither JSON"),
        (b"{'role': 'user'}", "neither JSON"),
        (b'{"a": 1', "no known format"),
        (b"42", "no JSON objects, but int"),
        (b"[]", "it has no record"),
        (b'{"foo": 1, "bar": 2}', "foo, bar"),
    ],
)
def test_other_files_are_refused_by_name(data: bytes, words: str) -> None:
    """G7."""
    with pytest.raises(FormatError, match=words) as caught:
        loads(data, name="notes.txt")
    assert str(caught.value).startswith("notes.txt")


def test_paths_that_are_no_files(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="is a directory"):
        load(tmp_path)
    with pytest.raises(FormatError, match="No such file"):
        load(tmp_path / "missing.jsonl")
    with pytest.raises(FormatError, match="cannot be read"):
        load("nul\0byte")
    locked = tmp_path / "locked.jsonl"
    locked.write_text(jsonl(*CHAT))
    locked.chmod(0)
    if not os.access(locked, os.R_OK):  # root reads everything
        with pytest.raises(FormatError, match="Permission denied"):
            load(locked)


def test_pipe_is_read(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as stream:
        stream.write(jsonl(*CHAT))
    try:
        (transcript,) = load(f"/dev/fd/{reader}")
    finally:
        os.close(reader)
    assert len(transcript.history) == 2


def test_progress_is_told(tmp_path: Path) -> None:
    path = tmp_path / "chat.jsonl"
    path.write_text(jsonl(*[{"role": "user", "content": "z" * 100_000}] * 50))
    told: list[tuple[int, int]] = []
    load(path, progress=lambda read, total: told.append((read, total)))
    size = path.stat().st_size
    assert [total for _, total in told] == [size] * len(told)
    assert [read for read, _ in told] == sorted({read for read, _ in told})
    assert told[-1] == (size, size)
    assert len(told) >= 4


def test_report_of_a_broken_file_stays_small() -> None:
    data = jsonl(*CHAT) + "{broken\n" * (MAX_FINDINGS + 500)
    transcript = one(data)
    assert len(transcript.report) == MAX_FINDINGS + 1
    assert transcript.report.findings[-1].reason == "500 more of this kind"


@pytest.mark.parametrize("format", ["claude-code", "openai-chat", "codex"])
def test_memory_follows_the_record(tmp_path: Path, format: str) -> None:
    """Beyond the result, reading needs memory for a few records, however many the file has."""
    size, count = 400_000, 60
    forms: dict[str, dict[str, Any]] = {
        "claude-code": {"type": "progress", "parentUuid": None, "sessionId": "s"},
        "codex": {"type": "event_msg", "payload": {"type": "agent_message"}},
        "openai-chat": {"role": "user"},
    }
    records = [{**forms[format], "uuid": f"p{n}", "content": str(n) + "p" * size} for n in range(count)]
    path = tmp_path / "long.jsonl"
    path.write_text(jsonl(*records))
    del records
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        transcripts = load(path, format=format)
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert transcripts
    assert path.stat().st_size > count * size
    assert peak - kept < 6 * size
    if format != "openai-chat":  # the others keep nothing of these records
        assert kept - before < 2 * size
