"""What has to hold of a store after any number of killed lives."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from agentd.config import load
from agentd.context.messages import message_of
from agentd.context.record import Effect, ToolMsg, UserMsg
from agentd.context.view import versions
from agentd.runtime.inbox import Task
from agentd.runtime.opening import reading
from agentkit.core.contracts.messages import Message
from agentkit.core.contracts.validity import check


def lines(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a file that several lives wrote; the last one may have been cut by a kill."""
    if not path.exists():
        return []
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


async def verify(folder: Path) -> dict[str, int]:
    """Raises AssertionError for anything that a crash may not do. Returns how much there was to look at."""
    settings = load([folder / "agent.yaml"], environ={}, flags=[("store.path", str(folder / "store"))])
    acknowledged = {line["id"]: line["task"] for line in lines(folder / "acks.jsonl")}
    reported = {line["id"]: line for line in lines(folder / "ends.jsonl")}
    async with reading(settings) as reader:
        ids = [status.id for status in await reader.contexts()]
        users: Counter[str | None] = Counter()
        unknown: set[str] = set()
        entries = compactions = 0
        for id in ids:
            log = await reader.log(id)
            assert [entry.n for entry in log] == list(range(1, len(log) + 1)), f"{id}: numbers with gaps or repeats"
            entries += len(log)
            users.update(entry.body.message_id for entry in log if isinstance(entry.body, UserMsg))
            unknown |= {
                entry.body.id for entry in log if isinstance(entry.body, ToolMsg) and entry.body.state == "unknown"
            }
            messages = [Message("system", "s"), *(message_of(entry.body) for entry in log if entry.is_message)]
            found = [p for p in check(messages, prefix=1) if p.code not in ("joined", "adjacent", "same_role")]
            assert not [p for p in found if p.code in ("unanswered", "orphan", "duplicate")], f"{id}: {found}"
            results = Counter(entry.body.id for entry in log if isinstance(entry.body, ToolMsg))
            assert all(count == 1 for count in results.values()), f"{id}: results twice: {results}"
            started = Counter(e.body.call for e in log if isinstance(e.body, Effect) and e.body.state == "started")
            assert all(count == 1 for count in started.values()), f"{id}: started twice: {started}"
            seen = [one.version for one in versions(log)]
            assert seen == sorted(set(seen)), f"{id}: versions {seen}"
            compactions += len(seen) - 1
            state = await reader.state(id)
            assert state.next == len(log) + 1, f"{id}: the row says {state.next - 1} entries, the log has {len(log)}"
        for id in acknowledged:
            assert users[id] == 1, f"message {id} was acknowledged and is there {users[id]} times"
        assert all(count == 1 for count in users.values()), f"messages twice: {users}"
        for id, task in acknowledged.items():
            row = await reader.records.get("task", task)
            assert row is not None, f"the task of {id} is gone"
            found_task = msgspec.json.decode(row.state, type=Task)
            if id in reported:
                assert found_task.state == reported[id]["state"] == "completed", f"{id}: {found_task}"
                assert reported[id]["text"] == f"done: {id.removeprefix('m')}", reported[id]
    effects = lines(folder / "effects.jsonl")
    posted = Counter(line["key"] for line in effects if line["tool"] == "post")
    assert all(count == 1 for count in posted.values()), f"run again in silence: {posted}"
    by_key = {(line["key"], json.dumps(line["args"], sort_keys=True), line["tool"]) for line in effects}
    assert len({key for key, _, _ in by_key}) == len(by_key), "one key names two calls"
    return {"contexts": len(ids), "entries": entries, "compactions": compactions, "effects": len(effects),
            "unknown": len(unknown), "acknowledged": len(acknowledged), "ended": len(reported)}  # fmt: skip
