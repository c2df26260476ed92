"""Aligned columns, bars and colours for a terminal. Touches only its arguments.

Text from transcripts may carry terminal escapes; whatever is shown here goes through `visible` first.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .markup import visible

WIDTH = 100
"""Columns that a report keeps to."""
NARROWEST = 16
"""Columns that are left to a text that gives way."""


@dataclass(frozen=True)
class Style:
    """How the terminal can show things: in colours, and beyond ASCII."""

    colour: bool = False
    unicode: bool = True

    def bold(self, text: str) -> str:
        return self._code("1", text)

    def dim(self, text: str) -> str:
        return self._code("2", text)

    def level(self, level: str, text: str) -> str:
        """A finding's level in its colour: red for what is lost or wrong, yellow for what was mended."""
        code = {"loss": "31", "problem": "31", "repair": "33"}.get(level)
        return self._code(code, text) if code else text

    def _code(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour and text else text

    def plain(self, text: str) -> str:
        """`text` as this terminal can show it."""
        text = visible(text)
        if self.unicode:
            return text
        for ours, ascii_text in ((" · ", " - "), ("–", "-"), ("…", "..."), ("\ufffd", "?")):
            text = text.replace(ours, ascii_text)
        return text.encode("ascii", "replace").decode()

    def clip(self, text: str, width: int) -> str:
        """The beginning of `text`, as this terminal can show it, in `width` columns."""
        return clip(self.plain(text), width, "…" if self.unicode else "...")

    def bar(self, part: int, most: int, width: int) -> str:
        """A bar of up to `width` columns, as long as `part` is of `most`."""
        if part <= 0 or most <= 0:
            return ""
        if not self.unicode:
            return "#" * max(round(width * part / most), 1)
        eighths = max(round(8 * width * part / most), 1)
        return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()

    def spark(self, values: Sequence[int], width: int) -> str:
        """The course of `values` as one line of up to `width` columns, each the largest of its stretch."""
        steps = "▁▂▃▄▅▆▇█" if self.unicode else "_.-=*#"
        count = min(width, len(values))
        stretches = [values[i * len(values) // count : (i + 1) * len(values) // count] for i in range(count)]
        most = max(values, default=0) or 1
        return "".join(steps[min(max(s) * len(steps) // most, len(steps) - 1)] for s in stretches)


def width_of(text: str) -> int:
    """Columns that a terminal takes for `text`."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(bool(unicodedata.combining(c)) for c in text)


def clip(text: str, width: int, more: str = "…") -> str:
    """The beginning of `text` that fits into `width` columns, `more` at its end where something is left out."""
    if width_of(text) <= width:
        return text
    kept, used = [], width_of(more)
    for character in text:
        used += width_of(character)
        if used > width:
            break
        kept.append(character)
    return "".join(kept).rstrip() + more


def table(
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    style: Style,
    *,
    text: Sequence[int] = (0,),
    rest: int | None = None,
) -> list[str]:
    """Lines of a table, indented by two. Columns in `text` are aligned left, others right. Where a line would be longer
    than WIDTH, first the column `rest` gives way (by default the first), then the others of `text`."""
    shown = [[style.plain(cell).replace("\n", " ").replace("\t", " ") for cell in row] for row in rows]
    if not shown:
        return []
    widths = [max(width_of(row[i]) for row in (list(heads), *shown)) for i in range(len(heads))]
    over = 2 + sum(widths) + 2 * (len(widths) - 1) - WIDTH
    for give in (rest if rest is not None else 0, *text):
        taken = min(over, max(widths[give] - NARROWEST, 0))
        if taken > 0:
            widths[give] -= taken
            over -= taken

    def line(cells: Sequence[str]) -> str:
        padded = []
        for i, cell in enumerate(cells):
            cell = style.clip(cell, widths[i])
            space = " " * (widths[i] - width_of(cell))
            padded.append(cell + space if i in text else space + cell)
        return "  " + "  ".join(padded).rstrip()

    return [style.dim(line(heads)), *map(line, shown)]
