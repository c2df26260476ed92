"""Outcomes that a plan may be settled by: the owner's tasks, the context's own runs, and nobody else's."""

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from agentd.context.record import ROOT
from agentd.records import Save
from agentd.runtime.inbox import Task
from agentd.runtime.outcomes import outcome_of

from .desks import FakeDesk

pytestmark = pytest.mark.anyio


class Tasks:
    def __init__(self, *tasks: Task) -> None:
        self.by_id = {task.id: task for task in tasks}

    async def task(self, id: str) -> Task:
        return self.by_id[id]


def services_of(desk: FakeDesk, *tasks: Task) -> Any:
    return SimpleNamespace(records=desk.records, inbox=Tasks(*tasks))


async def test_task_has_an_outcome_once_it_is_settled() -> None:
    desk = FakeDesk()
    services = services_of(
        desk,
        Task("good", "c9", "t", "ann", state="completed", output="42"),
        Task("bad", "c9", "t", "ann", state="failed", reason="no disk"),
        Task("open", "c9", "t", "ann", state="working"),
    )
    found = [await outcome_of(services, desk.context, "task", id) for id in ("good", "bad", "open", "gone")]
    assert found == [(True, "42"), (False, "no disk"), None, None]


async def test_f43_another_principals_task_has_none() -> None:
    desk = FakeDesk()
    services = services_of(desk, Task("hers", "c9", "t", "bea", state="completed", output="secret"))
    assert await outcome_of(services, desk.context, "task", "hers") is None
    root = desk.contexts.root()
    assert root.id == ROOT
    assert await outcome_of(services, root, "task", "hers") == (True, "secret")


async def test_f43_another_contexts_run_has_none() -> None:
    desk = FakeDesk()
    for id, context in (("mine", "c1"), ("other", "c2")):
        state = {"context": context, "ended": True, "state": "completed", "text": id}
        await desk.records.commit([Save("run", id, msgspec.json.encode(state))])
    await desk.records.commit([Save("run", "going", b'{"context": "c1"}')])
    services = services_of(desk)
    found = [await outcome_of(services, desk.context, "run", id) for id in ("mine", "other", "going", "gone")]
    assert found == [(True, "mine"), None, None, None]
