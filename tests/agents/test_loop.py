"""The loop machine: its guards, its rounds, its ends, and that a record brings it to where it was."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.agents import loop as loops
from agentkit.agents.loop import End, EndState, Loop, LoopLimits, Progress, Round
from agentkit.core.contracts.messages import Message, ToolCall
from agentkit.core.contracts.usage import Usage

READS = {"look", "list"}


def machine(limits: LoopLimits | None = None, *, started: float = 0.0) -> Loop:
    return Loop(limits or LoopLimits(), started=started, read_only=READS.__contains__)


def calling(*calls: tuple[str, str, dict[str, Any]], text: str = "") -> Message:
    return Message("assistant", text, tool_calls=[ToolCall(id, name, arguments) for id, name, arguments in calls])


def result(id: str, content: str = "done", *, is_error: bool = False) -> Message:
    return Message("tool", content, None, id, is_error=is_error)


def one_round(found: Loop, id: str, name: str = "look", content: str = "same", **arguments: Any) -> End | None:
    assert isinstance(found.answer(calling((id, name, arguments)), Usage(1, 1)), Round)
    return found.results([result(id, content)])


# Guards


def test_guards_hold_in_the_order_of_the_contract() -> None:
    found = machine(LoopLimits(steps=1, tokens=2, seconds=10))
    one_round(found, "a")
    everything: dict[str, Any] = {"cancelled": True, "over_budget": "budget", "over_window": "window"}
    now = 10.0
    seen = []
    while (end := found.guard(now, **everything)) is not None:
        seen.append(str(end.state))
        if end.state is EndState.CANCELLED:
            everything["cancelled"] = False
        elif end.state is EndState.DEADLINE:
            now = 9.9
        elif end.state is EndState.EXHAUSTED_STEPS:
            found.limits = LoopLimits(steps=2, tokens=2, seconds=10)
        elif end.state is EndState.EXHAUSTED_TOKENS:
            found.limits = LoopLimits(steps=2, tokens=3, seconds=10)
        elif end.reason == "budget":
            assert (end.state, end.exit) == (EndState.REFUSED, 7)
            everything["over_budget"] = None
        else:
            assert end == End(EndState.FAILED, "window")
            everything["over_window"] = None
    assert seen == ["cancelled", "deadline", "exhausted_steps", "exhausted_tokens", "refused", "failed"]


def test_guard_changes_nothing() -> None:
    found = machine(LoopLimits(seconds=1))
    before = found.progress
    assert found.guard(5.0) == found.guard(5.0) == End(EndState.DEADLINE, "5 s of 1 s")
    assert found.progress == before
    assert found.guard(0.5) is None


def test_limits_of_none_never_end_a_loop() -> None:
    found = machine(LoopLimits(steps=None, tokens=None, seconds=None, repeats=None))
    for number in range(50):
        assert one_round(found, f"c{number}") is None
    assert found.guard(1e12) is None
    assert (found.steps, found.tokens, found.round) == (50, 100, 50)


def test_tokens_count_what_came_from_the_cache() -> None:
    found = machine()
    found.answer(Message("assistant", "ok"), Usage(1, 2, 0.0, 4, 8))
    assert found.tokens == 15


@pytest.mark.parametrize(
    "limits", [{"steps": -1}, {"tokens": -1}, {"seconds": -0.1}, {"seconds": float("nan")}, {"repeats": 1}]
)
def test_limits_that_cannot_be_are_refused(limits: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(limits))):
        LoopLimits(**limits)


def test_limits_of_a_wrong_type_are_refused() -> None:
    with pytest.raises(TypeError, match=r"LoopLimits\.steps"):
        LoopLimits(steps=True)


# Rounds


def test_answer_without_calls_completes_with_its_text() -> None:
    assert machine().answer(Message("assistant", "42"), Usage()) == End(EndState.COMPLETED, output="42")


def test_round_runs_together_only_if_all_its_calls_are_read_only() -> None:
    reading = machine().answer(calling(("a", "look", {}), ("b", "list", {})), Usage())
    mixed = machine().answer(calling(("a", "look", {}), ("b", "post", {})), Usage())
    assert isinstance(reading, Round)
    assert isinstance(mixed, Round)
    assert reading.together
    assert not mixed.together
    assert [call.id for call in mixed.calls] == ["a", "b"]
    assert mixed.number == 1


def test_answer_before_the_results_of_its_round_is_refused() -> None:
    found = machine()
    found.answer(calling(("a", "look", {})), Usage())
    with pytest.raises(RuntimeError, match=r"round 1 still waits for the results of look \(a\)"):
        found.answer(Message("assistant", "more"), Usage())


def test_results_without_a_round_are_refused() -> None:
    with pytest.raises(RuntimeError, match="no call of round 0"):
        machine().results([result("a")])


def test_results_that_lack_one_are_refused_and_still_owed() -> None:
    found = machine()
    found.answer(calling(("a", "look", {}), ("b", "post", {})), Usage())
    with pytest.raises(ValueError, match=r"no result of post \(b\)"):
        found.results([result("a")])
    assert found.progress.owed == ("a", "b")
    assert found.results([result("a"), result("b")]) is None


def test_asking_again_after_an_answer_is_allowed() -> None:
    found = machine()
    found.answer(Message("assistant", "no JSON"), Usage())
    assert found.answer(Message("assistant", "{}"), Usage()) == End(EndState.COMPLETED, output="{}")
    assert found.steps == 2


# Ends of its own


def test_loop_is_detected_in_the_fourth_round_of_the_same() -> None:
    found = machine()
    ends = [one_round(found, f"c{n}", a=1, b=2) for n in range(4)]
    assert ends[:3] == [None, None, None]
    assert ends[3] is not None
    assert ends[3].state is EndState.LOOP_DETECTED
    assert "look" in ends[3].reason


def test_rounds_in_between_do_not_hide_a_loop() -> None:
    found = machine()
    for number in range(3):
        assert one_round(found, f"a{number}") is None
        assert one_round(found, f"b{number}", content=str(number)) is None
    end = one_round(found, "a9")
    assert end is not None
    assert end.state is EndState.LOOP_DETECTED


def test_order_of_arguments_does_not_hide_a_loop() -> None:
    found = machine()
    texts = ['{"a": 1, "b": 2}', '{"b":2,"a":1}'] * 2
    ends = []
    for number, text in enumerate(texts):
        found.answer(Message("assistant", "", tool_calls=[ToolCall(f"c{number}", "look", text)]), Usage())
        ends.append(found.results([result(f"c{number}")]))
    assert [end is not None for end in ends] == [False, False, False, True]


def test_same_call_twice_in_a_round_counts_once() -> None:
    found = machine()
    for number in range(3):
        found.answer(calling((f"a{number}", "look", {}), (f"b{number}", "look", {})), Usage())
        assert found.results([result(f"a{number}"), result(f"b{number}")]) is None
    assert found.progress.repeated == 3


@pytest.mark.parametrize("change", ["name", "arguments", "result", "error"])
def test_calls_that_differ_are_no_loop(change: str) -> None:
    found = machine()
    for n in range(6):
        name = f"look{n}" if change == "name" else "look"
        found.answer(calling((f"c{n}", name, {"n": n} if change == "arguments" else {})), Usage())
        content = str(n) if change == "result" else "same"
        is_error = n % 2 == 0 if change == "error" else False
        assert found.results([result(f"c{n}", content, is_error=is_error)]) is None


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "REMEMBERED", 10)
    found = machine()
    for number in range(100):
        one_round(found, f"c{number}", content=str(number))
    assert len(found._seen) == 10
    ends = [one_round(found, f"d{number}", content="99") for number in range(3)]
    assert [end is not None for end in ends] == [False, False, True]


# A requested finish


def test_finish_acts_after_its_round() -> None:
    found = machine()
    found.answer(calling(("a", "finish", {}), ("b", "post", {})), Usage())
    found.finish("refused", {"why": 1}, "not allowed", 5)
    assert found.progress.finishing == End(EndState.REFUSED, "not allowed", {"why": 1}, 5)
    assert found.results([result("a"), result("b")]) == End(EndState.REFUSED, "not allowed", {"why": 1}, 5)


def test_finish_beats_a_loop_and_a_cancel() -> None:
    found = machine(LoopLimits(repeats=2))
    one_round(found, "a")
    found.answer(calling(("b", "look", {})), Usage())
    found.finish("completed", "42")
    assert found.results([result("b", "same")]) == End(EndState.COMPLETED, output="42")
    assert found.guard(0.0, cancelled=True) == End(EndState.COMPLETED, output="42")


def test_first_finish_counts() -> None:
    found = machine()
    found.answer(calling(("a", "finish", {}), ("b", "finish", {})), Usage())
    found.finish("completed", 1)
    found.finish("failed", 2)
    assert found.results([result("a"), result("b")]) == End(EndState.COMPLETED, output=1)


@pytest.mark.parametrize("status", ["deadline", "loop_detected", "done", ""])
def test_finish_with_another_status_is_refused(status: str) -> None:
    with pytest.raises(ValueError, match="completed, failed, refused, cancelled"):
        machine().finish(status)


# Resumption


@dataclass(frozen=True)
class Step:
    """One round of a recorded turn: its answer, its results, and whether a tool asked to finish in it."""

    answer: Message
    usage: Usage
    results: tuple[Message, ...] = ()
    finish: str | None = None


def feed(found: Loop, step: Step) -> list[Any]:
    said: list[Any] = [found.guard(1.0), found.answer(step.answer, step.usage)]
    if step.finish is not None:
        found.finish(step.finish, "asked")
    if step.results:
        said.append(found.results(step.results))
    said.append(found.progress)
    return said


@st.composite
def turns(draw: st.DrawFn) -> list[Step]:
    """Rounds of few different calls, so that loops, finishes and limits are met."""
    steps = []
    for number in range(draw(st.integers(1, 9))):
        usage = Usage(draw(st.integers(0, 3)), draw(st.integers(0, 3)))
        count = draw(st.integers(0, 2))
        if not count:
            steps.append(Step(Message("assistant", draw(st.sampled_from(["", "text"]))), usage))
            continue
        calls: list[tuple[str, str, dict[str, Any]]] = []
        results = []
        for at in range(count):
            id = f"call-{number}-{at}"
            arguments: dict[str, Any] = draw(st.sampled_from([{}, {"a": 1}, {"a": 1.0, "b": [True]}]))
            calls.append((id, draw(st.sampled_from(["look", "post"])), arguments))
            results.append(result(id, draw(st.sampled_from(["", "x"])), is_error=draw(st.booleans())))
        steps.append(Step(calling(*calls), usage, tuple(results), draw(st.sampled_from([None, None, "failed"]))))
    return steps


@given(turns(), st.data())
def test_f6_machine_fed_from_a_record_is_the_machine_that_was_fed_live(steps: list[Step], data: st.DataObject) -> None:
    """At every cut: what the record brings back decides the rest as if nothing had happened."""
    limits = LoopLimits(steps=8, tokens=30, seconds=60, repeats=3)
    live = machine(limits)
    told = [feed(live, step) for step in steps]
    for cut in range(len(steps) + 1):
        again = machine(limits)
        for step in steps[:cut]:
            stored = Message.from_dict(step.answer.to_dict())
            again.answer(stored, step.usage)
            if step.finish is not None:
                again.finish(step.finish, "asked")
            if step.results:
                again.results([Message.from_dict(one.to_dict()) for one in step.results])
        assert [feed(again, step) for step in steps[cut:]] == told[cut:]


def test_f6_machine_stopped_inside_a_round_takes_up_that_round() -> None:
    again = machine()
    again.answer(calling(("a", "look", {}), ("b", "post", {})), Usage(5, 5))
    assert again.progress == Progress(1, 10, ("a", "b"), 0, None)
    assert again.results([result("a"), result("b", "unknown", is_error=True)]) is None
    assert again.guard(0.0) is None
