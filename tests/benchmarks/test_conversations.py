"""The conversations that benchmarks replay can be driven by any library."""

from pathlib import Path

import pytest
from conversations import LEAST, USUAL, Conversation, closing, conversations


@pytest.fixture(scope="module")
def sessions() -> list[Conversation]:
    return conversations()


def test_every_sample_is_there_with_room_for_two_compactions(sessions: list[Conversation]) -> None:
    files = {session.name.split(" ")[0] for session in sessions}
    assert {"claude-code/worktree-long.jsonl", "tau-bench/gpt4o-airline-two.json"} <= files
    for session in sessions:
        assert len(session.steps) >= LEAST, session.name
        assert sum(step.summary is not None for step in session.steps) == 2, session.name
        assert len(session.system) >= USUAL, session.name


def test_a_run_begins_with_a_task_and_ends_without_calls(sessions: list[Conversation]) -> None:
    for session in sessions:
        is_running = False
        for step in session.steps:
            assert (step.task is None) == is_running, session.name
            assert step.text or step.calls, session.name
            is_running = bool(step.calls)
        assert not is_running, session.name


def test_calls_have_ids_of_their_own_and_are_offered(sessions: list[Conversation]) -> None:
    for session in sessions:
        calls = [call for step in session.steps for call in step.calls]
        assert len({call.id for call in calls}) == len(calls), session.name
        assert {call.name for call in calls} <= {tool["name"] for tool in session.tools}, session.name
        assert session.results == [call.result for call in calls]


def test_something_changes_with_every_request() -> None:
    told = [closing(number, 30) for number in range(30)]
    assert len(set(told)) == 30
    assert told[3] == closing(3, 30)


def test_no_sessions_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no recorded sessions"):
        conversations(tmp_path)
