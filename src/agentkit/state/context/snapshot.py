"""Frozen forms of a context: the snapshot that `freeze` takes and the delta that `diff` computes. Touches only its
arguments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agentkit.core.contracts.errors import FreezeError
from agentkit.core.contracts.frozen import FrozenDict, deep_freeze
from agentkit.core.contracts.messages import FieldsOnly, Message, derived

from .head import hash_messages, shared_head
from .prefix import PrefixContext


@dataclass(frozen=True)
class FrozenContext(FieldsOnly):
    """A context as it was at one moment; a value that may cross an agent boundary.

    `scratchpad`: (key, deep-frozen value) pairs sorted by key. Equality compares everything; the hash takes prefix,
    messages and scratchpad keys, since values may be unhashable. Journal entries are neither copied nor frozen.
    """

    prefix: PrefixContext = field(default_factory=PrefixContext)
    messages: tuple[Message, ...] = ()
    scratchpad: tuple[tuple[str, Any], ...] = ()
    journal_entries: tuple[Any, ...] = ()

    if TYPE_CHECKING:  # any sequences are taken, and a mapping for the scratchpad

        def __init__(
            self,
            prefix: PrefixContext = ...,
            messages: Iterable[Message] = (),
            scratchpad: Mapping[str, Any] | Iterable[tuple[str, Any]] = (),
            journal_entries: Iterable[Any] = (),
        ) -> None: ...

    def __post_init__(self) -> None:
        given: Any = self.scratchpad
        pairs = given.items() if isinstance(given, Mapping) else given
        frozen = [(key, deep_freeze(value)) for key, value in pairs]
        frozen.sort(key=_key)
        object.__setattr__(self, "scratchpad", tuple(frozen))
        object.__setattr__(self, "messages", tuple(self.messages))
        object.__setattr__(self, "journal_entries", tuple(self.journal_entries))

    def __hash__(self) -> int:
        return derived(self, "_hash", _hash_of)


def _key(pair: tuple[str, Any]) -> str:
    return pair[0]


def _hash_of(snapshot: FrozenContext) -> int:
    return combined_hash(snapshot, hash_messages(snapshot.messages))


def combined_hash(snapshot: FrozenContext, messages_hash: int) -> int:
    """The hash of a snapshot whose messages hash to `messages_hash`."""
    return hash((snapshot.prefix, messages_hash, tuple([key for key, _ in snapshot.scratchpad])))


@dataclass(frozen=True)
class ContextDiff:
    """What one context has that another has not: `a.diff(b)` is a - b.

    Messages as multiset differences in their own order; scratchpad keys whose value differs, with the value of `a`
    (None for a key that is gone), deep-frozen; the journal has its own diff.
    """

    messages_added: tuple[Message, ...] = ()
    messages_removed: tuple[Message, ...] = ()
    scratchpad_changes: Mapping[str, Any] = field(default_factory=dict)
    prefix_changed: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "messages_added", tuple(self.messages_added))
        object.__setattr__(self, "messages_removed", tuple(self.messages_removed))
        # Value by value, so that the limit on nesting is the one that `freeze` has.
        changes = {key: deep_freeze(value) for key, value in self.scratchpad_changes.items()}
        object.__setattr__(self, "scratchpad_changes", FrozenDict(changes))

    __hash__ = None  # type: ignore[assignment]


def multiset_difference(left: Sequence[Message], right: Sequence[Message]) -> tuple[list[Message], list[Message]]:
    """What is in `left` and not in `right`, and the reverse, each in its own order, duplicates counted.

    Of equal messages the first ones pair. So passing over a shared head by identity changes nothing but the cost, and
    two forks cost by what differs.
    """
    head = shared_head(left, right)
    a, b = left[head:], right[head:]
    return _without(a, b), _without(b, a)


def _without(source: Sequence[Message], taken: Sequence[Message]) -> list[Message]:
    if not source or not taken:
        return list(source)
    left = Counter(taken)
    rest = []
    for message in source:
        if left.get(message, 0) > 0:
            left[message] -= 1
        else:
            rest.append(message)
    return rest


def differs(left: Any, right: Any) -> bool:
    """Whether two scratchpad values differ; values that cannot be compared do. FreezeError for a cycle."""
    if left is right:
        return False
    try:
        return not bool(left == right)
    except RecursionError:
        raise FreezeError("a scratchpad value contains itself or is nested too deeply to be compared") from None
    except Exception:  # a value's own __eq__ runs here; arrays refuse to be a truth value
        return True


def changed_keys(now: Mapping[str, Any], then: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of `now` that are new or differ from `then`."""
    return {k: v for k, v in now.items() if k not in then or differs(v, then[k])}
