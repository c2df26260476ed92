"""`MessageView`: the tail of a context at one moment, shared rather than copied."""

from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.core.contracts.types import Message
from agentkit.state.context import MessageView, WorkingContext


def numbered(count: int) -> list[Message]:
    return [Message("user", str(number)) for number in range(count)]


@given(st.integers(0, 12), st.integers(-15, 15) | st.slices(12))
def test_view_reads_like_a_tuple(size: int, index: int | slice) -> None:
    messages = numbered(size)
    view = WorkingContext(messages=messages).view()
    assert (len(view), tuple(view), list(reversed(view))) == (size, tuple(messages), messages[::-1])
    if isinstance(index, slice):
        assert view[index] == tuple(messages)[index]
    elif -size <= index < size:
        assert view[index] is messages[index]
    else:
        with pytest.raises(IndexError):
            view[index]


def test_view_ignores_later_writes() -> None:
    context = WorkingContext(messages=numbered(3))
    before = context.view()
    context.append(Message("user", "later"))
    context.messages[0] = Message("user", "edited")
    assert before == tuple(numbered(3))
    assert [m.content for m in context.view()] == ["edited", "1", "2", "later"]


def test_view_shares_with_earlier_ones_until_a_rewrite() -> None:
    context = WorkingContext(messages=numbered(3))
    first = context.view()
    second = context.append(Message("user", "3")).view()
    assert second.continues(first)
    assert not first.continues(second)
    context.rewrite(2, [Message("user", "summary")], version=0)
    third = context.view()
    assert not third.continues(second)
    assert (len(second), len(third)) == (4, 3)


def test_view_of_a_fork_stands_alone() -> None:
    parent = WorkingContext(messages=numbered(2))
    seen = parent.view()
    child = parent.fork().append(Message("user", "child"))
    assert not child.view().continues(seen)
    parent.append(Message("user", "parent"))
    assert [m.content for m in child.view()] == ["0", "1", "child"]


def test_view_equality_pickle_and_copies() -> None:
    view = WorkingContext(messages=numbered(3)).view()
    assert view == tuple(numbered(3))
    assert view == numbered(3)
    assert view != tuple(numbered(2))
    assert view != "012"
    assert hash(view) == hash(tuple(numbered(3)))
    for other in (pickle.loads(pickle.dumps(view)), copy.deepcopy(view), copy.copy(view)):
        assert isinstance(other, MessageView)
        assert other == view
