"""`KnownHead`: what is known about a list of messages, carried on when it grows. Touches only its arguments."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from itertools import islice
from operator import is_
from typing import Any, TypeVar

from agentkit.core.contracts.messages import Message

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

    def fold(
        self, messages: list[Message], name: Hashable, start: T, step: Callable[[T, Message], T], *, exact: bool = False
    ) -> T:
        """`step` applied from `start` over `messages`, in order.

        `exact` asks for the very objects seen before; without it equal ones will do, which is enough for whatever
        follows from the fields that equality compares.
        """
        seen = self._seen
        if len(messages) > len(seen):
            seen.extend(messages[len(seen) :])
        if seen != messages or (exact and not all(map(is_, seen, messages))):
            self._seen = seen = list(messages)
            self._folds.clear()
        known: tuple[int, T] = self._folds.get(name, (0, start))
        done, value = known
        if done < len(seen):
            for message in islice(seen, done, None):
                value = step(value, message)
            self._folds[name] = len(seen), value
        return value

    def copy(self) -> KnownHead:
        other = KnownHead()
        other._seen = self._seen.copy()
        other._folds = self._folds.copy()
        return other


def fold_hash(value: int, message: Message) -> int:
    """One step of the hash of a message sequence."""
    return hash((value, message))


def hash_messages(messages: Iterable[Message]) -> int:
    """The hash of a message sequence; `KnownHead` reaches the same figure step by step."""
    value = 0
    for message in messages:
        value = hash((value, message))
    return value
