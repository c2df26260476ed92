"""What `make run` does: works, works again, and names what it wrote."""

from pathlib import Path

import pytest

from examples.replay_demo import main


def test_demo_runs_twice(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        assert main(tmp_path / "out") == 0
        shown, errors = capfd.readouterr()
        assert errors == ""
        assert len(shown.splitlines()) < 30
        report = tmp_path / "out" / "worktree-long.html"
        assert report.as_uri() in shown
        assert report.read_text(encoding="utf-8").startswith("<!doctype html>")
        assert (tmp_path / "out" / "context.db").stat().st_size > 100_000
