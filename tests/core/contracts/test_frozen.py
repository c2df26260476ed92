"""Frozen data: no write at any depth, no alias, and a way back that undoes it."""

from __future__ import annotations

import copy
import json
import operator
import pickle
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.core.contracts.errors import AgentKitError, FreezeError
from agentkit.core.contracts.frozen import (
    MAX_DEPTH,
    MAX_WIRE_DEPTH,
    FrozenDict,
    FrozenList,
    comparable_copy,
    deep_freeze,
    private_copy,
    thaw,
)
from tests.context_strategies import Handle, Plan, Point, json_data, leaves, nested, plain_data

BEGINNING = "this payload belongs to a frozen value and cannot be mutated in place."
PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)


def _ior(d: Any) -> None:
    d |= {"a": 1}


def _iadd(v: Any) -> None:
    v += [1]


def _imul(v: Any) -> None:
    v *= 2


DICT_WRITES: dict[str, Callable[[Any], object]] = {
    "d[k] = v": lambda d: d.__setitem__("a", 1),
    "del d[k]": lambda d: operator.delitem(d, next(iter(d), "a")),
    "pop": lambda d: d.pop("a", None),
    "pop with nothing": lambda d: d.pop(),
    "popitem": lambda d: d.popitem(),
    "clear": lambda d: d.clear(),
    "update": lambda d: d.update({"a": 1}),
    "update by keywords": lambda d: d.update(a=1),
    "setdefault": lambda d: d.setdefault("a", 1),
    "|=": _ior,
}
LIST_WRITES: dict[str, Callable[[Any], object]] = {
    "v[i] = x": lambda v: v.__setitem__(0, 1),
    "v[i:j] = x": lambda v: v.__setitem__(slice(0, 1), [1]),
    "del v[i]": lambda v: operator.delitem(v, 0),
    "del v[i:j]": lambda v: operator.delitem(v, slice(0, 1)),
    "append": lambda v: v.append(1),
    "extend": lambda v: v.extend([1]),
    "insert": lambda v: v.insert(0, 1),
    "pop": lambda v: v.pop(),
    "remove": lambda v: v.remove(1),
    "clear": lambda v: v.clear(),
    "sort": lambda v: v.sort(key=str),
    "reverse": lambda v: v.reverse(),
    "+=": _iadd,
    "*=": _imul,
}


def _containers(value: Any) -> Iterator[Any]:
    """Every container in `value`, itself included."""
    if isinstance(value, (dict, list, tuple, set, frozenset)):
        yield value
        for child in value.values() if isinstance(value, dict) else value:
            yield from _containers(child)


@given(plain_data())
def test_no_write_gets_through_at_any_depth(value: Any) -> None:
    frozen = deep_freeze(value)
    before = repr(frozen)
    for container in _containers(frozen):
        assert type(container) in (FrozenDict, FrozenList, tuple, frozenset)
        writes = DICT_WRITES if isinstance(container, dict) else LIST_WRITES if isinstance(container, list) else {}
        for name, write in writes.items():
            with pytest.raises(TypeError) as refused:
                write(container)
            assert str(refused.value).startswith(BEGINNING), name
    assert repr(frozen) == before


@pytest.mark.parametrize(("kind", "frozen"), [(dict, FrozenDict), (list, FrozenList)], ids=["dict", "list"])
def test_inherited_methods_only_read(kind: type, frozen: type) -> None:
    """A mutator that a later Python adds to the built-in shows up here."""
    readers = {"__contains__", "__getitem__", "__iter__", "__len__", "__reversed__", "get", "items", "keys", "values"}
    readers |= {"__add__", "__mul__", "__rmul__", "__or__", "__ror__", "count", "index", "copy", "fromkeys"}
    general = set(dir(object)) | {"__class_getitem__", "__hash__"}
    inherited = {name for name in vars(kind) if name not in vars(frozen)}
    assert inherited - readers - general == set()


def test_refusal_names_the_way_out() -> None:
    with pytest.raises(TypeError, match=r"^this payload belongs to a frozen value and cannot be mutated in place\. "):
        deep_freeze({"a": [1]})["a"].append(2)


@given(plain_data())
def test_thaw_undoes_freeze(value: Any) -> None:
    before = copy.deepcopy(value)
    frozen = deep_freeze(value)
    thawed = thaw(frozen)
    assert frozen == value
    assert thawed == value
    assert value == before
    assert _shape(thawed) == _shape(value)
    assert deep_freeze(thawed) == frozen


def _shape(value: Any) -> Any:
    """Types at every depth; sets and frozensets are one, since a frozenset thaws to a set."""
    if isinstance(value, (set, frozenset)):
        return "set"
    if isinstance(value, dict):
        return type(value), [(repr(k), _shape(v)) for k, v in value.items()]
    if isinstance(value, (list, tuple)):
        return type(value), [_shape(v) for v in value]
    return type(value)


