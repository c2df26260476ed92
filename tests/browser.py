"""A real browser for tests: `launch()`. Starts a process; the pages under test are files or on loopback."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

INSTALLED = Path(__file__).resolve().parent.parent / ".tools" / "chromium"


@contextmanager
def launch() -> Iterator[Browser]:
    """A headless Chromium, closed at the end: what TEST_CHROMIUM names, else what `make test` installed.

    Without either a test is skipped; where CI is set it fails, so that no run passes without having looked.
    The installed one has Open Sans only, no fixed-width and no CJK face: assert on text, not on pixels.
    """
    own = os.environ.get("TEST_CHROMIUM")
    executable = Path(own) if own else INSTALLED / "chromium"
    if not executable.is_file():
        missing = f"no browser at {executable}: run `make .tools/stamp`, or set TEST_CHROMIUM"
        if os.environ.get("CI") or own:
            pytest.fail(missing)
        pytest.skip(missing)
    environment: dict[str, str | float | bool] = dict(os.environ.items())
    if not own:
        environment |= {"LD_LIBRARY_PATH": f"{INSTALLED}/lib", "FONTCONFIG_FILE": f"{INSTALLED}/fonts.conf"}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, env=environment, chromium_sandbox=False)
        try:
            yield browser
        finally:
            browser.close()
