"""JSON Merge Patch: the examples of RFC 7396, and its laws."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentd.config.faults import Origin
from agentd.config.merge import Node, merge_patch, nested, null_paths, plain, reached

KEYS = st.sampled_from("abcd")
VALUES = st.recursive(
    st.none() | st.integers(0, 9) | st.sampled_from(["x", "y"]),
    lambda inner: st.dictionaries(KEYS, inner, max_size=4) | st.lists(inner, max_size=2),
    max_leaves=10,
)
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=4)


def tree(value: Any, source: str = "s") -> Node:
    origin = Origin(source)
    if isinstance(value, dict):
        return Node({key: tree(item, source) for key, item in value.items()}, origin)
    if isinstance(value, list):
        return Node([tree(item, source) for item in value], origin)
    return Node(value, origin)


def unfrozen(node: Node) -> Any:
    return json.loads(json.dumps(plain(node)))


def rfc(target: Any, patch: Any) -> Any:
    """MergePatch of section 2 of RFC 7396, word by word."""
    if not isinstance(patch, dict):
        return patch
    target = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            target.pop(name, None)
        else:
            target[name] = rfc(target.get(name), value)
    return target


@pytest.mark.parametrize(
    ("original", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"a": "foo"}, "bar", "bar"),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_examples_of_the_rfc(original: Any, patch: Any, result: Any) -> None:
    assert unfrozen(merge_patch(tree(original), tree(patch))) == result


@given(VALUES, VALUES)
def test_it_is_the_algorithm_of_the_rfc(target: Any, patch: Any) -> None:
    assert unfrozen(merge_patch(tree(target), tree(patch))) == rfc(target, patch)


@given(OBJECTS, OBJECTS, OBJECTS)
def test_laws(target: Any, patch: Any, other: Any) -> None:
    """The empty patch changes nothing, a patch applied twice is applied once, and an absent target is an empty one."""
    once = merge_patch(tree(target), tree(patch))
    assert merge_patch(tree(target), tree({})) == tree(target)
    assert unfrozen(merge_patch(once, tree(patch))) == unfrozen(once)
    assert unfrozen(merge_patch(None, tree(other))) == unfrozen(merge_patch(tree({}), tree(other)))


@given(OBJECTS, OBJECTS)
def test_what_is_seen_has_its_origin(target: Any, patch: Any) -> None:
    """Each scalar of the result comes from the last document that gives it."""

    def check(node: Node, path: tuple[str, ...]) -> None:
        if isinstance(node.value, dict):
            for key, child in node.value.items():
                check(child, (*path, key))
            return
        given_by_patch = reached(tree(patch, "patch"), path)
        assert (node.origin.source == "patch") == (given_by_patch[1] == path)

    check(merge_patch(tree(target, "target"), tree(patch, "patch")), ())


def test_paths_of_nulls_and_nested_patches() -> None:
    node = tree({"a": None, "b": {"c": None, "d": [None]}})
    assert [path for path, _ in null_paths(node)] == [("a",), ("b", "c")]
    assert plain(nested(("a", "b"), tree(1))) == {"a": {"b": 1}}
