"""From lines to records: one JSON value a line, or one document; memory is bounded by one record where lines allow it.

Touches the one file it is given, once and in order; follows nothing that stands in it.
"""

from __future__ import annotations

import io
import os
import stat
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from agentkit.core.contracts.errors import FormatError

from .lines import CUT, MAX_LINE, MENDED, Line, Lines, Progress
from .parsing import Unreadable, parse, parse_all, salvage, seal
from .report import Reporter

SAMPLE = 40
"""Records that are looked at to recognise a format."""

SAMPLE_CHARACTERS = 256 * 1024
"""Where looking stops early, so that large records are not held for long."""

_LEAST = 3

BUFFER = 256 * 1024
"""Bytes read at once: lines of several kilobytes are usual, and the default buffer would take each in pieces."""


class Source:
    """The records of one stream, read once.

    `name` is how messages call the file; what is wrong with the file itself goes to `report`. `kind`: `lines` (a record
    a line) or `document` (one JSON value).
    """

    def __init__(
        self, name: str, stream: BinaryIO, total: int, report: Reporter, progress: Progress | None = None
    ) -> None:
        self.name, self.report = name, report
        self.kind = "lines"
        self.document: Any = None
        self.broken_lines: list[int] = []
        """Numbers of the lines that held no readable record, ascending."""
        self.unit = "line"
        """What a record is to the reader of the file: a line, a record of a list, a document."""
        self._lines = iter(Lines(name, stream, total, progress))
        self._ahead: deque[tuple[int, Any]] = deque()
        self._open()

    def place(self, number: int) -> str:
        """How reports call the record of that number."""
        return f"{self.unit} {number}"

    def sample(self) -> list[Any]:
        """The first records, without using them up: lines, the elements of a list, or the one document."""
        if self.kind == "lines":
            return [value for _, value in self._ahead]
        return list(self.document[:SAMPLE]) if isinstance(self.document, list) else [self.document]

    def records(self) -> Iterator[tuple[int, Any]]:
        """Every record once, deep-frozen, with its number: lines, the elements of a list, or the one document."""
        for number, value in self.plain_records():
            yield number, seal(value, self.report, self.place(number))

    def plain_records(self) -> Iterator[tuple[int, Any]]:
        """The records as plain mappings that the importer owns and may take apart; their values may be frozen."""
        if self.kind == "document":
            for number, value in enumerate(self.document if isinstance(self.document, list) else [self.document], 1):
                yield number, dict(value) if isinstance(value, dict) else value
            return
        while self._ahead:
            yield self._ahead.popleft()
        for line in self._lines:
            number, text, flaws = line
            if text is not None and not flaws & ~CUT:
                try:
                    value = parse(text)
                except Unreadable:
                    pass
                else:
                    del line, text  # while the record is used, its text need not be there as well
                    yield number, value
                    del value
                    continue
            yield from self._parsed(line)

    def documents(self) -> Iterator[tuple[int, Any]]:
        """Every document once: the one there is, or one a line."""
        if self.kind == "document":
            self.unit = "document"
            yield 1, self.document
        else:
            yield from self.records()

    def _open(self) -> None:
        """Decides between lines and document, and reads the first records of lines."""
        head: list[Line] = []
        text = next((line[1] for line in self._reading(head) if not _is_blank(line)), "")
        if text == "" and not any((line[1] or "").strip() for line in head):
            raise FormatError(f"{self.name} is empty; there is no transcript in it")
        if text:
            try:
                first = parse(_trimmed(text))
            except Unreadable:
                start = _trimmed(text)[0]
                if start == "[" or not self._has_records(head, start):
                    self._read_document(head)
                    return
            else:
                more = any(not _is_blank(line) for line in self._reading(head))
                if not more and isinstance(first, (dict, list)):
                    self._become_document(first)
                    return
                del first
        del text
        self._read_ahead(head)

    def _become_document(self, value: Any) -> None:
        self.kind, self.unit = "document", "record"
        self.document = seal(value, self.report, "document")

    def _reading(self, head: list[Line]) -> Iterator[Line]:
        """Further lines, each kept in `head` as well."""
        for line in self._lines:
            head.append(line)
            yield line

    def _has_records(self, head: list[Line], start: str) -> bool:
        """Whether most of the next lines are objects by themselves, so that only the first one is broken."""
        good = bad = 0
        for line in self._reading(head):
            if line[1] is not None and not _is_blank(line):
                try:
                    good += isinstance(parse(_trimmed(line[1])), dict)
                except Unreadable:
                    bad += 1
                if good + bad == SAMPLE // 2:
                    break
        return good >= bad if good + bad else start not in "{["

    def _read_ahead(self, head: list[Line]) -> None:
        size = 0
        head.reverse()
        while head:
            line = head.pop()
            size += len(line[1] or "")
            self._ahead.extend(self._parsed(line))
            del line
        while len(self._ahead) < SAMPLE and (size < SAMPLE_CHARACTERS or len(self._ahead) < _LEAST):
            step = next(self._lines, None)
            if step is None:
                return
            size += len(step[1] or "")
            self._ahead.extend(self._parsed(step))
            del step

    def _read_document(self, head: list[Line]) -> None:
        """The whole rest as one JSON value, or as several that stand one after the other."""
        flaws = 0
        texts: list[str] = []
        for lines in (head, self._lines):
            for _, text, flaw in lines:
                flaws |= flaw
                texts.append(text or "")
        whole = _trimmed("".join(texts))
        del texts
        try:
            self._become_document(parse(whole))
        except Unreadable as problem:
            if not (self._read_sequence(whole) or self._read_cut(whole, str(problem))):
                raise FormatError(
                    f"{self.name} is neither JSON ({problem}) nor JSON Lines (most lines are no JSON object by "
                    "themselves); check that it is a transcript, and complete"
                ) from None
        if flaws & MENDED:
            self._tell_mended("document")

    def _read_sequence(self, whole: str) -> bool:
        try:
            values = parse_all(whole)
        except Unreadable:
            return False
        self.kind, self.unit = "lines", "record"
        self._ahead.extend(enumerate(values, 1))
        return True

    def _read_cut(self, whole: str, reason: str) -> bool:
        try:
            value = salvage(whole)
        except Unreadable:
            return False
        self._become_document(value)
        self.report.loss("record cut off", "end of file", "read up to the last complete element", reason)
        return True

    def _parsed(self, line: Line) -> Iterator[tuple[int, Any]]:
        """The record of a line, if it holds one; what is wrong with the line is reported."""
        number, text, flaws = line
        place = f"line {number}"
        if text is None:
            self.broken_lines.append(number)
            self.report.loss("line broken", place, "left out", f"longer than {MAX_LINE} bytes")
            return
        trimmed = _trimmed(text)
        nuls = len(text) - len(text.strip("\0"))
        if nuls:
            reason = f"{nuls} NUL bytes, a write that never reached the disk"
            self.report.loss("line broken", place, "the NUL bytes were left out", reason)
        if not trimmed:
            return
        try:
            value = parse(trimmed)
        except Unreadable as error:
            self.broken_lines.append(number)
            if flaws & CUT:
                self.report.loss("record cut off", place, "left out", f"the file ends within it: {error}")
            else:
                self.report.loss("line broken", place, "left out", str(error))
            return
        if flaws & MENDED:
            self._tell_mended(place)
        yield number, value

    def _tell_mended(self, place: str) -> None:
        self.report.loss("bytes unreadable", place, "replaced by U+FFFD", "no valid UTF-8")


def _is_blank(line: Line) -> bool:
    return line[1] is not None and not _trimmed(line[1])


def _trimmed(text: str) -> str:
    """`text` without the white space, padding and byte order marks around it."""
    return text.strip(" \t\r\n\0\ufeff")


def open_file(path: str | os.PathLike[str]) -> tuple[BinaryIO, int]:
    """The file at `path`, open, and its size (0 when unknown); FormatError for what is no file or cannot be opened."""
    name = os.fspath(path)
    try:
        stream = Path(name).open("rb", buffering=BUFFER)  # noqa: SIM115 - the caller closes it
    except IsADirectoryError:
        raise FormatError(f"{name} is a directory; name a transcript file in it") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise FormatError(f"{name} cannot be read: {reason}") from error
    status = os.fstat(stream.fileno())
    return stream, status.st_size if stat.S_ISREG(status.st_mode) else 0


def in_memory(data: bytes | str) -> tuple[BinaryIO, int]:
    """Data as a stream, and its size."""
    raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else bytes(data)
    return io.BytesIO(raw), len(raw)
