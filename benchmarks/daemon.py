"""Figures of the daemon: the cost of a turn as its log grows, many conversations at once, restart, reduction. Prints
ratios of things measured here; a model of no time answers.

`python benchmarks/daemon.py` prints them, `--write` also puts them into docs/performance.md.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import queue
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from harness import Table, best, finish

from agentd.config import Settings, load
from agentd.context.compact import Applied, apply, look, plan
from agentd.context.messages import messages
from agentd.context.record import ContextState, TextPart, UserMsg
from agentd.context.resident import Context
from agentd.context.settings import Reduction
from agentd.context.tokens import Conditions
from agentd.runtime import process
from agentd.runtime.daemon import Daemon
from agentkit.core.contracts.messages import Message
from agentkit.core.contracts.requests import ChatRequest, Delta, LLMResult
from agentkit.core.contracts.usage import Usage
from agentkit.state.compaction import extract
from agentkit.state.context import CharClassTokenCounter
from agentkit.state.stores.find import fold, searchable

ROOT = Path(__file__).resolve().parent.parent
TEXT = "What does module seven do, and who calls it? " * 4
ANSWER = "Module seven defines main, which returns 0; nobody calls it. " * 4


class InstantLLM:
    """Answers at once, always the same, and reports nothing about the prompt."""

    async def chat(self, request: ChatRequest, /) -> LLMResult:
        return LLMResult(ANSWER, (), Usage(0, 40), "stop", request.model)

    async def stream(self, request: ChatRequest, /) -> AsyncIterator[Delta]:
        yield Delta(ANSWER, (), Usage(0, 40), "stop")


def settings(folder: Path, **flags: object) -> Settings:
    file = folder / "agent.yaml"
    file.write_text("agent: {name: bench, preflight: never}\nintelligence: {endpoints: ['fake:none'], model: none}\n")
    given = [("store.path", str(folder / "store")), *((key, str(value)) for key, value in flags.items())]
    return load([file], environ={}, flags=given)


async def _turns(agent: Daemon, context: str, count: int) -> None:
    for _ in range(count):
        await agent.ask(TEXT, context=context)


def growth() -> Table:
    """Two conversations side by side, one with a hundred times the log of the other and the same view."""
    table = Table("A durable turn as the log grows, at equal size of the view")

    async def run(folder: Path) -> tuple[float, float]:
        async with await Daemon.open(settings(folder), model=InstantLLM()) as agent:
            for context, turns in (("short", 34), ("long", 3_334)):
                await _turns(agent, context, turns)
                await agent.command("context.compact", context=context, keep_last=0)
            store = agent.services.records.store
            times, sizes = {"short": float("inf"), "long": float("inf")}, Counter[str]()
            gc.disable()
            for _ in range(60):
                for context in times:
                    start, before = perf_counter(), _written(folder)
                    await agent.ask(TEXT, context=context)
                    times[context] = min(times[context], perf_counter() - start)
                    sizes[context] += _written(folder) - before
            gc.enable()
            assert store is not None
        return times["long"] / times["short"], sizes["long"] / sizes["short"]

    with tempfile.TemporaryDirectory() as folder:
        time, size = asyncio.run(run(Path(folder)))
    table.add("time of a turn behind 10,000 entries", "behind 100", time, at_most=1.3)
    table.add("bytes written by a turn behind 10,000 entries", "behind 100", size, at_most=1.3)
    return table


def _written(folder: Path) -> int:
    """Bytes that this process has handed to the file system so far."""
    return int(Path("/proc/self/io").read_text().split("wchar: ")[1].split()[0])


def throughput() -> Table:
    table = Table("64 conversations at once, turns per second")
    turns, conversations = 12, 64

    async def run(folder: Path) -> float:
        found = settings(folder, **{"agent.max_parallel_turns": conversations})
        async with await Daemon.open(found, model=InstantLLM()) as agent:
            process.started()
            await asyncio.gather(*(_turns(agent, f"c{n}", 2) for n in range(conversations)))
            start = perf_counter()
            await asyncio.gather(*(_turns(agent, f"c{n}", turns) for n in range(conversations)))
            return turns * conversations / (perf_counter() - start)

    ratios = []
    with tempfile.TemporaryDirectory() as name:
        for n in range(5):  # taken in turn, since a disk's flush swings from one minute to the next
            folder = Path(name) / str(n)
            folder.mkdir()
            # Both in a process that looks for garbage as that of `agentd` does.
            ours = asyncio.run(run(folder))
            rows = _rows_of(folder / "store" / "agentd.db")
            plain = asyncio.run(_plain(folder / "plain.db", rows, conversations, turns))
            print(f"     ours {ours:,.0f} turns/s, plain loop {plain:,.0f}", flush=True)
            ratios.append(ours / plain)
        _where(Path(name) / "profile")
    table.faster("durable turns of the daemon", "the same rows through the plainest group commit", median(ratios),
                 at_least=0.15)  # fmt: skip
    return table


@dataclass(frozen=True)
class Rows:
    """What one turn leaves in the database: log lines with the text of each for the index, and rows."""

    lines: tuple[tuple[bytes, str], ...]
    context: bytes
    task: bytes


def _rows_of(path: Path) -> Rows:
    """The rows of a conversation's last turn."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        (log,) = db.execute("select log from entry where key like '%/log/c7'").fetchone()
        (context,) = db.execute("select body from entry where key like '%/context/c7'").fetchone()
        (task,) = db.execute("select body from entry where key like '%/task/%'").fetchone()
        items = db.execute("select body from item where id >> 31 = ? order by id desc limit 3", (log,)).fetchall()
    lines = [body for (body,) in reversed(items)]
    return Rows(tuple((line, fold(searchable(line))) for line in lines), context, task)


