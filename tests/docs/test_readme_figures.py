"""The bills that README.md shows are those that the example prints."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def test_bills_of_the_readme_are_printed_by_the_example() -> None:
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = page.split("examples/cache_savings.py", 1)[1].split("```text\n", 1)[1].split("```", 1)[0].splitlines()
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "cache_savings.py")], check=True, capture_output=True, text=True
    )
    printed = done.stdout.splitlines()
    assert len(shown) == 7
    assert [line for line in shown if line not in printed] == []
