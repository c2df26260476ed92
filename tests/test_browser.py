"""The browser of the tests starts, runs script, and takes pictures."""

import pytest

from tests.browser import launch

pytestmark = pytest.mark.browser


def test_browser_shows_page() -> None:
    with launch() as browser:
        page = browser.new_page(viewport={"width": 320, "height": 200})
        page.goto("data:text/html,<title>one</title><p id=a>text<script>document.title += ' two'</script>")
        assert page.title() == "one two"
        assert page.inner_text("#a") == "text"
        assert page.screenshot().startswith(b"\x89PNG")
