"""Pinning entries: they stay byte-equal in every request, whatever is folded. Touches only its arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .record import Entry, Pin, Unpin
from .settings import PIN_SHARE


class PinRefused(ValueError):
    """What cannot be pinned; the text tells the model why."""


def pinned(
    held: Sequence[int],
    entries: Sequence[int],
    *,
    last: int,
    entry: Callable[[int], Entry | None],
    size: Callable[[Entry], int],
    window: int,
) -> list[Pin]:
    """The pins to add for these entries; none for those that are pinned. All of them or none.

    `held`: pinned already; `last`: the newest entry's number; `entry`, `size`: look one up, and its tokens. Raises
    PinRefused for an entry that there is none of or that is no message, and where all pins together would take more
    than a tenth of the window.
    """
    wanted = [n for n in dict.fromkeys(entries) if n not in held]
    for n in wanted:
        found = entry(n) if 1 <= n <= last else None
        if found is None:
            raise PinRefused(f"there is no entry {n}; entries are numbered from 1 to {last}")
        if not found.is_message:
            raise PinRefused(f"entry {n} is no message but a {found.kind} of the runtime, which is never shown")
    room = int(PIN_SHARE * window)
    total = sum(size(found) for n in (*held, *wanted) if (found := entry(n)) is not None)
    if wanted and total > room:
        raise PinRefused(
            f"pinned entries would take {total:,} tokens, {room:,} are allowed (a tenth of the window): unpin some, or "
            "keep the essence in memory"
        )
    return [Pin(n) for n in wanted]


def unpinned(held: Sequence[int], entries: Sequence[int]) -> list[Unpin]:
    """The pins to take away; none for entries that are not pinned."""
    return [Unpin(n) for n in dict.fromkeys(entries) if n in held]
