"""The contexts that are in memory, and their durable mirror. Opens nothing: rows and the store are handed in.

Only those that are needed are here. Starting with 100,000 stored contexts reads none of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from agentd.records import Row, Write
from agentkit.core.contracts.counting import SyncTokenCounter
from agentkit.core.contracts.errors import Corrupt, FormatError
from agentkit.state.context import CharClassTokenCounter

from .record import APART, ROOT, ContextKind, ContextState, SkillRef
from .resident import STATE, Context, Stored
from .rows import decode_state
from .view import of_state, visible_size


class NotYours(LookupError):
    """There is no such context, or it is somebody else's: the answer is the same."""


class Committing(Protocol):
    """Where records are written; `agentd.records.Records` is one."""

    async def commit(self, writes: Sequence[Write], /) -> tuple[Row, ...]: ...


@dataclass(frozen=True)
class Status:
    """What is told of a context without showing anything of its content. `window` in tokens, `window_source` says who
    named it; `plan`: items done and in all, None without one."""

    id: str
    kind: str
    version: int
    seq: int
    entries: int
    visible: int
    est_tokens: int
    window: int
    window_source: str
    turns: int
    principal: str | None
    skills: tuple[str, ...]
    plan: tuple[int, int] | None
    updated: int
    status: str


class Contexts:
    """The registry. `now` of every method is in milliseconds since the epoch."""

    def __init__(self, counter: SyncTokenCounter | None = None) -> None:
        self._counter = counter or CharClassTokenCounter()
        self._held: dict[str, Context] = {}

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[Context]:
        return iter(list(self._held.values()))

    def __contains__(self, id: object) -> bool:
        return id in self._held

    def ids(self) -> list[str]:
        """The ids in memory, sorted."""
        return sorted(self._held)

    def get(self, id: str) -> Context | None:
        return self._held.get(id)

    def root(self, *, now: int = 0) -> Context:
        """The root context, made when it is not there."""
        return self._held.get(ROOT) or self._made(ContextState(ROOT, ContextKind.ROOT, created=now, updated=now))

    def conversation(self, id: str, principal: str | None, *, now: int = 0) -> Context:
        """The conversation `id`, made for `principal` when it is not there. NotYours when another owns it, and for the
        root context, which is no conversation. `principal` None: whoever may reach all."""
        if id == ROOT:
            raise NotYours(f"there is no conversation {id!r}")
        held = self._held.get(id)
        if held is None:
            kind = ContextKind.CONVERSATION
            return self._made(ContextState(id, kind, principal=principal, created=now, updated=now))
        if principal is not None:
            if held.state.principal is None:
                held.update(principal=principal)
            elif held.state.principal != principal:
                raise NotYours(f"there is no conversation {id!r}")
        return held

    def remove(self, id: str) -> bool:
        """Take a context out of memory; what is stored of it stays. ValueError while something of it is not stored."""
        held = self._held.get(id)
        if held is not None and held.is_dirty and not held.is_new:
            raise ValueError(f"context {id!r} has changes that are not stored; store it first")
        return self._held.pop(id, None) is not None

    @property
    def max_est_tokens(self) -> int:
        """The largest estimate among the contexts in memory; 0 for none."""
        return max((held.state.est_tokens for held in self._held.values()), default=0)

    def status(self, window: int = 0, source: str = "default") -> list[Status]:
        """Of every context in memory, by id. `window`, `source`: of the model in use, for contexts that saw none."""
        return [status_of(self._held[id].state, window, source) for id in self.ids()]

    def restore(self, rows: Iterable[Row]) -> list[str]:
        """Take in contexts from their rows: one of kind `context` each, and those of the fields stored apart.

        Returns the ids that cannot be read; they are left out, and nothing of theirs is ever written over.
        """
        by_id: dict[str, dict[str, Row]] = {}
        for row in rows:
            by_id.setdefault(row.id, {})[row.kind] = row
        refused = []
        for id, found in by_id.items():
            try:
                self._restore_one(id, found)
            except (Corrupt, FormatError):
                refused.append(id)
        return sorted(refused)

    def restore_one(self, id: str, rows: Iterable[Row]) -> Context:
        """Take in one context. Raises Corrupt or FormatError naming it."""
        return self._restore_one(id, {row.kind: row for row in rows})

    def _restore_one(self, id: str, rows: dict[str, Row]) -> Context:
        if STATE not in rows:
            raise Corrupt(f"context {id!r} has no state row", key=id)
        apart = {name: rows[name].state for name in APART if name in rows and rows[name].state != b"null"}
        state = decode_state(rows[STATE].state, apart, id=id)
        state = msgspec.structs.replace(state, seq=rows[STATE].seq, fence=rows[STATE].fence)
        made = Context(state, self._counter, Stored(state, rows))
        self._held[id] = made
        return made

    async def checkpoint(self, store: Committing) -> list[str]:
        """Write what is not stored yet, context by context in order of ids, and return their ids.

        Stops at the first refusal, which it raises; what was written until then stays written.
        """
        written = []
        for id in self.ids():
            held = self._held[id]
            if writes := held.writes():
                held.stored(await store.commit(writes))
                written.append(id)
        return written

    def _made(self, state: ContextState) -> Context:
        made = Context(state, self._counter)
        self._held[state.id] = made
        return made


def status_of(state: ContextState, window: int = 0, source: str = "default") -> Status:
    """What is told of a context by its state row."""
    shown = of_state(state)
    items = state.plan.get("items", ()) if isinstance(state.plan, dict) else ()
    done = sum(1 for item in items if isinstance(item, dict) and item.get("status") in ("done", "skipped"))
    return Status(
        state.id,
        str(state.kind),
        state.version,
        state.seq,
        state.next - 1,
        visible_size(shown),
        state.est_tokens,
        state.model_window or window,
        source,
        state.turns,
        state.principal,
        tuple(_names(state.skills)),
        (done, len(items)) if items else None,
        state.updated,
        state.status,
    )


def _names(skills: Iterable[SkillRef]) -> Iterator[str]:
    return (ref.name for ref in skills)


__all__ = ["Context", "Contexts", "NotYours", "Status", "status_of"]
