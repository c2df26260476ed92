"""The law of merging, and what a summary never loses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.core.contracts.errors import FormatError
from agentkit.core.contracts.jsontext import wire_json
from agentkit.state.compaction import Artifact, Constraint, Piece, Point, Step, Summary, render_summary
from agentkit.state.compaction.ranges import minus, numbers_in, ranges_of, size_of, told, union, within
from agentkit.state.compaction.summary import CAPS, normalised
from tests.state.compaction.strategies import summaries


@given(summaries(), summaries(), summaries())
def test_f18_merge_laws(a: Summary, b: Summary, c: Summary) -> None:
    """Associative, commutative, idempotent, with the empty summary as unit."""
    assert a.merge(b.merge(c)) == a.merge(b).merge(c)
    assert a.merge(b) == b.merge(a)
    assert a.merge(a) == a
    assert a.merge(Summary()) == a == Summary().merge(a)


def test_f18_associative_over_caps() -> None:
    """What a cap dropped on the way cannot decide what another order would have kept."""
    many = [Summary(goals=tuple(Point(f"g{i}", n=i % 7) for i in range(start, start + 12))) for start in (0, 10, 20)]
    a, b, c = many
    assert a.merge(b).merge(c) == a.merge(b.merge(c)) == c.merge(a).merge(b)
    assert len(a.merge(b).merge(c).goals) == CAPS["goals"] == 16


def test_f18_done_does_not_come_back() -> None:
    finished = Summary(steps=(Step("Fix the parser.", "done", 9),))
    stale = Summary(steps=(Step("fix the  parser", "open", 9), Step("fix the parser", "open", 3)))
    assert [s.status for s in finished.merge(stale).steps] == ["done"]


def test_f18_reopened_step_counts() -> None:
    merged = Summary(steps=(Step("fix it", "done", 9),)).merge(Summary(steps=(Step("fix it", "open", 12),)))
    assert (merged.done, [s.text for s in merged.open]) == ((), ["fix it"])


def test_lifted_constraint_stays_lifted() -> None:
    """An older summary that still has the rule does not bring it back; the user's saying it again does."""
    rule = Summary(constraints=(Constraint("never push", 2, 2),))
    lifted = Summary(constraints=(Constraint("never push", 2, 8, lifted_by=8),))
    assert rule.merge(lifted).rules == () == lifted.merge(rule).rules
    again = Summary(constraints=(Constraint("never push", 11, 11),))
    assert [r.entry for r in lifted.merge(again).rules] == [11]


def test_constraints_have_no_cap() -> None:
    rules = tuple(Constraint(f"rule {i}", i, i) for i in range(500))
    assert len(Summary(constraints=rules).rules) == 500


@given(summaries())
def test_texts_are_clipped_once(summary: Summary) -> None:
    """Clipping comes before merging, splits no surrogate pair that was whole, and is stable."""
    assert all(len(p.text) <= 500 for p in (*summary.goals, *summary.facts))
    assert all(len(step.text) <= 500 for step in summary.steps)
    assert Summary.from_dict(summary.to_dict()) == summary
    assert all(len(getattr(summary, name)) <= cap for name, cap in CAPS.items() if cap is not None)


@pytest.mark.parametrize(
    "data",
    [{"goals": [3]}, {"goals": [{"text": 3}]}, {"goals": 3}, {"covers": [1]}, {"covers": [["a", 2]]}, {"goals": [{}]},
     {"steps": [{"text": "x", "status": "later"}]}, {"facts": [{"text": "x", "n": "1"}]}, {"goals": None}],
)  # fmt: skip
def test_odd_data_is_refused(data: dict[str, object]) -> None:
    with pytest.raises(FormatError):
        Summary.from_dict(data)


def test_unknown_keys_are_ignored() -> None:
    assert Summary.from_dict({"new": 1, "goals": [{"text": "g", "n": 2, "new": 1}]}).goals == (Point("g", 2),)


def test_normalising() -> None:
    assert normalised("  Use  ＵＴＦ-8. ") == normalised("use utf-8") == "use utf-8"


_SETS = st.sets(st.integers(0, 30))


@given(_SETS, _SETS)
def test_ranges_are_sets(a: set[int], b: set[int]) -> None:
    left, right = ranges_of(a), ranges_of(b)
    assert set(numbers_in(union(left, right))) == a | b
    assert set(numbers_in(minus(left, right))) == a - b
    assert size_of(left) == len(a)
    assert {n for n in range(31) if within(left, n)} == a
    assert union(left) == left


def test_ranges_are_told() -> None:
    assert told(((1, 8), (12, 12))) == "1-8, 12"


def test_rendering_has_no_clock_and_escapes_its_frame() -> None:
    summary = Summary(
        goals=(Point("ship </context-summary> now", 3),),
        constraints=(Constraint("never push", 1, 1),),
        covers=((1, 9),),
    )
    text = render_summary(summary, context="root", version=4, handled=9, recall="context.recall").text
    assert text == render_summary(summary, context="root", version=4, handled=9, recall="context.recall").text
    assert text.count("</context-summary") == 1
    assert text.index("never push") < text.index("ship &lt;/context-summary")
    for part in ('context="root"', 'version="4"', 'covers="1-9"', "`context.recall`", "up to entry 9", "no request"):
        assert part in text


def test_rendering_leaves_out_the_oldest() -> None:
    """Constraints have their own room; what does not fit is counted."""
    facts = tuple(Point(f"fact {i} " + "word " * 20, i) for i in range(60))
    rules = tuple(Constraint(f"rule {i}", i, i) for i in range(40))
    shown = render_summary(Summary(facts=facts, constraints=rules), max_tokens=400, rule_tokens=50)
    assert "fact 59 " in shown.text
    assert "fact 0 " not in shown.text
    assert "rule 39" in shown.text
    assert "rule 0\n" not in shown.text
    assert shown.left_out["facts"] == 60 - shown.text.count("fact ")
    assert f"{shown.left_out['constraints']} constraints" in shown.text
    assert "rule 0\n" in render_summary(Summary(facts=facts, constraints=rules), max_tokens=400).text


def test_narrative_pieces_stand_side_by_side() -> None:
    both = Summary(narrative=(Piece("first", ((1, 4),), 4),)).merge(Summary(narrative=(Piece("then", ((5, 9),), 9),)))
    text = render_summary(both).text
    assert text.index("first") < text.index("then")


def test_artifacts_are_exact() -> None:
    """Two ids that differ in case are two."""
    assert len(Summary(artifacts=(Artifact("src/A.py"), Artifact("src/a.py"))).artifacts) == 2
    assert "\\ud800" in wire_json(Summary(goals=(Point("\ud800"),)).to_dict()).encode("unicode_escape").decode()
