"""Names of tools: the same on both sides of the wire, no two alike, whatever servers call theirs."""

from hypothesis import given
from hypothesis import strategies as st

from agentd.runtime.patterns import matches
from agentd.runtime.tools.names import MAX_WIRE, offered_names, wire_form, wire_names

NAMES = st.lists(st.text("ab._-/ é", max_size=5) | st.text(max_size=80), max_size=12)


@given(NAMES, NAMES, NAMES)
def test_wire_names_are_injective(internal: list[str], own: list[str], others: list[str]) -> None:
    named = wire_names(internal, own, others)
    assert named.keys() == {*internal, *own, *others}
    assert len(set(named.values())) == len(named)
    assert all(0 < len(wire) <= MAX_WIRE and wire_form(wire) == wire for wire in named.values())


@given(NAMES, NAMES, st.randoms())
def test_wire_names_are_the_same_in_any_order(own: list[str], others: list[str], random: object) -> None:
    shuffled = sorted(own, key=lambda _: random.random())  # type: ignore[attr-defined]
    assert wire_names(own, others) == wire_names(shuffled, list(reversed(others)))


@given(NAMES, NAMES)
def test_own_names_do_not_depend_on_others(own: list[str], others: list[str]) -> None:
    alone, beside = wire_names(own), wire_names(own, others)
    plain = {name for name, wire in alone.items() if wire == wire_form(name)}
    assert {name: beside[name] for name in plain} == {name: alone[name] for name in plain}


def test_dots_become_underscores() -> None:
    assert wire_names(["memory.get", "think"]) == {"memory.get": "memory_get", "think": "think"}


def test_earlier_group_keeps_the_form() -> None:
    named = wire_names(["memory.get"], ["memory_get"])
    assert named["memory.get"] == "memory_get"
    assert named["memory_get"].startswith("memory_get_")


def test_form_of_two_goes_to_neither_nor_to_a_later_one() -> None:
    named = wire_names(["a.b", "a/b"], ["a_b"])
    assert "a_b" not in named.values()


def test_server_tool_is_bare_until_names_collide() -> None:
    alone = offered_names(["plan.get"], {"fs": ["read", "plan_get"]})
    assert alone == {("fs", "read"): "read", ("fs", "plan_get"): "fs.plan_get"}
    both = offered_names([], {"fs": ["read"], "web": ["read", "open"]})
    assert both == {("fs", "read"): "fs.read", ("web", "read"): "web.read", ("web", "open"): "open"}


def test_patterns_are_names_or_prefixes() -> None:
    assert matches("memory.get", ["memory.*"])
    assert matches("memory.get", ["*"])
    assert not matches("memory.get", ["memory"])
    assert not matches("memory.get", [])
