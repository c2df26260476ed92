"""The working context against a model of plain lists and dicts, and what its mutators refuse."""

from __future__ import annotations

import asyncio
import copy
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from agentkit.core.contracts.errors import AgentKitError, Conflict, MergeError
from agentkit.core.contracts.tokens import estimate_message_tokens
from agentkit.core.contracts.types import Message, Scope, ToolCall, mark
from agentkit.state import context as package
from agentkit.state.context import (
    AllOf,
    ApproxTokenCounter,
    CharClassTokenCounter,
    FrozenContext,
    LastNTurns,
    MutationJournal,
    Not,
    PrefixContext,
    RoleFilter,
    WorkingContext,
    surviving_indices,
)
from tests.context_strategies import Plan, message_lists, plain_data, simple_messages, union_of

PREFIX = PrefixContext("prompt", [Message("system", "grounding")])
KEYS = st.sampled_from(["a", "b", "c"])
SCOPES = [LastNTurns(1), Not(RoleFilter(frozenset({"tool"}))), AllOf((LastNTurns(2), Not(LastNTurns(1))))]


# -- the model ---------------------------------------------------------------------------------------------------------


@dataclass
class Model:
    """What a context is, in lists and dicts alone."""

    messages: list[Message] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)
    entries: list[Any] = field(default_factory=list)
    mark: int = 0
    version: int = 0
    base: tuple[Model, list[Message], dict[str, Any], int] | None = None

    def sibling(self, messages: list[Message]) -> Model:
        child = Model(messages, copy.deepcopy(self.notes), list(self.entries), self.mark)
        child.set_base(self)
        return child

    def set_base(self, parent: Model) -> None:
        self.base = parent, list(self.messages), copy.deepcopy(self.notes), len(self.entries)

    def merge(self, other: Model, mode: str) -> None:
        if mode == "delta":
            assert other.base is not None
            _, head, notes, entries = other.base
            incoming = other.messages[len(head) :]
            news = {k: v for k, v in other.notes.items() if k not in notes or notes[k] != v}
            for key in notes.keys() - other.notes.keys():
                self.notes.pop(key, None)
            added = other.entries[entries:]
        else:
            incoming = list(other.messages) if mode == "concat" else union_of(self.messages, other.messages)
            news, added = other.notes, list(other.entries)
        self.messages += incoming
        self.notes.update(copy.deepcopy(news))
        self.entries += added
        if mode == "delta":
            other.set_base(self)

    def can_ship_delta(self, parent: Model) -> bool:
        return self.base is not None and self.base[0] is parent and self.messages[: len(self.base[1])] == self.base[1]


