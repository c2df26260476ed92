"""Message predicates for `slice` (not the tenant key: that is `core.contracts.Scope`). Touches only its arguments.

A plain scope judges one message; a positional one needs the whole list. Combinators work on sets of indices, so that a
window keeps its meaning at any nesting depth.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from agentkit.core.contracts.checks import require, require_int
from agentkit.core.contracts.errors import PositionalScopeError
from agentkit.core.contracts.messages import Message, marked


@runtime_checkable
class ContextScope(Protocol):
    """Judges one message; `index` is its place in the original list."""

    def matches(self, message: Message, index: int) -> bool: ...


@runtime_checkable
class PositionalScope(Protocol):
    """Judges a list: the indices of the messages that it keeps."""

    def _surviving_indices(self, messages: Sequence[Message]) -> set[int]: ...


def surviving_indices(scope: Any, messages: Sequence[Message]) -> set[int]:
    """The indices of `messages` that `scope` keeps, for either kind of scope; indices out of range are ignored.

    Raises TypeError for an object that is no scope.
    """
    _require_scope(scope)
    if isinstance(scope, PositionalScope):
        return set(scope._surviving_indices(messages)) & set(range(len(messages)))
    return {i for i, message in enumerate(messages) if scope.matches(message, i)}


@dataclass(frozen=True)
class LastNTurns:
    """The last `n` turns and every system message and summary; a user message begins a turn.

    n <= 0 keeps system messages and summaries only; fewer than `n` user messages keep everything.
    """

    n: int

    def __post_init__(self) -> None:
        require_int(self.n, "LastNTurns.n")

    def matches(self, message: Message, index: int) -> bool:
        raise PositionalScopeError(
            "LastNTurns is a property of the whole list, so it cannot judge one message; "
            "use ctx.slice(scope) or surviving_indices(scope, messages)"
        )

    def _surviving_indices(self, messages: Sequence[Message]) -> set[int]:
        kept: set[int] = set()
        turns = 0
        for index in range(len(messages) - 1, -1, -1):
            message = messages[index]
            if message.role == "system" or marked(message, "summary") is not None:
                kept.add(index)
            elif turns < self.n:
                kept.add(index)
                turns += message.role == "user"
        return kept


@dataclass(frozen=True)
class RoleFilter:
    """Messages whose role is in the set."""

    roles: frozenset[str]

    def __post_init__(self) -> None:
        given: Any = self.roles
        if isinstance(given, str):
            raise TypeError(f"RoleFilter takes a set of roles, not one str: RoleFilter({{{given!r}}})")
        object.__setattr__(self, "roles", frozenset(given))

    def matches(self, message: Message, index: int) -> bool:
        return message.role in self.roles


@dataclass(frozen=True)
class Tagged:
    """Messages whose name equals the tag."""

    tag: str

    def __post_init__(self) -> None:
        require(self.tag, str, "Tagged.tag")

    def matches(self, message: Message, index: int) -> bool:
        return message.name == self.tag


@dataclass(frozen=True)
class Since:
    """Messages from an index on."""

    checkpoint_index: int

    def __post_init__(self) -> None:
        require_int(self.checkpoint_index, "Since.checkpoint_index")

    def matches(self, message: Message, index: int) -> bool:
        return index >= self.checkpoint_index


@dataclass(frozen=True)
class AllOf:
    """Messages that every inner scope keeps; all of them when there is none."""

    scopes: tuple[Any, ...]

    def __post_init__(self) -> None:
        _settle(self)

    def matches(self, message: Message, index: int) -> bool:
        _refuse_positional(self)
        return all(scope.matches(message, index) for scope in self.scopes)

    def _surviving_indices(self, messages: Sequence[Message]) -> set[int]:
        kept = set(range(len(messages)))
        for scope in self.scopes:
            kept &= surviving_indices(scope, messages)
        return kept


@dataclass(frozen=True)
class AnyOf:
    """Messages that any inner scope keeps; none when there is none."""

    scopes: tuple[Any, ...]

    def __post_init__(self) -> None:
        _settle(self)

    def matches(self, message: Message, index: int) -> bool:
        _refuse_positional(self)
        return any(scope.matches(message, index) for scope in self.scopes)

    def _surviving_indices(self, messages: Sequence[Message]) -> set[int]:
        kept: set[int] = set()
        for scope in self.scopes:
            kept |= surviving_indices(scope, messages)
        return kept


@dataclass(frozen=True)
class Not:
    """Messages that the inner scope drops; `Not(LastNTurns(n))` drops system messages as well."""

    scope: Any

    def __post_init__(self) -> None:
        _require_scope(self.scope)

    def matches(self, message: Message, index: int) -> bool:
        _refuse_positional(self)
        return not self.scope.matches(message, index)

    def _surviving_indices(self, messages: Sequence[Message]) -> set[int]:
        return set(range(len(messages))) - surviving_indices(self.scope, messages)


def _children(scope: Any) -> tuple[Any, ...] | None:
    if isinstance(scope, (AllOf, AnyOf)):
        return scope.scopes
    return (scope.scope,) if isinstance(scope, Not) else None


def _refuse_positional(scope: Any) -> None:
    pending: list[Any] = [scope]
    while pending:
        one = pending.pop()
        children = _children(one)
        if children is not None:
            pending.extend(children)
        elif isinstance(one, PositionalScope):
            raise PositionalScopeError(
                f"{type(scope).__name__} holds a {type(one).__name__}, which needs the whole list; "
                "use ctx.slice(scope) or surviving_indices(scope, messages)"
            )


def _settle(scope: AllOf | AnyOf) -> None:
    given: Iterable[Any] = scope.scopes
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise TypeError(f"{type(scope).__name__} takes a sequence of scopes, not {type(given).__name__}")
    scopes = tuple(given)
    for one in scopes:
        _require_scope(one)
    object.__setattr__(scope, "scopes", scopes)


def _require_scope(scope: Any) -> None:
    if isinstance(scope, type) or not isinstance(scope, (ContextScope, PositionalScope)):
        raise TypeError(
            f"{type(scope).__name__} is no scope: it needs matches(message, index) or _surviving_indices(messages)"
        )
