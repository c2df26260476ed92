"""Numbering, statuses and turns of checkpoints, over a port of a few lines and over a store."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import FrozenInstanceError
from typing import Any, NoReturn

import pytest

from agentkit.core.contracts.types import Scope
from agentkit.core.runtime import RunEvent
from agentkit.core.testing import FakeClock, make_test_ctx
from agentkit.state.persistence import Checkpoint, Checkpointer, CheckpointPort, StoreCheckpoints
from agentkit.state.stores import InMemoryStore


class DictPort:
    """The least that a port must do."""

    def __init__(self) -> None:
        self.runs: dict[str, list[Checkpoint]] = {}

    async def save(self, checkpoint: Checkpoint, /) -> None:
        await asyncio.sleep(0)
        self.runs.setdefault(checkpoint.run_id, []).append(checkpoint)

    async def latest(self, run_id: str, /) -> Checkpoint | None:
        found = self.runs.get(run_id)
        return found[-1] if found else None

    async def at_version(self, run_id: str, version: int, /) -> Checkpoint | None:
        return next((c for c in self.runs.get(run_id, []) if c.version == version), None)

    async def list_versions(self, run_id: str, /) -> Sequence[int]:
        await asyncio.sleep(0)
        return [c.version for c in self.runs.get(run_id, [])]

    async def delete(self, run_id: str, /) -> None:
        self.runs.pop(run_id, None)


PORTS: list[Callable[[], CheckpointPort]] = [DictPort, lambda: StoreCheckpoints(InMemoryStore(), Scope(1))]
ports = pytest.mark.parametrize("port", PORTS, ids=["dict", "store"])


@ports
@pytest.mark.anyio
async def test_versions_count_from_one(port: Callable[[], CheckpointPort]) -> None:
    clock = FakeClock(100.0)
    checkpointer = Checkpointer(port(), clock)
    for expected in (1, 2, 3):
        made = await checkpointer.snapshot("r", {"n": expected}, metadata={"by": "test"})
        assert (made.version, made.created_at, made.status) == (expected, clock.now, "running")
        clock.now -= 10  # a clock that was put back orders nothing
    assert await checkpointer.list_versions("r") == [1, 2, 3]
    found = await checkpointer.resume("r")
    assert found == Checkpoint("r", 3, {"n": 3}, 80.0, "running", {"by": "test"})
    assert await checkpointer.at_version("r", 1) == Checkpoint("r", 1, {"n": 1}, 100.0, "running", {"by": "test"})
    assert await checkpointer.at_version("r", 9) is None
    assert await checkpointer.at_version("r", 0) is None


@ports
@pytest.mark.anyio
async def test_ten_at_once_get_ten_numbers(port: Callable[[], CheckpointPort]) -> None:
    checkpointer = Checkpointer(port())
    made = await asyncio.gather(*(checkpointer.snapshot("r", {"n": n}) for n in range(10)))
    assert sorted(c.version for c in made) == list(range(1, 11))
    assert await checkpointer.list_versions("r") == list(range(1, 11))
    for checkpoint in made:
        assert await checkpointer.at_version("r", checkpoint.version) == checkpoint


@pytest.mark.anyio
async def test_runs_do_not_wait_for_each_other() -> None:
    gate = asyncio.Event()

    class SlowFirst(DictPort):
        async def save(self, checkpoint: Checkpoint, /) -> None:
            if checkpoint.run_id == "slow":
                await gate.wait()
            await super().save(checkpoint)

    checkpointer = Checkpointer(SlowFirst())
    slow = asyncio.create_task(checkpointer.snapshot("slow", {}))
    await asyncio.sleep(0)
    assert (await asyncio.wait_for(checkpointer.snapshot("quick", {}), 5)).version == 1
    assert not slow.done()
    gate.set()
    assert (await slow).version == 1


@ports
@pytest.mark.anyio
async def test_resume_hides_what_ended(port: Callable[[], CheckpointPort]) -> None:
    checkpointer = Checkpointer(port())
    for status, shown in (("running", True), ("suspended", True), ("done", False), ("failed", False)):
        made = await checkpointer.snapshot(status, {}, status)
        assert made.is_terminal() is not shown
        assert await checkpointer.resume(status) == (made if shown else None)
        assert await checkpointer.resume(status, include_terminal=True) == made
        assert await checkpointer.at_version(status, 1) == made
    assert await checkpointer.resume("unknown") is None
    assert await checkpointer.list_versions("unknown") == []


@ports
@pytest.mark.anyio
async def test_ended_run_can_go_on(port: Callable[[], CheckpointPort]) -> None:
    checkpointer = Checkpointer(port())
    await checkpointer.snapshot("r", {"n": 1}, "failed")
    assert (await checkpointer.snapshot("r", {"n": 2}, "running")).version == 2


@ports
@pytest.mark.anyio
async def test_delete_is_idempotent(port: Callable[[], CheckpointPort]) -> None:
    checkpointer = Checkpointer(port())
    await checkpointer.snapshot("r", {})
    await checkpointer.delete("r")
    await checkpointer.delete("r")
    assert await checkpointer.resume("r") is None
    assert (await checkpointer.snapshot("r", {})).version == 1


@ports
@pytest.mark.anyio
async def test_snapshot_copies_in(port: Callable[[], CheckpointPort]) -> None:
    checkpointer = Checkpointer(port())
    state: dict[str, Any] = {"plan": {"steps": ["a"]}}
    waiting = asyncio.create_task(checkpointer.snapshot("r", state))
    await asyncio.sleep(0)
    state["plan"]["steps"].append("b")
    made = await waiting
    assert made.state == {"plan": {"steps": ["a"]}}
    found = await checkpointer.resume("r")
    assert found is not None
    assert found.state == {"plan": {"steps": ["a"]}}
    with pytest.raises(TypeError, match="frozen"):
        found.state["plan"]["steps"].append("c")
    with pytest.raises(FrozenInstanceError):
        found.status = "done"  # type: ignore[misc]


@pytest.mark.parametrize("status", ["Running", "", None, "finished", 1])
def test_unknown_status_is_refused(status: Any) -> None:
    with pytest.raises(ValueError, match="known are running, suspended, done, failed"):
        Checkpoint("r", 1, {}, 0.0, status)
    with pytest.raises(ValueError, match="unknown status"):
        asyncio.run(Checkpointer(DictPort()).snapshot("r", {}, status))


@pytest.mark.anyio
@pytest.mark.parametrize(("run_id", "error"), [("", ValueError), (5, TypeError), (None, TypeError)])
async def test_bad_run_ids_are_refused(run_id: Any, error: type[Exception]) -> None:
    checkpointer = Checkpointer(StoreCheckpoints(InMemoryStore(), Scope(1)))
    for call in (
        lambda: checkpointer.snapshot(run_id, {}),
        lambda: checkpointer.resume(run_id),
        lambda: checkpointer.at_version(run_id, 1),
        lambda: checkpointer.list_versions(run_id),
        lambda: checkpointer.delete(run_id),
    ):
        with pytest.raises(error, match="run_id"):
            await call()
    with pytest.raises(TypeError, match="state must be a mapping"):
        await checkpointer.snapshot("r", [])  # type: ignore[arg-type]


@pytest.mark.anyio
async def test_run_is_told_and_cannot_be_harmed() -> None:
    events: list[RunEvent] = []
    checkpointer = Checkpointer(DictPort())
    await checkpointer.snapshot("r", {}, ctx=make_test_ctx(observer=events.append))
    assert [(e.name, e.data) for e in events] == [
        ("checkpoint.saved", {"run_id": "r", "version": 1, "status": "running"})
    ]

    class BrokenCtx:
        def emit(self, event: str, /, **data: Any) -> NoReturn:
            raise RuntimeError("tracer is gone")

    broken: Any = BrokenCtx()
    assert (await checkpointer.snapshot("r", {}, ctx=broken)).version == 2


@pytest.mark.anyio
async def test_failed_save_keeps_the_number() -> None:
    class FailsOnce(DictPort):
        failures = 1

        async def save(self, checkpoint: Checkpoint, /) -> None:
            if self.failures:
                self.failures -= 1
                raise OSError("disk is full")
            await super().save(checkpoint)

    checkpointer = Checkpointer(FailsOnce())
    with pytest.raises(OSError, match="disk is full"):
        await checkpointer.snapshot("r", {"n": 1})
    assert (await checkpointer.snapshot("r", {"n": 2})).version == 1


@pytest.mark.anyio
async def test_cancelled_waiter_frees_its_turn() -> None:
    """W9."""
    gate = asyncio.Event()

    class Gated(DictPort):
        async def save(self, checkpoint: Checkpoint, /) -> None:
            await gate.wait()
            await super().save(checkpoint)

    checkpointer = Checkpointer(Gated())
    first, second, third = [asyncio.create_task(checkpointer.snapshot("r", {"n": n})) for n in range(3)]
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    gate.set()
    assert (await third).version == 1
    assert not checkpointer._turns._entries


@ports
def test_works_in_one_loop_after_another(port: Callable[[], CheckpointPort]) -> None:
    """Contended in one loop, used in the next."""
    checkpointer = Checkpointer(port())

    async def several() -> list[int]:
        made = await asyncio.gather(*(checkpointer.snapshot("r", {}) for _ in range(5)))
        return sorted(c.version for c in made)

    assert asyncio.run(several()) == [1, 2, 3, 4, 5]
    assert asyncio.run(several()) == [6, 7, 8, 9, 10]
