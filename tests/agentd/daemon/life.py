"""One life of a daemon for the crash tests, as a process: `python life.py FOLDER MESSAGES`. What was acknowledged and
what tools did is written to files of its own, each line synced before anything else happens."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from agentd.config import load
from agentd.runtime.daemon import Daemon
from agentd.runtime.tools.base import Answer, Invocation, Tool
from tests.agentd.daemon.model import ObedientLLM, task


def write_line(path: Path, value: Any) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(value) + "\n")
        file.flush()
        os.fsync(file.fileno())


def tools(folder: Path) -> list[Tool]:
    """`post` changes something outside, `look` does not, `put` may be repeated."""

    def named(name: str, *, read_only: bool = False, idempotent: bool = False) -> Tool:
        async def run(asked: Invocation) -> Answer:
            write_line(
                folder / "effects.jsonl", {"tool": name, "key": asked.key, "args": asked.arguments, "pid": os.getpid()}
            )
            return Answer({"tool": name, "saw": asked.arguments.get("n")})

        schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
        return Tool(name, f"test tool {name}", schema, run, read_only=read_only, idempotent=idempotent)

    return [named("post"), named("look", read_only=True), named("put", idempotent=True)]


def orders(count: int) -> list[tuple[str, str, str]]:
    """Message id, context and text of each message."""
    made = []
    for at in range(count):
        rounds: list[list[dict[str, object]]] = [
            [{"tool": "look", "args": {"n": at}}, {"tool": "look", "args": {"n": at + 1000}}],
            [{"tool": "post", "args": {"n": at}}, {"tool": "put", "args": {"n": at}}],
            [{"tool": "memory.set", "args": {"key": f"k{at % 5}", "value": {"at": at, "pad": "x" * 200}}}],
        ]
        if at == 1:
            rounds.append([{"tool": "plan.create", "args": {"goal": "all", "items": ["one", "two"]}}])
        if at == 2:
            rounds.append([{"tool": "plan.update", "args": {"item": 1, "status": "done"}}])
        pad = f"\n{'lorem ipsum ' * 40}" if at % 3 == 0 else ""
        made.append((f"m{at}", f"c{at % 2}", task(str(at), *rounds[at % 3 :]) + pad))
    return made


async def main(folder: Path, count: int) -> None:
    settings = load([folder / "agent.yaml"], environ={}, flags=[("store.path", str(folder / "store"))])
    async with await Daemon.open(settings, model=ObedientLLM(), tools=tools(folder)) as agent:
        write_line(folder / "lives.jsonl", {"pid": os.getpid()})

        async def one(message_id: str, context: str, text: str) -> None:
            accepted = await agent.send(text, context=context, message_id=message_id)
            write_line(folder / "acks.jsonl", {"id": message_id, "task": accepted.task.id, "context": context})
            ended = await agent.wait(accepted.task.id)
            write_line(
                folder / "ends.jsonl", {"id": message_id, "task": ended.id, "state": ended.state, "text": ended.text}
            )

        await asyncio.gather(*(one(*order) for order in orders(count)))
        await agent.until_idle()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
