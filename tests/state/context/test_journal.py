"""The journal: append-only, with a watermark that ships each entry once."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from agentkit.state.context import MutationJournal, WorkingContext


class JournalMachine(RuleBasedStateMachine):
    """Random record, apply and mark against a list and a number."""

    def __init__(self) -> None:
        super().__init__()
        self.journal: MutationJournal[Any] = MutationJournal()
        self.entries: list[Any] = []
        self.mark = 0

    @rule(entry=st.integers() | st.dictionaries(st.text(max_size=2), st.integers(), max_size=2))
    def record(self, entry: Any) -> None:
        self.journal.record(entry)
        self.entries.append(entry)

    @rule(entries=st.lists(st.integers(), max_size=3))
    def apply(self, entries: list[int]) -> None:
        self.journal.apply(iter(entries))
        self.entries += entries

    @rule(which=st.sampled_from(["view", "diff", "itself"]))
    def apply_own(self, which: str) -> None:
        if len(self.entries) > 50:
            return
        views: dict[str, Any] = {"view": self.journal.view(), "diff": self.journal.diff(), "itself": self.journal}
        self.journal.apply(views[which])
        self.entries += self.entries[self.mark :] if which == "diff" else self.entries

    @rule()
    def commit(self) -> None:
        self.journal.mark_committed()
        self.mark = len(self.entries)

    @rule()
    def spoil_what_was_returned(self) -> None:
        self.journal.diff().clear()

    @rule()
    def go_on_with_a_copy(self) -> None:
        before = self.journal
        self.journal = pickle.loads(pickle.dumps(before))
        assert self.journal == before

    @invariant()
    def follows_the_model(self) -> None:
        journal = self.journal
        assert journal.view() == tuple(self.entries)
        assert list(journal) == self.entries
        assert journal.diff() == self.entries[self.mark :]
        assert journal.has_uncommitted() == (self.mark < len(self.entries))
        assert journal.size() == len(journal) == len(self.entries)
        assert journal.committed_index == self.mark
        assert journal == MutationJournal.restore(self.entries, self.mark)


TestJournalMachine = JournalMachine.TestCase


def test_seed_entries_start_committed() -> None:
    journal: MutationJournal[dict[str, int]] = MutationJournal[dict[str, int]]([{"a": 1}])
    assert not journal.has_uncommitted()
    assert journal.committed_index == 1
    journal.record({"b": 2})
    assert journal.diff() == [{"b": 2}]


def test_entries_are_kept_as_they_are() -> None:
    entry: dict[str, Any] = {"author": ["a"]}
    journal: MutationJournal[Any] = MutationJournal([entry])
    journal.record(entry)
    journal.apply([entry, entry])
    assert all(found is entry for found in journal.view())
    assert journal.size() == 4


def test_given_entries_are_not_aliased() -> None:
    seed = [1]
    journal = MutationJournal(seed)
    seed.append(2)
    assert journal.view() == (1,)


def test_failing_iterable_adds_nothing() -> None:
    def failing() -> Iterator[int]:
        yield 1
        raise RuntimeError("lost")

    journal = MutationJournal([0])
    with pytest.raises(RuntimeError, match="lost"):
        journal.apply(failing())
    assert journal.view() == (0,)


def test_equality_is_entries_and_watermark() -> None:
    one, other = MutationJournal([1, 2]), MutationJournal([1])
    other.record(2)
    assert one != other
    other.mark_committed()
    assert one == other
    assert (one == [1, 2]) is False
    with pytest.raises(TypeError, match="unhashable"):
        hash(one)


def test_copies_are_independent() -> None:
    journal = MutationJournal([1])
    journal.record(2)
    for copied in (journal.copy(), copy.deepcopy(journal), copy.copy(journal)):
        assert copied == journal
        copied.record(3)
        copied.mark_committed()
        assert journal.diff() == [2]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickle_keeps_the_watermark(protocol: int) -> None:
    journal = MutationJournal([1])
    journal.record(2)
    assert pickle.loads(pickle.dumps(journal, protocol)) == journal


def test_journal_that_holds_itself_can_be_copied() -> None:
    journal: MutationJournal[Any] = MutationJournal()
    journal.record({"where": journal})
    for copied in (pickle.loads(pickle.dumps(journal)), copy.deepcopy(journal)):
        assert copied.view()[0]["where"] is copied


@pytest.mark.parametrize("wrong", [-1, 3, 1.0, True, None], ids=repr)
def test_watermark_lies_within_the_entries(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"the watermark must be between 0 and 2, not"):
        MutationJournal.restore([1, 2], wrong)


def test_subclass_survives_fork_and_slice() -> None:
    class Audited(MutationJournal[int]):
        pass

    ctx = WorkingContext(journal=Audited([1]))
    assert type(ctx.fork().journal) is Audited


def test_since_gives_a_fresh_list() -> None:
    journal = MutationJournal([1, 2, 3])
    journal.since(1).clear()
    assert journal.since(1) == [2, 3]
    assert journal.since(9) == []


def test_repr_shows_entries_and_watermark() -> None:
    assert repr(MutationJournal([1])) == "MutationJournal([1], committed=1)"
