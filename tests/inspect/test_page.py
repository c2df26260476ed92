"""The page as text: well-formed, self-contained, and nothing of a transcript in it is markup."""

import base64
import hashlib
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.inspect import inspect_transcript
from agentkit.inspect.markup import Html, data_script, escape, fragment, script, tag
from agentkit.inspect.page import render_page
from agentkit.transcripts import Transcript
from tests.inspect.samples import UNPRICED, compacted, hostile, session

MADE: list[Callable[[], Transcript]] = [session, compacted, hostile]
VOID = {"meta", "br"}


class Reader(HTMLParser):
    """Holds a page to what its elements promise."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts.setdefault(self.open[-1], []).append(data)


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    return reader


def rendered(made: Callable[[], Transcript], count: int = 1) -> str:
    transcript = made()
    ones = [inspect_transcript(transcript, source="a.jsonl", number=n, of=count) for n in range(1, count + 1)]
    return render_page(ones, version="1.2.3")


@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize("made", MADE, ids=lambda made: made.__name__)
def test_page_is_well_formed(made: Callable[[], Transcript], count: int) -> None:
    page = rendered(made, count)
    page.encode("utf-8")
    reader = read(page)
    tags = [name for name, _ in reader.seen]
    assert tags.count("h1") == 1
    assert tags.count("table") == tags.count("caption") > 0
    assert tags.count("script") == 2
    ids = [attributes["id"] for _, attributes in reader.seen if "id" in attributes]
    assert len(ids) == len(set(ids))
    levels = [int(name[1]) for name in tags if re.fullmatch("h[1-6]", name)]
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert all(a.get("scope") in ("col", "row") for name, a in reader.seen if name == "th")
    assert all(a.get("aria-label") for _, a in reader.seen if a.get("role") == "img")


@pytest.mark.parametrize("made", MADE, ids=lambda made: made.__name__)
def test_page_asks_for_nothing(made: Callable[[], Transcript]) -> None:
    reader = read(rendered(made))
    for name, attributes in reader.seen:
        assert name not in ("link", "img", "iframe", "object", "embed", "form", "base")
        assert not {"src", "style", "action", "srcdoc", "srcset"} & set(attributes)
        assert not [key for key in attributes if key.startswith("on")]
        assert (attributes.get("href") or "#").startswith("#")


def test_policy_admits_exactly_what_is_there() -> None:
    page = rendered(session)
    policy = next(a["content"] for _, a in read(page).seen if a.get("http-equiv") == "Content-Security-Policy") or ""
    directives = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert directives["default-src"] == directives["base-uri"] == directives["form-action"] == "'none'"
    for name, element in (("style-src", "style"), ("script-src", "script")):
        (text,) = re.findall(rf"<{element}>(.*?)</{element}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert directives[name] == f"'sha256-{digest}'"
    assert "unsafe" not in policy
    assert page.index("Content-Security-Policy") < page.index("<style>")


def test_hostile_text_is_text() -> None:
    page = rendered(hostile)
    outside = re.sub(r"<(script|style)[^>]*>.*?</\1>", "", page, flags=re.DOTALL)
    for part in ("<script", "<img", "onerror=", "<!--", "onmouseover='", 'autofocus onfocus="'):
        assert part not in outside.replace("&lt;", "\0") or part in ("onerror=",)
    assert "\u2028" not in page
    assert "\u202e" not in page
    assert "\x1b" not in page
    assert "&lt;img src=x onerror=alert(2)&gt;" in outside


def test_plot_data_is_numbers() -> None:
    page = rendered(session)
    (text,) = re.findall(r'<script type="application/json" id="plots">(.*?)</script>', page)
    (data,) = json.loads(text)
    assert data["number"] == [1, 2, 3, 4, 5, 6]
    assert all(len(column) == 6 for column in data.values() if isinstance(column, list))
    totals = [sum(parts) for parts in zip(data["unseen"], data["frozen"], data["summary"], data["tail"], strict=True)]
    assert all(total >= reported for total, reported in zip(totals, data["reported"], strict=True))
    assert data["cost"] == sorted(data["cost"])


def test_no_price_draws_no_cost() -> None:
    page = rendered(lambda: session(model=UNPRICED))
    assert 'data-plot="cost"' not in page
    assert "$0.00" not in page.partition("<script")[0]
    assert "no price for this model" in page


def test_many_conversations_are_folded() -> None:
    reader = read(rendered(session, 5))
    folded = [a for name, a in reader.seen if name == "details" and a.get("class") == "conversation"]
    assert len(folded) == 5
    assert not any("open" in attributes for attributes in folded)
    links = [a["href"] for name, a in reader.seen if name == "a"]
    assert links == [f"#c{n}" for n in range(5)]
    assert all("open" in a for name, a in read(rendered(session, 2)).seen if a.get("class") == "conversation")


def test_licence_of_the_library_is_in_the_page() -> None:
    page = rendered(session)
    assert "uPlot (v1.6.32)" in page
    assert "Copyright (c) 2022 Leon Sorokin" in page


# -- markup ------------------------------------------------------------------------------------------------------------


@given(st.text())
def test_text_comes_back_as_text(text: str) -> None:
    reader = read(tag("p", text, title=text))
    shown = "".join(reader.texts.get("p", []))
    assert shown == "".join(reader.seen[0][1]["title"] or "")
    assert [name for name, _ in reader.seen] == ["p"]
    assert not re.search("[<>\"'\x00\x1b\u2028\ud800-\udfff]", escape(text))


@given(
    st.recursive(
        st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_data_comes_back_as_data(value: object) -> None:
    element = data_script("x", value)
    body = element.removeprefix('<script type="application/json" id="x">').removesuffix("</script>")
    assert body.isascii()
    assert not set("<>&") & set(body)
    assert json.loads(body) == value


def test_markup_is_refused_where_it_could_end_its_element() -> None:
    for text in ("a</script>", "a</SCRIPT >", "a<!--b"):
        with pytest.raises(ValueError, match="own element"):
            script(text)
    assert fragment("<b>", Html("<b>"), None, 3, ["x", Html("<i>")]) == "&lt;b&gt;<b>3x<i>"
    assert tag("p", class_="a", data_x=1, hidden=True, lang=None) == '<p class="a" data-x="1" hidden></p>'
