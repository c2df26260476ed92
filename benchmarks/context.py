"""Figures of the working context: growth, pointer work, durable turns, import. Prints ratios of things measured here.

`python benchmarks/context.py` prints them, `--write` also puts them into docs/performance.md.
"""

from __future__ import annotations

import asyncio
import copy
import json
import resource
import sqlite3
import subprocess
import sys
import tempfile
import tracemalloc
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from harness import Table, best, best_after, finish

from agentkit.core.contracts.types import Message, Scope, ToolCall, Usage
from agentkit.state.context import PrefixContext, WorkingContext
from agentkit.state.persistence import Checkpointer, StoreCheckpoints, dehydrate, rehydrate
from agentkit.state.stores import SQLiteStore
from agentkit.transcripts import load

ROOT = Path(__file__).resolve().parent.parent
SAMPLE = ROOT / "examples" / "transcripts" / "worktree-long.jsonl"


def turn(number: int) -> tuple[Message, ...]:
    """One turn of an agent: question, call, result, answer."""
    call = ToolCall(f"call-{number}", "read_file", {"path": f"src/module_{number}.py", "limit": 200})
    return (
        Message("user", f"What does module {number} do, and who calls it?"),
        Message("assistant", "", tool_calls=(call,)),
        Message("tool", "def main() -> int:\n    return 0\n" * 8, name="read_file", tool_call_id=call.id),
        Message("assistant", f"Module {number} defines main, which returns 0."),
    )