class ContextMachine(RuleBasedStateMachine):
    """Any number of related contexts, each beside its model; a write that crosses shows in some model."""

    contexts = Bundle("contexts")

    def __init__(self) -> None:
        super().__init__()
        self.pairs: list[tuple[WorkingContext, Model]] = []

    def keep(self, ctx: WorkingContext, model: Model) -> int:
        self.pairs.append((ctx, model))
        return len(self.pairs) - 1

    @initialize(target=contexts, messages=message_lists(4), counter=st.booleans())
    def start(self, messages: list[Message], counter: bool) -> int:
        counted = CharClassTokenCounter() if counter else ApproxTokenCounter()
        ctx = WorkingContext(PREFIX, messages, token_counter=counted)
        return self.keep(ctx, Model(list(messages)))

    @rule(at=contexts, messages=message_lists(3), how=st.sampled_from(["append", "extend", "generator"]))
    def write(self, at: int, messages: list[Message], how: str) -> None:
        ctx, model = self.pairs[at]
        if how == "append":
            assert ctx.append(*messages) is ctx
        else:
            assert ctx.extend(iter(messages) if how == "generator" else messages) is ctx
        model.messages += messages

    @rule(at=contexts)
    def extend_with_itself(self, at: int) -> None:
        ctx, model = self.pairs[at]
        if len(model.messages) < 30:
            ctx.extend(ctx.messages)
            model.messages += list(model.messages)

    @rule(at=contexts, key=KEYS, value=plain_data())
    def note(self, at: int, key: str, value: Any) -> None:
        ctx, model = self.pairs[at]
        model.notes[key] = copy.deepcopy(value)
        assert ctx.note(key, value) is ctx
        assert ctx.get(key) is value

    @rule(at=contexts, key=KEYS)
    def write_into_a_note(self, at: int, key: str) -> None:
        ctx, model = self.pairs[at]
        for notes in (ctx.scratchpad, model.notes):
            if isinstance(notes.get(key), list):
                notes[key].append("written")
            elif isinstance(notes.get(key), dict):
                notes[key]["written"] = ["x"]
            elif isinstance(notes.get(key), set):
                notes[key].add("written")

    @rule(at=contexts, key=KEYS)
    def drop_a_note(self, at: int, key: str) -> None:
        ctx, model = self.pairs[at]
        ctx.scratchpad.pop(key, None)
        model.notes.pop(key, None)

    @rule(at=contexts, entry=st.integers(), commit=st.booleans())
    def record(self, at: int, entry: int, commit: bool) -> None:
        ctx, model = self.pairs[at]
        ctx.journal.record(entry)
        model.entries.append(entry)
        if commit:
            ctx.journal.mark_committed()
            model.mark = len(model.entries)

    @rule(at=contexts)
    def clear(self, at: int) -> None:
        ctx, model = self.pairs[at]
        assert ctx.clear_messages() is ctx
        model.messages.clear()
        model.version += 1

    @rule(at=contexts, head=st.integers(0, 6), new=message_lists(2), stale=st.booleans())
    def rewrite(self, at: int, head: int, new: list[Message], stale: bool) -> None:
        ctx, model = self.pairs[at]
        head = min(head, len(model.messages))
        if stale:
            with pytest.raises(Conflict) as refused:
                ctx.rewrite(head, new, version=model.version + 1)
            assert (refused.value.expected, refused.value.actual) == (model.version + 1, model.version)
            return
        assert ctx.rewrite(head, iter(new), version=ctx.version) is ctx
        model.messages[:head] = new
        model.version += 1

    @rule(
        at=contexts,
        data=st.data(),
        how=st.sampled_from(["replace", "twin", "insert", "delete", "swap", "rebind", "append"]),
    )
    def write_past_the_context(self, at: int, data: st.DataObject, how: str) -> None:
        """The list is the caller's too."""
        ctx, model = self.pairs[at]
        if how == "append":
            message = data.draw(simple_messages())
            ctx.messages.append(message)
            model.messages.append(message)
        elif how == "rebind":
            ctx.messages = copy.copy(ctx.messages)
        elif how == "swap":
            ctx.messages.reverse()
            model.messages.reverse()
        elif model.messages:
            place = data.draw(st.integers(0, len(model.messages) - 1))
            old = model.messages[place]
            new = data.draw(simple_messages())
            if how == "twin":  # equal to Python, and yet other text
                calls = [ToolCall(c.id, c.name, {k: float(v) for k, v in c.arguments.items()}) for c in old.tool_calls]
                new = replace(old, tool_calls=tuple(calls))
                assert new == old
            for messages in (ctx.messages, model.messages):
                if how == "delete":
                    del messages[place]
                else:
                    messages[place : place + (how != "insert")] = [new]

    @rule(target=contexts, at=contexts)
    def fork(self, at: int) -> int:
        ctx, model = self.pairs[at]
        child = model.sibling(list(model.messages))
        child.mark, child.version = len(child.entries), model.version
        forked = ctx.fork()
        assert forked.prefix is ctx.prefix
        return self.keep(forked, child)

    @rule(target=contexts, at=contexts, scope=st.sampled_from(SCOPES))
    def slice(self, at: int, scope: Any) -> int:
        ctx, model = self.pairs[at]
        kept = sorted(surviving_indices(scope, model.messages))
        sliced = ctx.slice(scope)
        assert sliced.prefix is ctx.prefix
        return self.keep(sliced, model.sibling([model.messages[i] for i in kept]))

    @rule(target=contexts, at=contexts, protocol=st.integers(0, 5), deep=st.booleans())
    def copy(self, at: int, protocol: int, deep: bool) -> int:
        ctx, model = self.pairs[at]
        copied = copy.deepcopy(ctx) if deep else pickle.loads(pickle.dumps(ctx, protocol))
        assert copied == ctx
        other = Model(copied.messages[:], copy.deepcopy(model.notes), list(model.entries), model.mark, model.version)
        return self.keep(copied, other)

    @rule(into=contexts, other=contexts, mode=st.sampled_from(["concat", "union", "delta", "delta"]))
    def merge(self, into: int, other: int, mode: str) -> None:
        (ctx, model), (source, source_model) = self.pairs[into], self.pairs[other]
        if len(model.messages) + len(source_model.messages) > 80 or len(model.entries) + len(source_model.entries) > 80:
            return
        if mode == "delta" and not source_model.can_ship_delta(model):
            with pytest.raises(MergeError):
                ctx.merge(source, mode=mode)
            return
        assert ctx.merge(source, mode=mode) is ctx
        model.merge(source_model, mode)

    @rule(at=contexts, other=contexts)
    def diff(self, at: int, other: int) -> None:
        (ctx, model), (source, source_model) = self.pairs[at], self.pairs[other]
        found = ctx.diff(source)
        assert len(model.messages) - len(found.messages_added) == len(source_model.messages) - len(
            found.messages_removed
        )
        changed = {k: v for k, v in model.notes.items() if k not in source_model.notes or v != source_model.notes[k]}
        assert found.scratchpad_changes == {
            **changed,
            **dict.fromkeys(source_model.notes.keys() - model.notes.keys()),
        }

    @invariant()
    def contexts_are_what_the_models_say(self) -> None:
        for ctx, model in self.pairs:
            assert len(ctx.messages) == len(model.messages) == ctx.size()
            assert all(a is b for a, b in zip(ctx.messages, model.messages, strict=True))
            assert ctx.scratchpad == model.notes
            assert ctx.journal.view() == tuple(model.entries)
            assert ctx.journal.committed_index == model.mark
            assert ctx.version == model.version

    @rule(at=contexts)
    def what_is_known_is_what_a_fresh_context_finds(self, at: int) -> None:
        ctx, model = self.pairs[at]
        fresh = WorkingContext(ctx.prefix, model.messages, model.notes, token_counter=ctx.token_counter)
        counter: Any = ctx.token_counter
        assert asyncio.run(ctx.tokens()) == counter.measure(ctx.assembled())
        assert hash(ctx.freeze()) == hash(FrozenContext(ctx.prefix, model.messages, model.notes))
        assert ctx.segments() == fresh.segments()
        assert ctx.count() == fresh.count()


