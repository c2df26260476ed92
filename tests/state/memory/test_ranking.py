"""Recall by words: the rarer and the shorter first, in any script, the same answer every time."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.state.memory import rank, terms
from tests.core.contracts.test_tokens import HOSTILE, growth

NOTES = [
    "The staging database is restored every night at two.",
    "Deploys go out on Tuesday, never on Friday.",
    "Anna owns the billing service; the database behind it is Postgres.",
    "Le café ouvre à huit heures.",
    "東京支店の担当は田中さんです。",
    "서울 사무소는 월요일에 쉽니다.",
]


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("who owns billing?", [2]),
        ("DATABASE", [0, 2]),
        ("staging database", [0, 2]),
        ("CAFE\u0301", [3]),
        ("東京の担当", [4]),
        ("월요일", [5]),
        ("nothing of the kind in here: kubernetes", [2, 0]),
        ("kubernetes", []),
        ("", []),
        ("?!", []),
    ],
)
def test_shared_words_are_found(question: str, expected: list[int]) -> None:
    assert [i for i, _ in rank(question, NOTES, 5)] == expected


def test_words_are_compared_folded() -> None:
    assert terms("Straße STRASSE ﬁle x_y") == ["strasse", "strasse", "file", "x", "y"]
    assert terms("東京都 京") == ["東京", "京都", "京"]


def test_rare_words_count_more_and_long_texts_less() -> None:
    assert rank("a b", ["a a", "a c", "a b"], 1)[0][0] == 2
    assert [i for i, _ in rank("a", ["a " + "x " * 50, "a"], 2)] == [1, 0]


def test_later_of_equal_ones_comes_first() -> None:
    assert [i for i, _ in rank("a", ["a", "a", "b", "a"], 5)] == [3, 1, 0]


@given(st.text(), st.lists(st.text(max_size=30), max_size=12), st.integers(0, 6))
def test_answers_are_few_ordered_and_repeatable(question: str, texts: list[str], k: int) -> None:
    found = rank(question, texts, k)
    assert found == rank(question, texts, k)
    assert len(found) <= k
    assert [score for _, score in found] == sorted((score for _, score in found), reverse=True)
    for i, score in found:
        assert score > 0
        assert set(terms(question)) & set(terms(texts[i]))
    everything = rank(question, texts, len(texts))
    assert found == everything[:k]
    assert {i for i, _ in everything} == {i for i, t in enumerate(texts) if set(terms(question)) & set(terms(t))}


@given(st.lists(st.text("ab c", max_size=8), min_size=1, max_size=8), st.text("abc ", max_size=6))
def test_order_of_words_in_the_question_does_not_matter(texts: list[str], question: str) -> None:
    words = question.split()
    shuffled = words[:]
    Random(0).shuffle(shuffled)
    assert rank(" ".join(words), texts, 9) == rank(" ".join(shuffled), texts, 9)


@pytest.mark.parametrize("piece", HOSTILE.values(), ids=HOSTILE)
def test_n8_words_are_found_in_linear_time(piece: str) -> None:
    assert growth(lambda size: terms(piece * (size // len(piece)))) < 30
