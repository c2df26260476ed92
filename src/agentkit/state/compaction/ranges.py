"""Sets of entry numbers as ranges, both ends included: how a record says what is covered or shown. Touches only its
arguments."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import TypeAlias

Ranges: TypeAlias = tuple[tuple[int, int], ...]
"""Ascending, and neither overlapping nor adjacent once they have been through `union`."""


def union(*several: Iterable[tuple[int, int]]) -> Ranges:
    """The numbers of all given ranges; empty ranges (last below first) fall away."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted((int(a), int(b)) for ranges in several for a, b in ranges):
        if last < first:
            continue
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return tuple(merged)


def ranges_of(numbers: Iterable[int]) -> Ranges:
    """The ranges that hold exactly these numbers."""
    return union((n, n) for n in numbers)


def minus(ranges: Ranges, taken: Ranges) -> Ranges:
    """The numbers of `ranges` that are not in `taken`."""
    left: list[tuple[int, int]] = []
    holes = union(taken)
    for first, last in union(ranges):
        for low, high in holes[max(bisect_right(holes, (first, first)) - 1, 0) :]:
            if low > last:
                break
            if high < first:
                continue
            if low > first:
                left.append((first, low - 1))
            first = high + 1
        if first <= last:
            left.append((first, last))
    return tuple(left)


def within(ranges: Ranges, number: int) -> bool:
    """Whether `number` is in the ascending `ranges`."""
    at = bisect_right(ranges, number, key=lambda pair: pair[0]) - 1
    return at >= 0 and number <= ranges[at][1]


def numbers_in(ranges: Ranges) -> Iterator[int]:
    """Every number, ascending."""
    for first, last in ranges:
        yield from range(first, last + 1)


def size_of(ranges: Ranges) -> int:
    """How many numbers there are."""
    return sum(last - first + 1 for first, last in ranges)


def told(ranges: Ranges) -> str:
    """`1-8, 12`, for a reader."""
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in ranges)