TestContextMachine = ContextMachine.TestCase


# -- construction ------------------------------------------------------------------------------------------------------


def test_fields_are_positional_in_the_order_of_the_contract() -> None:
    names = ["prefix", "messages", "scratchpad", "journal", "token_counter", "limit", "shared", "scope"]
    assert [f.name for f in fields(WorkingContext)] == names
    assert [f.name for f in fields(WorkingContext) if f.kw_only] == ["scope"]
    journal, counter = MutationJournal([1]), CharClassTokenCounter()
    ctx = WorkingContext(PREFIX, [Message("user", "a")], {"k": 1}, journal, counter, 10, True, scope=Scope(1))
    assert (ctx.prefix, ctx.messages, ctx.scratchpad) == (PREFIX, [Message("user", "a")], {"k": 1})
    assert ctx.journal is journal
    assert (ctx.token_counter, ctx.limit, ctx.shared, ctx.scope) == (counter, 10, True, Scope(1))


def test_empty_contexts_are_equal_and_unhashable() -> None:
    ctx = WorkingContext()
    assert ctx == WorkingContext(None, None, None, None, None)
    assert (ctx.prefix, ctx.messages, ctx.scratchpad, ctx.journal.size()) == (PrefixContext(), [], {}, 0)
    assert (ctx.token_counter, ctx.limit, ctx.shared, ctx.scope, ctx.version) == (
        ApproxTokenCounter(),
        None,
        False,
        None,
        0,
    )
    with pytest.raises(TypeError, match="unhashable"):
        hash(ctx)


@pytest.mark.parametrize(
    "change",
    [
        {"prefix": PREFIX}, {"messages": [Message("user")]}, {"scratchpad": {"a": 1}},
        {"journal": MutationJournal([1])}, {"token_counter": CharClassTokenCounter()}, {"limit": 1}, {"shared": True},
    {"scope": Scope(1)}, ],
    ids=lambda change: next(iter(change)),
)  # fmt: skip
def test_equality_is_over_the_fields(change: dict[str, Any]) -> None:
    assert WorkingContext(**change) == WorkingContext(**change)
    assert WorkingContext(**change) != WorkingContext()


def test_lock_version_fork_and_anchor_are_outside_equality_and_repr() -> None:
    ctx = WorkingContext(messages=[Message("user", "a")])
    before = repr(ctx)
    other = WorkingContext().append(Message("user", "b")).clear_messages().append(Message("user", "a"))
    assert other.version == 1
    _ = ctx.lock, ctx.freeze(), ctx.segments()
    assert ctx == other == other.fork()
    assert repr(ctx) == before == repr(other)
    assert before == f"WorkingContext({', '.join(f'{f.name}={getattr(ctx, f.name)!r}' for f in fields(ctx))})"