@given(plain_data())
def test_freezing_twice_gives_the_same_object(value: Any) -> None:
    frozen = deep_freeze(value)
    assert deep_freeze(frozen) is frozen
    assert copy.copy(frozen) is frozen


@given(plain_data())
def test_frozen_data_aliases_nothing(value: Any) -> None:
    originals = {id(c) for c in _containers(value) if isinstance(c, (dict, list, set))}
    assert not originals & {id(c) for c in _containers(deep_freeze(value))}
    for copied in (thaw(value), private_copy(value), thaw(deep_freeze(value))):
        assert not originals & {id(c) for c in _containers(copied)}


@given(plain_data())
def test_looks_and_compares_like_plain_data(value: Any) -> None:
    frozen = deep_freeze(value)
    if not any(isinstance(c, (set, frozenset)) for c in _containers(value)):
        assert repr(frozen) == repr(value)
    assert frozen == value
    assert value == frozen
    for container in _containers(frozen):
        if isinstance(container, (dict, list)):
            with pytest.raises(TypeError, match="unhashable"):
                hash(container)


@given(json_data())
def test_json_of_frozen_data_is_json_of_plain_data(value: Any) -> None:
    assert json.dumps(deep_freeze(value)) == json.dumps(value)


@given(plain_data(), st.sampled_from(PROTOCOLS))
def test_pickle_and_deepcopy_rebuild_frozen(value: Any, protocol: int) -> None:
    frozen = deep_freeze(value)
    for copied in (pickle.loads(pickle.dumps(frozen, protocol)), copy.deepcopy(frozen)):
        assert copied == frozen
        assert Counter(map(type, _containers(copied))) == Counter(map(type, _containers(frozen)))


def test_plain_copies_are_writable_at_the_top() -> None:
    d = deep_freeze({"a": [1]})
    for plain in ({**d}, d | {}, {} | d, d.copy(), dict(d)):
        assert type(plain) is dict
        assert type(plain["a"]) is FrozenList
    v = deep_freeze([[1], 2])
    empty: list[Any] = []
    for plain in (v[:], v + empty, empty + v, v.copy(), [*v], v * 1, 1 * v):
        assert type(plain) is list
        assert type(plain[0]) is FrozenList


def test_second_init_changes_nothing() -> None:
    d, v = deep_freeze({"a": 1}), deep_freeze([1])
    d.__init__({"b": 2}, c=3)
    v.__init__([2, 3])
    assert d == {"a": 1}
    assert v == [1]


def test_frozen_values_take_no_attributes() -> None:
    values: list[Any] = [FrozenDict(), FrozenList(), FrozenDict[str, int]({"a": 1}), FrozenList[int]([1])]
    for value in values:
        with pytest.raises(AttributeError):
            value.note = 1


@given(leaves())
def test_other_objects_pass_by_identity(leaf: Any) -> None:
    assert deep_freeze(leaf) is leaf
    assert thaw(leaf) is leaf
    frozen = deep_freeze({"k": [leaf, (leaf,)]})
    assert frozen["k"][0] is leaf
    assert frozen["k"][1][0] is leaf
    assert thaw(frozen)["k"][1][0] is leaf


def test_subclasses_of_containers_are_leaves() -> None:
    class Mine(dict[str, Any]):
        pass

    found: list[Any] = [Mine(a=[1]), Point(1, [2]), defaultdict(list), deque([1])]
    for leaf in found:
        assert deep_freeze([leaf])[0] is leaf


def test_sets_become_frozensets_and_back() -> None:
    frozen = deep_freeze({"s": {1, 2}, "t": ({3},)})
    assert type(frozen["s"]) is frozenset
    assert type(frozen["t"][0]) is frozenset
    assert thaw(frozen) == {"s": {1, 2}, "t": ({3},)}
    assert type(thaw(frozenset({1}))) is set


def test_shared_values_are_frozen_once() -> None:
    shared = {"a": [1]}
    frozen = deep_freeze([shared, {"again": shared}, (shared,)])
    assert frozen[0] is frozen[1]["again"] is frozen[2][0]
    thawed = thaw(frozen)
    assert thawed[0] is thawed[1]["again"] is thawed[2][0]
    assert thawed[0] is not frozen[0]


def test_shared_values_cost_once_each() -> None:
    """Sixty levels that each hold the level below twice are 2 ** 60 places and sixty values."""
    value: Any = ["x"]
    for _ in range(60):
        value = [value, value]
    frozen = deep_freeze(value)
    for copied in (
        frozen,
        thaw(frozen),
        private_copy(value),
        copy.deepcopy(frozen),
        pickle.loads(pickle.dumps(frozen)),
    ):
        depth = 0
        while copied[0] != "x":
            assert copied[0] is copied[1]
            copied, depth = copied[0], depth + 1
        assert depth == 60


