"""Halves of surrogate pairs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.core.contracts.surrogates import has_surrogates, replace_surrogates

ANY_TEXT = st.text(st.characters() | st.characters(categories=["Cs"]))


@pytest.mark.parametrize(
    ("text", "mended"),
    [
        ("plain", "plain"),
        ("é🙂\x00", "é🙂\x00"),
        ("\ud800", "\ufffd"),
        ("a\udc00\ud800b", "a\ufffd\ufffdb"),
        ("\ud83d\ude42", "🙂"),
        ("\ud83d\ud83d\ude42\ude42", "\ufffd🙂\ufffd"),
    ],
)
def test_u1_halves_are_replaced_pairs_stay(text: str, mended: str) -> None:
    assert replace_surrogates(text) == mended
    assert has_surrogates(text) == (text != mended)


@given(ANY_TEXT)
def test_u1_result_is_utf8(text: str) -> None:
    mended = replace_surrogates(text)
    assert mended.encode("utf-8").decode("utf-8") == mended
    assert replace_surrogates(mended) is mended
    assert (mended is text) == (not has_surrogates(text))