def conversation(messages: int, notes: int = 0) -> WorkingContext:
    """A context of that many messages, its scratchpad with `notes` nested values."""
    context = WorkingContext(PrefixContext("You are a careful engineer."))
    for number in range(messages // 4):
        context.extend(turn(number))
    for number in range(notes):
        context.note(f"note-{number}", {"steps": [1, 2, {"done": False}], "owner": "sre"})
    return context


def pointer_work() -> Table:
    table = Table("Reading a context of 10,000 messages after one append")
    context = conversation(10_000)
    same = list(context.messages)
    baseline = best(lambda: list(same), rounds=30, number=20)
    extra = Message("user", "and now?")
    loop = asyncio.new_event_loop()

    def grow() -> None:
        context.append(extra)

    async def time_tokens() -> float:
        fastest = float("inf")
        for _ in range(30):
            grow()
            start = perf_counter()
            await context.tokens()
            fastest = min(fastest, perf_counter() - start)
        return fastest

    against = "list(a) of the same 10,000 objects"
    table.add("await tokens()", against, loop.run_until_complete(time_tokens()) / baseline, at_most=5)
    for name, run in {
        "freeze()": context.freeze,
        "hash(freeze())": lambda: hash(context.freeze()),
        "fork()": context.fork,
        "assembled()": context.assembled,
    }.items():
        table.add(name, against, best_after(grow, run) / baseline, at_most=5)
    loop.close()
    return table


@dataclass(frozen=True)
class PlainCall:
    id: str
    name: str
    arguments: tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class PlainMessage:
    role: str
    content: str
    name: str | None
    tool_call_id: str | None
    tool_calls: tuple[PlainCall, ...]


@dataclass
class PlainState:
    messages: list[PlainMessage] = field(default_factory=list)
    scratchpad: dict[str, Any] = field(default_factory=dict)


def plain(context: WorkingContext) -> PlainState:
    """The same state in plain dataclasses, which hash and copy all their fields."""
    return PlainState(
        [
            PlainMessage(
                m.role,
                m.content,
                m.name,
                m.tool_call_id,
                tuple(PlainCall(c.id, c.name, tuple(c.arguments.items())) for c in m.tool_calls),
            )
            for m in context.messages
        ],
        copy.deepcopy(context.scratchpad),
    )


def snapshots() -> Table:
    table = Table("Snapshots and forks at 1,000 messages")
    context = conversation(1_000, notes=50)
    state = plain(context)
    context.freeze()
    fields = best(lambda: hash(tuple(state.messages)), number=5)
    bare = conversation(1_000)
    bare.freeze()
    table.faster(
        "hash(freeze())",
        "hashing all fields of all messages",
        fields / best(lambda: hash(bare.freeze()), number=20),
        at_least=20,
    )
    copied = best(lambda: copy.deepcopy(state), rounds=5)
    table.faster(
        "fork() with 50 nested notes",
        "copy.deepcopy of the same state in plain dataclasses",
        copied / best(context.fork, number=5),
        at_least=10,
    )
    long = conversation(10_000)
    same = list(long.messages)
    left, right = long.fork(), long.fork()
    left.append(Message("user", "left"))
    right.append(Message("user", "right"), Message("assistant", "there"))
    compared = best(lambda: left.diff(right), number=5) / best(lambda: list(map(id, same)), number=5)
    table.add("diff of two forks of 10,000 messages", "list(map(id, a)) of the same objects", compared, at_most=5)
    return table


def growth() -> Table:
    table = Table("Growth: 10,000 messages against 100")
    short, long = conversation(100), conversation(10_000)
    extra = Message("user", "and now?")
    table.add(
        "append",
        "append at 100",
        best(lambda: long.append(extra), number=500) / best(lambda: short.append(extra), number=500),
        at_most=1.3,
    )
    return table


class Run:
    """A conversation that is checkpointed after every turn."""

    def __init__(self, store: SQLiteStore, name: str) -> None:
        self.checkpointer = Checkpointer(StoreCheckpoints(store, Scope(1)))
        self.context, self.usage = WorkingContext(PrefixContext("You are a careful engineer.")), Usage()
        self.name, self.turns = name, 0

    async def go(self, turns: int) -> None:
        """Take that many turns."""
        for number in range(self.turns, self.turns + turns):
            self.context.extend(turn(number))
            self.usage += Usage(1_000, 200)
            await self.checkpointer.snapshot(self.name, dehydrate(self.context, self.usage, number), "running")
        self.turns += turns


async def _compare_turns(path: Path, late: int, window: int) -> tuple[float, float]:
    """Ratios of a turn near turn `late` to one near turn 10: median seconds, and bytes that the process wrote.

    Both conversations stand in one store and take their turns in turn, so that they meet the same disk.
    """
    store = SQLiteStore(path, exclusive=True)
    runs = [Run(store, "early"), Run(store, "late")]
    await runs[0].go(10)
    await runs[1].go(late - window)
    times: tuple[list[float], list[float]] = ([], [])
    written = [0, 0]
    for _ in range(window):
        for which, run in enumerate(runs):
            before, start = _bytes_written(), perf_counter()
            await run.go(1)
            times[which].append(perf_counter() - start)
            written[which] += _bytes_written() - before
    await store.aclose()
    return median(times[1]) / median(times[0]), written[1] / written[0]


async def _fill(path: Path, turns: int) -> None:
    store = SQLiteStore(path, exclusive=True)
    await Run(store, "run").go(turns)
    await store.aclose()


def _bytes_written() -> int:
    """Bytes that this process has handed to write calls so far."""
    for line in Path("/proc/self/io").read_text().splitlines():
        if line.startswith("wchar:"):
            return int(line.split()[1])
    raise RuntimeError("the kernel does not account bytes written per process here")


async def _load(path: Path) -> int:
    store = SQLiteStore(path)
    checkpointer = Checkpointer(StoreCheckpoints(store, Scope(1)))
    checkpoint = await checkpointer.resume("run")
    assert checkpoint is not None
    context, *_ = rehydrate(checkpoint.state)
    await store.aclose()
    return context.size()


def _load_plain(path: Path) -> int:
    """The message rows of the same file read and decoded with nothing but sqlite3 and json."""
    connection = sqlite3.connect(path)
    rows = [json.loads(body) for (body,) in connection.execute("select body from item order by id")]
    connection.close()
    return sum("role" in row or "m" in row for row in rows if isinstance(row, dict))


def durable() -> Table:
    table = Table("A durable turn on SQLite")
    with tempfile.TemporaryDirectory() as folder:
        seconds, written = asyncio.run(_compare_turns(Path(folder, "turns.db"), late=10_000, window=200))
        table.add("time of a turn near turn 10,000", "near turn 10, taken in turn", seconds, at_most=1.3)
        table.add("bytes written by a turn near turn 10,000", "near turn 10", written, at_most=1.3)
        path = Path(folder, "load.db")
        asyncio.run(_fill(path, 1_000))
        loop = asyncio.new_event_loop()
        ours = best(lambda: loop.run_until_complete(_load(path)), rounds=5)
        loop.close()
        table.add(
            "loading a context of 1,000 turns",
            "reading and decoding its rows with sqlite3 and json alone",
            ours / best(lambda: _load_plain(path), rounds=5),
            at_most=3,
        )
    return table


def _grown_sample(path: Path, megabytes: int) -> None:
    """The sample session, told again and again under new ids as one conversation, until the file has that size."""
    records = [json.loads(line) for line in SAMPLE.read_text(encoding="utf-8").splitlines()]
    records = [r for r in records if r.get("uuid")]
    last: str | None = None
    with path.open("w", encoding="utf-8") as file:
        for repetition in count():
            names: dict[str, str] = {}
            for record in records:
                names[record["uuid"]] = f"{record['uuid']}-{repetition}"
            for record in records:
                parent = record.get("parentUuid")
                copied = json.loads(json.dumps(record))
                copied["uuid"] = names[record["uuid"]]
                copied["parentUuid"] = names.get(parent, last) if parent else last
                if isinstance(copied["message"].get("id"), str):
                    copied["message"]["id"] += f"-{repetition}"
                content = copied["message"].get("content")
                for block in content if isinstance(content, list) else ():
                    for key in ("id", "tool_use_id"):
                        if isinstance(block.get(key), str):
                            block[key] += f"-{repetition}"
                file.write(json.dumps(copied, ensure_ascii=False) + "\n")
            last = names[records[-1]["uuid"]]
            if file.tell() >= megabytes * 1_000_000:
                return


def _parse(path: Path) -> int:
    with path.open(encoding="utf-8") as file:
        return sum(1 for line in file if json.loads(line))


def importing() -> Table:
    table = Table("Importing a transcript of 10 MB")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "session.jsonl")
        _grown_sample(path, 10)
        parsed = best(lambda: _parse(path), rounds=3)
        table.add("load()", "json.loads of each line", best(lambda: load(path), rounds=3) / parsed, at_most=3)
        tracemalloc.start()
        kept = load(path)
        size, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert kept
        # A session file is a tree, so its reader keeps a small entry per record (ids and places) until the end.
        table.add(
            "peak memory beyond the result", "the size of the file", (peak - size) / path.stat().st_size, at_most=0.25
        )
    return table


def start_up() -> Table:
    table = Table("Start")
    ours = theirs = float("inf")
    for _ in range(15):  # in turn, so that both meet the same noise; processor time, so that neighbours count less
        ours = min(ours, _processor_seconds("import agentkit.state.context"))
        theirs = min(theirs, _processor_seconds("import asyncio, dataclasses, json"))
    table.add("import agentkit.state.context", "import asyncio, dataclasses, json", ours / theirs, at_most=2)
    return table


def _processor_seconds(code: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    parts = [pointer_work, snapshots, growth, durable, importing, start_up]
    finish("context", [part() for part in parts])
