"""The 14 examples of the design document: where they are and how one is run."""

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent / "docs" / "seed_examples"
EXAMPLES = sorted(FOLDER.glob("[0-9]*.py"))


def check_example(script: Path) -> None:
    """Runs one in a process of its own and compares what it prints, to the byte."""
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    assert run.stdout == script.with_suffix(".expected").read_text()
