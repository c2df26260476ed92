"""`StoreCheckpoints`: checkpoints over any Store. Touches the store that is handed in.

A snapshot is one commit of what the run did not have yet, a small row and the head. Finding out what is new compares
pointers with what this process saved or loaded last, so nothing known is encoded or read again.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

from agentkit.core.contracts.errors import Conflict, Corrupt, FormatError, ScopeError
from agentkit.core.contracts.frozen import FrozenList, deep_freeze
from agentkit.core.contracts.messages import Message
from agentkit.core.contracts.ports import Delete, Store
from agentkit.core.contracts.scope import Scope
from agentkit.core.runtime import scoped

from .checkpoint import Checkpoint, KeyedLocks, check_run_id
from .run_log import LogView, NotesView, Range, positions, runs
from .run_state import INLINE, ROW_FORMAT, Keys, Layouts, RunState, ranges_in

LONGEST_NAME = 512
"""Characters of a quoted run id in a key; a longer one is named by its hash. Store keys may have 2,048 bytes with the
scope in front."""


class _Loaded(NamedTuple):
    checkpoint: Checkpoint
    messages: LogView
    journal: LogView
    notes: NotesView
    prefix: tuple[Any, int] | None
    layouts: dict[str, Layouts]


class StoreCheckpoints:
    """A `CheckpointPort` for one tenant over any Store: a raw one, or a view of that tenant.

    Each snapshot is one commit: what the run did not have yet, and a row of a few hundred bytes. It remembers the last
    messages of every run that has not ended, to tell what is new; `forget` lets go of them. Another tenant's run is an
    unknown one. Raises ScopeError for a store or a state of another tenant.
    """

    def __init__(self, store: Store, scope: Scope) -> None:
        self._store, self._scope = scoped(store, scope), scope
        self._runs: dict[str, RunState] = {}
        self._turns = KeyedLocks()

    async def save(self, checkpoint: Checkpoint) -> None:
        """Store the next version. Conflict when another writer was first: nothing is stored, then or later, until
        `latest` has read what is there. After any other error the outcome is looked up before the next save."""
        self._check_scope(checkpoint.state.get("scope"))
        run_id = checkpoint.run_id
        keys = _keys(run_id)
        async with self._turns.hold(run_id):
            run = await self._known(run_id)
            if checkpoint.version != run.version + 1:
                raise Conflict(keys.versions, run.version, checkpoint.version - 1)
            plan = run.plan(checkpoint, keys, self._scope.key(), uuid.uuid4().hex)
            run.pending = plan
            try:
                written = await self._store.commit(plan.batch)
            except Conflict:
                run.pending = None
                raise
            run.advance(plan, written[0])
            if checkpoint.is_terminal():
                self._runs.pop(run_id, None)

    async def latest(self, run_id: str) -> Checkpoint | None:
        """The run's last version; None for an unknown run. What it holds is what the next save is compared with."""
        check_run_id(run_id)
        async with self._turns.hold(run_id):
            self._runs.pop(run_id, None)
            run, found = await self._read(run_id)
            if found is not None and not found.is_terminal():
                self._runs[run_id] = run
            return found

    async def at_version(self, run_id: str, version: int) -> Checkpoint | None:
        """One version; None where there is none. Only the messages that it shows are read."""
        check_run_id(run_id)
        if type(version) is not int:
            raise TypeError(f"version must be an int, not {type(version).__name__}")
        found = await self._head(run_id)
        if found is None or not 1 <= version <= found[0]["version"]:
            return None
        loaded = await self._load(run_id, version)
        if (run := self._runs.get(run_id)) is not None:
            run.messages.lent = loaded.messages.items, loaded.messages.ranges
            run.journal.lent = loaded.journal.items, loaded.journal.ranges
        return loaded.checkpoint

    async def list_versions(self, run_id: str) -> Sequence[int]:
        """All versions, ascending."""
        check_run_id(run_id)
        found = await self._head(run_id)
        return range(1, 1 if found is None else found[0]["version"] + 1)

    async def delete(self, run_id: str) -> None:
        """Remove the run with all its versions; nothing happens for an unknown one."""
        check_run_id(run_id)
        async with self._turns.hold(run_id):
            self._runs.pop(run_id, None)
            if await self._head(run_id) is not None:
                await self._store.commit([Delete(key) for key in _keys(run_id).all()])

    def forget(self, run_id: str) -> None:
        """Let go of what is remembered of a run; the next save of it reads the stored version first."""
        self._runs.pop(run_id, None)

    # -- inside ----------------------------------------------------------------------------------------------------

    async def _known(self, run_id: str) -> RunState:
        """What the next save of a run is compared with."""
        run = self._runs.get(run_id)
        if run is None:
            run, _ = await self._read(run_id)
            self._runs[run_id] = run
        elif run.pending is not None:
            # The last commit may have landed without our hearing of it. Its id tells; if neither it nor what was there
            # before is found, somebody else wrote, and the commit to come is refused.
            head = await self._head(run_id)
            if head is not None and head[0]["commit"] == run.pending.commit:
                run.advance(run.pending, head[1])
            run.pending = None
        return run

    async def _read(self, run_id: str) -> tuple[RunState, Checkpoint | None]:
        found = await self._head(run_id)
        if found is None:
            return RunState(), None
        head, seen = found
        loaded = await self._load(run_id, head["version"])
        lengths = head["lengths"]
        loaded.messages.length, loaded.journal.length = lengths["messages"], lengths["journal"]
        run = RunState(
            seen,
            head["version"],
            loaded.messages,
            loaded.journal,
            loaded.notes,
            loaded.prefix,
            loaded.layouts,
            lengths["parts"],
        )
        return run, loaded.checkpoint

    async def _head(self, run_id: str) -> tuple[Mapping[str, Any], int] | None:
        """The run's head and its version in the store. One of another tenant or run, put there by whatever means, is
        as good as none."""
        found = await self._store.versioned(_keys(run_id).head)
        if found is None:
            return None
        head, seen = found
        _check_format(head)
        return (head, seen) if (head["scope"], head["run"]) == (self._scope.key(), run_id) else None

    async def _load(self, run_id: str, version: int) -> _Loaded:
        keys = _keys(run_id)
        (row,) = await self._items(keys.versions, [(version - 1, version)])
        _check_format(row)
        state = dict(row["state"])
        layouts: dict[str, Layouts] = {}
        messages, journal, notes, prefix = LogView(), LogView(), NotesView(), None
        if "messages" in row:
            messages = await self._view(keys, "messages", row["messages"], layouts)
            state["messages"] = _as_saved(messages.items, row["messages"])
        if "journal" in row:
            journal = await self._view(keys, "journal", row["journal"], layouts)
            state["journal"] = {**state["journal"], "entries": _as_saved(journal.items, row["journal"])}
        if "prefix" in row:
            (part,) = await self._items(keys.parts, [(row["prefix"], row["prefix"] + 1)])
            prefix = deep_freeze(part["prefix"]), row["prefix"]
            state["prefix"] = prefix[0]
        if "notes" in row:
            notes = await self._notes(keys, *row["notes"])
            state["scratchpad"] = notes.notes
        checkpoint = Checkpoint(
            run_id, row["version"], deep_freeze(state), row["created_at"], row["status"], row["metadata"]
        )
        return _Loaded(checkpoint, messages, journal, notes, prefix, layouts)

    async def _view(self, keys: Keys, name: str, view: Mapping[str, Any], layouts: dict[str, Layouts]) -> LogView:
        base = None
        if view["base"] is not None:
            (part,) = await self._items(keys.parts, [(view["base"], view["base"] + 1)])
            base = part["layout"]
        ranges = ranges_in(view, base)
        if len(ranges) > INLINE and base is not None:
            layouts[name] = Layouts(ranges[:-1], view["base"])
        key = getattr(keys, name)
        wanted = list(positions(ranges))
        covered = runs(wanted)
        items = await self._items(key, covered)
        if covered != list(ranges):
            by_place = dict(zip(positions(covered), items, strict=True))
            items = [by_place[place] for place in wanted]
        return LogView(tuple(items), ranges, messages_only=all(type(item) is Message for item in items))

    async def _notes(self, keys: Keys, start: int, stop: int) -> NotesView:
        places: dict[str, int] = {}
        values: dict[tuple[str, int], Any] = {}
        changes = 0
        for place, part in enumerate(await self._items(keys.parts, [(start, stop)]), start):
            if "index" in part:
                places, changes = dict(part["index"]), 0
            elif "set" in part:
                for key in part["drop"]:
                    places.pop(key, None)
                places |= dict.fromkeys(part["set"], place)
                values |= {(key, place): value for key, value in part["set"].items()}
                changes += len(part["set"]) + len(part["drop"])
        missing = runs([place for key, place in places.items() if (key, place) not in values])
        for place, part in zip(positions(missing), await self._items(keys.parts, missing), strict=True):
            values |= {(key, place): value for key, value in part["set"].items()}
        notes = deep_freeze({key: values[key, place] for key, place in places.items()})
        return NotesView(notes, places, start, stop, changes)

    async def _items(self, key: str, ranges: Iterable[Range]) -> list[Any]:
        found: list[Any] = []
        for start, stop in ranges:
            if start == stop:
                continue
            items = await self._store.list(key, start=start, stop=stop)
            if len(items) != stop - start:
                raise Corrupt(f"{key!r} has {len(items)} items from {start} to {stop}; the run's rows name all of them")
            found += items
        return found

    def _check_scope(self, saved: Any) -> None:
        if isinstance(saved, Mapping):
            saved = Scope(saved.get("org_id"), saved.get("domain_id"))
        if isinstance(saved, Scope) and saved != self._scope:
            raise ScopeError(f"a state of {saved.key()} cannot be stored for {self._scope.key()}")


def _keys(run_id: str) -> Keys:
    name = quote(run_id, safe="", errors="surrogatepass")
    if len(name) > LONGEST_NAME:
        name = "#" + hashlib.sha256(name.encode("ascii")).hexdigest()  # no quoted id has a # in it
    return Keys.of(f"checkpoint/{name}")


def _check_format(record: Mapping[str, Any]) -> None:
    if record["format"] > ROW_FORMAT:
        raise FormatError(f"the checkpoint has format {record['format']}; this release reads up to {ROW_FORMAT}")


def _as_saved(items: Sequence[Any], view: Mapping[str, Any]) -> Sequence[Any]:
    return FrozenList(items) if view.get("list") else items
