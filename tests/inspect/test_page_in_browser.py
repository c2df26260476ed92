"""The page as a browser shows it: drawn, silent, and as wide as the screen."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from agentkit.inspect import inspect_transcript
from agentkit.inspect.page import render_page
from agentkit.transcripts import Transcript
from tests.browser import launch
from tests.inspect.samples import UNPRICED, broken, compacted, hostile, session

pytestmark = pytest.mark.browser

MADE: list[Callable[[], Transcript]] = [session, broken, compacted, hostile]
PHONE, DESK = {"width": 360, "height": 740}, {"width": 1280, "height": 900}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launch() as found:
        yield found


class Visit:
    """A page opened from a file, and what happened on it."""

    def __init__(self, browser: Browser, file: Path, **options: Any) -> None:
        self.context = browser.new_context(**options)
        self.page: Page = self.context.new_page()
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(dialog.message))
        self.page.goto(file.as_uri())
        self.page.wait_for_load_state("networkidle")

    def __enter__(self) -> Page:
        return self.page

    def __exit__(self, *error: object) -> None:
        self.context.close()
        if not any(error):
            assert self.complaints == []
            assert len(self.requests) == 1


def write(made: Callable[[], Transcript], folder: Path, count: int = 1) -> Path:
    file = folder / "report.html"
    transcript = made()
    ones = [inspect_transcript(transcript, source="a.jsonl", number=n, of=count) for n in range(1, count + 1)]
    file.write_bytes(render_page(ones, version="1").encode("utf-8"))
    return file


@pytest.mark.parametrize("viewport", [PHONE, DESK], ids=["phone", "desk"])
@pytest.mark.parametrize("made", MADE, ids=lambda made: made.__name__)
def test_page_fits_and_keeps_quiet(
    browser: Browser, tmp_path: Path, made: Callable[[], Transcript], viewport: dict[str, int]
) -> None:
    with Visit(browser, write(made, tmp_path), viewport=viewport) as page:
        page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
        assert page.evaluate("document.documentElement.scrollWidth") == viewport["width"]
        wide = page.evaluate(
            "[...document.querySelectorAll('body *')].filter((e) => !e.closest('.scroll') && "
            "e.getBoundingClientRect().right > innerWidth + 0.5).map((e) => e.outerHTML.slice(0, 80))"
        )
        assert wide == []


def test_plots_are_drawn(browser: Browser, tmp_path: Path) -> None:
    with Visit(browser, write(session, tmp_path), viewport=DESK) as page:
        assert page.locator(".plot canvas").count() == 4
        inked = page.evaluate(
            "[...document.querySelectorAll('.plot canvas')].map((c) => "
            "new Set(new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer)).size)"
        )
        assert all(colours > 5 for colours in inked)
        legend = page.locator(".plot").first.inner_text()
        assert "Frozen" in legend
        assert "Reported" in legend
        assert "Response" in legend


def test_plots_of_the_prompt_cache(browser: Browser, tmp_path: Path) -> None:
    with Visit(browser, write(broken, tmp_path), viewport=DESK) as page:
        assert page.locator(".plot canvas").count() == 5
        compared, lost = page.locator("[data-plot=compare]"), page.locator("[data-plot=breaks]")
        for label in ("Without a cache", "As recorded", "With agentkit's layout"):
            assert label in compared.inner_text()
        assert "Paid again" in lost.inner_text()
        lost.scroll_into_view_if_needed()
        box = lost.locator(".u-over").bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + box["width"] * 3.5 / 6, box["y"] + 40)
        page.wait_for_function("() => document.querySelector('[data-plot=breaks]').innerText.includes('30,400')")
        assert "expired" in page.inner_text("main")


def test_legend_follows_the_pointer(browser: Browser, tmp_path: Path) -> None:
    with Visit(browser, write(session, tmp_path), viewport=DESK) as page:
        first = page.locator(".plot").first
        assert "6 · 2026-03-01 10:05:00" in first.inner_text()
        box = first.locator(".u-over").bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + 5, box["y"] + 40)
        page.wait_for_function("document.querySelector('.u-legend').innerText.includes('1 · 2026-03-01 10:00:00')")


def test_nothing_hostile_runs(browser: Browser, tmp_path: Path) -> None:
    with Visit(browser, write(hostile, tmp_path), viewport=DESK) as page:
        assert page.locator("img, iframe, object, [onerror], [onmouseover], [autofocus]").count() == 0
        assert page.locator("script").count() == 2
        assert "onerror=alert(2)" in page.inner_text("main")
        assert page.title().startswith("a.jsonl")


def test_markup_put_into_the_page_would_not_run(browser: Browser, tmp_path: Path) -> None:
    """The second line of defence: the policy stops what escaping would have let through."""
    file = write(session, tmp_path)
    text = file.read_text(encoding="utf-8")
    evil = "<script>document.title = 'owned'</script><img src=x onerror=\"document.title='owned'\">"
    file.write_text(text.replace("<main>", "<main>" + evil), encoding="utf-8")
    visit = Visit(browser, file, viewport=DESK)
    try:
        assert visit.page.title().startswith("a.jsonl")
        assert len(visit.complaints) >= 2
    finally:
        visit.context.close()


def test_dark_mode_changes_page_and_plots(browser: Browser, tmp_path: Path) -> None:
    file = write(session, tmp_path)
    ground = "getComputedStyle(document.body).backgroundColor"
    text = "getComputedStyle(document.body).color"
    seen = {}
    for scheme in ("light", "dark"):
        with Visit(browser, file, viewport=DESK, color_scheme=scheme) as page:
            pixels = page.evaluate("document.querySelector('.plot canvas').toDataURL()")
            seen[scheme] = (_lightness(page.evaluate(ground)), _lightness(page.evaluate(text)), pixels)
    assert seen["light"][0] > 230 > 90 > seen["light"][1]
    assert seen["dark"][0] < 40 < 200 < seen["dark"][1]
    assert seen["light"][2] != seen["dark"][2]


def test_plots_follow_a_change_of_mode(browser: Browser, tmp_path: Path) -> None:
    with Visit(browser, write(session, tmp_path), viewport=DESK, color_scheme="light") as page:
        pixels = "document.querySelector('.plot canvas').toDataURL()"
        before = page.evaluate(pixels)
        page.emulate_media(color_scheme="dark")
        page.wait_for_function(f"(before) => {pixels} !== before", arg=before)
        assert page.locator(".plot canvas").count() == 4


def test_plots_follow_the_width(browser: Browser, tmp_path: Path) -> None:
    with Visit(browser, write(session, tmp_path), viewport=DESK) as page:
        page.set_viewport_size({"width": 360, "height": 740})
        page.wait_for_function("document.querySelector('.plot canvas').getBoundingClientRect().width < 361")
        assert page.evaluate("document.documentElement.scrollWidth") == 360


def test_tables_need_no_script(browser: Browser, tmp_path: Path) -> None:
    with Visit(browser, write(session, tmp_path), viewport=PHONE, java_script_enabled=False) as page:
        text = page.inner_text("main")
        assert "Largest parts" in text
        assert "The plot needs JavaScript" in text
        assert page.locator("table").count() >= 4


def test_folded_conversations_draw_when_opened(browser: Browser, tmp_path: Path) -> None:
    with Visit(browser, write(session, tmp_path, 6), viewport=DESK) as page:
        assert page.locator(".plot canvas").count() == 0
        page.locator("details.conversation > summary").nth(4).click()
        page.wait_for_function("document.querySelectorAll('.plot canvas').length === 4")


def test_unpriced_session_says_unknown(browser: Browser, tmp_path: Path) -> None:
    with Visit(browser, write(lambda: session(model=UNPRICED), tmp_path), viewport=DESK) as page:
        assert page.locator(".plot canvas").count() == 2
        assert "unknown" in page.inner_text("dl.figures")


def _lightness(colour: str) -> float:
    parts = colour[colour.index("(") + 1 : -1].split(",")[:3]
    return sum(float(part) for part in parts) / 3