class PlainWriter:
    """The plainest group commit: a thread that takes what waits, and writes it in one transaction at synchronous FULL.
    It looks at nothing, checks nothing and decides nothing."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._queue: queue.SimpleQueue[tuple[Any, asyncio.Future[None]] | None] = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    async def commit(self, work: Any) -> None:
        done: asyncio.Future[None] = self._loop.create_future()
        self._queue.put((work, done))
        await done

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join()

    def _serve(self) -> None:
        index = "create virtual table words using fts5(text, content='', columnsize=0, detail=none, tokenize='trigram')"
        with closing(sqlite3.connect(self._path, isolation_level=None)) as db:
            for statement in ("pragma journal_mode=wal", "pragma synchronous=full", index):
                db.execute(statement)
            db.execute("create table entry (key text not null primary key, version integer, body)")
            db.execute("create table item (id integer primary key, body not null)")
            while (first := self._queue.get()) is not None:
                waiting = [first]
                while not self._queue.empty() and len(waiting) < 256:
                    if (more := self._queue.get()) is None:
                        return
                    waiting.append(more)
                db.execute("begin immediate")
                for work, _ in waiting:
                    for statement, values in work:
                        db.execute(statement, values)
                db.execute("commit")
                self._loop.call_soon_threadsafe(self._tell, [done for _, done in waiting])

    def _tell(self, done: list[asyncio.Future[None]]) -> None:
        for one in done:
            one.set_result(None)


async def _plain(path: Path, rows: Rows, conversations: int, turns: int) -> float:
    """Turns per second of conversations that write what the daemon's write: three commits a turn, one after the other,
    each awaited."""
    put, add = "insert or replace into entry values (?, ?, ?)", "insert into item values (?, ?)"
    word = "insert into words(rowid, text) values (?, ?)"
    (user, *rest), numbers = rows.lines, itertools.count(1)

    def line(one: tuple[bytes, str]) -> list[Any]:
        n = next(numbers)
        return [(add, (n, one[0])), (word, (n, one[1]))]

    writer = PlainWriter(path)

    async def converse(n: int) -> None:
        for turn in range(turns):
            context, task = (put, (f"context/{n}", turn, rows.context)), (put, (f"task/{turn}/{n}", turn, rows.task))
            await writer.commit([(put, (f"inbox/{n}", turn, user[0])), task])
            await writer.commit([*line(user), context])
            gone = ("delete from entry where key = ?", (f"inbox/{n}",))
            await writer.commit([*(step for one in rest for step in line(one)), context, task, gone])

    start = perf_counter()
    await asyncio.gather(*(converse(n) for n in range(conversations)))
    seconds = perf_counter() - start
    writer.close()
    return conversations * turns / seconds


def _where(folder: Path) -> None:
    """Prints where the time of the daemon's turns goes: its own thread by module, and the writer's."""
    folder.mkdir()
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import daemon; "
    subprocess.run([sys.executable, "-c", f"{code}daemon.profile({str(folder)!r})"], check=True)


def profile(folder: str) -> None:
    """Samples both threads while 64 conversations run; prints the shares."""
    samples: Counter[str] = Counter()
    main, over = threading.main_thread().ident, threading.Event()

    def sample() -> None:
        while not over.wait(0.002):
            for ident, frame in sys._current_frames().items():
                if ident == threading.get_ident():
                    continue
                found: Any = frame
                while (
                    found is not None
                    and "/agentkit/" not in found.f_code.co_filename
                    and "/agentd/" not in found.f_code.co_filename
                ):
                    found = found.f_back
                name = (
                    "waiting, asyncio"
                    if found is None
                    else "/".join(Path(found.f_code.co_filename).with_suffix("").parts[-2:])
                )
                samples[("loop: " if ident == main else "writer: ") + name] += 1

    async def run() -> None:
        found = settings(Path(folder), **{"agent.max_parallel_turns": 64})
        async with await Daemon.open(found, model=InstantLLM()) as agent:
            await asyncio.gather(*(_turns(agent, f"c{n}", 2) for n in range(64)))
            watcher = threading.Thread(target=sample)
            watcher.start()
            await asyncio.gather(*(_turns(agent, f"c{n}", 10) for n in range(64)))
            over.set()
            watcher.join()

    asyncio.run(run())
    for thread in ("loop", "writer"):
        mine = Counter({name: count for name, count in samples.items() if name.startswith(thread)})
        total = sum(mine.values()) or 1
        print("     " + ", ".join(f"{name} {count / total:.0%}" for name, count in mine.most_common(6)), flush=True)


def restart() -> Table:
    table = Table("Restart to the first answer, and memory, with 100,000 stored contexts against 10")

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for contexts in (10, 100_000):
            (folder / str(contexts)).mkdir()
            asyncio.run(_fill(folder / str(contexts), contexts))
        times, sizes = {10: float("inf"), 100_000: float("inf")}, {10: 0, 100_000: 0}
        for _ in range(5):
            for contexts in times:
                seconds, size = _life(folder / str(contexts))
                times[contexts] = min(times[contexts], seconds)
                sizes[contexts] = max(sizes[contexts], size)
    table.add("start to first answer with 100,000 contexts", "with 10", times[100_000] / times[10], at_most=2)
    table.add("resident memory of that process", "with 10", sizes[100_000] / sizes[10], at_most=1.3)
    return table


async def _fill(folder: Path, contexts: int) -> None:
    """Contexts of one turn, made by the daemon, then copied row by row under other ids."""
    found = settings(folder)
    async with await Daemon.open(found, model=InstantLLM()) as agent:
        await _turns(agent, "seed", 1)
        records = agent.services.records
        row = await records.get("context", "seed")
        lines = await records.entries("log", "seed")
        assert row is not None
        from agentd.records import Add, Save

        for start in range(0, contexts, 1_000):
            batch: list[Any] = []
            for n in range(start, min(start + 1_000, contexts)):
                batch += [Save("context", f"c{n}", row.state), Add("log", f"c{n}", 1, tuple(lines))]
            await records.commit(batch)


def _life(folder: Path) -> tuple[float, int]:
    """Seconds from the start of a process's work to its first answer, and the largest resident size in KiB."""
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import asyncio, daemon; "
        f"asyncio.run(daemon.first_answer({str(folder)!r}))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    seconds, size = done.stdout.split()
    return float(seconds), int(size)


