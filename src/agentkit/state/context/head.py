"""`KnownHead`: what is known about a list of messages, carried on when it grows. Touches only its arguments."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import reduce
from itertools import islice
from typing import Any, TypeVar, overload

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
        seen = self._follow(messages)
        known: tuple[int, T] = self._folds.get(name, (0, start))
        done, value = known
        if done < len(seen):
            value = reduce(step, seen[done:], value)
            self._folds[name] = len(seen), value
        return value

    def view(self, messages: list[Message]) -> MessageView:
        """`messages` as they are now, sharing one growing list with the views taken before and after."""
        return MessageView(self._follow(messages), len(messages))

    def _follow(self, messages: list[Message]) -> list[Message]:
        """The messages seen, brought up to `messages`: longer by what is new, or another list."""
        seen = self._seen
        if len(messages) > len(seen):
            seen.extend(messages[len(seen) :])
        if not same_objects(seen, messages):
            self._seen = seen = list(messages)
            self._folds.clear()
        return seen

    def copy(self) -> KnownHead:
        other = KnownHead()
        other._seen = self._seen.copy()
        other._folds = self._folds.copy()
        return other


class MessageView(Sequence[Message]):
    """The first messages of a list that only grows: equal to the tuple of them, at no cost for their number.

    A checkpoint of a long conversation takes one, since copying ten thousand pointers per turn would be most of its
    work. Compares with tuples, lists and other views; pickled and copied as a tuple's worth of messages.
    """

    __slots__ = ("_length", "_source")

    def __init__(self, source: list[Message], length: int) -> None:
        self._source, self._length = source, length

    def continues(self, other: object) -> bool:
        """Whether `other` is a view of the same list, taken no later: its messages are the first of these."""
        return isinstance(other, MessageView) and other._source is self._source and other._length <= self._length

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Message, ...]: ...
    def __getitem__(self, index: int | slice) -> Message | tuple[Message, ...]:
        if isinstance(index, slice):
            start, stop, step = index.indices(self._length)
            return tuple(self._source[start:stop:step]) if step > 0 else tuple(self)[index]
        if not -self._length <= index < self._length:
            raise IndexError(f"no message {index} among {self._length}")
        return self._source[index % self._length]

    def __iter__(self) -> Iterator[Message]:
        return islice(self._source, self._length)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (MessageView, tuple, list)):
            return NotImplemented
        return (self.continues(other) and len(other) == self._length) or tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return MessageView, (list(self), self._length)


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
