"""Random summaries: small pools of texts and numbers, so that keys collide, caps are reached and ties occur."""

from __future__ import annotations

from hypothesis import strategies as st

from agentkit.state.compaction import Artifact, Constraint, Decision, Failure, Piece, Point, Step, Summary

_TEXTS = st.sampled_from(["a", "A", "a.", "ａ", "b", "b\n c", "é", "", "\ud800", "x" * 700, "你好", "🙂" * 300])
_MANY = st.integers(0, 200).map(lambda i: f"item {i}")
_N = st.integers(0, 6)
_RANGES = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=3).map(tuple)


def summaries() -> st.SearchStrategy[Summary]:
    texts = _TEXTS | _MANY
    points = st.lists(st.builds(Point, texts, _N), max_size=24).map(tuple)
    rules = st.lists(st.builds(Constraint, _TEXTS, _N, _N, st.none() | _N), max_size=5).map(tuple)
    steps = st.builds(Step, _TEXTS, st.sampled_from(["open", "next", "done"]), _N)
    return st.builds(
        Summary,
        goals=points,
        facts=points,
        constraints=rules,
        decisions=st.lists(st.builds(Decision, _TEXTS, _TEXTS, _N), max_size=5).map(tuple),
        artifacts=st.lists(st.builds(Artifact, _TEXTS, _TEXTS, _N), max_size=5).map(tuple),
        errors=st.lists(st.builds(Failure, texts, _TEXTS, _N), max_size=5).map(tuple),
        steps=st.lists(steps, max_size=8).map(tuple),
        narrative=st.lists(st.builds(Piece, _TEXTS, _RANGES, _N), max_size=12).map(tuple),
        covers=_RANGES,
    )
