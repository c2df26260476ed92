"""Deep-frozen plain data and its way back: `deep_freeze` and `thaw` undo each other.

Touches only its argument. Containers are copied, so nothing frozen aliases what it was made from.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from copy import deepcopy
from operator import is_
from typing import Any, NoReturn, SupportsIndex, TypeAlias, TypeVar, final

from .errors import FreezeError

K = TypeVar("K")
V = TypeVar("V")

MAX_DEPTH = 100
"""Nesting that `deep_freeze` accepts: deeper scratchpads are a runaway structure, not notes."""

MAX_WIRE_DEPTH = 400
"""Nesting accepted in what came over a wire. Parsers that recurse fail from about 1,000 levels on; 400 leaves room for
the frames of the program around them."""


def _refuse(self: object, *args: object, **kwargs: object) -> NoReturn:
    raise TypeError(
        "this payload belongs to a frozen value and cannot be mutated in place. "
        "Build a new value instead, e.g. {**old, 'key': new}, or take a writable copy with thaw()."
    )


@final
class FrozenDict(dict[K, V]):
    """A real `dict` that refuses every write; `{**d}`, `d | {}` and `d.copy()` give plain dicts.

    Freezes one level: `deep_freeze` makes one that is frozen to the bottom.
    """

    __slots__ = ()

    def __new__(cls, *args: Any, **kwargs: Any) -> FrozenDict[K, V]:
        self = dict.__new__(cls)
        dict.update(self, *args, **kwargs)
        return self

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Filled by `__new__`; a second `__init__` changes nothing."""

    __setitem__ = __delitem__ = update = setdefault = pop = popitem = clear = __ior__ = _refuse

    def copy(self) -> dict[K, V]:
        return dict(self)

    def __copy__(self) -> FrozenDict[K, V]:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> FrozenDict[K, V]:
        frozen: FrozenDict[K, V] = _refrozen(_thaw(self, lambda leaf: deepcopy(leaf, memo), {}))
        return frozen

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        return _refrozen, (thaw(self),)


@final
class FrozenList(list[V]):
    """A real `list` that refuses every write; `v[:]`, `v + []` and `v.copy()` give plain lists.

    Freezes one level, as FrozenDict does.
    """

    __slots__ = ()

    def __new__(cls, items: Iterable[V] = ()) -> FrozenList[V]:
        self = list.__new__(cls)
        list.extend(self, items)
        return self

    def __init__(self, items: Iterable[V] = ()) -> None:
        """Filled by `__new__`; a second `__init__` changes nothing."""

    __setitem__ = __delitem__ = append = extend = insert = pop = remove = clear = _refuse
    sort = reverse = __iadd__ = __imul__ = _refuse

    def copy(self) -> list[V]:
        return list(self)

    def __copy__(self) -> FrozenList[V]:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> FrozenList[V]:
        frozen: FrozenList[V] = _refrozen(_thaw(self, lambda leaf: deepcopy(leaf, memo), {}))
        return frozen

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        return _refrozen, (thaw(self),)


def _refrozen(value: Any) -> Any:
    # Copies and pickles travel as plain containers: one level of recursion for each level of data, and none when they
    # are frozen again, so that whatever could be frozen can be copied.
    return _freeze_deep(value, sys.maxsize)


_CONTAINERS = frozenset({dict, list, tuple, set, frozenset})
_FROZEN = frozenset({FrozenDict, FrozenList})
_Slot: TypeAlias = "tuple[Any, Any, Any]"
_OPEN = object()


def deep_freeze(value: Any, *, max_depth: int = MAX_DEPTH) -> Any:
    """A copy of `value` in which no container can be written to; frozen input is returned as it is.

    Exactly dict, list, tuple, set and frozenset count as containers; a set becomes a frozenset. Subclasses (named
    tuples, defaultdicts), dataclasses and all other objects are leaves and pass by identity. A sub-value that
    occurs twice is frozen once. Raises FreezeError for a cycle or nesting beyond `max_depth`.
    """
    kind = type(value)
    if kind not in _CONTAINERS:
        return value
    if kind is dict and max_depth > 0 and _hold_no(map(type, value.values())):
        _fill_dict(flat := _new_dict(FrozenDict), value)  # the usual record: nothing in it to look into
        return flat
    try:
        return _freeze_shallow(value, kind, {}, min(_SHALLOW, max_depth))
    except _TooDeep:
        return _freeze_deep(value, max_depth)


_SHALLOW = 24
"""Levels that the recursive form takes on; nearly all data is flatter, and it is twice as fast as the work list."""


class _TooDeep(Exception):
    pass


def _freeze_shallow(value: Any, kind: type, done: dict[int, Any], room: int) -> Any:
    found = done.get(id(value))
    if found is not None:
        return found
    if kind is set or kind is frozenset:
        return frozenset(value)
    if not room:
        raise _TooDeep  # or a cycle: the other form tells them apart
    room -= 1
    frozen: Any
    if kind is dict:
        # Copied as a whole, then mended where a child is a container: most dicts of a record have none.
        _fill_dict(frozen := _new_dict(FrozenDict), value)
        if not _hold_no(map(type, value.values())):
            for k, v in value.items():
                if (t := type(v)) in _CONTAINERS:
                    _put(frozen, k, _freeze_shallow(v, t, done, room))
    elif _hold_no(map(type, value)):
        frozen = _sealed(value, kind, value)
    else:
        plain = [v if (t := type(v)) not in _CONTAINERS else _freeze_shallow(v, t, done, room) for v in value]
        frozen = _sealed(value, kind, plain)
    done[id(value)] = frozen
    return frozen


