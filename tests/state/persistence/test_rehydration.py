"""What is saved stays frozen, what comes back is equal and writable at every depth."""

import copy
import pickle
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.core.contracts.errors import FormatError, FreezeError
from agentkit.core.contracts.types import Message, Scope, ToolCall, Usage, mark
from agentkit.state.context import (
    ApproxTokenCounter,
    CharClassTokenCounter,
    MutationJournal,
    PrefixContext,
    WorkingContext,
)
from agentkit.state.persistence import dehydrate, rehydrate
from tests.strategies import messages, texts

USAGE = Usage(10, 5, 0.25, 3, 2, cache_write_long_tokens=1, reasoning_tokens=4)

leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts() | st.binary(max_size=4)
notes = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(texts(), inner, max_size=3),
        st.sets(st.integers(), max_size=3),
        st.frozensets(texts(), max_size=3),
    ),
    max_leaves=8,
)


@st.composite
def contexts(draw: st.DrawFn) -> WorkingContext:
    entries = draw(st.lists(st.dictionaries(texts(), notes, max_size=2), max_size=3))
    ctx = WorkingContext(
        PrefixContext(draw(texts()), draw(st.lists(messages(), max_size=2)), draw(st.none() | texts())),
        draw(st.lists(messages(), max_size=5)),
        draw(st.dictionaries(texts(), notes, max_size=4)),
        MutationJournal.restore(entries, draw(st.integers(0, len(entries)))),
        limit=draw(st.none() | st.integers(0, 9)),
        shared=draw(st.booleans()),
        scope=draw(st.sampled_from([None, Scope(1), Scope("a", "b")])),
    )
    for _ in range(draw(st.integers(0, 2))):
        ctx.rewrite(0, [], version=ctx.version)
    return ctx


def metas(ctx: WorkingContext) -> list[Any]:
    return [(m.meta, [(c.raw, c.meta) for c in m.tool_calls]) for m in ctx.messages]


def plain_depths(value: Any) -> None:
    """Fails on any container that refuses writes; tuples and frozen sets as elements aside."""
    if isinstance(value, dict):
        assert type(value) is dict
        for inner in value.values():
            plain_depths(inner)
    elif isinstance(value, (list, tuple)):
        assert type(value) in (list, tuple)
        for inner in value:
            plain_depths(inner)
    else:
        assert not isinstance(value, frozenset)


def spoil(value: Any) -> None:
    """Writes to every container it can reach."""
    if isinstance(value, dict):
        for inner in value.values():
            spoil(inner)
        value["spoilt"] = True
    elif isinstance(value, list):
        for inner in value:
            spoil(inner)
        value.append("spoilt")
    elif isinstance(value, tuple):
        for inner in value:
            spoil(inner)
    elif isinstance(value, set):
        value.add("spoilt")


@given(contexts(), st.integers(0, 5))
def test_there_and_back_is_equal(ctx: WorkingContext, repaired: int) -> None:
    saved = dehydrate(ctx, USAGE, 3, repaired)
    back, usage, iteration, again = rehydrate(saved)
    assert back == ctx
    assert (back.version, metas(back)) == (ctx.version, metas(ctx))
    assert (usage, iteration, again) == (USAGE, 4, repaired)


@given(contexts())
def test_result_is_writable_and_saved_is_not_reached(ctx: WorkingContext) -> None:
    saved = dehydrate(ctx, USAGE, 3)
    before = copy.deepcopy(saved)
    back = rehydrate(saved)[0]
    plain_depths(back.scratchpad)
    for entry in back.journal.view():
        plain_depths(entry)
        spoil(entry)
    spoil(back.scratchpad)
    back.append(Message("user", "spoilt")).journal.record("spoilt")
    back.messages.clear()
    assert saved == before
    assert rehydrate(saved)[0] == ctx


@given(contexts())
def test_later_writes_do_not_show(ctx: WorkingContext) -> None:
    saved = dehydrate(ctx, USAGE, 3)
    before = rehydrate(saved)[0]
    spoil(ctx.scratchpad)
    ctx.append(Message("user", "later")).journal.record("later")
    assert rehydrate(saved)[0] == before


