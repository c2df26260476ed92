"""What a provider's cache should have had of a request and had not: told, with where and why."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agentd.runtime.requests import MISS_TOKENS, WARM, Asked, Miss, missed
from agentkit.core.contracts.messages import Message
from agentkit.state.context import Layout
from agentkit.state.context.layout import Segment


def layout(prompt: str = "p", tail: int = 1, volatile: str = "now", tools: tuple[str, ...] = ()) -> Layout:
    return Layout(
        (
            Segment("frozen", (Message("system", prompt),)),
            Segment("summary"),
            Segment("tail", tuple(Message("user", f"m{n}") for n in range(tail))),
            Segment("volatile", (Message("user", volatile),)),
        ),
        tools,
    )


def test_what_grew_and_was_read_is_no_miss() -> None:
    before, now = Asked(0, layout(), 20_000), Asked(1_000, layout(tail=3, volatile="later"), 21_000)
    assert missed(before, now, 20_000) is None
    assert missed(before, now, 18_100) is None  # a provider's own step


def test_a_miss_names_the_first_difference_and_why() -> None:
    before = Asked(0, layout(), 20_000)
    assert missed(before, Asked(1, layout("other"), 0), 0) == Miss("frozen", "prefix", 20_000, 0)
    assert missed(before, Asked(1, layout(tools=("t",)), 0), 0) == Miss("frozen", "tools", 20_000, 0)
    assert missed(before, Asked(1, layout(tail=0), 0), 900) == Miss("tail", "removed", 20_000, 900)


def test_a_miss_without_a_difference_is_the_providers() -> None:
    before = Asked(0, layout(), 20_000)
    assert missed(before, Asked(WARM, layout(tail=2), 0), 0) == Miss(None, "expired", 20_000, 0)
    assert missed(before, Asked(WARM - 1, layout(tail=2), 0), 0) == Miss(None, "unexplained", 20_000, 0)


def test_another_models_cache_has_nothing_of_it() -> None:
    before = Asked(0, layout(), 20_000, "large")
    assert missed(before, Asked(1, layout(tail=2), 0, "small"), 0) == Miss(None, "model", 20_000, 0)


@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_small_losses_are_none(kept: int, read: int) -> None:
    found = missed(Asked(0, layout(), kept), Asked(1, layout(), 0), read)
    assert (found is not None) == (kept - read >= max(MISS_TOKENS, 0.1 * kept))