_hold_no = _CONTAINERS.isdisjoint
_new_dict, _fill_dict, _put = dict.__new__, dict.update, dict.__setitem__
_new_list, _fill_list = list.__new__, list.extend


def _sealed(source: Any, kind: type, plain: Any) -> Any:
    """The frozen form of `source`, whose frozen children are in `plain`."""
    frozen: Any
    if kind is dict:
        _fill_dict(frozen := _new_dict(FrozenDict), plain)
    elif kind is list:
        _fill_list(frozen := _new_list(FrozenList), plain)
    else:  # a tuple of frozen values is frozen itself
        frozen = source if all(map(is_, source, plain)) else tuple(plain)
    return frozen


def _freeze_deep(value: Any, max_depth: int) -> Any:
    # A work list in place of recursion, since the limit may exceed what is left of the interpreter's stack. Each
    # container is copied plain and waits as an _Open entry below its own children; popped again, it is sealed.
    root: list[Any] = [value]
    done: dict[int, Any] = {}
    work: list[_Slot] = [(value, root, 0)]
    depth = 0
    while work:
        source, parent, slot = work.pop()
        kind = type(source)
        if kind is _Open:
            depth -= 1
            done[id(source.source)] = parent[slot] = _sealed(source.source, type(source.source), source.plain)
            continue
        if kind is set or kind is frozenset:
            parent[slot] = frozenset(source)
            continue
        found = done.get(id(source))
        if found is _OPEN:
            raise FreezeError("a value that contains itself cannot be frozen; store a copy without it", cycle=True)
        if found is not None:
            parent[slot] = found
            continue
        if depth >= max_depth:
            raise FreezeError(
                f"a value nested beyond {max_depth} levels cannot be frozen; flatten it or store its text"
            )
        depth += 1
        plain: Any = dict(source) if kind is dict else list(source)
        done[id(source)] = _OPEN
        work.append((_Open(source, plain), parent, slot))
        for at, child in source.items() if kind is dict else enumerate(source):
            if type(child) in _CONTAINERS:
                work.append((child, plain, at))
    return root[0]


class _Open:
    """A container whose children are being copied into `plain`."""

    __slots__ = ("plain", "source")

    def __init__(self, source: Any, plain: Any) -> None:
        self.source, self.plain = source, plain


def thaw(value: Any) -> Any:
    """A copy of `value` made of plain, writable containers at every depth; frozensets become sets.

    Plain containers are copied too, other objects pass by identity. What sits inside a set or is a dict key stays
    as it is, since it has to remain hashable. A cycle keeps its shape, and no depth is too deep.
    """
    return _thaw(value, lambda leaf: leaf, {})


def private_copy(value: Any) -> Any:
    """`thaw(value)` with every other object deep-copied as well, so that nothing is shared with `value`."""
    memo: dict[int, Any] = {}
    return _thaw(value, lambda leaf: deepcopy(leaf, memo), memo)


def comparable_copy(value: Any) -> Any:
    """`thaw(value)` for a later comparison: objects that compare by value are deep-copied, others pass by identity."""
    memo: dict[int, Any] = {}

    def leaf(value: Any) -> Any:
        kind: Any = type(value)
        return value if kind.__eq__ is object.__eq__ else deepcopy(value, memo)

    return _thaw(value, leaf, {})


def _thaw(value: Any, leaf: Callable[[Any], Any], done: dict[int, Any]) -> Any:
    # As in deep_freeze, but lists and dicts are placed at once, so that a cycle through them keeps its shape. A tuple
    # met inside itself is begun anew: the list or dict that closes the cycle is in place by then.
    root: list[Any] = [value]
    work: list[_Slot] = [(value, root, 0)]
    while work:
        source, parent, slot = work.pop()
        kind = type(source)
        if kind in _ATOMS:
            continue
        if kind is _Open:
            key = id(source.source)
            if key not in done:
                done[key] = tuple(source.plain)
            parent[slot] = done[key]
            continue
        copy = done.get(id(source))
        if copy is None or type(copy) in _FROZEN:  # frozen: copied as a part of some other object
            if kind is dict or kind is FrozenDict:
                copy = dict(source)
                work.extend([(v, copy, k) for k, v in source.items() if type(v) not in _ATOMS])
            elif kind is list or kind is FrozenList:
                copy = list(source)
                work.extend([(v, copy, i) for i, v in enumerate(source) if type(v) not in _ATOMS])
            elif kind is tuple:
                items = list(source)
                work.append((_Open(source, items), parent, slot))
                work.extend([(v, items, i) for i, v in enumerate(source) if type(v) not in _ATOMS])
                continue
            elif kind is set or kind is frozenset:
                copy = set(source)
            else:
                copy = leaf(source)
            done[id(source)] = copy
        parent[slot] = copy
    return root[0]


_ATOMS = frozenset({str, int, float, bool, type(None), bytes})
