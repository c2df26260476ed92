"""Whether lists hold the very same messages is told apart from their being equal."""

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agentkit.core.contracts.messages import begins_with, same_objects
from agentkit.core.contracts.types import Message, ToolCall

POOL = [Message("user", "a"), Message("user", "a"), Message("user", "a", meta={"id": 1}), Message("user", "b")]
POOL += [Message("assistant", "", tool_calls=[ToolCall("c", "f", {"n": n})]) for n in (1, True)]
lists = st.lists(st.sampled_from(range(len(POOL))), max_size=5)


@given(lists, lists)
def test_objects_count_not_values(left: list[int], right: list[int]) -> None:
    a, b = tuple(POOL[n] for n in left), tuple(POOL[n] for n in right)
    assert same_objects(a, b) == (left == right)
    assert begins_with(a, b) == (left[: len(right)] == right)


@given(lists, lists)
def test_longer_lists_begin_with_their_heads(head: list[int], rest: list[int]) -> None:
    a = tuple(POOL[n] for n in head)
    assert begins_with((*a, *(POOL[n] for n in rest)), a)
    assert not begins_with((*a, replace(POOL[0])), (*a, POOL[0]))


def test_odd_items_are_no_messages() -> None:
    class Refuses:
        def __eq__(self, other: object) -> bool:
            raise ValueError("ambiguous")

        __hash__ = None  # type: ignore[assignment]

    odd: Any = (Refuses(),)
    assert not begins_with(odd, (POOL[0],))
    assert not same_objects(odd, (POOL[0],))
    assert not begins_with(("x",), (POOL[0],))  # type: ignore[arg-type]
