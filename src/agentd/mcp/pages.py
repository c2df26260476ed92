"""All pages of a list. Touches only what is handed in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from .errors import BadAnswer

MOST_PAGES, MOST_ITEMS = 1_000, 20_000
"""Of one list. A server that goes on after that is taken for broken."""


class Page(Protocol):
    """As the SDK has them."""

    next_cursor: str | None


P = TypeVar("P", bound=Page)
I = TypeVar("I")  # noqa: E741


async def all_pages(
    server: str, fetch: Callable[[str | None], Awaitable[P]], items: Callable[[P], Sequence[I]]
) -> list[I]:
    """What all pages hold, in their order. Raises BadAnswer where they have no end."""
    found: list[I] = []
    seen: set[str] = set()
    cursor: str | None = None
    for _ in range(MOST_PAGES):
        page = await fetch(cursor)
        found += items(page)
        if len(found) > MOST_ITEMS:
            raise BadAnswer(server, f"its list has more than {MOST_ITEMS} items")
        cursor = page.next_cursor
        if cursor is None:
            return found
        if cursor in seen:
            raise BadAnswer(server, "its list has no end: a page points to one that was there before")
        seen.add(cursor)
    raise BadAnswer(server, f"its list has more than {MOST_PAGES} pages")
