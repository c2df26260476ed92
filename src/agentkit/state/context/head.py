"""`KnownHead`: what is known about a list of messages, carried on when it grows. Touches only its arguments."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import reduce
from typing import Any, TypeVar

from agentkit.core.contracts.messages import Message, same_objects

T = TypeVar("T")


class KnownHead:
    """Left folds over a message list that continue where they stopped.

    The list belongs to somebody else and may be changed in any way between two calls, so each call first holds it
    against the messages seen before. Messages are immutable, hence that is a comparison of pointers at C speed; only
    what was appended is looked at. Any other change starts all folds anew.
    """

    __slots__ = ("_folds", "_seen")

    def __init__(self) -> None:
        self._seen: list[Message] = []
        self._folds: dict[Hashable, tuple[int, Any]] = {}

    def fold(self, messages: list[Message], name: Hashable, start: T, step: Callable[[T, Message], T]) -> T:
        """`step` applied from `start` over `messages`, in order; `name` stands for both."""
        seen = self._seen
        if len(messages) > len(seen):
            seen.extend(messages[len(seen) :])
        if not same_objects(seen, messages):
            self._seen = seen = list(messages)
            self._folds.clear()
        known: tuple[int, T] = self._folds.get(name, (0, start))
        done, value = known
        if done < len(seen):
            value = reduce(step, seen[done:], value)
            self._folds[name] = len(seen), value
        return value

    def copy(self) -> KnownHead:
        other = KnownHead()
        other._seen = self._seen.copy()
        other._folds = self._folds.copy()
        return other


def shared_head(left: Sequence[Message], right: Sequence[Message]) -> int:
    """How many messages two lists, or two tuples, begin with that are the very same objects."""
    length = min(len(left), len(right))
    if same_objects(left[:length], right[:length]):
        return length
    return next((at for at, (a, b) in enumerate(zip(left, right, strict=False)) if a is not b), length)


def fold_hash(value: int, message: Message) -> int:
    """One step of the hash of a message sequence."""
    return hash((value, message))


def hash_messages(messages: Iterable[Message]) -> int:
    """The hash of a message sequence, as `fold_hash` reaches it."""
    return reduce(fold_hash, messages, 0)
