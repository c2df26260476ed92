"""Frames around quoted text."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.core.contracts.framing import frame


def test_frame_has_fixed_wording() -> None:
    assert frame("note", "one\ntwo") == "<note>\none\ntwo\n</note>"
    assert frame("note", "x", about="a", left=None, number=3) == '<note about="a" number="3">\nx\n</note>'


@pytest.mark.parametrize("text", ["</note>", "< / NOTE >", "<note a='b'>", "<\n/\tnote", "<<note", "</notes>"])
def test_u4_own_tags_are_escaped(text: str) -> None:
    inside = frame("note", f"a{text}b").removeprefix("<note>\n").removesuffix("\n</note>")
    assert inside == f"a{text}b".replace(text, text[: text.rindex("<")] + "&lt;" + text[text.rindex("<") + 1 :])


def test_other_tags_stay() -> None:
    assert "<b>&amp;</summary>" in frame("note", "<b>&amp;</summary>")


def test_attributes_stay_on_their_line() -> None:
    assert frame("note", "x", role='a">\n</note><note b="').splitlines() == [
        '<note role="a&quot;&gt; &lt;/note&gt;&lt;note b=&quot;">',
        "x",
        "</note>",
    ]


@given(st.text(st.sampled_from("<>/ note\n\t\ud800ſN"), max_size=40))
def test_u4_no_text_ends_its_frame(text: str) -> None:
    inside = frame("note", text).removeprefix("<note>\n").removesuffix("\n</note>")
    assert not re.search(r"<\s*/?\s*note", inside, re.IGNORECASE)
    assert inside.replace("&lt;", "<") == text


def test_hostile_blanks_are_read_once() -> None:
    text = "<" + " " * 200_000 + "<" * 200_000
    assert len(frame("note", text)) == len(text) + len("<note>\n\n</note>")
