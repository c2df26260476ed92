"""Counting from what the provider reported: when it holds, when it is void, and what two reports teach."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from math import ceil
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.core.contracts.types import Message, ToolCall, ToolSchema, Usage, mark
from agentkit.state.context import (
    ApproxTokenCounter,
    Calibration,
    CharClassTokenCounter,
    Observation,
    PrefixContext,
    TokenCount,
    WorkingContext,
)
from tests.context_strategies import message_lists, simple_messages

PREFIX = PrefixContext("prompt")
TAIL = [Message("user", "q" * 400), Message("assistant", "a" * 400)]
CALL = Message("assistant", tool_calls=[ToolCall("c", "f", {"n": 1})])


def _measure(messages: list[Message]) -> int:
    return ApproxTokenCounter().measure(messages)


def _context(*more: Message) -> WorkingContext:
    return WorkingContext(PREFIX, [*TAIL, *more])


def _report(ctx: WorkingContext, prompt: int = 1_000, **options: Any) -> Observation | None:
    layout = ctx.segments(volatile=options.pop("volatile", ()), tools=options.pop("tools", ()))
    return ctx.record_usage(Usage(prompt), layout=layout, **options)


# -- the figures -------------------------------------------------------------------------------------------------------


def test_without_a_report_all_is_estimated() -> None:
    ctx = _context()
    estimate = _measure(ctx.assembled())
    assert ctx.count() == TokenCount(estimate, ceil(1.5 * estimate), "estimate", 0, estimate, 1.0)
    scaled = ctx.count(Calibration(1.5, overhead=100))
    assert scaled == TokenCount(round(1.5 * estimate), ceil(1.5 * (1.5 * estimate + 100)), "estimate", 0, estimate, 1.5)


def test_with_a_report_the_rest_alone_is_estimated() -> None:
    ctx = _context()
    _report(ctx)
    assert ctx.count() == TokenCount(1_000, 1_000, "provider", 1_000, 0, 1.0)
    new = [Message("user", "x" * 80), CALL]
    ctx.extend(new)
    appended = _measure(new)
    upper = 1_000 + ceil(1.35 * appended) + 100
    assert ctx.count() == TokenCount(1_000 + appended, upper, "provider", 1_000, appended, 1.0)
    scaled = ctx.count(Calibration(2.0))
    assert scaled.tokens == 1_000 + 2 * appended
    assert scaled.upper == 1_000 + ceil(1.35 * 2 * appended) + 100


def test_volatile_messages_are_taken_off() -> None:
    ctx = _context()
    volatile = [Message("user", "it is 12:00, step 3 of 9")]
    _report(ctx, volatile=volatile)
    assert ctx.count().tokens == 1_000 - _measure(volatile)
    assert ctx.count().reported == 1_000


def test_all_prompt_tokens_count() -> None:
    ctx = _context()
    ctx.record_usage(Usage(10, 99, 0.1, 500, 40), layout=ctx.segments())
    assert ctx.count().tokens == 550


def test_tokens_stays_the_plain_estimate() -> None:
    ctx = _context()
    estimate = _measure(ctx.assembled())
    _report(ctx)
    coroutine = ctx.tokens()
    with pytest.raises(StopIteration) as done:
        coroutine.send(None)
    assert done.value.value == estimate


class Exact(CharClassTokenCounter):
    """A counter that knows the vocabulary."""

    exact = True


def test_upper_of_an_exact_counter_is_narrow() -> None:
    ctx = WorkingContext(PREFIX, TAIL, token_counter=Exact())
    _report(ctx)
    ctx.append(Message("user", "word " * 1_000))
    appended = ctx.count().appended
    assert ctx.count().upper == 1_000 + ceil(1.02 * appended)
    assert ctx.count(Calibration(1.3)).upper == ctx.count(Calibration(1.3)).tokens


@given(st.integers(1, 10**6), message_lists(4), st.floats(0.5, 4), st.integers(0, 10**4), st.booleans(), st.booleans())
def test_upper_is_never_below_the_best_figure(
    prompt: int, new: list[Message], factor: float, overhead: int, exact: bool, reported: bool
) -> None:
    ctx = WorkingContext(PREFIX, TAIL, token_counter=Exact() if exact else None)
    if reported:
        _report(ctx, prompt)
    found = ctx.extend(new).count(Calibration(factor, overhead=overhead))
    assert found.upper >= found.tokens >= 0
    assert found.source == ("provider" if reported else "estimate")
    assert found.reported == (prompt if reported else 0)


def test_counter_of_the_context_estimates_what_came_after() -> None:
    dense = Message("tool", "7f3a9c" * 100)
    by_class = WorkingContext(PREFIX, TAIL, token_counter=CharClassTokenCounter())
    plain = _context()
    for ctx in (by_class, plain):
        _report(ctx)
        ctx.append(dense)
    assert by_class.count().appended == CharClassTokenCounter().measure([dense]) > plain.count().appended


# -- when it holds -----------------------------------------------------------------------------------------------------


@given(message_lists(4))
def test_appends_keep_the_anchor(new: list[Message]) -> None:
    ctx = _context()
    _report(ctx)
    ctx.append(*new).note("plan", 1).update_scratchpad({"a": 2})
    ctx.journal.record(1)
    assert ctx.count().source == "provider"
    assert ctx.count().appended == _measure(new)
    for copied in (copy.deepcopy(ctx), pickle.loads(pickle.dumps(ctx)), ctx.fork()):
        assert copied.count() == ctx.count()


def _replace(at: int, **change: Any) -> Callable[[WorkingContext], object]:
    def edit(ctx: WorkingContext) -> None:
        ctx.messages[at] = replace(ctx.messages[at], **change)

    return edit


VOID: dict[str, Callable[[WorkingContext], object]] = {
    "clear": lambda ctx: ctx.clear_messages(),
    "clear and refill": lambda ctx: ctx.clear_messages().extend([*TAIL, CALL]),
    "rewrite": lambda ctx: ctx.rewrite(2, [mark(Message("user", "s"), "summary", covers=2)], version=ctx.version),
    "rewrite of nothing": lambda ctx: ctx.rewrite(0, [], version=ctx.version),
    "edit": _replace(0, content="edited"),
    "edit of the last": _replace(2, content="edited"),
    "edit of an argument": _replace(2, tool_calls=(ToolCall("c", "f", {"n": 2}),)),
    "equal to Python, other text": _replace(2, tool_calls=(ToolCall("c", "f", {"n": True}),)),
    "removal": lambda ctx: ctx.messages.pop(1),
    "insertion": lambda ctx: ctx.messages.insert(0, Message("user", "new")),
    "order": lambda ctx: ctx.messages.reverse(),
    "other prefix": lambda ctx: setattr(ctx, "prefix", PrefixContext("other")),
    "longer prefix": lambda ctx: setattr(ctx, "prefix", PrefixContext("prompt", [Message("system", "g")])),
}


@pytest.mark.parametrize("name", VOID)
def test_n6_whatever_changes_the_sent_messages_voids_the_anchor(name: str) -> None:
    ctx = _context(CALL)
    _report(ctx, 100_000)
    assert ctx.count().tokens == 100_000
    VOID[name](ctx)
    assert ctx.count().source == "estimate"
    assert ctx.count().tokens == _measure(ctx.assembled())


def test_n6_trigger_behind_a_compaction_sees_the_small_figure() -> None:
    ctx = _context()
    _report(ctx, 190_000)
    ctx.rewrite(2, [mark(Message("user", "s"), "summary", covers=2)], version=0)
    assert ctx.count().upper < 100
    _report(ctx, 40)
    assert ctx.count().tokens == 40


def test_equal_prefix_of_another_object_keeps_it() -> None:
    ctx = _context()
    _report(ctx)
    ctx.prefix = PrefixContext("prompt")
    assert ctx.count().source == "provider"


def test_undone_edit_of_the_same_objects_keeps_it() -> None:
    """What was sent stands again."""
    ctx = _context()
    _report(ctx)
    last = ctx.messages.pop()
    assert ctx.count().source == "estimate"
    ctx.messages.append(last)
    assert ctx.count().source == "provider"


@pytest.mark.parametrize("usage", [Usage(), Usage(output_tokens=5), Usage(0, 5, 0.1)], ids=str)
def test_usage_without_a_prompt_never_anchors(usage: Usage) -> None:
    ctx = _context()
    assert ctx.record_usage(usage, layout=ctx.segments()) is None
    assert ctx.count().source == "estimate"
    _report(ctx)
    assert ctx.record_usage(usage, layout=ctx.segments()) is None
    assert ctx.count().tokens == 1_000


def test_n6_late_report_on_a_rewritten_context_is_passed_over() -> None:
    ctx = _context()
    layout = ctx.segments()
    ctx.rewrite(1, [], version=0)
    assert ctx.record_usage(Usage(5_000), layout=layout) is None
    assert ctx.count().source == "estimate"
    _report(ctx, 300)
    assert ctx.record_usage(Usage(5_000), layout=layout) is None
    assert ctx.count().tokens == 300


def test_report_may_arrive_behind_appends() -> None:
    ctx = _context()
    layout = ctx.segments()
    ctx.append(CALL)
    ctx.record_usage(Usage(1_000), layout=layout)
    assert ctx.count().tokens == 1_000 + _measure([CALL])


def test_newest_report_counts() -> None:
    ctx = _context()
    _report(ctx, 1_000)
    ctx.append(CALL)
    _report(ctx, 1_500)
    assert ctx.count().tokens == 1_500


@given(st.data())
def test_n6_no_count_rests_on_usage_older_than_the_version(data: st.DataObject) -> None:
    ctx = WorkingContext(PREFIX)
    layouts = [ctx.segments()]
    anchored: tuple[int, list[Message]] | None = None
    for number in range(data.draw(st.integers(1, 12))):
        step = data.draw(st.sampled_from(["append", "append", "request", "report", "rewrite", "clear", "edit"]))
        if step == "append":
            ctx.append(data.draw(simple_messages()))
        elif step == "request":
            layouts.append(ctx.segments())
        elif step == "report":
            layout = data.draw(st.sampled_from(layouts))
            ctx.record_usage(Usage(10_000 + number), layout=layout)
            sent = layout.messages()[1:]
            if all(a is b for a, b in zip(sent, ctx.messages, strict=False)) and len(sent) <= ctx.size():
                anchored = ctx.version, sent
        elif step == "rewrite":
            ctx.rewrite(data.draw(st.integers(0, ctx.size())), [Message("user", "new")], version=ctx.version)
        elif step == "clear":
            ctx.clear_messages()
        elif ctx.messages:
            ctx.messages[data.draw(st.integers(0, ctx.size() - 1))] = Message("user", f"edited {number}")
        now = ctx.count()
        holds = (
            anchored is not None
            and anchored[0] == ctx.version
            and len(anchored[1]) <= ctx.size()
            and all(a is b for a, b in zip(anchored[1], ctx.messages, strict=False))
        )
        assert now.source == ("provider" if holds else "estimate")
        if not holds:
            assert now.tokens == _measure(ctx.assembled())


@pytest.mark.parametrize(("usage", "layout"), [({"input": 1}, None), (Usage(1), "layout"), (1_000, None)], ids=str)
def test_wrong_report_is_named(usage: Any, layout: Any) -> None:
    ctx = _context()
    with pytest.raises(TypeError, match=r"(usage must be a Usage|layout must be a Layout), not"):
        ctx.record_usage(usage, layout=layout or ctx.segments())


# -- what two reports teach --------------------------------------------------------------------------------------------


def test_two_reports_give_an_observation() -> None:
    ctx = _context()
    assert _report(ctx, 1_000) is None
    ctx.append(CALL, Message("tool", "r" * 800, tool_call_id="c"))
    seen = _report(ctx, 1_400)
    assert seen == Observation(_measure(ctx.messages[2:]), 400)
    assert _report(ctx, 1_400) == Observation(0, 0)


def test_hidden_tokens_and_volatile_messages_cancel() -> None:
    ctx = _context()
    small, large = [Message("user", "v")], [Message("user", "v" * 4_000)]
    _report(ctx, 5_000 + 100 + _measure(small), volatile=small)
    ctx.append(CALL)
    assert _report(ctx, 5_000 + 120 + _measure(large), volatile=large) == Observation(_measure([CALL]), 20)


TOOLS = [ToolSchema("f")]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"model": "a"}, {"model": "b"}), ({}, {"model": "b"}), ({"tools": TOOLS}, {}),
        ({"tools": TOOLS}, {"tools": [ToolSchema("g")]}),
    ],
    ids=["model", "model named", "tools gone", "other tools"],
)  # fmt: skip
def test_other_settings_teach_nothing(first: dict[str, Any], second: dict[str, Any]) -> None:
    ctx = _context()
    _report(ctx, 1_000, **first)
    ctx.append(CALL)
    assert _report(ctx, 1_400, **second) is None
    assert ctx.count().tokens == 1_400
    ctx.append(CALL)
    assert _report(ctx, 1_500, **second) is not None


def test_n6_report_from_before_a_rewrite_teaches_nothing() -> None:
    ctx = _context()
    _report(ctx, 1_000)
    ctx.rewrite(0, [], version=0)
    assert _report(ctx, 1_200) is None


# -- calibration -------------------------------------------------------------------------------------------------------


@given(st.floats(0.5, 4), st.integers(0, 10**6), st.integers(-(10**6), 10**7))
def test_learning_follows_the_formula(factor: float, estimated: int, reported: int) -> None:
    before = Calibration(factor, 3, 7)
    after = before.learn(Observation(estimated, reported))
    if estimated < 200:
        assert after is before
        return
    weight = estimated / (estimated + 1_500)
    told = min(max(reported / estimated, 0.5), 4.0)
    assert after.factor == factor + 0.5 * weight * (told - factor)
    assert 0.5 <= after.factor <= 4.0
    assert (after.samples, after.overhead) == (4, 7)


def test_what_a_client_slipped_in_unseen_hardly_moves_the_factor() -> None:
    """28,000 tokens that the record does not hold, as in a recorded session, do not spoil the counts that follow."""
    seen = Observation(390, 28_614)
    assert Calibration(1.2).learn(seen).factor < 1.5


def test_nothing_seen_teaches_nothing() -> None:
    before = Calibration(1.2)
    assert before.learn(None) is before
    assert before.learn(Observation(199, 1_000)) is before
    assert before.learn(Observation(200, 1_000)) is not before


@pytest.mark.parametrize("truth", [0.6, 1.0, 1.28, 1.35, 2.5])
def test_factor_finds_the_models_density(truth: float) -> None:
    ctx = WorkingContext(PREFIX)
    calibration, prompt = Calibration(), 450.0
    for turn in range(60):
        message = Message("tool", "word " * (200 + turn * 7))
        ctx.append(message)
        prompt += truth * _measure([message])
        calibration = calibration.learn(_report(ctx, round(prompt)))
    assert abs(calibration.factor - truth) < 0.02
    new = Message("tool", "word " * 500)
    ctx.append(new)
    assert abs(ctx.count(calibration).tokens - (prompt + truth * _measure([new]))) < 15


@given(st.floats(0.5, 4), st.integers(0, 10**6), st.integers(0, 10**5))
def test_calibration_is_json(factor: float, samples: int, overhead: int) -> None:
    calibration = Calibration(factor, samples, overhead)
    data = json.loads(json.dumps(calibration.to_dict()))
    assert Calibration.from_dict(data) == calibration
    assert Calibration.from_dict(data | {"later": 1}) == calibration
    assert Calibration.from_dict({}) == Calibration()


@pytest.mark.parametrize("factor", [0.49, 4.01, float("nan"), float("inf"), 0, -1], ids=str)
def test_factor_stays_within_its_bounds(factor: float) -> None:
    with pytest.raises(ValueError, match=r"factor must be between 0\.5 and 4\.0"):
        Calibration(factor)


@pytest.mark.parametrize(
    ("model", "factor"),
    [
        ("gpt-5.6-sol", 1.0), (None, 1.0), ("", 1.0), ("qwen3", 1.0),
        ("claude-sonnet-4-6", 1.25), ("claude-opus-4-6", 1.25), ("claude-haiku-4-5-20251001", 1.25),
        ("anthropic/claude-sonnet-4-6", 1.25), ("CLAUDE-SONNET-4-6", 1.25),
        ("claude-opus-4-7", 1.5), ("claude-opus-4-8", 1.5), ("claude-sonnet-5-5", 1.5), ("claude-opus-5", 1.5),
        ("claude-haiku-5-5", 1.5), ("claude-fable-5", 1.5), ("claude-mythos-5-2", 1.5),
    ],
    ids=str,
)  # fmt: skip
def test_seeds_are_those_of_the_contract(model: str | None, factor: float) -> None:
    assert Calibration.seed(model) == Calibration(factor)
    assert Calibration.seed(model, "approx").factor == 1.0
    assert Calibration.seed(model, overhead=497) == Calibration(factor, overhead=497)


# -- tools -------------------------------------------------------------------------------------------------------------

TOOLS = [ToolSchema("write", "Writes a file.", {"type": "object"}), ToolSchema("read", "Reads a file.")]


def test_without_a_report_tool_schemas_count_too() -> None:
    ctx = _context()
    with_tools = ctx.count(tools=TOOLS)
    assert with_tools.tokens == sum(segment.tokens for segment in ctx.segments(tools=TOOLS).segments)
    assert with_tools.tokens > ctx.count().tokens == ctx.count(tools=()).tokens
    calibration = Calibration.seed("claude-sonnet-4-6", "approx", tools=TOOLS)
    assert ctx.count(calibration, tools=TOOLS).upper == ceil(1.5 * (with_tools.tokens + 497))


def test_n6_report_on_other_tools_holds_no_longer() -> None:
    ctx = _context()
    _report(ctx, tools=TOOLS)
    assert ctx.count().source == "provider"
    assert ctx.count(tools=list(reversed(TOOLS))).source == "provider"
    for other in ((), TOOLS[:1], [*TOOLS, ToolSchema("list")]):
        assert ctx.count(tools=other).source == "estimate"
    assert ctx.count(tools=TOOLS).reported == 1_000
