"""Who may write: leases with an owner that can be named, and taken over from once it is dead. Touches the store that is
handed in, and this machine's list of processes.

The store grants a lease and checks its fence; it does not tell who holds one. So the owner signs: a row under the
lease's own name says who it is and until when.
"""

from __future__ import annotations

import functools
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import msgspec

from agentkit.core.contracts.errors import Fenced, Held, StoreError
from agentkit.core.contracts.ports import Lease, LeasingStore, Put, Store

from .envelope import Row, decode, encode
from .ids import wall_ms
from .keys import name_of
from .patience import patiently
from .writes import Retry

KIND = "lease"
"""The kind of the rows that owners sign."""

_STARTED = time.time()
_PATIENCE = Retry()


class Owner(msgspec.Struct, frozen=True):
    """A process. `started`: a time, for people; `life`: what tells it from a later process with the same number, and
    where the number means anything; empty where the system does not say."""

    host: str = ""
    pid: int = 0
    started: str = ""
    life: str = ""

    @property
    def text(self) -> str:
        """The name that a lease is granted to; equal for equal owners only."""
        return msgspec.json.encode(self).decode()

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, started {self.started}"


@dataclass(frozen=True, slots=True)
class Holder:
    """What an owner has signed: `fence` of its lease, `ttl` in seconds, `until` in ms."""

    owner: Owner
    fence: int
    ttl: float
    until: int


class _Signature(msgspec.Struct, frozen=True):
    owner: Owner = Owner()
    ttl: float = 0.0
    until: int = 0


def this_process() -> Owner:
    """The owner that this process is."""
    return _process(os.getpid())  # a forked child is another one


@functools.cache
def _process(own: int) -> Owner:
    started = datetime.fromtimestamp(_STARTED, UTC).isoformat(timespec="seconds")
    start = start_of(own)
    return Owner(socket.gethostname(), own, started, "" if start is None else f"{_world()} {start}")


def is_dead(owner: Owner) -> bool:
    """Whether this process surely has ended: it ran on this host, under the same list of processes, and is not in it
    any more. False where that cannot be told, which costs no more than waiting for the lease to end."""
    here = this_process()
    if owner.host != here.host or owner == here:
        return False
    if owner.life and here.life:
        world, _, start = owner.life.rpartition(" ")
        return world == here.life.rpartition(" ")[0] and start_of(owner.pid) != start
    try:
        os.kill(owner.pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    return False


def start_of(pid: int) -> str | None:
    """When a process was started, in ticks since the boot of the machine; None where there is none, or it has ended and
    only waits for its parent, and on systems without /proc."""
    try:
        # The program's name, in brackets, may hold anything.
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if len(fields) < 20 or fields[0] in (b"Z", b"X") else fields[19].decode()


def _world() -> str:
    """This boot of the machine, and the list of processes that this one is in."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return "?"


async def acquire(
    store: Store,
    name: str,
    owner: Owner,
    ttl: float,
    *,
    clock: Callable[[], int] = wall_ms,
    is_dead: Callable[[Owner], bool] = is_dead,
    retry: Retry = _PATIENCE,
) -> Lease:
    """The right to write under `name` for `ttl` seconds, renewed by `renew`. `clock` in ms.

    Refused at once with Held, which names the present owner and how long it lasts; an owner that is surely dead is
    taken over from at once, any other one when its time is over.
    """
    leasing = _leasing(store)
    lease = await patiently("lease", partial(leasing.lease, name, owner.text, ttl), retry)
    if lease is None:
        held = await holder(store, name, retry=retry)
        if held is not None and is_dead(held.owner):
            past = Lease(name, held.owner.text, held.fence, held.ttl)
            await patiently("release", partial(leasing.release, past), retry)
            lease = await patiently("lease", partial(leasing.lease, name, owner.text, ttl), retry)
            held = await holder(store, name, retry=retry)
        if lease is None:
            raise _refusal(name, held, clock())
    try:
        await _sign(store, lease, owner, clock(), retry)
    except BaseException:
        await leasing.release(lease)
        raise
    return lease


async def renew(store: Store, lease: Lease, *, clock: Callable[[], int] = wall_ms, retry: Retry = _PATIENCE) -> bool:
    """Whether the lease is still the current one; it then lasts for its ttl from now."""
    if not await patiently("renew", partial(_leasing(store).renew, lease), retry):
        return False
    try:
        await _sign(store, lease, msgspec.json.decode(lease.owner, type=Owner), clock(), retry)
    except Fenced:
        return False
    return True


async def release(store: Store, lease: Lease) -> bool:
    """Gives a lease up; False when it was not the current one."""
    return await _leasing(store).release(lease)


async def holder(store: Store, name: str, *, retry: Retry = _PATIENCE) -> Holder | None:
    """Who signed last for `name`; whether it still holds it, only the store knows. None where nobody did, or it cannot
    be read."""
    row = await _signed(store, name, retry)
    if row is None:
        return None
    try:
        found = msgspec.json.decode(row.state, type=_Signature)
    except msgspec.DecodeError:
        return None
    return Holder(found.owner, row.fence, found.ttl, found.until)


async def _sign(store: Store, lease: Lease, owner: Owner, now: int, retry: Retry) -> None:
    before = await _signed(store, lease.name, retry)
    state = msgspec.json.encode(_Signature(owner, lease.ttl, now + round(lease.ttl * 1000)))
    kind, id, instance = _place(lease.name)
    row = Row(kind, id, 1 if before is None else before.seq + 1, state, now, lease.fence)
    step = Put(lease.name, encode(row, instance))
    await patiently("commit", partial(store.commit, [step], fence=lease), retry)


async def _signed(store: Store, name: str, retry: Retry) -> Row | None:
    found = await patiently("get", partial(store.versioned, name), retry)
    kind, id, _ = _place(name)
    try:
        return None if found is None else decode(*found, kind, id)
    except (StoreError, ValueError):  # a signature is no data: whoever is granted the lease writes a new one
        return None


def _place(name: str) -> tuple[str, str, str]:
    parts = name_of(name)
    return (KIND, name, "") if parts is None else (parts.kind, parts.id, parts.instance)


def _leasing(store: Store) -> LeasingStore:
    if not store.capabilities.lease or not isinstance(store, LeasingStore):
        raise StoreError(f"{type(store).__name__} grants no leases, so two processes could write in it at once")
    return store


def _refusal(name: str, held: Holder | None, now: int) -> Held:
    parts = name_of(name)
    what = repr(name) if parts is None else f"agent {parts.instance!r}"
    if held is None:
        return Held(
            f"{what} belongs to another process, which did not say which; stop it, or wait until its lease ends"
        )
    lasts = max(0, held.until - now) / 1000
    return Held(
        f"{what} belongs to {held.owner}; stop that process, or wait: unless renewed its lease ends in {lasts:g} s",
        owner=str(held.owner),
        lasts=lasts,
    )