async def first_answer(folder: str) -> None:
    """Prints seconds to the first answer of an old context, and the size of the process."""
    start = perf_counter()
    async with await Daemon.open(settings(Path(folder)), model=InstantLLM()) as agent:
        await agent.ask(TEXT, context="c7")
        print(perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def resident() -> Table:
    """Memory is bounded by context.resident, not by how many contexts had a turn."""
    table = Table("Contexts in memory after each of 600 had a turn")

    async def run(folder: Path) -> int:
        async with await Daemon.open(settings(folder, **{"context.resident": 32}), model=InstantLLM()) as agent:
            for n in range(600):
                await agent.ask(TEXT, context=f"c{n}")
            return len(agent.contexts)

    with tempfile.TemporaryDirectory() as folder:
        held = asyncio.run(run(Path(folder)))
    table.add("contexts in memory", "context.resident (32)", held / 32, at_most=1.05)
    return table


def reduction() -> Table:
    table = Table("Reducing a context of 2,000 messages, without the model's time")
    held = Context(ContextState("bench"), CharClassTokenCounter())
    for n in range(1_000):
        held.append(UserMsg((TextPart(f"{TEXT} Number {n}."),)), now=n)
        held.append(_answer(n), now=n)
    held.update(handled=2_000)
    reduction, conditions = Reduction(), Conditions(100_000)

    def render() -> int:
        """Build every message anew, and count it."""
        made = [one.message for one in messages(held.view, held.entries)]
        return CharClassTokenCounter().measure(made)

    def reduce() -> None:
        scene = look(held.state, held.entries, reduction, conditions)
        made = plan(scene, reduction, conditions)
        assert not hasattr(made, "reason") or made.reason == "trigger", made
        sources = made.sources(held.entries)  # type: ignore[union-attr]
        done = apply(held.state, held.entries, made, extract(sources[:1]), reduction, conditions, now=1)  # type: ignore[arg-type]
        assert isinstance(done, Applied), done

    table.add(
        "plan and apply", "rendering and counting it once", best(reduce, rounds=3) / best(render, rounds=3), at_most=5
    )
    return table


def _answer(n: int) -> Any:
    from agentd.context.messages import assistant_msg

    return assistant_msg(Message("assistant", f"{ANSWER} Number {n}."))


if __name__ == "__main__":
    if shutil.disk_usage(tempfile.gettempdir()).free < 1_000_000_000:
        sys.exit("the daemon's benchmark needs 1 GB of free space")
    finish("daemon", [part() for part in (growth, throughput, restart, resident, reduction)])
