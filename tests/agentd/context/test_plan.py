"""The plan: made and changed whole or not at all, and settled by what its items are bound to."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentd.context.plan import (
    LEGAL,
    MAX_TEXT,
    SHOWN,
    TERMINAL,
    Item,
    Plan,
    PlanError,
    binding,
    bound,
    create,
    plain,
    plan_of,
    progress,
    render,
    settle,
    settled,
    update,
)
from agentkit.core.contracts.errors import Corrupt

RUN = ("run", "r1")


def three() -> Plan:
    return create("ship it", ["build", {"title": "test", "detail": "all of it"}, "release"], now=1)


def titles(plan: Plan) -> list[str]:
    return [item.title for item in plan.items]


def item(plan: Plan, id: int) -> Item:
    return next(item for item in plan.items if item.id == id)


def bound_plan(kind: str = "run", id: str = "r1") -> Plan:
    return update(three(), {"item": 1, "bind": {kind: id}}, now=2)


# Making


def test_a_plan_counts_its_items_from_one_and_trims() -> None:
    made = create("  ship it ", [" build ", {"title": "test", "detail": " all "}], now=7, max_items=2)
    assert made == Plan("ship it", (Item(1, "build", updated=7), Item(2, "test", detail="all", updated=7)), 3, 7, 7)
    assert not made.is_finished


@pytest.mark.parametrize(
    ("goal", "items", "said"),
    [
        ("  ", ["a"], "the goal must be a text that is not empty"),
        (None, ["a"], "the goal"),
        ("g", [], "a plan needs items"),
        ("g", "abc", "a plan needs items"),
        ("g", ["a", " "], "the title of item 2"),
        ("g", ["a", 5], "item 2 must be a title or an object"),
        ("g", [{"titel": "a"}], "item 1 does not know 'titel'"),
        ("g", [{"title": "a", "detail": 1}], "the detail of item 1"),
        ("g", ["x" * 501], "501 characters"),
        ("g", ["a", "b", "c"], "at most 2 items, this would be 3"),
    ],
)
def test_a_plan_that_says_nothing_is_refused(goal: Any, items: Any, said: str) -> None:
    with pytest.raises(PlanError, match=said):
        create(goal, items, now=1, max_items=2)


# Changing


def test_an_update_inserts_then_reorders_then_changes() -> None:
    change = {"insert": {"title": "review", "after": 1}, "reorder": [3, 99, 3], "item": "review",
              "status": "in_progress", "note": "asked"}  # fmt: skip
    made = update(three(), change, now=5)
    assert titles(made) == ["release", "build", "review", "test"]
    assert (item(made, 4).status, item(made, 4).note, item(made, 4).updated) == ("in_progress", "asked", 5)
    assert (made.next_id, made.created, made.updated, item(made, 1).updated) == (5, 1, 5, 1)


def test_an_unknown_place_is_the_end() -> None:
    for after in ({}, {"after": 77}):
        assert titles(update(three(), {"insert": {"title": "last", **after}}, now=2))[-1] == "last"


def test_empty_text_clears_note_and_detail() -> None:
    noted = update(three(), {"item": 2, "note": "n"}, now=2)
    cleared = update(noted, {"item": 2, "note": "", "detail": ""}, now=3)
    assert (item(cleared, 2).note, item(cleared, 2).detail) == (None, None)
    assert item(noted, 2).note == "n"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, "nothing to apply"),
        ({"item": 1}, "nothing to apply"),
        ({"item": 1, "status": "pending"}, "nothing to apply"),
        ({"item": 1, "title": "build"}, "nothing to apply"),
        ({"reorder": [1, 2]}, "nothing to apply"),
        ({"reorder": [99]}, "nothing to apply"),
        ({"reorder": ["1"]}, "reorder is a list of item ids"),
        ({"reorder": [True]}, "reorder is a list of item ids"),
        ({"status": "done"}, "say which item"),
        ({"item": 9, "status": "done"}, "there is no item 9; items are 1 'build', 2 'test'"),
        ({"item": "Build", "status": "done"}, "there is no item 'Build'"),
        ({"item": True, "status": "done"}, "item is an id or an exact title"),
        ({"item": 1, "status": "finished"}, "status is one of pending, in_progress"),
        ({"item": 1, "title": " "}, "the title must be a text that is not empty"),
        ({"item": 1, "note": 3}, "the note must be a text"),
        ({"item": 1, "bind": {}}, "bind takes one of run, subagent, task"),
        ({"item": 1, "bind": {"run": "a", "task": "b"}}, "bind takes one of"),
        ({"item": 1, "bind": {"job": "a"}}, "bind takes one of"),
        ({"item": 1, "bind": {"run": " "}}, "the id of the run"),
        ({"item": 1, "status": "done", "bind": {"run": "a"}}, "nothing would settle it"),
        ({"insert": {"title": "a", "after": "1"}}, "after is the id of an item"),
        ({"insert": 5}, "insert must be a title"),
        ({"remove": 1}, "plan.update does not know 'remove'"),
    ],
)
def test_f37_a_bad_update_is_told(change: dict[str, Any], said: str) -> None:
    with pytest.raises(PlanError, match=said):
        update(three(), change, now=2)


BAD: list[dict[str, Any]] = [
    {"item": 9, "status": "done"}, {"item": 1, "status": "never"}, {"item": 1, "bind": {"job": "a"}},
    {"item": 1, "note": 5}, {"status": "done"}, {"unknown": 1},
]  # fmt: skip


@pytest.mark.parametrize("bad", BAD)
def test_f37_one_bad_part_changes_nothing(bad: dict[str, Any]) -> None:
    """The parts in front of it are good, and are not applied."""
    plan = three()
    before = json.dumps(plain(plan))
    with pytest.raises(PlanError):
        update(plan, {"insert": {"title": "new"}, "reorder": [3], **bad}, now=9)
    assert json.dumps(plain(plan)) == before


def test_an_update_without_a_plan_says_how_to_make_one() -> None:
    with pytest.raises(PlanError, match=r"plan\.create"):
        update(None, {"item": 1, "status": "done"}, now=1)


def test_a_full_plan_takes_no_more_but_changes() -> None:
    with pytest.raises(PlanError, match="at most 3 items, this would be 4"):
        update(three(), {"insert": {"title": "x"}}, now=2, max_items=3)
    assert item(update(three(), {"item": 1, "status": "done"}, now=2, max_items=1), 1).status == "done"


def test_a_title_that_two_items_have_names_none() -> None:
    twice = update(three(), {"insert": {"title": "build"}}, now=2)
    with pytest.raises(PlanError, match="name one by id: 1, 4"):
        update(twice, {"item": "build", "status": "done"}, now=3)


def test_ids_are_not_used_again_and_a_finished_item_is_reopened_first() -> None:
    made = update(three(), {"item": 1, "status": "done"}, now=2)
    with pytest.raises(PlanError, match="item 1 is done and cannot become blocked; it may become pending, in_progress"):
        update(made, {"item": 1, "status": "blocked"}, now=3)
    assert item(update(made, {"item": 1, "status": "pending"}, now=3), 1).status == "pending"


# Binding and settling


def test_binding_begins_a_pending_item_only() -> None:
    assert item(bound_plan(), 1) == Item(1, "build", "in_progress", bound={"run": "r1"}, updated=2)
    reopened = update(three(), {"item": 1, "status": "blocked"}, now=2)
    made = update(reopened, {"item": 1, "status": "in_progress", "bind": {"task": "t"}}, now=3)
    assert (item(made, 1).status, item(made, 1).bound) == ("in_progress", {"task": "t"})


@pytest.mark.parametrize("kind", ["run", "subagent", "task"])
@pytest.mark.parametrize(("success", "status"), [(True, "done"), (False, "blocked")])
def test_f37_an_outcome_settles_whether_it_comes_before_the_binding_or_after(
    kind: str, success: bool, status: str
) -> None:
    change = {"item": 1, "bind": {kind: "x"}}
    outcome = (success, "what came of it")
    target = binding(change)
    assert target == (kind, "x")
    before = update(three(), change, now=2, outcomes={target: outcome})
    after = settle(update(three(), change, now=2), kind, "x", *outcome, now=2)
    assert before == after
    assert (item(after, 1).status, item(after, 1).note) == (status, "what came of it")


def test_f37_a_restart_settles_what_is_bound() -> None:
    """The stored plan says what to look up; what has not ended stays."""
    plan = update(bound_plan(), {"item": 2, "bind": {"task": "t"}}, now=3)
    stored = json.loads(json.dumps(plain(plan)))
    assert bound(stored) == (RUN, ("task", "t"))
    made = settled(stored, *RUN, True, "ok", now=9)
    assert [row["status"] for row in made["items"]] == ["done", "in_progress", "pending"]
    assert bound(made) == (("task", "t"),)
    assert bound(None) == ()


def test_settling_leaves_what_is_over_and_what_waits_for_something_else() -> None:
    plan = bound_plan()
    assert settle(plan, "run", "r2", True, "", 9) is plan
    assert settle(plan, "task", "r1", True, "", 9) is plan
    blocked = update(plan, {"item": 1, "status": "blocked", "note": "mine"}, now=3)
    assert settle(blocked, *RUN, True, "late", 9) is blocked
    stored = plain(blocked)
    assert settled(stored, *RUN, True, "late", now=9) is stored
    assert settled(None, *RUN, True, "", now=9) is None


def test_an_outcome_without_text_keeps_the_note_and_a_long_one_is_cut() -> None:
    noted = update(bound_plan(), {"item": 1, "note": "mine"}, now=3)
    assert item(settle(noted, *RUN, True, "  ", 9), 1).note == "mine"
    note = item(settle(noted, *RUN, False, "x" * 5_000, 9), 1).note
    assert note is not None
    assert (len(note), note[-1]) == (MAX_TEXT, "…")


def test_a_reopened_item_waits_for_nothing_that_has_ended() -> None:
    """Else the same outcome would block it again with the next start."""
    blocked = settle(bound_plan(), *RUN, False, "it broke", 3)
    again = update(blocked, {"item": 1, "status": "in_progress"}, now=4)
    assert item(again, 1).bound is None
    assert bound(plain(again)) == ()


# As text and JSON


def test_a_plan_is_shown_on_a_line_for_each_item() -> None:
    plan = update(bound_plan(), {"item": 2, "status": "skipped", "note": "no\ntime <b>", "detail": "d" * 300}, now=3)
    plan = update(plan, {"item": 3, "status": "done"}, now=4)
    assert progress(plan) == "1 of 3 done, 1 in progress, 1 skipped"
    first, goal, build, test, release = render(plan).split("\n")
    assert (first, goal) == ("1 of 3 done, 1 in progress, 1 skipped", "goal: ship it")
    assert build == "1. [in progress] build | waits for run r1"
    assert test == f"2. [skipped] test | {'d' * (SHOWN - 1)}… | note: no time &lt;b>"
    assert release == "3. [done] release"
    assert progress(None) == "no plan"


def test_what_is_no_plan_is_told() -> None:
    assert plan_of(None) is None
    assert plain(None) is None
    assert plan_of({"goal": "g"}) == Plan("g")
    for bad in ("text", {"items": 5}, {"items": [{"id": "x"}]}):
        with pytest.raises(Corrupt, match="the plan of this context cannot be read"):
            plan_of(bad)


def test_a_status_of_a_later_release_is_kept_and_can_be_left() -> None:
    value = {"goal": "g", "items": [{"id": 1, "title": "a", "status": "parked"}], "next_id": 2}
    plan = plan_of(value)
    assert plan is not None
    assert plain(plan)["items"][0]["status"] == "parked"
    assert "[parked]" in render(plan)
    assert item(update(plan, {"item": 1, "status": "done"}, now=2), 1).status == "done"


texts = st.text(max_size=8)
ids = st.integers(0, 6)
fields = {
    "insert": st.fixed_dictionaries({"title": texts}, optional={"detail": texts, "after": ids}),
    "reorder": st.lists(ids, max_size=5),
    "item": ids | st.sampled_from(["build", "test", "release"]),
    "status": st.sampled_from([*LEGAL, "never"]),
    "note": texts,
    "title": texts,
    "detail": texts,
    "bind": st.dictionaries(st.sampled_from(["run", "subagent", "task", "job"]), st.sampled_from("ab"), max_size=2),
}
changes = st.fixed_dictionaries({}, optional=fields)
outcomes = st.tuples(st.sampled_from(["run", "subagent", "task"]), st.sampled_from("ab"), st.booleans(), texts)


@given(st.lists(changes | outcomes, max_size=12))
def test_f37_laws_of_any_history(steps: list[Any]) -> None:
    """Ids are unique and never used again; every change of status is a legal one; an outcome leaves what is over; what
    is refused leaves the plan; and JSON brings back the same plan."""
    plan, used = three(), {1, 2, 3}
    for now, step in enumerate(steps, 2):
        before = plain(plan)
        if isinstance(step, tuple):
            kind, id, success, text = step
            made = settle(plan, kind, id, success, text, now)
            assert settle(made, kind, id, success, text, now + 1) is made
            assert all(new == old for new, old in zip(made.items, plan.items, strict=True) if old.is_over)
        else:
            try:
                made = update(plan, step, now=now, max_items=6)
            except PlanError:
                assert plain(plan) == before
                continue
            assert made != plan
            assert made.updated == now
        known = {old.id: old for old in plan.items}
        for one in made.items:
            if one.id in known and one.status != known[one.id].status:
                assert one.status in LEGAL[known[one.id].status]
            assert one.id in known or one.id not in used
            assert one.title.strip() == one.title != ""
        used |= {one.id for one in made.items}
        assert len({one.id for one in made.items}) == len(made.items) <= 6
        assert made.next_id == max(used) + 1
        assert plan_of(msgspec.json.decode(msgspec.json.encode(plain(made)))) == made
        assert len(render(made).split("\n")) == 2 + len(made.items)
        plan = made
    assert plan.is_finished == all(one.status in TERMINAL for one in plan.items)
