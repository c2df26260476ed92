"""From bytes to numbered lines of text: encodings, byte order marks, lines of any length. Reads one stream, once."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator
from typing import BinaryIO, TypeAlias

from agentkit.core.contracts.errors import FormatError

Progress: TypeAlias = Callable[[int, int], None]
"""Called with the bytes read so far and the bytes in all (0 when unknown)."""

Line: TypeAlias = tuple[int, str | None, int]
"""Number, text (None when longer than MAX_LINE), and flaws: MENDED, CUT or both."""

MENDED, CUT = 1, 2
"""Bytes were no valid text and stand as U+FFFD; the stream ended without a line end."""

MAX_LINE = 512 * 1024 * 1024
"""Bytes of one line that are read into memory; a longer line is passed over in pieces and is a loss."""

_STEP = 1024 * 1024
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_BINARY = (
    (b"PK\x03\x04", "a zip archive (as Inspect's .eval logs are, which this release does not read); unpack it first"),
    (b"\x1f\x8b", "compressed with gzip; unpack it first"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd; unpack it first"),
    (b"BZh", "compressed with bzip2; unpack it first"),
    (b"\xfd7zXZ", "compressed with xz; unpack it first"),
    (b"SQLite format 3\0", "an SQLite database, not a transcript; export the conversation first"),
    (b"\x89PNG", "a picture, not a transcript"),
    (b"%PDF", "a PDF, not a transcript"),
)


class Lines:
    """The lines of a stream; LF alone ends a line. FormatError when the first bytes show that it is no text."""

    def __init__(self, name: str, stream: BinaryIO, total: int, progress: Progress | None) -> None:
        self._name, self._stream, self._total, self._progress = name, stream, total, progress
        self._read = self._told = 0

    def __iter__(self) -> Iterator[Line]:
        head = self._peek()
        for magic, what in _BINARY:
            if head.startswith(magic):
                raise FormatError(f"{self._name} is {what}")
        encoding, mark = _encoding_of(head)
        self._stream.read(len(mark))
        self._read += len(mark)
        if encoding != "utf-8":
            yield from self._wide_lines(encoding)
        elif _is_binary(head):
            raise FormatError(f"{self._name} is a binary file, not a transcript (JSON or JSON Lines)")
        else:
            yield from self._byte_lines()
        if self._progress is not None and self._told != self._read:
            self._progress(self._read, self._total)

    def _byte_lines(self) -> Iterator[Line]:
        readline, number = self._stream.readline, 0
        while line := readline(MAX_LINE + 1):
            number += 1
            self._count(len(line))
            flaws = 0
            if line[-1] != 10:
                if len(line) > MAX_LINE:
                    self._pass_over()
                    yield number, None, 0
                    continue
                flaws = CUT
            try:
                text = line.decode()
            except UnicodeDecodeError:
                text, is_whole = _decoded(line)
                flaws |= 0 if is_whole else MENDED
            del line  # a large one must not outlive its text, nor that its record
            yield number, text, flaws
            del text

    def _pass_over(self) -> None:
        while more := self._stream.readline(MAX_LINE):
            self._count(len(more))
            if more[-1] == 10:
                return

    def _peek(self) -> bytes:
        peek = getattr(self._stream, "peek", None)
        if peek is not None:
            return bytes(peek(4096)[:4096])
        head = self._stream.read(4096)
        self._stream.seek(0)
        return head

    def _wide_lines(self, encoding: str) -> Iterator[Line]:
        """Lines of UTF-16 or UTF-32."""
        decoder = codecs.getincrementaldecoder(encoding)(errors="surrogatepass")
        pieces: list[str] = []
        number = 0
        while chunk := self._stream.read(_STEP):
            self._count(len(chunk))
            try:
                text = decoder.decode(chunk)
            except UnicodeDecodeError as error:
                raise FormatError(f"{self._name} is no valid {encoding} text: {error.reason}") from None
            first, *others = text.split("\n")
            pieces.append(first)
            for other in others:
                number += 1
                yield number, "".join(pieces) + "\n", 0
                pieces = [other]
        if any(pieces):
            yield number + 1, "".join(pieces), CUT

    def _count(self, size: int) -> None:
        self._read += size
        if self._progress is not None and self._read - self._told >= _STEP:
            self._told = self._read
            self._progress(self._read, self._total)


def _decoded(line: bytes) -> tuple[str, bool]:
    """Text of bytes that are no strict UTF-8, and whether it says all that they say."""
    try:
        return line.decode("utf-8", "surrogatepass"), True  # half a surrogate pair, as it was written
    except UnicodeDecodeError:
        return line.decode("utf-8", "replace"), False


def _encoding_of(head: bytes) -> tuple[str, bytes]:
    """The encoding that the first bytes tell, and the byte order mark to pass over."""
    for mark, encoding in _MARKS:
        if head.startswith(mark):
            return encoding, mark
    # JSON starts with two characters of ASCII, so the zero bytes around them give UTF-16 away.
    zeros = [not byte for byte in head[:4]]
    if zeros == [False, True, False, True]:
        return "utf-16-le", b""
    return ("utf-16-be" if zeros == [True, False, True, False] else "utf-8"), b""


def _is_binary(head: bytes) -> bool:
    """Whether a tenth of the first characters are no text. NULs are not counted: torn writes leave runs of them."""
    text = head.replace(b"\0", b"").decode("utf-8", "replace")
    odd = sum([c == "\ufffd" or (c < " " and c not in "\t\n\r\x0c\x1b") for c in text])
    return odd * 10 > len(text)
