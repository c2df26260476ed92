"""One life of a daemon whose agent works with a subagent and background runs, as a process: `python work_life.py
FOLDER SLOW`. Each call of a tool is a line of `effects.jsonl`, synced before it does anything; a call of the tool
`SLOW` never comes to its end."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from agentd.config import load
from agentd.runtime.daemon import Daemon
from agentd.runtime.tools.base import Answer, Invocation, Tool
from agentkit.core.contracts.requests import ChatRequest
from tests.agentd.daemon.house import Said
from tests.agentd.daemon.life import write_line
from tests.agentd.daemon.scripts import has_results, id_of, run, script

CONFIG = """\
agent: {name: work, preflight: never, max_parallel_turns: 2}
intelligence: {endpoints: ['fake:none'], model: none, max_output: 200}
lifecycle: {drain_timeout: 100ms}
"""


def tools(folder: Path, slow: str) -> list[Tool]:
    """`post` changes something outside, `put` may be repeated."""

    def named(name: str, *, idempotent: bool = False) -> Tool:
        async def call(asked: Invocation) -> Answer:
            write_line(folder / "effects.jsonl", {"tool": name, "n": asked.arguments.get("n"), "key": asked.key})
            if name == slow:
                await asyncio.Event().wait()
            return Answer({"n": asked.arguments.get("n")})

        schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
        return Tool(name, f"test tool {name}", schema, call, idempotent=idempotent)

    return [named("post"), named("put", idempotent=True)]


def parent(request: ChatRequest) -> Said:
    """A subagent, a run of each tool, both waited for, a plan that is bound to one of them."""
    steps: list[Said] = [
        run(), [("run.start", {"tool": "put", "arguments": {"n": 2}})],
        [("run.start", {"tool": "post", "arguments": {"n": 3}})],
        [("plan.create", {"goal": "all", "items": ["run"]})],
        [("plan.update", {"item": 1, "bind": {"run": id_of(request, 0)}})],
        [("await", {"all": [id_of(request, 0), id_of(request, 1)]})], "all done",
    ]  # fmt: skip
    return steps[has_results(request)]


async def main(folder: Path, slow: str) -> None:
    settings = load([folder / "agent.yaml"], environ={}, flags=[("store.path", str(folder / "store"))])
    child: list[Said] = [[("put", {"n": 1})], "seven"]
    model = script(parent=parent, child=child)
    async with await Daemon.open(settings, model=model, tools=tools(folder, slow)) as agent:
        sent = await agent.send("do parent", context="c", message_id="m")
        task = await agent.wait(sent.task.id)
        write_line(folder / "ends.jsonl", {"state": task.state, "text": task.text, "reason": task.reason})
        await agent.until_idle()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else ""))
