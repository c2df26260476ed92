"""What the sections of the page are built of: tables, cells, places for plots. Touches only its arguments; all text
goes through `markup`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from . import wording
from .markup import Child, Html, tag


def plot(kind: str, at: int, reading: str, alternative: str) -> Html:
    return tag(
        "figure",
        tag("figcaption", tag("p", reading, class_="hint")),
        tag("div", class_="plot", data_plot=kind, data_conversation=at, role="img", aria_label=alternative),
        tag(
            "noscript",
            tag(
                "p",
                alternative,
                " The plot needs JavaScript; its figures are in the table of responses.",
                class_="hint",
            ),
        ),
    )


def build_table(caption: Child, heads: Sequence[str], rows: Iterable[Html]) -> Html:
    """A table that scrolls by itself where the screen is narrower."""
    cells = [tag("th", head, scope="col", class_=_column(head)) if head else tag("td", class_="bar") for head in heads]
    table = tag("table", tag("caption", caption), tag("thead", tag("tr", *cells)), tag("tbody", *rows), class_="list")
    return tag("div", table, class_="scroll", tabindex=0, role="group")


_TEXT_COLUMNS = frozenset(
    {"Conversation", "Role", "Kind", "Tool", "What", "Trigger", "Level", "Time", "Model", "Way", "Reason", "Because"}
)


def _column(head: str) -> str | None:
    return None if head in _TEXT_COLUMNS else "number wide" if head == "Characters" else "number"


def numbers(*values: int | None) -> list[Html]:
    return [tag("td", wording.number(value), class_="number") for value in values]