def _cycles() -> list[Any]:
    in_list: list[Any] = []
    in_list.append(in_list)
    in_dict: dict[str, Any] = {}
    in_dict["self"] = {"deeper": [in_dict]}
    in_tuple: list[Any] = []
    in_tuple.append((in_tuple, 1))
    wide: list[Any] = []
    wide.extend([wide] * 8)
    return [in_list, in_dict, in_tuple, in_tuple[0], wide]


@pytest.mark.parametrize("value", _cycles(), ids=["list", "dict", "tuple", "from the tuple", "wide"])
def test_cycle_is_refused_by_freeze_and_kept_by_thaw(value: Any) -> None:
    with pytest.raises(FreezeError) as refused:
        deep_freeze(value)
    assert refused.value.cycle
    assert isinstance(refused.value, AgentKitError)
    for copied in (thaw(value), private_copy(value)):
        assert type(copied) is type(value)
        assert copied is not value
        inner = copied["self"]["deeper"][0] if isinstance(copied, dict) else copied[0]
        assert inner is copied or inner[0] is copied


def test_cycle_through_two_tuples_keeps_its_shape() -> None:
    hub: list[Any] = []
    first = (hub, 1)
    second = (first, 2)
    hub.extend([first, second])
    copied = thaw(second)
    assert copied[0][0][0] is copied[0]
    assert copied[0][0][1] is copied


@pytest.mark.parametrize("limit", [1, 5, 24, 25, MAX_DEPTH, MAX_WIRE_DEPTH])
def test_nesting_is_accepted_up_to_the_limit(limit: int) -> None:
    value = nested(limit)
    frozen = deep_freeze(value, max_depth=limit)
    assert frozen == value
    with pytest.raises(FreezeError, match=f"beyond {limit} levels") as refused:
        deep_freeze(nested(limit + 1), max_depth=limit)
    assert not refused.value.cycle


def test_limits_are_those_of_the_contract() -> None:
    assert MAX_DEPTH == 100
    assert MAX_WIRE_DEPTH == 400
    deep_freeze(nested(100))
    with pytest.raises(FreezeError):
        deep_freeze(nested(101))


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("depth", [MAX_DEPTH, MAX_WIRE_DEPTH])
def test_deepest_values_can_be_copied(depth: int, protocol: int) -> None:
    frozen = deep_freeze(nested(depth), max_depth=depth)
    assert pickle.loads(pickle.dumps(frozen, protocol)) == frozen
    assert copy.deepcopy(frozen) == frozen
    assert thaw(frozen) == frozen


def test_thaw_takes_any_depth() -> None:
    value: Any = []
    for _ in range(50_000):
        value = [value]
    copied = thaw(value)
    assert type(copied[0][0]) is list
    while value:  # taken apart from the top, since dropping it whole would recurse
        value, copied = value.pop(), copied.pop()


def test_private_copy_shares_nothing() -> None:
    plan, table = Plan(["a"]), defaultdict(list, a=[1])
    source = {"plan": plan, "list": [plan], "table": table}
    copied = private_copy(deep_freeze(source))
    assert copied == source
    assert copied["plan"] is not plan
    assert copied["plan"] is copied["list"][0]
    assert copied["table"] is not table
    assert type(copied["table"]) is defaultdict
    copied["table"]["a"].append(2)
    assert table == {"a": [1]}


def test_private_copy_keeps_what_objects_share_with_data() -> None:
    steps = ["a"]
    for source in ({"steps": steps, "plan": Plan(steps)}, {"plan": Plan(steps), "steps": steps}):
        copied = private_copy(source)
        assert copied["plan"].steps is copied["steps"]
        assert copied["steps"] is not steps


def test_private_copy_thaws_what_an_object_holds_frozen() -> None:
    inner = deep_freeze(["a"])
    for source in ({"plan": Plan(inner), "inner": inner}, {"inner": inner, "plan": Plan(inner)}):
        assert type(private_copy(source)["inner"]) is list


def test_comparable_copy_copies_what_compares_by_value() -> None:
    plan, handle = Plan(["a"]), Handle()
    copied = comparable_copy({"plan": plan, "handle": handle})
    assert copied == {"plan": plan, "handle": handle}
    plan.steps.append("b")
    assert copied["plan"] != plan
    assert copied["handle"] is handle


@given(plain_data())
def test_deepcopy_copies_the_objects_inside(value: Any) -> None:
    plan = Plan(["a"])
    frozen = deep_freeze({"v": value, "plan": plan})
    copied = copy.deepcopy(frozen)
    assert copied == frozen
    assert copied["plan"] is not plan
