"""What the demos do: work, work again, and name what they wrote. `make run` is the first."""

from pathlib import Path

import pytest

from examples import agentd_demo, replay_demo


def test_agentd_goes_on_after_a_kill(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert agentd_demo.main(tmp_path / "out") == 0
    shown, errors = capfd.readouterr()
    assert errors == ""
    assert "kill -9" in shown
    assert "22 messages were sent: 0 lost, 0 doubled, 0 calls without their result." in shown
    assert "TASK_STATE_COMPLETED: " in shown
    assert int(shown.rpartition(" compactions took")[0].rpartition("\n")[2]) >= 5
    assert (tmp_path / "out" / "worktree-long.html").as_uri() in shown
    assert (tmp_path / "out" / "agentd" / "agentd.db").stat().st_size > 100_000


def test_replay_runs_twice(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        assert replay_demo.main(tmp_path / "out") == 0
        shown, errors = capfd.readouterr()
        assert errors == ""
        assert len(shown.splitlines()) < 30
        report = tmp_path / "out" / "worktree-long.html"
        assert report.as_uri() in shown
        assert report.read_text(encoding="utf-8").startswith("<!doctype html>")
        assert (tmp_path / "out" / "context.db").stat().st_size > 100_000