def test_saved_form_is_frozen() -> None:
    ctx = WorkingContext(PrefixContext("sys"), [Message("user", "hi")], {"plan": {"steps": ["a"]}})
    saved: Any = dehydrate(ctx, USAGE, 3)
    writes: list[Callable[[], Any]] = [
        lambda: saved.update(messages=()),
        lambda: saved["scratchpad"]["plan"]["steps"].append("b"),
        lambda: saved["prefix"].update(system_prompt="x"),
        lambda: saved["usage"].clear(),
    ]
    for write in writes:
        with pytest.raises(TypeError, match="frozen value"):
            write()
    assert saved["messages"] == (Message("user", "hi"),)
    assert saved["messages"][0] is ctx.messages[0]
    assert pickle.loads(pickle.dumps(saved)) == saved


@pytest.mark.parametrize("missing", ["messages", "usage", "iteration"])
def test_missing_key_is_named(missing: str) -> None:
    saved = {k: v for k, v in dehydrate(WorkingContext(), USAGE, 3).items() if k != missing}
    with pytest.raises(KeyError, match=missing):
        rehydrate(saved)


@pytest.mark.parametrize("missing", ["input", "output", "cost"])
def test_missing_figure_is_named(missing: str) -> None:
    saved = dict(dehydrate(WorkingContext(), USAGE, 3))
    saved["usage"] = {k: v for k, v in saved["usage"].items() if k != missing}
    with pytest.raises(KeyError, match=f"usage.{missing}"):
        rehydrate(saved)


def test_sparse_and_foreign_forms_are_read() -> None:
    saved = {
        "messages": [{"role": "user", "content": "hi", "odd": 1}, Message("assistant", "ho")],
        "usage": {"input": 1, "output": 2, "cost": 0.5},
        "iteration": 0,
        "journal": [{"kind": "seed"}],
        "unknown": object(),
    }
    ctx, usage, iteration, repaired = rehydrate(saved)
    assert ctx.messages == [Message("user", "hi"), Message("assistant", "ho")]
    assert ctx.messages[0].meta == {"odd": 1}
    assert (usage, iteration, repaired, ctx.version) == (Usage(1, 2, 0.5), 1, 0, 0)
    assert (ctx.journal.view(), ctx.journal.has_uncommitted()) == (({"kind": "seed"},), False)
    assert ctx.token_counter == ApproxTokenCounter()


def test_watermark_comes_back() -> None:
    ctx = WorkingContext()
    ctx.journal.record({"n": 1})
    ctx.journal.mark_committed()
    ctx.journal.record({"n": 2})
    back = rehydrate(dehydrate(ctx, USAGE, 0))[0]
    assert back.journal.diff() == [{"n": 2}]


def test_counter_is_handed_in() -> None:
    counter = CharClassTokenCounter()
    assert rehydrate(dehydrate(WorkingContext(), USAGE, 0), token_counter=counter)[0].token_counter is counter


@pytest.mark.parametrize("number", [2, 99, "1", True])
def test_other_formats_are_refused(number: Any) -> None:
    saved = {**dehydrate(WorkingContext(), USAGE, 0), "format": number}
    with pytest.raises(FormatError, match="reads up to 1"):
        rehydrate(saved)


def test_runaway_scratchpads_are_refused() -> None:
    ctx = WorkingContext()
    ctx.scratchpad["self"] = ctx.scratchpad
    with pytest.raises(FreezeError):
        dehydrate(ctx, USAGE, 0)
    deep: list[Any] = []
    for _ in range(150):
        deep = [deep]
    with pytest.raises(FreezeError):
        dehydrate(WorkingContext(scratchpad={"deep": deep}), USAGE, 0)


def test_marks_and_raw_arguments_survive() -> None:
    call = ToolCall("c", "f", '{"a":  1}', meta={"sig": b"x"})
    message = mark(Message("assistant", "", tool_calls=[call]), "pinned")
    back = rehydrate(dehydrate(WorkingContext(messages=[message]), USAGE, 0))[0]
    assert back.messages[0] is message


def test_own_objects_pass_by_identity() -> None:
    own = object()
    values = {"own": own, "at": datetime(2026, 1, 1, tzinfo=UTC), "price": Decimal("1.10")}
    back = rehydrate(dehydrate(WorkingContext(scratchpad={"v": values}), USAGE, 0))[0]
    assert back.scratchpad["v"] == values


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (({}, USAGE, 0), "ctx"),
        ((WorkingContext(), 5, 0), "usage"),
        ((WorkingContext(), USAGE, "0"), "iteration"),
        ((WorkingContext(), USAGE, 0, True), "repaired"),
    ],
)
def test_wrong_types_are_named(arguments: Any, named: str) -> None:
    with pytest.raises(TypeError, match=named):
        dehydrate(*arguments)
    with pytest.raises(TypeError, match="saved must be a mapping"):
        rehydrate([])  # type: ignore[arg-type]
