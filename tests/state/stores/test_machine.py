"""Random operations on a store, against a model of plain dictionaries."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Awaitable
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from agentkit.core.contracts.errors import Conflict, Fenced, StoreError
from agentkit.core.contracts.ports import MISSING, Append, Delete, Lease, LeasingStore, Put, SearchingStore, Store
from agentkit.core.contracts.types import Message
from agentkit.core.testing import FakeClock
from agentkit.state.stores import InMemoryStore, SQLiteStore

KEYS = ("a", "a/", "a/b", "A", "%", "_", "\0", "\uffff", "\U00010000", "z" * 2_048)
FAST = "/dev/shm" if os.path.isdir("/dev/shm") else None
"""Memory in place of a disk, where there is one: this is about results, not about durability."""
WORDS = ("alpha", "Beta", "gä", "x")
NEVER = 10**15
"""A version that no store reaches here."""
UNKNOWN = -1
"""The version of a value that the store has not told yet."""

Op: TypeAlias = Put | Append | Delete
keys = st.sampled_from(KEYS)
texts = st.lists(st.sampled_from(WORDS), max_size=3).map(" ".join)
values = st.one_of(
    st.none(),
    st.integers(),
    st.binary(max_size=4),
    st.sampled_from(["\ud800", "a\0b", ("t", 1), {"k": [1]}, {1: {2}}]),
    texts,
    texts.map(lambda text: Message("user", text)),
)
ttls = st.one_of(st.none(), st.none(), st.sampled_from([0, 0.001, 1, 5, 60.5]))


@dataclass
class Model:
    values: dict[str, tuple[Any, float | None, int]] = field(default_factory=dict)
    logs: dict[str, list[Any]] = field(default_factory=dict)
    highest: int = 0

    def expire(self, now: float) -> None:
        for key, (_, deadline, _) in list(self.values.items()):
            if deadline is not None and now >= deadline:
                del self.values[key]

    def version(self, key: str) -> int:
        return self.values[key][2] if key in self.values else 0

    def apply(self, batch: list[Op], now: float) -> list[int | None]:
        """Changes the model as the batch should, or raises; returns the numbers it should give, None for a version."""
        numbers: list[int | None] = []
        for op in batch:
            self.expire(now)
            if isinstance(op, Put):
                if op.key in self.logs:
                    raise StoreError
                if op.expected is not None and op.expected != self.version(op.key):
                    raise Conflict(op.key, op.expected, self.version(op.key))
                self.values[op.key] = deepcopy(op.value), None if op.ttl is None else now + op.ttl, UNKNOWN
                numbers.append(None)
            elif isinstance(op, Append):
                if op.key in self.values:
                    raise StoreError
                length = len(self.logs.get(op.key, ()))
                if op.at is not None and op.at != length:
                    raise Conflict(op.key, op.at, length)
                if op.items:
                    self.logs.setdefault(op.key, []).extend(deepcopy(op.items))
                numbers.append(length)
            else:
                held = len(self.logs.get(op.key, ())) or self.version(op.key)
                if op.expected is not None and op.expected != held:
                    raise Conflict(op.key, op.expected, held)
                self.logs.pop(op.key, None)
                self.values.pop(op.key, None)
                numbers.append(int(held != 0))
        return numbers


async def outcome_of(call: Awaitable[Any]) -> Any:
    try:
        return await call
    except Exception as error:
        return error


class StoreMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="store-", dir=FAST))
        self.clock = FakeClock(1_000.0)
        self.model = Model()
        self.leases: list[Lease] = []
        self.holder: Lease | None = None
        self.until = 0.0
        self.runner = asyncio.Runner()
        self.store = self.open()

    def open(self) -> Store:
        raise NotImplementedError

    def teardown(self) -> None:
        self.run(self.store.aclose())
        self.runner.close()
        shutil.rmtree(self.folder)

    def run(self, call: Any) -> Any:
        return self.runner.run(call)

    def check(self, ops: list[Op], outcome: Any) -> None:
        """Compares what a commit came to with the model, and moves the model on."""
        changed = deepcopy(self.model)
        refusal, expected = None, []
        try:
            expected = changed.apply(ops, self.clock())
        except StoreError as error:
            refusal = error
        if refusal is not None:
            assert type(outcome) is type(refusal), outcome
            if isinstance(refusal, Conflict) and refusal.actual != UNKNOWN:
                assert vars(outcome) == vars(refusal)
            return
        assert isinstance(outcome, tuple), outcome
        assert [wanted if wanted is not None else got for wanted, got in zip(expected, outcome, strict=True)] == list(
            outcome
        )
        versions = [got for wanted, got in zip(expected, outcome, strict=True) if wanted is None]
        assert versions == sorted(set(versions))
        assert not versions or versions[0] > self.model.highest
        self.model = changed

    def learn_versions(self) -> None:
        for key, (value, deadline, version) in self.model.values.items():
            if version == UNKNOWN:
                found = self.run(self.store.versioned(key))
                assert found is None or found[1] > self.model.highest
                self.model.values[key] = value, deadline, found[1] if found else UNKNOWN
        self.model.highest = max([self.model.highest, *[v for _, _, v in self.model.values.values() if v != UNKNOWN]])

    def batch(self, ops: list[Op], fence: Lease | None = None) -> None:
        self.check(ops, self.run(outcome_of(self.store.commit(ops, fence=fence))))
        self.learn_versions()

    def ops(self, data: st.DataObject) -> list[Op]:
        def op(kind: str, key: str) -> Op:
            is_right = data.draw(st.booleans())
            version = self.model.version(key)
            if kind == "put":
                expected = version if is_right else data.draw(st.sampled_from([None, None, 0, NEVER]))
                return Put(key, data.draw(values), expected=expected, ttl=data.draw(ttls))
            length = len(self.model.logs.get(key, ()))
            if kind == "append":
                at = length if is_right else data.draw(st.sampled_from([None, None, 0, 1]))
                return Append(key, tuple(data.draw(st.lists(values, max_size=3))), at=at)
            return Delete(key, expected=data.draw(st.sampled_from([None, 0, length or version])))

        shapes = data.draw(st.lists(st.tuples(st.sampled_from(["put", "append", "delete"]), keys), max_size=4))
        return [op(*shape) for shape in shapes]

    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        self.batch(self.ops(data))

    @rule(data=st.data())
    def commit_at_once(self, data: st.DataObject) -> None:
        """Several calls that wait together, none of which meets another's keys: each lands or fails alone."""
        parts: list[list[Op]] = []
        free = set(KEYS)
        for _ in range(data.draw(st.integers(2, 4))):
            ops = [op for op in self.ops(data) if op.key in free]
            free -= {op.key for op in ops}
            parts.append(ops)

        async def together() -> list[Any]:
            return await asyncio.gather(*[outcome_of(self.store.commit(ops)) for ops in parts])

        for ops, outcome in zip(parts, self.run(together()), strict=True):
            self.check(ops, outcome)
        self.learn_versions()

    @rule(key=keys, value=values, ttl=ttls)
    def set(self, key: str, value: Any, ttl: float | None) -> None:
        if key in self.model.logs:
            return
        self.batch([Put(key, value, ttl=ttl)])

    @rule(key=keys, value=values)
    def get_or_set(self, key: str, value: Any) -> None:
        self.model.expire(self.clock())
        if key in self.model.logs:
            return
        found = self.run(self.store.get_or_set(key, lambda: value))
        if key in self.model.values:
            assert found == self.model.values[key][0]
        else:
            assert found == value
            version = self.run(self.store.versioned(key))[1]
            assert version > self.model.highest
            self.model.highest = version
            self.model.values[key] = deepcopy(value), None, version

    @rule(key=keys)
    def read(self, key: str) -> None:
        self.model.expire(self.clock())
        if key in self.model.logs:
            for call in (self.store.get(key), self.store.versioned(key)):
                assert isinstance(self.run(outcome_of(call)), StoreError)
        elif key in self.model.values:
            value, _, version = self.model.values[key]
            assert self.run(self.store.versioned(key)) == (value, version)
            found = self.run(self.store.get(key, MISSING))
            assert (found, type(found)) == (value, type(value))
        else:
            assert self.run(self.store.get(key, MISSING)) is MISSING
            assert self.run(self.store.versioned(key)) is None

    @rule(key=keys, start=st.integers(0, 5), stop=st.none() | st.integers(0, 6))
    def read_log(self, key: str, start: int, stop: int | None) -> None:
        self.model.expire(self.clock())
        if key not in self.model.values:
            assert self.run(self.store.list(key, start=start, stop=stop)) == self.model.logs.get(key, [])[start:stop]

    @rule(
        prefix=st.one_of(st.just(""), keys.map(lambda key: key[:2])),
        after=st.none() | keys,
        limit=st.none() | st.integers(0, 4),
    )
    def list_keys(self, prefix: str, after: str | None, limit: int | None) -> None:
        self.model.expire(self.clock())
        expected = sorted(
            key
            for key in (*self.model.values, *self.model.logs)
            if key.startswith(prefix) and (after is None or key > after)
        )
        assert self.run(self.store.keys(prefix, after=after, limit=limit)) == expected[:limit]

    @rule(seconds=st.sampled_from([0.0005, 0.001, 1, 5, 100]))
    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule(owner=st.sampled_from(["one", "two"]), ttl=st.sampled_from([1, 10]))
    def lease(self, owner: str, ttl: float) -> None:
        assert isinstance(self.store, LeasingStore)
        granted = self.run(self.store.lease("name", owner, ttl))
        held = self.holder
        is_free = held is None or held.owner == owner or self.clock() >= self.until
        assert (granted is not None) is is_free
        if granted is not None:
            assert granted.fence > self.model.highest
            self.model.highest = granted.fence
            self.holder, self.until = granted, self.clock() + ttl
            self.leases.append(granted)

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), what=st.sampled_from(["renew", "release", "commit", "commit"]))
    def use_lease(self, data: st.DataObject, what: str) -> None:
        assert isinstance(self.store, LeasingStore)
        lease = data.draw(st.sampled_from(self.leases[-3:]))
        is_current = lease == self.holder
        if what == "commit":
            ops = self.ops(data)
            if is_current:
                self.batch(ops, lease)
            else:
                assert isinstance(self.run(outcome_of(self.store.commit(ops, fence=lease))), Fenced)
        elif what == "renew":
            assert self.run(self.store.renew(lease)) is is_current
            if is_current:
                self.until = self.clock() + lease.ttl
        else:
            assert self.run(self.store.release(lease)) is is_current
            if is_current:
                self.holder = None

    @rule(key=keys, words=st.lists(st.sampled_from(["alpha", "LPH", "beta", "gä", "x", "Ä", "zz"]), max_size=2))
    def search(self, key: str, words: list[str]) -> None:
        self.model.expire(self.clock())
        if key in self.model.values:
            return
        assert isinstance(self.store, SearchingStore)
        expected = []
        for at, item in enumerate(self.model.logs.get(key, [])):
            text = item.content if isinstance(item, Message) else item if isinstance(item, str) else str(item)
            if isinstance(item, (Message, str)) and words and all(w.casefold() in text.casefold() for w in words):
                expected.append(at)
        found = [hit.position for hit in self.run(self.store.search(key, " ".join(words), 50))]
        plain = [at for at in found if isinstance(self.model.logs[key][at], (Message, str))]
        assert plain == expected[::-1]

    @invariant()
    def lists_what_is_there(self) -> None:
        self.model.expire(self.clock())
        assert self.run(self.store.keys()) == sorted([*self.model.values, *self.model.logs])


class MemoryMachine(StoreMachine):
    def open(self) -> Store:
        return InMemoryStore(self.clock)


class SQLiteMachine(StoreMachine):
    exclusive = False

    def open(self) -> Store:
        return SQLiteStore(self.folder / "store.db", self.exclusive, self.clock, "NORMAL")

    @rule(exclusive=st.booleans())
    def reopen(self, exclusive: bool) -> None:
        self.run(self.store.aclose())
        self.exclusive = exclusive
        self.store = self.open()
        if exclusive:
            self.holder = None

    @rule()
    def next_loop(self) -> None:
        self.runner.close()
        self.runner = asyncio.Runner()


class ExclusiveMachine(SQLiteMachine):
    exclusive = True


_settings = settings(stateful_step_count=30)
TestMemoryMachine = MemoryMachine.TestCase
TestMemoryMachine.settings = _settings
TestSharedMachine = SQLiteMachine.TestCase
TestSharedMachine.settings = _settings
TestExclusiveMachine = ExclusiveMachine.TestCase
TestExclusiveMachine.settings = _settings
