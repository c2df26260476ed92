"""Many at once against a real process: 200 open streams and 64 busy conversations. No stream loses or repeats a frame,
memory stays where it was, everybody is answered. Prints figures; `make soak` runs it for two minutes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import time
from collections import Counter
from pathlib import Path
from statistics import median, quantiles

import httpx
import pytest

from tests.agentd.a2a.serving import frames, message
from tests.agentd.commands import AGENTD, clean_environment, stored, write_agent

pytestmark = [pytest.mark.anyio, pytest.mark.soak]
STREAMS, BUSY, SECONDS = 200, 64, 120.0
WARM = 20.0
"""Seconds until all streams are open and all contexts have been seen."""
SLOW = 6.0
"""Seconds of the model for those who stream."""


def resident(pid: int) -> int:
    """Resident memory of a process, KiB."""
    return int(Path(f"/proc/{pid}/status").read_text().split("VmRSS:")[1].split()[0])


class Load:
    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http
        self.waits: list[float] = []
        self.streams = 0
        self.wrong: Counter[str] = Counter()
        self.is_over = asyncio.Event()

    async def busy(self, n: int) -> None:
        """Sends one message after the other in a conversation."""
        count = 0
        while not self.is_over.is_set():
            count += 1
            params, began = message(f"quick {count}", id=f"b{n}-{count}", contextId=f"busy-{n}"), time.monotonic()
            told = (await self.http.post("/", json=_call("SendMessage", params))).json()
            self.waits.append(time.monotonic() - began)
            if told.get("result", {}).get("task", {}).get("status", {}).get("state") != "TASK_STATE_COMPLETED":
                self.wrong[json.dumps(told)[:200]] += 1

    async def stream(self, n: int) -> None:
        """Follows one slow task after the other, each in a conversation of its own."""
        count = 0
        while not self.is_over.is_set():
            count += 1
            params = message("slowly", id=f"s{n}-{count}", contextId=f"stream-{n}-{count % 3}")
            async with self.http.stream("POST", "/", json=_call("SendStreamingMessage", params)) as response:
                found = frames((await response.aread()).decode())
            ids = [id for id, _ in found]
            kinds = [next(iter(told["result"])) for _, told in found]
            self.streams += 1
            if len(set(ids)) != len(ids):
                self.wrong["a frame twice"] += 1
            if kinds[0] != "task" or kinds.count("artifactUpdate") != 1 or kinds[-1] != "statusUpdate":
                self.wrong[f"frames {kinds}"] += 1


def started(folder: Path, file: Path) -> subprocess.Popen[bytes]:
    """The daemon, its output in a file: a pipe that nobody reads would hold it up."""
    with (folder / "log").open("wb") as log:
        return subprocess.Popen([*AGENTD, "-c", str(file)], env=clean_environment(folder, {}), stdout=log, stderr=log)


def _call(method: str, params: object) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


async def test_200_streams_and_64_busy_contexts_for_two_minutes(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    script = {"rules": [{"when": "slowly", "text": "at last", "delay": SLOW}], "turns": ["at once"], "repeat": True}
    file = write_agent(
        tmp_path, script, store=stored(tmp_path), a2a={"listen": f"127.0.0.1:{port}"},
        agent={"max_parallel_turns": 400, "preflight": "never"}, context={"resident": 64},
        limits={"requests": "100000/1s"}, observability={"log_level": "error"},
    )  # fmt: skip
    process = started(tmp_path, file)
    try:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=120, limits=limits) as http:
            while True:
                try:
                    await http.get("/.well-known/agent-card.json")
                    break
                except httpx.ConnectError:
                    assert process.poll() is None, (tmp_path / "log").read_text()
                    await asyncio.sleep(0.1)
            load = Load(http)
            jobs = [asyncio.create_task(load.stream(n)) for n in range(STREAMS)]
            jobs += [asyncio.create_task(load.busy(n)) for n in range(BUSY)]
            await asyncio.sleep(WARM)
            before, answered = resident(process.pid), len(load.waits)
            await asyncio.sleep(SECONDS)
            after, waits = resident(process.pid), load.waits[answered:]
            load.is_over.set()
            await asyncio.gather(*jobs)
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, 60) == 0
    finally:
        process.kill()
    cuts = quantiles(waits, n=20)
    print(
        f"\n{len(waits) / SECONDS:.0f} messages/s beside {STREAMS} streams ({load.streams} ended); wait of one: median "
        f"{median(waits):.2f} s, p95 {cuts[-1]:.2f} s, most {max(waits):.2f} s; resident {before / 1024:.0f} -> "
        f"{after / 1024:.0f} MiB; {os.cpu_count()} cores"
    )
    assert load.wrong == Counter()
    assert load.streams >= STREAMS
    assert after < before * 1.3, "memory grows with what was done"