def test_given_list_and_dict_are_copied_at_the_top() -> None:
    messages, notes = [Message("user", "a")], {"k": [1]}
    ctx = WorkingContext(messages=messages, scratchpad=notes)
    messages.clear()
    notes["new"] = [2]
    assert ctx.messages == [Message("user", "a")]
    assert ctx.scratchpad == {"k": [1]}
    assert ctx.scratchpad["k"] is notes["k"]


WRONG: dict[str, dict[str, Any]] = {
    "prefix must be a PrefixContext, not str": {"prefix": "prompt"},
    "messages[1] must be a Message, not dict; Message.from_dict reads a mapping": {"messages": [Message("user"), {}]},
    "the scratchpad's content must be a Mapping, not list": {"scratchpad": [("a", 1)]},
    "a scratchpad key must be a str, not int": {"scratchpad": {1: "a"}},
    "journal must be a MutationJournal, not list": {"journal": [1]},
    "token_counter must be a TokenCounter, not function": {"token_counter": lambda messages: 0},
    "limit must be an int or None, not float": {"limit": 1.5},
    "limit must be an int or None, not bool": {"limit": True},
    "shared must be a bool, not int": {"shared": 1},
    "scope must be a Scope, not str": {"scope": "org1"},
}


@pytest.mark.parametrize("text", WRONG)
def test_wrong_types_are_named(text: str) -> None:
    with pytest.raises(TypeError) as refused:
        WorkingContext(**WRONG[text])
    assert text in str(refused.value)


def test_negative_limit_is_refused() -> None:
    with pytest.raises(ValueError, match="limit must not be negative: -1"):
        WorkingContext(limit=-1)
    assert WorkingContext(limit=0).append(Message("user", "x" * 1_000)).size() == 1  # declared, not enforced


# -- mutators ----------------------------------------------------------------------------------------------------------


def _failing() -> Iterator[Message]:
    yield Message("user", "lost")
    raise RuntimeError("lost")


