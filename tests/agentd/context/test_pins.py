"""Pins: which may be made, all or none, and what they may take together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentd.context.pins import PinRefused, pinned, unpinned
from agentd.context.record import Entry, NoteMsg, Outcome, Pin, Unpin, entry_of
from agentd.context.view import view

LAST = 8
LOG = {n: entry_of(n, Outcome("t", "completed") if n == 5 else NoteMsg("x" * 10)) for n in range(1, LAST + 1)}


def pins(held: list[int], entries: list[int], *, window: int = 10_000, tokens: int = 10) -> list[int]:
    found = pinned(held, entries, last=LAST, entry=LOG.get, size=lambda entry: tokens, window=window)
    return [body.entry for body in found]


def test_each_entry_is_pinned_once_in_the_order_asked_for() -> None:
    assert pins([], [3, 1, 3]) == [3, 1]
    assert pins([1, 2], [3, 1]) == [3]
    assert pins([1, 2], [2, 1]) == []
    assert pins([], []) == []


@pytest.mark.parametrize(
    ("n", "why"), [(0, "no entry 0"), (-1, "no entry -1"), (9, "no entry 9"), (5, "no message but a outcome")]
)
def test_what_is_no_message_is_refused_with_all_others(n: int, why: str) -> None:
    with pytest.raises(PinRefused, match=why):
        pins([], [1, n])


def test_all_pins_together_take_a_tenth_of_the_window_at_most() -> None:
    assert pins([1, 2], [3], window=300) == [3]
    with pytest.raises(PinRefused, match=r"would take 30 tokens, 29 are allowed \(a tenth of the window\)"):
        pins([1, 2], [3], window=299)
    with pytest.raises(PinRefused, match="would take 20 tokens, 10"):
        pins([], [1, 2], window=100)


def test_pins_that_are_held_are_no_fault_when_the_window_has_become_smaller() -> None:
    assert pins([1, 2], [1, 2], window=10) == []
    with pytest.raises(PinRefused):
        pins([1, 2], [3], window=10)


def test_pins_are_taken_away_where_they_are_there() -> None:
    assert unpinned([1, 2], [2, 2, 7]) == [Unpin(2)]
    assert unpinned([], [1]) == []


@given(st.lists(st.tuples(st.booleans(), st.lists(st.sampled_from([1, 2, 3, 4, 6, 7, 8]), max_size=4)), max_size=8))
def test_the_view_holds_what_was_pinned_and_not_taken_away(steps: list[tuple[bool, list[int]]]) -> None:
    log: list[Entry] = list(LOG.values())
    wanted: set[int] = set()
    for is_pin, entries in steps:
        held = view(log).pins
        made: list[Pin] | list[Unpin] = (
            pinned(held, entries, last=LAST, entry=LOG.get, size=lambda entry: 1, window=1_000)
            if is_pin
            else unpinned(held, entries)
        )
        for body in made:
            log.append(entry_of(len(log) + 1, body))
        wanted = wanted | set(entries) if is_pin else wanted - set(entries)
        assert set(view(log).pins) == wanted
