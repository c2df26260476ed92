"""Ids: version 7 as the RFC lays it out, rising in one process, different in two."""

import random
import uuid

from hypothesis import given
from hypothesis import strategies as st

from agentd.records import Ids, uuid7


def test_example_of_the_rfc() -> None:
    """RFC 9562, A.6: 2022-02-22 14:22:22 -05:00 with rand_a CC3 and rand_b 18C4DC0C0C07398F."""
    tail = 0xCC3 << 62 | 0x18C4DC0C0C07398F
    assert uuid7(0x017F22E279B0, tail) == "017f22e2-79b0-7cc3-98c4-dc0c0c07398f"


@given(st.integers(0, 2**48 - 1), st.integers(0, 2**74 - 1))
def test_made_ids_are_of_version_7(now: int, tail: int) -> None:
    made = uuid.UUID(uuid7(now, tail))
    assert (made.version, made.variant) == (7, uuid.RFC_4122)
    assert made.int >> 80 == now


@given(st.lists(st.integers(0, 5), min_size=2, max_size=50), st.integers())
def test_f10_ids_rise_in_one_tick_and_when_the_clock_is_set_back(ticks: list[int], seed: int) -> None:
    clock = iter(ticks)
    ids = Ids(lambda: next(clock), random.Random(seed).randbytes)
    made = [ids() for _ in ticks]
    assert made == sorted(set(made))


def test_ids_rise_when_the_counter_is_used_up() -> None:
    ids = Ids(lambda: 7, lambda n: b"\xff" * n)
    ids._ms, ids._tail = 7, 2**74 - 2
    made = [ids() for _ in range(3)]
    assert made == sorted(set(made))
    assert {uuid.UUID(id).version for id in made} == {7}


def test_f4_lives_that_start_at_one_moment_have_other_ids() -> None:
    lives = [Ids(lambda: 1_700_000_000_000) for _ in range(3)]
    assert len({life() for life in lives for _ in range(200)}) == 600


def test_same_clock_and_randomness_give_the_same_ids() -> None:
    first, second = (Ids(lambda: 5, random.Random(1).randbytes) for _ in range(2))
    assert [first() for _ in range(5)] == [second() for _ in range(5)]