REFUSED: dict[str, tuple[Callable[[WorkingContext], object], type[Exception]]] = {
    "append a dict": (lambda ctx: ctx.append(Message("user"), {"role": "user"}), TypeError),  # type: ignore[arg-type]
    "append a text": (lambda ctx: ctx.append("a"), TypeError),  # type: ignore[arg-type]
    "extend by a text": (lambda ctx: ctx.extend("ab"), TypeError),  # type: ignore[arg-type]
    "extend by one message": (lambda ctx: ctx.extend(Message("user")), TypeError),  # type: ignore[arg-type]
    "extend by None": (lambda ctx: ctx.extend([Message("user"), None]), TypeError),  # type: ignore[list-item]
    "generator that fails": (lambda ctx: ctx.extend(_failing()), RuntimeError),
    "key that is no text": (lambda ctx: ctx.note(1, "a"), TypeError),  # type: ignore[arg-type]
    "one key that is no text": (lambda ctx: ctx.update_scratchpad({"x": 1, 2: "a"}), TypeError),  # type: ignore[dict-item]
    "notes that are no mapping": (lambda ctx: ctx.update_scratchpad([("x", 1)]), TypeError),  # type: ignore[arg-type]
    "rewrite beyond the tail": (lambda ctx: ctx.rewrite(3, [], version=0), ValueError),
    "rewrite before the tail": (lambda ctx: ctx.rewrite(-1, [], version=0), ValueError),
    "rewrite with a dict": (lambda ctx: ctx.rewrite(1, [{}], version=0), TypeError),  # type: ignore[list-item]
    "rewrite by a failing generator": (lambda ctx: ctx.rewrite(1, _failing(), version=0), RuntimeError),
    "rewrite at a stale version": (lambda ctx: ctx.rewrite(1, [], version=1), Conflict),
    "rewrite at no version": (lambda ctx: ctx.rewrite(1, [], version=None), TypeError),  # type: ignore[arg-type]
    "rewrite of no number": (lambda ctx: ctx.rewrite(True, [], version=0), TypeError),
    "unknown mode": (lambda ctx: ctx.merge(WorkingContext(), mode="append"), ValueError),
    "merge a list": (lambda ctx: ctx.merge([]), TypeError),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", REFUSED)
def test_g7_refused_write_changes_nothing(name: str) -> None:
    write, error = REFUSED[name]
    ctx = WorkingContext(PREFIX, [Message("user", "a"), Message("user", "b")], {"k": 1})
    before = pickle.dumps(ctx)
    with pytest.raises(error):
        write(ctx)
    assert ctx == pickle.loads(before)
    assert ctx.version == 0


def test_note_keeps_the_object_itself() -> None:
    plan = Plan(["a"])
    ctx = WorkingContext().note("plan", plan)
    assert ctx.get("plan") is plan
    assert ctx.get("missing") is None
    assert ctx.get("missing", plan) is plan
    assert ctx.update_scratchpad({"plan": 1, "b": 2}).scratchpad == {"plan": 1, "b": 2}


@given(message_lists())
def test_no_mutator_reaches_the_prefix(messages: list[Message]) -> None:
    ctx = WorkingContext(PREFIX, messages)
    before = PREFIX.as_messages()
    ctx.append(*messages).extend(messages).note("a", 1).update_scratchpad({"b": 2}).rewrite(0, messages, version=0)
    ctx.merge(ctx.fork()).clear_messages()
    assert ctx.prefix is PREFIX
    assert ctx.assembled() == before == PREFIX.as_messages()


def test_version_counts_rewrites_and_not_appends() -> None:
    ctx = WorkingContext()
    ctx.append(Message("user", "a")).extend([Message("user", "b")]).note("a", 1).merge(WorkingContext())
    assert ctx.version == 0
    assert ctx.rewrite(2, [mark(Message("user", "s"), "summary", covers=2)], version=0).version == 1
    assert ctx.clear_messages().version == 2
    assert ctx.clear_messages().version == 3


def test_c12_rewrite_keeps_what_arrived_meanwhile() -> None:
    ctx = WorkingContext(messages=[Message("user", "old"), Message("assistant", "old")])
    version, head = ctx.version, ctx.size()
    ctx.append(Message("user", "late"))
    summary = mark(Message("user", "s"), "summary", covers=2)
    ctx.rewrite(head, [summary], version=version)
    assert ctx.messages == [summary, Message("user", "late")]
    with pytest.raises(Conflict, match="is at 1, not at the expected 0") as refused:
        ctx.rewrite(1, [], version=version)
    assert isinstance(refused.value, AgentKitError)


@given(message_lists())
def test_appended_lists_are_not_aliased(messages: list[Message]) -> None:
    given_list = list(messages)
    ctx = WorkingContext().extend(given_list)
    given_list.append(Message("user", "later"))
    ctx.assembled().clear()
    assert ctx.messages == messages


def test_counts_go_to_the_counter() -> None:
    class Remote:
        seen: list[list[Message]]

        def __init__(self) -> None:
            self.seen = []

        async def estimate(self, messages: Any, /) -> int:
            self.seen.append(list(messages))
            return 4_711

    counter = Remote()
    ctx = WorkingContext(PREFIX, [Message("user", "a")], token_counter=counter)
    assert asyncio.run(ctx.tokens()) == 4_711
    assert counter.seen == [ctx.assembled()]
    assert ctx.count().tokens == estimate_message_tokens(ctx.assembled())


def test_subclass_keeps_its_kind_and_its_fields() -> None:
    @dataclass
    class Tracked(WorkingContext):
        label: str = "none"

    ctx = Tracked(messages=[Message("user", "a")], label="x")
    for sibling in (ctx.fork(), ctx.slice(LastNTurns(1))):
        assert type(sibling) is Tracked
        assert sibling == ctx


# -- the package -------------------------------------------------------------------------------------------------------


def test_package_exports() -> None:
    assert package.__all__ == [
        "AllOf", "AnyOf", "ApproxTokenCounter", "Calibration", "CharClassTokenCounter", "ContextDiff", "ContextScope",
        "Difference", "ExactTokenCounter", "FrozenContext", "LastNTurns", "Layout", "MessageView", "MutationJournal",
        "Not", "Observation", "PositionalScope", "PrefixContext", "RoleFilter", "Segment", "Since", "Tagged",
        "TiktokenCounter", "TokenCount", "WorkingContext", "counter_for", "first_difference", "surviving_indices",
    ]  # fmt: skip
    assert all(getattr(package, name).__module__.startswith("agentkit.state.context.") for name in package.__all__)


LOADED = "import json, sys; before = set(sys.modules); import agentkit.state.context; print(*set(sys.modules) - before)"


def test_import_loads_the_standard_library_only() -> None:
    run = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, timeout=60, check=True)
    loaded = {name.partition(".")[0] for name in run.stdout.split()}
    assert loaded - set(sys.stdlib_module_names) == {"agentkit"}
    assert not loaded & {"http", "sqlite3", "tempfile", "urllib"}
