"""`Checkpoint`, a run at one moment, and `Checkpointer`, which numbers them. Touches its port and its clock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from agentkit.core.contracts.frozen import FrozenDict, deep_freeze
from agentkit.core.contracts.ports import Clock, Ctx

STATUSES = ("running", "suspended", "done", "failed")
TERMINAL = ("done", "failed")


@dataclass(frozen=True)
class Checkpoint:
    """A run at one moment. `version` counts the checkpoints of a run from 1; `created_at` is for people and orders
    nothing. `state` and `metadata` are deep-frozen. Raises ValueError for an unknown status or a version below 1."""

    run_id: str
    version: int
    state: Mapping[str, Any]
    created_at: float
    status: str = "running"
    metadata: Mapping[str, Any] = field(default_factory=FrozenDict)

    def __post_init__(self) -> None:
        check_run_id(self.run_id)
        if type(self.version) is not int:
            raise TypeError(f"version must be an int, not {type(self.version).__name__}")
        if self.version < 1:
            raise ValueError(f"version counts from 1, not {self.version}")
        check_status(self.status)
        for name in ("state", "metadata"):
            object.__setattr__(self, name, frozen_mapping(getattr(self, name), name))

    def is_terminal(self) -> bool:
        """Whether the run has ended."""
        return self.status in TERMINAL


class CheckpointPort(Protocol):
    """Where checkpoints are kept. `save` takes the next version of a run, one above its last, and raises Conflict where
    that is not the next any more; `list_versions` is ascending; `delete` of an unknown run does nothing."""

    async def save(self, checkpoint: Checkpoint, /) -> None: ...

    async def latest(self, run_id: str, /) -> Checkpoint | None: ...

    async def at_version(self, run_id: str, version: int, /) -> Checkpoint | None: ...

    async def list_versions(self, run_id: str, /) -> Sequence[int]: ...

    async def delete(self, run_id: str, /) -> None: ...


class Checkpointer:
    """Saves and finds the checkpoints of runs. Snapshots of one run take their turn, runs do not wait for each other.

    A Conflict says that somebody else wrote the run; it comes again until `resume` has read what they wrote. `clock`
    gives `created_at`, in seconds; `time.time` by default.
    """

    def __init__(self, port: CheckpointPort, clock: Clock | None = None) -> None:
        self._port = port
        self._clock: Clock = time.time if clock is None else clock
        self._last: dict[str, int] = {}
        self._turns = KeyedLocks()

    async def snapshot(
        self,
        run_id: str,
        state: Mapping[str, Any],
        status: str = "running",
        metadata: Mapping[str, Any] | None = None,
        *,
        ctx: Ctx | None = None,
    ) -> Checkpoint:
        """Save `state` as the run's next version, and tell `ctx` of it where one is given.

        Raises ValueError for an unknown status, CodecError for a value that cannot be stored, Conflict for a run that
        somebody else wrote; nothing is stored then.
        """
        check_run_id(run_id)
        check_status(status)
        held = frozen_mapping(state, "state")  # before anything is awaited: what comes later is not in this version
        info = frozen_mapping(metadata or {}, "metadata")
        async with self._turns.hold(run_id):
            last = self._last.pop(run_id, None)
            if last is None:
                versions = await self._port.list_versions(run_id)
                last = versions[-1] if versions else 0
            checkpoint = Checkpoint(run_id, last + 1, held, self._clock(), status, info)
            await self._port.save(checkpoint)
            if not checkpoint.is_terminal():
                self._last[run_id] = checkpoint.version
        if ctx is not None:
            with suppress(Exception):  # stored is stored, whatever an observer makes of it
                ctx.emit("checkpoint.saved", run_id=run_id, version=checkpoint.version, status=status)
        return checkpoint

    async def resume(self, run_id: str, include_terminal: bool = False) -> Checkpoint | None:
        """The latest checkpoint; None for an unknown run, and for one that ended unless `include_terminal`."""
        check_run_id(run_id)
        async with self._turns.hold(run_id):
            self._last.pop(run_id, None)
            found = await self._port.latest(run_id)
        return found if found is None or include_terminal or not found.is_terminal() else None

    async def at_version(self, run_id: str, version: int) -> Checkpoint | None:
        """An older checkpoint, whatever its status; None where there is none."""
        check_run_id(run_id)
        return await self._port.at_version(run_id, version)

    async def list_versions(self, run_id: str) -> list[int]:
        """All versions, ascending; none for an unknown run."""
        check_run_id(run_id)
        return list(await self._port.list_versions(run_id))

    async def delete(self, run_id: str) -> None:
        """Forget the run and all its versions; nothing happens for an unknown one."""
        check_run_id(run_id)
        async with self._turns.hold(run_id):
            self._last.pop(run_id, None)
            await self._port.delete(run_id)


def check_run_id(run_id: object) -> None:
    """TypeError or ValueError for what cannot name a run."""
    if not isinstance(run_id, str):
        raise TypeError(f"run_id must be a str, not {type(run_id).__name__}")
    if not run_id:
        raise ValueError("run_id must not be empty")


def check_status(status: object) -> None:
    """ValueError for an unknown status."""
    if status not in STATUSES:
        raise ValueError(f"unknown status {status!r}; known are {', '.join(STATUSES)}")


def frozen_mapping(value: Any, name: str) -> FrozenDict[str, Any]:
    """A deep-frozen copy of a mapping, or the same object where it is frozen; TypeError for anything else."""
    if type(value) is FrozenDict:
        return value
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} must be a mapping, not {type(value).__name__}")
    frozen: FrozenDict[str, Any] = deep_freeze(dict(value))
    return frozen


class KeyedLocks:
    """A lock per key for as long as somebody holds or awaits it. Locks belong to the running event loop: those that an
    ended loop left behind are not used again."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}

    @asynccontextmanager
    async def hold(self, key: str) -> AsyncIterator[None]:
        """Hold the key's lock."""
        loop = asyncio.get_running_loop()
        entry = self._entries.get(key)
        if entry is None or entry.loop is not loop:
            entry = self._entries[key] = _Entry(loop, asyncio.Lock())
        entry.users += 1
        try:
            async with entry.lock:
                yield
        finally:
            entry.users -= 1
            if not entry.users and self._entries.get(key) is entry:
                del self._entries[key]


@dataclass
class _Entry:
    loop: asyncio.AbstractEventLoop
    lock: asyncio.Lock
    users: int = 0
